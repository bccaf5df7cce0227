//! dm-verity: a read-only block device whose every block is checked when it is read.
//!
//! [`Parameters`] say how blocks are hashed, [`Layout`] where everything lies. [`format()`] makes the hash
//! area, [`verify()`] checks data against it, [`update()`] brings it up to date, [`join()`] completes one that was
//! made in parts. [`Superblock`] is the optional
//! header of the hash area; the kernel never reads it, tools do. What the kernel reads is the [`Table`] line.
//! [`fec`] adds parity and repairs with it.
//!
//! Source: Documentation/admin-guide/device-mapper/verity.rst of the kernel, and the behaviour of `veritysetup`.

pub mod fec;
mod format;
mod layout;
mod parameters;
mod part;
mod superblock;
mod table;

pub use format::{check_above, check_unchanged, format, is_tree, update, verify};
pub use layout::Layout;
pub use parameters::{BlockSize, HashType, Parameters, Salt};
pub use part::join;
pub use superblock::{SUPERBLOCK_SIZE, Superblock};
pub use table::{OnFault, PartitionUuids, Table, TableFec, partition_uuids};
