//! Android's sparse images: what of a device was written, as chunks of blocks (`libsparse/sparse_format.h` of AOSP, for facts).
//!
//! A header of 28 bytes, then chunks with a header of 12: blocks as they are, blocks that repeat four bytes, and blocks that
//! nobody cares for, which a device that the image is flashed to keeps as they are.

use std::io::Write;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::{BlockDevice, Error, FileDevice, u32_of, u64_of, usize_of};

const MAGIC: u32 = 0xed26_ff3a;
const HEADER: u16 = 28;
const CHUNK_HEADER: u16 = 12;

const RAW: u16 = 0xcac1;
const FILL: u16 = 0xcac2;
const DONT_CARE: u16 = 0xcac3;

/// Bytes of blocks in a chunk: its header counts them in 32 bits, and readers may hold all of it.
const LARGEST_CHUNK: u32 = 64 << 20;

/// A file that knows what of it was written.
#[derive(Debug)]
pub struct Written {
    file: FileDevice,
    ranges: Mutex<Vec<Range<u64>>>,
}

/// Blocks of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Raw,
    Fill([u8; 4]),
    DontCare,
}

impl Written {
    /// A file of which nothing was written yet.
    pub fn new(file: FileDevice) -> Written {
        Written { file, ranges: Mutex::default() }
    }

    fn note(&self, offset: u64, len: u64) {
        let mut ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        match ranges.last_mut() {
            Some(last) if last.end == offset => last.end += len,
            _ => ranges.push(offset..offset + len),
        }
    }

    /// Written ranges in whole blocks, in order.
    fn blocks(&self, block: u64) -> Vec<Range<u64>> {
        let mut ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner).clone();
        ranges.sort_unstable_by_key(|range| range.start);
        let mut blocks: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            let (start, end) = (range.start / block, range.end.div_ceil(block));
            match blocks.last_mut() {
                Some(last) if start <= last.end => last.end = last.end.max(end),
                _ => blocks.push(start..end),
            }
        }
        blocks
    }

    /// Writes the first so many bytes as a sparse image.
    ///
    /// # Errors
    /// `Argument` for a size that is not whole blocks, or has 2^32 of them; `Io`.
    pub fn write(&self, size: u64, block_size: u32, to: &mut dyn Write) -> Result<(), Error> {
        let block = u64::from(block_size);
        let blocks = u32::try_from(size / block).ok().filter(|_| size.is_multiple_of(block));
        let blocks = blocks.ok_or_else(|| {
            Error::argument(format!(
                "{size} bytes: a sparse image has whole blocks of {block}, less than 2^32"
            ))
        })?;
        let chunks = self.chunks(blocks, block_size)?;
        let count = u32::try_from(chunks.len()).map_err(|_| Error::argument("2^32 chunks"))?;
        to.write_all(&MAGIC.to_le_bytes())?;
        // Version 1.0.
        for half in [1, 0, HEADER, CHUNK_HEADER] {
            to.write_all(&half.to_le_bytes())?;
        }
        // The last one is a checksum that nobody compares.
        for word in [block_size, blocks, count, 0] {
            to.write_all(&word.to_le_bytes())?;
        }
        let mut at = 0;
        let mut buffer = vec![0; 1 << 20];
        for (kind, len) in chunks {
            let (tag, bytes) = match kind {
                Kind::Raw => (RAW, len.saturating_mul(block_size)),
                Kind::Fill(_) => (FILL, 4),
                Kind::DontCare => (DONT_CARE, 0),
            };
            to.write_all(&tag.to_le_bytes())?;
            to.write_all(&[0; 2])?;
            to.write_all(&len.to_le_bytes())?;
            to.write_all(&bytes.saturating_add(CHUNK_HEADER.into()).to_le_bytes())?;
            if let Kind::Fill(value) = kind {
                to.write_all(&value)?;
            }
            let end = at + u64::from(len) * block;
            while kind == Kind::Raw && at < end {
                let part = &mut buffer[..usize_of((end - at).min(1 << 20))];
                self.file.read_at(part, at)?;
                to.write_all(part)?;
                at += u64_of(part.len());
            }
            at = end;
        }
        Ok(to.flush()?)
    }

    /// Kinds and numbers of blocks, one chunk after the other.
    fn chunks(&self, blocks: u32, block_size: u32) -> Result<Vec<(Kind, u32)>, Error> {
        let most = LARGEST_CHUNK / block_size;
        let mut chunks: Vec<(Kind, u32)> = Vec::new();
        let mut add = |kind: Kind, count: u32| match chunks.last_mut() {
            Some((last, len)) if *last == kind && (*len < most || kind != Kind::Raw) => *len += count,
            _ if count == 0 => {}
            _ => chunks.push((kind, count)),
        };
        let mut next = 0;
        let mut buffer = vec![0; usize_of(block_size)];
        for range in self.blocks(block_size.into()) {
            let [start, end] = [range.start, range.end].map(|block| u32_of(block).min(blocks));
            add(Kind::DontCare, start.saturating_sub(next));
            for number in start..end {
                self.file.read_at(&mut buffer, u64::from(number) * u64::from(block_size))?;
                let (first, rest) = buffer.as_chunks::<4>().0.split_at(1);
                let is_fill = rest.iter().all(|four| *four == first[0]);
                add(if is_fill { Kind::Fill(first[0]) } else { Kind::Raw }, 1);
            }
            next = end;
        }
        add(Kind::DontCare, blocks.saturating_sub(next));
        Ok(chunks)
    }
}

impl BlockDevice for Written {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&self.file)
    }

    fn size(&self) -> u64 {
        self.file.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), Error> {
        self.file.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), Error> {
        self.note(offset, u64_of(buf.len()));
        self.file.write_at(buf, offset)
    }

    fn write_zeroes(&self, offset: u64, len: u64, may_punch: bool) -> Result<(), Error> {
        self.note(offset, len);
        self.file.write_zeroes(offset, len, may_punch)
    }

    fn flush(&self) -> Result<(), Error> {
        Ok(())
    }
}
