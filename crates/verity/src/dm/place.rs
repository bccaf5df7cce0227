//! Places that hash areas and parity are written to: what lies there is looked at, and asked for.

use std::borrow::Cow;
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
/// - A file of its own, from its first byte on, has what an interrupted run has left, or is an ordinary output: it is replaced
///   if it holds nothing known.
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

    /// Asks for consent if something would be lost.
    ///
    /// # Errors
    /// `Io`; whatever the consent says.
    pub(super) fn look(&self, consent: Consent<'_>, work: &Work<'_>) -> Result<(), Error> {
        let (medium, start) = (self.medium, self.bytes.start);
        if medium.is_new() {
            return Ok(());
        }
        if let Some(what) = self.belongs_to()? {
            return consent(&Loss::new(medium.name(), what));
        }
        // A partition of a file is no file of its own.
        let is_file = medium.start() == 0 && medium.path().is_some_and(Path::is_file);
        let is_own = start == 0 && is_file;
        let behind = medium.clone().window(start.min(medium.top().size()), None)?;
        target::look(behind.name(), behind.top(), self.made, is_own, consent)?;
        if is_own {
            return Ok(());
        }
        // Of a hash area that is made again.
        let free = match self.made {
            Made::Known(signatures::VERITY) => hash_area(medium, start, work)?,
            _ => None,
        };
        self.look_behind(free.map_or(start, |layout| layout.hash_device_size()), consent)
    }

    /// Asks for consent unless all of the place is free, also in a file of its own.
    ///
    /// # Errors
    /// `Io`; whatever the consent says.
    pub(super) fn look_at_all(&self, consent: Consent<'_>) -> Result<(), Error> {
        match self.belongs_to()? {
            Some(what) => consent(&Loss::new(self.medium.name(), what)),
            None => self.look_behind(self.bytes.start, consent),
        }
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
