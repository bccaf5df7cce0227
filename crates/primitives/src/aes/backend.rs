//! A back end of AES before it has a key.

use std::fmt;

use crate::backend;
use crate::cpu::Cpu;

use super::schedule::Schedule;
use super::{BACKENDS, Backend, Functions};

/// AES by one set of instructions that this CPU has, without a key.
///
/// A back end costs nothing to have and to copy: callers that choose one by its name expand a key for that
/// one alone, with [`Aes::with_backend`](super::Aes::with_backend) and its siblings.
///
/// ```
/// use casemate_primitives::Cpu;
/// use casemate_primitives::aes::{AesBackend, AesXts};
///
/// let portable = AesBackend::available(Cpu::detect()).find(|backend| backend.name() == "portable");
/// let xts = AesXts::with_backend(portable.unwrap(), &[7; 64])?;
/// # Ok::<(), casemate_primitives::aes::KeyError>(())
/// ```
#[derive(Clone, Copy)]
pub struct AesBackend(&'static Backend);

impl AesBackend {
    /// The fastest back end that `cpu` can run.
    pub fn new(cpu: Cpu) -> AesBackend {
        AesBackend(backend::best(BACKENDS, cpu))
    }

    /// Every back end that `cpu` can run, fastest first.
    pub fn available(cpu: Cpu) -> impl Iterator<Item = AesBackend> {
        backend::available(BACKENDS, cpu).map(AesBackend)
    }

    /// The back end's name, such as `aes-ni`.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// The instructions. The CPU has what they need, as an `AesBackend` comes from `crate::backend` alone.
    pub(super) fn run(self) -> &'static Functions {
        &self.0.run
    }

    /// Expands `key`, whose length was checked, where the schedule stands.
    pub(super) fn expand_into(self, key: &[u8], keys: &mut Schedule) {
        #[cfg(feature = "testing")]
        crate::testing::count_key_schedule();
        // SAFETY: an `AesBackend` comes from `crate::backend` alone, so the CPU has what its row needs.
        unsafe { (self.0.run.expand)(key, keys) }
    }
}

impl fmt::Debug for AesBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AesBackend({})", self.name())
    }
}
