//! The files of quotas: a tree of blocks of 1 KiB that leads from a number of 32 bits to its entry.
//!
//! Block 0 holds two headers. Block 1 is the tree's root: 256 block numbers, one for each value of the id's highest
//! byte; three levels more lead to a block of entries. Blocks that are free form a list, blocks of entries that have
//! room another one with links in both directions.
//!
//! Source: the kernel's Documentation/filesystems/quota.rst and fs/quota/quota_tree.c, for facts (format vfsv1).

use crate::alloc::Allocator;
use crate::edit::file_map::FileMap;
use crate::edit::inode::write;
use crate::error::{Error, Place, Result, Structure};
use crate::format::bytes::{le16, le32, le64};
use crate::format::inode::Time;

/// Whose usage a file counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    User,
    Group,
    Project,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::User, Kind::Group, Kind::Project];

    fn magic(self) -> u32 {
        match self {
            Kind::User => 0xd9c0_1f11,
            Kind::Group => 0xd9c0_1927,
            Kind::Project => 0xd9c0_3f14,
        }
    }
}

/// Where an entry lies: a block of the file system, and the byte in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryPlace {
    physical: u64,
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
    file: u32,
    now: Time,
}

/// Bytes of the file's blocks, of an entry, and of the header before entries.
const BLOCK: usize = 1024;
const ENTRY: usize = 72;
const HEADER: usize = 16;

/// Entries of a block.
const ENTRIES: usize = (BLOCK - HEADER) / ENTRY;

/// The tree's root.
const ROOT: u32 = 1;

/// Fields of block 0: grace times, how many blocks there are, and where the lists begin.
const BLOCK_GRACE: usize = 8;
const INODE_GRACE: usize = 12;
const BLOCKS: usize = 20;
const FREE_BLOCK: usize = 24;
const FREE_ENTRY: usize = 28;

impl<'t> QuotaFile<'t> {
    pub fn new(space: &'t mut Allocator, file: u32, now: Time) -> QuotaFile<'t> {
        QuotaFile { space, file, now }
    }

    /// The entry of an id, made if there is none.
    pub fn entry(&mut self, kind: Kind, id: u32) -> Result<EntryPlace> {
        self.check(kind)?;
        let (block, at) = self.find(id)?;
        let (physical, base) = self.place(block)?;
        Ok(EntryPlace { physical, at: base + at })
    }

    /// The same as a block of the file, and the byte in it.
    fn find(&mut self, id: u32) -> Result<(u32, usize)> {
        let mut block = ROOT;
        for level in 0..4 {
            let next = self.word(block, slot(id, level))?;
            if next == 0 {
                return self.insert(id, block, level);
            }
            block = self.checked(next)?;
        }
        let bytes = self.bytes(block)?;
        let is_it =
            |at: &usize| le32(&bytes, *at) == id && bytes[*at..at + ENTRY].iter().any(|byte| *byte != 0);
        match entries().find(is_it) {
            Some(at) => Ok((block, at)),
            None => Err(damaged(self.file, format!("block {block} lacks the entry of {id}"))),
        }
    }

    /// Adds to an entry. False if nothing is in it any more.
    pub fn change(&mut self, place: EntryPlace, change: Usage) -> Result<bool> {
        let EntryPlace { physical, at } = place;
        let mut entry = self.space.transaction().with(physical, |bytes| bytes[at..at + ENTRY].to_vec())?;
        // Usage, soft limit and the unit that it counts, the time at which it starts to bind, and how long it may
        // be passed.
        for (at, change, limit_at, unit, time_at, grace_at) in [
            (48, change.space, 40, BLOCK as u64, 56, BLOCK_GRACE),
            (24, change.inodes, 16, 1, 64, INODE_GRACE),
        ] {
            // Files that were wrong before, e2fsck puts right; as in the kernel they are no reason to stop.
            let value = le64(&entry, at).saturating_add_signed(change);
            entry[at..at + 8].copy_from_slice(&value.to_le_bytes());
            let limit = le64(&entry, limit_at).saturating_mul(unit);
            let mut time = le64(&entry, time_at);
            if limit == 0 || value <= limit {
                time = 0;
            } else if time == 0 {
                let now = self.now.seconds.max(1).cast_unsigned();
                time = now + u64::from(self.word(0, grace_at)?);
            }
            entry[time_at..time_at + 8].copy_from_slice(&time.to_le_bytes());
        }
        if entry.iter().all(|byte| *byte == 0) {
            // The entry of id 0 would look free; the kernel marks it so.
            entry[64] = 1;
        }
        let is_used = entry[8..].iter().any(|byte| *byte != 0);
        self.space.transaction_mut().update(physical, |edit| edit.write(at, &entry))?;
        Ok(is_used)
    }

    /// Removes an entry that holds nothing, and the blocks that only it needed.
    pub fn remove(&mut self, id: u32) -> Result<()> {
        let (block, at) = self.find(id)?;
        let mut path = vec![ROOT];
        for level in 0..3 {
            path.push(self.word(path[level], slot(id, level))?);
        }
        self.write(block, at, &[0; ENTRY])?;
        let used = le16(&self.bytes(block)?, 8);
        let left = used.checked_sub(1);
        let left = left.ok_or_else(|| damaged(self.file, format!("block {block} counts no entries")))?;
        self.write(block, 8, &left.to_le_bytes())?;
        if left == 0 {
            self.unlist_room(block)?;
            self.free_block(block)?;
        } else if usize::from(left) == ENTRIES - 1 {
            self.list_room(block)?;
        }
        for (level, node) in path.into_iter().enumerate().rev() {
            self.write(node, slot(id, level), &[0; 4])?;
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
        for level in level..3 {
            let next = self.take_block()?;
            self.write(node, slot(id, level), &next.to_le_bytes())?;
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
        let free = entries().find(|at| bytes[*at..at + ENTRY].iter().all(|byte| *byte == 0));
        let Some(at) = free else {
            return Err(damaged(self.file, format!("block {block} is full and said to have room")));
        };
        let used = le16(&bytes, 8).saturating_add(1);
        if usize::from(used) >= ENTRIES {
            self.unlist_room(block)?;
        }
        self.write(block, 8, &used.to_le_bytes())?;
        self.write(block, at, &id.to_le_bytes())?;
        self.write(node, slot(id, 3), &block.to_le_bytes())?;
        Ok((block, at))
    }

    /// Puts a block of entries at the front of the list of those with room.
    fn list_room(&mut self, block: u32) -> Result<()> {
        let first = self.word(0, FREE_ENTRY)?;
        if first != 0 {
            let first = self.checked(first)?;
            self.write(first, 4, &block.to_le_bytes())?;
        }
        self.write(block, 0, &first.to_le_bytes())?;
        self.write(block, 4, &[0; 4])?;
        self.write(0, FREE_ENTRY, &block.to_le_bytes())
    }

    /// Takes a block of entries out of that list.
    fn unlist_room(&mut self, block: u32) -> Result<()> {
        let (next, before) = (self.word(block, 0)?, self.word(block, 4)?);
        if next != 0 {
            let next = self.checked(next)?;
            self.write(next, 4, &before.to_le_bytes())?;
        }
        if before != 0 {
            let before = self.checked(before)?;
            self.write(before, 0, &next.to_le_bytes())?;
        } else if self.word(0, FREE_ENTRY)? == block {
            self.write(0, FREE_ENTRY, &next.to_le_bytes())?;
        }
        self.write(block, 0, &[0; 8])
    }

    /// A block of zeros for the tree: one that was free, or a new one at the file's end.
    fn take_block(&mut self) -> Result<u32> {
        match self.word(0, FREE_BLOCK)? {
            0 => {
                let block = self.word(0, BLOCKS)?;
                let blocks = block.checked_add(1).filter(|_| block > ROOT);
                let blocks = blocks.ok_or_else(|| damaged(self.file, format!("has {block} blocks")))?;
                self.grow(block)?;
                self.write(0, BLOCKS, &blocks.to_le_bytes())?;
                Ok(block)
            }
            block => {
                let block = self.checked(block)?;
                let next = self.word(block, 0)?;
                self.write(0, FREE_BLOCK, &next.to_le_bytes())?;
                self.write(block, 0, &[0; BLOCK])?;
                Ok(block)
            }
        }
    }

    fn free_block(&mut self, block: u32) -> Result<()> {
        let first = self.word(0, FREE_BLOCK)?;
        self.write(block, 0, &[0; BLOCK])?;
        self.write(block, 0, &first.to_le_bytes())?;
        self.write(0, FREE_BLOCK, &block.to_le_bytes())
    }

    /// Lets a quota file have this block, the one behind its last.
    fn grow(&mut self, block: u32) -> Result<()> {
        let size = self.space.block_size() as u64;
        let (start, end) = (u64::from(block) * BLOCK as u64, (u64::from(block) + 1) * BLOCK as u64);
        let mut inode = self.space.fs().inode(self.file)?;
        let logical = start / size;
        let mut new = None;
        FileMap::new(self.space, &mut inode)
            .fill(logical, logical + 1, false, |run| new = Some(run.physical))?;
        if let Some(new) = new {
            self.space.transaction_mut().create_zeroed(new);
        }
        if inode.size() < end {
            inode.set_size(end);
        }
        write(self.space, &inode)?;
        self.write(block, 0, &[0; BLOCK])
    }

    fn check(&self, kind: Kind) -> Result<()> {
        let header = self.bytes(0)?;
        if le32(&header, 0) != kind.magic() {
            return Err(damaged(self.file, "has no magic number of its kind".to_owned()));
        }
        match le32(&header, 4) {
            1 => Ok(()),
            version => Err(Error::unsupported(format!("quota files of version {version}"))),
        }
    }

    /// A block number that a quota file names, checked.
    fn checked(&self, block: u32) -> Result<u32> {
        if block > ROOT && block < self.word(0, BLOCKS)? {
            return Ok(block);
        }
        Err(damaged(self.file, format!("names block {block}")))
    }

    fn word(&self, block: u32, at: usize) -> Result<u32> {
        let (physical, base) = self.place(block)?;
        self.space.transaction().with(physical, |bytes| le32(bytes, base + at))
    }

    fn bytes(&self, block: u32) -> Result<Vec<u8>> {
        let (physical, base) = self.place(block)?;
        self.space.transaction().with(physical, |bytes| bytes[base..base + BLOCK].to_vec())
    }

    fn write(&mut self, block: u32, at: usize, new: &[u8]) -> Result<()> {
        let (physical, base) = self.place(block)?;
        self.space.transaction_mut().update(physical, |edit| edit.write(base + at, new))?;
        Ok(())
    }

    /// The block of the file system that a quota file's block lies in, and where in it.
    fn place(&self, block: u32) -> Result<(u64, usize)> {
        let inode = self.space.fs().inode(self.file)?;
        let start = u64::from(block) * BLOCK as u64;
        let size = self.space.block_size() as u64;
        if start + BLOCK as u64 > inode.size() {
            return Err(damaged(self.file, format!("ends before block {block}")));
        }
        let mapping = self.space.fs().mapping_at(&inode, start / size)?;
        let run = mapping.filter(|run| !run.unwritten);
        let run = run.ok_or_else(|| damaged(self.file, format!("has a hole at block {block}")))?;
        Ok((run.physical + (start / size - run.logical), (start % size) as usize))
    }
}

/// Where a node keeps what an id goes on with.
fn slot(id: u32, level: usize) -> usize {
    4 * usize::from(id.to_be_bytes()[level])
}

/// Where a block's entries begin.
fn entries() -> impl Iterator<Item = usize> {
    (0..ENTRIES).map(|number| HEADER + ENTRY * number)
}

fn damaged(file: u32, what: String) -> Error {
    Place::inode(Structure::QuotaFile, file).malformed(what)
}
