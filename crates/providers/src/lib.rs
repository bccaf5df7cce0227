//! Implementations of ciphers and hashes, and the choice among them.
//!
//! Formats name an algorithm; this crate chooses what runs it: the hot back ends of `casemate-primitives` where
//! they exist, vetted crates where they don't, and an engine outside the CPU only if the caller names it.
//! [`Providers`] is the entry point: a CPU, the implementations that are known, and the policy that chooses among them,
//! as one value. [`Work`] adds the threads and a listener, for long work.
//!
//! ```
//! use casemate_providers::{Ivs, Providers};
//!
//! let providers = Providers::default();
//! let cipher = providers.cipher("xts(aes)", &[7; 64])?.with_data_unit_size(512)?;
//! let mut sectors = vec![0; 8 * 512];
//! cipher.encrypt(&Ivs::Little { first: 40, step: 1 }, &mut sectors)?;
//! assert_eq!(providers.hash("sha256")?.digest(b"abc")[..4], [0xba, 0x78, 0x16, 0xbf]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The files in the order in which to read them, each using only those before it: `flags` and `driver` (what is known
//! of an implementation, what it has to offer), `engine` (the hashes), `guard` (a watch on what is outside), `hash`,
//! `row`, `cipher` (handles on one implementation), `drivers` (all rows of the CPU) and `afalg` (those of the kernel),
//! `selftest`, `policy`, `registry`, `providers`, `work`. `hmac` and `kdf` stand on `hash`, `seed` on `hmac`
//! and `providers`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::as_conversions))]

#[cfg(target_os = "linux")]
pub mod afalg;
pub mod bench;
pub mod cipher;
pub mod driver;
mod drivers;
mod engine;
mod error;
pub mod flags;
mod guard;
pub mod hash;
pub mod hmac;
pub mod kdf;
pub mod policy;
mod providers;
pub mod registry;
pub mod row;
mod secrets;
mod seed;
mod selftest;
mod siphash;
mod standing;
mod work;

pub use cipher::{Cipher, RequestError};
pub use driver::{Direction, Driver, DriverError, HashDriver, Ivs};
pub use flags::{Flags, Origin};
pub use hash::{Hash, SaltedHash};
pub use hmac::{Hkdf, Hmac};
pub use kdf::{Argon2, Argon2Variant, KdfError, KdfLimits, pbkdf2, stop_derivations_when};
pub use policy::{Policy, Refusal};
pub use providers::Providers;
pub use registry::{ChoiceError, Registry};
pub use row::{CipherSpec, HashSpec, Row, Spec};
pub use secrets::{SecretMissing, SecretSource, fill};
pub use seed::Seed;
pub use siphash::siphash24;
pub use standing::{Standing, standing};
pub use work::Work;
