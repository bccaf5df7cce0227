//! Who does the work: ciphers and hashes under a policy.

use std::fmt;
use std::sync::Arc;

use casemate_primitives::Cpu;
use casemate_primitives::base64::{Alphabet, Base64, Padding};
use casemate_providers::{Cipher, Hash, Policy, Registry};

use crate::Result;
use crate::mode::Mode;

/// The ciphers, hashes and the base64 codec that this crate runs on. Cheap to clone.
#[derive(Clone)]
pub struct Crypto(Arc<Inner>);

struct Inner {
    registry: Registry,
    policy: Policy,
    cpu: Cpu,
    sha256: Hash,
    sha512: Hash,
}

impl Crypto {
    /// Ciphers and hashes that run on `cpu`, chosen by the default policy.
    pub fn new(cpu: Cpu) -> Crypto {
        Crypto::with_registry(Registry::new(cpu), Policy::default(), cpu)
    }

    /// Ciphers and hashes from `registry`, chosen by `policy`.
    pub fn with_registry(registry: Registry, policy: Policy, cpu: Cpu) -> Crypto {
        // OK to unwrap: both hashes are in the table.
        let hash = |name| Hash::named(name, cpu).unwrap();
        Crypto(Arc::new(Inner { registry, policy, cpu, sha256: hash("sha256"), sha512: hash("sha512") }))
    }

    /// A mode's cipher under a key.
    pub(crate) fn cipher(&self, mode: Mode, key: &[u8]) -> Result<Cipher> {
        self.algorithm(mode.algorithm(), key)
    }

    pub(crate) fn algorithm(&self, algorithm: &str, key: &[u8]) -> Result<Cipher> {
        Ok(self.0.registry.cipher(algorithm, key, &self.0.policy)?)
    }

    pub(crate) fn sha256(&self) -> Hash {
        self.0.sha256.clone()
    }

    pub(crate) fn sha512(&self) -> Hash {
        self.0.sha512.clone()
    }

    /// The codec of names without a key.
    pub(crate) fn base64(&self) -> Base64<'static> {
        Base64::new(self.0.cpu, &Alphabet::URL_SAFE, Padding::Unpadded)
    }
}

impl fmt::Debug for Crypto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Crypto")
    }
}
