//! Operations that no transaction has room for.
//!
//! They are done in steps, each of them a transaction that leaves the file system whole. Meanwhile the inode waits in
//! the list of orphans, which the kernel, e2fsck and [`Writer::open`] go through after a crash: an inode without names
//! goes with all its blocks, of one with names what lies behind its end. So a file that is being removed or cut is gone
//! or short, one that was growing is as long as before, and a new one, which gets its name last, was never there.
//! (Unwritten extents may lie behind a file's end for good, so growing by those needs no list.)
//!
//! The list begins in the superblock (`s_last_orphan`) and goes on in what is otherwise the time of deletion. What is
//! put on it last leaves it first.
//!
//! Source: Documentation/filesystems/ext4/orphan.rst.

use std::fmt;

use crate::edit::Writer;
use crate::edit::file_map::Cut;
use crate::edit::inode::InodeMut;
use crate::error::{Error, Result, no_space};
use crate::format::superblock::SUPERBLOCK_OFFSET;

/// Where the superblock keeps the list's first inode.
const LAST_ORPHAN: usize = 0xe8;

/// Why an operation failed that could be done in steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TooLarge;

impl TooLarge {
    pub fn error() -> Error {
        Error::unsupported(TooLarge.to_string()).with_cause(TooLarge)
    }

    pub fn is(error: &Error) -> bool {
        error.cause::<TooLarge>().is_some()
    }
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a change that is too large for the journal")
    }
}

impl std::error::Error for TooLarge {}

impl Writer {
    /// Leaves it to the steps behind this operation to cut an inode to its size, and to free it if it has no name.
    /// Part of an operation, after which nothing else uses the inode.
    pub(crate) fn finish_later(&mut self, inode: &mut InodeMut) -> Result<()> {
        self.list_orphan(inode)?;
        self.unfinished.push(inode.number());
        self.store_inode(inode)
    }

    /// Puts an inode on the list. The caller stores it. One that never had a name is put there before it is stored
    /// first: from then on its owners have it.
    pub(crate) fn list_orphan(&mut self, inode: &mut InodeMut) -> Result<()> {
        if inode.links() == 0 {
            self.count_unlinked(inode.number());
        }
        inode.set_deleted(self.last_orphan()?);
        self.set_last_orphan(inode.number())
    }

    /// The first inode of the list, or 0.
    pub(crate) fn last_orphan(&self) -> Result<u32> {
        let mut raw = [0; 4];
        self.space.transaction().read_at(&mut raw, SUPERBLOCK_OFFSET + LAST_ORPHAN as u64)?;
        Ok(u32::from_le_bytes(raw))
    }

    /// Takes an inode from the list that was put there last. The caller stores it.
    pub(crate) fn unlist_orphan(&mut self, inode: &mut InodeMut) -> Result<()> {
        self.set_last_orphan(inode.deleted())?;
        inode.set_deleted(0);
        Ok(())
    }

    pub(crate) fn set_last_orphan(&mut self, number: u32) -> Result<()> {
        self.space.transaction_mut().edit_superblock(|raw| {
            raw[LAST_ORPHAN..LAST_ORPHAN + 4].copy_from_slice(&number.to_le_bytes());
            Ok(())
        })
    }

    /// Does what operations left unfinished.
    pub(crate) fn finish_all(&mut self) -> Result<()> {
        while let Some(number) = self.unfinished.last().copied() {
            self.commit()?;
            match self.step(|writer| writer.finish_some(number)) {
                Ok(Cut::Begun) => {}
                Ok(Cut::Done) => drop(self.unfinished.pop()),
                Err(error) => {
                    // It stays on the list.
                    self.unfinished.clear();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn finish_some(&mut self, number: u32) -> Result<Cut> {
        let mut inode = self.unlinked_inode_mut(number)?;
        let is_gone = inode.links() == 0;
        let from = if is_gone { 0 } else { inode.size().div_ceil(self.block_size() as u64) };
        let cut = self.cut(&mut inode, from)?;
        if cut == Cut::Done {
            self.unlist_orphan(&mut inode)?;
            if is_gone {
                self.free_cut(&mut inode)?;
                return Ok(cut);
            }
        }
        self.store_inode(&inode)?;
        Ok(cut)
    }

    /// Goes on with something in steps, of which each returns whether it was the last one. If the inode was put on the
    /// list, the last step takes it off again. When one fails, the inode is cut to its size, and goes if it has no name.
    pub(crate) fn in_steps(
        &mut self,
        number: u32,
        is_listed: bool,
        mut step: impl FnMut(&mut Writer) -> Result<bool>,
    ) -> Result<()> {
        loop {
            let is_last = self.commit().and_then(|()| self.step(&mut step));
            match is_last {
                // The last step may have removed what was in its way.
                Ok(true) => return self.finish_all(),
                Ok(false) => {}
                // After a commit that failed, whoever opens the file system next does this.
                Err(error) if self.space.transaction().check().is_err() => return Err(error),
                Err(error) => {
                    self.step(|writer| writer.give_up(number, is_listed))?;
                    self.finish_all()?;
                    return Err(error);
                }
            }
        }
    }

    fn give_up(&mut self, number: u32, is_listed: bool) -> Result<()> {
        let mut inode = self.unlinked_inode_mut(number)?;
        if is_listed {
            self.unlist_orphan(&mut inode)?;
        }
        if inode.links() == 0 {
            return self.free_everything(&mut inode);
        }
        let end = inode.size().div_ceil(self.block_size() as u64);
        match self.cut(&mut inode, end)? {
            Cut::Done => self.store_inode(&inode),
            Cut::Begun => self.finish_later(&mut inode),
        }
    }

    /// Refuses to begin what there are not enough blocks for: to map all of a file's blocks `from..to`.
    pub(crate) fn require_free(&self, inode: &InodeMut, from: u64, to: u64) -> Result<()> {
        let mut needed = to - from;
        self.space.fs().mappings(inode, from, |run| {
            let (first, end) = (run.logical.max(from), run.end().min(to));
            needed -= end.saturating_sub(first);
            Ok(if run.end() < to {
                std::ops::ControlFlow::Continue(())
            } else {
                std::ops::ControlFlow::Break(())
            })
        })?;
        let free = self.space.free_clusters() + self.space.pinned_clusters();
        // What was freed in this transaction can be used in the next one.
        if needed.div_ceil(self.ratio()) > free { Err(no_space("blocks")) } else { Ok(()) }
    }
}
