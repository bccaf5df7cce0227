//! The Linux storage-protection stack in user space: open, stack and run its parts with plain parameters.
//!
//! This is the crate that programs link. The format crates below it do the work and do not know each other;
//! here they are joined, and their errors become the one [`Error`].
#![forbid(unsafe_code)]

pub mod backup;
pub mod base64;
pub mod crypt;
pub mod ext4;
pub mod fscrypt;
pub mod fsverity;
pub mod image;
mod named;
mod output;
pub mod probe;
pub mod protectors;
pub mod providers;
pub mod verity;

pub use casemate_blockdev as blockdev;
pub use casemate_blockdev::{Error, ErrorKind, Place, Result};
pub use casemate_nbd as nbd;
pub use casemate_primitives::cpu::{Cpu, CpuError, Feature};
pub use casemate_primitives::hex;
pub use casemate_primitives::secret::SecretVec;
pub use casemate_verity::{signature, tree};
pub use image::{Access, Image};
pub use output::Output;
