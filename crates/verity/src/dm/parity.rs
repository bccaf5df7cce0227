//! Parity: its place, its layout, and whether it is there.

use casemate_blockdev::Medium;
use casemate_blockdev::target::{Consent, Made};
use casemate_providers::Work;

use super::Layout;
use super::fec::{self, FecDevices, FecLayout};
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
}

/// Parity with its layout.
#[derive(Debug)]
pub(super) struct Parity {
    pub(super) medium: Medium,
    pub(super) offset: u64,
    pub(super) layout: FecLayout,
    /// The number of roots whose parity has just the size of this one.
    pub(super) fitting: Option<u32>,
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
        Fec { medium: medium.into(), offset: 0, roots: None }
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
        let roots = self.roots.or(fitting).unwrap_or(ROOTS);
        let layout = FecLayout::new(layout, roots, metadata_end).map_err(|error| error.at(medium.name()))?;
        Ok(Parity { medium, offset: self.offset, layout, fitting })
    }
}

impl Parity {
    pub(super) fn place<'a>(&'a self, data: &'a Medium) -> Result<Place<'a>, Error> {
        place(&self.medium, self.offset, &self.layout, data)
    }

    /// Asks for consent if the parity's place has something else than parity of the data, of which data blocks in `changed` have
    /// changed since.
    ///
    /// # Errors
    /// `Io`; whatever the consent says.
    pub(super) fn look(
        &self,
        (layout, data, hash): (&Layout, &Medium, &Medium),
        changed: &Ranges,
        consent: Consent<'_>,
        work: &Work<'_>,
    ) -> Result<(), Error> {
        if self.is_there(layout, data, hash, changed, work)? {
            return Ok(());
        }
        self.place(data)?.look(consent, work)
    }

    pub(super) fn is_there(
        &self,
        layout: &Layout,
        data: &Medium,
        hash: &Medium,
        changed: &Ranges,
        work: &Work<'_>,
    ) -> Result<bool, Error> {
        let (named_data, named_hash, parity) = (data.named(), hash.named(), self.medium.named());
        let devices =
            FecDevices { data: &named_data, hash: &named_hash, parity: &parity, parity_offset: self.offset };
        fec::is_there(layout, &self.layout, &devices, changed, work)
    }
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
