//! The root hash's signature as systemd keeps it in a partition of its own ("verity-sig").
//!
//! A JSON object, then NUL bytes to the end of the partition.

use serde::{Deserialize, Serialize};

use casemate_primitives::base64::{Alphabet, Base64, Padding};
use casemate_providers::Providers;

use super::{Certificate, Signature, root_hash_bytes};
use crate::{Code, Error, hex};

/// The contents of a verity-sig partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VeritySig {
    /// The root hash that is signed.
    pub root_hash: Vec<u8>,
    /// SHA-256 of the signer's certificate in DER, if the partition has it.
    pub fingerprint: Option<Vec<u8>>,
    /// The PKCS#7 signature in DER.
    pub signature: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Json {
    root_hash: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate_fingerprint: Option<String>,
    signature: String,
}

/// The form of base64 that JSON objects of this kind have.
fn base64(providers: &Providers) -> Base64<'static> {
    Base64::new(providers.cpu(), &Alphabet::STANDARD, Padding::Padded)
}

impl VeritySig {
    /// The most bytes of a partition that is read.
    pub const MAX_SIZE: usize = 4 << 20;

    /// The partition's contents for a root hash and its signature.
    ///
    /// # Errors
    /// Errors of [`Signature::verify`]: nothing is attached that does not match.
    pub fn new(
        root_hash: &[u8],
        signature: &Signature,
        certificate: &Certificate,
        providers: &Providers,
    ) -> Result<VeritySig, Error> {
        signature.verify(&root_hash_bytes(root_hash), certificate, providers)?;
        Ok(VeritySig {
            root_hash: root_hash.to_vec(),
            fingerprint: Some(certificate.fingerprint(providers)?),
            signature: signature.der().to_vec(),
        })
    }

    /// Reads a verity-sig partition, or just its JSON object.
    ///
    /// # Errors
    /// `Corrupt` if the text before the first NUL is not such an object, or anything but NUL follows it.
    pub fn from_bytes(partition: &[u8], providers: &Providers) -> Result<VeritySig, Error> {
        let corrupt = |what: &str| Error::corrupt(format!("verity-sig partition: {what}"));
        let text = partition.split(|byte| *byte == 0).next().unwrap_or_default();
        if partition[text.len()..].iter().any(|byte| *byte != 0) {
            return Err(corrupt("the padding is not zero"));
        }
        let json: Json = serde_json::from_slice(text).map_err(|error| corrupt(&error.to_string()))?;
        let root_hash = hex::decode(&json.root_hash).ok_or_else(|| corrupt("rootHash is not hex"))?;
        let fingerprint = match &json.certificate_fingerprint {
            None => None,
            Some(text) => {
                Some(hex::decode(text).ok_or_else(|| corrupt("certificateFingerprint is not hex"))?)
            }
        };
        let signature = base64(providers)
            .decode_to_vec(json.signature.as_bytes())
            .map_err(|error| corrupt(&format!("signature: {error}")))?;
        Ok(VeritySig { root_hash, fingerprint, signature })
    }

    /// The partition's contents: the JSON object, filled up with NUL to at least `size` bytes, the
    /// partition's size where that is known. systemd-repart makes partitions of 16384 bytes.
    pub fn to_bytes(&self, size: usize, providers: &Providers) -> Vec<u8> {
        let json = Json {
            root_hash: hex::encode(&self.root_hash),
            certificate_fingerprint: self.fingerprint.as_deref().map(hex::encode),
            signature: base64(providers).encode_to_string(&self.signature),
        };
        // OK to unwrap: three strings can always be written.
        let mut bytes = serde_json::to_vec(&json).unwrap();
        bytes.resize(bytes.len().max(size), 0);
        bytes
    }

    /// Checks that the owner of `certificate` signed the root hash.
    ///
    /// # Errors
    /// `Mismatch` if the fingerprint or the signature is not the certificate's.
    pub fn verify(&self, certificate: &Certificate, providers: &Providers) -> Result<(), Error> {
        if let Some(fingerprint) = &self.fingerprint
            && *fingerprint != certificate.fingerprint(providers)?
        {
            return Err(Error::coded(Code::BadSignature, "the fingerprint is not this certificate's"));
        }
        let signature = Signature::from_bytes(&self.signature)?;
        signature.verify(&root_hash_bytes(&self.root_hash), certificate, providers).map(drop)
    }
}
