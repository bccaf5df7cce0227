//! The superblock: 1024 bytes at offset 1024, and copies of it in other groups.
//!
//! Source: Documentation/filesystems/ext4/super.rst.

use crate::error::{Error, Place, Result, Structure};
use crate::format::bytes::{array, join, le16, le32, le64, text};
use crate::format::features::{Compat, Incompat, RoCompat};

/// The bytes of a superblock.
pub const SUPERBLOCK_SIZE: usize = 1024;

/// Where the primary superblock lies, in bytes.
pub const SUPERBLOCK_OFFSET: u64 = 1024;

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
    /// The inode of the journal, 0 if there is none or it lies elsewhere.
    pub journal_inode: u32,
    /// The seed of all metadata checksums, if it is stored (`metadata_csum_seed`).
    pub checksum_seed: Option<u32>,
    /// `s_first_meta_bg`.
    pub first_meta_bg: u32,
    /// The two groups with copies under `sparse_super2`.
    pub backup_groups: [u32; 2],
    /// How directories are hashed.
    pub hash: HashDefaults,
    /// Where the multi-mount protection block lies (with the feature `mmp`).
    pub mmp_block: Option<u64>,
    /// The inode of the orphan file (with the feature `orphan_file`).
    pub orphan_file: Option<u32>,
    /// The inodes of user, group and project quota files, 0 if there are none.
    pub quota_inodes: [u32; 3],
    /// `s_encoding` and `s_encoding_flags` of casefolded directories.
    pub encoding: (u16, u16),
}

impl Superblock {
    /// Whether bytes at [`SUPERBLOCK_OFFSET`] begin a file system at all, damaged or not.
    pub fn has_magic(raw: &[u8; SUPERBLOCK_SIZE]) -> bool {
        le16(raw, 0x38) == 0xef53
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
        let raw_ref = &raw[..];
        if !Superblock::has_magic(&raw) {
            return bad("no magic number 0xef53: this is no ext2, ext3 or ext4 file system");
        }
        let s_rev_level = le32(raw_ref, 0x4c);
        if s_rev_level > 1 {
            return Err(Error::unsupported(format!("ext4 revision {s_rev_level}")));
        }
        let dynamic = s_rev_level == 1;
        let field = |at, old| if dynamic { le32(raw_ref, at) } else { old };
        let compat = Compat(field(0x5c, 0));
        let incompat = Incompat(field(0x60, 0));
        let ro_compat = RoCompat(field(0x64, 0));
        let bits64 = incompat.has(Incompat::BITS64);
        let bigalloc = ro_compat.has(RoCompat::BIGALLOC);
        let wide = |low, high| join(le32(raw_ref, low), if bits64 { le32(raw_ref, high) } else { 0 });

        let s_log_block_size = le32(raw_ref, 0x18);
        if s_log_block_size > 6 {
            return bad("the block size is above 64 KiB");
        }
        let block_size = 1024u32 << s_log_block_size;
        let s_log_cluster_size = if bigalloc { le32(raw_ref, 0x1c) } else { s_log_block_size };
        if s_log_cluster_size < s_log_block_size || s_log_cluster_size > 20 {
            return bad("the cluster size is below the block size or above 1 GiB");
        }
        let cluster_size = 1024u32 << s_log_cluster_size;
        let blocks_per_group = le32(raw_ref, 0x20);
        let clusters_per_group = if bigalloc { le32(raw_ref, 0x24) } else { blocks_per_group };
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
        let inodes_per_group = le32(raw_ref, 0x28);
        if inodes_per_group == 0 || inodes_per_group > 8 * block_size || !inodes_per_group.is_multiple_of(8) {
            return bad("a group's inodes don't fit its bitmap");
        }
        let inode_size = if dynamic { u32::from(le16(raw_ref, 0x58)) } else { 128 };
        // OK to compare as u32: a 64 KiB inode can't be written in the field, so 32 KiB is the largest.
        if inode_size < 128 || inode_size > block_size || !inode_size.is_power_of_two() {
            return bad("the inode size is no power of two from 128 to the block size");
        }
        let descriptor_size = if bits64 { u32::from(le16(raw_ref, 0xfe)) } else { 32 };
        let largest = block_size.min(1024);
        if bits64 && !(64..=largest).contains(&descriptor_size) || !descriptor_size.is_power_of_two() {
            return bad("the descriptor size is no power of two from 64 to 1024");
        }
        let blocks = wide(0x4, 0x150);
        let first_data_block = le32(raw_ref, 0x14);
        let expected = u32::from(block_size == 1024 && !bigalloc);
        if first_data_block != expected || blocks <= u64::from(first_data_block) {
            return bad("the first data block is not where it belongs");
        }
        let s_flags = le32(raw_ref, 0x160);
        Ok(Superblock {
            inodes: le32(raw_ref, 0),
            blocks,
            blocks_free: wide(0xc, 0x158),
            blocks_reserved: wide(0x8, 0x154),
            inodes_free: le32(raw_ref, 0x10),
            first_data_block,
            block_size,
            cluster_size,
            blocks_per_group,
            clusters_per_group,
            inodes_per_group,
            inode_size,
            descriptor_size,
            first_inode: field(0x54, 11),
            compat,
            incompat,
            ro_compat,
            uuid: array(raw_ref, 0x68),
            group: le16(raw_ref, 0x5a),
            journal_inode: if compat.has(Compat::HAS_JOURNAL) { le32(raw_ref, 0xe0) } else { 0 },
            checksum_seed: incompat.has(Incompat::CSUM_SEED).then(|| le32(raw_ref, 0x270)),
            first_meta_bg: le32(raw_ref, 0x104),
            backup_groups: [le32(raw_ref, 0x24c), le32(raw_ref, 0x250)],
            hash: HashDefaults {
                version: raw_ref[0xfc],
                seed: [0xec, 0xf0, 0xf4, 0xf8].map(|at| le32(raw_ref, at)),
                unsigned: s_flags & 2 != 0,
            },
            mmp_block: incompat.has(Incompat::MMP).then(|| le64(raw_ref, 0x168)),
            orphan_file: compat.has(Compat::ORPHAN_FILE).then(|| le32(raw_ref, 0x280)),
            quota_inodes: [0x240, 0x244, 0x26c].map(|at| le32(raw_ref, at)),
            encoding: (le16(raw_ref, 0x27c), le16(raw_ref, 0x27e)),
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
        text(&self.raw[0x78..0x88])
    }

    /// `s_last_mounted`.
    pub fn last_mounted(&self) -> String {
        text(&self.raw[0x88..0xc8])
    }

    /// `s_state`: 1 clean, 2 errors were found, 4 orphans are being recovered.
    pub fn state(&self) -> u16 {
        le16(&self.raw[..], 0x3a)
    }

    /// Whether nobody was changing it when it was left. One with a journal says so even then.
    pub fn is_clean(&self) -> bool {
        self.state() & 1 != 0
    }

    /// `s_checksum_type`; 1 is CRC-32C, the only one there is.
    pub fn checksum_type(&self) -> u8 {
        self.raw[0x175]
    }

    /// When it was made, last mounted and last written: seconds since 1970 with their high bytes.
    pub fn times(&self) -> [i64; 3] {
        let raw = &self.raw[..];
        [(0x108, 0x276), (0x2c, 0x275), (0x30, 0x274)].map(|(low, high)| {
            // The high bytes came later and were zero before.
            i64::from(le32(raw, low)) | i64::from(raw[high]) << 32
        })
    }

    /// Seconds between counts of multi-mount protection (`s_mmp_update_interval`), or 0.
    pub(crate) fn mmp_interval(&self) -> u16 {
        le16(&self.raw[..], 0x166)
    }

    /// Bytes of extra fields that new inodes are to have room for (`s_want_extra_isize`).
    pub(crate) fn extra_fields(&self) -> u16 {
        le16(&self.raw[..], 0x15e)
    }

    /// The salt of fscrypt passphrases (`s_encrypt_pw_salt`).
    pub fn encryption_salt(&self) -> [u8; 16] {
        array(&self.raw[..], 0x258)
    }
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
        let fields: [(usize, u32); 12] = [
            (0x0, 256),
            (0x4, 8192),
            (0x14, 1),
            (0x20, 8192),
            (0x24, 8192),
            (0x28, 256),
            (0x38, 0xef53),
            (0x4c, 1),
            (0x54, 11),
            (0x58, 256),
            (0x60, 0x2 | 0x40 | 0x80),
            (0xfc, 1 | 64 << 16),
        ];
        for (at, value) in fields {
            raw[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        raw
    }

    #[test]
    fn absurd_sizes_are_refused() {
        assert!(Superblock::from_bytes(&sample()).is_ok());
        let cases: [(usize, u32, &str); 9] = [
            (0x38, 0xef54, "magic"),
            (0x18, 7, "64 KiB"),
            (0x20, 8193, "bitmap"),
            (0x20, 0, "bitmap"),
            (0x28, 8200, "bitmap"),
            (0x28, 0, "bitmap"),
            (0x58, 100, "inode size"),
            (0x58, 2048, "inode size"),
            (0x14, 0, "first data block"),
        ];
        for (at, value, text) in cases {
            let mut raw = sample();
            raw[at..at + 4].copy_from_slice(&value.to_le_bytes());
            let error = Superblock::from_bytes(&raw).unwrap_err().to_string();
            assert!(error.contains(text), "{at:#x} = {value}: {error}");
        }
        assert!(Superblock::from_bytes(&sample()[..1023]).is_err());
    }
}
