//! Options of a new file system: those of mke2fs, under its names.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::inode::Time;

/// UUID of a new file system.
#[derive(Clone, Debug)]
pub enum NewUuid {
    /// These bytes.
    Given([u8; 16]),
    /// A UUID that follows from contents, and from whatever else the function knows.
    OfContents(Arc<dyn Identify>),
}

/// Function that makes a UUID of the contents of files.
pub trait Identify: fmt::Debug + Send + Sync {
    /// The UUID, of the CRC-32C of each file in the order of inodes; it is 0 for whatever has no contents.
    fn uuid(&self, sums: &[u32]) -> [u8; 16];
}

impl From<[u8; 16]> for NewUuid {
    fn from(uuid: [u8; 16]) -> NewUuid {
        NewUuid::Given(uuid)
    }
}

/// The three sets of features of a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Compatible features.
    pub compat: Compat,
    /// Features that a reader must know.
    pub incompat: Incompat,
    /// Features that a writer must know.
    pub ro_compat: RoCompat,
}

/// The size of a new file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildSize {
    /// The first size that a search upwards from 64 blocks finds to have room, with at least so many bytes free, rounded up
    /// to a multiple of so many bytes. Smaller ones may have room, too.
    Fitting {
        /// Bytes that are free for users in the end.
        free: u64,
        /// The size is a multiple of so many bytes, or of the block size if that is more.
        align: u64,
    },
    /// So many bytes; what is left of a block, or of a group that is too small to be one, is not used.
    Bytes(u64),
}

/// Options of a new file system, as mke2fs has them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BuildOptions {
    /// The size.
    pub size: BuildSize,
    /// Bytes that are free for users in the end, at least, whatever the size is.
    pub min_free: u64,
    /// Features (`-O`).
    pub features: Features,
    /// Bytes of a block (`-b`).
    pub block_size: u32,
    /// Bytes of a cluster (`-C`), which counts with the feature bigalloc; 16 blocks if `None`.
    pub cluster_size: Option<u32>,
    /// Blocks of a group, with bigalloc clusters (`-g`); as many as a bitmap has bits if `None`.
    pub blocks_per_group: Option<u32>,
    /// Groups whose metadata lie together (`-G`).
    pub groups_per_flex: u32,
    /// Bytes for each inode (`-i`).
    pub inode_ratio: u64,
    /// Bytes of an inode (`-I`).
    pub inode_size: u32,
    /// Inodes in all (`-N`), which are never fewer; by the ratio if `None`.
    pub inodes: Option<u32>,
    /// Bytes of the journal (`-J size`); by the file system's size if `None`.
    pub journal_size: Option<u64>,
    /// Bytes of the journal for fast commits (`-J fast_commit_size`).
    pub fast_commit_size: Option<u64>,
    /// Percent of the blocks that are root's (`-m`).
    pub reserved_percent: f64,
    /// The label (`-L`), 16 bytes at most.
    pub label: Vec<u8>,
    /// Where it was mounted last (`-M`), 64 bytes at most.
    pub last_mounted: Vec<u8>,
    /// The UUID (`-U`); zeros if `None`.
    pub uuid: Option<NewUuid>,
    /// The seed of the hash of names (`-E hash_seed`); zeros, which stand for the algorithm's own, if `None`.
    pub hash_seed: Option<[u8; 16]>,
    /// The hash of names: 0 legacy, 1 half_md4, 2 tea.
    pub hash_version: u8,
    /// Whether bytes of names are hashed as unsigned numbers, as on machines where `char` has no sign.
    pub unsigned_hash: bool,
    /// The kernel's behaviour on errors (`-e`): 1 continue, 2 remount read-only, 3 panic.
    pub on_errors: u16,
    /// The default mount options; 0x4 user_xattr, 0x8 acl.
    pub mount_options: u32,
    /// The size in blocks that the file system can grow to while it is mounted (`-E resize`); 1024 times its size if `None`.
    pub resize: Option<u64>,
    /// Blocks of a RAID's stride, and of a whole stripe (`-E stride`, `-E stripe_width`).
    pub stride: u16,
    /// See `stride`.
    pub stripe_width: u32,
    /// Whether all groups' metadata lie at the beginning (`-E packed_meta_blocks`).
    pub packed_meta_blocks: bool,
    /// Copies of the superblock with the feature sparse_super2 (`-E num_backup_sb`): 0 to 2.
    pub backup_superblocks: u8,
    /// Blocks of the file that lists orphans; by the file system's size if `None`.
    pub orphan_file_size: Option<u64>,
    /// Whether what users, groups and projects have is counted, with the feature quota (`-E quotatype`); users and groups, and
    /// projects with that feature, if `None`.
    pub quota_types: Option<[bool; 3]>,
    /// Seconds between two signs of life, with the feature mmp (`-E mmp_update_interval`).
    pub mmp_interval: u16,
    /// Number and flags of the encoding of names without regard to case (`-E encoding`).
    pub encoding: (u16, u16),
    /// The owner and group of the root directory (`-E root_owner`); the source's if `None`.
    pub root_owner: Option<(u32, u32)>,
    /// The mode of the root directory (`-E root_perms`); the source's if `None`.
    pub root_mode: Option<u16>,
    /// The time at which everything seems to be made; the newest one of the tree if `None`.
    pub time: Option<Time>,
}

/// Features that every type of file system has.
const BASE: Features = Features {
    compat: Compat(Compat::RESIZE_INODE.0 | Compat::DIR_INDEX.0 | Compat::EXT_ATTR.0),
    incompat: Incompat::FILETYPE,
    ro_compat: RoCompat(RoCompat::SPARSE_SUPER.0 | RoCompat::LARGE_FILE.0),
};

/// Further incompatible features of ext4, as mke2fs 1.47.4 sets them.
const EXT4_INCOMPAT: u32 =
    Incompat::EXTENTS.0 | Incompat::BITS64.0 | Incompat::FLEX_BG.0 | Incompat::CSUM_SEED.0;
const EXT4_RO_COMPAT: u32 =
    RoCompat::HUGE_FILE.0 | RoCompat::DIR_NLINK.0 | RoCompat::EXTRA_ISIZE.0 | RoCompat::METADATA_CSUM.0;

/// Features that a new file system can have.
const MADE: Features = Features {
    compat: Compat(
        Compat::HAS_JOURNAL.0
            | Compat::EXT_ATTR.0
            | Compat::RESIZE_INODE.0
            | Compat::DIR_INDEX.0
            | Compat::SPARSE_SUPER2.0
            | Compat::FAST_COMMIT.0
            | Compat::STABLE_INODES.0
            | Compat::ORPHAN_FILE.0,
    ),
    incompat: Incompat(
        Incompat::FILETYPE.0
            | Incompat::META_BG.0
            | Incompat::EXTENTS.0
            | Incompat::BITS64.0
            | Incompat::FLEX_BG.0
            | Incompat::CSUM_SEED.0
            | Incompat::LARGEDIR.0
            | Incompat::ENCRYPT.0
            | Incompat::MMP.0
            | Incompat::INLINE_DATA.0
            | Incompat::CASEFOLD.0,
    ),
    ro_compat: RoCompat(
        RoCompat::SPARSE_SUPER.0
            | RoCompat::LARGE_FILE.0
            | RoCompat::HUGE_FILE.0
            | RoCompat::GDT_CSUM.0
            | RoCompat::DIR_NLINK.0
            | RoCompat::EXTRA_ISIZE.0
            | RoCompat::BIGALLOC.0
            | RoCompat::METADATA_CSUM.0
            | RoCompat::QUOTA.0
            | RoCompat::PROJECT.0
            | RoCompat::VERITY.0,
    ),
};

/// Other names that mke2fs takes for features.
const ALIASES: [(&str, &str); 6] = [
    ("extents", "extent"),
    ("uninit_groups", "uninit_bg"),
    ("dirindex", "dir_index"),
    ("orphan-file", "orphan_file"),
    ("meta_csum", "metadata_csum"),
    ("meta_csum_seed", "metadata_csum_seed"),
];

impl Features {
    /// The features of a type of file system: ext2, ext3 or ext4.
    ///
    /// # Errors
    /// `Argument` for other names.
    pub fn of_type(name: &str) -> Result<Features> {
        let mut features = BASE;
        match name {
            "ext2" => return Ok(features),
            "ext3" => {}
            "ext4" => {
                features.compat.0 |= Compat::ORPHAN_FILE.0;
                features.incompat.0 |= EXT4_INCOMPAT;
                features.ro_compat.0 |= EXT4_RO_COMPAT;
            }
            _ => {
                let text = format!("'{name}' is not a type of file system; there are ext2, ext3 and ext4");
                return Err(Error::argument(text));
            }
        }
        features.compat.0 |= Compat::HAS_JOURNAL.0;
        Ok(features)
    }

    /// Adds the features of a list with commas, takes those away that have a `^` before them, and all with `none`.
    ///
    /// # Errors
    /// `Argument` for what is no feature.
    pub fn change(&mut self, list: &str) -> Result<()> {
        for word in list.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let (name, is_removed) = match word.strip_prefix('^') {
                Some(name) => (name, true),
                None => (word, false),
            };
            let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, name)| name);
            let change = |set: &mut u32, bit: u32| *set = if is_removed { *set & !bit } else { *set | bit };
            match (Compat::named(name), Incompat::named(name), RoCompat::named(name)) {
                _ if word == "none" => *self = Features::default(),
                (Some(feature), ..) => change(&mut self.compat.0, feature.0),
                (_, Some(feature), _) => change(&mut self.incompat.0, feature.0),
                (_, _, Some(feature)) => change(&mut self.ro_compat.0, feature.0),
                _ => return Err(Error::argument(format!("'{name}' is not a feature of ext4"))),
            }
        }
        Ok(())
    }

    /// The features that go together: those are left out that mean nothing without others.
    ///
    /// # Errors
    /// `Argument` for those that exclude or miss others, `Unsupported` for those that are not made here.
    pub(crate) fn settled(mut self) -> Result<Features> {
        let unknown = Features {
            compat: Compat(self.compat.0 & !MADE.compat.0),
            incompat: Incompat(self.incompat.0 & !MADE.incompat.0),
            ro_compat: RoCompat(self.ro_compat.0 & !MADE.ro_compat.0),
        };
        if unknown != Features::default() {
            let text = format!("new file systems with {unknown}");
            return Err(Error::unsupported(text));
        }
        if !self.compat.has(Compat::HAS_JOURNAL) {
            self.compat.0 &= !(Compat::ORPHAN_FILE.0 | Compat::FAST_COMMIT.0);
        }
        if !self.ro_compat.has(RoCompat::METADATA_CSUM) {
            self.incompat.0 &= !Incompat::CSUM_SEED.0;
        } else {
            self.ro_compat.0 &= !RoCompat::GDT_CSUM.0;
        }
        let has_extents = self.incompat.has(Incompat::EXTENTS);
        let needs_extents = [
            (self.incompat.has(Incompat::BITS64), "64bit"),
            (self.ro_compat.has(RoCompat::VERITY), "verity"),
            (self.ro_compat.has(RoCompat::BIGALLOC), "bigalloc"),
        ];
        if let Some((_, name)) = needs_extents.iter().find(|(has, _)| *has && !has_extents) {
            return Err(Error::argument(format!("the feature {name} needs the feature extent")));
        }
        if self.compat.has(Compat::RESIZE_INODE) {
            if self.incompat.has(Incompat::META_BG) {
                let text = "the features resize_inode and meta_bg exclude each other: leave resize_inode out (^resize_inode)";
                return Err(Error::argument(text));
            }
            if !self.ro_compat.has(RoCompat::SPARSE_SUPER) {
                let text = "the feature resize_inode needs the feature sparse_super, or leave it out (^resize_inode)";
                return Err(Error::argument(text));
            }
        }
        Ok(self)
    }
}

impl std::fmt::Display for Features {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sets = [self.compat.to_string(), self.incompat.to_string(), self.ro_compat.to_string()];
        f.write_str(&sets.into_iter().filter(|set| !set.is_empty()).collect::<Vec<_>>().join(" "))
    }
}

impl Default for BuildOptions {
    /// An image of ext4 with blocks of 4096 bytes, of an automatic size, without blocks for root alone, and without identity.
    fn default() -> BuildOptions {
        BuildOptions {
            size: BuildSize::Fitting { free: 0, align: 1 },
            min_free: 0,
            // OK to unwrap: one of the three types.
            features: Features::of_type("ext4").unwrap(),
            block_size: 4096,
            cluster_size: None,
            blocks_per_group: None,
            groups_per_flex: 16,
            inode_ratio: 16384,
            inode_size: 256,
            inodes: None,
            journal_size: None,
            fast_commit_size: None,
            reserved_percent: 0.0,
            label: Vec::new(),
            last_mounted: Vec::new(),
            uuid: None,
            hash_seed: None,
            hash_version: 1,
            unsigned_hash: false,
            on_errors: 1,
            mount_options: 0xc,
            resize: None,
            stride: 0,
            stripe_width: 0,
            packed_meta_blocks: false,
            backup_superblocks: 2,
            orphan_file_size: None,
            quota_types: None,
            mmp_interval: 5,
            encoding: (1, 0),
            root_owner: None,
            root_mode: None,
            time: None,
        }
    }
}

impl BuildOptions {
    /// An image of ext4 with blocks of 4096 bytes, of an automatic size, without blocks for root alone; `uuid` and
    /// `hash_seed` are what would be random otherwise.
    pub fn new(uuid: impl Into<NewUuid>, hash_seed: [u8; 16]) -> BuildOptions {
        BuildOptions { uuid: Some(uuid.into()), hash_seed: Some(hash_seed), ..BuildOptions::default() }
    }

    /// Refuses numbers that no file system has.
    ///
    /// # Errors
    /// `Argument`, with the option.
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |text: String| Err(Error::argument(text));
        let BuildOptions { block_size, inode_size, inode_ratio, .. } = *self;
        if !block_size.is_power_of_two() || !(1024..=65536).contains(&block_size) {
            return refuse(format!("block size {block_size}: a power of two from 1024 to 65536"));
        }
        if !inode_size.is_power_of_two() || !(128..=block_size).contains(&inode_size) || inode_size > 32768 {
            return refuse(format!("inode size {inode_size}: a power of two from 128 to the block size"));
        }
        if !(1024..=64 << 20).contains(&inode_ratio) {
            return refuse(format!("{inode_ratio} bytes for each inode: 1024 to 67108864"));
        }
        if self.features.ro_compat.has(RoCompat::PROJECT) && inode_size == 128 {
            return refuse("the feature project needs inodes of more than 128 bytes".to_owned());
        }
        let cluster = self.cluster_size();
        if !cluster.is_power_of_two() || cluster < block_size || cluster / block_size > 32768 {
            return refuse(format!(
                "cluster size {cluster}: a power of two from the block size to 32768 blocks"
            ));
        }
        if let Some(blocks) = self.blocks_per_group
            && (blocks % 8 != 0 || blocks < 256 || blocks > 8 * block_size)
        {
            return refuse(format!(
                "{blocks} blocks in a group: a multiple of 8 from 256 to {}",
                8 * block_size
            ));
        }
        if !self.groups_per_flex.is_power_of_two() {
            return refuse(format!("{} groups in a flex group: a power of two", self.groups_per_flex));
        }
        if !(0.0..=50.0).contains(&self.reserved_percent) {
            return refuse(format!("{} percent of reserved blocks: 0 to 50", self.reserved_percent));
        }
        if self.label.len() > 16 {
            return refuse(format!("a label of {} bytes; 16 have room", self.label.len()));
        }
        if self.last_mounted.len() > 64 {
            return refuse(format!("a mount point of {} bytes; 64 have room", self.last_mounted.len()));
        }
        if self.label.contains(&0) || self.last_mounted.contains(&0) {
            return refuse("a label and a mount point have no NUL".to_owned());
        }
        Ok(())
    }

    /// Bytes of a cluster.
    pub(crate) fn cluster_size(&self) -> u32 {
        match (self.features.ro_compat.has(RoCompat::BIGALLOC), self.cluster_size) {
            (false, _) => self.block_size,
            (true, Some(size)) => size,
            (true, None) => 16 * self.block_size,
        }
    }
}
