//! dm-verity and fs-verity: hash trees, their on-disk formats, and signatures over them.
//!
//! [`tree`] is the engine that both formats share: where the blocks of a hash tree lie, building one on all
//! cores, and checking data against one. [`dm`] is dm-verity: superblock, layout, table line, making and checking
//! hash areas. [`fs`] is fs-verity: the descriptor and the digest of a file. [`signature`] makes and checks the PKCS#7
//! signatures that the kernel takes for both.
//!
//! ```
//! use casemate_blockdev::MemoryDevice;
//! use casemate_providers::Work;
//! use casemate_verity::dm::{Layout, Parameters, format, verify};
//!
//! let (data, hash) = (MemoryDevice::new(vec![7; 1 << 16]), MemoryDevice::new(vec![0; 1 << 16]));
//! let layout = Layout::new(Parameters::new("sha256")?, 16, 0, None)?;
//! let root_hash = format(&layout, &data, &hash, &Work::default())?;
//! let summary = verify(&layout, &data, &hash, &root_hash, &Work::default(), &mut |_| Ok(()))?;
//! assert!(summary.is_clean());
//! # Ok::<(), casemate_verity::Error>(())
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::as_conversions))]

pub mod dm;
pub mod fs;
mod part;
pub mod signature;
pub mod tree;

pub use casemate_blockdev::{Advice, Code, Error, ErrorKind};
pub use casemate_primitives::hex;
pub use part::{Part, Whole};
