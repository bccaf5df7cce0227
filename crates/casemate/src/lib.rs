//! The Linux storage-protection stack in user space: open, stack and run its parts with plain parameters.
//!
//! This is the crate that programs link. The format crates below it do the work and do not know each other;
//! here they are joined, and their errors become the one [`Error`].
//!
//! An [`Image`] is opened and locked once; what lies on it is nested, and everything runs on the device on top:
//!
//! ```
//! use casemate::verity::{FormatOptions, VerityOptions};
//! use casemate::{Access, Image, Work};
//!
//! # let folder = tempfile::tempdir()?;
//! # let (disk, hash) = (folder.path().join("disk.img"), folder.path().join("root.hash"));
//! # std::fs::write(&disk, vec![7; 1 << 20])?;
//! let root = Image::open(&disk, Access::Read)?.window(4096, Some(512 << 10))?;
//! let hash = Image::create(&hash)?;
//! let made = root.verity_format(&hash, &FormatOptions::default(), &Work::default())?;
//! let volume = root.verity_volume(&hash, &VerityOptions::default())?;
//! assert!(volume.verify(&made.root_hash, &Work::default(), &mut |_| Ok(()))?.is_clean());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod backup;
pub mod base64;
pub mod crypt;
pub mod ext4;
pub mod fscrypt;
pub mod fsverity;
pub mod image;
mod keys;
mod named;
mod output;
pub mod probe;
mod protectors;
pub mod providers;
mod secrets;
pub mod verity;

pub use casemate_blockdev as blockdev;
pub use casemate_blockdev::{Error, ErrorKind, Place, Result};
pub use casemate_nbd as nbd;
pub use casemate_primitives::cpu::{Cpu, CpuError, Feature};
pub use casemate_primitives::hex;
pub use casemate_primitives::secret::SecretVec;
pub use casemate_providers::{Providers, Work};
pub use casemate_verity::{signature, tree};
pub use image::{Access, Image};
pub use keys::Keys;
pub use output::Output;
pub use secrets::SecretSource;
