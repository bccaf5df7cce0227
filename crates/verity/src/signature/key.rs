//! The signer's private key.

use std::fmt;

use der::Decode;
use p256::ecdsa::signature::hazmat::PrehashSigner;
use p256::pkcs8::{DecodePrivateKey, PrivateKeyInfoRef};
use ring::rand::SystemRandom;
use ring::signature::{KeyPair, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RsaKeyPair};

use casemate_providers::Providers;

use super::certificate::{EC, RSA};
use super::digest::DigestAlgorithm;
use super::pem;
use crate::Error;

/// A private key: RSA of 2048 to 4096 bits, or ECDSA on P-256 or P-384.
pub struct SigningKey(Kind);

enum Kind {
    Rsa(Box<RsaKeyPair>),
    P256(p256::ecdsa::SigningKey),
    P384(p384::ecdsa::SigningKey),
}

impl SigningKey {
    /// Reads the first private key of a PEM file: `PRIVATE KEY` (PKCS#8), `RSA PRIVATE KEY` (PKCS#1) or
    /// `EC PRIVATE KEY` (SEC 1).
    ///
    /// # Errors
    /// `Corrupt` if there is none or it is damaged; `Unsupported` for encrypted keys, other algorithms and
    /// other sizes. No error shows anything of the key.
    pub fn from_pem(file: &[u8]) -> Result<SigningKey, Error> {
        let labels = ["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY", "ENCRYPTED PRIVATE KEY"];
        let Some(pem::Block { label, der }) = pem::find(file, &labels)? else {
            return Err(Error::corrupt("no private key in the PEM file"));
        };
        match label {
            "PRIVATE KEY" => SigningKey::from_pkcs8(&der),
            "RSA PRIVATE KEY" => rsa(RsaKeyPair::from_der(&der)),
            "EC PRIVATE KEY" => SigningKey::from_sec1(&der),
            _ => Err(pem::encrypted()),
        }
    }

    fn from_pkcs8(der: &[u8]) -> Result<SigningKey, Error> {
        let info = PrivateKeyInfoRef::from_der(der).map_err(damaged)?;
        match info.algorithm.oid {
            RSA => rsa(RsaKeyPair::from_pkcs8(der)),
            EC => {
                if let Ok(key) = p256::SecretKey::from_pkcs8_der(der) {
                    return Ok(SigningKey(Kind::P256(key.into())));
                }
                match p384::SecretKey::from_pkcs8_der(der) {
                    Ok(key) => Ok(SigningKey(Kind::P384(key.into()))),
                    Err(_) => Err(other_curve()),
                }
            }
            other => Err(Error::unsupported(format!(
                "private key: its algorithm {other} is neither RSA nor ECDSA"
            ))),
        }
    }

    fn from_sec1(der: &[u8]) -> Result<SigningKey, Error> {
        if let Ok(key) = p256::SecretKey::from_sec1_der(der) {
            return Ok(SigningKey(Kind::P256(key.into())));
        }
        match p384::SecretKey::from_sec1_der(der) {
            Ok(key) => Ok(SigningKey(Kind::P384(key.into()))),
            Err(_) => Err(other_curve()),
        }
    }

    /// The signature itself: PKCS#1 v1.5 for RSA, the DER pair (r, s) with the deterministic nonce of RFC 6979
    /// for ECDSA.
    pub(super) fn sign(
        &self,
        message: &[u8],
        digest: DigestAlgorithm,
        providers: &Providers,
    ) -> Result<Vec<u8>, Error> {
        let hash = || digest.digest(message, providers);
        let failed = || Error::unsupported("the key can't sign with this message digest");
        match &self.0 {
            Kind::Rsa(key) => {
                let encoding = match digest {
                    DigestAlgorithm::Sha256 => &RSA_PKCS1_SHA256,
                    DigestAlgorithm::Sha384 => &RSA_PKCS1_SHA384,
                    DigestAlgorithm::Sha512 => &RSA_PKCS1_SHA512,
                };
                let mut signature = vec![0; key.public().modulus_len()];
                let made = key.sign(encoding, &SystemRandom::new(), message, &mut signature);
                made.map(|()| signature).map_err(|_| failed())
            }
            Kind::P256(key) => {
                let made: Result<p256::ecdsa::DerSignature, _> = key.sign_prehash(&hash()?);
                made.map(|signature| signature.as_bytes().to_vec()).map_err(|_| failed())
            }
            Kind::P384(key) => {
                let made: Result<p384::ecdsa::DerSignature, _> = key.sign_prehash(&hash()?);
                made.map(|signature| signature.as_bytes().to_vec()).map_err(|_| failed())
            }
        }
    }

    /// The public half, in the form that certificates' keys are compared in.
    pub(super) fn public_bytes(&self) -> Vec<u8> {
        match &self.0 {
            Kind::Rsa(key) => key.public_key().as_ref().to_vec(),
            Kind::P256(key) => key.verifying_key().to_sec1_bytes().to_vec(),
            Kind::P384(key) => key.verifying_key().to_sec1_bytes().to_vec(),
        }
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.0 {
            Kind::Rsa(_) => "RSA",
            Kind::P256(_) => "P-256",
            Kind::P384(_) => "P-384",
        };
        write!(f, "SigningKey({kind})")
    }
}

fn rsa(key: Result<RsaKeyPair, ring::error::KeyRejected>) -> Result<SigningKey, Error> {
    match key {
        Ok(key) => Ok(SigningKey(Kind::Rsa(Box::new(key)))),
        Err(why) => Err(Error::unsupported(format!(
            "private key: this RSA key can't be used ({why}); it must have 2048 to 4096 bits"
        ))),
    }
}

fn damaged(error: impl fmt::Display) -> Error {
    Error::corrupt(format!("private key: damaged: {error}"))
}

fn other_curve() -> Error {
    Error::unsupported("private key: damaged, or its elliptic curve is neither P-256 nor P-384")
}
