//! Blocks as they were before a repair, in the undo file of e2fsprogs: `e2undo FILE IMAGE` puts them back.
//!
//! The file begins with a header. Behind it lie a copy of the superblock, room for the copy by which the image is known in the
//! end, and key blocks: each names as many blocks as it has room for, and their contents follow it. All numbers are
//! little-endian; checksums are CRC-32C.
//!
//! Writes wait until the device is flushed, or are as many as a key block has room for. Then the old blocks and the key block
//! of all of them are written and flushed, then the header, which is one sector and counts them, and then the image's blocks.
//! Nothing but the header is written twice: wherever the power fails, all that was changed is named by whole key blocks. Slots
//! that a key block does not need name no bytes. Where the file's disk is full, what waits is not written, and the file ends
//! with what was changed: there is room for that from the beginning on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use casemate_blockdev::{BlockDevice, os, sync_name, u32_of, u64_of, usize_of};
use casemate_primitives::crc32c::Crc32c;

use crate::error::{Error, Result};
use crate::format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use crate::format::undo_file::{HEADER, Header, KEY, KEYS, hide_superblock, key_block};
use crate::number::within;

/// Bytes of the blocks that are kept.
const BLOCK: u64 = 4096;

/// Blocks of the undo file with its copies of the superblock: as it was, and as it is in the end. Behind them lie the keys.
const FIRST_SUPERBLOCK: u64 = 1;
const LAST_SUPERBLOCK: u64 = 2;
const KEYS_AT: u64 = 3;

// A block is full of keys behind its head.
const _: () = assert!(KEY * (KEYS + 1) == 4096);

/// State of an image and its undo file after an error before the first change.
pub(super) const UNCHANGED: &str = "the image was not changed, and no undo file is left";

/// Undo file that a repair makes.
#[derive(Clone, Debug)]
pub struct UndoFile {
    /// Its path, where no file is yet.
    pub path: PathBuf,
    /// Byte of the image at which the file system begins, for `e2undo`, which is given the whole image.
    pub fs_offset: u64,
}

/// The undo file of all of an image.
impl From<PathBuf> for UndoFile {
    fn from(path: PathBuf) -> UndoFile {
        UndoFile { path, fs_offset: 0 }
    }
}

/// A device that keeps the old contents of what is written to it first.
pub(super) struct Undoable {
    below: Arc<dyn BlockDevice>,
    undo: Mutex<Undo>,
}

/// The undo file under way.
struct Undo {
    file: File,
    path: PathBuf,
    fs_offset: u64,
    crc: Crc32c,
    /// Blocks that were kept.
    kept: BTreeSet<u64>,
    /// New contents of blocks that wait until the old ones are kept.
    waiting: BTreeMap<u64, Vec<u8>>,
    keys: u64,
    superblock_sum: u32,
    /// Where the file ends.
    end: u64,
    /// True as soon as a block of the image was written.
    is_changed: bool,
}

/// The end of an undo file.
#[derive(Debug)]
pub(super) struct Finished {
    /// Whether something was changed, and the undo file is left.
    pub is_changed: bool,
    /// Why not all was written, or the undo file is not whole.
    pub error: Option<Error>,
    /// Whether the undo file says of itself that it is whole, or there is none.
    pub is_whole: bool,
}

impl Undoable {
    /// Keeps what is written to `below` in a new file.
    ///
    /// # Errors
    /// `AlreadyExists` if there is such a file, and those of writing it.
    pub fn new(below: Arc<dyn BlockDevice>, undo: &UndoFile, crc: Crc32c) -> Result<Undoable> {
        let path = &undo.path;
        let at = |error: std::io::Error| Error::io(path.display(), error);
        let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(at)?;
        let mut undo = Undo {
            file,
            path: path.clone(),
            fs_offset: undo.fs_offset,
            crc,
            kept: BTreeSet::new(),
            waiting: BTreeMap::new(),
            keys: 0,
            superblock_sum: 0,
            end: KEYS_AT * BLOCK,
            is_changed: false,
        };
        if let Err(error) = undo.begin(&*below) {
            let _ = std::fs::remove_file(path);
            return Err(error.map_text(|error| format!("{error}; {UNCHANGED}")));
        }
        Ok(Undoable { below, undo: Mutex::new(undo) })
    }

    /// Writes what waits, and marks the file as whole; where nothing was changed, it is removed. What can't be kept is not
    /// written.
    pub fn finish(&self) -> Finished {
        let mut undo = self.lock();
        let written = undo.drain(&*self.below);
        if written.is_err() {
            undo.give_up();
        }
        let is_changed = undo.is_changed;
        let ended = match is_changed {
            true => undo.end(&*self.below),
            false => std::fs::remove_file(&undo.path)
                .map_err(|error| undo.at(error))
                .and_then(|()| sync_name(&undo.path)),
        };
        Finished { is_changed, is_whole: ended.is_ok(), error: written.err().or(ended.err()) }
    }

    fn lock(&self) -> MutexGuard<'_, Undo> {
        self.undo.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Undo {
    fn at(&self, error: std::io::Error) -> Error {
        Error::io(self.path.display(), error)
    }

    fn begin(&mut self, below: &dyn BlockDevice) -> Result<()> {
        // It will hold what the image holds.
        os::set_mode(&self.file, 0o600).map_err(|error| self.at(error))?;
        self.write(&vec![0; usize_of(KEYS_AT * BLOCK)], 0)?;
        self.write_superblock(below, FIRST_SUPERBLOCK)?;
        self.write_header(FIRST_SUPERBLOCK, false)?;
        self.sync()?;
        sync_name(&self.path)
    }

    /// Writes the superblock as it is now, by which the image is known again, and a header that names it.
    fn end(&mut self, below: &dyn BlockDevice) -> Result<()> {
        self.write_superblock(below, LAST_SUPERBLOCK)?;
        self.sync()?;
        self.write_header(LAST_SUPERBLOCK, true)?;
        self.sync()
    }

    /// Forgets what waits, and those of the file's blocks that were to keep what lies below it.
    fn give_up(&mut self) {
        self.waiting.clear();
        // Bytes behind the last whole key block are named by nothing, whether they go or stay.
        let _ = self.file.set_len(self.end);
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let mut file = &self.file;
        let done = file.seek(SeekFrom::Start(offset)).and_then(|_| file.write_all(bytes));
        done.map_err(|error| self.at(error))
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|error| self.at(error))
    }

    /// Reads a block as it is on the device: less than a whole one at its end.
    fn block(below: &dyn BlockDevice, block: u64) -> Result<Vec<u8>> {
        let start = block.saturating_mul(BLOCK);
        // At most 4096.
        let mut bytes = vec![0; usize_of(BLOCK.min(below.size().saturating_sub(start)))];
        below.read_at(&mut bytes, start)?;
        Ok(bytes)
    }

    /// Notes new bytes of the device, which wait.
    fn change(&mut self, below: &dyn BlockDevice, bytes: &[u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + u64_of(done);
            let (block, within) = (at / BLOCK, usize_of(at % BLOCK));
            let len = (usize_of(BLOCK) - within).min(bytes.len() - done);
            if !self.waiting.contains_key(&block) {
                if self.waiting.len() == KEYS {
                    self.drain(below)?;
                }
                self.waiting.insert(block, Undo::block(below, block)?);
            }
            let new = self.waiting.get_mut(&block).and_then(|new| new.get_mut(within..within + len));
            if let Some(new) = new {
                new.copy_from_slice(&bytes[done..done + len]);
            }
            done += len;
        }
        Ok(())
    }

    /// Keeps the old contents of all blocks that wait, and then writes the new ones.
    fn drain(&mut self, below: &dyn BlockDevice) -> Result<()> {
        let new: Vec<u64> = self.waiting.keys().copied().filter(|block| !self.kept.contains(block)).collect();
        if !new.is_empty() {
            for blocks in new.chunks(KEYS) {
                self.keep(below, blocks)?;
            }
            self.sync()?;
            self.write_header(FIRST_SUPERBLOCK, false)?;
            self.sync()?;
            self.kept.extend(new);
        }
        self.is_changed |= !self.waiting.is_empty();
        for (block, bytes) in std::mem::take(&mut self.waiting) {
            below.write_at(&bytes, block * BLOCK)?;
        }
        Ok(())
    }

    /// Writes a key block, and the blocks that it names.
    fn keep(&mut self, below: &dyn BlockDevice, blocks: &[u64]) -> Result<()> {
        let mut keys = Vec::with_capacity(KEYS);
        for (block, at) in blocks.iter().zip(1..) {
            let bytes = Undo::block(below, *block)?;
            self.write(&bytes, self.end + at * BLOCK)?;
            // At most 4096 bytes.
            keys.push((*block, self.crc.update(!0, &bytes), u32_of(bytes.len())));
        }
        keys.resize(KEYS, (0, !0, 0));
        self.write(&key_block(usize_of(BLOCK), &keys, self.crc), self.end)?;
        self.end += (1 + u64_of(blocks.len())) * BLOCK;
        self.keys += u64_of(KEYS);
        Ok(())
    }

    fn write_superblock(&mut self, below: &dyn BlockDevice, block: u64) -> Result<()> {
        let mut superblock = [0; SUPERBLOCK_SIZE];
        // An image that has none can't be known by it.
        if below.size() >= SUPERBLOCK_OFFSET + u64_of(SUPERBLOCK_SIZE) {
            below.read_at(&mut superblock, SUPERBLOCK_OFFSET)?;
        }
        self.superblock_sum = self.crc.update(!0, &superblock);
        hide_superblock(&mut superblock);
        self.write(&superblock, block * BLOCK)
    }

    fn write_header(&self, superblock_at: u64, is_whole: bool) -> Result<()> {
        let header = Header {
            keys: self.keys,
            superblock_at,
            keys_at: KEYS_AT,
            block_size: u32_of(BLOCK),
            superblock_sum: self.superblock_sum,
            is_whole,
            fs_offset: self.fs_offset,
        };
        self.write(&header.to_bytes(self.crc)[..HEADER], 0)
    }
}

impl BlockDevice for Undoable {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&*self.below)
    }

    fn size(&self) -> u64 {
        self.below.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let undo = self.lock();
        if undo.waiting.is_empty() {
            // The threads of a check read side by side.
            drop(undo);
            return self.below.read_at(buf, offset);
        }
        self.below.read_at(buf, offset)?;
        let end = offset.saturating_add(u64_of(buf.len()));
        for (block, new) in undo.waiting.range(offset / BLOCK..end.div_ceil(BLOCK)) {
            let start = block * BLOCK;
            let (from, to) = (start.max(offset), (start + u64_of(new.len())).min(end));
            if from < to {
                buf[within(from..to, offset)].copy_from_slice(&new[within(from..to, start)]);
            }
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let mut undo = self.lock();
        if offset.checked_add(u64_of(buf.len())).is_none_or(|end| end > self.below.size()) {
            // Which the device below refuses.
            undo.drain(&*self.below)?;
            return self.below.write_at(buf, offset);
        }
        undo.change(&*self.below, buf, offset)
    }

    fn flush(&self) -> Result<()> {
        self.lock().drain(&*self.below)?;
        self.below.flush()
    }

    fn next_data(&self, offset: u64) -> Result<Option<std::ops::Range<u64>>> {
        self.lock().drain(&*self.below)?;
        self.below.next_data(offset)
    }
}
