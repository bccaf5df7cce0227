//! dm-verity and fs-verity: hash trees, their on-disk formats, and signatures over them.
//!
//! Data and hash area are [media](Medium): files, block devices, or any [`BlockDevice`]; nothing needs root or device-mapper.
//! [`dm::FormatOptions`] make a hash area, and a [`dm::Volume`] is data with one:
//!
//! ```
//! use std::sync::Arc;
//!
//! use casemate_verity::dm::{FormatOptions, VerityOptions, Volume};
//! use casemate_verity::{Medium, Work, refuse};
//!
//! # use casemate_blockdev::MemoryDevice;
//! # let medium = |bytes| Medium::over("disk", Arc::new(MemoryDevice::new(bytes)));
//! # let (data, hash) = (medium(vec![7; 1 << 16]), medium(vec![0; 1 << 16]));
//! let work = Work::default();
//! let root_hash = FormatOptions::default().format(&data, &hash, &refuse, &work)?.root_hash;
//!
//! let volume = Volume::read(&data, &hash, &VerityOptions::default())?;
//! assert!(volume.verify(&root_hash, &work, &mut |_| Ok(()))?.is_clean());
//! data.write_at(b"changed", 5000)?;
//! let checked = volume.open(&root_hash, &work.providers)?.laid_on(data);
//! checked.top().read_at(&mut [0; 100], 0)?;
//! assert!(checked.top().read_at(&mut [0; 100], 5000).is_err());
//! # Ok::<(), casemate_verity::Error>(())
//! ```
//!
//! [`tree`] is the engine that both formats share: where the blocks of a hash tree lie, building one on all
//! cores, and checking data against one. [`dm`] is dm-verity: hash areas made, checked, opened and repaired; superblock, layout,
//! parity and table line. [`fs`] is fs-verity: the descriptor and the digest of a file. [`signature`] makes and checks the PKCS#7
//! signatures that the kernel takes for both.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::as_conversions))]

mod beside;
pub mod dm;
pub mod fs;
mod part;
pub mod signature;
pub mod tree;

pub use beside::Beside;
pub use casemate_blockdev::target::{Consent, refuse};
pub use casemate_blockdev::{Access, Advice, BlockDevice, Code, Error, ErrorKind, Medium, Uuid};
pub use casemate_primitives::hex;
pub use casemate_providers::{Providers, Seed, Work};
pub use part::{Part, Whole, is_whole_tree};
