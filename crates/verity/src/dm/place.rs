//! Places that hash areas and parity are written to: what lies there is looked at, and asked for.

use std::borrow::Cow;
use std::cell::Cell;
use std::ops::Range;
use std::path::Path;

use casemate_blockdev::target::{self, Consent, Loss, Made};
use casemate_blockdev::{AtFile, Medium, signatures};
use casemate_providers::Work;

use super::{Layout, is_tree};
use crate::{Code, Error, ErrorKind};

/// Bytes of a medium that a hash area or parity is written to: the one rule for both.
///
/// - Zeros and holes are free, unless they lie in a file system, or behind the beginning of a volume or a partition table.
/// - A hash area, and parity that is known as that of the same data, are made again: what lies behind them is not a part of them.
/// - A file of its own, from its first byte on, has what an interrupted run has left, or is an ordinary output: these bytes of it are
///   replaced if nothing known is found in them.
/// - Everything else is asked for: signatures, and anywhere in these bytes data that are not zeros.
#[derive(Debug)]
pub(super) struct Place<'a> {
    pub(super) medium: &'a Medium,
    pub(super) bytes: Range<u64>,
    /// The data that are protected.
    pub(super) data: &'a Medium,
    pub(super) made: Made,
}

impl Place<'_> {
    /// Refuses a place that ends behind the medium, if the medium can't grow.
    ///
    /// # Errors
    /// `Io`: there is no room.
    pub(super) fn check_room(&self, what: &str) -> Result<(), Error> {
        let Range { start, end } = self.bytes;
        let size = self.medium.top().size();
        if end <= size || !self.medium.is_fixed() {
            return Ok(());
        }
        let (len, name) = (end - start, self.medium.name());
        let text = format!("{name}: {what} of {len} bytes has no room at {start}: there are {size} bytes");
        Err(Error::coded(Code::NoRoom, text))
    }

    /// Asks for consent if something would be lost. Of a hash area that is there, what lies in it may be. Returns its end, if it was
    /// looked for and found.
    ///
    /// # Errors
    /// `Io`; whatever the consent says.
    pub(super) fn look(&self, consent: Consent<'_>, work: &Work<'_>) -> Result<Option<u64>, Error> {
        self.look_for(Outputs::Replaced, consent, work)
    }

    /// Asks for consent unless all of the place is free, also in a file of its own.
    ///
    /// # Errors
    /// `Io`; whatever the consent says.
    pub(super) fn look_at_all(&self, consent: Consent<'_>, work: &Work<'_>) -> Result<(), Error> {
        self.look_for(Outputs::Kept, consent, work).map(|_| ())
    }

    fn look_for(
        &self,
        outputs: Outputs,
        consent: Consent<'_>,
        work: &Work<'_>,
    ) -> Result<Option<u64>, Error> {
        if self.medium.is_new() || !self.look_at_beginning(consent)? {
            return Ok(None);
        }
        let (medium, start, is_own) = (self.medium, self.bytes.start, self.is_own());
        let again = match self.made {
            Made::Known(signatures::VERITY) => hash_area(medium, start, work)?,
            _ => None,
        };
        let end = again.map(|layout| layout.hash_device_size());
        match end {
            Some(end) => {
                // Whoever writes the upper levels of a tree can make anything its lowest one.
                let within = self.find_within(start + BLOCK..end)?;
                if let Some(loss) = within {
                    return consent(&loss).map(|()| None);
                }
                self.look_behind(end, consent)?;
            }
            None if is_own && outputs == Outputs::Replaced => {
                // A hash area that is not whole is one that an interrupted run has left.
                self.find_within(start + BLOCK..self.bytes.end)?.map_or(Ok(()), |loss| consent(&loss))?;
            }
            None => self.look_behind(start, consent)?,
        }
        Ok(end)
    }

    /// Asks for consent if the place is a part of something, or something begins there that is known. Returns whether nothing was asked.
    ///
    /// # Errors
    /// `Io`; whatever the consent says.
    pub(super) fn look_at_beginning(&self, consent: Consent<'_>) -> Result<bool, Error> {
        let (medium, start) = (self.medium, self.bytes.start);
        if let Some(what) = self.belongs_to()? {
            return consent(&Loss::new(medium.name(), what)).map(|()| false);
        }
        let behind = medium.clone().window(start.min(medium.top().size()), None)?;
        let is_agreed = Cell::new(false);
        let ask = |loss: &Loss| {
            is_agreed.set(true);
            consent(loss)
        };
        target::look(behind.name(), behind.top(), self.made, self.is_own(), &ask)?;
        Ok(!is_agreed.get())
    }

    /// Whether the place begins with a regular file. A partition of a file is no file of its own.
    pub(super) fn is_own(&self) -> bool {
        let is_file = self.medium.start() == 0 && self.medium.path().is_some_and(Path::is_file);
        self.bytes.start == 0 && is_file
    }

    /// Asks for consent if something known begins at a block of the place.
    ///
    /// # Errors
    /// `Io`; whatever the consent says.
    pub(super) fn look_within(&self, consent: Consent<'_>) -> Result<(), Error> {
        self.find_within(self.bytes.clone())?.map_or(Ok(()), |loss| consent(&loss))
    }

    /// The loss of something known that begins at a block of these bytes.
    fn find_within(&self, bytes: Range<u64>) -> Result<Option<Loss>, Error> {
        let name = self.medium.name();
        let found = signatures::within(self.medium.top(), bytes).at(name)?;
        Ok(found.map(|(at, what)| Loss::new(name, format!("{what} at byte {at}"))))
    }

    /// Asks for consent if there is something from byte `free` of the medium on: what lies before it may be lost.
    ///
    /// # Errors
    /// `Io`; whatever the consent says.
    pub(super) fn look_behind(&self, free: u64, consent: Consent<'_>) -> Result<(), Error> {
        let rest = free.clamp(self.bytes.start, self.bytes.end)..self.bytes.end;
        target::look_at_bytes(self.medium.name(), self.medium.top(), rest, consent)
    }

    /// The contents that begin before the place, in the medium or in what it is a part of, if the place lies in them.
    fn belongs_to(&self) -> Result<Option<Cow<'static, str>>, Error> {
        let medium = self.medium;
        let found = medium.enclosing(self.bytes.clone())?;
        // Of the data's own contents the caller says where they end.
        let is_of_data = || self.data.path().is_some_and(|path| medium.is_file(path));
        let found = found.filter(|contents| contents.says_end || !is_of_data());
        Ok(found.map(|contents| contents.what))
    }
}

/// Ordinary outputs: regular files that hold nothing known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outputs {
    /// They are replaced without a question.
    Replaced,
    /// They are asked for.
    Kept,
}

/// Bytes that file systems and volumes begin at multiples of, where somebody puts them behind something else in a file.
const BLOCK: u64 = 4096;

/// Cuts a file to parity that was made in it and has `len` bytes, if all of the file was other parity, which ended at `there`: the length
/// tells the number of roots. Everything else there may be somebody's, zeros too.
///
/// # Errors
/// `Io`.
pub(super) fn cut(medium: &Medium, there: Option<u64>, len: u64) -> Result<(), Error> {
    // Something may have been added meanwhile.
    match there == Some(medium.top().size()) {
        true => medium.cut_to(len),
        false => Ok(()),
    }
}

/// Layout of the hash area that begins at a byte of a medium. Its superblock can say any size, so its blocks have to be a tree.
///
/// # Errors
/// `Io`; whatever stops the work.
pub(super) fn hash_area(medium: &Medium, offset: u64, work: &Work<'_>) -> Result<Option<Layout>, Error> {
    let Ok(layout) = Layout::read(medium, offset) else { return Ok(None) };
    match is_tree(&layout, medium.top(), work) {
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(None),
        is_tree => Ok(is_tree.at(medium.name())?.then_some(layout)),
    }
}
