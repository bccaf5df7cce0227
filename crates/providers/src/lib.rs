//! Which implementation does the work.
//!
//! Formats name an algorithm; this crate says what runs it: the hot back ends of `casemate-primitives` where
//! they exist, vetted crates where they don't, and an engine outside the CPU only where somebody names it.
//! [`Registry`] is the entry point; [`Hash::named`] is a short way to the hash that its default policy chooses.
//!
//! ```
//! use casemate_providers::{Ivs, Policy, Registry};
//! use casemate_primitives::Cpu;
//!
//! let registry = Registry::new(Cpu::detect());
//! let cipher = registry.cipher("xts(aes)", &[7; 64], &Policy::default())?.with_data_unit_size(512)?;
//! let mut sectors = vec![0; 8 * 512];
//! cipher.encrypt(&Ivs::Little { first: 40, step: 1 }, &mut sectors)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod afalg;
pub mod argon2;
pub mod bench;
pub mod cipher;
mod drivers;
mod guard;
pub mod hash;
pub mod hmac;
pub mod policy;
pub mod registry;
pub mod row;
mod selftest;
mod siphash;

pub use argon2::{Argon2Error, Argon2id};
pub use cipher::{Cipher, Direction, Driver, DriverError, Ivs, RequestError};
pub use hash::{Hash, HashDriver, HashSpec, SaltedHash};
pub use hmac::{Hkdf, Hmac};
pub use policy::{Policy, Refusal};
pub use registry::{ChoiceError, Registry};
pub use row::{CipherSpec, Flags, Origin, Row, Spec};
pub use siphash::siphash24;
