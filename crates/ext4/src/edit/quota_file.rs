//! Entries of quota files, found, changed, made and removed.

use std::ops::Range;

use casemate_blockdev::usize_of;

use crate::alloc::Allocator;
use crate::edit::file_map::FileMap;
use crate::edit::inode::write;
use crate::error::{Error, Place, Result, Structure};
use crate::format::field::Le32;
use crate::format::inode::Time;
use crate::format::quota::{
    self, BEFORE, BLOCK, BLOCKS, ENTRIES, ENTRY, FREE_BLOCK, FREE_ENTRY, ID, INODES, Kind, LEVELS, NEXT,
    ROOT, SPACE, USED, entries, slot,
};
use crate::units::{Block, InodeNo};

/// Where an entry lies: a block of the file system, and the byte in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryPlace {
    physical: Block,
    at: usize,
}

/// Bytes and inodes, or how many more or less of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub space: i64,
    pub inodes: i64,
}

/// A quota file, to change.
pub(crate) struct QuotaFile<'t> {
    space: &'t mut Allocator,
    /// Its inode.
    file: InodeNo,
    now: Time,
}

impl<'t> QuotaFile<'t> {
    pub fn new(space: &'t mut Allocator, file: InodeNo, now: Time) -> QuotaFile<'t> {
        QuotaFile { space, file, now }
    }

    /// The entry of an id, made if there is none.
    pub fn entry(&mut self, kind: Kind, id: u32) -> Result<EntryPlace> {
        self.check(kind)?;
        let (block, at) = self.find(id)?;
        let (physical, base) = self.place(block)?;
        Ok(EntryPlace { physical, at: base + at })
    }

    /// Puts an entry in place of that of its id: limits and usage.
    pub fn put(&mut self, kind: Kind, entry: &[u8]) -> Result<()> {
        let EntryPlace { physical, at } = self.entry(kind, ID.get(entry))?;
        let mut entry = entry.to_vec();
        quota::keep(&mut entry);
        self.space.transaction_mut().update(physical, |edit| edit.write(at, &entry))
    }

    /// Finds an identifier's entry. Returns the block of the file, and the byte in it.
    fn find(&mut self, id: u32) -> Result<(u32, usize)> {
        let mut block = ROOT;
        for level in 0..LEVELS {
            let next = self.word(block, slot(id, level))?;
            if next == 0 {
                return self.insert(id, block, level);
            }
            block = self.checked(next)?;
        }
        let bytes = self.bytes(block)?;
        let is_it = |at: &usize| ID.from(*at).get(&bytes) == id && !quota::is_free(&bytes[*at..]);
        match entries().find(is_it) {
            Some(at) => Ok((block, at)),
            None => Err(damaged(self.file, format!("block {block} lacks the entry of {id}"))),
        }
    }

    /// Adds to an entry. False if nothing is in it any more.
    pub fn change(&mut self, place: EntryPlace, change: Usage) -> Result<bool> {
        let EntryPlace { physical, at } = place;
        let mut entry = self.space.transaction().with(physical, |bytes| bytes[at..at + ENTRY].to_vec())?;
        for (counter, change) in [(SPACE, change.space), (INODES, change.inodes)] {
            if counter.add(&mut entry, change) {
                let now = self.now.seconds.max(1).cast_unsigned();
                counter.set_time(&mut entry, now + u64::from(self.word(0, counter.grace)?));
            }
        }
        quota::keep(&mut entry);
        let is_used = quota::is_used(&entry);
        self.space.transaction_mut().update(physical, |edit| edit.write(at, &entry))?;
        Ok(is_used)
    }

    /// Removes an entry that holds nothing, and the blocks that only it needed.
    pub fn remove(&mut self, id: u32) -> Result<()> {
        let (block, at) = self.find(id)?;
        let mut path = vec![ROOT];
        for level in 0..LEVELS - 1 {
            path.push(self.word(path[level], slot(id, level))?);
        }
        self.write(block, at, &[0; ENTRY])?;
        let used = USED.get(&self.bytes(block)?);
        let left = used.checked_sub(1);
        let left = left.ok_or_else(|| damaged(self.file, format!("block {block} counts no entries")))?;
        self.write(block, USED.at(), &left.to_le_bytes())?;
        if left == 0 {
            self.unlist_room(block)?;
            self.free_block(block)?;
        } else if usize::from(left) == ENTRIES - 1 {
            self.list_room(block)?;
        }
        for (level, node) in path.into_iter().enumerate().rev() {
            self.set_word(node, slot(id, level), 0)?;
            let is_empty = self.bytes(node)?.iter().all(|byte| *byte == 0);
            if node == ROOT || !is_empty {
                break;
            }
            self.free_block(node)?;
        }
        Ok(())
    }

    /// Makes the entry of an id whose way through the tree ends in `node`.
    fn insert(&mut self, id: u32, mut node: u32, level: usize) -> Result<(u32, usize)> {
        for level in level..LEVELS - 1 {
            let next = self.take_block()?;
            self.set_word(node, slot(id, level), next)?;
            node = next;
        }
        let block = match self.word(0, FREE_ENTRY)? {
            0 => {
                let block = self.take_block()?;
                self.list_room(block)?;
                block
            }
            block => self.checked(block)?,
        };
        let bytes = self.bytes(block)?;
        let free = entries().find(|at| quota::is_free(&bytes[*at..]));
        let Some(at) = free else {
            return Err(damaged(self.file, format!("block {block} is full and said to have room")));
        };
        let used = USED.get(&bytes).saturating_add(1);
        if usize::from(used) >= ENTRIES {
            self.unlist_room(block)?;
        }
        self.write(block, USED.at(), &used.to_le_bytes())?;
        self.set_word(block, ID.from(at), id)?;
        self.set_word(node, slot(id, 3), block)?;
        Ok((block, at))
    }

    /// Puts a block of entries at the front of the list of those with room.
    fn list_room(&mut self, block: u32) -> Result<()> {
        let first = self.word(0, FREE_ENTRY)?;
        if first != 0 {
            let first = self.checked(first)?;
            self.set_word(first, BEFORE, block)?;
        }
        self.set_word(block, NEXT, first)?;
        self.set_word(block, BEFORE, 0)?;
        self.set_word(0, FREE_ENTRY, block)
    }

    /// Takes a block of entries out of that list.
    fn unlist_room(&mut self, block: u32) -> Result<()> {
        let (next, before) = (self.word(block, NEXT)?, self.word(block, BEFORE)?);
        if next != 0 {
            let next = self.checked(next)?;
            self.set_word(next, BEFORE, before)?;
        }
        if before != 0 {
            let before = self.checked(before)?;
            self.set_word(before, NEXT, next)?;
        } else if self.word(0, FREE_ENTRY)? == block {
            self.set_word(0, FREE_ENTRY, next)?;
        }
        self.set_word(block, NEXT, 0)?;
        self.set_word(block, BEFORE, 0)
    }

    /// A block of zeros for the tree: one that was free, or a new one at the file's end.
    fn take_block(&mut self) -> Result<u32> {
        match self.word(0, FREE_BLOCK)? {
            0 => {
                let block = self.word(0, BLOCKS)?;
                let blocks = block.checked_add(1).filter(|_| block > ROOT);
                let blocks = blocks.ok_or_else(|| damaged(self.file, format!("has {block} blocks")))?;
                self.grow(block)?;
                self.set_word(0, BLOCKS, blocks)?;
                Ok(block)
            }
            block => {
                let block = self.checked(block)?;
                let next = self.word(block, NEXT)?;
                self.set_word(0, FREE_BLOCK, next)?;
                self.write(block, 0, &[0; BLOCK])?;
                Ok(block)
            }
        }
    }

    fn free_block(&mut self, block: u32) -> Result<()> {
        let first = self.word(0, FREE_BLOCK)?;
        self.write(block, 0, &[0; BLOCK])?;
        self.set_word(block, NEXT, first)?;
        self.set_word(0, FREE_BLOCK, block)
    }

    /// Appends this block to a quota file.
    fn grow(&mut self, block: u32) -> Result<()> {
        let size = self.space.block_bytes();
        let bytes = quota::range(block);
        let mut inode = self.space.fs().any_inode(self.file)?;
        let logical = bytes.start / size;
        let mut new = None;
        FileMap::new(self.space, &mut inode)
            .fill(logical, logical + 1, false, |run| new = Some(run.physical))?;
        if let Some(new) = new {
            self.space.transaction_mut().create_zeroed(new);
        }
        if inode.size() < bytes.end {
            inode.set_size(bytes.end);
        }
        write(self.space, &inode)?;
        self.write(block, 0, &[0; BLOCK])
    }

    fn check(&self, kind: Kind) -> Result<()> {
        kind.check(&self.bytes(0)?, Place::inode(Structure::QuotaFile, self.file))
    }

    /// A block number that a quota file names, checked.
    fn checked(&self, block: u32) -> Result<u32> {
        if block > ROOT && block < self.word(0, BLOCKS)? {
            return Ok(block);
        }
        Err(damaged(self.file, format!("names block {block}")))
    }

    fn word(&self, block: u32, field: Le32) -> Result<u32> {
        let (physical, base) = self.place(block)?;
        self.space.transaction().with(physical, |bytes| field.from(base).get(bytes))
    }

    fn bytes(&self, block: u32) -> Result<Vec<u8>> {
        let (physical, base) = self.place(block)?;
        self.space.transaction().with(physical, |bytes| bytes[base..base + BLOCK].to_vec())
    }

    fn set_word(&mut self, block: u32, field: Le32, value: u32) -> Result<()> {
        self.write(block, field.at(), &value.to_le_bytes())
    }

    fn write(&mut self, block: u32, at: usize, new: &[u8]) -> Result<()> {
        let (physical, base) = self.place(block)?;
        self.space.transaction_mut().update(physical, |edit| edit.write(base + at, new))?;
        Ok(())
    }

    /// The block of the file system that a quota file's block lies in, and where in it.
    fn place(&self, block: u32) -> Result<(Block, usize)> {
        let inode = self.space.fs().any_inode(self.file)?;
        let Range { start, end } = quota::range(block);
        let size = self.space.block_bytes();
        if end > inode.size() {
            return Err(damaged(self.file, format!("ends before block {block}")));
        }
        let mapping = self.space.fs().mapping_at(&inode, start / size)?;
        let run = mapping.filter(|run| !run.unwritten);
        let run = run.ok_or_else(|| damaged(self.file, format!("has a hole at block {block}")))?;
        Ok((run.physical + (start / size - run.logical), usize_of(start % size)))
    }
}

fn damaged(file: InodeNo, what: String) -> Error {
    Place::inode(Structure::QuotaFile, file).malformed(what)
}
