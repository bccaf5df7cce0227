//! Contents and names that lie in the inode itself: what fits in the place of its map, and an attribute behind.
//!
//! Source: Documentation/filesystems/ext4/inlinedata.rst.

use crate::format::field::Le32;
use crate::units::InodeNo;

/// Bytes in the place of the map.
pub(crate) const HEAD: usize = 60;

/// Of those, bytes that a directory has for records: its parent comes first.
pub(crate) const FIRST_RECORDS: usize = HEAD - PARENT.end();

const PARENT: Le32 = Le32(0);

/// The parent of a directory, if it is named, and its first records.
pub(crate) fn split(head: &[u8; HEAD]) -> (Option<InodeNo>, &[u8]) {
    (InodeNo::new(PARENT.get(head)), &head[PARENT.end()..])
}

pub(crate) fn set_parent(head: &mut [u8; HEAD], parent: InodeNo) {
    PARENT.set(head, parent.get());
}

/// The contents of a directory: its parent, and records in two places.
pub(crate) fn directory_bytes(parent: Option<InodeNo>, first: &[u8], rest: &[u8]) -> Vec<u8> {
    [&InodeNo::stored(parent).to_le_bytes()[..], first, rest].concat()
}
