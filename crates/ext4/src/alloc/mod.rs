//! The one place that takes and frees blocks and inodes.
//!
//! Everything is taken towards a goal: a file's blocks behind each other and in its inode's group, a file's inode
//! in its directory's group, directories below one another together and those below the root apart.

mod blocks;
mod copies;
mod descriptors;
mod inodes;
mod pins;
mod structures;

use std::collections::HashMap;

use casemate_blockdev::u32_of;

use crate::error::{Place, Result, Structure};
use crate::format::group::Bitmap;
use crate::format::inode::Time;
use crate::read::fs::Ext4;
use crate::transaction::Transaction;
use crate::units::{Block, GroupNo};

pub(crate) use blocks::Goal;
pub(crate) use descriptors::base_blocks;
pub(crate) use inodes::in_use;
pub(crate) use structures::{Collector, Structures};

use pins::Pins;

/// Takes and frees blocks and inodes of a file system, in a transaction.
pub(crate) struct Allocator {
    /// Reads through the transaction: sees every change.
    fs: Ext4,
    transaction: Transaction,
    /// Changes of the superblock's counts with the next commit.
    free: Counts,
    /// Changes of the superblock's counts with all commits since the file system was opened.
    base: Counts,
    pins: Pins,
    /// Hints, of which wrong ones cost time and nothing else: for each group, the block behind the last one that was
    /// allocated for it, and the first inode that may be free.
    near: HashMap<GroupNo, Block>,
    next_inodes: HashMap<GroupNo, u32>,
    /// Bitmaps and inode tables of all groups, once they were looked up.
    structures: Option<Structures>,
    /// Whether one was given another place.
    has_moved: bool,
    /// Whether blocks that are reserved for root are left free.
    keeps_reserve: bool,
    /// The block from which on nothing is taken, and the group from which on no inodes are.
    limit: Option<(Block, u32)>,
}

/// Free clusters and inodes. What a damaged superblock says of clusters is any number of 64 bits.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    clusters: i128,
    inodes: i64,
}

/// The state that a step is taken back to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    free: Counts,
    base: Counts,
    pins: usize,
}

impl Allocator {
    /// That of a file system which is read through a transaction.
    pub fn new(fs: Ext4, transaction: Transaction) -> Allocator {
        Allocator {
            fs,
            transaction,
            free: Counts::default(),
            base: Counts::default(),
            pins: Pins::default(),
            near: HashMap::new(),
            next_inodes: HashMap::new(),
            structures: None,
            has_moved: false,
            keeps_reserve: false,
            limit: None,
        }
    }

    /// The file system as it is with all changes so far.
    pub fn fs(&self) -> &Ext4 {
        &self.fs
    }

    /// The blocks that are changed.
    pub fn transaction(&self) -> &Transaction {
        &self.transaction
    }

    /// The transaction, to change blocks in it.
    pub fn transaction_mut(&mut self) -> &mut Transaction {
        &mut self.transaction
    }

    /// Bytes of a block.
    pub fn block_size(&self) -> usize {
        self.fs.layout().block_len()
    }

    /// Bytes of a block, as what is in files is counted.
    pub fn block_bytes(&self) -> u64 {
        self.fs.layout().block_size.into()
    }

    /// Blocks in a cluster.
    pub fn ratio(&self) -> u64 {
        u64::from(self.fs.layout().cluster_blocks)
    }

    /// Sets if the blocks that are reserved for root are left free.
    pub fn keep_reserve(&mut self, keeps: bool) {
        self.keeps_reserve = keeps;
    }

    /// Takes nothing from block `end` on any more, and no inodes from the group on that begins there or later.
    pub fn keep_below(&mut self, end: Block) {
        let layout = self.fs.layout();
        let data_blocks = end.checked_since(layout.group_start(GroupNo::PRIMARY)).unwrap_or(0);
        let groups = u32_of(data_blocks.div_ceil(u64::from(layout.blocks_per_group))).min(layout.groups);
        self.limit = Some((end, groups));
        self.near.clear();
        self.next_inodes.clear();
    }

    /// How many groups things are taken from.
    fn usable_groups(&self) -> u32 {
        self.limit.map_or(self.fs.layout().groups, |(_, groups)| groups.max(1))
    }

    /// Begins a step: what came before is not taken back with it.
    pub fn begin(&mut self) -> Mark {
        self.transaction.begin();
        Mark { free: self.free, base: self.base, pins: self.pins.mark() }
    }

    /// Takes back everything since the step began.
    pub fn roll_back(&mut self, mark: Mark) {
        self.transaction.roll_back();
        (self.free, self.base) = (mark.free, mark.base);
        self.pins.roll_back(mark.pins);
        if self.has_moved {
            self.forget_structures();
        }
        self.near.clear();
        self.next_inodes.clear();
    }

    /// Makes all changes permanent; what was freed can be used again from then on.
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    pub fn commit(&mut self, now: Time) -> Result<()> {
        self.transaction.check_known()?;
        if !self.transaction.is_logged() {
            self.commit_counts(now)?;
        }
        self.transaction.commit(now)?;
        self.pins.clear();
        Ok(())
    }

    /// A block's bytes, through the cache, which keeps it from now on. It is checked when it comes in.
    pub fn load(&self, block: Block, place: Place, check: impl FnOnce(&[u8]) -> Result<()>) -> Result<()> {
        if self.transaction.holds(block) {
            return Ok(());
        }
        self.fs.check_blocks(block, 1, place)?;
        let mut bytes = vec![0; self.block_size()];
        self.transaction.read_at(&mut bytes, self.fs.layout().offset(block))?;
        check(&bytes)?;
        self.transaction.with(block, |_| ())?;
        Ok(())
    }

    /// Counts what is free by the groups: the kernel writes the sums only when it closes a file system.
    pub fn recount(&mut self) -> Result<()> {
        let (mut clusters, mut inodes) = (0, 0);
        for group in GroupNo::first(self.fs.layout().groups) {
            let descriptor = self.descriptor(group)?;
            clusters += i128::from(descriptor.fields().free_clusters());
            inodes += i64::from(descriptor.fields().free_inodes());
        }
        let superblock = self.fs.superblock();
        let said = i128::from(superblock.blocks_free / self.ratio());
        self.free = Counts { clusters: clusters - said, inodes: inodes - i64::from(superblock.inodes_free) };
        Ok(())
    }

    /// Makes the superblock's count of free blocks or inodes the sum of those of the groups.
    pub fn correct_total(&mut self, which: Bitmap) -> Result<()> {
        let (mut clusters, mut inodes) = (0u64, 0u32);
        for group in GroupNo::first(self.fs.layout().groups) {
            let descriptor = self.descriptor(group)?;
            clusters += u64::from(descriptor.fields().free_clusters());
            inodes = inodes.saturating_add(descriptor.fields().free_inodes());
        }
        let superblock = self.fs.superblock();
        match which {
            Bitmap::Blocks => {
                let said = superblock.blocks_free / self.ratio();
                self.base.clusters = i128::from(clusters) - i128::from(said);
                self.free.clusters = 0;
            }
            Bitmap::Inodes => {
                self.base.inodes = i64::from(inodes) - i64::from(superblock.inodes_free);
                self.free.inodes = 0;
            }
        }
        // Descriptors may say anything, too, until groups are counted.
        let blocks = clusters.saturating_mul(self.ratio());
        self.transaction.edit_superblock(|superblock| {
            match which {
                Bitmap::Blocks => superblock.set_free_blocks(blocks),
                Bitmap::Inodes => superblock.set_free_inodes(inodes),
            }
            Ok(())
        })
    }

    /// Writes the counts that changed since the last commit to the superblock.
    pub fn commit_counts(&mut self, now: Time) -> Result<()> {
        let Counts { clusters, inodes } = std::mem::take(&mut self.free);
        let change = clusters * i128::from(self.ratio());
        self.base.clusters += clusters;
        self.base.inodes += inodes;
        if !self.transaction.is_changed() && change == 0 && inodes == 0 {
            return Ok(());
        }
        let now = now.seconds;
        let place = Place::of(Structure::Superblock);
        self.transaction.edit_superblock(|superblock| {
            superblock
                .add_free(change, inodes)
                .ok_or_else(|| place.malformed("its free counts are lower than those of the groups"))?;
            superblock.set_written(now);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::Arc;

    use casemate_blockdev::FileDevice;
    use casemate_testkit::{run, tempdir, tool};

    use super::*;
    use crate::read::fs::OpenOptions;
    use crate::transaction::LogOptions;
    use crate::units::InodeNo;

    /// No journal, no quota, no files: blocks and inodes alone.
    #[test]
    fn what_is_taken_is_given_back() {
        let (Some(mke2fs), Some(e2fsck)) = (tool("mke2fs"), tool("e2fsck")) else { return };
        let folder = tempdir().unwrap();
        let image = folder.path().join("image");
        run(Command::new(mke2fs).args(["-q", "-F", "-t", "ext4", "-b", "1024"]).arg(&image).arg("24M"));
        let device = Arc::new(FileDevice::open_writable(&image).unwrap());
        let log = LogOptions { is_direct: true, ..LogOptions::default() };
        let (fs, transaction) = Transaction::open(device, &OpenOptions::default(), log, None).unwrap();
        let mut space = Allocator::new(fs, transaction);
        let before = space.free_clusters();
        let take = |space: &mut Allocator| {
            let run = space.allocate(Goal::Near(GroupNo::new(1)), 700).unwrap();
            (
                run,
                space.allocate(Goal::Behind(run.0 + run.1), 9).unwrap(),
                space.allocate_inode(InodeNo::ROOT, true).unwrap(),
            )
        };
        let mark = space.begin();
        let first = take(&mut space);
        assert_eq!(space.free_clusters(), before - first.0.1 - first.1.1);
        assert_eq!(first.1.0, first.0.0 + first.0.1, "behind the first run");
        space.roll_back(mark);
        assert_eq!(space.free_clusters(), before);
        space.begin();
        let (first_run, behind, inode) = take(&mut space);
        assert_eq!((first_run, behind, inode), first);
        let both = first_run.1 + behind.1;
        let time = Time { seconds: 1, nanoseconds: 0 };
        space.commit(time).unwrap();
        let mark = space.begin();
        space.free_blocks(first_run.0, both).unwrap();
        assert!(space.free_blocks(first_run.0, 1).is_err(), "free already");
        space.roll_back(mark);
        space.free_blocks(first_run.0, both).unwrap();
        space.free_inode(inode, true).unwrap();
        assert_eq!((space.pinned_clusters(), space.free_clusters()), (both, before - both));
        let other = space.allocate(Goal::Behind(first_run.0), 1).unwrap().0;
        assert!(other >= behind.0 + behind.1, "what is freed is not taken before the commit");
        space.free_blocks(other, 1).unwrap();
        space.commit(time).unwrap();
        assert_eq!((space.pinned_clusters(), space.free_clusters()), (0, before));
        run(Command::new(e2fsck).arg("-fn").arg(&image));
    }
}
