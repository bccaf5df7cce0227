//! Writing tar streams.

use std::io::Write;
use std::ops::Range;

use casemate_blockdev::{u64_of, usize_of};

use super::{Member, RECORD, header, map};
use crate::Result;

/// A tar stream that is written, one member after the other.
pub struct TarWriter<'a> {
    out: &'a mut dyn Write,
    /// Padding of the last record of the previous contents, in bytes.
    fill: usize,
}

impl<'a> TarWriter<'a> {
    /// A tar stream to `out`, without members yet.
    pub fn new(out: &'a mut dyn Write) -> TarWriter<'a> {
        TarWriter { out, fill: 0 }
    }

    /// Adds a member without contents.
    ///
    /// # Errors
    /// When writing fails.
    pub fn add(&mut self, member: &Member) -> Result<()> {
        self.begin(&header::header(member, 0, false), 0)
    }

    /// Begins a file whose contents lie in these ranges, one after the other: what [`write`](TarWriter::write) gets
    /// next.
    ///
    /// # Errors
    /// When writing fails.
    pub fn add_file(&mut self, member: &Member, ranges: &[Range<u64>]) -> Result<()> {
        let data: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        if data == member.size {
            return self.begin(&header::header(member, data, false), data);
        }
        let map = map::to_bytes(ranges, member.size);
        let stored = u64_of(map.len()) + data;
        self.begin(&header::header(member, stored, true), stored)?;
        Ok(self.out.write_all(&map)?)
    }

    /// Writes contents of the member that was begun last.
    ///
    /// # Errors
    /// When writing fails.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.out.write_all(bytes)?)
    }

    /// Ends the stream with two empty records.
    ///
    /// # Errors
    /// When writing fails.
    pub fn finish(mut self) -> Result<()> {
        self.begin(&[0; 2 * RECORD], 0)?;
        Ok(self.out.flush()?)
    }

    fn begin(&mut self, header: &[u8], stored: u64) -> Result<()> {
        self.out.write_all(&[0; RECORD][..self.fill])?;
        self.fill = usize_of(stored.wrapping_neg() % u64_of(RECORD));
        Ok(self.out.write_all(header)?)
    }
}
