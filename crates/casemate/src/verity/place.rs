//! Places that hash areas and parity are written to: what lies there is looked at, and asked for.

use std::ops::Range;
use std::path::Path;

use casemate_blockdev::{AtFile, BlockDevice, signatures};

use crate::target::{self, Consent, Loss, Made};
use crate::{Code, Error, Image};

/// Bytes of an image that a hash area or parity is written to: the one rule for both.
///
/// - Zeros and holes are free, unless they lie in a file system, or behind the beginning of a volume or a partition table.
/// - A file of its own, from its first byte on, has what an interrupted run has left, or is an ordinary output: it is replaced
///   if it holds nothing known.
/// - Everything else is asked for: signatures, and anywhere in these bytes data that are not zeros.
#[derive(Debug)]
pub(super) struct Place<'a> {
    pub(super) image: &'a Image,
    pub(super) bytes: Range<u64>,
    /// The data that are protected.
    pub(super) data: &'a Image,
    pub(super) made: Made,
}

impl Place<'_> {
    /// Refuses a place that ends behind the image, if the image can't grow.
    ///
    /// # Errors
    /// `Io`: there is no room.
    pub(super) fn check_room(&self, what: &str) -> Result<(), Error> {
        let Range { start, end } = self.bytes;
        let size = self.image.top().size();
        if end <= size || !self.image.is_fixed() {
            return Ok(());
        }
        let (len, name) = (end - start, self.image.name());
        let text = format!("{name}: {what} of {len} bytes has no room at {start}: there are {size} bytes");
        Err(Error::coded(Code::NoRoom, text))
    }

    /// Asks for consent if something would be lost.
    ///
    /// # Errors
    /// `Io`; whatever the consent says.
    pub(super) fn look(&self, consent: Consent<'_>) -> Result<(), Error> {
        let (image, start) = (self.image, self.bytes.start);
        if image.is_new() {
            return Ok(());
        }
        if let Some(what) = self.belongs_to()? {
            return consent(&Loss::new(image.name(), what));
        }
        // A partition of a file is no file of its own.
        let is_file = image.start() == 0 && image.path().is_some_and(Path::is_file);
        let is_own = start == 0 && is_file;
        let behind = image.clone().window(start.min(image.top().size()), None)?;
        target::look(behind.name(), behind.top(), self.made, is_own, consent)?;
        if is_own {
            return Ok(());
        }
        // Of a hash area that is made again.
        let free = match self.made {
            Made::Known(signatures::VERITY) => image.verity_superblock(start).ok(),
            _ => None,
        };
        self.look_behind(free.map_or(start, |layout| layout.hash_device_size()), consent)
    }

    /// Asks for consent if there is something from byte `free` of the image on: what lies before it may be lost.
    ///
    /// # Errors
    /// `Io`; whatever the consent says.
    pub(super) fn look_behind(&self, free: u64, consent: Consent<'_>) -> Result<(), Error> {
        let rest = free.clamp(self.bytes.start, self.bytes.end)..self.bytes.end;
        target::look_at_bytes(self.image.name(), self.image.top(), rest, consent)
    }

    /// The contents that begin at the image's first byte, if the place lies in them.
    fn belongs_to(&self) -> Result<Option<&'static str>, Error> {
        if self.bytes.start == 0 {
            return Ok(None);
        }
        let device = self.image.top();
        let what = signatures::device(device).at(self.image.name())?;
        let is_known = |what: &&str| ![signatures::VERITY, signatures::ZEROS].contains(what);
        let Some(what) = what.filter(is_known) else { return Ok(None) };
        let is_in = match file_system_size(device, what).map_err(|error| error.at(self.image.name()))? {
            Some(size) if size <= self.image.top().size() => self.bytes.start < size,
            // Where others end is not known, or not as they say. The data end where the caller says.
            _ => !signatures::is_archive(what) && !self.image.is_same(self.data),
        };
        Ok(is_in.then_some(what))
    }
}

/// Bytes of a file system of a kind that says its size.
fn file_system_size(device: &dyn BlockDevice, what: &str) -> Result<Option<u64>, Error> {
    let mut head = vec![0; 2048];
    if device.size() < head.len() as u64 {
        return Ok(None);
    }
    device.read_at(&mut head, 0)?;
    let number = |at: usize, len: usize| {
        head[at..at + len].iter().rev().fold(0, |number: u64, byte| number << 8 | u64::from(*byte))
    };
    Ok(match what {
        signatures::EXT => {
            let has_high_half = number(1024 + 0x60, 4) & 0x80 != 0;
            let high = if has_high_half { number(1024 + 0x150, 4) } else { 0 };
            // A signature of ext has a size of blocks below 2^17.
            let block = 1024_u64.checked_shl(number(1024 + 24, 4).min(32) as u32);
            block.and_then(|block| block.checked_mul(high << 32 | number(1024 + 4, 4)))
        }
        signatures::SQUASHFS => Some(number(40, 8)),
        _ => None,
    })
}
