//! Fields that programs show and nothing here computes with.

use super::{
    CREATOR, EXTENDED_MOUNT_OPTIONS, EXTRA_FIELDS, FLAGS, JOURNAL_COPY_KIND, JOURNAL_DEVICE, JOURNAL_UUID,
    LEAST_EXTRA_FIELDS, LOG_GROUPS_PER_FLEX, MMP_INTERVAL, OVERHEAD_CLUSTERS, RESERVED_DESCRIPTOR_BLOCKS,
    REVISION, STRIDE, STRIPE_WIDTH, Superblock, last_orphan,
};
use crate::format::bytes::text;
use crate::format::field::{Bytes, Le32, Le64};
use crate::units::InodeNo;

const KIB_WRITTEN: Le64 = Le64(0x178);
const ERRORS: Le32 = Le32(0x194);
const FIRST_ERROR: ErrorFields = ErrorFields {
    time: Le32(0x198),
    inode: Le32(0x19c),
    block: Le64(0x1a0),
    function: Bytes(0x1a8),
    line: Le32(0x1c8),
};
const LAST_ERROR: ErrorFields = ErrorFields {
    time: Le32(0x1cc),
    inode: Le32(0x1d0),
    line: Le32(0x1d4),
    block: Le64(0x1d8),
    function: Bytes(0x1e0),
};
const CHECKSUM: Le32 = Le32(0x3fc);

/// Places of the fields about an error.
struct ErrorFields {
    time: Le32,
    inode: Le32,
    block: Le64,
    function: Bytes<32>,
    line: Le32,
}

/// Values that a superblock has for readers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SuperblockDetails {
    /// `s_rev_level`: 0 knows no features.
    pub revision: u32,
    /// `s_creator_os`: 0 Linux, 1 Hurd, 2 Masix, 3 FreeBSD, 4 Lites.
    pub creator: u32,
    /// `s_flags`: 1 signed and 2 unsigned directory hashes, 4 for tests.
    pub flags: u32,
    /// Default mount options as text (`s_mount_opts`).
    pub mount_options_text: String,
    /// Clusters of the file system's own structures (`s_overhead_clusters`), or 0 if they were not counted.
    pub overhead_clusters: u32,
    /// Blocks behind the descriptors that are kept for more of them (`s_reserved_gdt_blocks`).
    pub reserved_descriptor_blocks: u16,
    /// Groups whose metadata lie together (`s_log_groups_per_flex`), or `None` if the number is 1 or does not fit 32 bits.
    pub groups_per_flex: Option<u32>,
    /// Blocks of a RAID's stride (`s_raid_stride`).
    pub stride: u16,
    /// Blocks of all stripes of a RAID (`s_raid_stripe_width`).
    pub stripe_width: u32,
    /// Number of KiB that were ever written (`s_kbytes_written`).
    pub kib_written: u64,
    /// Bytes behind the first 128 of an inode that every inode has, and that new inodes get (`s_min_extra_isize`,
    /// `s_want_extra_isize`).
    pub extra_fields: [u16; 2],
    /// UUID of a journal on another device (`s_journal_uuid`), or zeros.
    pub journal_uuid: [u8; 16],
    /// Number of a journal's device (`s_journal_dev`), or 0.
    pub journal_device: u32,
    /// Contents of the journal's copy (`s_jnl_backup_type`): 1 the blocks of its inode, 0 none.
    pub journal_copy: u8,
    /// First inode of the list of orphans (`s_last_orphan`).
    pub first_orphan: Option<InodeNo>,
    /// Seconds between two changes of the block of multiple mount protection (`s_mmp_update_interval`).
    pub mmp_interval: u16,
    /// Number of errors that the kernel found (`s_error_count`).
    pub errors: u32,
    /// The first error, if there was one.
    pub first_error: Option<FoundError>,
    /// The last error, if there was one.
    pub last_error: Option<FoundError>,
    /// Checksum of the superblock as it is stored (`s_checksum`).
    pub checksum: u32,
}

/// An error that the kernel found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FoundError {
    /// Time in seconds since 1970.
    pub time: u32,
    /// Function of the kernel that found it.
    pub function: String,
    /// Line of the kernel's source.
    pub line: u32,
    /// Inode that it is about, or 0.
    pub inode: u32,
    /// Block that it is about, or 0.
    pub block: u64,
}

impl Superblock {
    /// Values for readers.
    pub fn details(&self) -> SuperblockDetails {
        let raw = &self.as_bytes()[..];
        let error = |fields: &ErrorFields| {
            let time = Some(fields.time.get(raw)).filter(|time| *time != 0)?;
            Some(FoundError {
                time,
                function: text(fields.function.get(raw)),
                line: fields.line.get(raw),
                inode: fields.inode.get(raw),
                block: fields.block.get(raw),
            })
        };
        SuperblockDetails {
            revision: REVISION.get(raw),
            creator: CREATOR.get(raw),
            flags: FLAGS.get(raw),
            mount_options_text: text(EXTENDED_MOUNT_OPTIONS.get(raw)),
            overhead_clusters: OVERHEAD_CLUSTERS.get(raw),
            reserved_descriptor_blocks: RESERVED_DESCRIPTOR_BLOCKS.get(raw),
            groups_per_flex: 1_u32
                .checked_shl(LOG_GROUPS_PER_FLEX.get(raw).into())
                .filter(|groups| *groups > 1),
            stride: STRIDE.get(raw),
            stripe_width: STRIPE_WIDTH.get(raw),
            kib_written: KIB_WRITTEN.get(raw),
            extra_fields: [LEAST_EXTRA_FIELDS, EXTRA_FIELDS].map(|field| field.get(raw)),
            journal_uuid: *JOURNAL_UUID.get(raw),
            journal_device: JOURNAL_DEVICE.get(raw),
            journal_copy: JOURNAL_COPY_KIND.get(raw),
            first_orphan: last_orphan(self.as_bytes()),
            mmp_interval: MMP_INTERVAL.get(raw),
            errors: ERRORS.get(raw),
            first_error: error(&FIRST_ERROR),
            last_error: error(&LAST_ERROR),
            checksum: CHECKSUM.get(raw),
        }
    }
}
