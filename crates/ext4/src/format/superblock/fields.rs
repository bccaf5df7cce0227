//! Names of all bytes of a superblock, for those who show what differs between two.
//!
//! Source: Documentation/filesystems/ext4/super.rst.

use super::SUPERBLOCK_SIZE;
use crate::format::value::{FieldValue, Form, NamedField};

/// One field that the two superblocks have other bytes in.
pub(crate) struct FieldDifference {
    pub name: &'static str,
    pub values: [FieldValue; 2],
}

const fn field(name: &'static str, form: Form, pieces: &'static [(usize, usize)]) -> NamedField {
    NamedField { name, pieces, form }
}

/// Name of the field that has the UUID.
pub(crate) const UUID_FIELD: &str = "uuid";

/// All fields, those first that tell most.
const FIELDS: &[NamedField] = &[
    field(UUID_FIELD, Form::Uuid, &[(0x68, 16)]),
    field("label", Form::Text, &[(0x78, 16)]),
    field("compatible features", Form::Compat, &[(0x5c, 4)]),
    field("incompatible features", Form::Incompat, &[(0x60, 4)]),
    field("read-only compatible features", Form::RoCompat, &[(0x64, 4)]),
    field("block size", Form::Kilobytes, &[(0x18, 4)]),
    field("cluster size", Form::Kilobytes, &[(0x1c, 4)]),
    field("blocks", Form::Number, &[(0x4, 4), (0x150, 4)]),
    field("inodes", Form::Number, &[(0x0, 4)]),
    field("inode size", Form::Number, &[(0x58, 2)]),
    field("blocks per group", Form::Number, &[(0x20, 4)]),
    field("clusters per group", Form::Number, &[(0x24, 4)]),
    field("inodes per group", Form::Number, &[(0x28, 4)]),
    field("groups per flex group", Form::Power, &[(0x174, 1)]),
    field("hash seed", Form::Uuid, &[(0xec, 16)]),
    field("hash version", Form::Number, &[(0xfc, 1)]),
    field("created", Form::Seconds, &[(0x108, 4), (0x276, 1)]),
    field("last written", Form::Seconds, &[(0x30, 4), (0x274, 1)]),
    field("last mounted", Form::Seconds, &[(0x2c, 4), (0x275, 1)]),
    field("last checked", Form::Seconds, &[(0x40, 4), (0x277, 1)]),
    field("last mounted on", Form::Text, &[(0x88, 64)]),
    field("state", Form::Number, &[(0x3a, 2)]),
    field("mounts", Form::Number, &[(0x34, 2)]),
    field("most mounts", Form::Number, &[(0x36, 2)]),
    field("check interval", Form::Number, &[(0x44, 4)]),
    field("behaviour on errors", Form::Number, &[(0x3c, 2)]),
    field("reserved blocks", Form::Number, &[(0x8, 4), (0x154, 4)]),
    field("reserved uid", Form::Number, &[(0x50, 2)]),
    field("reserved gid", Form::Number, &[(0x52, 2)]),
    field("free blocks", Form::Number, &[(0xc, 4), (0x158, 4)]),
    field("free inodes", Form::Number, &[(0x10, 4)]),
    field("overhead clusters", Form::Number, &[(0x248, 4)]),
    field("kib written", Form::Number, &[(0x178, 8)]),
    field("mount options", Form::Number, &[(0x100, 4)]),
    field("mount options text", Form::Text, &[(0x200, 64)]),
    field("stride", Form::Number, &[(0x164, 2)]),
    field("stripe width", Form::Number, &[(0x170, 4)]),
    field("flags", Form::Number, &[(0x160, 4)]),
    field("extra fields wanted", Form::Number, &[(0x15e, 2)]),
    field("extra fields required", Form::Number, &[(0x15c, 2)]),
    field("first data block", Form::Number, &[(0x14, 4)]),
    field("first inode", Form::Number, &[(0x54, 4)]),
    field("group", Form::Number, &[(0x5a, 2)]),
    field("descriptor size", Form::Number, &[(0xfe, 2)]),
    field("reserved descriptor blocks", Form::Number, &[(0xce, 2)]),
    field("first meta group", Form::Number, &[(0x104, 4)]),
    field("backup groups", Form::Bytes, &[(0x24c, 8)]),
    field("journal inode", Form::Number, &[(0xe0, 4)]),
    field("journal uuid", Form::Uuid, &[(0xd0, 16)]),
    field("journal device", Form::Number, &[(0xe4, 4)]),
    field("journal copy", Form::Bytes, &[(0x10c, 68)]),
    field("journal copy kind", Form::Number, &[(0xfd, 1)]),
    field("first orphan", Form::Number, &[(0xe8, 4)]),
    field("orphan file inode", Form::Number, &[(0x280, 4)]),
    field("lost+found inode", Form::Number, &[(0x268, 4)]),
    field("user quota inode", Form::Number, &[(0x240, 4)]),
    field("group quota inode", Form::Number, &[(0x244, 4)]),
    field("project quota inode", Form::Number, &[(0x26c, 4)]),
    field("encoding", Form::Number, &[(0x27c, 2)]),
    field("encoding flags", Form::Number, &[(0x27e, 2)]),
    field("encryption algorithms", Form::Bytes, &[(0x254, 4)]),
    field("encryption salt", Form::Uuid, &[(0x258, 16)]),
    field("encryption level", Form::Number, &[(0x176, 1)]),
    field("mmp interval", Form::Number, &[(0x166, 2)]),
    field("mmp block", Form::Number, &[(0x168, 8)]),
    field("errors", Form::Number, &[(0x194, 4)]),
    field("first error time", Form::Seconds, &[(0x198, 4), (0x278, 1)]),
    field("first error inode", Form::Number, &[(0x19c, 4)]),
    field("first error block", Form::Number, &[(0x1a0, 8)]),
    field("first error function", Form::Text, &[(0x1a8, 32)]),
    field("first error line", Form::Number, &[(0x1c8, 4)]),
    field("first error code", Form::Number, &[(0x27a, 1)]),
    field("last error time", Form::Seconds, &[(0x1cc, 4), (0x279, 1)]),
    field("last error inode", Form::Number, &[(0x1d0, 4)]),
    field("last error block", Form::Number, &[(0x1d8, 8)]),
    field("last error function", Form::Text, &[(0x1e0, 32)]),
    field("last error line", Form::Number, &[(0x1d4, 4)]),
    field("last error code", Form::Number, &[(0x27b, 1)]),
    field("creator", Form::Number, &[(0x48, 4)]),
    field("revision", Form::Number, &[(0x4c, 4)]),
    field("minor revision", Form::Number, &[(0x3e, 2)]),
    field("magic number", Form::Number, &[(0x38, 2)]),
    field("compression algorithms", Form::Bytes, &[(0xc8, 4)]),
    field("preallocated blocks", Form::Number, &[(0xcc, 1)]),
    field("preallocated directory blocks", Form::Number, &[(0xcd, 1)]),
    field("snapshot", Form::Bytes, &[(0x180, 20)]),
    field("reserved bytes", Form::Bytes, &[(0x177, 1), (0x284, 376)]),
    field("checksum type", Form::Number, &[(0x175, 1)]),
    field("checksum seed", Form::Number, &[(0x270, 4)]),
    field("checksum", Form::Number, &[(0x3fc, 4)]),
];

/// Fields that have other bytes in two superblocks, those first that tell most. Each byte is of one field.
pub(crate) fn differences(raw: [&[u8; SUPERBLOCK_SIZE]; 2]) -> impl Iterator<Item = FieldDifference> {
    FIELDS.iter().filter(move |field| field.bytes(raw[0]) != field.bytes(raw[1])).map(move |field| {
        let mut values = raw.map(|raw| field.value(raw));
        // Bytes behind the end of a text tell two apart that look alike.
        if values[0] == values[1] {
            values = raw.map(|raw| FieldValue::Bytes(field.bytes(raw)));
        }
        FieldDifference { name: field.name, values }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::superblock::tests::sample;
    use crate::format::value::unnamed;

    #[test]
    fn each_byte_has_one_name() {
        assert_eq!(unnamed(FIELDS, SUPERBLOCK_SIZE), Vec::<usize>::new());
        for at in 0..SUPERBLOCK_SIZE {
            let (a, mut b) = (sample(), sample());
            b[at] ^= 1;
            let found: Vec<FieldDifference> = differences([&a, &b]).collect();
            assert_eq!(found.len(), 1, "{at:#x}");
            assert_ne!(found[0].values[0], found[0].values[1], "{at:#x}");
        }
    }
}
