//! A superblock's fields, changed where they lie.

use super::*;
use crate::units::{Block, GroupNo, InodeNo};

/// A superblock's bytes while they are changed, 1024 of them.
pub(crate) struct SuperblockMut<'a> {
    pub raw: &'a mut [u8],
}

impl SuperblockMut<'_> {
    /// Adds to what is free; `None` if it would be less than nothing.
    pub fn add_free(&mut self, blocks: i64, inodes: i64) -> Option<()> {
        let bits64 = REVISION.get(self.raw) > 0 && Incompat(INCOMPAT.get(self.raw)).has(Incompat::BITS64);
        let blocks = BLOCKS_FREE.get_if(bits64, self.raw).checked_add_signed(blocks)?;
        let inodes = u32::try_from(i64::from(INODES_FREE.get(self.raw)) + inodes).ok()?;
        BLOCKS_FREE.set_if(bits64, self.raw, blocks);
        INODES_FREE.set(self.raw, inodes);
        Some(())
    }

    /// Sets the UUID. Checksums that begin with it are others' to set right.
    pub fn set_uuid(&mut self, uuid: &[u8; 16]) {
        UUID.get_mut(self.raw).copy_from_slice(uuid);
    }

    /// Sets the number of free blocks.
    pub fn set_free_blocks(&mut self, blocks: u64) {
        let bits64 = REVISION.get(self.raw) > 0 && Incompat(INCOMPAT.get(self.raw)).has(Incompat::BITS64);
        BLOCKS_FREE.set_if(bits64, self.raw, blocks);
    }

    /// Sets the number of free inodes.
    pub fn set_free_inodes(&mut self, inodes: u32) {
        INODES_FREE.set(self.raw, inodes);
    }

    /// Sets the numbers of free blocks and inodes, and of clusters that the file system's own structures have.
    pub fn set_counts(&mut self, blocks_free: u64, inodes_free: u32, overhead_clusters: u32) {
        let bits64 = Incompat(INCOMPAT.get(self.raw)).has(Incompat::BITS64);
        BLOCKS_FREE.set_if(bits64, self.raw, blocks_free);
        INODES_FREE.set(self.raw, inodes_free);
        OVERHEAD_CLUSTERS.set(self.raw, overhead_clusters);
    }

    /// Sets the journal's inode, with a copy of its map and its size in bytes.
    pub fn set_journal(&mut self, inode: InodeNo, map: &[u8; 60], size: u64) {
        JOURNAL_INODE.set(self.raw, inode.get());
        // The only kind of copy there is.
        JOURNAL_COPY_KIND.set(self.raw, 1);
        *JOURNAL_MAP.get_mut(self.raw) = *map;
        JOURNAL_SIZE.set(self.raw, size);
    }

    pub fn set_orphan_file(&mut self, inode: InodeNo) {
        ORPHAN_FILE.set(self.raw, inode.get());
    }

    /// Sets the inode of a quota file: of users, groups or projects.
    pub fn set_quota_inode(&mut self, kind: crate::format::quota::Kind, inode: InodeNo) {
        QUOTA_INODES[kind as usize].set(self.raw, inode.get());
    }

    /// Sets the block of multi-mount protection, and the seconds that its number stays unchanged.
    pub fn set_mmp(&mut self, block: Block, interval: u16) {
        MMP_BLOCK.set(self.raw, block.get());
        MMP_INTERVAL.set(self.raw, interval);
    }

    /// Notes when it was written, in seconds since 1970.
    pub fn set_written(&mut self, seconds: i64) {
        WRITTEN.set(self.raw, seconds.cast_unsigned());
    }

    /// Sets if the file system is clean: nobody is changing it.
    pub fn set_clean(&mut self, clean: bool) {
        let others = STATE.get(self.raw) & !CLEAN;
        STATE.set(self.raw, if clean { others | CLEAN } else { others });
    }

    /// Marks the file system as sound and clean.
    pub fn set_sound(&mut self) {
        STATE.set(self.raw, STATE.get(self.raw) & !ERRORS | CLEAN);
    }

    /// Makes it the copy in a group.
    pub fn set_group(&mut self, group: GroupNo) {
        if REVISION.get(self.raw) > 0 {
            // OK to truncate: as the kernel and mke2fs do, which keep the low half.
            GROUP.set(self.raw, group.get() as u16);
        }
    }

    /// Sets the first inode of the list of orphans; `None` for an empty list.
    pub fn set_last_orphan(&mut self, first: Option<InodeNo>) {
        LAST_ORPHAN.set(self.raw, InodeNo::stored(first));
    }

    pub fn add_compat(&mut self, feature: Compat) {
        self.require_features();
        COMPAT.set(self.raw, COMPAT.get(self.raw) | feature.0);
    }

    pub fn add_ro_compat(&mut self, feature: RoCompat) {
        self.require_features();
        RO_COMPAT.set(self.raw, RO_COMPAT.get(self.raw) | feature.0);
    }

    pub fn remove_ro_compat(&mut self, feature: RoCompat) {
        RO_COMPAT.set(self.raw, RO_COMPAT.get(self.raw) & !feature.0);
    }

    /// Sets if the journal must be replayed.
    pub fn set_needs_recovery(&mut self, needs: bool) {
        let others = INCOMPAT.get(self.raw) & !Incompat::RECOVER.0;
        INCOMPAT.set(self.raw, if needs { others | Incompat::RECOVER.0 } else { others });
    }

    /// The first revision knows no features; what it takes for granted, the next one says.
    fn require_features(&mut self) {
        if REVISION.get(self.raw) > 0 {
            return;
        }
        REVISION.set(self.raw, 1);
        FIRST_INODE.set(self.raw, OLD_FIRST_INODE);
        // OK to truncate: 128.
        INODE_SIZE.set(self.raw, OLD_INODE_SIZE as u16);
        GROUP.set(self.raw, 0);
        for field in [COMPAT, INCOMPAT, RO_COMPAT] {
            field.set(self.raw, 0);
        }
    }
}
