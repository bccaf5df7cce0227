//! Names of all bytes of an inode, for those who show what differs between two.
//!
//! Source: Documentation/filesystems/ext4/inodes.rst.

use crate::format::bytes::array;
use crate::format::inode::{FileType, Inode, InodeFlags, OLD_INODE_SIZE, Time};
use crate::format::value::FieldValue;

/// Kinds of an inode's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldClass {
    /// An attribute that programs see.
    File,
    /// A number that says where and how the file is stored.
    Storage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Permissions,
    Number,
    Time,
    Flags,
    Bytes,
}

#[derive(Clone, Copy, Debug)]
struct Field {
    name: &'static str,
    class: FieldClass,
    form: Form,
    pieces: &'static [(usize, usize)],
}

const fn file(name: &'static str, form: Form, pieces: &'static [(usize, usize)]) -> Field {
    Field { name, class: FieldClass::File, form, pieces }
}

const fn storage(name: &'static str, form: Form, pieces: &'static [(usize, usize)]) -> Field {
    Field { name, class: FieldClass::Storage, form, pieces }
}

/// Fields of an inode. The block area and the attributes are compared by what they mean.
const FIELDS: &[Field] = &[
    file("mode", Form::Permissions, &[(0x0, 2)]),
    file("owner", Form::Number, &[(0x2, 2), (0x78, 2)]),
    file("owning group", Form::Number, &[(0x18, 2), (0x7a, 2)]),
    file("project", Form::Number, &[(0x9c, 4)]),
    file("size", Form::Number, &[(0x4, 4), (0x6c, 4)]),
    file("links", Form::Number, &[(0x1a, 2)]),
    file("flags", Form::Flags, &[(0x20, 4)]),
    file("modified", Form::Time, &[(0x10, 4), (0x88, 4)]),
    file("accessed", Form::Time, &[(0x8, 4), (0x8c, 4)]),
    file("changed", Form::Time, &[(0xc, 4), (0x84, 4)]),
    file("created", Form::Time, &[(0x90, 4), (0x94, 4)]),
    storage("deleted", Form::Number, &[(0x14, 4)]),
    storage("generation", Form::Number, &[(0x64, 4)]),
    storage("version", Form::Number, &[(0x24, 4), (0x98, 4)]),
    storage("sectors", Form::Number, &[(0x1c, 4), (0x74, 2)]),
    storage("attribute block", Form::Number, &[(0x68, 4), (0x76, 2)]),
    storage("fragment", Form::Number, &[(0x70, 4)]),
    storage("extra size", Form::Number, &[(0x80, 2)]),
    storage("reserved bytes", Form::Bytes, &[(0x7e, 2)]),
    storage("checksum", Form::Number, &[(0x7c, 2), (0x82, 2)]),
];

/// Bytes behind which no extra field has a name here.
const NAMED_END: usize = 0xa0;

/// A field that two inodes have other values in.
pub(crate) struct InodeDifference {
    pub name: &'static str,
    pub class: FieldClass,
    pub values: [FieldValue; 2],
}

/// Flags that say how a file is stored.
const STORAGE_FLAGS: u32 = InodeFlags::INDEX.0
    | InodeFlags::EXTENTS.0
    | InodeFlags::HUGE_FILE.0
    | InodeFlags::INLINE_DATA.0
    | 0x40_0000;

/// Name of the field with a checksum, which follows from the other ones.
pub(crate) const CHECKSUM_FIELD: &str = "checksum";

/// Fields that have other bytes in two inodes, apart from the block area and the attributes.
pub(crate) fn differences(inodes: [&Inode; 2]) -> Vec<InodeDifference> {
    let raw = inodes.map(fields_of);
    let mut found = Vec::new();
    for field in FIELDS {
        let bytes = [&raw[0], &raw[1]].map(|raw| pieces(raw, field.pieces));
        if bytes[0] == bytes[1] {
            continue;
        }
        let mut values = [0, 1].map(|at| value(field.form, &bytes[at], inodes[at]));
        let mut class = field.class;
        if field.form == Form::Flags {
            let changed = inodes[0].flags().0 ^ inodes[1].flags().0;
            if changed & !STORAGE_FLAGS == 0 {
                class = FieldClass::Storage;
            }
        }
        // The size of a directory is that of its blocks.
        if field.name == "size" && inodes.iter().all(|inode| inode.is_dir()) {
            class = FieldClass::Storage;
        }
        if field.form == Form::Permissions && values[0] == values[1] {
            // The type alone differs, which has its own line.
            continue;
        }
        if values[0] == values[1] {
            values = bytes.map(FieldValue::Bytes);
        }
        found.push(InodeDifference { name: field.name, class, values });
    }
    let unnamed = [&raw[0], &raw[1]].map(|raw| raw.get(NAMED_END..).unwrap_or_default().to_vec());
    if unnamed[0] != unnamed[1] {
        let values = unnamed.map(FieldValue::Bytes);
        found.push(InodeDifference { name: "unknown extra fields", class: FieldClass::Storage, values });
    }
    if inodes[0].kind() == inodes[1].kind()
        && let Some(values) = devices(inodes)
    {
        found.push(InodeDifference { name: "device", class: FieldClass::File, values });
    }
    found
}

/// Numbers of two devices, if they differ.
fn devices(inodes: [&Inode; 2]) -> Option<[FieldValue; 2]> {
    let is_device = matches!(inodes[0].kind(), FileType::CharacterDevice | FileType::BlockDevice);
    if !is_device || inodes[0].block_area() == inodes[1].block_area() {
        return None;
    }
    let numbers = inodes.map(Inode::device);
    match numbers {
        [Some(a), Some(b)] if a != b => Some([FieldValue::Device(a.0, a.1), FieldValue::Device(b.0, b.1)]),
        // One number in the two encodings.
        _ => Some(inodes.map(|inode| FieldValue::Bytes(inode.block_area().to_vec()))),
    }
}

/// Bytes of an inode up to its attributes.
fn fields_of(inode: &Inode) -> Vec<u8> {
    let raw = inode.as_bytes();
    let end = OLD_INODE_SIZE.saturating_add(inode.extra_size()).min(raw.len());
    raw[..end].to_vec()
}

fn pieces(raw: &[u8], pieces: &[(usize, usize)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (at, len) in pieces {
        match raw.get(*at..at + len) {
            Some(found) => bytes.extend(found),
            None => bytes.resize(bytes.len() + len, 0),
        }
    }
    bytes
}

fn value(form: Form, bytes: &[u8], inode: &Inode) -> FieldValue {
    match form {
        Form::Permissions => FieldValue::Mode(inode.mode() & 0o7777),
        Form::Number => FieldValue::Number(crate::format::value::number(bytes)),
        Form::Time => {
            let seconds = i64::from(i32::from_le_bytes(array(bytes, 0)));
            let extra = u32::from_le_bytes(array(bytes, 4));
            FieldValue::Time(Time {
                seconds: seconds + (i64::from(extra & 3) << 32),
                nanoseconds: extra >> 2,
            })
        }
        Form::Flags => FieldValue::Text(flags(inode.flags())),
        Form::Bytes => FieldValue::Bytes(bytes.to_vec()),
    }
}

fn flags(flags: InodeFlags) -> String {
    flags.names().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::InodeNo;

    /// Bytes that are compared by what they mean: the map, which has lines of its own.
    const OTHERS: std::ops::Range<usize> = 0x28..0x64;

    #[test]
    fn each_byte_of_an_inode_is_of_a_field() {
        let sample = Inode::new(InodeNo::LOST_AND_FOUND, FileType::Regular, 256, 32);
        for at in (0..OLD_INODE_SIZE + 32).filter(|at| !OTHERS.contains(at)) {
            // The type has a line of its own, and another size moves the attributes.
            if matches!(at, 1 | 0x80 | 0x81) {
                continue;
            }
            let mut raw = sample.as_bytes().to_vec();
            raw[at] ^= 1;
            let other = Inode::from_bytes(InodeNo::LOST_AND_FOUND, &raw).unwrap();
            let found = differences([&sample, &other]);
            assert_eq!(found.len(), 1, "{at:#x}");
            assert_ne!(found[0].values[0], found[0].values[1], "{at:#x}");
        }
    }
}
