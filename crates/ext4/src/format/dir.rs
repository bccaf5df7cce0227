//! Records of names, in the blocks of a directory or in the inode itself.
//!
//! Source: Documentation/filesystems/ext4/directory.rst.

use crate::error::{Error, Place, Result};
use crate::format::dirhash::DirHash;
use crate::format::field::{Byte, Le16, Le32};
use crate::format::inode::FileType;
use crate::number::{u8_of, u16_of};
use crate::units::InodeNo;

/// Bytes of the tail with the checksum of a block: an empty record of a type that no file has.
pub(crate) const TAIL: usize = 12;

pub(crate) const INODE: Le32 = Le32(0);
pub(crate) const LENGTH: Le16 = Le16(4);
pub(crate) const NAME_LENGTH: Byte = Byte(6);
pub(crate) const KIND: Byte = Byte(7);
/// Without types the length of the name has their byte, too.
const WIDE_NAME_LENGTH: Le16 = Le16(6);
/// The byte of a record that its name begins at.
pub(crate) const NAME: usize = 8;

/// Where the name ends, rounded up to four bytes, its hash begins.
const MAJOR: Le32 = Le32(0);
const MINOR: Le32 = Le32(4);
const HASH: usize = 8;

/// Kinds of files by their stored number, from 1 on.
const KINDS: [FileType; 7] = [
    FileType::Regular,
    FileType::Directory,
    FileType::CharacterDevice,
    FileType::BlockDevice,
    FileType::Fifo,
    FileType::Socket,
    FileType::Symlink,
];

/// Bytes of a record of "." at most: what is left of another one behind it has no room for a record.
const LONGEST_DOT: usize = 24;

/// The kind of a tail.
const TAIL_KIND: u8 = 0xde;

/// A record of a directory block, as it is stored.
#[derive(Clone, Copy, Debug)]
pub struct RawEntry<'a> {
    /// The inode.
    pub inode: InodeNo,
    /// The kind, where entries tell.
    pub kind: Option<FileType>,
    /// The name as it is stored.
    pub name: &'a [u8],
    /// The hash that encrypted, casefolded directories store with each name.
    pub hash: Option<DirHash>,
    /// Where in the block the record begins.
    pub offset: usize,
}

/// Format of the records of a file system or directory.
#[derive(Clone, Copy, Debug)]
pub struct EntryFormat {
    /// Whether records tell the kind of file (feature `filetype`).
    pub with_type: bool,
    /// Whether names are followed by hashes (encrypted and casefolded directories).
    pub with_hash: bool,
    /// The highest inode number.
    pub inodes: u32,
}

/// The records in use of a block.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    records: Records<'a>,
    inodes: u32,
}

/// A record of a block, in use or not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    pub at: usize,
    pub len: usize,
    /// `None` if the record is free.
    pub inode: Option<InodeNo>,
    pub name: &'a [u8],
    /// The hash that is stored behind the name in some directories.
    pub hash: Option<DirHash>,
    /// The bytes in use of the record: none if it is free.
    pub stored: &'a [u8],
}

/// All records of a block.
#[derive(Clone, Debug)]
pub(crate) struct Records<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Where the tail begins, if there is one that is none of the records.
    end: usize,
    /// Whether records have a type, and those of files their names' hashes.
    with_type: bool,
    with_hash: bool,
    place: Place,
}

impl<'a> Entries<'a> {
    /// The records of a block, or of a part of an inode that holds some.
    pub fn new(block: &'a [u8], format: EntryFormat, place: Place) -> Entries<'a> {
        // The tail with the checksum looks like a free record.
        Entries { records: Records::new(block, 0, format, place), inodes: format.inodes }
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<RawEntry<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Record { at, inode, name, hash, .. } = match self.records.next()? {
                Ok(record) => record,
                Err(error) => return Some(Err(error)),
            };
            let Some(inode) = inode else { continue };
            if inode.get() > self.inodes || name.is_empty() {
                let what = format!("has inode {inode} and {} bytes of name", name.len());
                return Some(Err(self.records.malformed(at, &what)));
            }
            let kind =
                if self.records.with_type { kind_of(KIND.from(at).get(self.records.bytes)) } else { None };
            return Some(Ok(RawEntry { inode, kind, name, hash, offset: at }));
        }
    }
}

/// The inode of a name in a block, or of the first record that has it; `None` if no record has it.
///
/// # Errors
/// `Corrupt` when a record before it makes no sense.
pub(crate) fn find(block: &[u8], format: EntryFormat, place: Place, name: &[u8]) -> Result<Option<InodeNo>> {
    if let Some(found) = find_in_sound(block, format, name) {
        return Ok(found);
    }
    let named = |entry: &Result<RawEntry<'_>>| entry.as_ref().map_or(true, |entry| entry.name == name);
    Entries::new(block, format, place).find(named).map(|entry| Ok(entry?.inode)).transpose()
}

/// Finds a name in usual records, several times as fast; `None` if some are of another kind, or invalid.
fn find_in_sound(block: &[u8], format: EntryFormat, name: &[u8]) -> Option<Option<InodeNo>> {
    let last = *name.last().filter(|_| format.with_type && !format.with_hash)?;
    let mut at = 0;
    while at < block.len() {
        let rest = &block[at..];
        let inode = INODE.get(rest.get(..NAME)?);
        let (len, name_len) = (length(LENGTH.get(rest), block.len()), usize::from(NAME_LENGTH.get(rest)));
        let used = if inode == 0 { NAME } else { NAME + name_len };
        let is_sound = len >= used && len.is_multiple_of(4) && len <= rest.len();
        let is_long_dot = is_sound && at == 0 && len > LONGEST_DOT && name_len == 1 && rest[NAME] == b'.';
        if !is_sound || is_long_dot || inode > format.inodes || (inode != 0 && name_len == 0) {
            return None;
        }
        // Many names of a directory are as long, and begin in the same way.
        if inode != 0 && name_len == name.len() && rest[used - 1] == last && &rest[NAME..used] == name {
            return Some(InodeNo::new(inode));
        }
        at += len;
    }
    Some(None)
}

/// The records that a block had once, and that are still to be seen behind those of today: as libext2fs looks for them. They
/// end where the block's records make no sense.
pub(crate) fn removed<'a>(
    block: &'a [u8],
    format: EntryFormat,
    place: Place,
) -> impl Iterator<Item = RawEntry<'a>> {
    let tail = if has_tail(block) { TAIL } else { 0 };
    Records::new(block, tail, format, place).map_while(Result::ok).flat_map(move |record| {
        let end = record.at + record.len;
        let mut at = record.at + record.stored.len();
        std::iter::from_fn(move || {
            while at + NAME < end {
                // What is there may be cut off by a record of today, so its length may be anything.
                let found = removed_at(block, at, end, format);
                at += found.map_or(4, |entry| record_len(entry.name, entry.hash));
                if found.is_some() {
                    return found;
                }
            }
            None
        })
    })
}

/// A removed record of a name before `end`.
fn removed_at(block: &[u8], at: usize, end: usize, format: EntryFormat) -> Option<RawEntry<'_>> {
    let bytes = &block[at..end];
    let inode = INODE.get(bytes);
    let name_len = match format.with_type {
        true => NAME_LENGTH.get(bytes).into(),
        false => usize::from(WIDE_NAME_LENGTH.get(bytes)),
    };
    let name = bytes.get(NAME..NAME + name_len)?;
    let kind = if format.with_type { kind_of(KIND.get(bytes)) } else { None };
    let hash = match format.with_hash {
        true => {
            let stored = bytes.get(NAME + name_len.next_multiple_of(4)..)?.get(..HASH)?;
            Some(DirHash { major: MAJOR.get(stored), minor: MINOR.get(stored) })
        }
        false => None,
    };
    let len = length(LENGTH.get(bytes), block.len());
    let inode = InodeNo::new(inode).filter(|inode| inode.get() <= format.inodes)?;
    let makes_sense = (1..=255).contains(&name_len)
        && (kind.is_some() || !format.with_type)
        && len.is_multiple_of(4)
        && len >= record_len(name, hash)
        && len <= block.len() - at;
    makes_sense.then_some(RawEntry { inode, kind, name, hash, offset: at })
}

impl Record<'_> {
    /// The record as long as it needs to be.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = self.stored.to_vec();
        // At most 272 bytes.
        LENGTH.set(&mut bytes, u16_of(self.stored.len()));
        bytes
    }
}

impl<'a> Records<'a> {
    /// The records before a tail of so many bytes.
    pub fn new(bytes: &'a [u8], tail: usize, format: EntryFormat, place: Place) -> Records<'a> {
        let EntryFormat { with_type, with_hash, .. } = format;
        Records { bytes, at: 0, end: bytes.len() - tail, with_type, with_hash, place }
    }

    /// The records from one on.
    pub fn from(self, at: usize) -> Records<'a> {
        Records { at, ..self }
    }

    /// The error for a record; nothing behind it can be found.
    fn malformed(&mut self, at: usize, what: &str) -> Error {
        self.at = self.end;
        self.place.malformed(format!("the entry at byte {at} {what}"))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let at = self.at;
        if at >= self.end {
            return None;
        }
        let rest = &self.bytes[at..];
        if rest.len() < NAME {
            return Some(Err(self.malformed(at, "passes the end")));
        }
        let inode = InodeNo::new(INODE.get(rest));
        let len = length(LENGTH.get(rest), self.bytes.len());
        let name_len = usize::from(match self.with_type {
            true => NAME_LENGTH.get(rest).into(),
            false => WIDE_NAME_LENGTH.get(rest),
        });
        let hash_at = NAME + name_len.next_multiple_of(4);
        let has_hash = self.with_hash
            && inode.is_some()
            && !matches!(rest.get(NAME..NAME + name_len), Some(b"." | b".."));
        // A free record may keep anything as its name.
        let used = if inode.is_none() { 0 } else { hash_at + if has_hash { HASH } else { 0 } };
        if len < used.max(NAME) || !len.is_multiple_of(4) || len > rest.len() {
            return Some(Err(self.malformed(at, &format!("has {len} bytes"))));
        }
        let name = if inode.is_none() { &[][..] } else { &rest[NAME..NAME + name_len] };
        if at == 0 && name == b"." && len > LONGEST_DOT {
            let what = format!("is \".\" with {len} bytes, and hides the names behind it");
            return Some(Err(self.malformed(at, &what)));
        }
        let hash = has_hash.then(|| {
            let stored = &rest[hash_at..];
            DirHash { major: MAJOR.get(stored), minor: MINOR.get(stored) }
        });
        self.at += len;
        Some(Ok(Record { at, len, inode, name, hash, stored: &rest[..used] }))
    }
}

/// The hash in these eight bytes behind a name.
pub(crate) fn hash_at(stored: &[u8]) -> DirHash {
    DirHash { major: MAJOR.get(stored), minor: MINOR.get(stored) }
}

/// How long a record with a name is.
pub(crate) fn record_len(name: &[u8], hash: Option<DirHash>) -> usize {
    NAME + name.len().next_multiple_of(4) + if hash.is_some() { HASH } else { 0 }
}

/// A record as long as its name needs. It tells no kind where the file system's records have none.
pub(crate) fn record_bytes(
    inode: InodeNo,
    name: &[u8],
    kind: Option<FileType>,
    hash: Option<DirHash>,
) -> Vec<u8> {
    let len = record_len(name, hash);
    let mut bytes = vec![0; len];
    INODE.set(&mut bytes, inode.get());
    // Names have at most 255 bytes.
    LENGTH.set(&mut bytes, u16_of(len));
    NAME_LENGTH.set(&mut bytes, u8_of(name.len()));
    KIND.set(&mut bytes, kind.map_or(0, byte_of));
    bytes[NAME..NAME + name.len()].copy_from_slice(name);
    if let Some(DirHash { major, minor }) = hash {
        let stored = &mut bytes[len - HASH..];
        MAJOR.set(stored, major);
        MINOR.set(stored, minor);
    }
    bytes
}

/// A block of `size` bytes with these records, the last of which reaches to its end or its tail, whose checksum is left
/// out.
pub(crate) fn leaf_bytes(size: usize, tail: usize, records: &[Vec<u8>]) -> Vec<u8> {
    let end = size - tail;
    let mut bytes = Vec::with_capacity(size);
    let mut last = 0;
    for record in records {
        last = bytes.len();
        bytes.extend_from_slice(record);
    }
    bytes.resize(size, 0);
    set_length(&mut bytes[last..], end - last);
    if tail > 0 {
        LENGTH.from(end).set(&mut bytes, u16_of(TAIL));
        KIND.from(end).set(&mut bytes, TAIL_KIND);
    }
    bytes
}

/// Whether a block ends in a tail.
pub(crate) fn has_tail(block: &[u8]) -> bool {
    // What lies in an inode may be shorter than a tail.
    let Some(tail) = block.len().checked_sub(TAIL).map(|at| &block[at..]) else { return false };
    INODE.get(tail) == 0
        && usize::from(LENGTH.get(tail)) == TAIL
        && NAME_LENGTH.get(tail) == 0
        && KIND.get(tail) == TAIL_KIND
}

/// How long a record is: with 64 KiB blocks, lengths that don't fit 16 bits are stored in other ways.
pub(crate) fn length(stored: u16, block: usize) -> usize {
    match stored {
        0 | 0xffff if block >= 1 << 16 => block,
        // Above 64 KiB the two low bits, unused otherwise, would be bits 16 and 17.
        other => usize::from(other),
    }
}

/// Changes how long a record is.
pub(crate) fn set_length(record: &mut [u8], len: usize) {
    record[LENGTH.0..LENGTH.end()].copy_from_slice(&stored_length(len));
}

/// A record's length as it is stored: that of one that fills a block of 64 KiB as the largest number.
pub(crate) fn stored_length(len: usize) -> [u8; 2] {
    u16_of(len).to_le_bytes()
}

/// The kind of file that an entry's byte stands for.
fn kind_of(byte: u8) -> Option<FileType> {
    KINDS.get(usize::from(byte).checked_sub(1)?).copied()
}

/// The byte that stands for a kind of file.
pub(crate) fn byte_of(kind: FileType) -> u8 {
    KINDS.into_iter().zip(1..).find(|(other, _)| *other == kind).map_or(0, |(_, byte)| byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Structure;

    const FORMAT: EntryFormat = EntryFormat { with_type: true, with_hash: false, inodes: 100 };

    fn record(inode: u32, len: u16, name: &[u8]) -> Vec<u8> {
        let mut record = inode.to_le_bytes().to_vec();
        record.extend(len.to_le_bytes());
        record.extend([name.len() as u8, 1]);
        record.extend(name);
        record.resize(usize::from(len).max(record.len()), 0);
        record
    }

    fn read(block: &[u8]) -> Vec<Result<Vec<u8>>> {
        let entries = Entries::new(block, FORMAT, Place::of(Structure::DirectoryBlock));
        entries.map(|entry| entry.map(|entry| entry.name.to_vec())).collect()
    }

    #[test]
    fn records_are_read_until_one_is_broken() {
        let block = [record(5, 12, b"a"), record(0, 12, b""), record(6, 40, b"bcdef")].concat();
        let names: Vec<_> = read(&block).into_iter().map(Result::unwrap).collect();
        assert_eq!(names, [b"a".to_vec(), b"bcdef".to_vec()]);
        let broken: [(&str, Vec<u8>); 6] = [
            ("length zero", record(5, 0, b"a")),
            ("past the end", record(5, 16, b"a")[..12].to_vec()),
            ("shorter than its name", record(5, 12, b"abcdef")),
            ("no multiple of four", record(5, 14, b"a")),
            ("no such inode", record(101, 12, b"a")),
            ("no name", record(5, 12, b"")),
        ];
        for (what, record) in broken {
            let list = read(&[block.clone(), record].concat());
            assert!(list.len() == 3 && list[2].is_err(), "{what}: {list:?}");
        }
    }

    #[test]
    fn names_are_found_as_records_are_read() {
        let place = Place::of(Structure::DirectoryBlock);
        let sound =
            [record(5, 12, b"a"), record(0, 12, b"b"), record(6, 20, b"bcdef"), record(7, 16, b"bcdeg")];
        let sound = sound.concat();
        // Each byte with every value: records without sense before, behind and at what is looked for.
        for (at, value) in (0..sound.len()).flat_map(|at| (0..=255).map(move |value| (at, value))) {
            let mut block = sound.clone();
            block[at] = value;
            for name in [&b"a"[..], b"b", b"bcdef", b"bcdeg", b"bcdeh"] {
                for format in [FORMAT, EntryFormat { with_type: false, ..FORMAT }] {
                    let read = Entries::new(&block, format, place)
                        .find(|entry| entry.as_ref().map_or(true, |entry| entry.name == name))
                        .map(|entry| entry.map(|entry| entry.inode))
                        .transpose();
                    let found = find(&block, format, place, name);
                    assert_eq!(found.ok(), read.ok(), "{at}: {value}: {name:?}");
                }
            }
        }
    }

    #[test]
    fn whole_blocks_of_64_kib_have_two_encodings() {
        assert_eq!(length(0, 65536), 65536);
        assert_eq!(length(0xffff, 65536), 65536);
        assert_eq!(length(65524, 65536), 65524);
        assert_eq!(length(0, 4096), 0);
        for len in [12, 65524, 65536] {
            assert_eq!(length(u16::from_le_bytes(stored_length(len)), 65536), len);
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let hash = Some(DirHash { major: 0x0102_0304, minor: 0x0506_0708 });
        for (tail, with_hash) in [(0, false), (TAIL, false), (TAIL, true)] {
            let hash = hash.filter(|_| with_hash);
            let names: [(&[u8], FileType); 3] = [
                (b".", FileType::Directory),
                (b"link", FileType::Symlink),
                (&[b'n'; 255], FileType::Regular),
            ];
            let numbers = InodeNo::ROOT.run(3);
            let hash_of = |inode| hash.filter(|_| inode > InodeNo::ROOT);
            let records: Vec<_> = numbers
                .clone()
                .zip(names)
                .map(|(inode, (name, kind))| record_bytes(inode, name, Some(kind), hash_of(inode)))
                .collect();
            let block = leaf_bytes(1024, tail, &records);
            assert_eq!(has_tail(&block), tail > 0);
            let format = EntryFormat { with_hash, ..FORMAT };
            let place = Place::of(Structure::DirectoryBlock);
            let entries: Vec<_> = Entries::new(&block, format, place).map(Result::unwrap).collect();
            assert_eq!(entries.len(), 3);
            for ((inode, entry), (name, kind)) in numbers.zip(&entries).zip(names) {
                assert_eq!((entry.inode, entry.name, entry.kind), (inode, name, Some(kind)));
                assert_eq!(entry.hash, hash_of(inode));
            }
            let all: Vec<_> = Records::new(&block, tail, format, place).map(Result::unwrap).collect();
            let last = all[all.len() - 1];
            assert!(all.iter().map(|record| record.to_bytes()).eq(records));
            assert_eq!((all.len(), last.at + last.len), (3, 1024 - tail));
        }
    }
}
