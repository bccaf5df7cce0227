//! The superblock: 1024 bytes at offset 1024, and copies of it in other groups.
//!
//! Source: Documentation/filesystems/ext4/super.rst.

mod details;
mod edit;
mod external_journal;
pub(crate) mod fields;
pub(crate) mod guess;
mod new;

pub use details::{FoundError, SuperblockDetails};
pub(crate) use edit::SuperblockMut;
pub use external_journal::ExternalJournal;
pub(crate) use new::NewSuperblock;

use std::ops::Range;

use casemate_blockdev::{u64_of, usize_of};

use crate::error::{Error, Place, Result, Structure};
use crate::format::bytes::{array, text};
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::field::{Byte, Bytes, Le16, Le32, Le64, Split};
use crate::units::{Block, GroupNo, InodeNo};

/// The bytes of a superblock.
pub const SUPERBLOCK_SIZE: usize = 1024;

/// Where the primary superblock lies, in bytes.
pub const SUPERBLOCK_OFFSET: u64 = 1024;

/// The block that the primary superblock lies in, and its bytes in that block, of so many bytes.
pub(crate) fn primary_place(block_size: usize) -> (Block, Range<usize>) {
    let start = usize_of(SUPERBLOCK_OFFSET);
    let within = start % block_size;
    (Block::new(u64_of(start / block_size)), within..within + SUPERBLOCK_SIZE)
}

/// Numbers that the first revision has no fields for: the first inode that is not reserved, and the bytes of an inode.
const OLD_FIRST_INODE: u32 = 11;
const OLD_INODE_SIZE: u32 = 128;

const MAGIC: u16 = 0xef53;

const INODES: Le32 = Le32(0x0);
const BLOCKS: Split<Le32, Le32> = Split(Le32(0x4), Le32(0x150));
const BLOCKS_RESERVED: Split<Le32, Le32> = Split(Le32(0x8), Le32(0x154));
const BLOCKS_FREE: Split<Le32, Le32> = Split(Le32(0xc), Le32(0x158));
const INODES_FREE: Le32 = Le32(0x10);
const FIRST_DATA_BLOCK: Le32 = Le32(0x14);
const LOG_BLOCK_SIZE: Le32 = Le32(0x18);
const LOG_CLUSTER_SIZE: Le32 = Le32(0x1c);
const BLOCKS_PER_GROUP: Le32 = Le32(0x20);
const CLUSTERS_PER_GROUP: Le32 = Le32(0x24);
const INODES_PER_GROUP: Le32 = Le32(0x28);
const MOUNTED: Split<Le32, Byte> = Split(Le32(0x2c), Byte(0x275));
const WRITTEN: Split<Le32, Byte> = Split(Le32(0x30), Byte(0x274));
const MOUNTS: Le16 = Le16(0x34);
const MOST_MOUNTS: Le16 = Le16(0x36);
const MAGIC_AT: Le16 = Le16(0x38);
const STATE: Le16 = Le16(0x3a);
const ON_ERRORS: Le16 = Le16(0x3c);
const CHECKED: Split<Le32, Byte> = Split(Le32(0x40), Byte(0x277));
const CHECK_INTERVAL: Le32 = Le32(0x44);
const CREATOR: Le32 = Le32(0x48);
const REVISION: Le32 = Le32(0x4c);
const RESERVED_UID: Le16 = Le16(0x50);
const RESERVED_GID: Le16 = Le16(0x52);
const FIRST_INODE: Le32 = Le32(0x54);
const INODE_SIZE: Le16 = Le16(0x58);
const GROUP: Le16 = Le16(0x5a);
const COMPAT: Le32 = Le32(0x5c);
const INCOMPAT: Le32 = Le32(0x60);
const RO_COMPAT: Le32 = Le32(0x64);
const UUID: Bytes<16> = Bytes(0x68);
const LABEL: Bytes<16> = Bytes(0x78);
const LAST_MOUNTED: Bytes<64> = Bytes(0x88);
const SPARE_DIRECTORY_BLOCKS: Byte = Byte(0xcd);
const RESERVED_DESCRIPTOR_BLOCKS: Le16 = Le16(0xce);
const JOURNAL_UUID: Bytes<16> = Bytes(0xd0);
const JOURNAL_INODE: Le32 = Le32(0xe0);
const JOURNAL_DEVICE: Le32 = Le32(0xe4);
const LAST_ORPHAN: Le32 = Le32(0xe8);
const HASH_SEED: [Le32; 4] = [Le32(0xec), Le32(0xf0), Le32(0xf4), Le32(0xf8)];
const HASH_VERSION: Byte = Byte(0xfc);
const JOURNAL_COPY_KIND: Byte = Byte(0xfd);
const DESCRIPTOR_SIZE: Le16 = Le16(0xfe);
const MOUNT_OPTIONS: Le32 = Le32(0x100);
const FIRST_META_BG: Le32 = Le32(0x104);
const MADE: Split<Le32, Byte> = Split(Le32(0x108), Byte(0x276));
const JOURNAL_MAP: Bytes<60> = Bytes(0x10c);
const JOURNAL_SIZE: Split<Le32, Le32> = Split(Le32(0x14c), Le32(0x148));
const LEAST_EXTRA_FIELDS: Le16 = Le16(0x15c);
const EXTRA_FIELDS: Le16 = Le16(0x15e);
const FLAGS: Le32 = Le32(0x160);
const STRIDE: Le16 = Le16(0x164);
const STRIPE_WIDTH: Le32 = Le32(0x170);
const MMP_INTERVAL: Le16 = Le16(0x166);
const MMP_BLOCK: Le64 = Le64(0x168);
const LOG_GROUPS_PER_FLEX: Byte = Byte(0x174);
const CHECKSUM_TYPE: Byte = Byte(0x175);
const EXTENDED_MOUNT_OPTIONS: Bytes<64> = Bytes(0x200);
const QUOTA_INODES: [Le32; 3] = [Le32(0x240), Le32(0x244), Le32(0x26c)];
const OVERHEAD_CLUSTERS: Le32 = Le32(0x248);
const BACKUP_GROUPS: [Le32; 2] = [Le32(0x24c), Le32(0x250)];
const ENCRYPTION_ALGORITHMS: Bytes<4> = Bytes(0x254);
const ENCRYPTION_SALT: Bytes<16> = Bytes(0x258);
const CHECKSUM_SEED: Le32 = Le32(0x270);
const ENCODING: Le16 = Le16(0x27c);
const ENCODING_FLAGS: Le16 = Le16(0x27e);
const ORPHAN_FILE: Le32 = Le32(0x280);

/// Flags of a file system that was made where `char` is signed, and where it is not.
const SIGNED_HASH: u32 = 0x1;
const UNSIGNED_HASH: u32 = 0x2;

/// Flag of a file system for tests.
const TEST_FS: u32 = 0x4;

/// Numbers of the modes of encryption that a superblock names: AES-256 in XTS and in CTS.
const ENCRYPTION_MODES: [u8; 4] = [1, 4, 0, 0];

/// Bits of the state: nobody is changing the file system; errors were found.
const CLEAN: u16 = 0x1;
const ERRORS: u16 = 0x2;

/// How the names of a directory are hashed, and with which seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashDefaults {
    /// The hash version of new directories (`s_def_hash_version`).
    pub version: u8,
    /// `s_hash_seed`.
    pub seed: [u32; 4],
    /// Whether the file system was made where `char` is unsigned.
    pub unsigned: bool,
}

/// A superblock. Numbers that everything else is computed from have been checked for sense.
#[derive(Clone, Debug)]
pub struct Superblock {
    raw: Box<[u8; SUPERBLOCK_SIZE]>,
    /// `s_inodes_count`.
    pub inodes: u32,
    /// `s_blocks_count`: with `blocks_free` and `blocks_reserved` in blocks, even with bigalloc.
    pub blocks: u64,
    /// `s_free_blocks_count`.
    pub blocks_free: u64,
    /// `s_r_blocks_count`.
    pub blocks_reserved: u64,
    /// `s_free_inodes_count`.
    pub inodes_free: u32,
    /// `s_first_data_block`: 1 with 1 KiB blocks (0 with bigalloc), else 0.
    pub first_data_block: u32,
    /// The block size in bytes: 1 KiB to 64 KiB, a power of two.
    pub block_size: u32,
    /// The cluster size in bytes; the block size without bigalloc.
    pub cluster_size: u32,
    /// `s_blocks_per_group`.
    pub blocks_per_group: u32,
    /// `s_clusters_per_group`; `blocks_per_group` without bigalloc.
    pub clusters_per_group: u32,
    /// `s_inodes_per_group`.
    pub inodes_per_group: u32,
    /// Bytes of an inode: 128 to the block size, a power of two.
    pub inode_size: u32,
    /// Bytes of a group descriptor: 32 to 1024.
    pub descriptor_size: u32,
    /// The first inode that is not reserved.
    pub first_inode: u32,
    /// Compatible features.
    pub compat: Compat,
    /// Features that a reader must know.
    pub incompat: Incompat,
    /// Features that a writer must know.
    pub ro_compat: RoCompat,
    /// `s_uuid`, in the order in which it is printed.
    pub uuid: [u8; 16],
    /// The group that this copy lies in.
    pub group: u16,
    /// The inode of the journal, if there is one and it does not lie elsewhere.
    pub journal_inode: Option<InodeNo>,
    /// The seed of all metadata checksums, if it is stored (`metadata_csum_seed`).
    pub checksum_seed: Option<u32>,
    /// `s_first_meta_bg`.
    pub first_meta_bg: u32,
    /// The two groups with copies under `sparse_super2`.
    pub backup_groups: [GroupNo; 2],
    /// How directories are hashed.
    pub hash: HashDefaults,
    /// Where the multi-mount protection block lies (with the feature `mmp`).
    pub mmp_block: Option<Block>,
    /// The inode of the orphan file (with the feature `orphan_file`).
    pub orphan_file: Option<InodeNo>,
    /// The inodes of user, group and project quota files, if there are any.
    pub quota_inodes: [Option<InodeNo>; 3],
    /// `s_encoding` and `s_encoding_flags` of casefolded directories.
    pub encoding: (u16, u16),
}

impl Superblock {
    /// Whether bytes at [`SUPERBLOCK_OFFSET`] begin a file system at all, damaged or not.
    pub fn has_magic(raw: &[u8; SUPERBLOCK_SIZE]) -> bool {
        MAGIC_AT.get(raw) == MAGIC
    }

    /// Reads the fields and refuses what no file system has.
    ///
    /// The checksum is not looked at, neither are features: both are for the caller to decide.
    ///
    /// # Errors
    /// `Corrupt` when the magic number is missing or sizes make no sense.
    pub fn from_bytes(bytes: &[u8]) -> Result<Superblock> {
        let bad = |what: &'static str| Err(place().malformed(what));
        if bytes.len() < SUPERBLOCK_SIZE {
            return bad("fewer than 1024 bytes");
        }
        let raw: Box<[u8; SUPERBLOCK_SIZE]> = Box::new(array(bytes, 0));
        if !Superblock::has_magic(&raw) {
            return bad("no magic number 0xef53: this is not an ext2, ext3 or ext4 file system");
        }
        let s_rev_level = REVISION.get(bytes);
        if s_rev_level > 1 {
            return Err(Error::unsupported(format!("ext4 revision {s_rev_level}")));
        }
        let dynamic = s_rev_level == 1;
        if ExternalJournal::from_superblock(bytes).is_some() {
            let text =
                "this is an external journal, which holds no files: name the file system that it is of";
            return Err(Error::unsupported(text));
        }
        let field = |field: Le32, old| if dynamic { field.get(bytes) } else { old };
        let compat = Compat(field(COMPAT, 0));
        let incompat = Incompat(field(INCOMPAT, 0));
        let ro_compat = RoCompat(field(RO_COMPAT, 0));
        let bits64 = incompat.has(Incompat::BITS64);
        let bigalloc = ro_compat.has(RoCompat::BIGALLOC);

        let s_log_block_size = LOG_BLOCK_SIZE.get(bytes);
        if s_log_block_size > 6 {
            return bad("the block size is above 64 KiB");
        }
        let block_size = 1024u32 << s_log_block_size;
        let s_log_cluster_size = if bigalloc { LOG_CLUSTER_SIZE.get(bytes) } else { s_log_block_size };
        if s_log_cluster_size < s_log_block_size || s_log_cluster_size > 20 {
            return bad("the cluster size is below the block size or above 1 GiB");
        }
        let cluster_size = 1024u32 << s_log_cluster_size;
        let blocks_per_group = BLOCKS_PER_GROUP.get(bytes);
        let clusters_per_group = if bigalloc { CLUSTERS_PER_GROUP.get(bytes) } else { blocks_per_group };
        if clusters_per_group == 0
            || clusters_per_group > 8 * block_size
            || !clusters_per_group.is_multiple_of(8)
        {
            return bad("a group's clusters don't fit its bitmap");
        }
        if u64::from(clusters_per_group) * u64::from(cluster_size / block_size) != u64::from(blocks_per_group)
        {
            return bad("blocks and clusters of a group don't agree");
        }
        let inodes_per_group = INODES_PER_GROUP.get(bytes);
        if inodes_per_group == 0 || inodes_per_group > 8 * block_size || !inodes_per_group.is_multiple_of(8) {
            return bad("a group's inodes don't fit its bitmap");
        }
        let inode_size = if dynamic { u32::from(INODE_SIZE.get(bytes)) } else { OLD_INODE_SIZE };
        // OK to compare as u32: a 64 KiB inode can't be written in the field, so 32 KiB is the largest.
        if inode_size < 128 || inode_size > block_size || !inode_size.is_power_of_two() {
            return bad("the inode size is not a power of two from 128 to the block size");
        }
        let descriptor_size = if bits64 { u32::from(DESCRIPTOR_SIZE.get(bytes)) } else { 32 };
        let largest = block_size.min(1024);
        if bits64 && !(64..=largest).contains(&descriptor_size) || !descriptor_size.is_power_of_two() {
            return bad("the descriptor size is not a power of two from 64 to 1024");
        }
        let blocks = BLOCKS.get_if(bits64, bytes);
        let inode = |field: Le32| InodeNo::new(field.get(bytes));
        let first_data_block = FIRST_DATA_BLOCK.get(bytes);
        let expected = u32::from(block_size == 1024 && !bigalloc);
        if first_data_block != expected || blocks <= u64::from(first_data_block) {
            return bad("the first data block is not where it belongs");
        }
        Ok(Superblock {
            inodes: INODES.get(bytes),
            blocks,
            blocks_free: BLOCKS_FREE.get_if(bits64, bytes),
            blocks_reserved: BLOCKS_RESERVED.get_if(bits64, bytes),
            inodes_free: INODES_FREE.get(bytes),
            first_data_block,
            block_size,
            cluster_size,
            blocks_per_group,
            clusters_per_group,
            inodes_per_group,
            inode_size,
            descriptor_size,
            first_inode: field(FIRST_INODE, OLD_FIRST_INODE),
            compat,
            incompat,
            ro_compat,
            uuid: *UUID.get(bytes),
            group: GROUP.get(bytes),
            journal_inode: inode(JOURNAL_INODE).filter(|_| compat.has(Compat::HAS_JOURNAL)),
            checksum_seed: incompat.has(Incompat::CSUM_SEED).then(|| CHECKSUM_SEED.get(bytes)),
            first_meta_bg: FIRST_META_BG.get(bytes),
            backup_groups: BACKUP_GROUPS.map(|field| GroupNo::new(field.get(bytes))),
            hash: HashDefaults {
                version: HASH_VERSION.get(bytes),
                seed: HASH_SEED.map(|field| field.get(bytes)),
                unsigned: FLAGS.get(bytes) & UNSIGNED_HASH != 0,
            },
            mmp_block: incompat.has(Incompat::MMP).then(|| Block::new(MMP_BLOCK.get(bytes))),
            orphan_file: inode(ORPHAN_FILE).filter(|_| compat.has(Compat::ORPHAN_FILE)),
            quota_inodes: QUOTA_INODES.map(inode),
            encoding: (ENCODING.get(bytes), ENCODING_FLAGS.get(bytes)),
            raw,
        })
    }

    /// The bytes it was read from.
    pub fn as_bytes(&self) -> &[u8; SUPERBLOCK_SIZE] {
        &self.raw
    }

    /// Whether metadata carries CRC-32C checksums.
    pub fn has_metadata_csum(&self) -> bool {
        self.ro_compat.has(RoCompat::METADATA_CSUM)
    }

    /// Whether group descriptors carry the older CRC-16. `metadata_csum` overrules it.
    pub fn has_gdt_csum(&self) -> bool {
        self.ro_compat.has(RoCompat::GDT_CSUM) && !self.has_metadata_csum()
    }

    /// Whether the journal must be replayed before the rest makes sense.
    pub fn needs_recovery(&self) -> bool {
        self.incompat.has(Incompat::RECOVER)
    }

    /// `s_volume_name`.
    pub fn label(&self) -> String {
        text(LABEL.get(&self.raw[..]))
    }

    /// `s_last_mounted`.
    pub fn last_mounted(&self) -> String {
        text(LAST_MOUNTED.get(&self.raw[..]))
    }

    /// `s_state`: 1 clean, 2 errors were found, 4 orphans are being recovered.
    pub fn state(&self) -> u16 {
        STATE.get(&self.raw[..])
    }

    /// Whether nobody was changing it when it was left. One with a journal says so even then.
    pub fn is_clean(&self) -> bool {
        self.state() & CLEAN != 0
    }

    /// Whether somebody found errors in it.
    pub(crate) fn has_errors(&self) -> bool {
        self.state() & ERRORS != 0
    }

    /// `s_checksum_type`; 1 is CRC-32C, the only one there is.
    pub fn checksum_type(&self) -> u8 {
        CHECKSUM_TYPE.get(&self.raw[..])
    }

    /// How often it was mounted since the last check, and how often it may be; at 0 or 65535 as often as one likes
    /// (`s_mnt_count`, `s_max_mnt_count`).
    pub fn mounts(&self) -> [u16; 2] {
        [MOUNTS, MOST_MOUNTS].map(|field| field.get(&self.raw[..]))
    }

    /// When it was checked last in seconds since 1970, and for how many seconds that is enough; with 0 for ever
    /// (`s_lastcheck`, `s_checkinterval`).
    pub fn checked(&self) -> (i64, u32) {
        let raw = &self.raw[..];
        (CHECKED.get(raw).cast_signed(), CHECK_INTERVAL.get(raw))
    }

    /// The user and the group that may use reserved blocks besides root (`s_def_resuid`, `s_def_resgid`).
    pub fn reserved_owner(&self) -> [u16; 2] {
        [RESERVED_UID, RESERVED_GID].map(|field| field.get(&self.raw[..]))
    }

    /// `s_errors`: 1 continue, 2 read-only, 3 panic.
    pub fn on_errors(&self) -> u16 {
        ON_ERRORS.get(&self.raw[..])
    }

    /// `s_default_mount_opts`, a set of flags.
    pub fn mount_options(&self) -> u32 {
        MOUNT_OPTIONS.get(&self.raw[..])
    }

    /// When it was made, last mounted and last written: seconds since 1970 with their high bytes.
    pub fn times(&self) -> [i64; 3] {
        // The high bytes came later and were zero before.
        [MADE, MOUNTED, WRITTEN].map(|field| field.get(&self.raw[..]).cast_signed())
    }

    /// Clusters of the file system's own structures (`s_overhead_clusters`), or 0 if nobody has counted them.
    pub(crate) fn overhead_clusters(&self) -> u32 {
        OVERHEAD_CLUSTERS.get(&self.raw[..])
    }

    /// Blocks behind the descriptors that are kept for more of them (`s_reserved_gdt_blocks`).
    pub(crate) fn reserved_descriptor_blocks(&self) -> u16 {
        RESERVED_DESCRIPTOR_BLOCKS.get(&self.raw[..])
    }

    /// The UUID of a journal on another device (`s_journal_uuid`), or zeros.
    pub(crate) fn journal_uuid(&self) -> [u8; 16] {
        *JOURNAL_UUID.get(&self.raw[..])
    }

    /// The size of descriptors as it is stored, where it counts or not.
    pub(crate) fn stored_descriptor_size(&self) -> u16 {
        DESCRIPTOR_SIZE.get(self.as_bytes())
    }

    /// The group that this copy is in.
    pub(crate) fn group(&self) -> GroupNo {
        GroupNo::new(self.group.into())
    }

    /// True for an inode below the first one for files: the root and those of the file system itself.
    pub fn is_reserved(&self, inode: InodeNo) -> bool {
        inode.get() < self.first_inode
    }

    /// True for a reserved inode other than the root.
    pub(crate) fn is_internal(&self, inode: InodeNo) -> bool {
        self.is_reserved(inode) && inode != InodeNo::ROOT
    }

    /// The inode that is named as the orphan file's, with the feature or without.
    pub(crate) fn named_orphan_file(&self) -> Option<InodeNo> {
        InodeNo::new(ORPHAN_FILE.get(self.as_bytes()))
    }

    /// Whether a field of the superblock names the inode as a file of the file system's own, with the feature of that or without:
    /// e2fsck clears such an inode, whatever it is.
    pub(crate) fn names(&self, inode: InodeNo) -> bool {
        let raw = self.as_bytes();
        let fields = [JOURNAL_INODE, ORPHAN_FILE].into_iter().chain(QUOTA_INODES);
        fields.into_iter().any(|field| field.get(raw) == inode.get())
    }

    /// How many groups keep their metadata together (`s_log_groups_per_flex`), as a power of two.
    pub(crate) fn log_groups_per_flex(&self) -> u8 {
        LOG_GROUPS_PER_FLEX.get(&self.raw[..])
    }

    /// Seconds between counts of multi-mount protection (`s_mmp_update_interval`), or 0.
    pub(crate) fn mmp_interval(&self) -> u16 {
        MMP_INTERVAL.get(&self.raw[..])
    }

    /// Bytes of extra fields that new inodes are to have room for (`s_want_extra_isize`).
    pub(crate) fn extra_fields(&self) -> u16 {
        EXTRA_FIELDS.get(&self.raw[..])
    }

    /// Bytes of extra fields that every inode is to have room for (`s_min_extra_isize`).
    pub(crate) fn least_extra_fields(&self) -> u16 {
        LEAST_EXTRA_FIELDS.get(&self.raw[..])
    }

    /// `s_rev_level`: 0 knows no features.
    pub(crate) fn revision(&self) -> u32 {
        REVISION.get(&self.raw[..])
    }

    /// The features as they are stored, whatever the revision.
    pub(crate) fn stored_features(&self) -> [u32; 3] {
        [COMPAT, INCOMPAT, RO_COMPAT].map(|field| field.get(&self.raw[..]))
    }

    /// True for a file system of the Hurd, which has other fields in inodes (`s_creator_os`).
    pub(crate) fn is_hurd(&self) -> bool {
        CREATOR.get(&self.raw[..]) == 1
    }

    /// Whether clusters, or fragments as they were once, are other than blocks.
    pub(crate) fn has_fragments(&self) -> bool {
        let raw = &self.raw[..];
        LOG_CLUSTER_SIZE.get(raw) != LOG_BLOCK_SIZE.get(raw)
            || CLUSTERS_PER_GROUP.get(raw) != BLOCKS_PER_GROUP.get(raw)
    }

    /// Blocks that a directory may have behind its end (`s_prealloc_dir_blocks`).
    pub(crate) fn spare_directory_blocks(&self) -> u8 {
        SPARE_DIRECTORY_BLOCKS.get(&self.raw[..])
    }

    /// The inode of the journal whether or not there is the feature, and whether something says that it lies on another
    /// device.
    pub(crate) fn named_journal(&self) -> (Option<InodeNo>, bool) {
        let raw = &self.raw[..];
        let inode = InodeNo::new(JOURNAL_INODE.get(raw));
        // Numbers of devices change; the UUID counts.
        let elsewhere = JOURNAL_DEVICE.get(raw) != 0 && inode.is_none() || *JOURNAL_UUID.get(raw) != [0; 16];
        (inode, elsewhere)
    }

    /// The copy of the map of the journal's inode, and its size, if there is one. That inode may be another than the one that is
    /// named: the name may be what is damaged.
    pub(crate) fn journal_copy(&self) -> Option<(&[u8; 60], u64)> {
        let raw = &self.raw[..];
        let is_elsewhere = matches!(self.named_journal(), (None, true));
        let is_one = JOURNAL_COPY_KIND.get(raw) == 1 && self.compat.has(Compat::HAS_JOURNAL) && !is_elsewhere;
        is_one.then(|| (JOURNAL_MAP.get(raw), JOURNAL_SIZE.get(raw)))
    }

    /// The salt of fscrypt passphrases (`s_encrypt_pw_salt`).
    pub fn encryption_salt(&self) -> [u8; 16] {
        *ENCRYPTION_SALT.get(&self.raw[..])
    }
}

/// The first inode of the list of orphans in a superblock's bytes, unless it is empty.
pub(crate) fn last_orphan(raw: &[u8; SUPERBLOCK_SIZE]) -> Option<InodeNo> {
    InodeNo::new(LAST_ORPHAN.get(raw))
}

fn place() -> Place {
    Place::of(Structure::Superblock)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A superblock of 8192 blocks of 1 KiB in one group of 256 inodes.
    pub(crate) fn sample() -> [u8; SUPERBLOCK_SIZE] {
        let mut raw = [0; SUPERBLOCK_SIZE];
        for (field, value) in [
            (INODES, 256),
            (BLOCKS.0, 8192),
            (FIRST_DATA_BLOCK, 1),
            (BLOCKS_PER_GROUP, 8192),
            (CLUSTERS_PER_GROUP, 8192),
            (INODES_PER_GROUP, 256),
            (REVISION, 1),
            (FIRST_INODE, 11),
            (INCOMPAT, 0x2 | 0x40 | 0x80),
        ] {
            field.set(&mut raw, value);
        }
        MAGIC_AT.set(&mut raw, MAGIC);
        INODE_SIZE.set(&mut raw, 256);
        HASH_VERSION.set(&mut raw, 1);
        DESCRIPTOR_SIZE.set(&mut raw, 64);
        raw
    }

    #[test]
    fn absurd_sizes_are_refused() {
        assert!(Superblock::from_bytes(&sample()).is_ok());
        let cases: [(usize, u32, &str); 9] = [
            (MAGIC_AT.0, 0xef54, "magic"),
            (LOG_BLOCK_SIZE.0, 7, "64 KiB"),
            (BLOCKS_PER_GROUP.0, 8193, "bitmap"),
            (BLOCKS_PER_GROUP.0, 0, "bitmap"),
            (INODES_PER_GROUP.0, 8200, "bitmap"),
            (INODES_PER_GROUP.0, 0, "bitmap"),
            (INODE_SIZE.0, 100, "inode size"),
            (INODE_SIZE.0, 2048, "inode size"),
            (FIRST_DATA_BLOCK.0, 0, "first data block"),
        ];
        for (at, value, text) in cases {
            let mut raw = sample();
            Le32(at).set(&mut raw, value);
            let error = Superblock::from_bytes(&raw).unwrap_err().to_string();
            assert!(error.contains(text), "{at:#x} = {value}: {error}");
        }
        assert!(Superblock::from_bytes(&sample()[..1023]).is_err());
    }

    #[test]
    fn what_is_changed_is_read() {
        let mut raw = sample();
        let mut fields = SuperblockMut { raw: &mut raw };
        assert_eq!(fields.add_free(-1, 0), None);
        assert_eq!(fields.add_free(0, 1 << 32), None);
        fields.add_free(0x1_0000_0002, 3).unwrap();
        fields.set_written(0x4_0000_0005);
        fields.set_last_orphan(Some(InodeNo::LOST_AND_FOUND));
        fields.add_compat(Compat::EXT_ATTR);
        fields.add_ro_compat(RoCompat(3));
        fields.remove_ro_compat(RoCompat(1));
        fields.set_needs_recovery(true);
        fields.set_clean(true);
        let read = Superblock::from_bytes(&raw).unwrap();
        assert_eq!((read.blocks_free, read.inodes_free, read.times()[2]), (0x1_0000_0002, 3, 0x4_0000_0005));
        assert_eq!((read.compat, read.ro_compat), (Compat::EXT_ATTR, RoCompat(2)));
        assert!(read.needs_recovery() && read.is_clean() && !read.has_errors());
        SuperblockMut { raw: &mut raw }.set_needs_recovery(false);
        assert_eq!(Superblock::from_bytes(&raw).unwrap().incompat, Incompat(0x2 | 0x40 | 0x80));
        assert_eq!(last_orphan(&raw), Some(InodeNo::LOST_AND_FOUND));
    }

    #[test]
    fn clusters_that_have_no_room_are_not_counted() {
        let mut raw = sample();
        for (clusters, stored) in [(7, 7), (u32::MAX.into(), u32::MAX), ((1 << 32) + 7, 0)] {
            SuperblockMut { raw: &mut raw }.set_counts(1, 2, clusters);
            assert_eq!(Superblock::from_bytes(&raw).unwrap().overhead_clusters(), stored);
        }
    }

    #[test]
    fn features_make_the_second_revision_of_the_first() {
        let mut raw = sample();
        for (field, value) in
            [(REVISION, 0), (FIRST_INODE, 0xaa), (COMPAT, 0xbb), (INCOMPAT, 0xcc), (RO_COMPAT, 0xdd)]
        {
            field.set(&mut raw, value);
        }
        DESCRIPTOR_SIZE.set(&mut raw, 0);
        let old = Superblock::from_bytes(&raw).unwrap();
        assert_eq!((old.first_inode, old.inode_size, old.incompat), (11, 128, Incompat(0)));
        SuperblockMut { raw: &mut raw }.add_ro_compat(RoCompat::LARGE_FILE);
        let new = Superblock::from_bytes(&raw).unwrap();
        assert_eq!((new.first_inode, new.inode_size, new.incompat), (11, 128, Incompat(0)));
        assert_eq!((new.compat, new.ro_compat), (Compat(0), RoCompat::LARGE_FILE));
    }
}
