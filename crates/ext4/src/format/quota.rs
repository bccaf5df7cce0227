//! The files of quotas: a tree of blocks of 1 KiB that leads from a number of 32 bits to its entry.
//!
//! Block 0 holds two headers. Block 1 is the tree's root: 256 block numbers, one for each value of the id's highest
//! byte; three levels more lead to a block of entries. Blocks that are free form a list, blocks of entries that have
//! room another one with links in both directions.
//!
//! Source: the kernel's Documentation/filesystems/quota.rst and fs/quota/quota_tree.c, for facts (format vfsv1).

use std::ops::Range;

use casemate_blockdev::u64_of;

use crate::error::{Error, Place, Result};
use crate::format::field::{Byte, Le16, Le32, Le64};

/// Bytes of the file's blocks.
pub(crate) const BLOCK: usize = 1024;

/// Levels of the tree, the root among them.
pub(crate) const LEVELS: usize = 4;

/// The tree's root.
pub(crate) const ROOT: u32 = 1;

/// Block 0: grace times in seconds, how many blocks there are, and where the lists begin.
const MAGIC: Le32 = Le32(0);
const VERSION: Le32 = Le32(4);
const BLOCK_GRACE: Le32 = Le32(8);
const INODE_GRACE: Le32 = Le32(12);
pub(crate) const BLOCKS: Le32 = Le32(20);
pub(crate) const FREE_BLOCK: Le32 = Le32(24);
pub(crate) const FREE_ENTRY: Le32 = Le32(28);

/// Seconds of a week.
const WEEK: u32 = 7 * 24 * 3600;

/// The header of a block of entries, and of a free one: neighbours in its list, and how many entries are in use.
pub(crate) const NEXT: Le32 = Le32(0);
pub(crate) const BEFORE: Le32 = Le32(4);
pub(crate) const USED: Le16 = Le16(8);
const HEADER: usize = 16;

/// An entry.
pub(crate) const ENTRY: usize = 72;
pub(crate) const ID: Le32 = Le32(0);
/// A byte of an entry that keeps it in use while nothing else is in it.
const KEEPS: Byte = Byte(INODES.time.0);

/// Entries of a block.
pub(crate) const ENTRIES: usize = (BLOCK - HEADER) / ENTRY;

/// A counter of an entry with its limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counter {
    value: Le64,
    /// Limit that binds after a grace period, in units of so many.
    soft_limit: Le64,
    unit: u64,
    /// When it begins to bind, in seconds since 1970.
    time: Le64,
    /// Where block 0 says how long the limit may be passed.
    pub grace: Le32,
}

/// Bytes; the limit is one of blocks of 1 KiB.
pub(crate) const SPACE: Counter =
    Counter { value: Le64(48), soft_limit: Le64(40), unit: 1024, time: Le64(56), grace: BLOCK_GRACE };

pub(crate) const INODES: Counter =
    Counter { value: Le64(24), soft_limit: Le64(16), unit: 1, time: Le64(64), grace: INODE_GRACE };

/// Whose usage a file counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    User,
    Group,
    Project,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::User, Kind::Group, Kind::Project];

    /// Position in [`Kind::ALL`].
    pub fn index(self) -> usize {
        match self {
            Kind::User => 0,
            Kind::Group => 1,
            Kind::Project => 2,
        }
    }

    fn magic(self) -> u32 {
        match self {
            Kind::User => 0xd9c0_1f11,
            Kind::Group => 0xd9c0_1927,
            Kind::Project => 0xd9c0_3f14,
        }
    }

    /// Writes the headers of an empty file: a week of grace, as everywhere.
    pub fn begin(self, header: &mut [u8]) {
        MAGIC.set(header, self.magic());
        VERSION.set(header, 1);
        BLOCK_GRACE.set(header, WEEK);
        INODE_GRACE.set(header, WEEK);
    }

    /// Refuses what is no block 0 of a file of this kind.
    ///
    /// # Errors
    /// `Corrupt` at `place`, and `Unsupported` for another version.
    pub fn check(self, header: &[u8], place: Place) -> Result<()> {
        if MAGIC.get(header) != self.magic() {
            return Err(place.malformed("has no magic number of its kind"));
        }
        match VERSION.get(header) {
            1 => Ok(()),
            version => Err(Error::unsupported(format!("quota files of version {version}"))),
        }
    }
}

impl Counter {
    /// The current usage.
    pub fn value(self, entry: &[u8]) -> u64 {
        self.value.get(entry)
    }

    /// Adds to what is counted. Whether that is above the limit, and no time is noted from which on it binds.
    pub fn add(self, entry: &mut [u8], change: i64) -> bool {
        // Files that were wrong before, e2fsck puts right; as in the kernel they are no reason to stop.
        let value = self.value.get(entry).saturating_add_signed(change);
        self.value.set(entry, value);
        let limit = self.soft_limit.get(entry).saturating_mul(self.unit);
        if limit == 0 || value <= limit {
            self.time.set(entry, 0);
            return false;
        }
        self.time.get(entry) == 0
    }

    /// Notes from when on the limit binds.
    pub fn set_time(self, entry: &mut [u8], seconds: u64) {
        self.time.set(entry, seconds);
    }
}

/// Keeps an entry in use. That of id 0 would look free with nothing in it; the kernel marks it so.
pub(crate) fn keep(entry: &mut [u8]) {
    if is_free(entry) {
        KEEPS.set(entry, 1);
    }
}

/// Whether nothing is in an entry, not even an id.
pub(crate) fn is_free(entry: &[u8]) -> bool {
    entry[..ENTRY].iter().all(|byte| *byte == 0)
}

/// Whether an entry holds anything about its id.
pub(crate) fn is_used(entry: &[u8]) -> bool {
    entry[8..ENTRY].iter().any(|byte| *byte != 0)
}

/// Bytes of the file that a block fills.
pub(crate) fn range(block: u32) -> Range<u64> {
    let size = u64_of(BLOCK);
    let start = u64::from(block) * size;
    start..start + size
}

/// Where a node keeps what an id goes on with.
pub(crate) fn slot(id: u32, level: usize) -> Le32 {
    Le32(4 * usize::from(id.to_be_bytes()[level]))
}

/// Where a block's entries begin.
pub(crate) fn entries() -> impl Iterator<Item = usize> {
    (0..ENTRIES).map(|number| HEADER + ENTRY * number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_begin_to_bind_when_they_are_passed() {
        let mut entry = [0; ENTRY];
        assert!(is_free(&entry) && !is_used(&entry));
        ID.set(&mut entry, 7);
        assert!(!is_free(&entry) && !is_used(&entry));
        for counter in [SPACE, INODES] {
            assert!(!counter.add(&mut entry, 5000));
            counter.soft_limit.set(&mut entry, 5);
            assert_eq!(counter.add(&mut entry, 0), 5000 > 5 * counter.unit);
            assert!(counter.add(&mut entry, 1000));
            counter.set_time(&mut entry, 9);
            assert!(!counter.add(&mut entry, 1));
            assert!(!counter.add(&mut entry, i64::MIN));
            assert_eq!((counter.value.get(&entry), counter.time.get(&entry)), (0, 0));
        }
    }

    #[test]
    fn an_entry_of_id_zero_is_kept() {
        let mut entry = [0; ENTRY];
        keep(&mut entry);
        assert!(!is_free(&entry) && is_used(&entry));
        assert_eq!(entries().last(), Some(BLOCK - HEADER - ENTRY + 16));
    }
}
