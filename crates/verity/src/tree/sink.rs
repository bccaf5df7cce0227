//! Sinks: where the hash blocks of a tree go while the tree is built.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::{Mutex, PoisonError};

use casemate_blockdev::os::FileExt;
use casemate_blockdev::{BlockDevice, u64_of, usize_of};

use super::Geometry;
use crate::Error;

/// A taker of a tree's hash blocks, in any order and from any thread.
///
/// `()` takes blocks and keeps none, where the root hash alone is wanted.
pub trait TreeSink: Sync {
    /// Takes whole hash blocks of `level` (0 holds the digests of data) from block `first` of that level on.
    ///
    /// # Errors
    /// Errors of storing the blocks.
    fn write(&self, level: usize, first: u64, blocks: &[u8]) -> Result<(), Error>;
}

impl TreeSink for () {
    fn write(&self, _level: usize, _first: u64, _blocks: &[u8]) -> Result<(), Error> {
        Ok(())
    }
}

/// A tree at its place on a device.
pub struct TreeDevice<'a> {
    geometry: &'a Geometry,
    device: &'a dyn BlockDevice,
    offset: u64,
}

impl<'a> TreeDevice<'a> {
    /// The tree that begins at byte `offset` of `device`.
    pub fn new(geometry: &'a Geometry, device: &'a dyn BlockDevice, offset: u64) -> TreeDevice<'a> {
        TreeDevice { geometry, device, offset }
    }

    /// The tree's geometry.
    pub fn geometry(&self) -> &'a Geometry {
        self.geometry
    }

    /// Reads whole hash blocks of `level` from block `first` on.
    ///
    /// # Errors
    /// The device's error; `UnexpectedEof` if it ends before the tree does.
    pub fn read(&self, level: usize, first: u64, blocks: &mut [u8]) -> Result<(), Error> {
        self.device.read_at(blocks, self.position(level, first)?)
    }

    /// Reads the part of `level` that holds the digests of `count` children from child `first` on, from the
    /// first byte of the first digest to the last byte of the last.
    pub(super) fn read_slots(
        &self,
        level: usize,
        first: u64,
        count: usize,
        buf: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let start = self.geometry.slot_offset(level, first);
        let last = self.geometry.slot_offset(level, first + u64_of(count) - 1);
        buf.resize(usize_of(last - start) + self.geometry.shape().digest_len(), 0);
        self.device.read_at(buf, self.absolute(start)?)
    }

    /// Writes the digests of children from child `first` on, which all belong into one hash block, and zeros
    /// between them. What follows the last digest stays as it is.
    pub(super) fn write_slots(&self, level: usize, first: u64, digests: &[u8]) -> Result<(), Error> {
        let (stride, len) = (self.geometry.shape().digest_stride(), self.geometry.shape().digest_len());
        let mut slots = vec![0; digests.len() / len * stride - (stride - len)];
        for (digest, slot) in digests.chunks_exact(len).zip(slots.chunks_mut(stride)) {
            slot[..len].copy_from_slice(digest);
        }
        self.device.write_at(&slots, self.absolute(self.geometry.slot_offset(level, first))?)
    }

    fn position(&self, level: usize, first: u64) -> Result<u64, Error> {
        self.absolute(self.geometry.offset(level, first))
    }

    fn absolute(&self, offset: u64) -> Result<u64, Error> {
        let position = self.offset.checked_add(offset);
        position.ok_or_else(|| Error::argument("the hash tree is too far away"))
    }
}

impl TreeSink for TreeDevice<'_> {
    fn write(&self, level: usize, first: u64, blocks: &[u8]) -> Result<(), Error> {
        self.device.write_at(blocks, self.position(level, first)?)
    }
}

/// The levels of a tree in nameless files, while the size of the data and with it the place of each level
/// are unknown.
#[derive(Debug)]
pub struct SpilledLevels {
    hash_block_size: usize,
    levels: Mutex<Vec<File>>,
}

impl SpilledLevels {
    /// An empty set of levels, whose hash blocks have `hash_block_size` bytes.
    pub fn new(hash_block_size: usize) -> SpilledLevels {
        SpilledLevels { hash_block_size, levels: Mutex::default() }
    }

    /// Writes the whole tree, root level first.
    ///
    /// # Errors
    /// The error of reading the levels back or of writing to `out`.
    pub fn copy_to(self, out: &mut dyn Write) -> Result<(), Error> {
        let levels = self.levels.into_inner().unwrap_or_else(PoisonError::into_inner);
        for mut file in levels.into_iter().rev() {
            file.seek(SeekFrom::Start(0))?;
            let mut buf = vec![0; 1 << 18];
            loop {
                let len = file.read(&mut buf)?;
                if len == 0 {
                    break;
                }
                out.write_all(&buf[..len])?;
            }
        }
        Ok(())
    }
}

impl TreeSink for SpilledLevels {
    fn write(&self, level: usize, first: u64, blocks: &[u8]) -> Result<(), Error> {
        let mut levels = self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        while levels.len() <= level {
            levels.push(tempfile::tempfile()?);
        }
        Ok(levels[level].write_all_at(blocks, first * u64_of(self.hash_block_size))?)
    }
}
