//! Hash algorithms of signatures.

use casemate_providers::Providers;
use der::asn1::ObjectIdentifier;

use crate::Error;

/// The hash algorithm of a signature, between the bytes to sign and the key's arithmetic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DigestAlgorithm {
    /// SHA-256: what OpenSSL and fsverity take if nothing is said.
    #[default]
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl DigestAlgorithm {
    /// The hash algorithm called `name`, such as `sha256`.
    ///
    /// # Errors
    /// `Unsupported` for any other name.
    pub fn named(name: &str) -> Result<DigestAlgorithm, Error> {
        match name {
            "sha256" => Ok(DigestAlgorithm::Sha256),
            "sha384" => Ok(DigestAlgorithm::Sha384),
            "sha512" => Ok(DigestAlgorithm::Sha512),
            other => {
                Err(Error::unsupported(format!("message digest '{other}'; known are sha256, sha384, sha512")))
            }
        }
    }

    /// The hash algorithm's name, such as `sha256`.
    pub fn name(self) -> &'static str {
        match self {
            DigestAlgorithm::Sha256 => "sha256",
            DigestAlgorithm::Sha384 => "sha384",
            DigestAlgorithm::Sha512 => "sha512",
        }
    }

    /// The digest of `message`.
    ///
    /// # Errors
    /// `Unsupported` with the reasons, if no implementation of the hash may be used.
    pub fn digest(self, message: &[u8], providers: &Providers) -> Result<Vec<u8>, Error> {
        Ok(providers.hash(self.name())?.digest(message))
    }

    /// Its name in PKCS#7.
    pub(super) fn oid(self) -> ObjectIdentifier {
        ObjectIdentifier::new_unwrap(match self {
            DigestAlgorithm::Sha256 => "2.16.840.1.101.3.4.2.1",
            DigestAlgorithm::Sha384 => "2.16.840.1.101.3.4.2.2",
            DigestAlgorithm::Sha512 => "2.16.840.1.101.3.4.2.3",
        })
    }

    pub(super) fn from_oid(oid: ObjectIdentifier) -> Result<DigestAlgorithm, Error> {
        let all = [DigestAlgorithm::Sha256, DigestAlgorithm::Sha384, DigestAlgorithm::Sha512];
        let found = all.into_iter().find(|digest| digest.oid() == oid);
        found.ok_or_else(|| Error::unsupported(format!("PKCS#7: message digest {oid}")))
    }
}
