//! ext4 images, read, checked and changed without mounting them.
//!
//! The way in is [`Ext4::open`] on any [`BlockDevice`](casemate_blockdev::BlockDevice). An open file system
//! gives [inodes](Ext4::inode), [directories](Ext4::read_dir), [file contents](Ext4::open_file),
//! [symbolic links](Ext4::symlink_target) and [extended attributes](Ext4::xattrs), to any number of threads
//! at once. A journal that must be replayed is, in memory: reading never writes to the image.
//!
//! [`Writer::open`] is the way to change a file system: its operations collect changes in memory, and
//! [`Writer::commit`] makes them permanent all at once, through the journal or through a file beside the image.
//! Checksums are patched for what changed, not computed again.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use casemate_blockdev::{BlockDevice, FileDevice};
//! use casemate_ext4::{Ext4, OpenOptions};
//!
//! let mut head = [0; 512];
//! let fs = Ext4::open(Arc::new(FileDevice::open("root.img")?), &OpenOptions::default())?;
//! let file = fs.open_file(&fs.resolve(b"/dictionary.md", true)?)?;
//! file.read_at(&mut head, 0)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Each structure has a file of its own here, with a `from_bytes` that takes any bytes and never panics. All
//! checksum recipes stand in one table, [`csum::RECIPES`]. Checksums are checked while reading, as the kernel
//! does.
//!
//! # Errors
//! `Corrupt` says which structure is damaged and where; `Unsupported` names the feature.
//!
//! # Limits
//! Fast commits and journals on other devices are refused when they would have to be replayed. Encrypted
//! names and contents need somebody who knows the keys: [`Encryption`].
#![forbid(unsafe_code)]

mod acl;
mod bytes;
mod casefold;
mod check;
mod crc16;
mod crc32;
pub mod csum;
mod dir;
mod dirhash;
mod encryption;
mod error;
mod extent;
mod extract;
mod features;
mod file;
mod fs;
mod group;
mod htree;
mod indirect;
mod inode;
mod journal;
mod layout;
mod map;
mod path;
mod runs;
mod seen;
mod superblock;
mod symlink;
mod verity;
mod write;
mod xattr;

pub use bytes::uuid_text;
pub use casefold::fold as casefold;
pub use casemate_blockdev::ErrorKind;
pub use check::{CheckReport, check, check_size, fix_checksums};
pub use dir::{DirEntry, Entries, EntryFormat, RawEntry};
pub use dirhash::{DirHash, NameHasher, SIPHASH};
pub use encryption::{EncryptedContents, EncryptedInode, EncryptedNames, Encryption, StoredName};
pub use error::{Corrupt, Error, Place, Problem, Result, Structure};
pub use extent::{Extent, ExtentIndex, ExtentNode};
pub use extract::{
    Contents, ExtractOptions, ExtractReport, Failure, PlainContents, Record, extract_to_folder,
    extract_to_tar,
};
pub use features::{Compat, Incompat, RoCompat};
pub use file::FileReader;
pub use fs::{Ext4, OpenOptions};
pub use group::{BLOCK_UNINIT, GroupDescriptor, INODE_UNINIT, INODE_ZEROED};
pub use htree::{HtreeEntry, HtreeNode, HtreeRoot};
pub use inode::{FileType, Inode, InodeFlags, ROOT_INODE, Time};
pub use journal::{JournalSuperblock, Recovery};
pub use layout::Layout;
pub use map::Mapping;
pub use seen::SeenDirectories;
pub use superblock::{HashDefaults, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
pub use verity::VerityMetadata;
pub use write::{
    Body, Interrupted, NewNode, Patching, PutOptions, PutReport, RawAttributes, RecoveryFile, WriteOptions,
    Writer,
};
pub use xattr::{Xattr, XattrEntries, XattrEntry};
