//! PKCS#7 signatures in the form that the kernel checks for dm-verity root hashes and fs-verity digests.
//!
//! Both formats sign a short byte string: dm-verity the root hash in lower-case hex ([`root_hash_bytes`]),
//! fs-verity the formatted digest ([`crate::fs::FileDigest::bytes_to_sign`]). The signature is a detached
//! PKCS#7 structure in DER without attributes and without certificates, as `fsverity sign` and
//! `openssl smime -sign -nocerts -noattr -binary -outform der` make it. [`sign`] makes one, [`Signature`] reads
//! and checks one, [`assemble`] builds one around a bare signature that a token made.
//!
//! Source: crypto/asymmetric_keys/pkcs7_parser.c says what the kernel accepts.

mod certificate;
mod digest;
mod key;
mod pem;
mod pkcs7;
mod systemd;

use der::asn1::{Any, Null, ObjectIdentifier, OctetString, SetOfVec};
use der::{Decode, Encode};
use x509_cert::spki::AlgorithmIdentifierOwned;

use casemate_primitives::secret::constant_time_eq;
use casemate_providers::{Hash, Providers};

pub use certificate::Certificate;
pub use digest::DigestAlgorithm;
pub use key::SigningKey;
pub use systemd::VeritySig;

use crate::{Code, Error, hex};
use certificate::RSA;
use pkcs7::{ContentInfo, EncapsulatedContent, SignedData, SignerId, SignerInfo};

/// A PKCS#7 signature, parsed.
#[derive(Clone, Debug)]
pub struct Signature {
    der: Vec<u8>,
    signers: Vec<SignerInfo>,
}

/// The bytes to sign for a dm-verity root hash: its lower-case hex digits, without a newline.
pub fn root_hash_bytes(root_hash: &[u8]) -> Vec<u8> {
    hex::encode(root_hash).into_bytes()
}

/// Refuses a root hash that no hash tree has: it is not as long as a digest.
///
/// # Errors
/// `Argument` with the lengths that there are.
pub fn check_root_hash(root_hash: &[u8]) -> Result<(), Error> {
    let (known, found) = (Hash::digest_lens(), root_hash.len());
    if known.contains(&found) {
        return Ok(());
    }
    let known: Vec<String> = known.iter().map(usize::to_string).collect();
    let known = known.join(", ");
    Err(Error::argument(format!("a root hash of {found} bytes: digests have {known}, so give all of it")))
}

/// Signs `message`: the whole PKCS#7 structure in DER.
///
/// # Errors
/// `Mismatch` if the key is not the certificate's.
pub fn sign(
    message: &[u8],
    key: &SigningKey,
    certificate: &Certificate,
    digest: DigestAlgorithm,
    providers: &Providers,
) -> Result<Vec<u8>, Error> {
    check_key(key, certificate)?;
    structure(&key.sign(message, digest, providers)?, certificate, digest)
}

/// Compares a private key with a certificate, before work whose outcome is signed.
///
/// # Errors
/// `Mismatch` if the key is not the certificate's.
pub fn check_key(key: &SigningKey, certificate: &Certificate) -> Result<(), Error> {
    if key.public_bytes() != certificate.key().to_bytes() {
        return Err(Error::coded(Code::BadSignature, "the private key does not belong to the certificate"));
    }
    Ok(())
}

/// Builds the PKCS#7 structure around a bare signature of `message` that was made elsewhere: the PKCS#1 v1.5
/// block of an RSA key, or the DER pair (r, s) of an ECDSA key.
///
/// # Errors
/// `Mismatch` if the signature is not one of `message` by the certificate's key.
pub fn assemble(
    message: &[u8],
    bare_signature: &[u8],
    certificate: &Certificate,
    digest: DigestAlgorithm,
    providers: &Providers,
) -> Result<Vec<u8>, Error> {
    certificate.key().verify(message, bare_signature, digest, providers)?;
    structure(bare_signature, certificate, digest)
}

impl Signature {
    /// Reads a signature in DER, or the first `PKCS7` or `CMS` block of a PEM file.
    ///
    /// # Errors
    /// `Corrupt` if it is not a PKCS#7 signature; `Unsupported` if it is one that the kernel would refuse because
    /// it carries its data inside or signs another type than plain data.
    pub fn from_bytes(file: &[u8]) -> Result<Signature, Error> {
        let der = match pem::find(file, &["PKCS7", "CMS"])? {
            Some(block) => block.der.to_vec(),
            None if pem::looks_like_pem(file) => {
                return Err(Error::corrupt("no PKCS#7 signature in the PEM file"));
            }
            None => file.to_vec(),
        };
        let info = ContentInfo::from_der(&der)
            .map_err(|error| Error::corrupt(format!("not a PKCS#7 signature: {error}")))?;
        if info.content_type != pkcs7::SIGNED_DATA {
            return Err(Error::corrupt(format!("PKCS#7: type {} is not signed data", info.content_type)));
        }
        let encapsulated = info.content.encapsulated;
        if encapsulated.content_type != pkcs7::DATA {
            let text =
                format!("PKCS#7: signs type {}; the kernel takes data only", encapsulated.content_type);
            return Err(Error::unsupported(text));
        }
        if encapsulated.content.is_some() {
            let text = "PKCS#7: carries its data inside; the kernel takes detached signatures only";
            return Err(Error::unsupported(text.to_owned()));
        }
        let signers = info.content.signers.into_vec();
        if signers.is_empty() {
            return Err(Error::corrupt("PKCS#7: there is no signer"));
        }
        Ok(Signature { der, signers })
    }

    /// Checks that the owner of `certificate` signed `message`. Returns that signer in words, whoever else signed.
    ///
    /// # Errors
    /// `Mismatch` if another signer signed, or another message was signed; `Unsupported` for algorithms that
    /// this crate or the kernel does not have.
    pub fn verify(
        &self,
        message: &[u8],
        certificate: &Certificate,
        providers: &Providers,
    ) -> Result<String, Error> {
        let Some(signer) = self.signers.iter().find(|signer| certificate.is(&signer.signer)) else {
            return Err(Error::coded(
                Code::BadSignature,
                format!("the signature is by {}, not by this certificate", self.signer()),
            ));
        };
        let digest = DigestAlgorithm::from_oid(signer.digest_algorithm.oid)?;
        let algorithm = signer.signature_algorithm.oid;
        let expected = certificate.key().signature_oid(digest);
        if algorithm != expected {
            return Err(Error::unsupported(format!(
                "PKCS#7: signature algorithm {algorithm}; the kernel takes {expected} for this key"
            )));
        }
        let attributes = signed_attributes(signer, message, digest, providers)?;
        let signed = attributes.as_deref().unwrap_or(message);
        certificate.key().verify(signed, signer.signature.as_bytes(), digest, providers)?;
        Ok(in_words(&signer.signer))
    }

    /// The signature in DER, as the kernel takes it.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// The first signer in words: issuer and serial number of the certificate, or its key identifier. Nothing proves it.
    pub fn signer(&self) -> String {
        in_words(&self.signers[0].signer)
    }
}

fn in_words(signer: &SignerId) -> String {
    match signer {
        SignerId::IssuerAndSerial(id) => format!("issuer '{}', serial number {}", id.issuer, id.serial),
        SignerId::KeyId(id) => format!("key identifier {}", hex::encode(id.as_bytes())),
    }
}

/// The structure with one signer and nothing optional, exactly as OpenSSL lays it out.
fn structure(signature: &[u8], certificate: &Certificate, digest: DigestAlgorithm) -> Result<Vec<u8>, Error> {
    let digest_algorithm = AlgorithmIdentifierOwned { oid: digest.oid(), parameters: Some(null()) };
    let signature_oid = certificate.key().signature_oid(digest);
    let parameters = (signature_oid == RSA).then(null);
    let signer = SignerInfo {
        version: 1,
        signer: SignerId::IssuerAndSerial(certificate.id().clone()),
        digest_algorithm: digest_algorithm.clone(),
        signed_attributes: None,
        signature_algorithm: AlgorithmIdentifierOwned { oid: signature_oid, parameters },
        signature: OctetString::new(signature).map_err(too_long)?,
        unsigned_attributes: None,
    };
    let content = SignedData {
        version: 1,
        digest_algorithms: SetOfVec::try_from(vec![digest_algorithm]).map_err(too_long)?,
        encapsulated: EncapsulatedContent { content_type: pkcs7::DATA, content: None },
        certificates: None,
        crls: None,
        signers: SetOfVec::try_from(vec![signer]).map_err(too_long)?,
    };
    ContentInfo { content_type: pkcs7::SIGNED_DATA, content }.to_der().map_err(too_long)
}

/// If the signer signed attributes and not the message itself: their DER, after checking that they are of this
/// message (RFC 5652 section 5.4).
fn signed_attributes(
    signer: &SignerInfo,
    message: &[u8],
    digest: DigestAlgorithm,
    providers: &Providers,
) -> Result<Option<Vec<u8>>, Error> {
    let Some(attributes) = &signer.signed_attributes else { return Ok(None) };
    let value = |oid| {
        let mut found = attributes.iter().filter(|attribute| attribute.oid == oid);
        match (found.next(), found.next()) {
            (Some(attribute), None) if attribute.values.len() == 1 => attribute.values.get(0),
            _ => None,
        }
    };
    let content_type = value(pkcs7::CONTENT_TYPE).map(|value| value.decode_as::<ObjectIdentifier>());
    let message_digest = value(pkcs7::MESSAGE_DIGEST).map(|value| value.decode_as::<OctetString>());
    let (Some(Ok(content_type)), Some(Ok(message_digest))) = (content_type, message_digest) else {
        let text = "PKCS#7: the signed attributes lack the content type or the message digest";
        return Err(Error::corrupt(text.to_owned()));
    };
    let expected = digest.digest(message, providers)?;
    if content_type != pkcs7::DATA || !constant_time_eq(message_digest.as_bytes(), &expected) {
        return Err(Error::coded(Code::BadSignature, "the signature does not match these bytes"));
    }
    attributes.to_der().map(Some).map_err(too_long)
}

fn null() -> Any {
    Any::from(Null)
}

fn too_long(error: der::Error) -> Error {
    Error::unsupported(format!("PKCS#7: can't be encoded: {error}"))
}
