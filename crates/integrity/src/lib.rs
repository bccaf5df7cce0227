//! dm-integrity volumes: a tag for each block, which is checked when the block is read.
//!
//! [`IntegrityOptions`] say how tags are made, make a volume on a [`Target`], and open one on a [`Medium`]: a file, a block device,
//! or any [`BlockDevice`]. A [`Volume`] is checked, copied, and read and written as a medium again.
//!
//! ```
//! use std::sync::Arc;
//!
//! use casemate_integrity::{FormatOptions, IntegrityOptions, Medium, Target, Volume, Work};
//! # use casemate_blockdev::{MemoryDevice, target::{Made, refuse}};
//!
//! # let disk = Medium::over("disk", Arc::new(MemoryDevice::new(vec![0; 1 << 20])));
//! # let target = Target::on(disk.clone(), Made::Data, &refuse)?;
//! let (work, options) = (Work::default(), IntegrityOptions::default());
//! options.format(&target, &FormatOptions::new(4, [7; 16]), None, &work)?;
//!
//! let volume = Volume::open(&disk, None, &options, &work.providers)?;
//! assert_eq!(volume.verify(&work)?.wrong, 0);
//! let data = volume.medium();
//! data.write_at(&[1; 100], 1000)?;
//! data.top().flush()?;
//! # Ok::<(), casemate_integrity::Error>(())
//! ```
//!
//! Below that, [`Superblock`] has the layout of the volume, but not the algorithm of its tags: a [`Tagger`] makes them. Both, with
//! the blocks in the journal, make an [`IntegrityDevice`], whose reads are checked; [`verify`] checks all of it on many threads.
//! [`format()`] makes a volume. A journal that was not replayed is shown as if it had been. Writes go through
//! the journal, so that the kernel can replay them after a cut, or in bitmap mode to their places. A [`JournalSeal`] is for
//! journals with a MAC, and encrypted ones.
//!
//! ```
//! use casemate_blockdev::{BlockDevice, MemoryDevice};
//! use casemate_integrity::{FormatOptions, IntegrityDevice, Superblock, Tagger, format};
//! use casemate_providers::{Providers, Work};
//!
//! let providers = Providers::default();
//! let disk = MemoryDevice::new(vec![0; 1 << 20]);
//! let superblock = Superblock::new(disk.size(), &FormatOptions::new(4, [7; 16]))?;
//! let tagger = Tagger::new("crc32c", None, &superblock, &providers)?;
//! format(&disk, &superblock, &tagger, None, &Work::default())?;
//!
//! let volume = IntegrityDevice::open(disk, None::<MemoryDevice>, tagger)?;
//! let mut data = vec![1; 4096];
//! volume.read_at(&mut data, 0)?;
//! assert_eq!(data, vec![0; 4096]);
//! volume.write_at(&[1; 100], 1000)?;
//! volume.flush()?;
//! # Ok::<(), casemate_integrity::Error>(())
//! ```
//!
//! Source: the kernel's `Documentation/admin-guide/device-mapper/dm-integrity.rst`; what it does not say was read off
//! volumes that the kernel made.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::as_conversions))]

mod commit;
mod device;
mod format;
mod journal;
mod layout;
mod making;
mod options;
mod seal;
mod superblock;
mod tagger;
mod verify;
mod volume;

pub use casemate_blockdev::{Access, Advice, BlockDevice, Code, Error, ErrorKind, Medium, Result, Target};
pub use casemate_primitives::secret::SecretVec;
pub use casemate_providers::{Providers, SecretSource, Work};
pub use device::{BlockGuard, IntegrityDevice, read_superblock};
pub use format::{FormatOptions, format, format_stream};
pub use layout::Layout;
pub use making::random_salt;
pub use options::{IntegrityOptions, Keyed, read_key};
pub use seal::JournalSeal;
pub use superblock::{Flags, Superblock};
pub use tagger::Tagger;
pub use verify::{Report, verify};
pub use volume::Volume;
