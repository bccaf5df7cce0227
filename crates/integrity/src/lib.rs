//! dm-integrity volumes: a tag for each block, which is checked when the block is read.
//!
//! [`Superblock`] says how the volume is laid out, but not how its tags are made: a [`Tagger`] does. Both, and what the
//! journal holds, make an [`IntegrityDevice`], whose reads are checked; [`verify`] checks all of it on many threads.
//! Nothing is ever written: a journal that was not replayed is shown as if it had been.
//!
//! ```
//! use casemate_blockdev::{BlockDevice, MemoryDevice};
//! use casemate_integrity::{IntegrityDevice, Superblock, Tagger};
//! use casemate_providers::Providers;
//!
//! // A volume of eight sectors with CRC-32C tags and an empty journal.
//! let mut disk = vec![0; 512 << 10];
//! disk[..8].copy_from_slice(b"integrt\0");
//! disk[8..16].copy_from_slice(&[4, 15, 4, 0, 1, 0, 0, 0]);
//! disk[16] = 8;
//! disk[24] = 8;
//! let superblock = Superblock::from_bytes(&disk[..512])?;
//! let layout = superblock.layout(false)?;
//! let tagger = Tagger::new("crc32c", None, &superblock, &Providers::default())?;
//! for block in 0..8 {
//!     let mut tag = [0; 4];
//!     tagger.make(block, &[0; 512], &mut tag);
//!     let at = layout.tag(block) as usize;
//!     disk[at..at + 4].copy_from_slice(&tag);
//! }
//! let volume = IntegrityDevice::open(MemoryDevice::new(disk), None::<MemoryDevice>, tagger)?;
//! let mut data = vec![1; 4096];
//! volume.read_at(&mut data, 0)?;
//! assert_eq!(data, vec![0; 4096]);
//! # Ok::<(), casemate_integrity::Error>(())
//! ```
//!
//! Source: the kernel's `Documentation/admin-guide/device-mapper/dm-integrity.rst`; what it does not say was read off
//! volumes that the kernel made.
#![forbid(unsafe_code)]

mod device;
mod journal;
mod layout;
mod superblock;
mod tagger;
mod verify;

pub use casemate_blockdev::{Error, ErrorKind, Result};
pub use device::IntegrityDevice;
pub use layout::Layout;
pub use superblock::{Flags, Superblock};
pub use tagger::Tagger;
pub use verify::{Report, verify};
