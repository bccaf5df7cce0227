//! The work itself, zone by zone, so that being cut off at any moment loses nothing.
//!
//! For each zone, in this order, each flushed before the next:
//!
//! 1. what protects it: where it is rewritten in place, checksums or a copy of its old bytes, in the keyslot's area;
//! 2. the header, which says that the zone is hot;
//! 3. the zone's new bytes;
//! 4. the header, which says that the zone is new. Where a zone is protected by its old place alone, which is another
//!    one, this is the same write as 2 of the next zone.
//!
//! At the end one write of the header says that there is one segment, and that no reencryption is required: what the old
//! key opened is named nowhere any more. Only then areas are wiped ([`super::end`]). So nothing that is done needs the old
//! key.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::luks2;
use crate::luks2::reencrypt::{Direction, Part, Reencryption, Resilience, State};
use casemate_blockdev::{BlockDevice, Buffer, Events, u64_of, usize_of};
use casemate_providers::Work;

use super::end::Leftovers;
use super::hot::{Checksums, Verdict};
use super::samples::Sampler;
use super::sides::{Side, Sides};
use super::view::{CHUNK, note_lost, unprotected};
use crate::locks::HeaderLock;
use crate::random::Source;
use crate::{Error, ErrorKind};

/// Bytes of a zone where nothing else is said: large enough that flushes cost little, small enough that an interrupt is
/// heard soon.
const ZONE: u64 = 128 << 20;

/// A reencryption with its devices.
pub(super) struct Zones<'a> {
    pub course: Reencryption,
    pub sides: Sides,
    pub header: &'a mut luks2::Header,
    pub header_device: &'a dyn BlockDevice,
    /// Lock that is held while the header is written.
    pub lock: HeaderLock,
    pub data: &'a dyn BlockDevice,
    pub name: &'a str,
    /// Whether the header lies before the data.
    pub is_attached: bool,
    /// Bytes of the data, and how many of them are worked on.
    pub len: u64,
    pub limit: u64,
    pub parts: Vec<Part>,
    /// Bytes of a zone, if that was said.
    pub zone: Option<u64>,
    /// Maker of samples, where some are noted.
    pub sampler: Option<Sampler>,
}

/// A listener whose wish to stop is kept until a zone is done.
pub(super) struct Patient<'a> {
    pub events: &'a dyn Events,
    pub is_stopped: AtomicBool,
}

impl Events for Patient<'_> {
    fn advance(&self, bytes: u64) -> Result<(), Error> {
        match self.events.advance(bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {
                self.is_stopped.store(true, Ordering::Relaxed);
                Ok(())
            }
            other => other,
        }
    }

    fn waiting(&self, time: Duration, reason: &str) {
        self.events.waiting(time, reason);
    }

    fn note(&self, text: &str) {
        self.events.note(text);
    }
}

impl Zones<'_> {
    /// Does all that is left, but for the end.
    ///
    /// # Errors
    /// `Interrupted` between two zones, if the listener asks for it; whatever reading, writing and ciphers say. The work
    /// can go on after any.
    pub fn run(&mut self, work: &Work<'_>) -> Result<(), Error> {
        let patient = Patient { events: work.events, is_stopped: AtomicBool::new(false) };
        let inner = Work { providers: work.providers.clone(), pool: work.pool, events: &patient };
        let done = self.parts.iter().filter(|part| part.state == State::New);
        patient.advance(done.map(|part| part.range.end - part.range.start).sum())?;
        let mut is_ahead = self.finish_hot(&inner)?;
        while let Some(zone) = self.next(&inner)? {
            let is_stopped = patient.is_stopped.load(Ordering::Relaxed);
            // The area still protects what the header says to be hot.
            if is_ahead && (is_stopped || self.uses_area(&zone)) {
                self.commit(&inner)?;
            }
            if is_stopped {
                return work.events.advance(0);
            }
            self.step(&zone, &inner)?;
            is_ahead = true;
        }
        // The end may be cut off: samples of all that is new tell its device from others then.
        match is_ahead && self.sampler.is_some() {
            true => self.commit(&inner),
            false => Ok(()),
        }
    }

    /// Finishes the zone that was being rewritten when the work was cut off, and notes that in the header.
    pub fn recover_hot(&mut self, work: &Work<'_>) -> Result<(), Error> {
        if self.finish_hot(work)? {
            self.commit(work)?;
        }
        Ok(())
    }

    /// Finishes the zone that was being rewritten when the work was cut off, and leaves the header as it is. Returns
    /// whether there was such a zone.
    fn finish_hot(&mut self, work: &Work<'_>) -> Result<bool, Error> {
        let hot = self.parts.iter().find(|part| part.state == State::Hot).map(|part| part.range.clone());
        let Some(hot) = hot else { return Ok(false) };
        self.recover(&hot, work)?;
        self.data.flush()?;
        self.set_new(&hot)?;
        Ok(true)
    }

    /// Rewrites a zone. The header says then that it is hot.
    pub fn step(&mut self, zone: &Range<u64>, work: &Work<'_>) -> Result<(), Error> {
        if self.uses_area(zone) {
            self.protect(zone, work)?;
            self.header_device.flush()?;
        }
        self.set(zone, State::Hot);
        self.commit(work)?;
        self.transform(zone, work)?;
        self.data.flush()?;
        self.set_new(zone)
    }

    /// Notes that a zone is new, and what it is now.
    fn set_new(&mut self, zone: &Range<u64>) -> Result<(), Error> {
        self.set(zone, State::New);
        self.sampler.as_ref().map_or(Ok(()), |sampler| sampler.renew(&mut self.course, self.data, zone))
    }

    /// Ends it: the header knows one segment and one key, and what is of no use is wiped.
    pub fn finish(&mut self, work: &Work<'_>) -> Result<(), Error> {
        let after = self.course.ended(&self.header.metadata, self.is_attached)?;
        let before = std::mem::replace(&mut self.header.metadata, after);
        let leftovers = Leftovers::new(&self.course, &before, &self.header.metadata);
        let _claim = self.lock.take()?;
        let (device, data) = (self.header_device, self.data);
        let random = &mut |bytes: &mut [u8]| Source::System.fill(bytes);
        self.header.write_around(device, &work.providers, random, || leftovers.wipe(device, data))
    }

    /// The zone that is next; `None` if all is done.
    pub fn next(&self, work: &Work<'_>) -> Result<Option<Range<u64>>, Error> {
        let moved = self.course.moved_len();
        let mut old = self.parts.iter().filter(|part| part.state == State::Old).map(|part| &part.range);
        let ordinary = |range: &&Range<u64>| range.start >= moved && range.start < self.limit;
        let found = match self.course.direction {
            Direction::Forward => old.clone().find(ordinary),
            Direction::Backward => old.clone().rfind(ordinary),
        };
        let Some(range) = found.or_else(|| old.find(|range| range.start < moved)) else { return Ok(None) };
        let range = range.start..range.end.min(self.limit);
        let most = self.longest(&range, work)?;
        let len = most.min(range.end - range.start);
        Ok(Some(match self.course.direction {
            Direction::Backward if range.start >= moved => range.end - len..range.end,
            _ => range.start..range.start + len,
        }))
    }

    /// How long a zone at the beginning of a range may be.
    fn longest(&self, range: &Range<u64>, work: &Work<'_>) -> Result<u64, Error> {
        let (old, new) = (self.course.old_place(range.start), self.course.new_place(range.start));
        let is_moved = range.start < self.course.moved_len();
        let wanted = if is_moved { u64::MAX } else { self.zone.unwrap_or(ZONE) };
        let area = self.course.area.end - self.course.area.start;
        let mut unit = self.course.sector_unit();
        let room = match &self.course.resilience {
            _ if old != new => old.abs_diff(new),
            Resilience::None => u64::MAX,
            Resilience::Journal => area,
            Resilience::Checksum { block, .. } => {
                unit = unit.max(u64::from(*block));
                let checksums = Checksums::new(&self.course, &work.providers)?;
                (area / u64_of(checksums.digest_len())).saturating_mul(u64::from(*block))
            }
        };
        match room / unit * unit {
            0 => Err(Error::argument(format!(
                "the header has {area} bytes to protect the part that is being reencrypted, too few for {unit}"
            ))),
            room => Ok(room.min((wanted / unit * unit).max(unit))),
        }
    }

    /// Whether a zone is protected by what lies in the area.
    fn uses_area(&self, zone: &Range<u64>) -> bool {
        self.course.resilience != Resilience::None && self.is_in_place(zone)
    }

    fn is_in_place(&self, zone: &Range<u64>) -> bool {
        self.course.old_place(zone.start) == self.course.new_place(zone.start)
    }

    /// Writes to the area what protects a zone.
    fn protect(&self, zone: &Range<u64>, work: &Work<'_>) -> Result<(), Error> {
        let (from, to) = (self.course.old_place(zone.start), self.course.area.start);
        let len = zone.end - zone.start;
        if self.course.resilience == Resilience::Journal {
            return work.pool.run(len.div_ceil(CHUNK), Buffer::default, |buf: &mut Buffer, k| {
                // At most a chunk.
                buf.resize(usize_of((len - k * CHUNK).min(CHUNK)));
                self.data.read_at(buf, from + k * CHUNK)?;
                self.header_device.write_at(buf, to + k * CHUNK)
            });
        }
        let checksums = Checksums::new(&self.course, &work.providers)?;
        let chunk = CHUNK.max(u64_of(checksums.block()));
        let each = usize_of(chunk).div_ceil(checksums.block()) * checksums.digest_len();
        let blocks = len.div_ceil(u64_of(checksums.block()));
        // What an area has room for.
        let mut table = vec![0; usize_of(blocks) * checksums.digest_len()];
        let slices: Vec<Mutex<&mut [u8]>> = table.chunks_mut(each).map(Mutex::new).collect();
        work.pool.run(u64_of(slices.len()), Buffer::default, |buf: &mut Buffer, k| {
            // At most a chunk.
            buf.resize(usize_of((len - k * chunk).min(chunk)));
            self.data.read_at(buf, from + k * chunk)?;
            // OK to unwrap: an index of the vector, locked once.
            slices[usize_of(k)].lock().unwrap().copy_from_slice(&checksums.of(buf));
            Ok::<(), Error>(())
        })?;
        self.header_device.write_at(&table, to)
    }

    /// Makes new bytes of the old ones of a zone.
    fn transform(&self, zone: &Range<u64>, work: &Work<'_>) -> Result<(), Error> {
        let place = |position: u64| (self.data, self.course.old_place(position));
        self.rewrite(zone, work, place, |position, data| self.sides.convert(Side::Old, position, data))
    }

    /// Reads a zone, changes what was read, and writes it to its new place, on all threads.
    fn rewrite<'d>(
        &self,
        zone: &Range<u64>,
        work: &Work<'_>,
        place: impl Fn(u64) -> (&'d dyn BlockDevice, u64) + Sync,
        change: impl Fn(u64, &mut [u8]) -> Result<(), Error> + Sync,
    ) -> Result<(), Error> {
        let block = match &self.course.resilience {
            Resilience::Checksum { block, .. } => u64::from(*block),
            _ => 0,
        };
        let chunk = CHUNK.max(block);
        work.pool.run((zone.end - zone.start).div_ceil(chunk), Buffer::default, |buf: &mut Buffer, k| {
            let position = zone.start + k * chunk;
            // At most a chunk.
            buf.resize(usize_of((zone.end - position).min(chunk)));
            let (device, at) = place(position);
            device.read_at(buf, at)?;
            change(position, buf)?;
            self.data.write_at(buf, self.course.new_place(position))?;
            work.events.advance(u64_of(buf.len()))
        })
    }

    /// Makes new bytes of what the work that was cut off has left of a zone.
    fn recover(&self, zone: &Range<u64>, work: &Work<'_>) -> Result<(), Error> {
        if !self.is_in_place(zone) {
            return self.transform(zone, work);
        }
        match &self.course.resilience {
            Resilience::None => {
                let text = unprotected(self.name, zone);
                Err(Error::corrupt(format!("{text}; the rest can be rescued")))
            }
            Resilience::Journal => {
                if zone.end - zone.start > self.course.area.end - self.course.area.start {
                    return Err(Error::corrupt(
                        "LUKS2 reencryption: its journal has no room for the hot zone",
                    ));
                }
                self.refuse_other_device(zone, work)?;
                let place =
                    |position: u64| (self.header_device, self.course.area.start + (position - zone.start));
                self.rewrite(zone, work, place, |position, data| {
                    self.sides.convert(Side::Old, position, data)
                })
            }
            Resilience::Checksum { .. } => {
                self.refuse_other_device(zone, work)?;
                let checksums = Checksums::read(
                    &self.course,
                    self.header_device,
                    zone.end - zone.start,
                    &work.providers,
                )?;
                let lost = Mutex::new(Vec::new());
                let place = |position: u64| (self.data, self.course.new_place(position));
                self.rewrite(zone, work, place, |position, data| {
                    checksums.judge(
                        &self.sides,
                        position,
                        position - zone.start,
                        data,
                        |position, verdict, block| {
                            match verdict {
                                Verdict::Old | Verdict::Torn => {
                                    self.sides.convert(Side::Old, position, block)?
                                }
                                Verdict::New => {}
                                // OK to unwrap: nobody panics with it.
                                Verdict::Lost => lost.lock().unwrap().push(position),
                            }
                            Ok(())
                        },
                    )
                })?;
                let lost = lost.into_inner().unwrap_or_default();
                note_lost(&lost, checksums.block(), "are taken as they are", self.name, work);
                Ok(())
            }
        }
    }

    /// Notes that a range is in a state.
    pub fn set(&mut self, range: &Range<u64>, state: State) {
        let mut parts: Vec<Part> = Vec::new();
        let mut add = |state: State, range: Range<u64>| {
            let may_join = |start: u64| state != State::Old || start != self.course.moved_len();
            match parts.last_mut() {
                _ if range.is_empty() => {}
                Some(last) if last.state == state && may_join(range.start) => last.range.end = range.end,
                _ => parts.push(Part { state, range }),
            }
        };
        for part in &self.parts {
            let Range { start, end } = part.range;
            add(part.state, start..end.min(range.start));
            add(state, start.max(range.start)..end.min(range.end));
            add(part.state, start.max(range.end)..end);
        }
        self.parts = parts;
    }

    /// Writes the header as the parts are.
    pub fn commit(&mut self, work: &Work<'_>) -> Result<(), Error> {
        // Of work that cryptsetup began: it notes none.
        self.course.data_size.get_or_insert(self.len);
        self.header.metadata = self.course.with_parts(&self.header.metadata, &self.parts, self.len)?;
        self.write_header(work)
    }

    fn write_header(&mut self, work: &Work<'_>) -> Result<(), Error> {
        let _claim = self.lock.take()?;
        self.header.write(self.header_device, &work.providers, &mut |bytes| Source::System.fill(bytes))
    }
}
