//! Counts and sizes that statfs(2) returns for a mounted file system.

use casemate_blockdev::u64_of;

use crate::error::Result;
use crate::format::features::{Incompat, RoCompat};
use crate::read::fs::Ext4;
use crate::units::GroupNo;

/// Room of a file system as statfs(2) counts it: in blocks of [`Layout::block_size`](crate::Layout), and in inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Blocks that files can have: all but those of the file system's own structures.
    pub blocks: u64,
    /// Blocks that nobody has.
    pub free: u64,
    /// Of these, what is there for everybody: not for root alone, nor kept by the kernel for what it has promised.
    pub available: u64,
    /// All inodes.
    pub inodes: u64,
    /// Inodes that nobody has.
    pub inodes_free: u64,
}

/// The kernel keeps a fiftieth of the clusters for what it has promised, and not more than so many.
const MOST_KEPT: u64 = 4096;

impl Ext4 {
    /// The counts and sizes of statfs(2).
    ///
    /// # Errors
    /// `Corrupt` for a damaged group descriptor or journal inode.
    pub fn usage(&self) -> Result<Usage> {
        let (mut free_clusters, mut inodes_free) = (0u64, 0u64);
        for group in GroupNo::first(self.layout().groups) {
            let free = self.with_descriptor(group, |found| (found.free_clusters(), found.free_inodes()))?;
            // OK to add: a sum of 32-bit numbers, fewer than 2^32 of them.
            free_clusters += u64::from(free.0);
            inodes_free += u64::from(free.1);
        }
        self.usage_of(free_clusters, inodes_free)
    }

    /// The counts and sizes of statfs(2), with so many free clusters and inodes.
    pub(crate) fn usage_of(&self, free_clusters: u64, inodes_free: u64) -> Result<Usage> {
        let (layout, superblock) = (self.layout(), self.superblock());
        let cluster_blocks = u64::from(layout.cluster_blocks);
        let free = free_clusters.saturating_mul(cluster_blocks);
        let reserved = self.reserved_blocks();
        Ok(Usage {
            blocks: layout.blocks.saturating_sub(self.own_blocks()?),
            free,
            available: free.saturating_sub(reserved),
            inodes: superblock.inodes.into(),
            inodes_free,
        })
    }

    /// Free blocks that users other than root don't get.
    pub(crate) fn reserved_blocks(&self) -> u64 {
        let (layout, superblock) = (self.layout(), self.superblock());
        let cluster_blocks = u64::from(layout.cluster_blocks);
        let has_extents = superblock.incompat.has(Incompat::EXTENTS);
        let kept = if has_extents { (layout.blocks / cluster_blocks / 50).min(MOST_KEPT) } else { 0 };
        superblock.blocks_reserved.saturating_add(kept * cluster_blocks)
    }

    /// Blocks of the file system's own structures, as the kernel counts them.
    fn own_blocks(&self) -> Result<u64> {
        let (layout, superblock) = (self.layout(), self.superblock());
        let noted = u64::from(superblock.overhead_clusters());
        if superblock.ro_compat.has(RoCompat::BIGALLOC) && noted > 0 {
            return Ok(noted.saturating_mul(layout.cluster_blocks.into()));
        }
        // OK to add and to multiply: groups, and what there is in each, are 32-bit numbers.
        let superblocks = 1 + u64_of(layout.copy_groups().count());
        let copies = |index| match layout.is_meta(index) {
            true => 1 + u64_of(layout.descriptor_copies(index).count()),
            false => superblocks,
        };
        let descriptors: u64 = (0..layout.descriptor_blocks()).map(copies).sum();
        // Room for more descriptors goes with each.
        let superblocks = superblocks * (1 + u64::from(superblock.reserved_descriptor_blocks()));
        let tables = u64::from(layout.groups) * (layout.inode_table_blocks() + 2);
        let journal = match superblock.journal_inode {
            None => 0,
            Some(number) => self.any_inode(number)?.size() / u64::from(layout.block_size),
        };
        let own = u64::from(layout.first_data_block) + descriptors + superblocks + tables;
        Ok(own.saturating_add(journal))
    }
}
