//! Units as types: one number cannot be taken for another by mistake.
//!
//! Each unit is made and read by named methods. None has `Deref`, `From` or arithmetic with plain numbers. Where a unit is
//! stored as a number of the format, `get` and `new` stand at the field.

use std::fmt;
use std::num::NonZeroU32;

/// Number of an inode, from 1 on. An index in a table is one less; 0 stands for no inode on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InodeNo(NonZeroU32);

impl InodeNo {
    /// The first inode of a file system.
    pub(crate) const FIRST: InodeNo = InodeNo::reserved(1);
    /// Holds damaged blocks.
    pub(crate) const BAD_BLOCKS: InodeNo = InodeNo::reserved(1);
    /// The root directory.
    pub const ROOT: InodeNo = InodeNo::reserved(2);
    /// Counts what users have, in file systems with quotas.
    pub(crate) const USER_QUOTA: InodeNo = InodeNo::reserved(3);
    /// Counts what groups have, in file systems with quotas.
    pub(crate) const GROUP_QUOTA: InodeNo = InodeNo::reserved(4);
    /// Kept for boot loaders.
    pub(crate) const BOOT_LOADER: InodeNo = InodeNo::reserved(5);
    /// Holds the blocks that descriptors grow into.
    pub(crate) const RESIZE: InodeNo = InodeNo::reserved(7);
    /// The journal's usual inode.
    pub(crate) const JOURNAL: InodeNo = InodeNo::reserved(8);

    /// The first inode that is not reserved in most file systems. New ones have lost+found there.
    pub(crate) const LOST_AND_FOUND: InodeNo = InodeNo::reserved(11);

    /// A number of the format, which is not 0.
    const fn reserved(number: u32) -> InodeNo {
        InodeNo(NonZeroU32::new(number).unwrap())
    }

    /// The inode with this number; `None` for 0.
    pub const fn new(number: u32) -> Option<InodeNo> {
        match NonZeroU32::new(number) {
            Some(number) => Some(InodeNo(number)),
            None => None,
        }
    }

    /// The number, from 1 on.
    pub const fn get(self) -> u32 {
        self.0.get()
    }

    /// The number of an inode as it is stored: 0 if there is none.
    pub fn stored(inode: Option<InodeNo>) -> u32 {
        inode.map_or(0, InodeNo::get)
    }

    /// Position among all inodes of a file system, from 0 on.
    pub const fn index(self) -> u32 {
        self.0.get() - 1
    }

    /// The inode at a position among all inodes of a file system; `None` for the last number of 32 bits, which has no inode.
    pub const fn at_index(index: u32) -> Option<InodeNo> {
        match index.checked_add(1) {
            Some(number) => InodeNo::new(number),
            None => None,
        }
    }

    /// The inode `count` numbers later, or that with the last number of 32 bits.
    pub(crate) const fn plus(self, count: u32) -> InodeNo {
        InodeNo(self.0.saturating_add(count))
    }

    /// This inode and those that follow it, `count` in all, as far as 32 bits reach.
    pub(crate) fn run(self, count: u32) -> impl DoubleEndedIterator<Item = InodeNo> + Clone {
        let first = u64::from(self.get());
        (first..first + u64::from(count)).filter_map(|number| InodeNo::new(u32::try_from(number).ok()?))
    }
}

impl fmt::Display for InodeNo {
    /// The plain number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inodes_begin_with_one() {
        assert_eq!((InodeNo::new(0), InodeNo::stored(None)), (None, 0));
        assert_eq!((InodeNo::FIRST.index(), InodeNo::at_index(0)), (0, Some(InodeNo::FIRST)));
        assert_eq!(InodeNo::at_index(u32::MAX), None);
        let last = InodeNo::new(u32::MAX).unwrap();
        assert_eq!((last.run(3).count(), last.plus(1)), (1, last));
        assert!(InodeNo::ROOT.run(2).map(InodeNo::get).eq([2, 3]));
    }

    #[test]
    fn numbers_are_printed_as_such() {
        assert_eq!(format!("{} {:>4}", InodeNo::ROOT, InodeNo::LOST_AND_FOUND), "2   11");
    }
}
