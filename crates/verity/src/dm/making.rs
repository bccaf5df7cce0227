//! Making hash areas, and parity with them.

use casemate_blockdev::target::{Consent, Made};
use casemate_blockdev::{Advice, BlockDevice, Code, Medium, Output, Uuid, name_all, signatures};
use casemate_providers::{Providers, Seed, Work};

use super::driver::driven;
use super::fec::{self, FecDevices, FecLayout, Seen};
use super::parity;
use super::place::{self, Place};
use super::remains::left_behind;
use super::{Fec, Layout, Salt, VerityOptions};
use crate::tree::Ranges;
use crate::{Error, hex};

/// Hash area that [`FormatOptions::format`] is to make.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct FormatOptions {
    /// The hash area.
    pub area: VerityOptions,
    /// The UUID in the superblock; a random one if `None`, or one of the seed.
    pub uuid: Option<Uuid>,
    /// The seed of salt and UUID where they are not said, so that they are the same each time.
    pub seed: Option<Seed>,
    /// Whether what lies where hash area and parity go may be lost. A hash area that is there may, always.
    pub overwrite: bool,
}

/// Hash area that [`FormatOptions::format`] has made.
#[derive(Clone, Debug)]
pub struct Formatted {
    /// The layout of data and hash area.
    pub layout: Layout,
    /// The root hash.
    pub root_hash: Vec<u8>,
    /// The layout of the parity, if there is one.
    pub fec: Option<FecLayout>,
    /// Whether the parity lies on the hash device.
    pub fec_on_hash_device: bool,
}

/// Parity that is there where new parity will begin, of the hash area that is made again.
#[derive(Clone, Copy, Debug)]
enum Again {
    /// No hash area is there, so there is no parity of it.
    Nothing,
    /// It is not there, as far as anything tells.
    Other,
    /// The size of the file tells it, and where it ends.
    Sized(u64),
    /// Rounds of it tell it, and where it ends.
    Seen(u64),
}

/// Ends of the hash area and the parity that are made again.
#[derive(Clone, Copy, Debug, Default)]
struct There {
    area: Option<u64>,
    parity: Option<u64>,
}

impl FormatOptions {
    /// Bytes that [`FormatOptions::format`] will work on.
    pub fn work_size(&self, data: &Medium) -> u64 {
        let block_size = u64::from(self.area.data_block_size.unwrap_or_default().bytes());
        let blocks = self.area.data_blocks.map(|blocks| blocks.saturating_mul(block_size));
        let size = blocks.unwrap_or(data.top().size());
        if self.area.fec.is_some() { size.saturating_mul(2) } else { size }
    }

    /// Asks for consent if hash area or parity would take the place of something else than those that are made again.
    ///
    /// # Errors
    /// `Io`; whatever the consent says.
    fn look(
        &self,
        area: &Place<'_>,
        parity: Option<&Place<'_>>,
        consent: Consent<'_>,
        work: &Work<'_>,
    ) -> Result<There, Error> {
        let mut there = There { area: area.look(consent, work)?, parity: None };
        let (Some(place), Some(fec)) = (parity, &self.area.fec) else { return Ok(there) };
        match self.made_again(fec, area, work)? {
            Again::Nothing => drop(place.look(consent, work)?),
            // A file that is longer than the new parity is more than parity.
            Again::Other if place.medium.top().size() > place.bytes.end => {
                place.look_at_all(consent, work)?
            }
            Again::Other => drop(place.look(consent, work)?),
            Again::Sized(end) => {
                place.look_within(consent)?;
                place.look_behind(end, consent)?;
                there.parity = Some(end);
            }
            Again::Seen(end) => {
                place.look_behind(end, consent)?;
                there.parity = Some(end);
            }
        }
        Ok(there)
    }

    /// Looks for the parity of the hash area that is there, where the new one will begin.
    fn made_again(&self, fec: &Fec, area: &Place<'_>, work: &Work<'_>) -> Result<Again, Error> {
        let (data, hash) = (area.data, area.medium);
        if !self.area.superblock || hash.is_new() || fec.medium.is_new() {
            return Ok(Again::Nothing);
        }
        let Some(layout) = place::hash_area(hash, self.area.hash_offset, work)? else {
            return Ok(Again::Nothing);
        };
        let on_hash_device = fec.medium.is_same(hash);
        let hash_end = layout.hash_device_size().max(if on_hash_device { fec.offset } else { 0 });
        let is_whole = layout.geometry().data_size() <= data.top().size() && hash_end <= hash.top().size();
        let of_any_roots = Fec { roots: None, ..fec.clone() };
        let Ok(mut parity) = of_any_roots.found(&layout, data, hash) else { return Ok(Again::Other) };
        if is_whole {
            parity.settle((&layout, data, hash), &Ranges::new(), work.providers.cpu())?;
            if parity.seen((&layout, data, hash), &Ranges::new(), work)? == Seen::Parity {
                return Ok(Again::Seen(parity.place(data)?.bytes.end));
            }
        }
        // The data are others now.
        let Ok(parity) = fec.found(&layout, data, hash) else { return Ok(Again::Other) };
        Ok(match parity.is_known_by_size(data, hash) {
            true => Again::Sized(parity.place(data)?.bytes.end),
            false => Again::Other,
        })
    }

    /// Where everything will lie.
    ///
    /// # Errors
    /// `Argument` for what can't be; `Unsupported` for an unknown algorithm; `Io` if there are no random numbers.
    pub fn layout(&self, data: &Medium, providers: &Providers) -> Result<Layout, Error> {
        let parameters = self.area.parameters(|| match &self.seed {
            Some(seed) => Salt::from_seed(seed, providers),
            None => Salt::random(),
        })?;
        let uuid = match (self.area.superblock, self.uuid, &self.seed) {
            (false, ..) => None,
            (true, Some(uuid), _) => Some(uuid),
            (true, None, Some(seed)) => Some(seed.uuid(providers)?),
            (true, None, None) => Some(Uuid::random()?),
        };
        self.area.layout_over(data, parameters, uuid)
    }

    /// Makes a hash area for data, and parity if it is wanted. `consent` is asked if something would be lost, unless the options
    /// give it.
    ///
    /// A new file ([`Medium::create`]) gets its name at the end, so it is there whole or not at all. A file that exists, or a
    /// device, is written in place, the superblock last. `hash` may be a clone of the data's medium, for a hash area behind
    /// the data.
    ///
    /// # Errors
    /// `Argument` for what can't be; whatever the consent says; `Io` says which file; if an existing file was left with half a
    /// hash area, it says this too.
    pub fn format(
        &self,
        data: &Medium,
        hash: &Medium,
        consent: Consent<'_>,
        work: &Work<'_>,
    ) -> Result<Formatted, Error> {
        self.format_beside(data, hash, consent, work, |_| Ok(Vec::new()))
    }

    /// Makes a hash area and parity as [`FormatOptions::format`] does, and files of the caller's beside them: when all else is complete,
    /// `beside` writes their contents, the root hash for example, and returns them to get their names before new media get theirs.
    ///
    /// # Errors
    /// Errors of [`FormatOptions::format`]; whatever `beside` says. No new file has a name then; of what was written in place the error
    /// has the root hash.
    pub fn format_beside(
        &self,
        data: &Medium,
        hash: &Medium,
        consent: Consent<'_>,
        work: &Work<'_>,
        beside: impl FnOnce(&Formatted) -> Result<Vec<Output>, Error>,
    ) -> Result<Formatted, Error> {
        let formatted = self.make(data, hash, consent, work)?;
        let outputs: Vec<&Medium> = self.area.fec.iter().map(|fec| &fec.medium).chain([hash]).collect();
        let leaves_nothing = outputs.iter().all(|output| output.leaves_nothing());
        let name = || {
            let files = beside(&formatted)?;
            // Data that are a new file have no name yet, either.
            data.check_name()?;
            name_all(files, &outputs)
        };
        match name() {
            Ok(()) => Ok(formatted),
            Err(error) if leaves_nothing => Err(error),
            Err(error) => {
                let root_hash = hex::encode(&formatted.root_hash);
                Err(error.map_text(|text| format!("{text}; the new root hash is {root_hash}")))
            }
        }
    }

    /// Makes a hash area and parity as [`FormatOptions::format`] does. New files have their contents then, and not their names: the
    /// caller gives them theirs with [`name_all`], when everything else is complete that belongs to them.
    ///
    /// # Errors
    /// Errors of [`FormatOptions::format`], but for names.
    pub fn make(
        &self,
        data: &Medium,
        hash: &Medium,
        consent: Consent<'_>,
        work: &Work<'_>,
    ) -> Result<Formatted, Error> {
        let layout = self.layout(data, &work.providers)?;
        let work = &driven(work, layout.parameters().algorithm(), self.area.driver.as_deref())?;
        let area = self.area.hash_offset..layout.hash_device_size();
        if data.is_same(hash) {
            layout.check_one_device()?;
        } else if data.is_changed_by(layout.geometry().data_size(), hash, area.clone()) {
            let text =
                "data area overlaps with hash area: both are in one file; give the partition of the data";
            let error = Error::coded(Code::Overlap, text).advise(Advice::DataBlocks);
            return Err(error.at(hash.name()));
        }
        let parity = self.area.fec.as_ref().map(|fec| &fec.medium);
        let _lease = Medium::lease_all(&[hash].into_iter().chain(parity).collect::<Vec<_>>())?;
        let mut fec_layout = None;
        let mut on_hash_device = false;
        let made = if self.area.superblock { Made::Known(signatures::VERITY) } else { Made::Data };
        let area_end = area.end;
        let area = Place { medium: hash, bytes: area, data, made };
        area.check_room("a hash area")?;
        let mut parity = None;
        if let Some(fec) = &self.area.fec {
            on_hash_device = fec.check_place(&layout, data, hash)?;
            // With a parity that can't be, nothing should be written at all.
            let hash_end = layout.hash_device_size().max(hash.top().size());
            let made = fec.new_layout(&layout, on_hash_device, hash_end)?;
            let place = parity::place(&fec.medium, fec.offset, &made, data)?;
            place.check_room("parity")?;
            parity = Some(place);
        }
        let there = match self.overwrite {
            true => There::default(),
            false => self.look(&area, parity.as_ref(), consent, work)?,
        };
        let is_own = area.is_own();
        let is_apart = !data.is_changed_by(data.top().size(), hash, 0..hash.top().size());
        // Of a hash area that has its device for itself: what lies before it, or is protected, stays.
        let is_alone = self.area.hash_offset == 0 && hash.is_in_block_device() && is_apart;
        if is_alone {
            hash.erase_signatures(0, work.events)?;
        }
        if let Some(fec) = self.area.fec.as_ref().filter(|fec| !fec.keep_behind && fec.is_alone(data, hash)) {
            // Before the parity is made: whoever repeats this finds no longer file then.
            let hash_end = layout.hash_device_size().max(hash.top().size());
            let made = fec.new_layout(&layout, on_hash_device, hash_end)?;
            place::cut(&fec.medium, there.parity, made.parity_size())?;
        }
        let (named_data, named_hash) = (data.named(), hash.named());
        let root_hash = super::format(&layout, &named_data, &named_hash, work);
        let root_hash = root_hash.map_err(|error| left_behind(error, hash))?;
        // What is left of a longer tree would be data that nothing knows. On disks and beside the data it stays: a superblock may call
        // anything a tree.
        let rest = there.area.and_then(|end| end.checked_sub(area_end)).filter(|len| *len > 0);
        if let Some(len) = rest.filter(|_| is_own && is_apart) {
            let zeroed = named_hash.write_zeroes(area_end, len, true);
            zeroed.and_then(|()| named_hash.flush()).map_err(|error| left_behind(error, hash))?;
        }
        if let Some(fec) = &self.area.fec {
            if on_hash_device && hash.top().size() < fec.offset {
                // What lies between hash area and parity is covered, so it must be there.
                named_hash.write_at(&[0], fec.offset - 1).map_err(|error| left_behind(error, hash))?;
            }
            let made = fec.new_layout(&layout, on_hash_device, hash.top().size())?;
            let parity = fec.medium.named();
            let devices = FecDevices {
                data: &named_data,
                hash: &named_hash,
                parity: &parity,
                parity_offset: fec.offset,
            };
            let encoded = fec::encode(&made, &devices, work).and_then(|()| parity.flush());
            encoded.map_err(|error| left_behind(error, &fec.medium))?;
            fec_layout = Some(made);
        }
        Ok(Formatted { layout, root_hash, fec: fec_layout, fec_on_hash_device: on_hash_device })
    }
}

/// Asks for consent if files that new ones are going to replace have more than a hash area and its parity: the file of a hash area, and
/// that of its parity, if there is one.
///
/// # Errors
/// `Io`; whatever the consent says.
pub fn look_at_earlier(
    hash: &Medium,
    parity: Option<&Fec>,
    consent: Consent<'_>,
    work: &Work<'_>,
) -> Result<(), Error> {
    let Some(layout) = place::hash_area(hash, 0, work)? else { return Ok(()) };
    let all = |medium| Place { medium, bytes: 0..medium.top().size(), data: medium, made: Made::Data };
    all(hash).look_behind(layout.hash_device_size(), consent)?;
    let Some(fec) = parity else { return Ok(()) };
    // Zeros behind a tree are covered.
    let made = fec.new_layout(&layout, false, hash.top().size())?;
    all(&fec.medium).look_behind(made.parity_size(), consent)
}
