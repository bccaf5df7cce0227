//! The end of the work: the header that knows one segment and one key, and what is wiped when nothing needs it any more.
//!
//! The header's first copy is written, then the second one is marked as superseded, then the areas and places that are of no use
//! are wiped, and then the second copy is written. So what is cut off in between is a volume as it will be, for every program, and its
//! second copy still says what was to be done: the same command again does the rest of that, and begins nothing. Should the first copy
//! be lost then, the second one is not taken in its place: it leads to what was wiped.

use std::ops::Range;

use crate::Header;
use crate::luks2::reencrypt::{Part, Reencryption, State};
use crate::luks2::{self, Metadata};
use casemate_blockdev::{AtFile, BlockDevice, Medium, u64_of, usize_of};
use casemate_providers::Work;

use super::samples::Sampler;
use super::sides::Keys;
use super::{ReencryptOptions, begun};
use crate::change::wipe;
use crate::locks::HeaderLock;
use crate::random::Source;
use crate::unlock::{self, Budget};
use crate::{Advice, Error, ErrorKind};
use crate::{LuksKey, LuksOptions, Volume};

/// Bytes that are compared at once, and of a sector, which is written whole or not at all.
const CHUNK: usize = 1 << 20;
const SECTOR: usize = 512;

/// Bytes of a key's area that are zeros once it is wiped.
const HEAD: u64 = 4096;

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
    /// Where plain data lay before they were moved to be encrypted, on the device with the data: runs, in their order.
    left: Vec<Range<u64>>,
}

impl Leftovers {
    /// Compares the metadata of before and after the end, and collects what is of no use any more.
    pub fn new(course: &Reencryption, before: &Metadata, after: &Metadata) -> Leftovers {
        let kept = after.keyslots();
        let gone = before.keyslots().into_iter().filter(|slot| kept.iter().all(|kept| kept.id != slot.id));
        let areas = gone.map(|slot| {
            let area = slot.area.offset..slot.area.offset.saturating_add(slot.area.size);
            (area, slot.kind != "reencrypt")
        });
        // Ciphertext that data have left is of no use without its key, and stays.
        let moved = course.backups.moved.as_ref().filter(|moved| moved.kind == "linear");
        let left = moved.map(|moved| moved.offset..moved.offset.saturating_add(course.moved_len()));
        let left = left.into_iter().collect();
        Leftovers { areas: areas.collect(), left }
    }

    /// Leaves out whatever lies beyond data of `size` bytes.
    fn cut_at(mut self, size: u64) -> Leftovers {
        self.left.iter_mut().for_each(|left| left.end = left.end.min(size));
        self.left.retain(|left| !left.is_empty());
        self
    }

    /// Leaves out whatever is not the copy of the first data any more: somebody has written there since, as to any of the volume's blocks.
    /// `plain`: the data of the volume, whose first ones were moved there.
    fn still_as_moved(
        self,
        data: &dyn BlockDevice,
        plain: &dyn BlockDevice,
        work: &Work<'_>,
    ) -> Result<Leftovers, Error> {
        let Leftovers { areas, left } = self.cut_at(data.size());
        let mut still: Vec<Range<u64>> = Vec::new();
        let (mut copy, mut first) = (vec![0; CHUNK], vec![0; CHUNK]);
        let mut other = 0;
        for all in left {
            let mut at = all.start;
            while at < all.end {
                let now = usize_of((all.end - at).min(u64_of(CHUNK)));
                data.read_at(&mut copy[..now], at)?;
                plain.read_at(&mut first[..now], at - all.start)?;
                for (copy, first) in copy[..now].chunks(SECTOR).zip(first[..now].chunks(SECTOR)) {
                    let end = at + u64_of(copy.len());
                    match still.last_mut() {
                        _ if copy != first => other += u64_of(copy.len()),
                        Some(run) if run.end == at => run.end = end,
                        _ => still.push(at..end),
                    }
                    at = end;
                }
            }
        }
        if other > 0 {
            work.events.note(&format!(
                "{other} bytes of the place that the first data were moved to are not their copy any more, and were not wiped"
            ));
        }
        Ok(Leftovers { areas, left: still })
    }

    /// Wipes it, until that is on stable storage.
    pub fn wipe(&self, header: &dyn BlockDevice, data: &dyn BlockDevice) -> Result<(), Error> {
        // All of a key is needed to open anything. Noise does not tell what was a key: zeros do.
        for (area, is_key) in &self.areas {
            let len = if *is_key { HEAD.min(area.end - area.start) } else { area.end - area.start };
            header.write_zeroes(area.start, len, false)?;
        }
        header.flush()?;
        for (area, _) in self.areas.iter().filter(|(_, is_key)| *is_key) {
            wipe(header, area.start.saturating_add(HEAD).min(area.end)..area.end)?;
        }
        header.flush()?;
        self.left.iter().try_for_each(|left| wipe(data, left.clone()))
    }

    /// For each key whether it is gone. Of zeros that were on their way one sector is enough: all of an area is needed.
    ///
    /// # Errors
    /// `Io`: what can't be read now may still be a key.
    fn gone(&self, header: &dyn BlockDevice) -> Result<Vec<bool>, Error> {
        let is_gone = |area: &Range<u64>| {
            let mut head = vec![0; usize_of(HEAD.min(area.end - area.start))];
            header.read_at(&mut head, area.start)?;
            Ok(head.chunks(SECTOR).any(|sector| sector.iter().all(|byte| *byte == 0)))
        };
        self.areas.iter().filter(|(_, is_key)| *is_key).map(|(area, _)| is_gone(area)).collect()
    }
}

impl Volume {
    /// The end that was cut off, if one was: the header is that of a volume that is done, and its second copy that of before.
    pub(super) fn ending(&self) -> Option<Ending> {
        let Header::Luks2(header) = &self.header else { return None };
        let before = header.superseded()?;
        let course = before.reencryption().ok()??;
        let after = course.ended(before, self.is_attached).ok()?;
        // The length that was noted also holds on a device that has got another one.
        course.data_size.or_else(|| course.len(self.data.top().size()).ok())?;
        let is_it = after.to_plain() == header.metadata.to_plain();
        let leftovers = Leftovers::new(&course, before, &after);
        is_it.then(|| Ending { course, before: before.clone(), leftovers })
    }

    /// Does the rest of an end that was cut off, without a key: for a volume all of whose keys will be gone.
    pub(crate) fn wipe_leftovers(&mut self, work: &Work<'_>) -> Result<(), Error> {
        let Some(Ending { leftovers, .. }) = self.ending() else { return Ok(()) };
        let leftovers = leftovers.cut_at(self.data.top().size());
        let written = match leftovers.left.is_empty() {
            true => vec![&self.header_image],
            false => vec![&self.header_image, &self.data],
        };
        let _lease = Medium::lease_all(&written)?;
        let name = self.header_image.name().to_owned();
        self.wipe_and_mend(&leftovers, work).at(&name)
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
            (Some(ending), _) => !ending.leftovers.left.is_empty(),
            // On a device of another length nothing tells what will be wiped once it has its own again.
            (None, Header::Luks2(header)) => header.is_ending(),
            (None, Header::Luks1(_)) => false,
        }
    }

    /// Does the rest of an end that was cut off. A key of the data is needed where they have one.
    pub(super) fn go_on_ending(
        &mut self,
        ending: Ending,
        keys: &[LuksKey],
        unlocking: &LuksOptions,
        options: &ReencryptOptions,
        work: &Work<'_>,
    ) -> Result<bool, Error> {
        let Ending { course, before, mut leftovers } = ending;
        let noun = course.mode.noun();
        if options.init_only {
            let text = format!("{noun} was cut off at its very end");
            return Err(Error::argument(text).advise(Advice::FinishReencryption));
        }
        begun::check(&course, &before, &self.data, options)?;
        let Header::Luks2(header) = &self.header else { return Err(Error::unsupported("LUKS1")) };
        let device = self.header_image.top();
        let unlock = |header: &luks2::Header, digest| {
            let key = keys.first().ok_or_else(|| Error::argument("no passphrase was given"))?;
            let budget = &mut Budget::new(unlocking.limits);
            unlock::key_of_digest(header, device, digest, key, unlocking, budget, work)
        };
        let gone = leftovers.gone(device)?;
        match course.digests {
            [_, Some(digest)] => {
                let unlocked = unlock(header, digest)?;
                let keys = Keys::of_new_work([None, Some(unlocked.volume_key.clone())], false);
                self.refuse_other_samples(&course, &keys, unlocking, work)?;
                if !leftovers.left.is_empty() {
                    let mapping = self.mapping(unlocked, unlocking, &work.providers)?;
                    let plain = mapping.over(self.data.device())?;
                    leftovers = leftovers.still_as_moved(self.data.top(), &plain, work)?;
                }
            }
            [Some(digest), None] if gone.contains(&false) => {
                self.refuse_encrypted(work)?;
                let mut header = header.clone();
                header.metadata = before;
                let unlocked = unlock(&header, digest).map_err(|error| match error.kind() {
                    ErrorKind::Mismatch if gone.contains(&true) => error.map_text(|text| {
                        format!(
                            "{text}; the key slots began to be wiped when the data were decrypted: give a passphrase of one that is left, \
                             or erase the header"
                        )
                    }),
                    _ => error,
                })?;
                let keys = Keys::of_new_work([Some(unlocked.volume_key), None], false);
                self.refuse_other_samples(&course, &keys, unlocking, work)?;
            }
            _ => {
                self.refuse_encrypted(work)?;
                work.events.note(
                    "no key is left that could prove the data to be those that were decrypted, or be lost: only the header is ended",
                );
            }
        }
        self.wipe_and_mend(&leftovers, work).map(|()| true)
    }

    /// Refuses a device that is not as the work has left it: all of it was transformed.
    fn refuse_other_samples(
        &self,
        course: &Reencryption,
        keys: &Keys,
        unlocking: &LuksOptions,
        work: &Work<'_>,
    ) -> Result<(), Error> {
        let sampler = Sampler::new(keys, &work.providers)?;
        let Some(sampler) = sampler.filter(|_| !self.is_attached && !unlocking.allow_other_data) else {
            return Ok(());
        };
        let all = Part { state: State::New, range: 0..course.len(self.data.top().size())? };
        sampler.check(course, &[all], self.data.top(), self.data.name())
    }

    /// Refuses data that begin with the header of the volume that they were before a decryption.
    fn refuse_encrypted(&self, work: &Work<'_>) -> Result<(), Error> {
        let Header::Luks2(header) = &self.header else { return Ok(()) };
        let found = luks2::Header::read(self.data.top(), &work.providers);
        if self.is_attached || !found.is_ok_and(|found| found.uuid == header.uuid) {
            return Ok(());
        }
        let text = "the data were decrypted by the header, and are the encrypted volume again: this is an earlier copy of the device, and \
                    the header's file is of no use to it";
        Err(Error::argument(text).at(self.data.name()))
    }
}
