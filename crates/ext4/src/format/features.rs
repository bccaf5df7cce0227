//! The three sets of features in a superblock, and what each bit is called.
//!
//! Source: Documentation/filesystems/ext4/super.rst; names as dumpe2fs prints them.

use std::fmt;

use crate::error::{Error, Result};

macro_rules! flags {
    ($(#[$doc:meta])* $set:ident: $($name:ident $bit:literal $text:literal,)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $set(pub u32);

        #[allow(missing_docs, reason = "the names are the format's own")]
        impl $set {
            $(pub const $name: $set = $set($bit);)*

            const NAMES: &[(u32, &str)] = &[$(($bit, $text),)*];

            /// Whether all of `flags` are set.
            pub fn has(self, flags: $set) -> bool {
                self.0 & flags.0 == flags.0
            }

            /// The feature that dumpe2fs calls `name`.
            pub fn named(name: &str) -> Option<$set> {
                $set::NAMES.iter().find(|(_, other)| *other == name).map(|(bit, _)| $set(*bit))
            }
        }

        impl fmt::Display for $set {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&names(self.0, $set::NAMES).join(" "))
            }
        }
    };
}

flags! {
    /// Features that a reader and a writer may ignore.
    Compat:
    DIR_PREALLOC 0x1 "dir_prealloc",
    IMAGIC_INODES 0x2 "imagic_inodes",
    HAS_JOURNAL 0x4 "has_journal",
    EXT_ATTR 0x8 "ext_attr",
    RESIZE_INODE 0x10 "resize_inode",
    DIR_INDEX 0x20 "dir_index",
    LAZY_BG 0x40 "lazy_bg",
    SNAPSHOT_BITMAP 0x100 "snapshot_bitmap",
    SPARSE_SUPER2 0x200 "sparse_super2",
    FAST_COMMIT 0x400 "fast_commit",
    STABLE_INODES 0x800 "stable_inodes",
    ORPHAN_FILE 0x1000 "orphan_file",
}

flags! {
    /// Features that a reader must know.
    Incompat:
    COMPRESSION 0x1 "compression",
    FILETYPE 0x2 "filetype",
    RECOVER 0x4 "needs_recovery",
    JOURNAL_DEV 0x8 "journal_dev",
    META_BG 0x10 "meta_bg",
    EXTENTS 0x40 "extent",
    BITS64 0x80 "64bit",
    MMP 0x100 "mmp",
    FLEX_BG 0x200 "flex_bg",
    EA_INODE 0x400 "ea_inode",
    DIRDATA 0x1000 "dirdata",
    CSUM_SEED 0x2000 "metadata_csum_seed",
    LARGEDIR 0x4000 "large_dir",
    INLINE_DATA 0x8000 "inline_data",
    ENCRYPT 0x10000 "encrypt",
    CASEFOLD 0x20000 "casefold",
}

flags! {
    /// Features that a writer must know.
    RoCompat:
    SPARSE_SUPER 0x1 "sparse_super",
    LARGE_FILE 0x2 "large_file",
    BTREE_DIR 0x4 "btree_dir",
    HUGE_FILE 0x8 "huge_file",
    GDT_CSUM 0x10 "uninit_bg",
    DIR_NLINK 0x20 "dir_nlink",
    EXTRA_ISIZE 0x40 "extra_isize",
    HAS_SNAPSHOT 0x80 "snapshot",
    QUOTA 0x100 "quota",
    BIGALLOC 0x200 "bigalloc",
    METADATA_CSUM 0x400 "metadata_csum",
    REPLICA 0x800 "replica",
    READONLY 0x1000 "read-only",
    PROJECT 0x2000 "project",
    SHARED_BLOCKS 0x4000 "shared_blocks",
    VERITY 0x8000 "verity",
    ORPHAN_PRESENT 0x10000 "orphan_present",
}

/// Flags of [`Incompat`] that this reader understands.
const READABLE: u32 = Incompat::FILETYPE.0
    | Incompat::RECOVER.0
    | Incompat::META_BG.0
    | Incompat::EXTENTS.0
    | Incompat::BITS64.0
    | Incompat::MMP.0
    | Incompat::FLEX_BG.0
    | Incompat::EA_INODE.0
    | Incompat::CSUM_SEED.0
    | Incompat::LARGEDIR.0
    | Incompat::INLINE_DATA.0
    | Incompat::ENCRYPT.0
    | Incompat::CASEFOLD.0;

/// Flags of [`RoCompat`] that may be set while checksums are rewritten: all that change no recipe.
const WRITABLE: u32 = 0x1ffff
    & !(RoCompat::BTREE_DIR.0 | RoCompat::HAS_SNAPSHOT.0 | RoCompat::REPLICA.0 | RoCompat::READONLY.0);

/// The features that have no name here, of the compatible ones and of those that a writer must know.
pub(crate) fn unknown(compat: Compat, ro_compat: RoCompat) -> u32 {
    let known = |all: &[(u32, &str)]| all.iter().fold(0, |sum, (bit, _)| sum | bit);
    compat.0 & !known(Compat::NAMES) | ro_compat.0 & !known(RoCompat::NAMES)
}

impl Incompat {
    /// Refuses what a reader would misunderstand, by name.
    pub(crate) fn check_readable(self) -> Result<()> {
        if self.has(Incompat::JOURNAL_DEV) {
            let text = "this is an external journal, which holds no files";
            return Err(Error::unsupported(text.to_owned()));
        }
        refuse(self.0 & !READABLE, Incompat::NAMES, "can't be read")
    }
}

impl RoCompat {
    /// Refuses what a writer would damage, by name.
    pub(crate) fn check_writable(self) -> Result<()> {
        refuse(self.0 & !WRITABLE, RoCompat::NAMES, "can't be changed")
    }
}

fn refuse(unknown: u32, all: &[(u32, &str)], what: &str) -> Result<()> {
    if unknown == 0 {
        return Ok(());
    }
    let list = names(unknown, all).join(", ");
    Err(Error::unsupported(format!("file systems with the feature {list} {what}")))
}

fn names(flags: u32, all: &[(u32, &str)]) -> Vec<String> {
    let name = |bit| match all.iter().find(|(known, _)| *known == bit) {
        Some((_, name)) => (*name).to_owned(),
        None => format!("{bit:#x}"),
    };
    (0..32).map(|bit| 1 << bit).filter(|bit| flags & bit != 0).map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_features_are_refused_by_name() {
        let error = Incompat(0x1 | 0x40 | 0x40000).check_readable().unwrap_err();
        assert_eq!(error.to_string(), "file systems with the feature compression, 0x40000 can't be read");
        assert!(Incompat(READABLE).check_readable().is_ok());
        assert!(RoCompat(0x400).check_writable().is_ok());
        assert!(RoCompat(0x1000).check_writable().is_err());
        assert_eq!(Compat(0x1 | 0x200 | 0x8000_0000).to_string(), "dir_prealloc sparse_super2 0x80000000");
    }
}
