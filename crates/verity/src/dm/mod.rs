//! dm-verity: a read-only block device whose every block is checked when it is read.
//!
//! [`FormatOptions::format`] makes a hash area, and parity, on media, and asks before anything is lost. A [`Volume`] is data with
//! both: it is checked, opened as a device, repaired, and brought up to date. Hash area and parity lie on media of their own, or
//! on that of the data (a clone of it).
//!
//! Below that, [`Parameters`] say how blocks are hashed, [`Layout`] where everything lies. On bare devices [`format()`] makes the
//! hash area, [`verify()`] checks data against it, [`update()`] brings it up to date, [`join()`] completes one that was
//! made in parts. [`Superblock`] is the optional
//! header of the hash area; the kernel never reads it, tools do. What the kernel reads is the [`Table`] line.
//! [`fec`] adds parity and repairs with it.
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
//!
//! Source: Documentation/admin-guide/device-mapper/verity.rst of the kernel, and the behaviour of `veritysetup`.

mod driver;
pub mod fec;
mod format;
mod layout;
mod making;
mod options;
mod parameters;
mod parity;
mod part;
mod place;
mod remains;
mod repair;
mod superblock;
mod table;
mod update;
mod volume;

pub use format::{check_above, check_unchanged, format, is_tree, update, verify};
pub use layout::Layout;
pub use making::{FormatOptions, Formatted, look_at_earlier};
pub use options::VerityOptions;
pub use parameters::{BlockSize, HashType, Parameters, Salt};
pub use parity::Fec;
pub use part::{is_whole_area, join, join_on};
pub use repair::TriedRepair;
pub use superblock::{SUPERBLOCK_SIZE, Superblock};
pub use table::{OnFault, PartitionUuids, Table, TableFec, partition_uuids};
pub use volume::Volume;
