//! Reading a file system: from names to inodes, from inodes to contents and attributes, and the journal that is laid
//! over the image before.

pub(crate) mod casefold;
pub(crate) mod deleted;
pub(crate) mod dir;
pub(crate) mod encryption;
pub(crate) mod extent;
pub(crate) mod extract;
pub(crate) mod file;
pub(crate) mod fs;
pub(crate) mod htree;
pub(crate) mod indirect;
pub(crate) mod journal;
pub(crate) mod kept;
pub(crate) mod map;
pub(crate) mod mapping;
pub(crate) mod names;
pub(crate) mod old_names;
pub(crate) mod path;
pub(crate) mod primary;
pub(crate) mod reuse;
pub(crate) mod runs;
pub(crate) mod seen;
pub(crate) mod symlink;
pub(crate) mod unreachable;
pub(crate) mod unread;
pub(crate) mod usage;
pub(crate) mod verity;
pub(crate) mod xattr;
