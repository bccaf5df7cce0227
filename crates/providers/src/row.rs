//! One implementation of one algorithm, as the registry lists it.

use std::fmt;
use std::ops::BitOr;
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use crate::cipher::{Driver, MAX_IV_LEN};
use crate::hash::{HashSpec, is_known};
use crate::selftest;

/// How long an engine outside the CPU may take for its tests.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is to be known about an implementation before it is trusted; the kernel's flags of the same names.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Flags(u8);

impl Flags {
    /// Nothing special.
    pub const NONE: Flags = Flags(0);
    /// Finishes later than the call (`CRYPTO_ALG_ASYNC`): an engine outside the CPU, or a queue before one.
    pub const ASYNC: Flags = Flags(1);
    /// Allocates memory for each request (`CRYPTO_ALG_ALLOCATES_MEMORY`), so it can fail when memory is short.
    pub const ALLOCATES_MEMORY: Flags = Flags(2);
    /// Can be reached through a kernel driver only (`CRYPTO_ALG_KERN_DRIVER_ONLY`): not the CPU's instructions.
    pub const KERN_DRIVER_ONLY: Flags = Flags(4);
    /// Takes many data units in one request, unit `k` with the IV plus `k`.
    pub const MULTI_DATA_UNIT: Flags = Flags(8);

    const NAMES: [(Flags, &'static str); 4] = [
        (Flags::ASYNC, "asynchronous"),
        (Flags::ALLOCATES_MEMORY, "allocates-memory"),
        (Flags::KERN_DRIVER_ONLY, "kernel-driver-only"),
        (Flags::MULTI_DATA_UNIT, "multi-data-unit"),
    ];

    /// Whether all flags of `other` are set.
    pub fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// The flags that are set here and in `other`.
    pub fn common(self, other: Flags) -> Flags {
        Flags(self.0 & other.0)
    }

    /// Whether no flag is set.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The names of the flags that are set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Flags::NAMES.into_iter().filter(move |(flag, _)| self.contains(*flag)).map(|(_, name)| name)
    }
}

impl BitOr for Flags {
    type Output = Flags;
    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.names().collect();
        write!(f, "Flags({})", names.join("|"))
    }
}

/// Where an implementation comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This project's primitives, run by the CPU.
    Own,
    /// A vetted crate, run by the CPU.
    Crate,
    /// The running kernel, through an AF_ALG socket.
    AfAlg,
    /// Given by the program that uses this library.
    External,
}

impl Origin {
    /// The name to print.
    pub fn name(self) -> &'static str {
        match self {
            Origin::Own => "casemate",
            Origin::Crate => "crate",
            Origin::AfAlg => "af_alg",
            Origin::External => "external",
        }
    }
}

/// Makes a driver for a key.
pub type MakeCipher = dyn Fn(&[u8]) -> Result<Box<dyn Driver>, BadKey> + Send + Sync;

/// How to use an implementation.
#[derive(Clone)]
pub enum Spec {
    /// Of a cipher.
    Cipher(CipherSpec),
    /// Of a hash.
    Hash(HashSpec),
}

/// A cipher's sizes and how to key it.
#[derive(Clone)]
pub struct CipherSpec {
    /// Bytes of an IV.
    pub iv_len: usize,
    /// The least size of a data unit: the block, or 1 for stream modes.
    pub block_len: usize,
    /// Whether a data unit must hold whole blocks.
    pub whole_blocks: bool,
    /// Key lengths in bytes, the usual one first.
    pub key_lens: Vec<usize>,
    /// Keys it.
    pub make: Arc<MakeCipher>,
}

/// The key's length is not one of the cipher's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadKey(pub String);

/// One implementation.
pub struct Row {
    /// The algorithm's standard name, the kernel's: `xts(aes)`.
    pub algorithm: String,
    /// The implementation's own name: `xts-aes-vaes512`.
    pub driver: String,
    /// The kernel's habit: of two rows that may be chosen, the one with the higher number is.
    pub priority: u32,
    /// What is to be known before it is trusted.
    pub flags: Flags,
    /// Where it comes from.
    pub origin: Origin,
    /// How to use it, or why it is not available.
    pub spec: Result<Spec, String>,
    pub(crate) verdict: OnceLock<Result<(), String>>,
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
        Row { algorithm, driver, priority, flags, origin, spec: Ok(spec.into()), verdict: OnceLock::new() }
    }

    /// A row that stands for what is not there, with the reason.
    pub fn unavailable(algorithm: &str, driver: &str, origin: Origin, why: impl Into<String>) -> Row {
        let (algorithm, driver, spec) = (algorithm.to_owned(), driver.to_owned(), Err(why.into()));
        let flags = Flags::NONE;
        Row { algorithm, driver, priority: 0, flags, origin, spec, verdict: OnceLock::new() }
    }

    /// Whether the row may be in a registry at all.
    ///
    /// # Errors
    /// The sentence that says why not: the multi-data-unit flag on a cipher whose IV has not 16 bytes, an IV longer
    /// than any known, or a hash that no portable code here has, so that nothing could be compared with it.
    pub(crate) fn check(&self) -> Result<(), String> {
        let spec = match &self.spec {
            Ok(Spec::Cipher(spec)) => spec,
            Ok(Spec::Hash(_)) if is_known(&self.algorithm) => return Ok(()),
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

    /// How to use it as a cipher.
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

    /// Whether the work is done elsewhere than on the CPU, by something that may fail or never answer.
    pub(crate) fn is_outside(&self) -> bool {
        !self.flags.common(Flags::KERN_DRIVER_ONLY | Flags::ASYNC).is_empty()
    }

    /// Whether the implementation does what its algorithm says; tested once, when first asked.
    ///
    /// # Errors
    /// The sentence that says what was wrong.
    pub fn self_test(&self) -> Result<(), &str> {
        let test = || if self.is_outside() { self.test_with_patience() } else { selftest::run(self) };
        self.verdict.get_or_init(test).as_ref().copied().map_err(String::as_str)
    }

    /// The tests on a thread of their own: an engine may never answer.
    fn test_with_patience(&self) -> Result<(), String> {
        let row = Row {
            algorithm: self.algorithm.clone(),
            driver: self.driver.clone(),
            spec: self.spec.clone(),
            verdict: OnceLock::new(),
            ..*self
        };
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            let _ = sender.send(selftest::run(&row));
        });
        receiver.recv_timeout(PATIENCE).unwrap_or_else(|_| Err(format!("no answer within {PATIENCE:?}")))
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
