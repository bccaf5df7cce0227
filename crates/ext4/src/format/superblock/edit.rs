//! A superblock's fields, changed where they lie.

use super::*;
use crate::number::{low16, u16_of};
use crate::units::{Block, GroupNo, InodeNo};

/// A superblock's bytes while they are changed, 1024 of them.
pub(crate) struct SuperblockMut<'a> {
    pub raw: &'a mut [u8],
}

impl SuperblockMut<'_> {
    /// Adds to what is free; `None` if it would be less than nothing.
    pub fn add_free(&mut self, blocks: i128, inodes: i64) -> Option<()> {
        let bits64 = REVISION.get(self.raw) > 0 && Incompat(INCOMPAT.get(self.raw)).has(Incompat::BITS64);
        let blocks = u64::try_from(i128::from(BLOCKS_FREE.get_if(bits64, self.raw)) + blocks).ok()?;
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
    pub fn set_counts(&mut self, blocks_free: u64, inodes_free: u32, overhead_clusters: u64) {
        let bits64 = Incompat(INCOMPAT.get(self.raw)).has(Incompat::BITS64);
        BLOCKS_FREE.set_if(bits64, self.raw, blocks_free);
        INODES_FREE.set(self.raw, inodes_free);
        // What does not fit its field is counted by whoever mounts.
        OVERHEAD_CLUSTERS.set(self.raw, u32::try_from(overhead_clusters).unwrap_or(0));
    }

    /// Sets the journal's inode, with a copy of its map and its size in bytes.
    pub fn set_journal(&mut self, inode: InodeNo, map: &[u8; 60], size: u64) {
        JOURNAL_INODE.set(self.raw, inode.get());
        // The only kind of copy there is.
        JOURNAL_COPY_KIND.set(self.raw, 1);
        *JOURNAL_MAP.get_mut(self.raw) = *map;
        JOURNAL_SIZE.set(self.raw, size);
    }

    /// Takes all that names a journal away.
    pub fn clear_journal(&mut self) {
        COMPAT.set(self.raw, COMPAT.get(self.raw) & !Compat::HAS_JOURNAL.0);
        JOURNAL_INODE.set(self.raw, 0);
        JOURNAL_DEVICE.set(self.raw, 0);
        JOURNAL_UUID.get_mut(self.raw).fill(0);
        JOURNAL_COPY_KIND.set(self.raw, 0);
        JOURNAL_MAP.get_mut(self.raw).fill(0);
        JOURNAL_SIZE.set(self.raw, 0);
        self.set_needs_recovery(false);
    }

    /// Takes the file of orphans away, with its feature.
    pub fn clear_orphan_file(&mut self) {
        COMPAT.set(self.raw, COMPAT.get(self.raw) & !Compat::ORPHAN_FILE.0);
        ORPHAN_FILE.set(self.raw, 0);
    }

    /// Takes a quota file away; with the last one, the feature.
    pub fn clear_quota_inode(&mut self, kind: crate::format::quota::Kind) {
        QUOTA_INODES[kind.index()].set(self.raw, 0);
        if QUOTA_INODES.iter().all(|field| field.get(self.raw) == 0) {
            self.remove_ro_compat(RoCompat::QUOTA);
        }
    }

    /// Sets the inode of the file that lists orphans; `None` if there is none.
    pub fn set_orphan_file(&mut self, inode: Option<InodeNo>) {
        ORPHAN_FILE.set(self.raw, InodeNo::stored(inode));
    }

    /// Sets the label, of at most 16 bytes.
    pub fn set_label(&mut self, label: &[u8]) {
        LABEL.set_whole(self.raw, label);
    }

    /// Sets where it was mounted last, at most 64 bytes.
    pub fn set_last_mounted(&mut self, path: &[u8]) {
        LAST_MOUNTED.set_whole(self.raw, path);
    }

    /// Sets mount options as text, at most 63 bytes.
    pub fn set_extended_mount_options(&mut self, text: &[u8]) {
        EXTENDED_MOUNT_OPTIONS.set_whole(self.raw, text);
    }

    /// Sets how many blocks only root may use.
    pub fn set_reserved_blocks(&mut self, blocks: u64) {
        let bits64 = REVISION.get(self.raw) > 0 && Incompat(INCOMPAT.get(self.raw)).has(Incompat::BITS64);
        BLOCKS_RESERVED.set_if(bits64, self.raw, blocks);
    }

    /// Sets the user that may use reserved blocks besides root.
    pub fn set_reserved_user(&mut self, uid: u16) {
        RESERVED_UID.set(self.raw, uid);
    }

    /// Sets the group that may use reserved blocks besides root.
    pub fn set_reserved_group(&mut self, gid: u16) {
        RESERVED_GID.set(self.raw, gid);
    }

    /// Sets the flags of default mount options.
    pub fn set_mount_options(&mut self, flags: u32) {
        MOUNT_OPTIONS.set(self.raw, flags);
    }

    /// Sets how often it was mounted since the last check.
    pub fn set_mounts(&mut self, mounts: u16) {
        MOUNTS.set(self.raw, mounts);
    }

    /// Sets how often it may be mounted without a check.
    pub fn set_most_mounts(&mut self, mounts: u16) {
        MOST_MOUNTS.set(self.raw, mounts);
    }

    /// Sets when it was checked last, in seconds since 1970.
    pub fn set_checked(&mut self, seconds: i64) {
        CHECKED.set(self.raw, seconds.cast_unsigned());
    }

    /// Sets for how many seconds a check is enough.
    pub fn set_check_interval(&mut self, seconds: u32) {
        CHECK_INTERVAL.set(self.raw, seconds);
    }

    /// Sets what the kernel does on errors: 1 continue, 2 read-only, 3 panic.
    pub fn set_on_errors(&mut self, action: u16) {
        ON_ERRORS.set(self.raw, action);
    }

    /// Sets how many blocks and inodes there are.
    pub fn set_size(&mut self, blocks: u64, inodes: u32) {
        let bits64 = REVISION.get(self.raw) > 0 && Incompat(INCOMPAT.get(self.raw)).has(Incompat::BITS64);
        BLOCKS.set_if(bits64, self.raw, blocks);
        INODES.set(self.raw, inodes);
    }

    /// Sets how many blocks behind the descriptors are kept for more of them.
    pub fn set_reserved_descriptor_blocks(&mut self, blocks: u16) {
        RESERVED_DESCRIPTOR_BLOCKS.set(self.raw, blocks);
    }

    /// Sets from which block of descriptors on they lie in the groups that they describe.
    pub fn set_first_meta_bg(&mut self, index: u32) {
        FIRST_META_BG.set(self.raw, index);
    }

    /// Sets the two groups with copies under `sparse_super2`; group 0 stands for none.
    pub fn set_backup_groups(&mut self, groups: [GroupNo; 2]) {
        for (field, group) in BACKUP_GROUPS.into_iter().zip(groups) {
            field.set(self.raw, group.get());
        }
    }

    /// Adds clusters to those of the file system's own structures, unless they were not counted.
    pub fn add_overhead_clusters(&mut self, clusters: i64) {
        let counted = OVERHEAD_CLUSTERS.get(self.raw);
        if counted != 0 {
            // A sum that can't be leaves nothing counted.
            let sum = i64::from(counted).checked_add(clusters).and_then(|sum| u32::try_from(sum).ok());
            OVERHEAD_CLUSTERS.set(self.raw, sum.unwrap_or(0));
        }
    }

    /// Sets the clusters of the file system's own structures; 0 if nobody has counted them.
    pub fn set_overhead_clusters(&mut self, clusters: u32) {
        OVERHEAD_CLUSTERS.set(self.raw, clusters);
    }

    /// Sets how new directories are hashed.
    pub fn set_hash_version(&mut self, version: u8) {
        HASH_VERSION.set(self.raw, version);
    }

    /// Sets a RAID's stride in blocks.
    pub fn set_stride(&mut self, blocks: u16) {
        STRIDE.set(self.raw, blocks);
    }

    /// Sets the blocks of all stripes of a RAID.
    pub fn set_stripe_width(&mut self, blocks: u32) {
        STRIPE_WIDTH.set(self.raw, blocks);
    }

    /// Sets if the file system is for tests of file system code.
    pub fn set_for_tests(&mut self, is_for_tests: bool) {
        let others = FLAGS.get(self.raw) & !TEST_FS;
        FLAGS.set(self.raw, if is_for_tests { others | TEST_FS } else { others });
    }

    /// Marks the file system as one in which errors were found: the next check is a whole one.
    pub fn set_errors_found(&mut self) {
        STATE.set(self.raw, STATE.get(self.raw) | ERRORS);
    }

    /// Stores the seed of all checksums, which the UUID no longer is.
    pub fn set_checksum_seed(&mut self, seed: Option<u32>) {
        CHECKSUM_SEED.set(self.raw, seed.unwrap_or(0));
        match seed {
            Some(_) => self.add_incompat(Incompat::CSUM_SEED),
            None => self.remove_incompat(Incompat::CSUM_SEED),
        }
    }

    /// Names the modes of encryption that files may have.
    pub fn set_encryption_modes(&mut self) {
        *ENCRYPTION_ALGORITHMS.get_mut(self.raw) = ENCRYPTION_MODES;
    }

    /// Sets the encoding of casefolded directories, and its flags.
    pub fn set_encoding(&mut self, encoding: (u16, u16)) {
        ENCODING.set(self.raw, encoding.0);
        ENCODING_FLAGS.set(self.raw, encoding.1);
    }

    /// Sets the inode of a quota file: of users, groups or projects.
    pub fn set_quota_inode(&mut self, kind: crate::format::quota::Kind, inode: InodeNo) {
        QUOTA_INODES[kind.index()].set(self.raw, inode.get());
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
            // As the kernel and mke2fs do, which keep the low half.
            GROUP.set(self.raw, low16(group.get()));
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

    pub fn remove_compat(&mut self, feature: Compat) {
        COMPAT.set(self.raw, COMPAT.get(self.raw) & !feature.0);
    }

    pub fn add_incompat(&mut self, feature: Incompat) {
        self.require_features();
        INCOMPAT.set(self.raw, INCOMPAT.get(self.raw) | feature.0);
    }

    pub fn remove_incompat(&mut self, feature: Incompat) {
        INCOMPAT.set(self.raw, INCOMPAT.get(self.raw) & !feature.0);
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
        INODE_SIZE.set(self.raw, u16_of(OLD_INODE_SIZE));
        GROUP.set(self.raw, 0);
        for field in [COMPAT, INCOMPAT, RO_COMPAT] {
            field.set(self.raw, 0);
        }
    }
}
