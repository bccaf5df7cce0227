//! The signer's certificate: the signer's name, and the public key that checks the signature.

use std::fmt;

use der::Decode;
use der::asn1::ObjectIdentifier;
use p256::ecdsa::signature::hazmat::PrehashVerifier;
use ring::signature as ring_signature;
use x509_cert::Certificate as X509;
use x509_cert::ext::pkix::SubjectKeyIdentifier;
use x509_cert::spki::SubjectPublicKeyInfoOwned;

use casemate_providers::Providers;

use super::digest::DigestAlgorithm;
use super::pem;
use super::pkcs7::{IssuerAndSerial, SignerId};
use crate::{Code, Error};

/// rsaEncryption, which PKCS#7 also names as the algorithm of RSA signatures.
pub(super) const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
/// id-ecPublicKey.
pub(super) const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");

/// An X.509 certificate, of which only the names and the key are used.
///
/// Whether it is trusted, has expired or may sign is not looked at, as the kernel does not for keys in its
/// keyrings: giving a certificate is trusting it.
#[derive(Clone)]
pub struct Certificate {
    der: Vec<u8>,
    id: IssuerAndSerial,
    key_id: Option<Vec<u8>>,
    key: PublicKey,
}

/// The kinds of keys that signatures are made with.
#[derive(Clone)]
pub(super) enum PublicKey {
    /// The RSAPublicKey structure of PKCS#1.
    Rsa(Vec<u8>),
    P256(p256::ecdsa::VerifyingKey),
    P384(p384::ecdsa::VerifyingKey),
}

impl Certificate {
    /// Reads a certificate in PEM (the first one in the file) or DER.
    ///
    /// # Errors
    /// `Corrupt` if there is none or it is damaged; `Unsupported` if its key is neither RSA nor ECDSA on P-256
    /// or P-384.
    pub fn from_bytes(file: &[u8]) -> Result<Certificate, Error> {
        let found = pem::find(file, &["CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE"])?;
        let der = match found {
            Some(block) if block.label == "TRUSTED CERTIFICATE" => {
                let text = "OpenSSL's 'TRUSTED CERTIFICATE' is not supported; convert it with 'openssl x509'";
                return Err(Error::unsupported(text.to_owned()));
            }
            Some(block) => block.der.to_vec(),
            None if pem::looks_like_pem(file) => {
                return Err(Error::corrupt("no certificate in the PEM file"));
            }
            None => file.to_vec(),
        };
        let x509 = X509::from_der(&der)
            .map_err(|error| Error::corrupt(format!("not an X.509 certificate: {error}")))?;
        let tbs = x509.tbs_certificate();
        let id = IssuerAndSerial { issuer: tbs.issuer().clone(), serial: tbs.serial_number().clone() };
        let key_id = tbs.get_extension::<SubjectKeyIdentifier>().ok().flatten();
        let key_id = key_id.map(|(_, id)| id.0.as_bytes().to_vec());
        let key = PublicKey::from_spki(tbs.subject_public_key_info())?;
        Ok(Certificate { der, id, key_id, key })
    }

    /// SHA-256 of the certificate's DER, which systemd calls its fingerprint.
    ///
    /// # Errors
    /// Errors of [`DigestAlgorithm::digest`].
    pub fn fingerprint(&self, providers: &Providers) -> Result<Vec<u8>, Error> {
        DigestAlgorithm::Sha256.digest(&self.der, providers)
    }

    /// The certificate in DER.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    pub(super) fn id(&self) -> &IssuerAndSerial {
        &self.id
    }

    pub(super) fn key(&self) -> &PublicKey {
        &self.key
    }

    pub(super) fn is(&self, signer: &SignerId) -> bool {
        match signer {
            SignerId::IssuerAndSerial(id) => *id == self.id,
            SignerId::KeyId(id) => self.key_id.as_deref() == Some(id.as_bytes()),
        }
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Certificate({}, {})", self.id.issuer, self.id.serial)
    }
}

impl PublicKey {
    fn from_spki(spki: &SubjectPublicKeyInfoOwned) -> Result<PublicKey, Error> {
        let Some(key) = spki.subject_public_key.as_bytes() else {
            return Err(Error::corrupt("certificate: its public key is not a string of bytes"));
        };
        match spki.algorithm.oid {
            RSA => Ok(PublicKey::Rsa(key.to_vec())),
            EC => {
                let curve = spki.algorithm.parameters.as_ref().map(|curve| curve.decode_as());
                match curve {
                    Some(Ok(P256)) => {
                        Ok(PublicKey::P256(point(p256::ecdsa::VerifyingKey::from_sec1_bytes(key))?))
                    }
                    Some(Ok(P384)) => {
                        Ok(PublicKey::P384(point(p384::ecdsa::VerifyingKey::from_sec1_bytes(key))?))
                    }
                    _ => {
                        Err(Error::unsupported("certificate: its elliptic curve is neither P-256 nor P-384"))
                    }
                }
            }
            other => Err(Error::unsupported(format!(
                "certificate: its key's algorithm {other} is neither RSA nor ECDSA"
            ))),
        }
    }

    /// Checks a signature of `message` by the rules of the key's kind.
    ///
    /// # Errors
    /// `Mismatch` if the signature is not one of this message by this key.
    pub(super) fn verify(
        &self,
        message: &[u8],
        signature: &[u8],
        digest: DigestAlgorithm,
        providers: &Providers,
    ) -> Result<(), Error> {
        let hash = || digest.digest(message, providers);
        let right = match self {
            PublicKey::Rsa(key) => {
                let parameters = match digest {
                    DigestAlgorithm::Sha256 => &ring_signature::RSA_PKCS1_2048_8192_SHA256,
                    DigestAlgorithm::Sha384 => &ring_signature::RSA_PKCS1_2048_8192_SHA384,
                    DigestAlgorithm::Sha512 => &ring_signature::RSA_PKCS1_2048_8192_SHA512,
                };
                self.check_size()?;
                ring_signature::UnparsedPublicKey::new(parameters, key).verify(message, signature).is_ok()
            }
            PublicKey::P256(key) => {
                let hash = hash()?;
                p256::ecdsa::DerSignature::try_from(signature)
                    .is_ok_and(|signature| key.verify_prehash(&hash, &signature).is_ok())
            }
            PublicKey::P384(key) => {
                let hash = hash()?;
                p384::ecdsa::DerSignature::try_from(signature)
                    .is_ok_and(|signature| key.verify_prehash(&hash, &signature).is_ok())
            }
        };
        match right {
            true => Ok(()),
            false => Err(Error::coded(Code::BadSignature, "the signature does not match these bytes")),
        }
    }

    /// How PKCS#7 names a signature of a digest by such a key.
    pub(super) fn signature_oid(&self, digest: DigestAlgorithm) -> ObjectIdentifier {
        match (self, digest) {
            (PublicKey::Rsa(_), _) => RSA,
            (_, DigestAlgorithm::Sha256) => ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.2"),
            (_, DigestAlgorithm::Sha384) => ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.3"),
            (_, DigestAlgorithm::Sha512) => ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.4"),
        }
    }

    /// Refuses RSA keys that `ring` does not work with, so that "wrong" is never said of a right signature.
    fn check_size(&self) -> Result<(), Error> {
        let PublicKey::Rsa(key) = self else { return Ok(()) };
        let modulus = RsaPublicKey::from_der(key)
            .map_err(|error| Error::corrupt(format!("certificate: damaged RSA key: {error}")))?
            .modulus;
        let bits = modulus.as_bytes().len() * 8;
        match bits {
            2048..=8192 => Ok(()),
            _ => Err(Error::unsupported(format!("RSA keys of {bits} bits; use 2048 to 8192"))),
        }
    }

    /// Whether `other`, in the form that its kind is kept in here, is this key.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        match self {
            PublicKey::Rsa(key) => key.clone(),
            PublicKey::P256(key) => key.to_sec1_bytes().to_vec(),
            PublicKey::P384(key) => key.to_sec1_bytes().to_vec(),
        }
    }
}

#[derive(der::Sequence)]
struct RsaPublicKey {
    modulus: der::asn1::Uint,
    exponent: der::asn1::Uint,
}

fn point<K, E>(key: Result<K, E>) -> Result<K, Error> {
    key.map_err(|_| Error::corrupt("certificate: its public key is not a point of its curve"))
}
