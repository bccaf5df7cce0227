//! What lies on the disk: one file a structure, and the checksum recipes beside them. Nothing here does I/O.

pub(crate) mod acl;
pub(crate) mod bitmap;
pub(crate) mod block_map;
pub(crate) mod bytes;
pub(crate) mod crc16;
pub(crate) mod crc32;
pub mod csum;
pub(crate) mod dir;
pub(crate) mod dirhash;
pub(crate) mod extent;
pub(crate) mod fast_commit;
pub(crate) mod features;
pub(crate) mod field;
pub(crate) mod group;
pub(crate) mod htree;
pub(crate) mod inline;
pub(crate) mod inode;
pub(crate) mod journal_block;
pub(crate) mod journal_superblock;
pub(crate) mod layout;
pub(crate) mod mmp;
pub(crate) mod orphan;
pub(crate) mod quota;
pub(crate) mod recovery_file;
pub(crate) mod superblock;
pub(crate) mod xattr;
