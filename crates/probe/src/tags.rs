//! Names that `blkid` and `lsblk` have for what was found.

use casemate_blockdev::signatures::{BTRFS, EROFS, SQUASHFS, SWAP, XFS};

use super::{EXT, EXT_JOURNAL, Found, GPT, INTEGRITY, LUKS, MBR, VERITY};

/// The value of a tag: `blkid` prints all as text, and here numbers are numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tag {
    /// Text.
    Text(String),
    /// A number.
    Number(u64),
}

/// Types that `blkid` has another name for than ours.
const TYPES: &[(&str, &str)] = &[
    (EXT_JOURNAL, "jbd"),
    (LUKS, "crypto_LUKS"),
    (VERITY, "DM_verity_hash"),
    (INTEGRITY, "DM_integrity"),
    (XFS, "xfs"),
    (BTRFS, "btrfs"),
    (SQUASHFS, "squashfs"),
    (EROFS, "erofs"),
    (SWAP, "swap"),
    ("an F2FS file system", "f2fs"),
    ("an ISO 9660 file system", "iso9660"),
    ("a UDF file system", "udf"),
    ("a cramfs file system", "cramfs"),
    ("an NTFS file system", "ntfs"),
    ("an exFAT file system", "exfat"),
    ("a FAT file system", "vfat"),
    ("a JFS file system", "jfs"),
    ("a ReiserFS file system", "reiserfs"),
    ("a GFS2 file system", "gfs2"),
    ("a bcachefs file system", "bcachefs"),
    ("an APFS container", "apfs"),
    ("a BitLocker header", "BitLocker"),
    ("an LVM physical volume", "LVM2_member"),
    ("a member of an MD array", "linux_raid_member"),
    ("a member of a ZFS pool", "zfs_member"),
    ("a bcache device", "bcache"),
    ("a Ceph BlueStore device", "ceph_bluestore"),
    ("a Stratis pool member", "stratis"),
    ("a VDO volume", "vdo"),
    ("a device-mapper snapshot store", "DM_snapshot_cow"),
];

/// The name that `blkid` has for a format; `None` for archives and others that it does not know.
pub(super) fn blkid_type(what: &str, version: Option<&str>) -> Option<String> {
    match (what, version) {
        (EXT, version) => version.map(str::to_owned),
        (what, _) => TYPES.iter().find(|(ours, _)| *ours == what).map(|(_, theirs)| (*theirs).to_owned()),
    }
}

/// Facts that are numbers.
const NUMBERS: &[&str] = &[
    "version",
    "bytes",
    "data blocks",
    "data block size",
    "hash area offset",
    "block size",
    "data sectors",
    "tag size",
    "key bits",
    "data offset",
    "sector size",
    "disk bytes",
    "tag bytes",
    "data bytes",
];

impl Found {
    /// Names and values of `blkid` and `lsblk`: `TYPE`, `UUID`, `LABEL`, `BLOCK_SIZE`, `PTTYPE`, `PTUUID`, `PARTUUID`,
    /// `PARTLABEL`, `PARTTYPE` and `PARTTYPENAME`, as far as they are known.
    pub fn tags(&self) -> Vec<(&'static str, Tag)> {
        let text = |value: &str| Tag::Text(value.to_owned());
        let mut tags = Vec::new();
        let mut add = |name, tag: Option<Tag>| tags.extend(tag.map(|tag| (name, tag)));
        let kind = self.what.and_then(|what| blkid_type(what, self.fact("version")));
        add("TYPE", kind.map(Tag::Text));
        let table = match self.what {
            Some(GPT) => Some("gpt"),
            Some(MBR) => Some("dos"),
            _ => None,
        };
        add("PTTYPE", table.map(text));
        add("PTUUID", self.fact("table id").map(text));
        add("UUID", self.fact("uuid").map(text));
        add("LABEL", self.fact("label").map(text));
        let block_size = self.fact("block size").filter(|_| matches!(self.what, Some(EXT | EXT_JOURNAL)));
        add("BLOCK_SIZE", block_size.and_then(|size| size.parse().ok()).map(Tag::Number));
        if self.partition.is_some() {
            add("PARTUUID", self.fact("partition uuid").map(text));
            add("PARTLABEL", self.fact("name").map(text));
            add("PARTTYPE", self.fact("type").map(text));
            add("PARTTYPENAME", self.fact("type name").map(text));
        }
        tags
    }

    /// The facts, with numbers as numbers.
    pub fn values(&self) -> Vec<(&'static str, Tag)> {
        let value = |(name, value): &(&'static str, String)| {
            let number = value.parse().ok().filter(|_| NUMBERS.contains(name));
            (*name, number.map_or_else(|| Tag::Text(value.clone()), Tag::Number))
        };
        self.facts.iter().map(value).collect()
    }
}
