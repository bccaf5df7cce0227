//! The hot primitives of Linux storage protection, made for many items per call.
//!
//! Each algorithm is a folder: `mod.rs` holds the handle that callers use and the table of back ends,
//! one file per back end holds the instructions. A handle is made for a [`Cpu`]; holding one is the proof
//! that this CPU can run it. All `unsafe` of the workspace's own logic lives in this crate,
//! but for the system calls of `casemate-sys`.
//!
//! ```
//! use casemate_primitives::Cpu;
//! use casemate_primitives::sha256::Sha256;
//!
//! let sha256 = Sha256::new(Cpu::detect());
//! let mut hasher = sha256.hasher();
//! hasher.update(b"abc");
//! assert_eq!(hasher.finalize()[..4], [0xba, 0x78, 0x16, 0xbf]);
//! ```
//!
//! Nothing here reads files, calls the kernel, allocates by a size from a disk, or knows a disk format.

pub mod adiantum;
pub mod aes;
pub mod argon2;
mod backend;
pub mod base64;
pub mod cpu;
pub mod crc32c;
pub mod hctr2;
pub mod hex;
mod inout;
mod messages;
pub mod polyval;
pub mod reed_solomon;
pub mod rng;
pub mod secret;
pub mod serpent;
mod sha2;
pub mod sha256;
pub mod sha512;
#[cfg(feature = "testing")]
pub mod testing;
pub mod twofish;
mod wide;

pub use cpu::{Cpu, Feature};
pub use messages::Messages;
pub use wide::WideUnits;
