//! The data of a volume whose reencryption was cut off, read as it is: nothing is written.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use crate::luks2::reencrypt::{Part, Reencryption, Resilience, State};
use casemate_blockdev::{
    BlockDevice, Error as DeviceError, MemoryDevice, Result as DeviceResult, u64_of, usize_of,
};
use casemate_providers::{Direction, Work};

use super::hot::{Checksums, Verdict};
use super::sides::{Side, Sides};
use crate::Error;

/// Bytes that are looked at at once.
pub(super) const CHUNK: u64 = 256 << 10;

/// The plain data of a volume in the middle of a reencryption.
pub(super) struct View {
    sides: Sides,
    /// In the order of positions, without gaps.
    pieces: Vec<Piece>,
    len: u64,
    unit: u64,
}

/// Positions that lie together, on one device and on one side.
struct Piece {
    range: Range<u64>,
    device: Arc<dyn BlockDevice>,
    place: u64,
    side: Side,
    /// Why what lies there is not known to be data.
    lost: Option<Lost>,
}

/// Why data are lost.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lost {
    /// They were being written when the work was cut off, and nothing protected them.
    Unprotected,
    /// They are neither as before nor as after.
    Changed,
}

impl View {
    /// The data as their parts say, with what is hot resolved as going on would. What can't be is told to the listener.
    pub fn new(
        course: &Reencryption,
        sides: Sides,
        parts: &[Part],
        (header, data): (Arc<dyn BlockDevice>, Arc<dyn BlockDevice>),
        name: &str,
        work: &Work<'_>,
    ) -> Result<View, Error> {
        note_mixed(course, parts, name, work);
        let mut pieces = Vec::new();
        for Part { state, range } in parts {
            let (old, new) = (course.old_place(range.start), course.new_place(range.start));
            let piece = |device: &Arc<dyn BlockDevice>, place: u64, side: Side| Piece {
                range: range.clone(),
                device: Arc::clone(device),
                place,
                side,
                lost: None,
            };
            match (state, &course.resilience) {
                (State::New, _) => pieces.push(piece(&data, new, Side::New)),
                (State::Hot, Resilience::Checksum { .. }) if old == new => {
                    let hot = blocks(course, &sides, range, (&header, &data), name, work)?;
                    pieces.extend(hot);
                }
                (State::Hot, Resilience::Journal) if old == new => {
                    if range.end - range.start > course.area.end - course.area.start {
                        return Err(Error::corrupt(
                            "LUKS2 reencryption: its journal has no room for the hot zone",
                        ));
                    }
                    pieces.push(piece(&header, course.area.start, Side::Old));
                }
                (State::Hot, Resilience::None) if old == new => {
                    work.events.note(&unprotected(name, range));
                    pieces.push(Piece { lost: Some(Lost::Unprotected), ..piece(&data, old, Side::Old) });
                }
                (State::Old | State::Hot, _) => pieces.push(piece(&data, old, Side::Old)),
            }
        }
        let len = parts.last().map_or(0, |part| part.range.end);
        Ok(View { sides, pieces, len, unit: course.sector_unit() })
    }

    /// Reads whole units, which may lie in several pieces.
    fn read_units(&self, mut buf: &mut [u8], mut position: u64) -> DeviceResult<()> {
        while !buf.is_empty() {
            let next = self.pieces.partition_point(|piece| piece.range.end <= position);
            let Some(piece) = self.pieces.get(next) else { return Err(self.past_end()) };
            if let Some(lost) = piece.lost {
                return Err(DeviceError::corrupt(lost_text(lost, &piece.range)));
            }
            let len = usize_of((piece.range.end - position).min(u64_of(buf.len())));
            let (now, later) = buf.split_at_mut(len);
            piece.device.read_at(now, piece.place + (position - piece.range.start))?;
            self.sides.run(piece.side, Direction::Decrypt, position, now)?;
            buf = later;
            position += u64_of(len);
        }
        Ok(())
    }

    fn past_end(&self) -> DeviceError {
        let text = format!("a read passes the end of the device at {}", self.len);
        DeviceError::path(std::io::ErrorKind::UnexpectedEof, text)
    }
}

/// Whether data that are all as before by what the header says may be a mixture of old and new.
pub(super) fn may_be_mixed(course: &Reencryption, parts: &[Part]) -> bool {
    course.resilience == Resilience::None
        && course.shift.is_none()
        && parts.iter().all(|part| part.state == State::Old)
}

/// Tells of data that may be a mixture.
pub(super) fn note_mixed(course: &Reencryption, parts: &[Part], name: &str, work: &Work<'_>) {
    if may_be_mixed(course, parts) {
        work.events.note(&format!(
            "{name}: they are to be reencrypted without protection, and the header does not tell whether cryptsetup was cut \
             off in the middle: then what is read from some byte of the data on, or before it, is noise"
        ));
    }
}

/// Text on positions that nothing protected.
pub(super) fn unprotected(name: &str, range: &Range<u64>) -> String {
    format!("{name}: {}", lost_text(Lost::Unprotected, range))
}

fn lost_text(lost: Lost, range: &Range<u64>) -> String {
    let Range { start, end } = range;
    match lost {
        Lost::Unprotected => format!(
            "the data from byte {start} to {end} were being reencrypted without protection when the work was cut off: some of \
             them are lost"
        ),
        Lost::Changed => format!(
            "the data from byte {start} to {end} were being reencrypted when the work was cut off, and are neither as before \
             nor as after"
        ),
    }
}

/// The pieces of a hot zone whose blocks have checksums.
fn blocks(
    course: &Reencryption,
    sides: &Sides,
    range: &Range<u64>,
    (header, data): (&Arc<dyn BlockDevice>, &Arc<dyn BlockDevice>),
    name: &str,
    work: &Work<'_>,
) -> Result<Vec<Piece>, Error> {
    let checksums = Checksums::read(course, header, range.end - range.start, &work.providers)?;
    let found = Mutex::new((Vec::<Piece>::new(), Vec::<u64>::new()));
    let chunk = CHUNK.max(u64_of(checksums.block()));
    work.pool.run((range.end - range.start).div_ceil(chunk), Vec::new, |buf: &mut Vec<u8>, k| {
        let start = range.start + k * chunk;
        // At most a chunk.
        buf.resize(usize_of((range.end - start).min(chunk)), 0);
        let place = course.new_place(start);
        data.read_at(buf, place)?;
        let mut pieces: Vec<Piece> = Vec::new();
        let mut lost = Vec::new();
        checksums.judge(sides, start, start - range.start, buf, |position, verdict, block| {
            let range = position..position + u64_of(block.len());
            let (device, place): (Arc<dyn BlockDevice>, _) = match verdict {
                Verdict::Torn => (Arc::new(MemoryDevice::new(block.to_vec())), 0),
                _ => (Arc::clone(data), course.new_place(position)),
            };
            let side = if matches!(verdict, Verdict::Old | Verdict::Torn) { Side::Old } else { Side::New };
            let why = (verdict == Verdict::Lost).then_some(Lost::Changed);
            if why.is_some() {
                lost.push(position);
            }
            let is_torn = verdict == Verdict::Torn;
            match pieces.last_mut() {
                Some(last) if (last.side, last.lost) == (side, why) && !is_torn && last.is_on(data) => {
                    last.range.end = range.end;
                }
                _ => pieces.push(Piece { range, device, place, side, lost: why }),
            }
            Ok(())
        })?;
        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
        found.0.extend(pieces);
        found.1.extend(lost);
        Ok::<(), Error>(())
    })?;
    let (mut pieces, lost) = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    pieces.sort_unstable_by_key(|piece| piece.range.start);
    note_lost(&lost, checksums.block(), "can't be read", name, work);
    Ok(pieces)
}

/// Tells of blocks that are neither as before nor as after.
pub(super) fn note_lost(lost: &[u64], block: usize, outcome: &str, name: &str, work: &Work<'_>) {
    let Some(first) = lost.iter().min() else { return };
    work.events.note(&format!(
        "{name}: {} of the blocks of {block} bytes that were being reencrypted are neither as before nor as after, and \
         {outcome}; the first one is at byte {first} of the data",
        lost.len()
    ));
}

impl Piece {
    fn is_on(&self, device: &Arc<dyn BlockDevice>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }
}

impl BlockDevice for View {
    fn below(&self) -> Option<&dyn BlockDevice> {
        self.pieces.first().map(|piece| &*piece.device)
    }

    fn size(&self) -> u64 {
        self.len
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> DeviceResult<()> {
        let end = offset
            .checked_add(u64_of(buf.len()))
            .filter(|end| *end <= self.len)
            .ok_or_else(|| self.past_end())?;
        let (from, to) = (offset - offset % self.unit, end.next_multiple_of(self.unit).min(self.len));
        if (from, to) == (offset, end) {
            return self.read_units(buf, offset);
        }
        // Two units more than the buffer.
        let mut whole = vec![0; usize_of(to - from)];
        self.read_units(&mut whole, from)?;
        let within = usize_of(offset - from);
        buf.copy_from_slice(&whole[within..within + buf.len()]);
        Ok(())
    }

    fn write_at(&self, _: &[u8], _: u64) -> DeviceResult<()> {
        let text = "the volume is being reencrypted; it can be written when this is finished";
        Err(DeviceError::path(std::io::ErrorKind::ReadOnlyFilesystem, text))
    }

    fn flush(&self) -> DeviceResult<()> {
        Ok(())
    }
}
