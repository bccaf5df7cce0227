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
//! A [`Plan`] makes a new file system of a [`Tree`] of files, each block written once.
//!
//! ```
//! use std::sync::Arc;
//!
//! use casemate_blockdev::{BlockDevice, MemoryDevice};
//! use casemate_ext4::{Ext4, OpenOptions};
//!
//! # let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/1k-64bit.img.xz");
//! # let image = casemate_testkit::fixture(fixture);
//! let fs = Ext4::open(Arc::new(MemoryDevice::new(image)), &OpenOptions::default())?;
//! let file = fs.open_file(&fs.resolve(b"/fragmented", true)?)?;
//! let mut head = [0; 512];
//! file.read_at(&mut head, 0)?;
//! assert_eq!(file.size(), 183_296);
//! # Ok::<(), casemate_ext4::Error>(())
//! ```
//!
//! Each structure has a file of its own, with a `from_bytes` that takes any bytes and never panics. All
//! checksum recipes stand in one table, [`csum::RECIPES`]. Checksums are checked while reading, as the kernel
//! does.
//!
//! # Errors
//! `Corrupt` says which structure is damaged and where; `Unsupported` names the feature.
//!
//! # Limits
//! Journals on other devices are refused when they would have to be replayed. Encrypted
//! names and contents need somebody who knows the keys: [`Encryption`].
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::as_conversions))]

mod alloc;
mod build;
mod check;
mod diff;
mod edit;
mod error;
mod format;
mod number;
mod open;
mod read;
mod repair;
mod resize;
mod transaction;
mod tune;
mod units;

pub use build::{
    Amendments, BuildOptions, BuildReport, BuildSize, BuildTarget, Complete, Description, Encrypt, Features,
    Geometry, Identify, ModeRule, NewMode, NewUuid, NewXattr, Owners, Plan, Seal, Source, Tree, TreeFile,
    TreeOptions, uuid,
};
pub use casemate_blockdev::ErrorKind;
pub use check::{
    CheckOptions, CheckReport, Finding, FindingKind, Level, Preen, VerityCount, VerityDemand, VerityFiles,
    check, check_size, copy_to_read_by, fix_checksums,
};
pub use diff::{Area, DiffOptions, DiffReport, DiffSide, Difference, Side, diff, diff_size};
pub use edit::{
    Body, NewAttributes, NewNode, Presence, PutOptions, PutReport, RawAttributes, SetId, WriteOptions, Writer,
};
pub use error::{Corrupt, Counted, Error, Marked, Place, Problem, Result, Structure};
pub use format::bytes::uuid_text;
pub use format::csum;
pub use format::dir::{Entries, EntryFormat, RawEntry};
pub use format::dirhash::{DirHash, NameHasher, SIPHASH};
pub use format::extent::{Extent, ExtentIndex, ExtentNode};
pub use format::features::{Compat, Incompat, RoCompat};
pub use format::group::{BLOCK_UNINIT, GroupDescriptor, INODE_UNINIT, INODE_ZEROED};
pub use format::htree::{HtreeEntry, HtreeNode, HtreeRoot};
pub use format::inode::{FileType, Inode, InodeFlags, Time};
pub use format::journal_superblock::JournalSuperblock;
pub use format::layout::Layout;
pub use format::superblock::{
    ExternalJournal, FoundError, HashDefaults, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock,
    SuperblockDetails,
};
pub use format::value::FieldValue;
pub use format::xattr::{XattrEntries, XattrEntry};
pub use read::casefold::fold as casefold;
pub use read::deleted::{Deleted, DeletedBlocks, DeletedFile, DeletedSource};
pub use read::dir::DirEntry;
pub use read::encryption::{EncryptedContents, EncryptedInode, EncryptedNames, Encryption, StoredName};
pub use read::extract::{
    Contents, ExtractOptions, ExtractReport, Failure, PlainContents, Record, extract_to_folder,
    extract_to_tar, restore_file,
};
pub use read::file::FileReader;
pub use read::fs::{Ext4, OpenOptions};
pub use read::journal::Recovery;
pub use read::mapping::Mapping;
pub use read::names::{IntoNames, Name, Names};
pub use read::seen::SeenDirectories;
pub use read::unreachable::Unreachable;
pub use read::unread::Unread;
pub use read::usage::Usage;
pub use read::verity::VerityMetadata;
pub use read::xattr::Xattr;
pub use repair::{
    Alteration, Altered, Approve, Depth as RepairDepth, RepairOptions, RepairReport, UndoFile, repair,
};
pub use resize::{ResizeReport, ResizeTo, least_blocks, resize};
pub use transaction::patch::Patching;
pub use transaction::recovery_file::{Interrupted, RecoveryFile};
pub use tune::{Tuning, hash_name, mount_option_names};
pub use units::{Block, GroupNo, InodeNo};
