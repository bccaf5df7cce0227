//! AES and the modes in which Linux uses it on storage, for many data units in one call.
//!
//! [`AesXts`] (dm-crypt's and fscrypt's contents), [`AesCbc`] (older dm-crypt mappings, fscrypt's names) and
//! [`Aes`] (single blocks, counter modes) hold a key and a back end; [`AesBackend`] is one without a key. [`Units`] says how a buffer falls into data
//! units and where their IVs come from.
//!
//! ```
//! use casemate_primitives::Cpu;
//! use casemate_primitives::aes::{AesXts, Units};
//!
//! let xts = AesXts::new(Cpu::detect(), &[7; 64])?;
//! let mut sectors = vec![0; 8 * 512];
//! xts.encrypt(&Units::counted(512, 40, 1), &mut sectors)?;
//! xts.decrypt(&Units::counted(512, 40, 1), &mut sectors)?;
//! assert_eq!(sectors, vec![0; 8 * 512]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Errors
//! [`KeyError`] for a key of an impossible length; [`UnitError`] for a buffer that does not fall into units.
//!
//! # Limits
//! A handle says nothing about whether a key is good: [`AesXts::halves_equal`] lets the caller decide.

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod backend;
mod bitslice;
mod block;
mod cbc;
mod engine;
mod functions;
mod modes;
mod portable;
mod schedule;
#[cfg(test)]
mod tests;
mod units;
#[cfg(target_arch = "x86_64")]
mod x86_64_aesni;
#[cfg(target_arch = "x86_64")]
mod x86_64_vaes256;
#[cfg(target_arch = "x86_64")]
mod x86_64_vaes512;
#[cfg(target_arch = "x86_64")]
mod x86_64_vaes512_xts;
mod xts;

pub use backend::AesBackend;
pub use block::Aes;
pub use cbc::AesCbc;
pub use schedule::KeyError;
pub use units::{Ivs, UnitError, Units};
pub use xts::AesXts;

use crate::backend::Row;
use crate::cpu::Feature;
use crate::inout::InOut;

use modes::Counter;
use schedule::{Schedule, XtsKeys};

/// The direction in which a cipher works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Plaintext in, ciphertext out.
    Encrypt,
    /// Ciphertext in, plaintext out.
    Decrypt,
}

/// One way to do AES. Every function needs the CPU to have `needs`.
struct Functions {
    /// Expands a key of 16, 24 or 32 bytes.
    expand: unsafe fn(&[u8], &mut Schedule),
    /// Takes whole blocks.
    ecb: unsafe fn(&Schedule, Direction, InOut<'_>),
    /// Takes any length.
    counter: unsafe fn(&Schedule, Counter, InOut<'_>),
    /// Takes units of whole blocks.
    cbc: unsafe fn(&Schedule, Direction, &Units<'_>, InOut<'_>),
    /// Takes units of 16 bytes or more.
    cts: unsafe fn(&Schedule, Direction, &Units<'_>, InOut<'_>),
    /// Takes units of 16 bytes or more.
    xts: unsafe fn(&XtsKeys, Direction, &Units<'_>, InOut<'_>),
}

type Backend = Row<Functions>;

macro_rules! functions {
    ($expansion:ident, $backend:ident) => {
        Functions {
            expand: $expansion::expand,
            ecb: $backend::ecb,
            counter: $backend::counter,
            cbc: $backend::cbc,
            cts: $backend::cts,
            xts: $backend::xts,
        }
    };
}

/// Every back end, fastest first as measured.
static BACKENDS: &[Backend] = &[
    // Intel from Ice Lake on, AMD from Zen 4 on.
    #[cfg(target_arch = "x86_64")]
    Row::new(
        "vaes-512",
        &[Feature::AesNi, Feature::Avx512, Feature::Vbmi, Feature::Vaes, Feature::Vpclmul],
        Functions { xts: x86_64_vaes512_xts::xts, ..functions!(x86_64_aesni, x86_64_vaes512) },
    ),
    // Intel from Alder Lake on (no AVX-512), AMD Zen 3.
    #[cfg(target_arch = "x86_64")]
    Row::new(
        "vaes-256",
        &[Feature::AesNi, Feature::Avx2, Feature::Vaes, Feature::Vpclmul],
        functions!(x86_64_aesni, x86_64_vaes256),
    ),
    // x86-64 since 2010.
    #[cfg(target_arch = "x86_64")]
    Row::new("aes-ni", &[Feature::AesNi], functions!(x86_64_aesni, x86_64_aesni)),
    // AArch64 with the optional AES instructions: servers, phones, Apple; not the Raspberry Pi 4.
    #[cfg(target_arch = "aarch64")]
    Row::new("armv8-aes", &[Feature::Neon, Feature::ArmAes], functions!(aarch64, aarch64)),
    // Everything else.
    Row::new("portable", &[], functions!(portable, portable)),
];
