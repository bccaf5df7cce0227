//! A device with newer copies of blocks laid over it: those of the journal, or of a recovery file.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use casemate_blockdev::{BlockDevice, u64_of};

use crate::error::Result;
use crate::format::journal_block::unescape;
use crate::number::within;
use crate::units::Block;

/// Where the newer copy of a block lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy {
    /// The byte that the copy begins at.
    pub offset: u64,
    /// Its first four bytes are the magic number, which the log has zeroed.
    pub escaped: bool,
}

/// Reads as if the copies had been written to their places; can't be written. Only positions are kept in memory.
pub(crate) struct Overlay {
    inner: Arc<dyn BlockDevice>,
    /// The device that holds the copies.
    copies: Arc<dyn BlockDevice>,
    block_size: u64,
    /// In the order of blocks.
    blocks: Vec<(Block, Copy)>,
}

impl Overlay {
    /// `blocks` are in their order.
    pub fn new(
        inner: Arc<dyn BlockDevice>,
        copies: Arc<dyn BlockDevice>,
        block_size: u32,
        blocks: Vec<(Block, Copy)>,
    ) -> Overlay {
        Overlay { inner, copies, block_size: u64::from(block_size), blocks }
    }

    /// The blocks that there are newer copies of.
    pub fn blocks(&self) -> impl Iterator<Item = Block> {
        self.blocks.iter().map(|(block, _)| *block)
    }

    /// The copies from a byte of the device on.
    fn copies_from(&self, offset: u64) -> &[(Block, Copy)] {
        let at = Block::of_byte(offset, self.block_size);
        let first = self.blocks.partition_point(|(block, _)| *block < at);
        &self.blocks[first..]
    }
}

impl BlockDevice for Overlay {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&self.inner)
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.inner.read_at(buf, offset)?;
        if buf.is_empty() {
            return Ok(());
        }
        let end = offset + u64_of(buf.len());
        for (block, copy) in self.copies_from(offset) {
            let start = block.offset(self.block_size);
            if start >= end {
                break;
            }
            let (from, to) = (start.max(offset), (start + self.block_size).min(end));
            let part = &mut buf[within(from..to, offset)];
            self.copies.read_at(part, copy.offset + (from - start))?;
            if copy.escaped {
                unescape(part, from - start);
            }
        }
        Ok(())
    }

    fn write_at(&self, _buf: &[u8], _offset: u64) -> Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>> {
        let copied = self.copies_from(offset).first();
        let copied = copied.map(|(block, _)| {
            let start = block.offset(self.block_size);
            start.max(offset)..start + self.block_size
        });
        Ok(match (self.inner.next_data(offset)?, copied) {
            (Some(data), Some(copied)) if copied.start < data.start => Some(copied),
            (None, copied) => copied,
            (data, _) => data,
        })
    }
}
