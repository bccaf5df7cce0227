//! Keys from passphrases, at a cost that a stranger's file may name and the caller bounds.
//!
//! [`Argon2`] costs memory and time, [`pbkdf2`] time alone. Both are given [`KdfLimits`]: a header that demands more is
//! refused before anything is computed.
//!
//! ```
//! use casemate_primitives::Cpu;
//! use casemate_providers::{Hash, KdfLimits, pbkdf2};
//!
//! let sha256 = Hash::named("sha256", Cpu::detect())?;
//! let key = pbkdf2(sha256, b"passphrase", b"salt", 1000, 32, &KdfLimits::default())?;
//! assert_eq!(key.len(), 32);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::sync::OnceLock;

mod argon2;
mod pbkdf2;

pub use argon2::{Argon2, Argon2Variant};
pub use pbkdf2::pbkdf2;

/// The most that a derivation may cost. The default is what a desktop grants: a minute or two of one core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KdfLimits {
    /// The memory of Argon2 in KiB at once.
    pub memory: u32,
    /// The memory in KiB that all passes of Argon2 fill together.
    pub work: u64,
    /// Iterations of PBKDF2, each block of output counted for itself.
    pub iterations: u64,
}

impl Default for KdfLimits {
    /// 1 GiB at once, 64 GiB in all passes, 2^30 iterations.
    fn default() -> KdfLimits {
        KdfLimits { memory: 1 << 20, work: 1 << 26, iterations: 1 << 30 }
    }
}

impl KdfLimits {
    /// So many times these limits.
    #[must_use]
    pub fn times(self, times: u32) -> KdfLimits {
        KdfLimits {
            memory: self.memory.saturating_mul(times),
            work: self.work.saturating_mul(times.into()),
            iterations: self.iterations.saturating_mul(times.into()),
        }
    }
}

/// Why no key was derived. Says nothing of the passphrase.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KdfError {
    /// The costs are above the limits.
    TooExpensive(String),
    /// Costs, a salt or a length that the function does not take.
    Invalid(String),
    /// There is not so much memory.
    Memory(String),
    /// A signal or a callback stopped the work.
    Stopped,
}

/// Whether the thread that asks is to stop deriving a key.
static STOP: OnceLock<fn() -> bool> = OnceLock::new();

/// Has all derivations ask a function, many times a second and on each thread that works, whether they are to stop: a key may take
/// minutes. The first function that is given stays.
pub fn stop_derivations_when(stop: fn() -> bool) {
    STOP.get_or_init(|| stop);
}

/// Whether the derivation is to stop on this thread.
fn is_stopped() -> bool {
    STOP.get().is_some_and(|stop| stop())
}

impl fmt::Display for KdfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KdfError::TooExpensive(text) | KdfError::Invalid(text) | KdfError::Memory(text) => {
                f.write_str(text)
            }
            KdfError::Stopped => f.write_str("the derivation of a key was stopped"),
        }
    }
}

impl std::error::Error for KdfError {}
