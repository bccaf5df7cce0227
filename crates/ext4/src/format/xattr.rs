//! Entries of extended attributes, and the bytes of their values, in an inode or in a block.
//!
//! Source: Documentation/filesystems/ext4/attributes.rst.

use casemate_blockdev::u32_of;

use crate::error::{Place, Result};
use crate::format::field::{Byte, Le16, Le32};
use crate::number::{u8_of, u16_of};
use crate::units::InodeNo;

/// Bytes of a block's header, of an entry without its name, and of zeros behind the last one.
const HEADER: usize = 32;
const ENTRY: usize = 16;
const END: usize = 4;

/// The header: in the inode the magic number alone.
const MAGIC_AT: Le32 = Le32(0x0);
/// How many inodes use a block.
pub(crate) const USERS: Le32 = Le32(0x4);
const BLOCKS: Le32 = Le32(0x8);
const BLOCK_HASH: Le32 = Le32(0xc);

const NAME_LENGTH: Byte = Byte(0x0);
const INDEX: Byte = Byte(0x1);
const VALUE_OFFSET: Le16 = Le16(0x2);
const VALUE_INODE: Le32 = Le32(0x4);
const VALUE_SIZE: Le32 = Le32(0x8);
const HASH: Le32 = Le32(0xc);

/// An attribute's entry, as it is stored.
#[derive(Clone, Copy, Debug)]
pub struct XattrEntry<'a> {
    /// Which prefix the name has.
    pub index: u8,
    /// The name behind the prefix.
    pub name: &'a [u8],
    /// The value, unless it lies in an inode of its own.
    pub value: &'a [u8],
    /// The inode that holds the value, if it does not lie with the entry.
    pub value_inode: Option<InodeNo>,
    /// Bytes of the value.
    pub value_size: u32,
}

/// Entries, and the bytes that their values lie in.
#[derive(Clone, Copy, Debug)]
pub struct XattrEntries<'a> {
    /// The bytes that values' offsets count from.
    base: &'a [u8],
    at: usize,
    place: Place,
}

const MAGIC: u32 = 0xea02_0000;

/// The largest value, as the kernel has it (`EXT4_XATTR_SIZE_MAX`).
pub(crate) const LARGEST_VALUE: u32 = 1 << 24;

/// The prefix index of attributes that ext4 keeps for itself: inline data.
pub(crate) const SYSTEM: u8 = 7;

/// The name, behind that prefix, of the attribute that inline data continues in.
pub(crate) const INLINE_DATA: &[u8] = b"data";

/// The prefix index of fscrypt's context, which programs don't see.
pub(crate) const ENCRYPTION: u8 = 9;

/// The prefix indexes of ACLs: whole names.
pub(crate) const ACL_ACCESS: u8 = 2;
pub(crate) const ACL_DEFAULT: u8 = 3;

/// The prefix index of attributes that belong to whoever may write the file.
pub(crate) const USER: u8 = 1;

/// The prefix index of attributes that the kernel's security modules and capabilities have.
pub(crate) const SECURITY: u8 = 6;

pub(crate) const PREFIXES: [(u8, &str); 7] = [
    (USER, "user."),
    (ACL_ACCESS, "system.posix_acl_access"),
    (ACL_DEFAULT, "system.posix_acl_default"),
    (4, "trusted."),
    (SECURITY, "security."),
    (SYSTEM, "system."),
    (8, "system.richacl"),
];

impl<'a> XattrEntries<'a> {
    /// The attributes behind an inode's fields; none where the magic number is missing.
    pub fn from_inode(area: &'a [u8], place: Place) -> XattrEntries<'a> {
        let base = match area.get(..4) {
            Some(magic) if MAGIC_AT.get(magic) == MAGIC => &area[MAGIC_AT.end()..],
            _ => &[],
        };
        XattrEntries { base, at: 0, place }
    }

    /// The attributes in a block.
    ///
    /// # Errors
    /// `Corrupt` at `place` when it is no such block.
    pub fn from_block(block: &'a [u8], place: Place) -> Result<XattrEntries<'a>> {
        if block.len() < HEADER || MAGIC_AT.get(block) != MAGIC {
            return Err(place.malformed("no magic number 0xea020000"));
        }
        if BLOCKS.get(block) != 1 {
            return Err(place.malformed("more than one block of attributes"));
        }
        Ok(XattrEntries { base: block, at: HEADER, place })
    }

    fn entry(&mut self) -> Result<Option<XattrEntry<'a>>> {
        let malformed = |what: &'static str| self.place.malformed(what);
        let rest = self.base.get(self.at..).unwrap_or(&[]);
        // Four zero bytes are the end.
        if rest.get(..4).is_none_or(|end| end == [0; 4]) {
            return Ok(None);
        }
        if rest.len() < ENTRY {
            return Err(malformed("an attribute passes the end"));
        }
        let (e_name_len, e_name_index) = (usize::from(NAME_LENGTH.get(rest)), INDEX.get(rest));
        let e_value_offs = usize::from(VALUE_OFFSET.get(rest));
        let (e_value_inum, e_value_size) = (InodeNo::new(VALUE_INODE.get(rest)), VALUE_SIZE.get(rest));
        let Some(name) = rest.get(ENTRY..ENTRY + e_name_len) else {
            return Err(malformed("an attribute's name passes the end"));
        };
        let value = if e_value_inum.is_some() || e_value_size == 0 {
            &[]
        } else {
            let size = usize::try_from(e_value_size).unwrap_or(usize::MAX);
            let end = e_value_offs.checked_add(size);
            match end.and_then(|end| self.base.get(e_value_offs..end)) {
                Some(value) => value,
                None => return Err(malformed("an attribute's value passes the end")),
            }
        };
        self.at += (ENTRY + e_name_len).next_multiple_of(4);
        Ok(Some(XattrEntry {
            index: e_name_index,
            name,
            value,
            value_inode: e_value_inum,
            value_size: e_value_size,
        }))
    }
}

impl<'a> Iterator for XattrEntries<'a> {
    type Item = Result<XattrEntry<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.entry().transpose();
        if matches!(entry, Some(Err(_))) {
            // Nothing behind a broken entry can be found.
            self.at = self.base.len();
        }
        entry
    }
}

/// An entry as it is stored, whatever it says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawXattr<'a> {
    /// Which prefix the name has.
    pub index: u8,
    pub name: &'a [u8],
    pub value_offset: usize,
    pub value_inode: Option<InodeNo>,
    pub value_size: u32,
    pub hash: u32,
}

/// The entries from `at` on, and where their end mark lies; `None` if one passes the end of `base`.
pub(crate) fn raw_entries<'a>(
    base: &'a [u8],
    mut at: usize,
    mut f: impl FnMut(RawXattr<'a>),
) -> Option<usize> {
    loop {
        let rest = base.get(at..)?;
        if *rest.first_chunk()? == [0; 4] {
            return Some(at);
        }
        if rest.len() < ENTRY {
            return None;
        }
        let name_len = usize::from(NAME_LENGTH.get(rest));
        f(RawXattr {
            index: INDEX.get(rest),
            name: rest.get(ENTRY..ENTRY + name_len)?,
            value_offset: VALUE_OFFSET.get(rest).into(),
            value_inode: InodeNo::new(VALUE_INODE.get(rest)),
            value_size: VALUE_SIZE.get(rest),
            hash: HASH.get(rest),
        });
        at += (ENTRY + name_len).next_multiple_of(4);
    }
}

/// Fields of a block of attributes: whether its magic number is right, its users, its blocks.
pub(crate) fn block_header(block: &[u8]) -> (bool, u32, u32) {
    (MAGIC_AT.get(block) == MAGIC, USERS.get(block), BLOCKS.get(block))
}

/// Sets how many inodes have a block of attributes.
pub(crate) fn set_users(block: &mut [u8], users: u32) {
    USERS.set(block, users);
}

/// The attributes behind an inode's fields, if the magic number is there.
pub(crate) fn in_inode(area: &[u8]) -> Option<&[u8]> {
    (area.len() >= 2 * MAGIC_AT.end() && MAGIC_AT.get(area) == MAGIC).then(|| &area[MAGIC_AT.end()..])
}

/// The hash of a name alone, its bytes taken as signed or unsigned: both are to be found.
pub(crate) fn name_hash(name: &[u8], signed: bool) -> u32 {
    let number = |byte: u8| match signed {
        true => i32::from(byte.cast_signed()).cast_unsigned(),
        false => byte.into(),
    };
    name.iter().fold(0u32, |hash, byte| hash.rotate_left(5) ^ number(*byte))
}

/// A hash with that of a value in words.
pub(crate) fn value_hash(name: u32, value: &[u8]) -> u32 {
    value.chunks(4).fold(name, |hash, chunk| {
        let mut padded = [0; 4];
        padded[..chunk.len()].copy_from_slice(chunk);
        word_hash(hash, u32::from_le_bytes(padded))
    })
}

/// A hash with one more word: the hash of a value that has an inode of its own.
pub(crate) fn word_hash(hash: u32, word: u32) -> u32 {
    hash.rotate_left(16) ^ word
}

/// Where a block's entries begin.
pub(crate) const IN_BLOCK: usize = HEADER;

/// An attribute that is to be written.
#[derive(Clone, Debug)]
pub(crate) struct Attribute {
    /// Which prefix the name has.
    pub index: u8,
    /// The name behind the prefix.
    pub name: Vec<u8>,
    pub value: Value,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Here(Vec<u8>),
    /// In an inode of its own: its number, the value's size and hash.
    Inode(InodeNo, u32, u32),
}

impl Attribute {
    /// Bytes of the entry.
    pub fn entry_size(&self) -> usize {
        ENTRY + self.name.len().next_multiple_of(4)
    }

    /// Bytes of the value where the entry is.
    fn value_size(&self) -> usize {
        match &self.value {
            Value::Here(bytes) => bytes.len().next_multiple_of(4),
            Value::Inode(..) => 0,
        }
    }

    /// Bytes of both.
    pub fn size(&self) -> usize {
        self.entry_size() + self.value_size()
    }

    /// Whether contents of the file continue in it.
    pub fn is_inline_data(&self) -> bool {
        self.index == SYSTEM && self.name == INLINE_DATA
    }

    /// `e_hash`: the name, then the value in words.
    fn hash(&self) -> u32 {
        let name = name_hash(&self.name, false);
        match &self.value {
            Value::Here(bytes) => value_hash(name, bytes),
            Value::Inode(_, _, hash) => word_hash(name, *hash),
        }
    }
}

/// Bytes for entries and values in an inode.
pub(crate) fn room_in_inode(area: &[u8]) -> usize {
    area.len().saturating_sub(MAGIC_AT.end() + END)
}

/// Bytes for entries and values in a block.
pub(crate) fn room_in_block(size: usize) -> usize {
    size - HEADER - END
}

/// Writes attributes that have room to an inode.
pub(crate) fn write_area(area: &mut [u8], list: &[Attribute]) {
    area.fill(0);
    if list.is_empty() {
        return;
    }
    MAGIC_AT.set(area, MAGIC);
    // Entries in the inode have a hash only for values in other inodes.
    write_entries(&mut area[MAGIC_AT.end()..], 0, list, |attribute| match attribute.value {
        Value::Inode(..) => attribute.hash(),
        Value::Here(_) => 0,
    });
}

/// A block of `size` bytes with attributes that have room, for one user.
pub(crate) fn block_bytes(size: usize, mut list: Vec<Attribute>) -> Vec<u8> {
    list.sort_by(|a, b| (a.index, a.name.len(), &a.name).cmp(&(b.index, b.name.len(), &b.name)));
    let mut bytes = vec![0; size];
    for (field, value) in [(MAGIC_AT, MAGIC), (USERS, 1), (BLOCKS, 1)] {
        field.set(&mut bytes, value);
    }
    write_entries(&mut bytes, HEADER, &list, Attribute::hash);
    // One entry without a hash makes the block one that is shared with nobody.
    let hashes = list.iter().map(Attribute::hash);
    let all = hashes.clone().fold(0u32, |all, hash| all.rotate_left(16) ^ hash);
    let hash = if hashes.into_iter().any(|hash| hash == 0) { 0 } else { all };
    BLOCK_HASH.set(&mut bytes, hash);
    bytes
}

/// Writes entries from `at` on and their values from the end of `area` on, offsets counted from its start.
fn write_entries(area: &mut [u8], at: usize, list: &[Attribute], hash: impl Fn(&Attribute) -> u32) {
    let (mut at, mut end) = (at, area.len());
    for attribute in list {
        let (offset, inode, size) = match &attribute.value {
            Value::Here(bytes) if bytes.is_empty() => (0, 0, 0),
            Value::Here(bytes) => {
                end -= attribute.value_size();
                area[end..end + bytes.len()].copy_from_slice(bytes);
                (end, 0, u32_of(bytes.len()))
            }
            Value::Inode(number, size, _) => (0, number.get(), *size),
        };
        // Names have at most 255 bytes, offsets lie in a block.
        let entry = &mut area[at..];
        NAME_LENGTH.set(entry, u8_of(attribute.name.len()));
        INDEX.set(entry, attribute.index);
        VALUE_OFFSET.set(entry, u16_of(offset));
        VALUE_INODE.set(entry, inode);
        VALUE_SIZE.set(entry, size);
        HASH.set(entry, hash(attribute));
        entry[ENTRY..ENTRY + attribute.name.len()].copy_from_slice(&attribute.name);
        at += attribute.entry_size();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Structure;

    fn area() -> Vec<u8> {
        let mut area = vec![0; 64];
        area[..4].copy_from_slice(&MAGIC.to_le_bytes());
        area[4..8].copy_from_slice(&[3, 1, 40, 0]);
        area[12] = 5;
        area[20..23].copy_from_slice(b"key");
        area[44..49].copy_from_slice(b"value");
        area
    }

    fn read(area: &[u8]) -> Vec<Result<(Vec<u8>, Vec<u8>)>> {
        let place = Place::inode(Structure::Xattr, InodeNo::FIRST);
        let entries = XattrEntries::from_inode(area, place);
        entries.map(|entry| entry.map(|entry| (entry.name.to_vec(), entry.value.to_vec()))).collect()
    }

    #[test]
    fn one_attribute() {
        let list = read(&area());
        assert_eq!(list.len(), 1);
        assert_eq!(list[0].as_ref().unwrap(), &(b"key".to_vec(), b"value".to_vec()));
    }

    #[test]
    fn nothing_outside_is_read() {
        for (at, value) in [(6, 60), (4, 255), (13, 1), (14, 255), (15, 255)] {
            let mut area = area();
            area[at] = value;
            let list = read(&area);
            assert!(list.len() == 1 && list[0].is_err(), "{at}: {list:?}");
        }
        for len in 0..area().len() {
            let _ = read(&area()[..len]);
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let place = Place::inode(Structure::Xattr, InodeNo::FIRST);
        let list = [
            Attribute { index: USER, name: b"odd".to_vec(), value: Value::Here(b"value".to_vec()) },
            Attribute { index: SECURITY, name: Vec::new(), value: Value::Here(Vec::new()) },
            Attribute {
                index: USER,
                name: b"n".to_vec(),
                value: Value::Inode(InodeNo::FIRST, 70000, 0x0102_0304),
            },
        ];
        let facts = |entries: XattrEntries<'_>| {
            entries
                .map(|entry| {
                    let XattrEntry { index, name, value, value_inode, value_size } = entry.unwrap();
                    (index, name.to_vec(), value.to_vec(), value_inode, value_size)
                })
                .collect::<Vec<_>>()
        };
        let own = |at: usize| {
            let Attribute { index, name, value } = &list[at];
            match value {
                Value::Here(value) => (*index, name.clone(), value.clone(), None, value.len() as u32),
                Value::Inode(inode, size, _) => (*index, name.clone(), Vec::new(), Some(*inode), *size),
            }
        };
        let sum: usize = list.iter().map(Attribute::size).sum();
        let mut area = vec![0xff; sum + 8];
        assert_eq!(room_in_inode(&area), sum);
        write_area(&mut area, &list);
        assert_eq!(facts(XattrEntries::from_inode(&area, place)), [own(0), own(1), own(2)]);
        write_area(&mut area, &[]);
        assert!(area.iter().all(|byte| *byte == 0));
        // In the order of index, length and name.
        let block = block_bytes(HEADER + sum + 4, list.to_vec());
        assert_eq!(room_in_block(block.len()), sum);
        assert_eq!(facts(XattrEntries::from_block(&block, place).unwrap()), [own(2), own(0), own(1)]);
        assert_eq!(USERS.get(&block), 1);
    }
}
