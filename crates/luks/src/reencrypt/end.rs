//! The end of the work: the header that knows one segment and one key, and what is wiped when nothing needs it any more.
//!
//! The header's first copy is written, then the second one is marked as superseded, then the areas and places that are of no use
//! are wiped, and then the second copy is written. So what is cut off in between is a volume as it will be, for every program, and its
//! second copy still says what was to be done: the same command again does the rest of that, and begins nothing. Should the first copy
//! be lost then, the second one is not taken in its place: it leads to what was wiped.

use std::ops::Range;

use crate::Header;
use crate::luks2::Metadata;
use crate::luks2::reencrypt::Reencryption;
use casemate_blockdev::{AtFile, BlockDevice, Medium};
use casemate_providers::Work;

use super::{ReencryptOptions, begun};
use crate::change::wipe;
use crate::locks::HeaderLock;
use crate::random::Source;
use crate::unlock::{self, Budget};
use crate::{Advice, Error};
use crate::{LuksKey, LuksOptions, Volume};

/// An end that was cut off between both copies of the header.
pub(super) struct Ending {
    pub course: Reencryption,
    before: Metadata,
    leftovers: Leftovers,
}

/// Areas and places that are of no use any more when all is done.
pub(super) struct Leftovers {
    /// Areas of key slots that the header does not know any more, on the device with the header; whether a key was there.
    areas: Vec<(Range<u64>, bool)>,
    /// Where no data are any more, on the device with the data.
    left: Option<Range<u64>>,
}

impl Leftovers {
    /// Compares the metadata of before and after the end, and collects what is of no use any more. `len`: bytes of the
    /// data.
    pub fn new(course: &Reencryption, before: &Metadata, after: &Metadata, len: u64) -> Leftovers {
        let kept = after.keyslots();
        let gone = before.keyslots().into_iter().filter(|slot| kept.iter().all(|kept| kept.id != slot.id));
        let areas = gone.map(|slot| {
            let area = slot.area.offset..slot.area.offset.saturating_add(slot.area.size);
            (area, slot.kind != "reencrypt")
        });
        let (new_end, old_end) = (course.new_place(len), course.backups.previous.offset.saturating_add(len));
        let left = match &course.backups.moved {
            // Plain data that were moved out of the way.
            Some(moved) if moved.kind == "linear" => Some(moved.offset..moved.offset + course.moved_len()),
            // The end of the device, which the data have left.
            _ if new_end < old_end => Some(new_end..old_end),
            _ => None,
        };
        Leftovers { areas: areas.collect(), left }
    }

    /// Leaves out whatever lies beyond data of `size` bytes.
    fn cut_at(mut self, size: u64) -> Leftovers {
        let left = self.left.map(|left| left.start..left.end.min(size));
        self.left = left.filter(|left| !left.is_empty());
        self
    }

    /// Wipes it, until that is on stable storage.
    pub fn wipe(&self, header: &dyn BlockDevice, data: &dyn BlockDevice) -> Result<(), Error> {
        for (area, is_key) in &self.areas {
            // Of the reencryption's own area nobody needs more than that it is gone.
            match is_key {
                true => wipe(header, area.clone())?,
                false => header.write_zeroes(area.start, area.end - area.start, false)?,
            }
        }
        header.flush()?;
        self.left.clone().map_or(Ok(()), |left| wipe(data, left))
    }
}

impl Volume {
    /// The end that was cut off, if one was: the header is that of a volume that is done, and its second copy that of before.
    pub(super) fn ending(&self) -> Option<Ending> {
        let Header::Luks2(header) = &self.header else { return None };
        let before = header.superseded()?;
        let course = before.reencryption().ok()??;
        let after = course.ended(before, self.is_attached).ok()?;
        let size = self.data.top().size();
        // The length that was noted also holds on a device that has got another one.
        let len = course.data_size.or_else(|| course.len(size).ok())?;
        let is_it = after.to_plain() == header.metadata.to_plain();
        let leftovers = Leftovers::new(&course, before, &after, len);
        is_it.then(|| Ending { course, before: before.clone(), leftovers })
    }

    /// Does the rest of an end that was cut off, without a key: for a volume all of whose keys will be gone.
    pub(crate) fn wipe_leftovers(&mut self, work: &Work<'_>) -> Result<(), Error> {
        let Some(Ending { leftovers, .. }) = self.ending() else { return Ok(()) };
        let _lease = Medium::lease_all(&[&self.header_image, &self.data])?;
        let name = self.header_image.name().to_owned();
        self.wipe_and_mend(&leftovers.cut_at(self.data.top().size()), work).at(&name)
    }

    /// Wipes what is of no use any more, and writes the copy of the header that told of it.
    fn wipe_and_mend(&mut self, leftovers: &Leftovers, work: &Work<'_>) -> Result<(), Error> {
        let _claim = HeaderLock::of(&self.header_image).take()?;
        let Header::Luks2(header) = &mut self.header else { return Err(Error::unsupported("LUKS1")) };
        let device = self.header_image.top();
        header.check_unchanged(device)?;
        leftovers.wipe(device, self.data.top())?;
        header.repair(device, &work.providers, &mut |bytes| Source::System.fill(bytes)).map(|_| ())
    }

    /// Whether the last step of a reencryption was cut off: the volume is as it will be, and something is still to be wiped.
    pub fn is_ending(&self) -> bool {
        self.ending().is_some()
    }

    /// Whether an end was cut off that will wipe a part of the data's device: until then nothing may be written there.
    pub(crate) fn is_end_to_be_wiped(&self) -> bool {
        match (self.ending(), &self.header) {
            (Some(ending), _) => ending.leftovers.left.is_some(),
            // On a device of another length nothing tells what will be wiped once it has its own again.
            (None, Header::Luks2(header)) => header.is_ending(),
            (None, Header::Luks1(_)) => false,
        }
    }

    /// Does the rest of an end that was cut off. A key of the data is needed where they have one.
    pub(super) fn go_on_ending(
        &mut self,
        ending: &Ending,
        keys: &[LuksKey],
        unlocking: &LuksOptions,
        options: &ReencryptOptions,
        work: &Work<'_>,
    ) -> Result<bool, Error> {
        let Ending { course, before, leftovers } = ending;
        let noun = course.mode.noun();
        if options.init_only {
            let text = format!("{noun} was cut off at its very end");
            return Err(Error::argument(text).advise(Advice::FinishReencryption));
        }
        begun::check(course, before, &self.data, options)?;
        let Header::Luks2(header) = &self.header else { return Err(Error::unsupported("LUKS1")) };
        let device = self.header_image.top();
        if let Some(digest) = course.digests[1] {
            let key = keys.first().ok_or_else(|| Error::argument("no passphrase was given"))?;
            let budget = &mut Budget::new(unlocking.limits);
            unlock::key_of_digest(header, device, digest, key, unlocking, budget, work)?;
        }
        self.wipe_and_mend(leftovers, work).map(|()| true)
    }
}
