//! The inodes of a file system: read, stored with what quotas count of them, and freed with all that they have.
//!
//! Operations that no transaction has room for are done in steps. Meanwhile the inode waits in the list of orphans, which the
//! kernel, e2fsck and [`Writer::open`](crate::Writer::open) go through after a crash: an inode without names goes with
//! all its blocks, of one with names what lies behind its end. The list begins in the superblock (`s_last_orphan`) and
//! goes on in what is otherwise the time of deletion.
//!
//! Source: Documentation/filesystems/ext4/orphan.rst.

use std::collections::HashSet;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::alloc::{self, Allocator};
use crate::edit::contents::Contents;
use crate::edit::file_map::{Cut, FileMap, MapView};
use crate::edit::inode::{blank, write, write_new};
use crate::edit::quota::Quota;
use crate::edit::random::Random;
use crate::edit::xattr::Attributes;
use crate::error::{Place, Result, Structure};
use crate::format::inode::{FileType, Inode, InodeFlags, Time};
use crate::format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, last_orphan};
use crate::read::fs::Ext4;
use crate::read::map::is_fast_symlink;
use crate::transaction::Transaction;
use crate::units::InodeNo;

/// Inodes that may wait besides those that are used or unfinished: what grows in steps.
const OTHERS: usize = 16;

/// The inodes of a file system, to change.
pub(crate) struct Inodes {
    space: Allocator,
    quota: Quota,
    random: Random,
    /// Time that changes are noted with; the clock if `None`.
    time: Option<Time>,
    /// Inodes that could not be finished in their transaction, in the order in which they wait.
    unfinished: Vec<InodeNo>,
    /// Inodes without names that somebody still uses: they are on the list until nobody does.
    held: HashSet<InodeNo>,
    /// Inodes that got times which they can't hold.
    cut_times: HashSet<InodeNo>,
}

/// The state that a step is taken back to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    space: alloc::Mark,
    unfinished: usize,
}

impl Inodes {
    pub fn new(space: Allocator, random: Random, time: Option<Time>) -> Inodes {
        Inodes {
            quota: Quota::of(space.fs()),
            space,
            random,
            time,
            unfinished: Vec::new(),
            held: HashSet::new(),
            cut_times: HashSet::new(),
        }
    }

    /// Begins a step: what came before is not taken back with it.
    pub fn begin(&mut self) -> Mark {
        Mark { space: self.space.begin(), unfinished: self.unfinished.len() }
    }

    /// Ends a step: what was counted goes to the files of quotas.
    pub fn end(&mut self) -> Result<()> {
        let now = self.now();
        self.quota.settle(&mut self.space, now)
    }

    /// Takes back everything since the step began.
    pub fn roll_back(&mut self, mark: Mark) {
        self.space.roll_back(mark.space);
        self.unfinished.truncate(mark.unfinished);
        self.quota.roll_back();
    }

    /// Makes all changes permanent.
    pub fn commit(&mut self) -> Result<()> {
        let now = self.now();
        self.space.commit(now)
    }

    /// The file system as it is with all changes so far.
    pub fn fs(&self) -> &Ext4 {
        self.space.fs()
    }

    /// Blocks and inodes that are taken and freed.
    pub fn space(&self) -> &Allocator {
        &self.space
    }

    pub fn space_mut(&mut self) -> &mut Allocator {
        &mut self.space
    }

    /// The blocks that are changed.
    pub fn transaction(&mut self) -> &mut Transaction {
        self.space.transaction_mut()
    }

    /// The source of generations and nonces.
    pub fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// The time that changes are noted with.
    pub fn now(&self) -> Time {
        self.time.unwrap_or_else(|| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            Time { seconds: now.as_secs().cast_signed(), nanoseconds: now.subsec_nanos() }
        })
    }

    /// The inode with this number, which has a name.
    pub fn get(&self, number: InodeNo) -> Result<Inode> {
        self.fs().inode(number)
    }

    /// The inode, which may have no name left.
    pub fn get_unlinked(&self, number: InodeNo) -> Result<Inode> {
        self.fs().any_inode(number)
    }

    /// An inode that was just taken, with the times of now. It belongs to nobody.
    pub fn blank(&mut self, number: InodeNo, kind: FileType) -> Inode {
        let (generation, now) = (self.random.next(), self.now());
        blank(self.fs(), number, kind, generation, now)
    }

    /// Stores an inode that was read before.
    pub fn store(&mut self, inode: &Inode) -> Result<()> {
        self.quota.count_stored(&self.space, inode, false)?;
        self.note_times(inode);
        write(&mut self.space, inode)
    }

    fn note_times(&mut self, inode: &Inode) {
        if inode.is_time_cut() {
            self.cut_times.insert(inode.number());
        }
    }

    /// How many inodes got times that they can't hold, since this was asked last.
    pub fn take_cut_times(&mut self) -> usize {
        std::mem::take(&mut self.cut_times).len()
    }

    /// Stores an inode that was just taken.
    pub fn create(&mut self, inode: &Inode) -> Result<()> {
        self.quota.count_created(&self.space, inode);
        self.note_times(inode);
        write_new(&mut self.space, inode)
    }

    /// Counts inodes that values of an inode's attributes lie in, for the owners that it is stored with.
    pub fn count_values(&mut self, owner: &Inode, change: i64) -> Result<()> {
        self.quota.count_values(&self.space, owner, change)
    }

    /// Counts an inode for its owners though it has lost its last name: it is freed later.
    pub fn count_unlinked(&mut self, number: InodeNo) {
        self.quota.count_unlinked(number);
    }

    /// An inode's map, to change.
    pub fn map<'t>(&'t mut self, inode: &'t mut Inode) -> FileMap<'t> {
        FileMap::new(&mut self.space, inode)
    }

    /// An inode's map, to look at.
    pub fn view<'t>(&'t self, inode: &'t Inode) -> MapView<'t> {
        MapView::new(&self.space, inode)
    }

    /// An inode's attributes, to change.
    pub fn attributes<'t>(&'t mut self, inode: &'t mut Inode) -> Attributes<'t> {
        Attributes::new(self, inode)
    }

    /// A file's contents, to change.
    pub fn contents<'t>(&'t mut self, inode: &'t mut Inode) -> Contents<'t> {
        Contents::new(self, inode)
    }

    /// Frees an inode with its blocks and attributes; what there is no room for, later.
    pub fn release(&mut self, inode: &mut Inode) -> Result<()> {
        self.attributes(inode).free()?;
        let is_mapped = match inode.kind() {
            FileType::Regular | FileType::Directory => !inode.has(InodeFlags::INLINE_DATA),
            FileType::Symlink => !inode.has(InodeFlags::INLINE_DATA) && !is_fast_symlink(inode),
            _ => false,
        };
        let cut = if is_mapped { self.map(inode).cut(0)? } else { Cut::Done };
        inode.set_links(0);
        inode.set_size(0);
        match cut {
            Cut::Done => self.free(inode),
            Cut::Begun => self.finish_later(inode),
        }
    }

    /// Frees an inode that has no blocks any more.
    fn free(&mut self, inode: &mut Inode) -> Result<()> {
        inode.set_deleted_at(self.now());
        self.quota.count_stored(&self.space, inode, true)?;
        write(&mut self.space, inode)?;
        self.space.free_inode(inode.number(), inode.is_dir())
    }

    /// Leaves it to the steps behind this operation to cut an inode to its size, and to free it if it has no name.
    /// Nothing else may use the inode in this operation.
    pub fn finish_later(&mut self, inode: &mut Inode) -> Result<()> {
        if !self.held.contains(&inode.number()) {
            self.list_orphan(inode)?;
        }
        self.unfinished.push(inode.number());
        self.store(inode)
    }

    /// Notes that an inode without names, which is on the list, is in use, or that it is no longer.
    pub fn hold(&mut self, number: InodeNo, is_used: bool) {
        if is_used {
            self.held.insert(number)
        } else {
            self.held.remove(&number)
        };
    }

    /// Whether somebody uses an inode without names.
    pub fn is_held(&self, number: InodeNo) -> bool {
        self.held.contains(&number)
    }

    /// Inodes without names that somebody uses.
    pub fn all_held(&self) -> Vec<InodeNo> {
        self.held.iter().copied().collect()
    }

    /// The next inode that is to be finished.
    pub fn unfinished(&self) -> Option<InodeNo> {
        self.unfinished.last().copied()
    }

    /// Goes on with the inode that is to be finished next, as far as the transaction has room.
    pub fn finish_some(&mut self, number: InodeNo) -> Result<Cut> {
        let mut inode = self.get_unlinked(number)?;
        let is_held = self.held.contains(&number);
        let is_gone = inode.links() == 0 && !is_held;
        let from = if is_gone { 0 } else { inode.size().div_ceil(self.space.block_bytes()) };
        let cut = self.map(&mut inode).cut(from)?;
        if cut == Cut::Done && !is_held {
            self.unlist_orphan(&mut inode)?;
            if is_gone {
                self.free(&mut inode)?;
                return Ok(cut);
            }
        }
        self.store(&inode)?;
        Ok(cut)
    }

    /// Calls the inode finished that [`finish_some`](Inodes::finish_some) went on with last.
    pub fn is_finished(&mut self) {
        self.unfinished.pop();
    }

    /// Leaves what is unfinished to whoever opens the file system next: it stays on the list.
    pub fn leave_unfinished(&mut self) {
        self.unfinished.clear();
    }

    /// Puts an inode on the list. The caller stores it. One that never had a name is put there before it is stored
    /// first: from then on its owners have it.
    pub fn list_orphan(&mut self, inode: &mut Inode) -> Result<()> {
        if inode.links() == 0 {
            self.count_unlinked(inode.number());
        }
        inode.set_next_orphan(self.last_orphan()?);
        self.set_last_orphan(Some(inode.number()))
    }

    /// Takes an inode from the list. The caller stores it.
    pub fn unlist_orphan(&mut self, inode: &mut Inode) -> Result<()> {
        let next = inode.next_orphan();
        let mut at = self.last_orphan()?;
        if at == Some(inode.number()) {
            self.set_last_orphan(next)?;
        } else {
            let place = Place::inode(Structure::Inode, inode.number());
            // A list that is longer than what was put on it leads in a circle.
            for _ in 0..self.held.len() + self.unfinished.len() + OTHERS {
                let Some(number) = at else { break };
                let mut before = self.get_unlinked(number)?;
                at = before.next_orphan();
                if at == Some(inode.number()) {
                    before.set_next_orphan(next);
                    write(&mut self.space, &before)?;
                    inode.set_next_orphan(None);
                    return Ok(());
                }
            }
            return Err(place.malformed("is not in the list of orphans"));
        }
        inode.set_next_orphan(None);
        Ok(())
    }

    /// The first inode of the list.
    pub fn last_orphan(&self) -> Result<Option<InodeNo>> {
        let mut raw = [0; SUPERBLOCK_SIZE];
        self.space.transaction().read_at(&mut raw, SUPERBLOCK_OFFSET)?;
        Ok(last_orphan(&raw))
    }

    pub fn set_last_orphan(&mut self, first: Option<InodeNo>) -> Result<()> {
        self.space.transaction_mut().edit_superblock(|superblock| {
            superblock.set_last_orphan(first);
            Ok(())
        })
    }
}
