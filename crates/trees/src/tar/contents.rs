//! Contents of members, in pieces that begin at blocks.

use std::ops::Range;
use std::vec::IntoIter;

use casemate_blockdev::{u64_of, usize_of};

use super::TarReader;
use crate::Result;

/// A member's contents as whole blocks, in order; what is a hole through whole blocks is in none of them.
pub struct Pieces {
    ranges: IntoIter<Range<u64>>,
    /// Rest of the range that is being read.
    now: Range<u64>,
    block: u64,
}

impl Pieces {
    /// Contents that lie in these ranges ([`TarReader::ranges`]), in blocks of `block` bytes.
    pub fn new(ranges: Vec<Range<u64>>, block: u64) -> Pieces {
        let mut ranges = ranges.into_iter();
        let now = ranges.next().unwrap_or_default();
        Pieces { ranges, now, block }
    }

    /// Fills a buffer of whole blocks with the next piece: where in the file it begins, a block's first byte, and how
    /// many bytes it has. None at the end.
    ///
    /// # Errors
    /// `Corrupt` when the stream ends; what its reader says.
    pub fn next(&mut self, tar: &mut TarReader<'_>, buffer: &mut [u8]) -> Result<Option<(u64, usize)>> {
        if self.now.is_empty() {
            return Ok(None);
        }
        let start = self.now.start - self.now.start % self.block;
        let mut filled = 0;
        // As long as the next range begins in the block where this one ends, or right behind it.
        while !self.now.is_empty() {
            let offset = self.now.start - start;
            if offset / self.block > u64_of(filled).div_ceil(self.block) || offset >= u64_of(buffer.len()) {
                break;
            }
            let from = usize_of(offset);
            let len = usize_of((self.now.end - self.now.start).min(u64_of(buffer.len() - from)));
            buffer[filled..from].fill(0);
            tar.read(&mut buffer[from..from + len])?;
            filled = from + len;
            self.now.start += u64_of(len);
            if self.now.is_empty() {
                self.now = self.ranges.next().unwrap_or_default();
            }
        }
        Ok(Some((start, filled)))
    }
}
