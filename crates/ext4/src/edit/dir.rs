//! Names that come and go in directories.

use crate::edit::Writer;
use crate::edit::inode::InodeMut;
use crate::edit::name::{HASH, Name};
use crate::error::{Error, Place, Result, Structure, invalid};
use crate::format::bytes::{le16, le32};
use crate::format::csum::Subject;
use crate::format::features::{Compat, Incompat};
use crate::format::inode::{FileType, InodeFlags};
use crate::read::dir::BlockRole;
use crate::read::dirhash::DirHash;

/// The tail with the checksum of a leaf: an empty record of a type that no file has.
const TAIL: usize = 12;

/// A record of a leaf, in use or not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    pub at: usize,
    pub len: usize,
    /// 0 if the record is free.
    pub inode: u32,
    pub name: &'a [u8],
    /// What is stored behind the name in some directories.
    pub hash: Option<DirHash>,
    /// What is needed of `len`.
    pub used: usize,
}

/// The records of a leaf.
#[derive(Clone)]
pub(crate) struct Records<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Where the tail begins, if there is one.
    end: usize,
    /// Whether records have a type, and those of files their names' hashes.
    with_type: bool,
    with_hash: bool,
    place: Place,
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.at + 8 > self.end {
            return None;
        }
        let at = self.at;
        let rest = &self.bytes[at..];
        let inode = le32(rest, 0);
        let len = match le16(rest, 4) {
            0 | 0xffff if self.bytes.len() >= 1 << 16 => self.bytes.len(),
            other => usize::from(other),
        };
        let name_len = usize::from(if self.with_type { rest[6].into() } else { le16(rest, 6) });
        let hash_at = 8 + name_len.next_multiple_of(4);
        let has_hash =
            self.with_hash && inode != 0 && !matches!(rest.get(8..8 + name_len), Some(b"." | b".."));
        let used = if inode == 0 { 0 } else { hash_at + if has_hash { HASH } else { 0 } };
        if len < used.max(8) || len % 4 != 0 || len > rest.len() {
            self.at = self.end;
            return Some(Err(self.place.malformed(format!("the entry at byte {at} has {len} bytes"))));
        }
        let name = if inode == 0 { &[][..] } else { &rest[8..8 + name_len] };
        let hash = has_hash.then(|| DirHash { major: le32(rest, hash_at), minor: le32(rest, hash_at + 4) });
        self.at += len;
        Some(Ok(Record { at, len, inode, name, hash, used }))
    }
}

/// Where a name stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub inode: u32,
    block: u64,
    at: usize,
    len: usize,
    /// Where the record before it in the block begins, and its length.
    before: Option<(usize, usize)>,
}

impl Found {
    /// A name at this position in a directory whose names lie in its inode.
    pub fn in_inode(inode: u32, position: usize) -> Found {
        // No block of a directory has the number 0.
        Found { inode, block: 0, at: position, len: 0, before: None }
    }

    /// Whether both are one record of one directory.
    pub fn is_same_record(&self, other: &Found) -> bool {
        (self.block, self.at) == (other.block, other.at)
    }
}

/// A name that is to be put into a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewName<'a> {
    pub name: &'a Name,
    pub inode: u32,
    pub kind: FileType,
}

impl Writer {
    /// Puts a name into a directory that does not have it. The caller stores the directory's inode.
    pub(crate) fn insert_name(
        &mut self,
        dir: &mut InodeMut,
        name: &[u8],
        inode: u32,
        kind: FileType,
    ) -> Result<()> {
        let name = self.stored_name(dir, name, true)?;
        self.insert_stored(dir, &NewName { name: &name, inode, kind })
    }

    /// The same with a name as it is stored.
    pub(crate) fn insert_stored(&mut self, dir: &mut InodeMut, new: &NewName<'_>) -> Result<()> {
        self.refuse_directory(dir)?;
        if dir.has(InodeFlags::INLINE_DATA) {
            if self.insert_inline(dir, new)? {
                return Ok(());
            }
            self.spread_inline_directory(dir)?;
        }
        if self.is_indexed_mut(dir) {
            return self.insert_indexed(dir, new);
        }
        let blocks = self.directory_length(dir)?;
        let hint = self.hints.rooms.get(&dir.number()).copied().unwrap_or(0).min(blocks);
        for logical in hint..blocks {
            let block = self.leaf(dir, logical)?;
            if self.insert_into_leaf(dir, block, new)? {
                self.hints.rooms.insert(dir.number(), logical);
                return Ok(());
            }
        }
        self.hints.rooms.remove(&dir.number());
        if blocks == 1 && self.can_index(dir) {
            self.index_directory(dir)?;
            return self.insert_indexed(dir, new);
        }
        let (block, _) = self.append_leaf(dir)?;
        if self.insert_into_leaf(dir, block, new)? { Ok(()) } else { Err(name_too_long()) }
    }

    /// Finds a name.
    pub(crate) fn find_name(&mut self, dir: &InodeMut, name: &[u8]) -> Result<Option<Found>> {
        let name = self.stored_name(dir, name, false)?;
        self.find_stored(dir, &name)
    }

    /// Finds a name as it is stored.
    pub(crate) fn find_stored(&mut self, dir: &InodeMut, name: &Name) -> Result<Option<Found>> {
        self.refuse_directory(dir)?;
        if dir.has(InodeFlags::INLINE_DATA) {
            return self.find_inline(dir, name);
        }
        if self.is_indexed_mut(dir) && !matches!(&name.bytes[..], b"." | b"..") {
            return self.find_indexed(dir, name);
        }
        // Who takes many names takes them in their order.
        let blocks = self.directory_length(dir)?;
        let hint = self.hints.finds.get(&dir.number()).copied().unwrap_or(0).min(blocks);
        for logical in (hint..blocks).chain(0..hint) {
            let block = if logical == 0 && self.is_indexed_mut(dir) {
                self.htree_node(dir, 0)?
            } else {
                self.leaf(dir, logical)?
            };
            let found = self.find_in_block(dir, block, name)?;
            if found.is_some() {
                self.hints.finds.insert(dir.number(), logical);
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Removes a name that was found just before. The caller stores the directory's inode.
    pub(crate) fn remove_name(&mut self, dir: &mut InodeMut, found: &Found) -> Result<()> {
        if dir.has(InodeFlags::INLINE_DATA) {
            return self.remove_inline(dir, found.at);
        }
        let context = dir.context();
        self.hints.rooms.remove(&dir.number());
        self.hints.last_records.remove(&found.block);
        match found.before {
            Some((at, len)) => {
                let len = stored_record_length(len + found.len, self.block_size());
                self.space.transaction_mut().patch(
                    Subject::DirectoryBlock,
                    context,
                    found.block,
                    at + 4,
                    &len,
                )
            }
            None => self.space.transaction_mut().patch(
                Subject::DirectoryBlock,
                context,
                found.block,
                found.at,
                &[0; 4],
            ),
        }
    }

    /// Lets a name that was found just before stand for another inode.
    pub(crate) fn retarget_name(
        &mut self,
        dir: &InodeMut,
        found: &Found,
        inode: u32,
        kind: FileType,
    ) -> Result<()> {
        let context = dir.context();
        // ".." of an indexed directory stands in the tree's root.
        let indexed = self.is_indexed_mut(dir) && self.block_of(dir, 0)? == found.block;
        let subject = if indexed { Subject::HtreeNode } else { Subject::DirectoryBlock };
        let type_byte = [self.type_byte(kind)];
        let transaction = self.space.transaction_mut();
        transaction.patch(subject, context, found.block, found.at, &inode.to_le_bytes())?;
        transaction.patch(subject, context, found.block, found.at + 7, &type_byte)
    }

    /// Lets ".." of a directory stand for another parent.
    pub(crate) fn set_parent(&mut self, dir: &mut InodeMut, parent: u32) -> Result<()> {
        if dir.has(InodeFlags::INLINE_DATA) {
            dir.block_area_mut()[..4].copy_from_slice(&parent.to_le_bytes());
            return Ok(());
        }
        let place = Place::inode(Structure::Directory, dir.number());
        let found = self.find_name(dir, b"..")?.ok_or_else(|| place.malformed("has no entry \"..\""))?;
        self.retarget_name(dir, &found, parent, FileType::Directory)
    }

    /// The place for the first names of a new directory.
    pub(crate) fn first_leaf(&mut self, dir: &mut InodeMut, parent: u32) -> Result<()> {
        if self.start_inline_directory(dir, parent)? {
            return Ok(());
        }
        self.make_first_leaf(dir, parent, Vec::new())
    }

    /// The first block of a directory, with these records behind "." and "..".
    pub(crate) fn make_first_leaf(
        &mut self,
        dir: &mut InodeMut,
        parent: u32,
        records: Vec<Vec<u8>>,
    ) -> Result<()> {
        let [dot, dots] = [&b"."[..], b".."].map(|name| Name::exact(name, None));
        let own = NewName { name: &dot, inode: dir.number(), kind: FileType::Directory };
        let up = NewName { name: &dots, inode: parent, kind: FileType::Directory };
        let mut all = vec![self.record_bytes(&own), self.record_bytes(&up)];
        all.extend(records);
        let bytes = self.pack(&all);
        let (block, _) = self.append_block(dir)?;
        self.create_block(Subject::DirectoryBlock, dir.context(), block, bytes);
        Ok(())
    }

    /// Adds a block at a directory's end: where it lies, and its number in the directory. The caller fills it.
    pub(crate) fn append_block(&mut self, dir: &mut InodeMut) -> Result<(u64, u64)> {
        let logical = self.directory_length(dir)?;
        let mut block = None;
        self.fill(dir, logical, logical + 1, false, |run| block = Some(run.physical))?;
        let place = Place::inode(Structure::Directory, dir.number());
        let block = block.ok_or_else(|| place.malformed("has blocks behind its end"))?;
        dir.set_size((logical + 1) * self.block_size() as u64);
        Ok((block, logical))
    }

    /// Adds an empty leaf at a directory's end.
    pub(crate) fn append_leaf(&mut self, dir: &mut InodeMut) -> Result<(u64, u64)> {
        let (block, logical) = self.append_block(dir)?;
        let bytes = self.pack(&[]);
        self.create_block(Subject::DirectoryBlock, dir.context(), block, bytes);
        Ok((block, logical))
    }

    /// Puts a name into a leaf; false if it has no room.
    pub(crate) fn insert_into_leaf(&mut self, dir: &InodeMut, block: u64, new: &NewName<'_>) -> Result<bool> {
        let needed = new.name.record_len();
        let last = self.hints.last_records.get(&block).copied();
        let room = self.records(dir, block, |records| {
            // Most room is at the end.
            let last = last.and_then(|at| Records { at, ..records.clone() }.next()).filter(Result::is_ok);
            for record in last.into_iter().chain(records) {
                let Record { at, len, used, .. } = record?;
                if len - used >= needed {
                    return Ok(Some((at, len, used)));
                }
            }
            Ok::<_, Error>(None)
        })??;
        let Some((at, len, used)) = room else { return Ok(false) };
        if at + len == self.block_size() - self.tail_size() {
            self.hints.last_records.insert(block, at + used);
        }
        let context = dir.context();
        let mut record = self.record_bytes(new);
        record[4..6].copy_from_slice(&stored_record_length(len - used, self.block_size()));
        let (subject, part_at) = (Subject::DirectoryBlock, at + used);
        if used > 0 {
            let shrunk = stored_record_length(used, self.block_size());
            self.space.transaction_mut().patch(subject, context, block, at + 4, &shrunk)?;
        }
        let written = if new.name.hash.is_some() { record.len() } else { 8 + new.name.bytes.len() };
        self.space.transaction_mut().patch(subject, context, block, part_at, &record[..written])?;
        Ok(true)
    }

    /// Finds a name in a block that is in the cache.
    pub(crate) fn find_in_block(&self, dir: &InodeMut, block: u64, name: &Name) -> Result<Option<Found>> {
        self.records(dir, block, |records| {
            let mut before = None;
            for record in records {
                let record = record?;
                if record.inode != 0 && name.is(record.name, record.hash) {
                    let Record { at, len, inode, .. } = record;
                    return Ok(Some(Found { inode, block, at, len, before }));
                }
                before = Some((record.at, record.len));
            }
            Ok(None)
        })?
    }

    /// Calls `f` with the records of a block that is in the cache.
    pub(crate) fn records<T>(
        &self,
        dir: &InodeMut,
        block: u64,
        f: impl FnOnce(Records<'_>) -> T,
    ) -> Result<T> {
        let place = Place::inode(Structure::DirectoryBlock, dir.number()).at(block);
        let with_type = self.space.fs().superblock().incompat.has(Incompat::FILETYPE);
        let tail = self.tail_size();
        let with_hash = dir.has_hashes();
        self.space.transaction().with(block, |bytes| {
            let end = bytes.len() - tail;
            f(Records { bytes, at: 0, end, with_type, with_hash, place })
        })
    }

    /// The bytes of a record, as long as its name needs.
    pub(crate) fn record_bytes(&self, new: &NewName<'_>) -> Vec<u8> {
        let name = &new.name.bytes;
        let mut bytes = vec![0; new.name.record_len()];
        bytes[..4].copy_from_slice(&new.inode.to_le_bytes());
        // OK to truncate: names have at most 255 bytes.
        bytes[4..6].copy_from_slice(&(new.name.record_len() as u16).to_le_bytes());
        bytes[6] = name.len() as u8;
        bytes[7] = self.type_byte(new.kind);
        bytes[8..8 + name.len()].copy_from_slice(name);
        if let Some(DirHash { major, minor }) = new.name.hash {
            let at = bytes.len() - HASH;
            bytes[at..at + 4].copy_from_slice(&major.to_le_bytes());
            bytes[at + 4..].copy_from_slice(&minor.to_le_bytes());
        }
        bytes
    }

    /// A leaf with these records, without its checksum.
    pub(crate) fn pack(&self, records: &[Vec<u8>]) -> Vec<u8> {
        let size = self.block_size();
        let end = size - self.tail_size();
        let mut bytes = Vec::with_capacity(size);
        let mut last = 0;
        for record in records {
            last = bytes.len();
            bytes.extend_from_slice(record);
        }
        bytes.resize(size, 0);
        bytes[last + 4..last + 6].copy_from_slice(&stored_record_length(end - last, size));
        if self.tail_size() > 0 {
            bytes[end + 4..end + 8].copy_from_slice(&[TAIL as u8, 0, 0, 0xde]);
        }
        bytes
    }

    /// Where a leaf lies; it is in the cache then, and sound.
    pub(crate) fn leaf(&mut self, dir: &InodeMut, logical: u64) -> Result<u64> {
        let block = self.block_of(dir, logical)?;
        let context = dir.context();
        let place = Place::inode(Structure::DirectoryBlock, dir.number()).at(block);
        self.space.load(block, place, |bytes| {
            if !self.space.fs().verifies() {
                return Ok(());
            }
            self.space.fs().verify_directory_block(BlockRole::Leaf, &context, bytes, place)
        })?;
        Ok(block)
    }

    /// Where a directory's block lies.
    pub(crate) fn block_of(&self, dir: &InodeMut, logical: u64) -> Result<u64> {
        let run = self.run_from(dir, logical)?.filter(|run| run.logical <= logical);
        match run.filter(|run| !run.unwritten) {
            Some(run) => Ok(run.physical + (logical - run.logical)),
            None => {
                let place = Place::inode(Structure::Directory, dir.number());
                Err(place.malformed(format!("a hole at block {logical}")))
            }
        }
    }

    /// Blocks of a directory.
    pub(crate) fn directory_length(&self, dir: &InodeMut) -> Result<u64> {
        self.space.fs().directory_blocks(dir)
    }

    pub(crate) fn is_indexed_mut(&self, dir: &InodeMut) -> bool {
        dir.has(InodeFlags::INDEX)
            && !dir.has(InodeFlags::INLINE_DATA)
            && self.space.fs().superblock().compat.has(Compat::DIR_INDEX)
    }

    /// Whether a directory is empty but for "." and "..".
    pub(crate) fn is_empty_directory(&self, dir: &InodeMut) -> Result<bool> {
        let mut empty = true;
        self.space.fs().for_each_raw_entry(dir, &mut |entry| {
            empty = matches!(entry.name, b"." | b"..");
            Ok(if empty { std::ops::ControlFlow::Continue(()) } else { std::ops::ControlFlow::Break(()) })
        })?;
        Ok(empty)
    }

    pub(crate) fn tail_size(&self) -> usize {
        if self.space.transaction().sums().covers(Subject::DirectoryBlock) { TAIL } else { 0 }
    }

    /// Refuses what is no directory.
    fn refuse_directory(&self, dir: &InodeMut) -> Result<()> {
        if !dir.is_dir() {
            let text = format!("inode {} is no directory", dir.number());
            return Err(invalid(std::io::ErrorKind::NotADirectory, text));
        }
        Ok(())
    }

    fn type_byte(&self, kind: FileType) -> u8 {
        if !self.space.fs().superblock().incompat.has(Incompat::FILETYPE) {
            return 0;
        }
        match kind {
            FileType::Regular => 1,
            FileType::Directory => 2,
            FileType::CharacterDevice => 3,
            FileType::BlockDevice => 4,
            FileType::Fifo => 5,
            FileType::Socket => 6,
            FileType::Symlink => 7,
        }
    }
}

/// A record's length as it is stored: with 64 KiB blocks one length does not fit.
pub(crate) fn stored_record_length(len: usize, block: usize) -> [u8; 2] {
    match len {
        65536 if block == 65536 => u16::MAX.to_le_bytes(),
        // OK to truncate: shorter than 64 KiB.
        _ => (len as u16).to_le_bytes(),
    }
}

pub(crate) fn name_too_long() -> Error {
    invalid(std::io::ErrorKind::InvalidFilename, "a name has 1 to 255 bytes")
}
