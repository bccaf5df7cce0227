//! A reencryption that goes on, as the metadata of LUKS2 tell of it.
//!
//! The data are a run of positions from 0 on. Each has an old place on the device, under the old cipher, and a new place,
//! under the new one; a "cipher" may be none. Regular segments say, one behind the other, which positions are old, which
//! are new, and which are hot: being rewritten, and protected meanwhile. Two more segments, kept as backups, say how all
//! of it was and how all of it will be; a third one where the first positions were moved to, out of the way.
//!
//! ```text
//! old place of p:  moved + p  (of the first positions, if they were moved)   or   previous + p
//! new place of p:  final + p
//! ```
//!
//! Where both are the same, a position that is hot is told by checksums or by a copy (a journal) in the area of the
//! reencryption's keyslot. Where they differ, by the shift, the old place is still whole.
//!
//! Source: cryptsetup 2.6 and 2.8, by what they write and take.

mod message;
mod write;

use std::ops::Range;

use casemate_primitives::hex;

use crate::json::{Json, Object};
use crate::{Error, Result};

use super::metadata::{Digest, Metadata, Segment, SegmentSize};

pub use write::MOVING;

/// Direction of the transformation: between ciphertexts, to ciphertext, or to plaintext.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Ciphertext under another key.
    Reencrypt,
    /// Ciphertext of plaintext.
    Encrypt,
    /// Plaintext of ciphertext.
    Decrypt,
}

/// Where the work begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// At the first position.
    Forward,
    /// At the last position.
    Backward,
}

/// Protection of positions that are rewritten in place, against a crash in the middle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resilience {
    /// Nothing.
    None,
    /// A copy of the old bytes.
    Journal,
    /// Checksums of the old bytes.
    Checksum {
        /// The hash's name.
        hash: String,
        /// Bytes that have one checksum.
        block: u32,
    },
}

/// The state of a part of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// As before.
    Old,
    /// Being rewritten.
    Hot,
    /// As it will be.
    New,
}

/// A part of the data: positions that are in one state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The state.
    pub state: State,
    /// The positions, in bytes.
    pub range: Range<u64>,
}

/// The segments between which a reencryption leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backups {
    /// The data as they were.
    pub previous: Segment,
    /// The data as they will be.
    pub last: Segment,
    /// The first positions, where they have been moved to.
    pub moved: Option<Segment>,
}

/// A sample of the data: whether the device is the one that the work was begun on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The first position.
    pub position: u64,
    /// The state of the data when it was taken: old or new.
    pub state: State,
    /// The code of the bytes.
    pub code: [u8; 8],
    /// The code that they had before they were transformed where they lie.
    pub before: Option<[u8; 8]>,
}

/// A reencryption that goes on.
#[derive(Clone, Debug)]
pub struct Reencryption {
    /// Transformation: reencryption, encryption or decryption.
    pub mode: Mode,
    /// Where the work begins.
    pub direction: Direction,
    /// Protection of positions that are rewritten in place.
    pub resilience: Resilience,
    /// How far new places lie from old ones, if they do.
    pub shift: Option<u64>,
    /// The number of the reencryption's keyslot.
    pub keyslot: u32,
    /// The keyslot's area, on the device with the header.
    pub area: Range<u64>,
    /// The segments at both ends.
    pub backups: Backups,
    /// The digests of the keys of before and after, where there are such keys.
    pub digests: [Option<u32>; 2],
    /// Bytes of the data, from the first one on, that it was begun for, if not for all; a note of this project's.
    pub device_size: Option<u64>,
    /// Bytes of all data when it was begun; a note of this project's, that cryptsetup does not make.
    pub data_size: Option<u64>,
    /// Samples of the data as they were when the header was written; a note of this project's.
    pub samples: Vec<Sample>,
    regular: Vec<Segment>,
    /// Digests and the regular segments that they are of.
    bound: Vec<(u32, u32)>,
}

/// The member of the reencryption's keyslot that says how much of the data it was begun for.
const DEVICE_SIZE: &str = "casemate_device_size";

/// The member of the reencryption's keyslot that says how many bytes all data had when it was begun.
const DATA_SIZE: &str = "casemate_data_size";

/// The member of the reencryption's keyslot with samples of the data: texts such as `old 4096 0123456789abcdef`.
const SAMPLES: &str = "casemate_samples";

/// Samples that are read, at most.
const MOST_SAMPLES: usize = 64;

/// Bytes that have one checksum, at most.
const LARGEST_BLOCK: u32 = 1 << 20;

/// The longest text in what the reencryption's digest is made of.
const LONGEST_TEXT: usize = 64;

fn bad(text: impl std::fmt::Display) -> Error {
    Error::corrupt(format!("LUKS2 reencryption: {text}"))
}

fn is_backup(segment: &Segment) -> bool {
    segment.flags.iter().any(|flag| flag.starts_with("backup-"))
}

impl Mode {
    /// Noun for the work, with its article: "a reencryption".
    pub fn noun(self) -> &'static str {
        match self {
            Mode::Reencrypt => "a reencryption",
            Mode::Encrypt => "an encryption",
            Mode::Decrypt => "a decryption",
        }
    }

    /// The format's word.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Reencrypt => "reencrypt",
            Mode::Encrypt => "encrypt",
            Mode::Decrypt => "decrypt",
        }
    }
}

impl Direction {
    /// The format's word.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Forward => "forward",
            Direction::Backward => "backward",
        }
    }
}

impl Sample {
    /// A sample as the metadata have it; `None` for another text.
    fn from_text(text: &str) -> Option<Sample> {
        let mut words = text.split(' ');
        let state = match words.next()? {
            "old" => State::Old,
            "new" => State::New,
            _ => return None,
        };
        let position = words.next()?.parse().ok()?;
        let code = hex::decode_array(words.next()?)?;
        let before = match words.next() {
            Some(word) => Some(hex::decode_array(word)?),
            None => None,
        };
        words.next().is_none().then_some(Sample { position, state, code, before })
    }

    fn to_text(self) -> String {
        let state = if self.state == State::New { "new" } else { "old" };
        let before = self.before.map(|code| format!(" {}", hex::encode(&code))).unwrap_or_default();
        format!("{state} {} {}{before}", self.position, hex::encode(&self.code))
    }
}

impl Metadata {
    /// The reencryption that goes on, if one does.
    ///
    /// # Errors
    /// `Unsupported` for one that only cryptsetup can go on with; `Corrupt` for one that contradicts itself.
    pub fn reencryption(&self) -> Result<Option<Reencryption>> {
        let requirements = self.requirements();
        let Some(name) = requirements.iter().find(|name| name.contains("-reencrypt")) else {
            return Ok(None);
        };
        let unsupported = |text: String| Err(Error::unsupported(text));
        match &**name {
            "online-reencrypt-v2" | "online-reencrypt-v3" => {}
            "online-reencrypt" => {
                return unsupported(
                    "the LUKS2 header requires online-reencrypt: a reencryption of an old version, whose state nothing \
                     proves; casemate luks repair and cryptsetup repair protect it, after a question"
                        .to_owned(),
                );
            }
            other => {
                return unsupported(format!(
                    "the LUKS2 header requires {other}: it is being reencrypted, in a way that only cryptsetup goes on with"
                ));
            }
        }
        if requirements.len() > 1 {
            let others: Vec<_> =
                requirements.iter().filter(|other| *other != name).map(String::as_str).collect();
            return unsupported(format!("the LUKS2 header requires {} too", others.join(", ")));
        }
        let found = Reencryption::of(self)?;
        let version = if name.ends_with('3') { b'3' } else { b'2' };
        match found.version() == version {
            true => Ok(Some(found)),
            false => Err(bad(format!("{name} is required, and that is another kind"))),
        }
    }
}

impl Metadata {
    /// The reencryption whose metadata no digest proves: one of an old version, or one whose digest is missing.
    ///
    /// # Errors
    /// `Corrupt` for one that contradicts itself; `Unsupported` for one that only cryptsetup can go on with.
    pub fn unproven_reencryption(&self) -> Result<Option<Reencryption>> {
        let requirements = self.requirements();
        let is_one = |name: &String| name.starts_with("online-reencrypt");
        let Some(name) = requirements.iter().find(|name| is_one(name)) else { return Ok(None) };
        if name != "online-reencrypt" {
            let Some(found) = self.reencryption()? else { return Ok(None) };
            let is_proven = self.digests().iter().any(|digest| digest.keyslots.contains(&found.keyslot));
            return Ok(Some(found).filter(|_| !is_proven));
        }
        match &requirements[..] {
            [_] => Reencryption::of(self).map(Some),
            others => {
                let text = format!("the LUKS2 header requires {}", others.join(", "));
                Err(Error::unsupported(text))
            }
        }
    }
}

impl Reencryption {
    /// A reencryption that is about to begin.
    ///
    /// # Errors
    /// `Corrupt` for what no reencryption comes to.
    pub fn new(
        mode: Mode,
        direction: Direction,
        resilience: Resilience,
        (keyslot, area): (u32, Range<u64>),
        backups: Backups,
        digests: [Option<u32>; 2],
    ) -> Result<Reencryption> {
        let shift = backups.previous.offset.abs_diff(backups.last.offset);
        let shift = Some(shift).filter(|shift| *shift > 0);
        let (regular, bound) = (Vec::new(), Vec::new());
        let new = Reencryption {
            mode,
            direction,
            resilience,
            shift,
            keyslot,
            area,
            backups,
            digests,
            device_size: None,
            data_size: None,
            samples: Vec::new(),
            regular,
            bound,
        };
        new.check()?;
        Ok(new)
    }

    fn of(metadata: &Metadata) -> Result<Reencryption> {
        let keyslots = metadata.keyslots();
        let slot = keyslots.iter().find(|slot| slot.kind == "reencrypt");
        let slot = slot.ok_or_else(|| bad("no keyslot is of it"))?;
        let section = metadata.object().get("keyslots").and_then(Json::object);
        // OK to unwrap: validated, and found above.
        let object = section.and_then(|all| all.get(slot.id.to_string())?.object()).unwrap();
        let area = object.get("area").and_then(Json::object).cloned().unwrap_or_default();
        let text =
            |object: &Object, name: &str| object.get(name).and_then(Json::text).unwrap_or("").to_owned();
        let mode = match &*text(object, "mode") {
            "reencrypt" => Mode::Reencrypt,
            "encrypt" => Mode::Encrypt,
            _ => Mode::Decrypt,
        };
        let direction = match &*text(object, "direction") {
            "forward" => Direction::Forward,
            _ => Direction::Backward,
        };
        let checksum = || {
            let block = area.get("sector_size").and_then(Json::number).unwrap_or(0);
            match block.is_power_of_two() && (512..=LARGEST_BLOCK).contains(&block) {
                true => Ok(Resilience::Checksum { hash: text(&area, "hash"), block }),
                false => {
                    Err(bad(format!("checksums over {block} bytes; 512 to {LARGEST_BLOCK} are supported")))
                }
            }
        };
        let kind = text(&area, "type");
        let resilience = match &*kind {
            "none" | "datashift" => Resilience::None,
            "journal" | "datashift-journal" => Resilience::Journal,
            "checksum" | "datashift-checksum" => checksum()?,
            other => {
                return Err(Error::unsupported(format!(
                    "LUKS2 reencryption: resilience '{other}' is not known"
                )));
            }
        };
        let shift = kind.starts_with("datashift").then(|| text(&area, "shift_size").parse::<u64>());
        let shift = shift.transpose().map_err(|_| bad("no shift_size"))?;
        let segments = metadata.segments();
        let with = |flag: &str| {
            let mut found = segments.iter().filter(|segment| segment.flags.iter().any(|name| name == flag));
            match (found.next(), found.next()) {
                (_, Some(_)) => Err(bad(format!("two segments have the flag {flag}"))),
                (one, None) => Ok(one.cloned()),
            }
        };
        let missing = |flag: &str| bad(format!("no segment has the flag {flag}"));
        let backups = Backups {
            previous: with("backup-previous")?.ok_or_else(|| missing("backup-previous"))?,
            last: with("backup-final")?.ok_or_else(|| missing("backup-final"))?,
            moved: with("backup-moved-segment")?,
        };
        let digest = |segment: &Segment| {
            let digests = metadata.digests();
            let mut of = digests.iter().filter(|digest| digest.segments.contains(&segment.id));
            match (segment.kind == "crypt", of.next(), of.next()) {
                (true, Some(one), None) => Ok(Some(one.id)),
                (false, None, _) => Ok(None),
                _ => Err(bad(format!("segment {} has the wrong digests", segment.id))),
            }
        };
        let digests = [digest(&backups.previous)?, digest(&backups.last)?];
        if let Some(moved) = &backups.moved
            && digest(moved)? != digests[0]
        {
            return Err(bad("the segment that was moved has another key"));
        }
        let stranger = |digest: &Digest| !digest.segments.is_empty() && !digests.contains(&Some(digest.id));
        if let Some(stranger) = metadata.digests().iter().find(|digest| stranger(digest)) {
            return Err(bad(format!("digest {} is of neither key, and of segments", stranger.id)));
        }
        let pairs = |digest: Digest| digest.segments.into_iter().map(move |segment| (digest.id, segment));
        let bound = metadata.digests().into_iter().flat_map(pairs).collect();
        let regular = segments.into_iter().filter(|segment| !is_backup(segment)).collect();
        let area = slot.area.offset..slot.area.offset.saturating_add(slot.area.size);
        let keyslot = slot.id;
        let number = |name: &str| object.get(name).and_then(|size| size.text()?.parse().ok());
        let mut found = Reencryption {
            mode,
            direction,
            resilience,
            shift,
            keyslot,
            area,
            backups,
            digests,
            device_size: number(DEVICE_SIZE),
            data_size: number(DATA_SIZE),
            samples: object
                .get(SAMPLES)
                .and_then(Json::array)
                .unwrap_or_default()
                .iter()
                .take(MOST_SAMPLES)
                .filter_map(|sample| Sample::from_text(sample.text()?))
                .collect(),
            regular,
            bound,
        };
        found.check()?;
        found.device_size = found.device_size.or(found.described());
        Ok(found)
    }

    /// Refuses what could not be gone on with without losing data.
    fn check(&self) -> Result<()> {
        let Backups { previous, last, moved } = &self.backups;
        let kinds = match self.mode {
            Mode::Reencrypt => ["crypt", "crypt"],
            Mode::Encrypt => ["linear", "crypt"],
            Mode::Decrypt => ["crypt", "linear"],
        };
        if [&*previous.kind, &*last.kind] != kinds {
            return Err(bad(format!(
                "a segment of type '{}' becomes one of type '{}', by a work of type '{}'",
                previous.kind,
                last.kind,
                self.mode.name()
            )));
        }
        for segment in [previous, last].into_iter().chain(moved) {
            if let Some(integrity) = &segment.integrity {
                let text =
                    format!("the data have integrity protection ({integrity}), which can't be reencrypted");
                return Err(Error::unsupported(text));
            }
            let long = [&segment.kind, &segment.encryption].into_iter().any(|text| text.len() > LONGEST_TEXT);
            if long {
                return Err(bad("a segment has a text of more than 64 bytes"));
            }
            let sector_size = segment.sector_size;
            if segment.kind == "crypt"
                && !(sector_size.is_power_of_two() && (512..=4096).contains(&sector_size))
            {
                return Err(bad(format!("sectors of {sector_size} bytes; 512 to 4096 are supported")));
            }
        }
        if last.size != SegmentSize::Dynamic {
            return Err(bad("the final segment has a fixed size"));
        }
        let distance = previous.offset.abs_diff(last.offset);
        if distance != self.shift.unwrap_or(0) {
            return Err(bad(format!(
                "data that move by {distance} bytes, and a shift of {}",
                self.shift.unwrap_or(0)
            )));
        }
        let is_towards_start = last.offset < previous.offset;
        if distance > 0 && is_towards_start != (self.direction == Direction::Forward) {
            return Err(bad("data would be overwritten before they are read"));
        }
        let Some(moved) = moved else { return Ok(()) };
        let same = (&moved.kind, moved.iv_tweak, &moved.encryption, moved.sector_size)
            == (&previous.kind, previous.iv_tweak, &previous.encryption, previous.sector_size);
        match (same, moved.size, self.mode) {
            (false, ..) => Err(bad("the segment that was moved is not as it was")),
            (_, SegmentSize::Dynamic, _) => Err(bad("the segment that was moved has no fixed size")),
            (.., Mode::Reencrypt) => Err(bad("a segment was moved, which only encryption and decryption do")),
            _ => Ok(()),
        }
    }

    /// The version of what the digest is made of, as a digit.
    fn version(&self) -> u8 {
        if self.mode == Mode::Decrypt && self.backups.moved.is_some() { b'3' } else { b'2' }
    }

    /// The requirement's name.
    fn requirement(&self) -> &'static str {
        if self.version() == b'3' { "online-reencrypt-v3" } else { "online-reencrypt-v2" }
    }

    fn area_kind(&self) -> &'static str {
        match (&self.resilience, self.shift.is_some()) {
            (Resilience::None, false) => "none",
            (Resilience::None, true) => "datashift",
            (Resilience::Journal, false) => "journal",
            (Resilience::Journal, true) => "datashift-journal",
            (Resilience::Checksum { .. }, false) => "checksum",
            (Resilience::Checksum { .. }, true) => "datashift-checksum",
        }
    }

    /// Bytes of the positions that were moved.
    pub fn moved_len(&self) -> u64 {
        match self.backups.moved.as_ref().map(|moved| moved.size) {
            Some(SegmentSize::Fixed(len)) => len,
            _ => 0,
        }
    }

    /// The old place of a position.
    pub fn old_place(&self, position: u64) -> u64 {
        match &self.backups.moved {
            Some(moved) if position < self.moved_len() => moved.offset + position,
            _ => self.backups.previous.offset + position,
        }
    }

    /// The new place of a position.
    pub fn new_place(&self, position: u64) -> u64 {
        self.backups.last.offset + position
    }

    /// Bytes of the data on a device of `size` bytes.
    ///
    /// # Errors
    /// `Corrupt` if it is too small for what the segments say.
    pub fn len(&self, size: u64) -> Result<u64> {
        let Backups { previous, last, moved } = &self.backups;
        let short = || bad(format!("the segments pass the end of the data, which have {size} bytes"));
        let room = size.checked_sub(last.offset).ok_or_else(short)?;
        let len = match previous.size {
            SegmentSize::Fixed(len) => len,
            SegmentSize::Dynamic => {
                let len = room.min(size.checked_sub(previous.offset).ok_or_else(short)?);
                len - len % self.sector_unit()
            }
        };
        let old_end = previous.offset.checked_add(len).ok_or_else(short)?;
        if len > room || old_end > size || len == 0 {
            return Err(short());
        }
        if let Some(moved) = moved {
            let moved_len = self.moved_len();
            let end = moved.offset.checked_add(moved_len).ok_or_else(short)?;
            if end > size || moved_len > len {
                return Err(short());
            }
            let meets = |range: Range<u64>| moved.offset < range.end && range.start < end;
            // What was encrypted in place is wiped there at the end.
            let is_in_place = self.mode == Mode::Decrypt && moved.offset == last.offset;
            if meets(previous.offset + moved_len..old_end)
                || (!is_in_place && meets(last.offset..last.offset + len))
            {
                return Err(bad("the segment that was moved lies where other data are"));
            }
        }
        Ok(len)
    }

    /// The parts of the data, on a device of `size` bytes, in the order of their positions.
    ///
    /// # Errors
    /// `Corrupt` for what no reencryption comes to.
    pub fn parts(&self, size: u64) -> Result<Vec<Part>> {
        let len = self.len(size)?;
        let mut parts: Vec<Part> = Vec::new();
        let mut start = 0;
        for segment in &self.regular {
            let end = match segment.size {
                SegmentSize::Fixed(size) => start + size,
                SegmentSize::Dynamic => len,
            };
            if end <= start || end > len {
                return Err(bad(format!(
                    "segment {} passes the end of the data, of which there are {len} bytes",
                    segment.id
                )));
            }
            let state = self.state_of(segment, start)?;
            let crosses = state != State::New && start < self.moved_len() && end > self.moved_len();
            if crosses || !start.is_multiple_of(self.sector_unit()) {
                return Err(bad(format!("segment {} is not where a part begins", segment.id)));
            }
            parts.push(Part { state, range: start..end });
            start = end;
        }
        if start != len {
            let is_part = self.described() == Some(start) && start.is_multiple_of(self.sector_unit());
            match parts.last_mut() {
                _ if !is_part => return Err(bad(format!("the segments have {start} bytes of {len}"))),
                Some(last) if last.state == State::Old => last.range.end = len,
                _ => parts.push(Part { state: State::Old, range: start..len }),
            }
        }
        if parts.iter().filter(|part| part.state == State::Hot).count() > 1 {
            return Err(bad("several segments are being rewritten"));
        }
        Ok(parts)
    }

    /// Bytes that the regular segments describe of data that have no end of their own, stay at their place, and whose length is not
    /// noted. What cryptsetup has begun for the first bytes alone says nothing of the others once it is under way: these are as they
    /// were.
    fn described(&self) -> Option<u64> {
        let is_all = self.backups.previous.size != SegmentSize::Dynamic
            || self.backups.moved.is_some()
            || self.shift.is_some()
            || self.data_size.is_some();
        let sum = |sum: u64, segment: &Segment| match segment.size {
            SegmentSize::Fixed(size) => sum.checked_add(size),
            SegmentSize::Dynamic => None,
        };
        let bytes = self.regular.iter().try_fold(0, sum)?;
        (!is_all && bytes > 0).then_some(bytes)
    }

    /// Bytes of the larger ones of both ciphers' sectors: parts begin at their multiples.
    pub fn sector_unit(&self) -> u64 {
        u64::from(self.backups.previous.sector_size.max(self.backups.last.sector_size)).max(512)
    }

    fn state_of(&self, segment: &Segment, start: u64) -> Result<State> {
        let is = |backup: &Segment, place: u64| {
            (&segment.kind, &segment.encryption, segment.sector_size)
                == (&backup.kind, &backup.encryption, backup.sector_size)
                && segment.offset == place
                && (segment.kind != "crypt"
                    || Some(segment.iv_tweak) == backup.iv_tweak.checked_add(start / 512))
        };
        let is_hot = segment.flags.iter().any(|flag| flag == "in-reencryption");
        let is_new = is(&self.backups.last, self.new_place(start)) && self.is_bound(segment, 1);
        let is_old = is(&self.backups.previous, self.old_place(start)) && self.is_bound(segment, 0);
        match (is_hot, is_new, is_old) {
            (true, true, _) => Ok(State::Hot),
            (false, true, _) => Ok(State::New),
            (false, false, true) => Ok(State::Old),
            _ => Err(bad(format!("segment {} is neither as before nor as after", segment.id))),
        }
    }

    /// Whether a segment has the old key, 0, or the new one, 1.
    fn is_bound(&self, segment: &Segment, which: usize) -> bool {
        self.bound.iter().any(|(digest, id)| *id == segment.id && self.digests[which] == Some(*digest))
            || segment.kind != "crypt"
    }
}
