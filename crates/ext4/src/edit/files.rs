//! Files by their names, and what an operation on them consists of.

use crate::alloc::Allocator;
use crate::edit::dir::{Directory, Hints};
use crate::edit::file_map::Cut;
use crate::edit::inodes::{Inodes, Mark};
use crate::error::Result;
use crate::format::inode::{Inode, Stamp, Time};
use crate::read::fs::Ext4;
use crate::units::InodeNo;

/// The files of a file system, to change: parts of operations, each of which
/// [`Writer`](crate::Writer) runs as a whole or takes back.
pub(crate) struct Files {
    inodes: Inodes,
    hints: Hints,
}

impl Files {
    pub fn new(inodes: Inodes) -> Files {
        Files { inodes, hints: Hints::default() }
    }

    /// Begins a step: what came before is not taken back with it.
    pub fn begin(&mut self) -> Mark {
        self.inodes.begin()
    }

    /// Ends a step.
    pub fn end(&mut self) -> Result<()> {
        self.inodes.end()
    }

    /// Takes back everything since the step began.
    pub fn roll_back(&mut self, mark: Mark) {
        self.inodes.roll_back(mark);
        self.hints = Hints::default();
    }

    /// Makes all changes permanent.
    pub fn commit(&mut self) -> Result<()> {
        self.inodes.commit()?;
        self.hints.forget_blocks();
        Ok(())
    }

    /// The file system as it is with all changes so far.
    pub fn fs(&self) -> &Ext4 {
        self.inodes.fs()
    }

    /// Blocks and inodes that are taken and freed.
    pub fn space(&self) -> &Allocator {
        self.inodes.space()
    }

    /// Whether somebody uses an inode without names.
    pub fn is_held(&self, number: InodeNo) -> bool {
        self.inodes.is_held(number)
    }

    /// All of these.
    pub fn all_held(&self) -> Vec<InodeNo> {
        self.inodes.all_held()
    }

    /// Sets if the blocks that are reserved for root are left free.
    pub fn keep_reserve(&mut self, keeps: bool) {
        self.inodes.space_mut().keep_reserve(keeps);
    }

    /// Inodes without their names.
    pub fn inodes(&mut self) -> &mut Inodes {
        &mut self.inodes
    }

    /// The inode with this number, which has a name.
    pub fn get(&self, number: InodeNo) -> Result<Inode> {
        self.inodes.get(number)
    }

    /// The inode, which may have no links left.
    pub fn get_unlinked(&self, number: InodeNo) -> Result<Inode> {
        self.inodes.get_unlinked(number)
    }

    /// The first inode that waits to be deleted or cut, or 0.
    pub fn last_orphan(&self) -> Result<Option<InodeNo>> {
        self.inodes.last_orphan()
    }

    /// The time that changes are noted with.
    pub fn now(&self) -> Time {
        self.inodes.now()
    }

    /// The names of a directory.
    pub fn directory<'t>(&'t mut self, dir: &'t mut Inode) -> Directory<'t> {
        Directory::new(&mut self.inodes, &mut self.hints, dir)
    }

    /// Forgets what is known of a directory that is gone.
    pub fn forget_directory(&mut self, number: InodeNo) {
        self.hints.forget(number);
    }

    /// Notes that contents of a file, or names of a directory, changed.
    pub fn touch(&self, inode: &mut Inode) {
        let now = self.now();
        inode.set_time(Stamp::Modified, now);
        inode.set_time(Stamp::Changed, now);
    }

    /// Takes back what the steps of a change did that is not going on: the inode is cut to its size, and goes if it
    /// has no name.
    pub fn give_up(&mut self, number: InodeNo, is_listed: bool) -> Result<()> {
        let mut inode = self.inodes.get_unlinked(number)?;
        if is_listed {
            self.inodes.unlist_orphan(&mut inode)?;
        }
        if inode.links() == 0 && !self.inodes.is_held(number) {
            return self.inodes.release(&mut inode);
        }
        let end = inode.size().div_ceil(self.space().block_bytes());
        match self.inodes.map(&mut inode).cut(end)? {
            Cut::Done => self.inodes.store(&inode),
            Cut::Begun => self.inodes.finish_later(&mut inode),
        }
    }
}
