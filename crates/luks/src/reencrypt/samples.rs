//! Samples of the data, which tell their device from another one when work goes on that was stopped between two zones, or that was
//! only begun.
//!
//! A header that lies apart from its data may be given with any device of their length. What protects a hot zone tells the right one
//! ([`super::evidence`]); where nothing is hot these samples do. The contents may rightly change meanwhile: the volume can be used.
//! But nobody changes all of some blocks that are spread over the device. So a device is refused of which not one block is as it was
//! among those that are still to be transformed, or not one among those that were: plain data that were put in place of data half
//! decrypted fit the one half. Which blocks those are is not to be guessed from the header: codes are made under the key of the data.

use std::ops::Range;

use casemate_blockdev::BlockDevice;
use casemate_primitives::secret::SecretVec;
use casemate_providers::{Hmac, Providers};

use super::sides::Keys;
use crate::luks2::reencrypt::{Part, Reencryption, Sample, State};
use crate::{Advice, Error};

/// Bytes of a sample.
pub(super) const LEN: u64 = 4096;
const BYTES: usize = 4096;

/// Samples that are taken, each of the first of so many places that has more than one repeated byte: such blocks lie on many devices.
const SAMPLES: u64 = 16;
const PLACES: u64 = 4;

/// Samples that do not fit, at least, in a device that is refused.
const FEWEST: usize = 3;

/// Counts of samples.
#[derive(Clone, Copy, Default)]
struct Fits {
    fitting: usize,
    lost: usize,
}

/// Maker of samples' codes.
pub(super) struct Sampler(Hmac);

impl Sampler {
    /// A maker of codes under the key of the data as they will be, or as they were if they get none; `None` without a key.
    pub fn new(keys: &Keys, providers: &Providers) -> Result<Option<Sampler>, Error> {
        let [old, new] = keys.refs();
        let sampler = |key: &SecretVec| Ok(Sampler(Hmac::new(providers.hash("sha256")?, key.expose())));
        new.or(old).map(sampler).transpose()
    }

    /// Samples of `len` bytes of data of which nothing is transformed yet.
    pub fn take(
        &self,
        course: &Reencryption,
        data: &dyn BlockDevice,
        len: u64,
    ) -> Result<Vec<Sample>, Error> {
        let first = course.moved_len().next_multiple_of(LEN);
        let step = (len.saturating_sub(first) / (SAMPLES * PLACES) / LEN * LEN).max(LEN);
        let mut samples = Vec::new();
        for k in 0..SAMPLES {
            let places = (k * PLACES..(k + 1) * PLACES).map(|place| first.saturating_add(place * step));
            for position in places.filter(|position| position.saturating_add(LEN) <= len) {
                if let Some(code) = self.code(course, data, position, State::Old)? {
                    samples.push(Sample { position, state: State::Old, code, before: None });
                    break;
                }
            }
        }
        Ok(samples)
    }

    /// Takes samples in a zone anew that has been transformed.
    pub fn renew(
        &self,
        course: &mut Reencryption,
        data: &dyn BlockDevice,
        zone: &Range<u64>,
    ) -> Result<(), Error> {
        let mut samples = Vec::new();
        for sample in std::mem::take(&mut course.samples) {
            let range = sample.position..sample.position.saturating_add(LEN);
            if range.end <= zone.start || zone.end <= range.start {
                samples.push(sample);
            } else if zone.start <= range.start && range.end <= zone.end {
                let code = self.code(course, data, sample.position, State::New)?;
                // Where data move, what was there before is still there.
                let stays = course.new_place(sample.position) == course.old_place(sample.position);
                let before = Some(sample.code).filter(|_| stays && sample.state == State::Old);
                samples.extend(code.map(|code| Sample { state: State::New, code, before, ..sample }));
            }
        }
        course.samples = samples;
        Ok(())
    }

    /// Takes anew the samples of places that were written to since, each in its state.
    pub fn take_anew(
        &self,
        course: &mut Reencryption,
        data: &dyn BlockDevice,
        was_written: impl Fn(&Range<u64>) -> bool,
    ) -> Result<(), Error> {
        let mut samples = Vec::new();
        for sample in std::mem::take(&mut course.samples) {
            if !was_written(&(sample.position..sample.position.saturating_add(LEN))) {
                samples.push(sample);
                continue;
            }
            let code = self.code(course, data, sample.position, sample.state)?;
            samples.extend(code.map(|code| Sample { code, ..sample }));
        }
        course.samples = samples;
        Ok(())
    }

    /// Refuses a device of which no sample is as it was, and one that was put back from a copy of before: a place that was transformed
    /// never becomes what it was. Samples are not compared where the data are in another state than that of the sample: cryptsetup
    /// goes on without them.
    ///
    /// # Errors
    /// `Argument` for another device, or an earlier state of it.
    pub fn check(
        &self,
        course: &Reencryption,
        parts: &[Part],
        data: &dyn BlockDevice,
        name: &str,
    ) -> Result<(), Error> {
        let is_there = |sample: &&Sample| {
            parts.iter().any(|part| {
                let end = sample.position.saturating_add(LEN);
                part.state == sample.state && part.range.start <= sample.position && end <= part.range.end
            })
        };
        let is_back = |sample: &Sample| {
            let code = self.code(course, data, sample.position, sample.state);
            sample.before.is_some() && code.is_ok_and(|code| code == sample.before)
        };
        if let Some(sample) = course.samples.iter().filter(is_there).find(|sample| is_back(sample)) {
            return Err(Error::argument(format!(
                "the data at position {} were transformed, and are as before again: this is an earlier copy of the device than the header tells \
                 of, and nothing is written to it; give the device as it was when the work was stopped, or put back its header, too",
                sample.position
            ))
            .at(name));
        }
        let (mut old, mut new) = (Fits::default(), Fits::default());
        for sample in course.samples.iter().filter(is_there) {
            let fits = if sample.state == State::New { &mut new } else { &mut old };
            match self.code(course, data, sample.position, sample.state) {
                Ok(code) if code == Some(sample.code) => fits.fitting += 1,
                Ok(_) => fits.lost += 1,
                // What can't be read says nothing.
                Err(_) => {}
            }
        }
        let all = Fits { fitting: old.fitting + new.fitting, lost: old.lost + new.lost };
        let kinds =
            [(all, ""), (old, ", of those that are still to be rewritten,"), (new, " that were rewritten")];
        match kinds.into_iter().find(|(fits, _)| fits.fitting == 0 && fits.lost >= FEWEST) {
            None => Ok(()),
            Some((Fits { lost, .. }, which)) => Err(Error::argument(format!(
                "none of {lost} blocks spread over the data{which} is as it was when the work was begun or stopped: this is another \
                 device, or all of it was written anew since, and nothing is written to it; give the right device"
            ))
            .advise(Advice::OtherData)
            .at(name)),
        }
    }

    /// The code of a sample; `None` for a block of one repeated byte.
    fn code(
        &self,
        course: &Reencryption,
        data: &dyn BlockDevice,
        position: u64,
        state: State,
    ) -> Result<Option<[u8; 8]>, Error> {
        let place = match state {
            State::New => course.new_place(position),
            State::Old | State::Hot => course.old_place(position),
        };
        let mut message = [&b"sample of data"[..], &position.to_le_bytes(), &[0; BYTES]].concat();
        let head = message.len() - BYTES;
        data.read_at(&mut message[head..], place)?;
        let bytes = &message[head..];
        if bytes.iter().all(|byte| Some(byte) == bytes.first()) {
            return Ok(None);
        }
        // OK to unwrap: a tag has 32 bytes.
        Ok(Some(*self.0.tag(&message).expose().first_chunk().unwrap()))
    }
}
