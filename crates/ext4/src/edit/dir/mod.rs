//! Names that come and go in directories.

mod htree;
mod inline;
pub(crate) mod name;

use std::collections::HashMap;

use crate::edit::dir::name::Name;
use crate::edit::encrypted::stored_name;
use crate::edit::inodes::Inodes;
use crate::error::{Error, Place, Result, Structure, invalid, no_space};
use crate::format::csum::Subject;
use crate::format::dir::{self, Record, Records};
use crate::format::features::Incompat;
use crate::format::htree::BLOCK_BITS;
use crate::format::inline as inline_data;
use crate::format::inode::{FileType, Inode, InodeFlags};
use crate::read::dir::BlockRole;
use crate::read::fs::Ext4;
use crate::transaction::Transaction;
use crate::units::{Block, InodeNo};

/// Where to look first. Wrong hints cost time and nothing else.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    /// For each directory without an index, the first block that may have room.
    rooms: HashMap<InodeNo, u64>,
    /// For each directory without an index, the block that a name was found in last.
    finds: HashMap<InodeNo, u64>,
    /// For each leaf that names were put into, the byte that its last record begins at.
    last_records: HashMap<Block, usize>,
}

impl Hints {
    /// Forgets a directory that is gone.
    pub fn forget(&mut self, number: InodeNo) {
        self.rooms.remove(&number);
        self.finds.remove(&number);
    }

    /// Forgets blocks, which may become others' from now on.
    pub fn forget_blocks(&mut self) {
        self.last_records.clear();
    }
}

/// A directory's names, to look at and to change. The caller stores the directory's inode.
pub(crate) struct Directory<'t> {
    inodes: &'t mut Inodes,
    hints: &'t mut Hints,
    dir: &'t mut Inode,
}

/// Where a name stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub inode: InodeNo,
    block: Block,
    at: usize,
    len: usize,
    /// Where the record before it in the block begins, and its length.
    before: Option<(usize, usize)>,
}

impl Found {
    /// A name at this position in a directory whose names lie in its inode.
    pub fn in_inode(inode: InodeNo, position: usize) -> Found {
        // No block of a directory has the number 0.
        Found { inode, block: Block::default(), at: position, len: 0, before: None }
    }

    /// Whether the name lies in the directory's inode.
    pub fn is_in_inode(&self) -> bool {
        self.block == Block::default()
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
    pub inode: InodeNo,
    pub kind: FileType,
}

impl<'t> Directory<'t> {
    pub fn new(inodes: &'t mut Inodes, hints: &'t mut Hints, dir: &'t mut Inode) -> Directory<'t> {
        Directory { inodes, hints, dir }
    }

    fn fs(&self) -> &Ext4 {
        self.inodes.fs()
    }

    fn transaction(&mut self) -> &mut Transaction {
        self.inodes.transaction()
    }

    fn block_size(&self) -> usize {
        self.inodes.space().block_size()
    }

    /// Puts a new block in place, with its checksum.
    fn create_block(&mut self, subject: Subject, block: Block, bytes: Vec<u8>) {
        let context = self.dir.context();
        self.hints.last_records.remove(&block);
        self.transaction().create_structure(subject, context, block, bytes);
    }

    /// Puts a name into a directory that does not have it. The caller stores the directory's inode.
    pub fn insert(&mut self, name: &[u8], inode: InodeNo, kind: FileType) -> Result<()> {
        let name = stored_name(self.fs(), self.dir, name, true)?;
        self.insert_stored(&NewName { name: &name, inode, kind })
    }

    /// Inserts a name as it is stored.
    pub fn insert_stored(&mut self, new: &NewName<'_>) -> Result<()> {
        self.refuse_directory()?;
        if self.dir.has(InodeFlags::INLINE_DATA) {
            if self.insert_inline(new)? {
                return Ok(());
            }
            self.spread_inline_directory()?;
        }
        if self.is_indexed() {
            return self.insert_indexed(new);
        }
        let blocks = self.length()?;
        let hint = self.hints.rooms.get(&self.dir.number()).copied().unwrap_or(0).min(blocks);
        for logical in hint..blocks {
            let block = self.leaf(logical)?;
            if self.insert_into_leaf(block, new)? {
                self.hints.rooms.insert(self.dir.number(), logical);
                return Ok(());
            }
        }
        self.hints.rooms.remove(&self.dir.number());
        if blocks == 1 && self.can_index() {
            self.index_directory()?;
            return self.insert_indexed(new);
        }
        let (block, _) = self.append_leaf()?;
        if self.insert_into_leaf(block, new)? { Ok(()) } else { Err(name_too_long()) }
    }

    /// Finds a name.
    pub fn find(&mut self, name: &[u8]) -> Result<Option<Found>> {
        let name = stored_name(self.fs(), self.dir, name, false)?;
        self.find_stored(&name)
    }

    /// Finds a name as it is stored.
    pub fn find_stored(&mut self, name: &Name) -> Result<Option<Found>> {
        self.refuse_directory()?;
        if self.dir.has(InodeFlags::INLINE_DATA) {
            return self.find_inline(name);
        }
        if self.is_indexed() && !matches!(&name.bytes[..], b"." | b"..") {
            return self.find_indexed(name);
        }
        // Who takes many names takes them in their order.
        let blocks = self.length()?;
        let hint = self.hints.finds.get(&self.dir.number()).copied().unwrap_or(0).min(blocks);
        for logical in (hint..blocks).chain(0..hint) {
            let block =
                if logical == 0 && self.is_indexed() { self.htree_node(0)? } else { self.leaf(logical)? };
            let found = self.find_in_block(block, name)?;
            if found.is_some() {
                self.hints.finds.insert(self.dir.number(), logical);
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Removes a name that was found just before. The caller stores the directory's inode.
    pub fn remove(&mut self, found: &Found) -> Result<()> {
        if self.dir.has(InodeFlags::INLINE_DATA) {
            return self.remove_inline(found.at);
        }
        let context = self.dir.context();
        self.hints.rooms.remove(&self.dir.number());
        self.hints.last_records.remove(&found.block);
        match found.before {
            Some((at, len)) => {
                let len = dir::stored_length(len + found.len);
                self.transaction().patch(
                    Subject::DirectoryBlock,
                    context,
                    found.block,
                    dir::LENGTH.from(at).at(),
                    &len,
                )
            }
            None => {
                let at = dir::INODE.from(found.at).at();
                self.transaction().patch(Subject::DirectoryBlock, context, found.block, at, &[0; 4])
            }
        }
    }

    /// Points a name that was found just before to another inode.
    pub fn retarget(&mut self, found: &Found, inode: InodeNo, kind: FileType) -> Result<()> {
        let context = self.dir.context();
        // ".." of an indexed directory stands in the tree's root.
        let indexed = self.is_indexed() && self.block_of(0)? == found.block;
        let subject = if indexed { Subject::HtreeNode } else { Subject::DirectoryBlock };
        let byte = self.stored_kind(kind).map_or(0, dir::byte_of);
        let (inode_at, kind_at) = (dir::INODE.from(found.at).at(), dir::KIND.from(found.at).at());
        let transaction = self.transaction();
        transaction.patch(subject, context, found.block, inode_at, &inode.get().to_le_bytes())?;
        transaction.patch(subject, context, found.block, kind_at, &[byte])
    }

    /// Points ".." of a directory to another parent.
    pub fn set_parent(&mut self, parent: InodeNo) -> Result<()> {
        if self.dir.has(InodeFlags::INLINE_DATA) {
            inline_data::set_parent(self.dir.block_area_mut(), parent);
            return Ok(());
        }
        let place = Place::inode(Structure::Directory, self.dir.number());
        let found = self.find(b"..")?.ok_or_else(|| place.malformed("has no entry \"..\""))?;
        self.retarget(&found, parent, FileType::Directory)
    }

    /// The place for the first names of a new directory.
    pub fn first_leaf(&mut self, parent: InodeNo) -> Result<()> {
        if self.start_inline_directory(parent)? {
            return Ok(());
        }
        self.make_first_leaf(parent, Vec::new())
    }

    /// The first block of a directory, with these records behind "." and "..".
    pub fn make_first_leaf(&mut self, parent: InodeNo, records: Vec<Vec<u8>>) -> Result<()> {
        let [dot, dots] = [&b"."[..], b".."].map(|name| Name::exact(name, None));
        let own = NewName { name: &dot, inode: self.dir.number(), kind: FileType::Directory };
        let up = NewName { name: &dots, inode: parent, kind: FileType::Directory };
        let mut all = vec![self.record_bytes(&own), self.record_bytes(&up)];
        all.extend(records);
        let bytes = self.pack(&all);
        let (block, _) = self.append_block()?;
        self.create_block(Subject::DirectoryBlock, block, bytes);
        Ok(())
    }

    /// Adds a block at a directory's end: where it lies, and its number in the directory. The caller fills it.
    ///
    /// # Errors
    /// `StorageFull` for more blocks than an index can name, or a size can tell.
    pub fn append_block(&mut self) -> Result<(Block, u32)> {
        let full = || no_space("room in the directory");
        let logical = u32::try_from(self.length()?).ok().filter(|number| *number <= BLOCK_BITS);
        let logical = logical.ok_or_else(full)?;
        let (first, end) = (u64::from(logical), u64::from(logical) + 1);
        let size = end * self.inodes.space().block_bytes();
        if u32::try_from(size).is_err() && !self.fs().superblock().incompat.has(Incompat::LARGEDIR) {
            return Err(full());
        }
        let mut block = None;
        self.inodes.map(self.dir).fill(first, end, false, |run| block = Some(run.physical))?;
        let place = Place::inode(Structure::Directory, self.dir.number());
        let block = block.ok_or_else(|| place.malformed("has blocks behind its end"))?;
        self.dir.set_size(size);
        Ok((block, logical))
    }

    /// Adds an empty leaf at a directory's end.
    pub fn append_leaf(&mut self) -> Result<(Block, u32)> {
        let (block, logical) = self.append_block()?;
        let bytes = self.pack(&[]);
        self.create_block(Subject::DirectoryBlock, block, bytes);
        Ok((block, logical))
    }

    /// Puts a name into a leaf; false if it has no room.
    pub fn insert_into_leaf(&mut self, block: Block, new: &NewName<'_>) -> Result<bool> {
        let needed = new.name.record_len();
        let last = self.hints.last_records.get(&block).copied();
        let room = self.records(block, |records| {
            // Most room is at the end.
            let last = last.and_then(|at| records.clone().from(at).next()).filter(Result::is_ok);
            for record in last.into_iter().chain(records) {
                let Record { at, len, stored, .. } = record?;
                let used = stored.len();
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
        let context = self.dir.context();
        let mut record = self.record_bytes(new);
        dir::set_length(&mut record, len - used);
        let (subject, part_at) = (Subject::DirectoryBlock, at + used);
        if used > 0 {
            let shrunk = dir::stored_length(used);
            self.transaction().patch(subject, context, block, dir::LENGTH.from(at).at(), &shrunk)?;
        }
        let written = if new.name.hash.is_some() { record.len() } else { dir::NAME + new.name.bytes.len() };
        self.transaction().patch(subject, context, block, part_at, &record[..written])?;
        Ok(true)
    }

    /// Finds a name in a block that is in the cache.
    pub fn find_in_block(&self, block: Block, name: &Name) -> Result<Option<Found>> {
        self.records(block, |records| {
            let mut before = None;
            for record in records {
                let record = record?;
                let Record { at, len, inode, .. } = record;
                if let Some(inode) = inode.filter(|_| name.is(record.name, record.hash)) {
                    return Ok(Some(Found { inode, block, at, len, before }));
                }
                before = Some((record.at, record.len));
            }
            Ok(None)
        })?
    }

    /// Calls `f` with the records of a block that is in the cache.
    pub fn records<T>(&self, block: Block, f: impl FnOnce(Records<'_>) -> T) -> Result<T> {
        let place = Place::inode(Structure::DirectoryBlock, self.dir.number()).at(block);
        let (format, tail) = (self.fs().entry_format(self.dir), self.tail_size());
        self.inodes.space().transaction().with(block, |bytes| f(Records::new(bytes, tail, format, place)))
    }

    /// The bytes of a record, as long as its name needs.
    pub fn record_bytes(&self, new: &NewName<'_>) -> Vec<u8> {
        dir::record_bytes(new.inode, &new.name.bytes, self.stored_kind(new.kind), new.name.hash)
    }

    /// A leaf with these records, without its checksum.
    pub fn pack(&self, records: &[Vec<u8>]) -> Vec<u8> {
        dir::leaf_bytes(self.block_size(), self.tail_size(), records)
    }

    /// Where a leaf lies; it is in the cache then, and sound.
    pub fn leaf(&mut self, logical: u64) -> Result<Block> {
        let block = self.block_of(logical)?;
        let context = self.dir.context();
        let place = Place::inode(Structure::DirectoryBlock, self.dir.number()).at(block);
        self.inodes.space().load(block, place, |bytes| {
            if !self.fs().verifies() {
                return Ok(());
            }
            self.fs().verify_directory_block(BlockRole::Leaf, &context, bytes, place)
        })?;
        Ok(block)
    }

    /// Where a directory's block lies.
    pub fn block_of(&self, logical: u64) -> Result<Block> {
        let run = self.inodes.view(self.dir).run_from(logical)?.filter(|run| run.logical <= logical);
        match run.filter(|run| !run.unwritten) {
            Some(run) => Ok(run.physical + (logical - run.logical)),
            None => {
                let place = Place::inode(Structure::Directory, self.dir.number());
                Err(place.malformed(format!("a hole at block {logical}")))
            }
        }
    }

    /// Blocks of a directory.
    pub fn length(&self) -> Result<u64> {
        self.fs().directory_blocks(self.dir)
    }

    pub fn is_indexed(&self) -> bool {
        self.fs().is_indexed(self.dir)
    }

    /// Whether a directory is empty but for "." and "..".
    pub fn is_empty(&self) -> Result<bool> {
        let mut empty = true;
        self.fs().for_each_raw_entry(self.dir, &mut |entry| {
            empty = matches!(entry.name, b"." | b"..");
            Ok(if empty { std::ops::ControlFlow::Continue(()) } else { std::ops::ControlFlow::Break(()) })
        })?;
        Ok(empty)
    }

    pub fn tail_size(&self) -> usize {
        if self.inodes.space().transaction().sums().covers(Subject::DirectoryBlock) { dir::TAIL } else { 0 }
    }

    /// Refuses what is not a directory.
    fn refuse_directory(&self) -> Result<()> {
        if !self.dir.is_dir() {
            let text = format!("inode {} is not a directory", self.dir.number());
            return Err(invalid(std::io::ErrorKind::NotADirectory, text));
        }
        Ok(())
    }

    /// The kind that a record stores for a file of this kind.
    fn stored_kind(&self, kind: FileType) -> Option<FileType> {
        self.fs().superblock().incompat.has(Incompat::FILETYPE).then_some(kind)
    }
}

pub(crate) fn name_too_long() -> Error {
    invalid(std::io::ErrorKind::InvalidFilename, "a name has 1 to 255 bytes")
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::sync::Arc;

    use casemate_blockdev::FileDevice;
    use casemate_testkit::{mke2fs, tempdir, tool};

    use crate::{NewNode, RecoveryFile, WriteOptions, Writer};

    /// Sizes that no directory comes to by itself, in file systems that have room for them.
    #[test]
    fn no_block_is_added_that_size_and_index_have_no_numbers_for() {
        let Some(mke2fs) = tool("mke2fs") else { return };
        let folder = tempdir().unwrap();
        let image = folder.path().join("image");
        for (features, size, most) in
            [("^has_journal", "5G", (1 << 32) - 4096), ("^has_journal,large_dir", "1025G", 1_u64 << 40)]
        {
            mke2fs::make(&mke2fs, &format!("-t ext4 -b 4096 -N 100000 -O {features}"), &image, size);
            let device = Arc::new(FileDevice::open_writable(&image).unwrap());
            let recovery = Some(RecoveryFile::new(folder.path().join("image.redo")));
            let options = WriteOptions { recovery, ..WriteOptions::default() };
            let mut writer = Writer::open(device, options).unwrap();
            writer.make_directory(b"/d", &NewNode::new(0o755), false).unwrap();
            let number = writer.fs().resolve(b"/d", false).unwrap().number();
            let files = writer.files_mut();
            let mut dir = files.inodes().get(number).unwrap();
            let mut append = |size| {
                dir.set_size(size);
                files.directory(&mut dir).append_leaf().map(|_| dir.size())
            };
            assert_eq!(append(most - 4096).unwrap(), most);
            assert_eq!(append(most).unwrap_err().io_kind(), Some(ErrorKind::StorageFull), "{features}");
        }
    }
}
