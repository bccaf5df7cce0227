//! One implementation of one algorithm, as the registry lists it: data, no judgement.

use std::fmt;
use std::sync::Arc;

use crate::driver::{Driver, DriverError, HashDriver, MAX_IV_LEN};
use crate::engine::{Algorithm, Engine};
use crate::flags::{Flags, Origin};
use crate::hash::SaltedHash;

/// Makes a driver for a key.
pub type MakeCipher = dyn Fn(&[u8]) -> Result<Box<dyn Driver>, BadKey> + Send + Sync;

/// The sizes of an implementation and how to make it.
#[derive(Clone)]
pub enum Spec {
    /// Properties of a cipher.
    Cipher(CipherSpec),
    /// Properties of a hash.
    Hash(HashSpec),
}

/// A cipher's sizes and how to key it.
#[derive(Clone)]
pub struct CipherSpec {
    /// The length of an IV in bytes.
    pub iv_len: usize,
    /// The least size of a data unit: the block, or 1 for stream modes.
    pub block_len: usize,
    /// Whether a data unit must hold whole blocks.
    pub whole_blocks: bool,
    /// Key lengths in bytes, the usual one first.
    pub key_lens: Vec<usize>,
    /// Makes the driver for a key.
    pub make: Arc<MakeCipher>,
}

/// A hash's digest length and what runs it.
#[derive(Clone)]
pub struct HashSpec {
    digest_len: usize,
    pub(crate) make: MakeHash,
}

/// The maker of digests.
#[derive(Clone)]
pub(crate) enum MakeHash {
    Own(Engine),
    Outside(Arc<dyn HashDriver>),
}

/// The key's length is not one of the cipher's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadKey(pub String);

/// One implementation of one algorithm.
#[derive(Clone)]
pub struct Row {
    /// The algorithm's standard name, the kernel's: `xts(aes)`.
    pub algorithm: String,
    /// The implementation's own name: `xts-aes-vaes512`.
    pub driver: String,
    /// The kernel's habit: of two rows that may be chosen, the one with the higher number is.
    pub priority: u32,
    /// The implementation's flags, known before it is trusted.
    pub flags: Flags,
    /// The implementation's origin.
    pub origin: Origin,
    /// The sizes and how to make it, or why it is not available.
    pub spec: Result<Spec, String>,
}

impl Row {
    /// A row to be registered. Nothing is tested yet.
    pub fn new(
        algorithm: impl Into<String>,
        driver: impl Into<String>,
        priority: u32,
        flags: Flags,
        origin: Origin,
        spec: impl Into<Spec>,
    ) -> Row {
        let (algorithm, driver) = (algorithm.into(), driver.into());
        Row { algorithm, driver, priority, flags, origin, spec: Ok(spec.into()) }
    }

    /// A row that stands for what is not there, with the reason.
    pub fn unavailable(algorithm: &str, driver: &str, origin: Origin, why: impl Into<String>) -> Row {
        let (algorithm, driver, spec) = (algorithm.to_owned(), driver.to_owned(), Err(why.into()));
        let flags = Flags::NONE;
        Row { algorithm, driver, priority: 0, flags, origin, spec }
    }

    /// Whether the row may be in a registry at all.
    ///
    /// # Errors
    /// The sentence that says why not: the multi-data-unit flag on a cipher whose IV has not 16 bytes, an IV longer
    /// than any known, or a hash that no portable code here has, so that nothing could be compared with it.
    pub(crate) fn check(&self) -> Result<(), String> {
        let spec = match &self.spec {
            Ok(Spec::Cipher(spec)) => spec,
            Ok(Spec::Hash(_)) if portable_is(&self.algorithm) => return Ok(()),
            Ok(Spec::Hash(_)) => {
                return Err(format!(
                    "{}: there is no portable {} to compare with",
                    self.driver, self.algorithm
                ));
            }
            Err(_) => return Ok(()),
        };
        if self.flags.contains(Flags::MULTI_DATA_UNIT) && spec.iv_len != 16 {
            return Err(format!(
                "{}: the multi-data-unit flag needs an IV of 16 bytes, {} has {}",
                self.driver, self.algorithm, spec.iv_len
            ));
        }
        if spec.iv_len > MAX_IV_LEN || spec.key_lens.is_empty() {
            return Err(format!("{}: an IV of {} bytes, or no key length", self.driver, spec.iv_len));
        }
        Ok(())
    }

    /// The sizes of the cipher and how to key it.
    ///
    /// # Errors
    /// Why it is not available, or that it is a hash.
    pub fn cipher(&self) -> Result<&CipherSpec, String> {
        match &self.spec {
            Ok(Spec::Cipher(spec)) => Ok(spec),
            Ok(Spec::Hash(_)) => Err(format!("{} is a hash", self.algorithm)),
            Err(why) => Err(why.clone()),
        }
    }

    /// The digest length of the hash and what runs it.
    ///
    /// # Errors
    /// Why it is not available, or that it is a cipher.
    pub fn hash(&self) -> Result<&HashSpec, String> {
        match &self.spec {
            Ok(Spec::Hash(spec)) => Ok(spec),
            Ok(Spec::Cipher(_)) => Err(format!("{} is a cipher", self.algorithm)),
            Err(why) => Err(why.clone()),
        }
    }

    /// Whether the work is done elsewhere than on the CPU, by something that may fail or never answer.
    pub(crate) fn is_outside(&self) -> bool {
        !self.flags.common(Flags::KERN_DRIVER_ONLY | Flags::ASYNC).is_empty()
    }
}

impl HashSpec {
    /// A hash that something outside this program makes. What it makes is compared with the CPU's work each time.
    pub fn outside(digest_len: usize, driver: Arc<dyn HashDriver>) -> HashSpec {
        HashSpec { digest_len, make: MakeHash::Outside(driver) }
    }

    /// The vetted crate's.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn cold(algorithm: &str) -> HashSpec {
        let algorithm = Algorithm::named(algorithm).expect("a row's algorithm is in the table");
        HashSpec { digest_len: algorithm.digest_len, make: MakeHash::Own(algorithm.cold()) }
    }

    /// One of our own.
    pub(crate) fn own(algorithm: &str, engine: Engine) -> HashSpec {
        HashSpec { make: MakeHash::Own(engine), ..HashSpec::cold(algorithm) }
    }

    /// The hash with a salt, if the CPU runs it.
    pub(crate) fn salted(&self, prefix: &[u8], suffix: &[u8]) -> Option<SaltedHash> {
        let MakeHash::Own(engine) = &self.make else { return None };
        Some(SaltedHash::new(engine, self.digest_len, prefix, suffix))
    }

    /// Asks for one digest what is outside.
    pub(crate) fn ask(&self, parts: &[&[u8]], out: &mut [u8]) -> Result<(), DriverError> {
        match &self.make {
            MakeHash::Outside(driver) => driver.digest(parts, out),
            MakeHash::Own(_) => Err(DriverError("it is not outside".to_owned())),
        }
    }

    /// Whether many messages in one request are faster than one by one.
    pub(crate) fn batches(&self) -> bool {
        matches!(self.make, MakeHash::Own(Engine::Sha256(_) | Engine::Sha512(_)))
    }

    /// Digest length in bytes.
    pub fn digest_len(&self) -> usize {
        self.digest_len
    }
}

impl From<CipherSpec> for Spec {
    fn from(spec: CipherSpec) -> Spec {
        Spec::Cipher(spec)
    }
}

impl From<HashSpec> for Spec {
    fn from(spec: HashSpec) -> Spec {
        Spec::Hash(spec)
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Row({} by {}, {:?})", self.algorithm, self.driver, self.flags)
    }
}

/// Whether there is portable code for a hash under this very name.
fn portable_is(algorithm: &str) -> bool {
    Algorithm::named(algorithm).is_some_and(|known| known.name() == algorithm)
}
