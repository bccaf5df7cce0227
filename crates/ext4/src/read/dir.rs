//! Directories: records of names in blocks, or in the inode itself.
//!
//! Source: Documentation/filesystems/ext4/directory.rst. A directory with a hash tree is read like any other:
//! the tree's own blocks look like blocks with one empty record.

use std::ops::ControlFlow;

use crate::error::{Place, Result, Structure};
use crate::format::bytes::{le16, le32};
use crate::format::csum::{Context, Subject, htree_count_offset};
use crate::format::features::{Compat, Incompat};
use crate::format::inode::{FileType, Inode, InodeFlags};
use crate::read::dirhash::DirHash;
use crate::read::encryption::StoredName;
use crate::read::fs::Ext4;
use crate::read::runs::BlockRuns;

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The inode that the name stands for.
    pub inode: u32,
    /// Its kind, where entries tell (feature `filetype`).
    pub kind: Option<FileType>,
    /// The name, decrypted if the directory is encrypted and somebody can.
    pub name: Vec<u8>,
}

/// A record of a directory block, as it is stored.
#[derive(Clone, Copy, Debug)]
pub struct RawEntry<'a> {
    /// The inode, never 0.
    pub inode: u32,
    /// The kind, where entries tell.
    pub kind: Option<FileType>,
    /// The name as it is stored.
    pub name: &'a [u8],
    /// The hash that encrypted, casefolded directories store with each name.
    pub hash: Option<DirHash>,
    /// Where in the block the record begins.
    pub offset: usize,
}

/// What the records of a file system or directory look like.
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
    block: &'a [u8],
    at: usize,
    format: EntryFormat,
    place: Place,
}

impl<'a> Entries<'a> {
    /// The records of a block, or of a part of an inode that holds some.
    pub fn new(block: &'a [u8], format: EntryFormat, place: Place) -> Entries<'a> {
        Entries { block, at: 0, format, place }
    }

    fn record(&mut self) -> Result<Option<RawEntry<'a>>> {
        while self.at < self.block.len() {
            let offset = self.at;
            let malformed = |what: &str| self.place.malformed(format!("the entry at byte {offset} {what}"));
            let rest = &self.block[offset..];
            if rest.len() < 8 {
                return Err(malformed("passes the end"));
            }
            let inode = le32(rest, 0);
            let rec_len = record_length(le16(rest, 4), self.block.len());
            let name_len =
                if self.format.with_type { usize::from(rest[6]) } else { usize::from(le16(rest, 6)) };
            let dots = matches!(rest.get(8..8 + name_len), Some(b"." | b".."));
            let with_hash = self.format.with_hash && !dots && inode != 0;
            let needed = match inode {
                // A free record may keep anything as its name; the tail with the checksum looks like one.
                0 => 8,
                _ => 8 + name_len.next_multiple_of(4) + if with_hash { 8 } else { 0 },
            };
            if rec_len < needed || !rec_len.is_multiple_of(4) || rec_len > rest.len() {
                return Err(malformed(&format!("has {rec_len} bytes")));
            }
            self.at += rec_len;
            if inode == 0 {
                continue;
            }
            if inode > self.format.inodes || name_len == 0 {
                return Err(malformed(&format!("has inode {inode} and {name_len} bytes of name")));
            }
            let hash_at = 8 + name_len.next_multiple_of(4);
            let hash =
                with_hash.then(|| DirHash { major: le32(rest, hash_at), minor: le32(rest, hash_at + 4) });
            let kind = if self.format.with_type { kind_of(rest[7]) } else { None };
            return Ok(Some(RawEntry { inode, kind, name: &rest[8..8 + name_len], hash, offset }));
        }
        Ok(None)
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<RawEntry<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = self.record().transpose();
        if matches!(record, Some(Err(_))) {
            self.at = self.block.len();
        }
        record
    }
}

/// How long a record is: with 64 KiB blocks, lengths that don't fit 16 bits are stored in other ways.
fn record_length(stored: u16, block: usize) -> usize {
    match stored {
        0 | 0xffff if block >= 1 << 16 => block,
        // Above 64 KiB the two low bits, unused otherwise, would be bits 16 and 17.
        other => usize::from(other),
    }
}

/// What a block of a directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockRole {
    /// Records of names.
    Leaf,
    /// The hash tree's root, which holds "." and "..", or one of its inner nodes.
    Node,
}

impl Ext4 {
    /// The names in a directory without "." and "..", in the order of the disk.
    ///
    /// # Errors
    /// `Corrupt` when a block is damaged.
    pub fn read_dir(&self, dir: &Inode) -> Result<Vec<DirEntry>> {
        let mut list = Vec::new();
        self.for_each_entry(dir, |entry| {
            if !matches!(&*entry.name, b"." | b"..") {
                list.push(entry);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(list)
    }

    /// Calls `visit` for each name in a directory, "." and ".." among them, until it breaks.
    ///
    /// # Errors
    /// `Corrupt` when a block is damaged, and what `visit` returns.
    pub fn for_each_entry(
        &self,
        dir: &Inode,
        mut visit: impl FnMut(DirEntry) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let place = Place::inode(Structure::Directory, dir.number());
        let names = match (self.encrypted(dir)?, self.encryption()) {
            (Some(encrypted), Some(encryption)) => Some(encryption.names(&encrypted)?),
            _ => None,
        };
        let raw_names = names.is_none() && dir.has(InodeFlags::ENCRYPT);
        let hasher = if names.is_some() { self.name_hasher(dir)? } else { None };
        self.for_each_raw_entry(dir, &mut |entry| {
            let mut name = entry.name.to_vec();
            if !matches!(entry.name, b"." | b"..") {
                if let Some(names) = &names {
                    let hash = entry.hash.or_else(|| Some(hasher.as_ref()?.hash(entry.name)));
                    name = names.decode(StoredName { bytes: entry.name, hash })?;
                }
                // Ciphertext that nobody can read may hold any byte.
                if !raw_names && (name.is_empty() || name.contains(&b'/') || name.contains(&0)) {
                    return Err(place.malformed("a name with a slash or a NUL"));
                }
            }
            visit(DirEntry { inode: entry.inode, kind: entry.kind, name })
        })
    }

    /// Calls `visit` for each record in use, until it breaks.
    pub(crate) fn for_each_raw_entry(
        &self,
        dir: &Inode,
        visit: &mut dyn FnMut(RawEntry<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let place = Place::inode(Structure::Directory, dir.number());
        if !dir.is_dir() {
            let text = format!("inode {} is a {}, no directory", dir.number(), dir.kind().name());
            return Err(crate::Error::path(std::io::ErrorKind::NotADirectory, text));
        }
        let format = self.entry_format(dir);
        if dir.has(InodeFlags::INLINE_DATA) {
            return self.inline_entries(dir, format, visit);
        }
        let blocks = self.directory_blocks(dir)?;
        let mut next = 0;
        // Without this, a block could stand for any number of names.
        let mut used = BlockRuns::default();
        self.mappings(dir, 0, |run| {
            if run.logical >= blocks {
                return Ok(ControlFlow::Break(()));
            }
            if run.logical != next || run.unwritten {
                return Err(place.malformed(format!("a hole at block {next}")));
            }
            next = run.end().min(blocks);
            if !used.insert(run.physical, next - run.logical) {
                return Err(place.malformed(format!("has blocks twice, such as {}", run.physical)));
            }
            for logical in run.logical..next {
                let physical = run.physical + (logical - run.logical);
                let (bytes, _) = self.directory_block(dir, logical, physical)?;
                let place = Place::inode(Structure::DirectoryBlock, dir.number()).at(physical);
                for entry in Entries::new(&bytes, format, place) {
                    if visit(entry?)?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    /// A block of a directory, its checksum checked, and what it is.
    pub(crate) fn directory_block(
        &self,
        dir: &Inode,
        logical: u64,
        physical: u64,
    ) -> Result<(Vec<u8>, BlockRole)> {
        let bytes = self.read_block(physical)?;
        let role = self.block_role(dir, logical, &bytes);
        let context = dir.context();
        let structure = match role {
            BlockRole::Leaf => Structure::DirectoryBlock,
            BlockRole::Node => Structure::HtreeNode,
        };
        let place = Place::inode(structure, dir.number()).at(physical);
        if self.verifies() {
            self.verify_directory_block(role, &context, &bytes, place)?;
        }
        Ok((bytes, role))
    }

    /// Checks the checksum of a directory block, and that a leaf has the tail that holds it.
    pub(crate) fn verify_directory_block(
        &self,
        role: BlockRole,
        context: &Context,
        bytes: &[u8],
        place: Place,
    ) -> Result<()> {
        let subject = match role {
            BlockRole::Leaf => Subject::DirectoryBlock,
            BlockRole::Node => Subject::HtreeNode,
        };
        if role == BlockRole::Leaf && self.checksums().covers(subject) {
            // An empty record of twelve bytes with a type that no file has.
            let tail = &bytes[bytes.len() - 12..];
            if tail[..8] != [0, 0, 0, 0, 12, 0, 0, 0xde] {
                return Err(place.malformed("has no tail with a checksum"));
            }
        }
        self.checksums().verify(subject, context, bytes, place)
    }

    /// What a block of a directory is, from its first bytes.
    pub(crate) fn block_role(&self, dir: &Inode, logical: u64, bytes: &[u8]) -> BlockRole {
        if !self.is_indexed(dir) {
            return BlockRole::Leaf;
        }
        match (logical, htree_count_offset(bytes)) {
            (0, _) => BlockRole::Node,
            // A node begins with an empty record as long as the block; an empty leaf leaves room for its tail.
            (_, Some(8)) if le32(bytes, 0) == 0 && self.is_fake_record(bytes) => BlockRole::Node,
            _ => BlockRole::Leaf,
        }
    }

    /// Whether a directory has a hash tree.
    pub fn is_indexed(&self, dir: &Inode) -> bool {
        dir.has(InodeFlags::INDEX)
            && !dir.has(InodeFlags::INLINE_DATA)
            && self.superblock().compat.has(Compat::DIR_INDEX)
    }

    /// What a directory's records look like.
    pub(crate) fn entry_format(&self, dir: &Inode) -> EntryFormat {
        EntryFormat {
            with_type: self.superblock().incompat.has(Incompat::FILETYPE),
            with_hash: dir.has(InodeFlags::ENCRYPT) && dir.has(InodeFlags::CASEFOLD),
            inodes: self.layout().inodes,
        }
    }

    /// How many blocks a directory has.
    pub(crate) fn directory_blocks(&self, dir: &Inode) -> Result<u64> {
        let block_size = u64::from(self.layout().block_size);
        let place = Place::inode(Structure::Directory, dir.number());
        // Without large_dir the high half of a directory's size was something else.
        let large = self.superblock().incompat.has(Incompat::LARGEDIR);
        let size = if large { dir.size() } else { dir.size() & 0xffff_ffff };
        if size % block_size != 0 || size / block_size > self.layout().blocks {
            return Err(place.malformed(format!("a size of {size} bytes")));
        }
        Ok(size / block_size)
    }

    /// The records of a directory that lies in its inode: the parent's number, then records in the rest of
    /// the block area and in an attribute.
    fn inline_entries(
        &self,
        dir: &Inode,
        format: EntryFormat,
        visit: &mut dyn FnMut(RawEntry<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let place = Place::inode(Structure::InlineData, dir.number());
        let data = self.inline_data(dir)?;
        let (head, rest) = data.split_at_checked(60).ok_or_else(|| place.malformed("fewer than 60 bytes"))?;
        let parent = le32(head, 0);
        if parent == 0 || parent > format.inodes {
            return Err(place.malformed(format!("the parent is inode {parent}")));
        }
        let kind = format.with_type.then_some(FileType::Directory);
        for (inode, name) in [(dir.number(), &b"."[..]), (parent, b"..")] {
            if visit(RawEntry { inode, kind, name, hash: None, offset: 0 })?.is_break() {
                return Ok(());
            }
        }
        let entries = Entries::new(&head[4..], format, place).chain(Entries::new(rest, format, place));
        for entry in entries {
            if visit(entry?)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn is_fake_record(&self, bytes: &[u8]) -> bool {
        bytes[6] == 0 && bytes[7] == 0
    }
}

/// What kind of file an entry's byte stands for.
fn kind_of(byte: u8) -> Option<FileType> {
    Some(match byte {
        1 => FileType::Regular,
        2 => FileType::Directory,
        3 => FileType::CharacterDevice,
        4 => FileType::BlockDevice,
        5 => FileType::Fifo,
        6 => FileType::Socket,
        7 => FileType::Symlink,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn whole_blocks_of_64_kib_have_two_encodings() {
        assert_eq!(record_length(0, 65536), 65536);
        assert_eq!(record_length(0xffff, 65536), 65536);
        assert_eq!(record_length(65524, 65536), 65524);
        assert_eq!(record_length(0, 4096), 0);
    }
}
