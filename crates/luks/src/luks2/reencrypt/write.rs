//! A reencryption as metadata: how it begins, goes on and ends.

use casemate_blockdev::u64_of;

use super::{Backups, DATA_SIZE, DEVICE_SIZE, Part, Reencryption, Resilience, SAMPLES, State};
use crate::json::{Json, Object};
use crate::luks2::metadata::{DIGESTS, Digest, Metadata, Segment, SegmentSize};
use crate::luks2::{BINARY_LEN, validate};
use crate::{Error, Result};

impl Reencryption {
    /// Metadata in which this begins, with all data as they were. `metadata` have both keys' digests; `digest` is the
    /// reencryption's own.
    ///
    /// # Errors
    /// `Argument` if the header has no room for it, or for what it will say while the work goes on.
    pub fn begun(&self, metadata: &Metadata, digest: &Object, len: u64) -> Result<Metadata> {
        let mut object = metadata.object().clone();
        let mut area = Object::default()
            .with("offset", self.area.start.to_string())
            .with("size", (self.area.end - self.area.start).to_string())
            .with("type", self.area_kind());
        if let Resilience::Checksum { hash, block } = &self.resilience {
            area = area.with("hash", &**hash).with("sector_size", *block);
        }
        if let Some(shift) = self.shift {
            area = area.with("shift_size", shift.to_string());
        }
        let slot = Object::default()
            .with("area", area)
            .with("type", "reencrypt")
            .with("key_size", 1)
            .with("mode", self.mode.name())
            .with("direction", self.direction.name())
            .with("priority", 0)
            .with(DATA_SIZE, len.to_string());
        let slot = match self.device_size {
            Some(size) => slot.with(DEVICE_SIZE, size.to_string()),
            None => slot,
        };
        let slot = match self.samples.is_empty() {
            true => slot,
            false => slot.with(SAMPLES, self.samples_json()),
        };
        member(&mut object, "keyslots").set(self.keyslot.to_string(), slot.into());
        let digests = member(&mut object, "digests");
        let free = (0..DIGESTS).find(|id| digests.get(id.to_string()).is_none());
        let free = free.ok_or_else(|| Error::argument("the LUKS2 header has no room for another digest"))?;
        digests.set(free.to_string(), digest.clone().into());
        let mandatory = Json::from(vec![Json::from(self.requirement())]);
        let requirements = Object::default().with("mandatory", mandatory);
        member(&mut object, "config").set("requirements", requirements.into());
        let flagged = |segment: &Segment, flag: &str| -> Json {
            segment_json(segment, segment.offset, segment.size, 0)
                .with("flags", vec![Json::from(flag)])
                .into()
        };
        let Backups { previous, last, moved } = &self.backups;
        let mut backups = vec![flagged(previous, "backup-previous"), flagged(last, "backup-final")];
        backups.extend(moved.as_ref().map(|moved| flagged(moved, "backup-moved-segment")));
        let moved = Some(self.moved_len()).filter(|moved| *moved > 0 && *moved < len);
        let bounds: Vec<u64> = [Some(0), moved, Some(len)].into_iter().flatten().collect();
        let old = |pair: &[u64]| Part { state: State::Old, range: pair[0]..pair[1] };
        let parts: Vec<Part> = bounds.windows(2).map(old).collect();
        // While the work goes on there are as many as these.
        let mut most = parts.clone();
        most.extend((0..2).map(|_| Part { state: State::Hot, range: 0..len }));
        let room = metadata.hdr_size() - u64_of(BINARY_LEN);
        let text = Json::Object(self.with_segments(object.clone(), &most, &backups, len)).to_plain();
        // Samples get another code.
        if u64_of(text.len() + self.samples.len() * SAMPLE_GROWS) >= room {
            let text = format!(
                "the LUKS2 header has no room for what a reencryption notes: {} of {room} bytes",
                text.len()
            );
            return Err(Error::argument(text));
        }
        Metadata::new(self.with_segments(object, &parts, &backups, len), metadata.hdr_size())
    }

    /// Metadata in which a digest proves this reencryption, in place of any other one.
    ///
    /// # Errors
    /// `Argument` if the header has no room for it; `Corrupt` for what cryptsetup would not take.
    pub fn proven(&self, metadata: &Metadata, digest: &Object) -> Result<Metadata> {
        let mut object = metadata.object().clone();
        let digests = member(&mut object, "digests");
        let own = Json::from(self.keyslot.to_string());
        digests.retain(|_, digest| {
            let names = digest.object().and_then(|digest| digest.get("keyslots")?.array());
            !names.is_some_and(|names| names.contains(&own))
        });
        let free = (0..DIGESTS).find(|id| digests.get(id.to_string()).is_none());
        let free = free.ok_or_else(|| Error::argument("the LUKS2 header has no room for another digest"))?;
        digests.set(free.to_string(), digest.clone().into());
        let mandatory = Json::from(vec![Json::from(self.requirement())]);
        let requirements = Object::default().with("mandatory", mandatory);
        member(&mut object, "config").set("requirements", requirements.into());
        Metadata::new(object, metadata.hdr_size())
    }

    /// Metadata that say of all data in which state they are.
    ///
    /// # Errors
    /// `Corrupt` for what cryptsetup would not take.
    pub fn with_parts(&self, metadata: &Metadata, parts: &[Part], len: u64) -> Result<Metadata> {
        let mut object = metadata.object().clone();
        // Of work that cryptsetup began its segments alone have said this.
        if let Some(size) = self.device_size.filter(|size| *size < len)
            && let Some(slot) = member(&mut object, "keyslots").get_mut(self.keyslot.to_string())
            && let Some(slot) = slot.object_mut()
        {
            slot.set(DEVICE_SIZE, size.to_string().into());
        }
        let segments = object.get("segments").and_then(Json::object).cloned().unwrap_or_default();
        let is_backup = |segment: &Json| {
            let flags =
                segment.object().and_then(|segment| segment.get("flags")?.array()).unwrap_or_default();
            flags.iter().filter_map(Json::bytes).any(|flag| flag.starts_with(b"backup-"))
        };
        let backups: Vec<Json> = (0..segments.len())
            .filter_map(|id| segments.get(id.to_string()))
            .filter(|one| is_backup(one))
            .cloned()
            .collect();
        let object = self.with_segments(object, parts, &backups, len);
        let noted = self.with_notes(object.clone());
        let has_room = |object: &Object| {
            u64_of(Json::Object(object.clone()).to_plain().len()) < metadata.hdr_size() - u64_of(BINARY_LEN)
        };
        Metadata::new(if has_room(&noted) { noted } else { object }, metadata.hdr_size())
    }

    /// Metadata with this project's notes of the data as they are now.
    fn with_notes(&self, mut object: Object) -> Object {
        let slot =
            member(&mut object, "keyslots").get_mut(self.keyslot.to_string()).and_then(Json::object_mut);
        if let Some(slot) = slot {
            if let Some(len) = self.data_size {
                slot.set(DATA_SIZE, len.to_string().into());
            }
            match self.samples.is_empty() {
                true => slot.retain(|name, _| name != SAMPLES.as_bytes()),
                false => slot.set(SAMPLES, self.samples_json()),
            }
        }
        object
    }

    fn samples_json(&self) -> Json {
        self.samples.iter().map(|sample| Json::from(sample.to_text())).collect::<Vec<Json>>().into()
    }

    fn with_segments(&self, mut object: Object, parts: &[Part], backups: &[Json], len: u64) -> Object {
        let Backups { previous, last, moved } = &self.backups;
        let mut segments = Object::default();
        let mut bound: [Vec<Json>; 2] = Default::default();
        let is_done = parts.iter().all(|part| part.state == State::New);
        for (id, part) in parts.iter().enumerate() {
            let (start, is_old) = (part.range.start, part.state == State::Old);
            let (like, place) = match is_old {
                true if start < self.moved_len() => {
                    (moved.as_ref().unwrap_or(previous), self.old_place(start))
                }
                true => (previous, self.old_place(start)),
                false => (last, self.new_place(start)),
            };
            // As cryptsetup has it: what is hot has an end, and what had one from the beginning until all is done.
            let is_bounded = matches!(previous.size, SegmentSize::Fixed(_)) && !is_done;
            let has_end = part.state == State::Hot || is_bounded || is_old && start < self.moved_len();
            let size = match part.range.end == len && !has_end {
                true => SegmentSize::Dynamic,
                false => SegmentSize::Fixed(part.range.end - start),
            };
            let mut segment = segment_json(like, place, size, start / 512);
            if part.state == State::Hot {
                segment = segment.with("flags", vec![Json::from("in-reencryption")]);
            }
            segments.set(id.to_string(), segment.into());
            if previous.kind == "crypt" && (is_old || part.state == State::Hot && last.kind == "crypt") {
                bound[0].push(Json::from(id.to_string()));
            }
            if last.kind == "crypt" && !is_old {
                bound[1].push(Json::from(id.to_string()));
            }
        }
        for (id, backup) in (parts.len()..).zip(backups) {
            segments.set(id.to_string(), backup.clone());
            let flags = backup.object().and_then(|one| one.get("flags")?.array()).unwrap_or_default();
            let which = usize::from(flags.iter().any(|flag| flag.bytes() == Some(b"backup-final")));
            let is_crypt = backup.object().and_then(|one| one.get("type")?.bytes()) == Some(b"crypt");
            if is_crypt {
                bound[which].push(Json::from(id.to_string()));
            }
        }
        object.set("segments", segments.into());
        let [old, new] = self.digests;
        let [mut first, second] = bound;
        if old == new {
            first.extend(second.iter().filter(|id| !first.contains(id)).cloned().collect::<Vec<_>>());
        }
        let digests = member(&mut object, "digests");
        let sets = [(old, first), (new.filter(|_| old != new), second)];
        for (digest, ids) in sets {
            if let Some(digest) =
                digest.and_then(|id| digests.get_mut(id.to_string())).and_then(Json::object_mut)
            {
                digest.set("segments", ids.into());
            }
        }
        object
    }

    /// Metadata after all is done: one segment, and nothing that knows of the old key any more. With a header that lies
    /// before the data, the area of key slots reaches up to them.
    ///
    /// # Errors
    /// `Corrupt` for what cryptsetup would not take.
    pub fn ended(&self, metadata: &Metadata, is_attached: bool) -> Result<Metadata> {
        let mut object = metadata.object().clone();
        let last = &self.backups.last;
        let segment = segment_json(last, last.offset, SegmentSize::Dynamic, 0);
        object.set("segments", Object::default().with("0", segment).into());
        let [old, new] = self.digests;
        let gone = old.filter(|_| old != new);
        let digests = metadata.digests();
        let of_slot = |digest: &Digest| digest.keyslots.contains(&self.keyslot);
        let is_gone = |digest: &Digest| Some(digest.id) == gone || of_slot(digest);
        let mut slots: Vec<u32> = digests
            .iter()
            .filter(|digest| is_gone(digest))
            .flat_map(|digest| digest.keyslots.clone())
            .collect();
        slots.push(self.keyslot);
        let ids: Vec<u32> = digests.iter().filter(|digest| is_gone(digest)).map(|digest| digest.id).collect();
        let is_one = |ids: &[u32], name: &[u8]| ids.iter().any(|id| id.to_string().as_bytes() == name);
        member(&mut object, "keyslots").retain(|name, _| !is_one(&slots, name));
        let digests = member(&mut object, "digests");
        digests.retain(|name, _| !is_one(&ids, name));
        if let Some(digest) = new.and_then(|id| digests.get_mut(id.to_string())).and_then(Json::object_mut) {
            digest.set("segments", vec![Json::from("0")].into());
        }
        for (_, token) in member(&mut object, "tokens").iter_mut() {
            if let Some(Json::Array(names)) = token.object_mut().and_then(|token| token.get_mut("keyslots")) {
                names.retain(|name| !is_one(&slots, name.bytes().unwrap_or_default()));
            }
        }
        let config = member(&mut object, "config");
        config.retain(|name, _| name != b"requirements");
        let start = 2 * metadata.hdr_size();
        if is_attached && last.offset > start {
            let room = (last.offset - start).min(validate::LARGEST_KEYSLOTS) / 4096 * 4096;
            config.set("keyslots_size", room.max(metadata.keyslots_size()).to_string().into());
        }
        Metadata::new(object, metadata.hdr_size())
    }
}

/// Bytes by which the text of a sample grows when its place is transformed.
const SAMPLE_GROWS: usize = 17;

/// Requirement of a header whose volume's first data are being copied over the header before them. It is casemate's own: a
/// program that does not know it leaves the volume alone, and casemate only reads it, so that nothing changes that was copied.
pub const MOVING: &str = "casemate-move";

impl Metadata {
    /// Code, in hexadecimal, of the first data, which are being copied over the header before them; `None` if they are not.
    pub fn moving(&self) -> Option<&[u8]> {
        let is_moving = self.requirements() == [MOVING];
        Some(self.config().get(MOVING).and_then(Json::bytes).unwrap_or_default()).filter(|_| is_moving)
    }

    /// Metadata of a volume whose first data, of this code, are to be copied over the header before them.
    ///
    /// # Errors
    /// `Argument` if the header has no room for it.
    pub fn with_moving(&self, code: &str) -> Result<Metadata> {
        let mut object = self.object().clone();
        let mandatory = Json::from(vec![Json::from(MOVING)]);
        let config = member(&mut object, "config");
        config.set("requirements", Object::default().with("mandatory", mandatory).into());
        config.set(MOVING, code.into());
        Metadata::new(object, self.hdr_size())
    }

    /// Metadata as they were before [`Metadata::with_moving`].
    ///
    /// # Errors
    /// `Corrupt` for what cryptsetup would not take.
    pub fn without_moving(&self) -> Result<Metadata> {
        let mut object = self.object().clone();
        member(&mut object, "config").retain(|name, _| name != b"requirements" && name != MOVING.as_bytes());
        Metadata::new(object, self.hdr_size())
    }
}

/// The JSON of a segment that is like another one, at a place and from a sector on.
fn segment_json(like: &Segment, offset: u64, size: SegmentSize, sector: u64) -> Object {
    let size = match size {
        SegmentSize::Dynamic => "dynamic".to_owned(),
        SegmentSize::Fixed(size) => size.to_string(),
    };
    let segment =
        Object::default().with("type", &*like.kind).with("offset", offset.to_string()).with("size", size);
    match &*like.kind {
        "crypt" => segment
            .with("iv_tweak", like.iv_tweak.saturating_add(sector).to_string())
            .with("encryption", &*like.encryption)
            .with("sector_size", like.sector_size),
        _ => segment,
    }
}

/// An object within metadata, which have it: they are validated.
fn member<'a>(object: &'a mut Object, name: &str) -> &'a mut Object {
    if object.get(name).and_then(Json::object).is_none() {
        object.set(name, Object::default().into());
    }
    // OK to unwrap: it is there.
    object.get_mut(name).and_then(Json::object_mut).unwrap()
}
