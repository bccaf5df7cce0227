//! The superblock of a new file system.

use super::*;
use crate::number::u16_of;
use crate::units::GroupNo;

/// Contents of a new file system's superblock. Free blocks and inodes are set when they are counted.
#[derive(Clone, Debug)]
pub(crate) struct NewSuperblock<'a> {
    pub compat: Compat,
    pub incompat: Incompat,
    pub ro_compat: RoCompat,
    pub inodes: u32,
    pub blocks: u64,
    pub blocks_reserved: u64,
    pub first_data_block: u32,
    pub block_size: u32,
    pub cluster_size: u32,
    pub blocks_per_group: u32,
    pub inodes_per_group: u32,
    pub inode_size: u32,
    pub descriptor_size: u32,
    pub reserved_descriptor_blocks: u32,
    pub log_groups_per_flex: u8,
    pub first_meta_bg: u32,
    pub backup_groups: [GroupNo; 2],
    pub uuid: [u8; 16],
    pub checksum_seed: u32,
    pub label: &'a [u8],
    pub last_mounted: &'a [u8],
    pub hash: HashDefaults,
    /// Seconds since 1970.
    pub made: i64,
    /// `s_errors`: 1 continue, 2 read-only, 3 panic.
    pub on_errors: u16,
    /// `s_default_mount_opts`.
    pub mount_options: u32,
    /// Blocks of a RAID's stride, and of all its stripes.
    pub stride: u16,
    pub stripe_width: u32,
    /// Bytes of extra fields of an inode.
    pub extra_fields: u16,
    pub encoding: (u16, u16),
}

impl NewSuperblock<'_> {
    /// The superblock's bytes; the checksum is left out.
    pub fn to_bytes(&self) -> [u8; SUPERBLOCK_SIZE] {
        let mut raw = [0; SUPERBLOCK_SIZE];
        let raw_ref = &mut raw[..];
        let log = |size: u32| size.ilog2() - 10;
        let clusters_per_group = self.blocks_per_group / (self.cluster_size / self.block_size);
        for (field, value) in [
            (INODES, self.inodes),
            (FIRST_DATA_BLOCK, self.first_data_block),
            (LOG_BLOCK_SIZE, log(self.block_size)),
            (LOG_CLUSTER_SIZE, log(self.cluster_size)),
            (BLOCKS_PER_GROUP, self.blocks_per_group),
            (CLUSTERS_PER_GROUP, clusters_per_group),
            (INODES_PER_GROUP, self.inodes_per_group),
            (REVISION, 1),
            (FIRST_INODE, OLD_FIRST_INODE),
            (COMPAT, self.compat.0),
            (INCOMPAT, self.incompat.0),
            (RO_COMPAT, self.ro_compat.0),
            (MOUNT_OPTIONS, self.mount_options),
            (FIRST_META_BG, self.first_meta_bg),
            (FLAGS, if self.hash.unsigned { UNSIGNED_HASH } else { SIGNED_HASH }),
            (STRIPE_WIDTH, self.stripe_width),
            (BACKUP_GROUPS[0], self.backup_groups[0].get()),
            (BACKUP_GROUPS[1], self.backup_groups[1].get()),
        ] {
            field.set(raw_ref, value);
        }
        for (field, value) in HASH_SEED.into_iter().zip(self.hash.seed) {
            field.set(raw_ref, value);
        }
        // A superblock can say all that it was made of.
        for (field, value) in [
            (MOST_MOUNTS, u16::MAX),
            (MAGIC_AT, MAGIC),
            (STATE, CLEAN),
            (ON_ERRORS, self.on_errors),
            (INODE_SIZE, u16_of(self.inode_size)),
            (RESERVED_DESCRIPTOR_BLOCKS, u16_of(self.reserved_descriptor_blocks)),
            (STRIDE, self.stride),
            (LEAST_EXTRA_FIELDS, self.extra_fields),
            (EXTRA_FIELDS, self.extra_fields),
            (ENCODING, self.encoding.0),
            (ENCODING_FLAGS, self.encoding.1),
        ] {
            field.set(raw_ref, value);
        }
        let bits64 = self.incompat.has(Incompat::BITS64);
        BLOCKS.set_if(bits64, raw_ref, self.blocks);
        BLOCKS_RESERVED.set_if(bits64, raw_ref, self.blocks_reserved);
        if bits64 {
            // At most 1024.
            DESCRIPTOR_SIZE.set(raw_ref, u16_of(self.descriptor_size));
        }
        for field in [WRITTEN, MADE, CHECKED] {
            field.set(raw_ref, self.made.cast_unsigned());
        }
        UUID.get_mut(raw_ref).copy_from_slice(&self.uuid);
        LABEL.set_whole(raw_ref, self.label);
        LAST_MOUNTED.set_whole(raw_ref, self.last_mounted);
        HASH_VERSION.set(raw_ref, self.hash.version);
        LOG_GROUPS_PER_FLEX.set(raw_ref, self.log_groups_per_flex);
        if self.ro_compat.has(RoCompat::METADATA_CSUM) {
            CHECKSUM_TYPE.set(raw_ref, 1);
        }
        if self.incompat.has(Incompat::CSUM_SEED) {
            CHECKSUM_SEED.set(raw_ref, self.checksum_seed);
        }
        if self.incompat.has(Incompat::ENCRYPT) {
            *ENCRYPTION_ALGORITHMS.get_mut(raw_ref) = ENCRYPTION_MODES;
        }
        raw
    }
}
