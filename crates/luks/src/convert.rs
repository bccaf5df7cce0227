//! A volume's header made one of the other version. The data stay as they are.
//!
//! The headers of LUKS1 and LUKS2 overlap: LUKS2 has two copies of its header in 32 KiB, where
//! LUKS1 may have a key slot. So a key that lies there is moved out of the way first, within the version that it is of. Then
//! one version's header takes the place of the other's without touching any key slot, and one sector decides which it is: at
//! any moment the volume opens, as one or as the other.

use std::ops::Range;

use crate::Header;
use crate::json::{Json, Object};
use crate::luks1::{self, SlotState};
use crate::luks2::{self, Kdf, Metadata, SegmentSize, decode};
use casemate_blockdev::{AtFile, BlockDevice, u64_of, usize_of};
use casemate_primitives::cpu::Cpu;
use casemate_primitives::secret::SecretVec;
use casemate_providers::{Providers, Work};

use super::change::wipe;
use super::digest::digest_json;
use super::format::{self, HDR_SIZE, LuksVersion};
use super::random::Source;
use super::slot::{Slot, area_len};
use super::unlock::Check;
use super::{Reason, Volume};
use crate::Error;
use crate::pbkdf::Pbkdf;

/// Bytes of both copies of a header of LUKS2.
const COPIES: u64 = 2 * HDR_SIZE;

/// The first byte of key slots in LUKS1.
const FIRST_SLOT: u64 = 4096;

/// Magic of LUKSMETA, which clevis and others keep behind the key slots of LUKS1.
const LUKSMETA: &[u8; 8] = b"LUKSMETA";

impl Volume {
    /// Makes the header one of the other version, with the same keys, UUID and data.
    ///
    /// # Errors
    /// `Argument` if it is of this version already, has what the other one does not have, or has no room for it; nothing is
    /// changed then. `Unsupported` if the header requires something; `Io`.
    pub fn convert(&mut self, version: LuksVersion, work: &Work<'_>) -> Result<(), Error> {
        let _lease = self.lease_header()?;
        let _claim = self.claim_header()?;
        let image = &self.header_image;
        let converted = match (&mut self.header, version) {
            (Header::Luks1(header), LuksVersion::Two) => to_luks2(header, image.top(), &work.providers),
            (Header::Luks2(header), LuksVersion::One) => to_luks1(header, image.top(), &work.providers),
            (header, _) => {
                let version = header.version();
                Err(Reason::SameVersion(version).of(Error::argument(format!("it is LUKS{version} already"))))
            }
        };
        self.header = converted.at(image.name())?;
        Ok(())
    }
}

/// Copies a key slot's stripes to where nothing is, until they are on stable storage.
fn copy(device: &dyn BlockDevice, from: Range<u64>, to: u64) -> Result<(), Error> {
    // The stripes of a key.
    let mut stripes = SecretVec::zeroed(usize_of(from.end - from.start));
    device.read_at(stripes.expose_mut(), from.start)?;
    device.write_at(stripes.expose(), to)?;
    device.flush()
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

fn to_luks2(
    header: &mut luks1::Header,
    device: &dyn BlockDevice,
    providers: &Providers,
) -> Result<Header, Error> {
    let refuse = |text: &str| Err(Error::argument(format!("{text}; LUKS2 can't be made of this header")));
    if header.slots.iter().any(|slot| matches!(slot.state, SlotState::Invalid(_))) {
        return refuse("a key slot has a state that means nothing");
    }
    let end = header.metadata_end().next_multiple_of(4096);
    let mut behind = [0; LUKSMETA.len()];
    if device.size() >= end + u64_of(behind.len()) {
        device.read_at(&mut behind, end)?;
    }
    if behind == *LUKSMETA {
        return refuse("metadata of luksmeta lie behind the key slots");
    }
    let room = match u64::from(header.payload_offset) * 512 {
        0 => device.size(),
        payload => payload,
    };
    let len = area_len(usize_of(header.key_bytes))?;
    let keyslots_size = (room.saturating_sub(COPIES) / 4096 * 4096).min(format::LARGEST_KEYSLOTS);
    if keyslots_size < len {
        return refuse("there is no room before the data");
    }
    // The number that each slot's key has in LUKS2: the one that it had.
    let mut numbers: [usize; luks1::SLOTS] = std::array::from_fn(|id| id);
    while let Some(id) = in_the_way(header) {
        let other = move_away(header, device, id, len, COPIES + keyslots_size)?;
        numbers.swap(id, other);
    }
    let metadata = metadata_of_luks2(header, &numbers, len, keyslots_size, providers.cpu())?;
    let mut made = luks2::Header::new(header.uuid.clone(), metadata);
    // 32 KiB.
    let copies = casemate_blockdev::MemoryDevice::new(vec![0; usize_of(COPIES)]);
    made.write(&copies, providers, &mut |bytes| Source::System.fill(bytes))?;
    let copies = copies.into_bytes();
    // With the first sector it is LUKS2, of which only the second copy is whole; until then LUKS1.
    let second = usize_of(HDR_SIZE);
    for piece in [second..2 * second, 0..512, 0..second] {
        device.write_at(&copies[piece.clone()], u64_of(piece.start))?;
        device.flush()?;
    }
    // Where cryptsetup puts them, so that it finds room for all of them on the way back.
    while move_to_grid(&mut made, device, COPIES, len, providers)? {}
    Ok(Header::Luks2(made))
}

/// The first key slot that lies where the copies of a header of LUKS2 will.
fn in_the_way(header: &luks1::Header) -> Option<usize> {
    let is_in_the_way =
        |slot: &luks1::Slot| slot.state == SlotState::Enabled && header.area(slot).start < COPIES;
    header.slots.iter().position(is_in_the_way)
}

/// Moves a key slot of LUKS1 to where nothing is: the place of one without a key, which gets its place, or that behind all.
/// Returns the slot that the key is in then.
fn move_away(
    header: &mut luks1::Header,
    device: &dyn BlockDevice,
    id: usize,
    len: u64,
    end: u64,
) -> Result<usize, Error> {
    let from = header.slots[id].offset;
    let area = header.area(&header.slots[id]);
    let free = |k: &usize| {
        let slot = &header.slots[*k];
        slot.state == SlotState::Disabled && header.area(slot).start >= COPIES
    };
    let behind = header.metadata_end().next_multiple_of(4096).max(COPIES);
    // The first six slots are in the header's first sector, and change places in one write.
    let (to, other, now) = match (0..6).find(free) {
        Some(other) => (header.slots[other].offset, Some(other), id),
        None if behind.saturating_add(len) <= end => {
            let to = u32::try_from(behind / 512);
            (to.map_err(|_| Error::argument("the key slots end too far behind"))?, None, id)
        }
        None => {
            let none = "all key slots hold keys, and there is no room to move one: remove a key first; LUKS2 can't be made \
                        of this header";
            let other = (6..luks1::SLOTS).find(free).ok_or_else(|| Error::argument(none))?;
            (header.slots[other].offset, None, other)
        }
    };
    copy(device, area.clone(), u64::from(to) * 512)?;
    let moved = luks1::Slot { offset: to, ..header.slots[id] };
    if now == id {
        if let Some(other) = other {
            header.slots[other].offset = from;
        }
        header.slots[id] = moved;
    } else {
        // In both at first: a write of two sectors may be torn, and overlapping slots make a header invalid.
        header.slots[now] = moved;
        header.write(device)?;
        header.slots[id].disable();
    }
    header.write(device)?;
    wipe(device, area)?;
    Ok(now)
}

/// The metadata that say what a header of LUKS1 says.
fn metadata_of_luks2(
    header: &luks1::Header,
    numbers: &[usize; luks1::SLOTS],
    len: u64,
    keyslots_size: u64,
    cpu: Cpu,
) -> Result<Metadata, Error> {
    let (mut keyslots, mut ids) = (Object::default(), Vec::new());
    let mut slots: Vec<_> = numbers.iter().zip(&header.slots).collect();
    slots.sort_by_key(|(number, _)| **number);
    for (id, slot) in slots.into_iter().filter(|(_, slot)| slot.state == SlotState::Enabled) {
        let mut slot = Slot::of_luks1(header, slot);
        if slot.area.start.is_multiple_of(4096) {
            slot.area.end = slot.area.start + len;
        }
        keyslots.set(id.to_string(), slot.to_json(cpu).into());
        ids.push(id.to_string());
    }
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let (salt, value) = (&header.digest_salt, &header.digest);
    let digest = digest_json(&header.hash, header.digest_iterations, salt, value, &ids, &["0"], cpu);
    let segment = format::segment_json(u64::from(header.payload_offset) * 512, &header.encryption(), 512);
    Metadata::new(format::metadata_json(keyslots, segment, digest, [HDR_SIZE, keyslots_size]), HDR_SIZE)
}

fn to_luks1(
    header: &mut luks2::Header,
    device: &dyn BlockDevice,
    providers: &Providers,
) -> Result<Header, Error> {
    let mut made = header_of_luks1(header, providers)?;
    let len = area_len(usize_of(made.key_bytes))?;
    let room = match u64::from(made.payload_offset) * 512 {
        0 => device.size(),
        payload => payload,
    };
    while !place_slots(&mut made, &header.metadata, len, room) {
        if !move_to_grid(header, device, FIRST_SLOT, len, providers)? {
            let text =
                "there is no room for eight key slots before the data; LUKS1 can't be made of this header";
            return Err(Error::argument(text));
        }
    }
    let bytes = made.to_bytes();
    // With the second sector the first copy of LUKS2 is none any more; the second one is there until the first sector is
    // that of LUKS1.
    for piece in [512..bytes.len(), 0..512] {
        device.write_at(&bytes[piece.clone()], u64_of(piece.start))?;
        device.flush()?;
    }
    let copies = 2 * header.metadata.hdr_size();
    device.write_zeroes(u64_of(bytes.len()), copies - u64_of(bytes.len()), false)?;
    device.flush()?;
    Ok(Header::Luks1(made))
}

/// The header of LUKS1 that says what one of LUKS2 says; its slots have no place yet.
fn header_of_luks1(header: &luks2::Header, providers: &Providers) -> Result<luks1::Header, Error> {
    let refuse = |text: String| Err(Error::argument(format!("{text}; LUKS1 can't be made of this header")));
    let (metadata, cpu) = (&header.metadata, providers.cpu());
    let (segments, digests, tokens) = (metadata.segments(), metadata.digests(), metadata.tokens());
    let ([segment], [digest]) = (&segments[..], &digests[..]) else {
        return refuse(format!(
            "it has {} segments and {} digests, not one of each",
            segments.len(),
            digests.len()
        ));
    };
    if let Some(token) = tokens.first() {
        return refuse(format!("it has token {}, of type '{}'", token.id, token.kind));
    }
    if segment.kind != "crypt"
        || segment.size != SegmentSize::Dynamic
        || segment.iv_tweak != 0
        || segment.integrity.is_some()
    {
        return refuse("its segment is not one that LUKS1 has".to_owned());
    }
    if segment.sector_size != 512 {
        return refuse(format!("its sectors have {} bytes, not 512", segment.sector_size));
    }
    if providers.hash(&digest.hash)?.digest_len() < luks1::DIGEST_LEN {
        return refuse(format!("the digests of {} are too short", digest.hash));
    }
    // As dm-crypt reads a cipher without a mode.
    let (name, mode) = segment.encryption.split_once('-').unwrap_or((&segment.encryption, "cbc-plain"));
    for (what, text) in [("cipher", name), ("cipher mode", mode), ("hash", &*digest.hash)] {
        if text.len() >= 32 || text.starts_with("capi:") {
            return refuse(format!("there is no room for the {what} '{text}'"));
        }
    }
    let check = Check::of_luks2(digest, cpu)?;
    let (Some(value), Ok(salt)) = (check.digest.first_chunk(), check.salt.try_into()) else {
        return refuse("its digest is not one that LUKS1 has".to_owned());
    };
    let keyslots = metadata.keyslots();
    let Some(first) = keyslots.first() else {
        return refuse("it has no key slot".to_owned());
    };
    let mut made = luks1::Header::new(name, mode, &digest.hash, first.key_size)?;
    made.uuid = header.uuid.clone();
    (made.digest, made.digest_salt, made.digest_iterations) = (*value, salt, digest.iterations);
    made.payload_offset = match u32::try_from(segment.offset / 512) {
        Ok(sector) => sector,
        Err(_) => return refuse(format!("there is no room for data from byte {} on", segment.offset)),
    };
    for slot in &keyslots {
        let id = usize_of(slot.id);
        let (Some(to), Some(Kdf { pbkdf: Ok(Pbkdf::Pbkdf2 { hash, iterations }), salt })) =
            (made.slots.get_mut(id), &slot.kdf)
        else {
            return refuse(match id < luks1::SLOTS {
                true => format!("key slot {id} has no PBKDF2, which convert-key gives it"),
                false => format!("it has key slot {id}, and the last one of LUKS1 is 7"),
            });
        };
        let is_same = *hash == digest.hash && slot.af_hash == digest.hash && slot.key_size == first.key_size;
        let is_same =
            is_same && slot.area.encryption == segment.encryption && slot.area.key_size == first.key_size;
        let Ok(salt) = decode(salt, "salt", cpu)?.try_into() else {
            return refuse(format!("the salt of key slot {id} is not one that LUKS1 has"));
        };
        if !is_same {
            return refuse(format!(
                "key slot {id} has another hash or cipher than the data, which convert-key can change"
            ));
        }
        (to.state, to.iterations, to.salt) = (SlotState::Enabled, *iterations, salt);
    }
    Ok(made)
}

/// Gives every slot of a header of LUKS1 a place: those with keys where they lie, the others between. Says whether there is
/// room for all of them.
fn place_slots(made: &mut luks1::Header, metadata: &Metadata, len: u64, room: u64) -> bool {
    let mut taken: Vec<Range<u64>> = Vec::new();
    for slot in metadata.keyslots() {
        let Ok(sector) = u32::try_from(slot.area.offset / 512) else { return false };
        if !slot.area.offset.is_multiple_of(512) || slot.area.offset.saturating_add(len) > room {
            return false;
        }
        // OK to index: all numbers were looked at.
        made.slots[usize_of(slot.id)].offset = sector;
        taken.push(slot.area.offset..slot.area.offset + len);
    }
    for slot in made.slots.iter_mut().filter(|slot| slot.state == SlotState::Disabled) {
        let mut start = FIRST_SLOT;
        while let Some(other) =
            taken.iter().filter(|other| overlap(other, &(start..start + len))).max_by_key(|o| o.end)
        {
            start = other.end.next_multiple_of(4096);
        }
        let Ok(sector) = u32::try_from(start / 512) else { return false };
        if start + len > room {
            return false;
        }
        slot.offset = sector;
        taken.push(start..start + len);
    }
    true
}

/// Moves a key slot of LUKS2 to where one lies if they lie one behind the other from `first` on, so that others have room
/// beside it. `false` if all lie there, or nothing is free.
fn move_to_grid(
    header: &mut luks2::Header,
    device: &dyn BlockDevice,
    first: u64,
    len: u64,
    providers: &Providers,
) -> Result<bool, Error> {
    let (keyslots, area) = (header.metadata.keyslots(), header.metadata.keyslots_area());
    let end = |slot: &luks2::Keyslot| slot.area.offset.saturating_add(slot.area.size);
    let taken: Vec<Range<u64>> = keyslots.iter().map(|slot| slot.area.offset..end(slot)).collect();
    let places: Vec<u64> = (0..u64_of(luks1::SLOTS)).map(|k| first + k * len).collect();
    let is_free = |place: &&u64| {
        let range = **place..**place + len;
        let is_inside = range.start >= area.start && range.end <= area.end.min(device.size());
        is_inside && !taken.iter().any(|other| overlap(other, &range))
    };
    let slot = keyslots.iter().find(|slot| !places.contains(&slot.area.offset));
    let (Some(slot), Some(place)) = (slot, places.iter().find(is_free)) else { return Ok(false) };
    let from = slot.area.offset..end(slot).min(slot.area.offset.saturating_add(len));
    copy(device, from.clone(), *place)?;
    let mut object = header.metadata.object().clone();
    let slots = object.get_mut("keyslots").and_then(Json::object_mut);
    let slot = slots.and_then(|slots| slots.get_mut(slot.id.to_string())?.object_mut());
    if let Some(area) = slot.and_then(|slot| slot.get_mut("area")?.object_mut()) {
        area.set("offset", Json::from(place.to_string()));
        area.set("size", Json::from(len.to_string()));
    }
    header.metadata = Metadata::new(object, header.metadata.hdr_size())?;
    header.write(device, providers, &mut |bytes| Source::System.fill(bytes))?;
    wipe(device, from)?;
    Ok(true)
}
