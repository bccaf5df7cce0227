//! Changing a file system in place.
//!
//! [`Writer`] collects changed metadata in memory; [`Writer::commit`] makes it the file system's state at once,
//! so that a crash at any point leaves the state before or after. Contents of new files are written before, to
//! blocks that were free (the kernel calls that ordered mode). An operation that fails changes nothing.
//!
//! Where the file system has a journal, a commit is a transaction in it: whoever opens the image next, be it
//! the kernel, e2fsck or this crate, completes it. Where there is none, the transaction is written to a file
//! beside the image first ([`RecoveryFile`](crate::RecoveryFile)), which only this crate can complete it from. Readers
//! see it as complete through [`RecoveryFile::over`](crate::RecoveryFile::over).
//!
//! Each of these builds on those before it: `inode`, `file_map`, `quota`, `inodes` (with `xattr` and `contents`),
//! `dir`, `files`, `writer`. The other files have operations, and the parts that they consist of.

mod attributes;
mod contents;
pub(crate) mod create;
mod descriptors;
pub(crate) mod dir;
mod encrypted;
pub(crate) mod fast_commit;
pub(crate) mod file_map;
pub(crate) mod files;
mod inherit;
pub(crate) mod inode;
pub(crate) mod inodes;
mod live;
mod locked;
mod node;
mod orphans;
mod put;
mod quota;
pub(crate) mod quota_file;
pub(crate) mod random;
mod ranges;
mod remove;
mod rename;
pub(crate) mod reseal;
mod resize;
mod restore;
mod supported;
pub(crate) mod too_large;
mod writer;
mod xattr;

pub(crate) use dir::name::require_name;
pub use live::{NewAttributes, Presence, SetId};
pub(crate) use node::check_owner;
pub use node::{Body, NewNode};
pub(crate) use put::{LeftOut, attributes, tell_open};
pub use put::{PutOptions, PutReport};
pub use restore::RawAttributes;
pub use writer::{WriteOptions, Writer};
pub(crate) use xattr::{is_storable, split_name, stored_value};
