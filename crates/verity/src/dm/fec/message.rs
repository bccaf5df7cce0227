//! The protected devices as one run of bytes.

use std::ops::Range;

use casemate_blockdev::{BlockDevice, u64_of, usize_of};

use super::FecLayout;
use crate::Error;

/// Bytes of parity that are read together where more can't be.
const SECTOR: usize = 512;

/// The devices that error correction works on.
#[derive(Clone, Copy)]
pub struct FecDevices<'a> {
    /// The data device.
    pub data: &'a dyn BlockDevice,
    /// The hash device.
    pub hash: &'a dyn BlockDevice,
    /// The device with the parity; it may be the hash device.
    pub parity: &'a dyn BlockDevice,
    /// Where the parity begins on its device, in bytes.
    pub parity_offset: u64,
}

/// Reads and writes the message: data, then the hash device from the tree on, then zeros without end.
#[derive(Clone, Copy)]
pub(super) struct Message<'a> {
    pub(super) layout: &'a FecLayout,
    pub(super) devices: &'a FecDevices<'a>,
}

impl<'a> Message<'a> {
    /// Refuses devices that are shorter than the layout says.
    pub(super) fn new(layout: &'a FecLayout, devices: &'a FecDevices<'a>) -> Result<Message<'a>, Error> {
        let hash_end = layout.metadata_offset() + layout.metadata_size();
        for (name, size, needed) in
            [("data", devices.data.size(), layout.data_size()), ("hash", devices.hash.size(), hash_end)]
        {
            if size < needed {
                let text =
                    format!("error correction covers {needed} bytes of the {name} device, it has {size}");
                return Err(Error::argument(text));
            }
        }
        Ok(Message { layout, devices })
    }

    /// Refuses a parity device that is cut off.
    pub(super) fn check_parity_size(&self) -> Result<(), Error> {
        let (size, offset, needed) =
            (self.devices.parity.size(), self.devices.parity_offset, self.layout.parity_size());
        if size.saturating_sub(offset) < needed {
            let text =
                format!("the parity is cut off: {needed} bytes from {offset} on, the device has {size}");
            return Err(Error::corrupt(text));
        }
        Ok(())
    }

    /// Fills `buf` with the message from byte `offset` on. Returns how many bytes lie before its end.
    pub(super) fn read(&self, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        let mut done = 0;
        for (device, range, position) in self.parts(offset, buf.len()) {
            device.read_at(&mut buf[range.clone()], position)?;
            done = range.end;
        }
        buf[done..].fill(0);
        Ok(done)
    }

    /// Writes the message from byte `offset` on; what belongs to the zeros at its end goes nowhere.
    pub(super) fn write(&self, buf: &[u8], offset: u64) -> Result<(), Error> {
        let mut parts = self.parts(offset, buf.len());
        parts.try_for_each(|(device, range, position)| device.write_at(&buf[range], position))
    }

    /// Reads the parity of all columns from `column` on.
    pub(super) fn read_parity(&self, buf: &mut [u8], column: u64) -> Result<(), Error> {
        self.devices.parity.read_at(buf, self.parity_position(column)?)
    }

    /// Reads the parity of all columns from `column` on, as far as it can be read; returns the columns of which it can't, counted from
    /// `column`. Theirs is zeros.
    pub(super) fn read_parity_in_part(
        &self,
        buf: &mut [u8],
        column: u64,
    ) -> Result<Vec<Range<usize>>, Error> {
        match self.read_parity(buf, column) {
            Err(error) if error.is_of_medium() => {}
            read => return read.map(|()| Vec::new()),
        }
        let position = self.parity_position(column)?;
        let roots = usize_of(u64::from(self.layout.roots()));
        let mut lost: Vec<Range<usize>> = Vec::new();
        let mut at = 0;
        for piece in buf.chunks_mut(SECTOR) {
            let columns = at / roots..(at + piece.len()).div_ceil(roots);
            match self.devices.parity.read_at(piece, position + u64_of(at)) {
                Err(error) if error.is_of_medium() => {
                    piece.fill(0);
                    match lost.last_mut().filter(|last| last.end >= columns.start) {
                        Some(last) => last.end = columns.end,
                        None => lost.push(columns),
                    }
                }
                read => read?,
            }
            at += piece.len();
        }
        Ok(lost)
    }

    /// Writes the parity of all columns from `column` on.
    pub(super) fn write_parity(&self, buf: &[u8], column: u64) -> Result<(), Error> {
        self.devices.parity.write_at(buf, self.parity_position(column)?)
    }

    fn parity_position(&self, column: u64) -> Result<u64, Error> {
        // The layout keeps the product small; the offset is the caller's.
        let position = self.devices.parity_offset.checked_add(column * u64::from(self.layout.roots()));
        position.ok_or_else(|| Error::argument("the parity is too far away"))
    }

    /// The devices that hold `len` bytes of the message from `offset` on, with the range of these bytes that
    /// each holds and where.
    fn parts(
        &self,
        offset: u64,
        len: usize,
    ) -> impl Iterator<Item = (&'a dyn BlockDevice, Range<usize>, u64)> + use<'a> {
        let data_size = self.layout.data_size();
        let upto = move |end: u64| usize_of(end.saturating_sub(offset).min(u64_of(len)));
        let (middle, end) = (upto(data_size), upto(self.layout.message_size()));
        let in_metadata = (offset + u64_of(middle)).saturating_sub(data_size);
        let data = (self.devices.data, 0..middle, offset);
        let hash = (self.devices.hash, middle..end, self.layout.metadata_offset() + in_metadata);
        [data, hash].into_iter().filter(|(_, range, _)| !range.is_empty())
    }
}
