//! Parity: its place, its layout, and whether it is there.

use std::path::Path;

use casemate_blockdev::target::{self, Consent, Loss, Made};
use casemate_blockdev::{Advice, Medium};
use casemate_primitives::Cpu;
use casemate_providers::Work;

use super::Layout;
use super::fec::{self, FecDevices, FecLayout, Seen};
use super::place::Place;
use crate::tree::Ranges;
use crate::{Code, Error};

/// Parity for error correction.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Fec {
    /// The medium with the parity; it may be the hash device.
    pub medium: Medium,
    /// The byte that the parity begins at there: a multiple of the block size.
    pub offset: u64,
    /// Parity bytes for each codeword of 255: 2 to 24. If `None`, what the size of parity that exists says, or 2.
    pub roots: Option<u32>,
    /// Whether a file with longer parity of the same data keeps its length, when the parity is made. Off by default, because the length
    /// tells the number of roots.
    pub keep_behind: bool,
}

/// Parity with its layout.
#[derive(Clone, Debug)]
pub(super) struct Parity {
    pub(super) medium: Medium,
    pub(super) offset: u64,
    pub(super) layout: FecLayout,
    /// The number of roots whose parity has just the size of this one.
    pub(super) fitting: Option<u32>,
    /// The origin of the number of roots.
    pub(super) roots: Roots,
    /// Whether the place is a file of its own.
    pub(super) is_alone: bool,
    pub(super) keep_behind: bool,
}

/// The origin of a number of roots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Roots {
    /// Somebody said it.
    Said,
    /// The size of the parity tells it.
    Size,
    /// Rounds of the parity are of this number.
    Rounds,
    /// Nothing tells it.
    Unknown,
}

/// As many as veritysetup takes where nothing is said.
const ROOTS: u32 = 2;

/// The number of roots whose parity has so many bytes; more roots always need more.
fn roots_of(layout: &Layout, metadata_end: u64, size: u64) -> Option<u32> {
    (2..=24).find(|roots| {
        FecLayout::new(layout, *roots, metadata_end).is_ok_and(|layout| layout.parity_size() == size)
    })
}

impl Fec {
    /// Parity from the beginning of a medium on.
    pub fn new(medium: impl Into<Medium>) -> Fec {
        Fec { medium: medium.into(), offset: 0, roots: None, keep_behind: false }
    }

    /// Checks that the parity overlaps nothing, and says whether it is on the hash device.
    pub(super) fn check_place(&self, layout: &Layout, data: &Medium, hash: &Medium) -> Result<bool, Error> {
        let block_size = u64::from(layout.parameters().data_block_size.bytes());
        if !self.offset.is_multiple_of(block_size) {
            let text =
                format!("parity offset {} is not a multiple of the block size {block_size}", self.offset);
            return Err(Error::argument(text));
        }
        let on_hash_device = self.medium.is_same(hash);
        let mut free = if on_hash_device { layout.hash_device_size() } else { 0 };
        if self.medium.is_same(data) {
            free = free.max(layout.geometry().data_size());
        }
        if self.offset < free {
            let name = self.medium.name();
            // There, or behind what is protected of another hash device.
            let end = if on_hash_device { free } else { layout.hash_device_size().max(hash.top().size()) };
            let len = FecLayout::new(layout, self.roots.unwrap_or(ROOTS), end)?.parity_size();
            let has_room = !self.medium.is_fixed()
                || free.checked_add(len).is_some_and(|end| end <= self.medium.top().size());
            let hint = match has_room {
                true => format!("it can begin at {free}"),
                false => format!("there is no room for it behind them: it has {len} bytes"),
            };
            let place = self.offset;
            let text = format!("the parity at {place} overlaps the data or the hash area in {name}; {hint}");
            return Err(Error::argument(text));
        }
        Ok(on_hash_device)
    }

    /// The layout of new parity, where the hash device ends at `hash_end`.
    pub(super) fn new_layout(
        &self,
        layout: &Layout,
        on_hash_device: bool,
        hash_end: u64,
    ) -> Result<FecLayout, Error> {
        let metadata_end = if on_hash_device { self.offset } else { hash_end };
        FecLayout::new(layout, self.roots.unwrap_or(ROOTS), metadata_end)
    }

    /// Parity that is stored for a layout.
    pub(super) fn found(&self, layout: &Layout, data: &Medium, hash: &Medium) -> Result<Parity, Error> {
        let on_hash_device = self.check_place(layout, data, hash)?;
        let metadata_end = if on_hash_device { self.offset } else { hash.top().size() };
        let medium = self.medium.clone();
        let fitting = roots_of(layout, metadata_end, medium.top().size().saturating_sub(self.offset));
        let (number, roots) = match (self.roots, fitting) {
            (Some(roots), _) => (roots, Roots::Said),
            (None, Some(roots)) => (roots, Roots::Size),
            (None, None) => (ROOTS, Roots::Unknown),
        };
        let layout = FecLayout::new(layout, number, metadata_end).map_err(|error| error.at(medium.name()))?;
        let is_alone = self.is_alone(data, hash);
        let keep_behind = self.keep_behind;
        Ok(Parity { medium, offset: self.offset, layout, fitting, roots, is_alone, keep_behind })
    }

    /// Whether the place is a regular file, all of it, that has neither the data nor their hash area.
    pub(super) fn is_alone(&self, data: &Medium, hash: &Medium) -> bool {
        let medium = &self.medium;
        let size = medium.top().size();
        let is_apart = |other: &Medium| {
            !medium.is_same(other) && !other.may_be_changed_by(other.top().size(), medium, 0..size)
        };
        let is_file = medium.start() == 0 && !medium.is_fixed() && medium.path().is_some_and(Path::is_file);
        self.offset == 0 && is_file && is_apart(data) && is_apart(hash)
    }
}

impl Parity {
    pub(super) fn place<'a>(&'a self, data: &'a Medium) -> Result<Place<'a>, Error> {
        place(&self.medium, self.offset, &self.layout, data)
    }

    /// Asks for consent if the parity's place has something else than parity of the data, of which data blocks in `changed` have
    /// changed since. Returns whether it has that parity.
    ///
    /// # Errors
    /// `Io`; whatever the consent says.
    pub(super) fn look(
        &self,
        (layout, data, hash): (&Layout, &Medium, &Medium),
        changed: &Ranges,
        consent: Consent<'_>,
        work: &Work<'_>,
    ) -> Result<bool, Error> {
        let devices = (layout, data, hash);
        let place = self.place(data)?;
        match self.seen(devices, changed, work)? {
            Seen::Parity => return Ok(true),
            Seen::Unknown if self.is_known_by_size(data, hash) => place.look_within(consent)?,
            Seen::Unknown => place.look_at_all(&|loss| consent(&perhaps_parity(loss)), work)?,
            Seen::Other => match self.end_of_other_roots(devices, changed, work)? {
                Some(end) => place.look_behind(self.offset.saturating_add(end), consent)?,
                // Parity that is cut off is replaced.
                None if !self.has_room() && self.is_begun(devices, changed, work)? => {}
                // The caller refuses it.
                None if self.check_known().is_err() => drop(place.look_at_beginning(consent)?),
                None => place.look_at_all(&|loss| consent(&other_than_parity(loss)), work)?,
            },
        }
        Ok(false)
    }

    /// Whether rounds of the place, which may be too short for all of them, are this parity.
    fn is_begun(
        &self,
        (layout, data, hash): (&Layout, &Medium, &Medium),
        changed: &Ranges,
        work: &Work<'_>,
    ) -> Result<bool, Error> {
        let end = self.layout.metadata_offset() + self.layout.metadata_size();
        self.on_devices(data, hash, |devices| {
            let found = fec::layout_of_rounds((layout, end), devices, changed, work.providers.cpu())?;
            Ok(found.is_some_and(|found| found == self.layout))
        })
    }

    /// Whether the size of the place is that of parity with just this number of roots, which somebody said or is the usual one, in a
    /// file of its own or behind what it protects. Nothing else may contradict it.
    pub(super) fn is_known_by_size(&self, data: &Medium, hash: &Medium) -> bool {
        // Parities of two images in one file have the size of one with more roots.
        let is_meant = self.roots == Roots::Said || self.layout.roots() == ROOTS;
        let is_place = self.is_alone || self.medium.is_same(hash) || self.medium.is_same(data);
        is_meant && is_place && self.fitting == Some(self.layout.roots())
    }

    /// Where parity of the data ends that has another number of roots than was said; `None` if there is none.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn end_of_other_roots(
        &self,
        devices: (&Layout, &Medium, &Medium),
        changed: &Ranges,
        work: &Work<'_>,
    ) -> Result<Option<u64>, Error> {
        let (layout, data, hash) = devices;
        let medium = self.medium.clone();
        let place = Fec { medium, offset: self.offset, roots: None, keep_behind: self.keep_behind };
        let Ok(mut parity) = place.found(layout, data, hash) else { return Ok(None) };
        parity.settle(devices, changed, work.providers.cpu())?;
        let is_there = parity.seen(devices, changed, work)? == Seen::Parity;
        Ok(is_there.then_some(parity.layout.parity_size()))
    }

    /// Contents of the place, as far as some rounds tell them.
    ///
    /// # Errors
    /// Errors of [`fec::look`].
    pub(super) fn seen(
        &self,
        (layout, data, hash): (&Layout, &Medium, &Medium),
        changed: &Ranges,
        work: &Work<'_>,
    ) -> Result<Seen, Error> {
        self.on_devices(data, hash, |devices| fec::look(layout, &self.layout, devices, changed, work))
    }

    /// Takes the number of roots that the rounds tell, if they tell one and nobody has said it. Data blocks in `changed` have changed
    /// since the parity was made.
    ///
    /// # Errors
    /// Errors of [`fec::layout_of_rounds`].
    pub(super) fn settle(
        &mut self,
        (layout, data, hash): (&Layout, &Medium, &Medium),
        changed: &Ranges,
        cpu: Cpu,
    ) -> Result<(), Error> {
        if self.roots == Roots::Said {
            return Ok(());
        }
        let end = self.layout.metadata_offset() + self.layout.metadata_size();
        let found = self.on_devices(data, hash, |devices| {
            let is_told = self.roots == Roots::Size
                && fec::begins_with((layout, end), &self.layout, devices, changed, cpu)?;
            match is_told {
                true => Ok(None),
                false => fec::layout_of_rounds((layout, end), devices, changed, cpu),
            }
        })?;
        if let Some(found) = found.filter(|found| *found != self.layout || self.roots == Roots::Unknown) {
            (self.layout, self.roots) = (found, Roots::Rounds);
        }
        Ok(())
    }

    /// Whether the medium is not too short for the parity.
    pub(super) fn has_room(&self) -> bool {
        self.medium.top().size().saturating_sub(self.offset) >= self.layout.parity_size()
    }

    /// Refuses a file of its own of which nothing tells the number of roots: what was parity of another number is not silently replaced.
    ///
    /// # Errors
    /// `Argument`.
    pub(super) fn check_known(&self) -> Result<(), Error> {
        // What is longer keeps its number, which its rounds tell.
        let is_known = match self.roots {
            Roots::Said | Roots::Size => true,
            Roots::Rounds => self.has_room(),
            Roots::Unknown => false,
        };
        if is_known || !self.is_alone {
            return Ok(());
        }
        let size = self.medium.top().size();
        let text = format!(
            "{}: {size} bytes are not the size of parity of these data with any number of roots: it is cut off, or is something else",
            self.medium.name()
        );
        Err(Error::argument(text).advise(Advice::FecRoots))
    }

    /// Makes the parity.
    ///
    /// # Errors
    /// Errors of [`fec::encode`].
    pub(super) fn make(&self, data: &Medium, hash: &Medium, work: &Work<'_>) -> Result<(), Error> {
        self.on_devices(data, hash, |devices| {
            fec::encode(&self.layout, devices, work)?;
            devices.parity.flush()
        })
    }

    fn on_devices<T>(
        &self,
        data: &Medium,
        hash: &Medium,
        work: impl FnOnce(&FecDevices<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (data, hash, parity) = (data.named(), hash.named(), self.medium.named());
        work(&FecDevices { data: &data, hash: &hash, parity: &parity, parity_offset: self.offset })
    }
}

/// A loss of what may be parity, although nothing shows it.
fn perhaps_parity(loss: &Loss) -> Loss {
    if loss.what() != target::UNKNOWN {
        return loss.clone();
    }
    let text = "perhaps the parity of the data as they were (too many blocks have changed to tell)";
    Loss::new(loss.name(), format!("{}, {text}", loss.what()))
}

/// A loss of what the parity of the data is not, although it was named as that.
pub(super) fn other_than_parity(loss: &Loss) -> Loss {
    if loss.what() != target::UNKNOWN {
        return loss.clone();
    }
    Loss::new(loss.name(), "data that are not parity of these data")
}

/// The place of parity.
///
/// # Errors
/// `Argument` if it is too far away.
pub(super) fn place<'a>(
    medium: &'a Medium,
    offset: u64,
    layout: &FecLayout,
    data: &'a Medium,
) -> Result<Place<'a>, Error> {
    let end = offset.checked_add(layout.parity_size()).filter(|end| *end < 1 << 63);
    let far =
        || Error::coded(Code::NoRoom, format!("{}: the parity at {offset} is too far away", medium.name()));
    Ok(Place { medium, bytes: offset..end.ok_or_else(far)?, data, made: Made::Data })
}
