//! The data of a volume, read and written while they are reencrypted.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::Header;
use crate::luks2::reencrypt::{Part, Reencryption, Sample, State};
use casemate_blockdev::{
    AtFile, BlockDevice, Error as DeviceError, Events, Result as DeviceResult, u64_of, usize_of,
};
use casemate_providers::{Direction, Work};

use super::claims::Claims;
use super::samples::{self, Sampler};
use super::sides::{Keys, Side, Sides};
use super::zones::{Patient, Zones};
use crate::locks::HeaderLock;
use crate::volume::{Opened, Plain};
use crate::{Advice, Error};
use crate::{LuksKey, LuksOptions, Volume};

/// Bytes that clients wait for at most, where nothing else is said.
const ZONE: u64 = 16 << 20;

/// The plain data of a volume while they are reencrypted. Reads and writes of the part that is being rewritten wait.
pub(super) struct Online {
    course: Reencryption,
    sides: Sides,
    data: Arc<dyn BlockDevice>,
    parts: RwLock<Vec<Part>>,
    /// Positions of samples that were written to since they were taken.
    written: Mutex<BTreeSet<u64>>,
    claims: Claims,
    len: u64,
    unit: u64,
}

/// A reencryption that goes on beside those who read and write the data.
pub struct Reencrypting {
    volume: Volume,
    keys: Keys,
    options: LuksOptions,
    zone: u64,
    online: Arc<Online>,
}

impl Volume {
    /// The plain data of a volume whose reencryption was begun, or cut off, to be read and written while
    /// [`Reencrypting::run`] reencrypts them. At most `zone` bytes at a time are being rewritten: 16 MiB if `None`.
    ///
    /// # Errors
    /// `Argument` if none was begun; otherwise those of [`Volume::reencrypt`].
    pub fn open_reencrypting(
        mut self,
        key: &LuksKey,
        options: &LuksOptions,
        zone: Option<u64>,
        work: &Work<'_>,
    ) -> Result<(Opened, Reencrypting), Error> {
        self.header_image.check_writable()?;
        self.data.check_writable()?;
        self.check_policy(options.policy.as_ref(), &work.providers)?;
        // Whoever has the data or goes on with the work keeps others from both.
        let lock = self.claim_reencryption()?;
        self.data = self.data.with_locks(lock).keeping(&self.header_image);
        self.refuse_other_data(true, options, &work.providers)?;
        self.refuse_late_beginning(false)?;
        let (name, data) = (self.header_image.name().to_owned(), self.data.clone());
        let mut open = || {
            let Header::Luks2(header) = &self.header else { return Err(Error::unsupported("LUKS1")) };
            header.refuse_ending()?;
            let course = self.reencryption()?.ok_or_else(|| {
                Error::argument("no reencryption was begun").advise(Advice::BeginReencryption)
            })?;
            super::length::check(&course, &data, false)?;
            let parts = course.parts(data.top().size())?;
            let keys = self.keys(header, &course, &parts, key, options, work)?;
            let named = data.named();
            super::view::note_mixed(&course, &parts, data.name(), work);
            let mut zones = self.zones(&named, course, parts, &keys, options, work)?;
            zones.recover_hot(work)?;
            let (len, course, parts) = (zones.len, zones.course, RwLock::new(zones.parts));
            let sides = Sides::new(&course, &keys, options, &work.providers)?;
            let unit = course.sector_unit();
            let (written, claims) = (Mutex::default(), Claims::default());
            let online = Online { course, sides, data: data.device(), parts, written, claims, len, unit };
            Ok((keys, Arc::new(online)))
        };
        let (keys, online) = open().at(name)?;
        let opened = Opened { data, plain: Plain::Reencrypting(online.clone()) };
        let (options, zone) = (options.clone(), zone.unwrap_or(ZONE));
        Ok((opened, Reencrypting { volume: self, keys, options, zone, online }))
    }

    /// Zones of a reencryption that still have to be rewritten, with its keys and devices. `parts`: the states of the
    /// data.
    ///
    /// # Errors
    /// `Argument` for data of which no sample is as it was, unless other data are allowed.
    pub(super) fn zones<'a>(
        &'a mut self,
        data: &'a dyn BlockDevice,
        course: Reencryption,
        parts: Vec<Part>,
        keys: &Keys,
        options: &LuksOptions,
        work: &Work<'_>,
    ) -> Result<Zones<'a>, Error> {
        let Header::Luks2(header) = &mut self.header else { return Err(Error::unsupported("LUKS1")) };
        let len = course.len(self.data.top().size())?;
        let is_told = !self.is_attached && !course.samples.is_empty();
        let sampler = if is_told { Sampler::new(keys, &work.providers)? } else { None };
        if let Some(sampler) = sampler.as_ref().filter(|_| !options.allow_other_data) {
            sampler.check(&course, &parts, data, self.data.name())?;
        }
        Ok(Zones {
            sides: Sides::new(&course, keys, options, &work.providers)?,
            course,
            header,
            header_device: self.header_image.top(),
            lock: HeaderLock::of(&self.header_image),
            data,
            name: self.data.name(),
            is_attached: self.is_attached,
            len,
            limit: len,
            parts,
            zone: None,
            sampler,
        })
    }
}

impl Reencrypting {
    /// Reencrypts what is left, zone by zone, and ends the reencryption. The listener hears of bytes.
    ///
    /// # Errors
    /// `Interrupted` between two zones, if the listener asks for it; `Io`: what was being rewritten then can't be read or
    /// written until the volume is opened again. The work can go on after any.
    pub fn run(mut self, work: &Work<'_>) -> Result<(), Error> {
        let (name, data) = (self.volume.header_image.name().to_owned(), self.volume.data.clone());
        let (named, online) = (data.named(), &self.online);
        let mut run = || {
            let (course, parts) = (online.course.clone(), online.parts());
            let mut zones = self.volume.zones(&named, course, parts, &self.keys, &self.options, work)?;
            zones.zone = Some(self.zone);
            zones.run_beside(online, work)?;
            zones.finish(work)
        };
        run().at(name)
    }

    /// Bytes of the data.
    pub fn size(&self) -> u64 {
        self.online.len
    }
}

impl Zones<'_> {
    /// Does all that is left, but for the end, while others read and write: each zone is claimed until the header says that
    /// it is new.
    ///
    /// # Errors
    /// Errors of [`Zones::run`].
    fn run_beside(&mut self, online: &Online, work: &Work<'_>) -> Result<(), Error> {
        let patient = Patient { events: work.events, is_stopped: AtomicBool::new(false) };
        let inner = Work { providers: work.providers.clone(), pool: work.pool, events: &patient };
        let done = self.parts.iter().filter(|part| part.state == State::New);
        patient.advance(done.map(|part| part.range.end - part.range.start).sum())?;
        while let Some(zone) = self.next(&inner)? {
            if patient.is_stopped.load(Ordering::Relaxed) {
                if self.take_anew(online)? {
                    self.commit(&inner)?;
                }
                return work.events.advance(0);
            }
            let _claim = online.claims.claim(zone.clone(), true);
            // What protects the zone is made of what others have written.
            let done = self.data.flush();
            let done = done.and_then(|()| self.step(&zone, &inner));
            let done = done.and_then(|()| self.take_anew(online)).and_then(|_| self.commit(&inner));
            if done.is_err() {
                // Whatever the header says, the zone may be neither as before nor as after.
                self.set(&zone, State::Hot);
            }
            online.set_parts(&self.parts);
            done?;
        }
        Ok(())
    }

    /// Takes samples anew where others have written since; returns whether they have.
    fn take_anew(&mut self, online: &Online) -> Result<bool, Error> {
        let Some(sampler) = &self.sampler else { return Ok(false) };
        let written = online.take_written();
        let was_written = |place: &Range<u64>| written.iter().any(|at| place.contains(at));
        sampler.take_anew(&mut self.course, self.data, was_written)?;
        Ok(!written.is_empty())
    }
}

impl Online {
    fn parts(&self) -> Vec<Part> {
        self.parts.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Positions of samples that were written to since the last call.
    fn take_written(&self) -> BTreeSet<u64> {
        std::mem::take(&mut *self.written.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes which samples some bytes are a part of, which are being written, or were.
    fn note_written(&self, start: u64, len: usize) {
        let end = start.saturating_add(u64_of(len));
        let is_in =
            |sample: &&Sample| sample.position < end && start < sample.position.saturating_add(samples::LEN);
        let mut positions = self.course.samples.iter().filter(is_in).map(|sample| sample.position).peekable();
        if positions.peek().is_some() {
            self.written.lock().unwrap_or_else(PoisonError::into_inner).extend(positions);
        }
    }

    /// Replaces the states of the data's parts. The caller holds the claim on the zone that is being rewritten.
    fn set_parts(&self, parts: &[Part]) {
        *self.parts.write().unwrap_or_else(PoisonError::into_inner) = parts.to_vec();
    }

    /// The units that a range lies in, if they are there.
    fn units(&self, offset: u64, len: usize) -> DeviceResult<Range<u64>> {
        let end = offset.checked_add(u64_of(len)).filter(|end| *end <= self.len);
        let end = end.ok_or_else(|| {
            let text = format!("{len} bytes from {offset} on pass the end of the device at {}", self.len);
            DeviceError::path(std::io::ErrorKind::UnexpectedEof, text)
        })?;
        Ok(offset - offset % self.unit..end.next_multiple_of(self.unit).min(self.len))
    }

    /// Gives pieces of whole units that lie on one side, with the position of each and its place on the device.
    fn each_piece(
        &self,
        mut data: &mut [u8],
        mut position: u64,
        mut with: impl FnMut(&mut [u8], Side, u64, u64) -> DeviceResult<()>,
    ) -> DeviceResult<()> {
        let parts = self.parts.read().unwrap_or_else(PoisonError::into_inner);
        while !data.is_empty() {
            let next = parts.partition_point(|part| part.range.end <= position);
            // OK to index: it was looked whether the range is there.
            let part = &parts[next];
            if part.state == State::Hot {
                let text = "rewriting this part failed; open the volume again, which brings it in order";
                return Err(DeviceError::path(std::io::ErrorKind::Other, text));
            }
            let len = usize_of((part.range.end - position).min(u64_of(data.len())));
            let (now, later) = data.split_at_mut(len);
            let (side, place) = match Side::from(part.state) {
                Side::New => (Side::New, self.course.new_place(position)),
                Side::Old => (Side::Old, self.course.old_place(position)),
            };
            with(now, side, position, place)?;
            (data, position) = (later, position + u64_of(len));
        }
        Ok(())
    }

    fn read_units(&self, data: &mut [u8], position: u64) -> DeviceResult<()> {
        self.each_piece(data, position, |piece, side, position, place| {
            self.data.read_at(piece, place)?;
            self.sides.run(side, Direction::Decrypt, position, piece)
        })
    }

    fn write_units(&self, data: &mut [u8], position: u64) -> DeviceResult<()> {
        let len = data.len();
        let done = self.each_piece(data, position, |piece, side, position, place| {
            self.sides.run(side, Direction::Encrypt, position, piece)?;
            self.data.write_from(piece, place)
        });
        // Behind the write: a sample that is taken before it is taken again.
        self.note_written(position, len);
        done
    }
}

impl BlockDevice for Online {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&*self.data)
    }

    fn size(&self) -> u64 {
        self.len
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> DeviceResult<()> {
        let units = self.units(offset, buf.len())?;
        let _claim = self.claims.claim(units.clone(), false);
        if units == (offset..offset + u64_of(buf.len())) {
            return self.read_units(buf, offset);
        }
        // Two units more than the buffer.
        let mut whole = vec![0; usize_of(units.end - units.start)];
        self.read_units(&mut whole, units.start)?;
        let within = usize_of(offset - units.start);
        buf.copy_from_slice(&whole[within..within + buf.len()]);
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> DeviceResult<()> {
        self.write_from(&mut buf.to_vec(), offset)
    }

    fn write_from(&self, buf: &mut [u8], offset: u64) -> DeviceResult<()> {
        let units = self.units(offset, buf.len())?;
        let is_whole = units == (offset..offset + u64_of(buf.len()));
        let _claim = self.claims.claim(units.clone(), !is_whole);
        if is_whole {
            return self.write_units(buf, offset);
        }
        // Two units more than the buffer.
        let mut whole = vec![0; usize_of(units.end - units.start)];
        self.read_units(&mut whole, units.start)?;
        let within = usize_of(offset - units.start);
        whole[within..within + buf.len()].copy_from_slice(buf);
        self.write_units(&mut whole, units.start)
    }

    fn flush(&self) -> DeviceResult<()> {
        self.data.flush()
    }
}
