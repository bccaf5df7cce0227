//! How a reencryption begins: with everything noted in the header, and no byte of the data changed.

use std::ops::Range;
use std::sync::Arc;

use crate::json::{Json, Object};
use crate::luks2::reencrypt::{Backups, Direction, Mode, Reencryption, Resilience, Sample};
use crate::luks2::{self, CopyState, Metadata, Segment, SegmentSize};
use casemate_blockdev::{AtFile, BlockDevice, Medium, Window, usize_of};
use casemate_crypt::{IvMode, Spec};
use casemate_primitives::secret::SecretVec;
use casemate_providers::{Providers, Work};

use super::samples::Sampler;
use super::sides::Keys;
use super::{Protection, ReencryptOptions};
use crate::areas::{free_area, free_slot, gaps};
use crate::digest::new_digest;
use crate::format::refuse_weak;
use crate::locks::HeaderLock;
use crate::random::Source;
use crate::slot::is_null;
use crate::slot::{AreaCipher, Slot};
use crate::unlock::{self, Budget};
use crate::{Advice, Error};
use crate::{LuksKey, LuksOptions, Reason};
use casemate_crypt::{Mapping, Params};

/// A key slot that stays, with another key: its passphrase and what it was.
struct Kept {
    id: u32,
    passphrase: SecretVec,
}

/// Bytes that have one checksum, where the data are whole ones of it.
const BLOCK: u32 = 4096;

/// The largest gap, in whole blocks: where a reencryption keeps what protects it.
pub(super) fn largest_gap(metadata: &Metadata) -> Result<Range<u64>, Error> {
    let whole = |gap: Range<u64>| gap.start..gap.start + (gap.end - gap.start) / 4096 * 4096;
    let largest = gaps(metadata).into_iter().map(whole).max_by_key(|gap| gap.end - gap.start);
    largest.filter(|gap| !gap.is_empty()).ok_or_else(|| {
        Error::argument(
            "the area for key slots has no room for what protects a reencryption: remove a key slot first",
        )
    })
}

/// Modes in which what follows in a data unit changes nothing before it, so that a unit which is torn between its sectors
/// can be told from them. IVs must depend on the place alone, too.
const PREFIX_WISE: [&str; 6] = ["xts(", "cbc(", "lrw(", "ecb(", "ctr(", "pcbc("];

/// Whether a data unit of a cipher that is torn can be told from its parts, as far as is known.
fn is_told_by_its_parts(encryption: &str) -> bool {
    let Ok(spec) = encryption.parse::<Spec>() else { return false };
    let is_of_place = !matches!(spec.iv, IvMode::Elephant | IvMode::Lmk | IvMode::Tcw);
    is_of_place && PREFIX_WISE.iter().any(|mode| spec.algorithm.starts_with(mode))
}

/// Whether a part of a data unit of a segment says nothing of it.
pub(super) fn is_wide(segment: &&Segment) -> bool {
    segment.kind == "crypt" && segment.sector_size > 512 && !is_told_by_its_parts(&segment.encryption)
}

/// Chooses the protection of `len` bytes of data that are rewritten in place, between two segments.
pub(super) fn resilience(
    options: &ReencryptOptions,
    segments: [&Segment; 2],
    len: u64,
    providers: &Providers,
) -> Result<Resilience, Error> {
    let unit = segments.iter().map(|segment| segment.sector_size).max().unwrap_or(0).max(512);
    let usual = if segments.iter().any(is_wide) { Protection::Journal } else { Protection::Checksum };
    let protection = options.protection.unwrap_or(usual);
    if options.resilience_hash.is_some() && protection != Protection::Checksum {
        return Err(Error::argument(
            "a hash of checksums was named, and the data are protected without them",
        ));
    }
    Ok(match protection {
        Protection::None => Resilience::None,
        Protection::Journal => Resilience::Journal,
        Protection::Checksum => {
            let hash = options.resilience_hash.as_deref().unwrap_or("sha256");
            providers.hash(hash)?;
            let block = if len.is_multiple_of(u64::from(BLOCK)) { BLOCK } else { unit };
            Resilience::Checksum { hash: hash.to_owned(), block }
        }
    })
}

/// The slots that stay, each with its passphrase, and the key of the data.
fn kept(
    header: &luks2::Header,
    device: &dyn BlockDevice,
    keys: &[LuksKey],
    unlocking: &LuksOptions,
    work: &Work<'_>,
) -> Result<(Vec<Kept>, SecretVec, bool), Error> {
    let digests = header.metadata.digests();
    let of_data = digests.iter().find(|digest| digest.segments.contains(&0));
    let of_data = of_data.ok_or_else(|| Error::corrupt("no digest is of the data"))?;
    let slots = header.metadata.keyslots();
    let is_active = |id: &u32| slots.iter().any(|slot| slot.id == *id && slot.kind == "luks2");
    let mut ids: Vec<u32> = of_data.keyslots.iter().copied().filter(is_active).collect();
    if let Some(named) = unlocking.keyslot {
        ids.retain(|id| *id == named);
        if ids.is_empty() {
            let error = Error::argument(format!("key slot {named} is not one of the data"));
            return Err(Reason::NoUsableSlot.of(error));
        }
    }
    let (mut kept, mut found, mut is_empty) = (Vec::new(), None, false);
    let mut refused = None;
    for id in &ids {
        for key in keys {
            let LuksKey::Passphrase(passphrase) = key else {
                return Err(Error::argument(
                    "a reencryption needs passphrases: the new volume key goes to key slots",
                ));
            };
            let mut one = unlocking.clone();
            one.keyslot = Some(*id);
            // Whoever gives a passphrase for each slot means all of them to be tried.
            let mut budget = Budget::new(unlocking.limits);
            match unlock::key_of_digest(header, device, of_data.id, key, &one, &mut budget, work) {
                Ok(unlocked) => {
                    is_empty |= unlocked.is_empty_passphrase;
                    found = Some(unlocked.volume_key);
                    kept.push(Kept { id: *id, passphrase: passphrase.clone() });
                    break;
                }
                Err(error) => refused = refused.or(Some(error)),
            }
        }
    }
    let Some(key) = found else {
        return Err(match (refused, &ids[..]) {
            (Some(error), [_]) => error,
            (Some(error), _) if error.kind() == crate::ErrorKind::Mismatch => {
                Reason::WrongPassphrase.of(Error::mismatch("no key slot opens with this passphrase"))
            }
            (Some(error), _) => error,
            (None, _) => Reason::NoUsableSlot.of(Error::argument("no key slot holds a key of the data")),
        });
    };
    if let Some(lost) = ids.iter().find(|id| kept.iter().all(|one| one.id != **id)) {
        let text = format!(
            "key slot {lost} would be lost, which no passphrase that was given opens: give the passphrase of every key slot, or \
             choose the slot that stays"
        );
        return Err(Error::argument(text).advise(Advice::KeySlot));
    }
    Ok((kept, key, is_empty))
}

/// Begins to reencrypt data with a new volume key. The images are those with the header and with the data.
pub(super) fn reencrypt(
    header: &mut luks2::Header,
    (header_image, data): (&Medium, &Medium),
    lock: &HeaderLock,
    keys: &[LuksKey],
    unlocking: &LuksOptions,
    options: &ReencryptOptions,
    work: &Work<'_>,
) -> Result<Keys, Error> {
    let (providers, device, size) = (&work.providers, header_image.top(), data.top().size());
    let segments = header.metadata.segments();
    // OK to unwrap: there is a segment 0, and one only.
    let previous = segments.into_iter().next().unwrap();
    if previous.size != SegmentSize::Dynamic {
        return Err(Error::unsupported(
            "the data have a fixed size; only data up to the device's end are reencrypted",
        ));
    }
    super::length::refuse_window(Mode::Reencrypt, data, options)?;
    if options.offset.is_some() {
        return Err(Error::argument(
            "data that are reencrypted stay where they are: a place of theirs is only for an encryption",
        ));
    }
    let shift = options.reduce_device_size.unwrap_or(0);
    if shift > 0 {
        refuse_protection(options)?;
        check_both_copies(header)?;
    }
    let last = Segment {
        offset: previous.offset.saturating_add(shift),
        encryption: options.cipher.clone().unwrap_or_else(|| previous.encryption.clone()),
        sector_size: options.sector_size.unwrap_or(previous.sector_size),
        ..previous.clone()
    };
    // What encrypts nothing is refused as that, below.
    if let Some(cipher) = options.cipher.as_ref().filter(|cipher| !is_null(cipher)) {
        refuse_weak(cipher, None)?;
    }
    let (kept, old_key, is_empty_passphrase) = kept(header, device, keys, unlocking, work)?;
    if shift > 0 {
        let mut params = Params::new(previous.encryption.parse()?);
        params.sector_size = usize_of(previous.sector_size);
        params.allow_equal_halves = unlocking.allow_equal_halves;
        let mapping = Mapping::new(params, old_key.clone(), previous.offset / 512, providers)?;
        let plain =
            mapping.verified(size.saturating_sub(previous.offset)).over(data.device()).at(data.name())?;
        let plain = Medium::over(data.name(), Arc::new(plain));
        let len = size.saturating_sub(last.offset);
        if len == 0 {
            let text = format!(
                "{} bytes of data are too small to give up {shift}: there is no room for data left",
                plain.top().size()
            );
            return Err(Error::argument(text));
        }
        let is_known = super::fits::check(&plain, len, options.contents)?;
        if !(is_known && options.give_up_data) {
            let raw = Window::new(data.top(), previous.offset, plain.top().size())?;
            super::fits::check_end(plain.top(), &raw, len, is_known)?;
        }
    }
    let key_len = match options.key_bits {
        None if last.encryption == previous.encryption => old_key.len(),
        bits => super::key_len(&last.encryption, bits)?,
    };
    let new_key = super::new_key(&last, key_len, providers)?;
    let mut object = header.metadata.object().clone();
    let hdr_size = header.metadata.hdr_size();
    let old_slots = header.metadata.keyslots();
    let mut metadata = header.metadata.clone();
    let digests = metadata.digests();
    // OK to unwrap: a digest of the data was found above.
    let old_digest = digests.iter().find(|digest| digest.segments.contains(&0)).unwrap().id;
    let new_digest = (0..luks2::DIGESTS).find(|id| digests.iter().all(|digest| digest.id != *id));
    let new_digest =
        new_digest.ok_or_else(|| Error::argument("the LUKS2 header has no room for another digest"))?;
    let mut pieces: Vec<(u64, SecretVec)> = Vec::new();
    let mut ids = Vec::new();
    for Kept { id: old, passphrase } in &kept {
        // OK to unwrap: the slot was opened.
        let like = old_slots.iter().find(|slot| slot.id == *old).unwrap();
        let id = free_slot(&metadata, None)?;
        let start = free_area(&metadata, new_key.len())?;
        // A slot keeps its cipher, unless that protects nothing.
        let area = AreaCipher { cipher: like.area.encryption.clone(), key_len: usize_of(like.area.key_size) };
        let area = Some(&area).filter(|area| !is_null(&area.cipher));
        let kdf = options.pbkdf.as_ref().map_or_else(|| like.pbkdf(), Ok)?.clone();
        let sealed = Slot::new(start, new_key.len(), &last.encryption, options.hash(), kdf)?;
        let mut sealed = sealed.with_cipher(area);
        let material = sealed.seal(passphrase, &new_key, &mut Source::System, providers)?;
        let mut slot = sealed.to_json(providers.cpu());
        let section = object.get("keyslots").and_then(Json::object);
        if let Some(priority) = section.and_then(|all| all.get(old.to_string())?.object()?.get("priority")) {
            slot.set("priority", priority.clone());
        }
        ids.push(id);
        // A slot and its digest are there together, or the metadata are not valid.
        set(&mut object, "keyslots", id, slot);
        set(
            &mut object,
            "digests",
            new_digest,
            self::new_digest(&new_key, options.hash(), &ids, &mut Source::System, providers)?,
        );
        for token in metadata.tokens().iter().filter(|token| token.keyslots.contains(old)) {
            let tokens = object.get_mut("tokens").and_then(Json::object_mut);
            let token = tokens.and_then(|tokens| tokens.get_mut(token.id.to_string())?.object_mut());
            if let Some(Json::Array(names)) = token.and_then(|token| token.get_mut("keyslots")) {
                names.push(Json::from(id.to_string()));
            }
        }
        metadata = Metadata::new(object.clone(), hdr_size)?;
        pieces.push((sealed.area.start, material));
    }
    let area = match shift {
        0 => largest_gap(&metadata)?,
        _ => shift_area(&metadata)?,
    };
    let direction = if shift > 0 { Direction::Backward } else { Direction::Forward };
    let unit = u64::from(previous.sector_size.max(last.sector_size));
    let data_len = size.saturating_sub(last.offset);
    if !data_len.is_multiple_of(unit) {
        return Err(Error::argument(format!(
            "{data_len} bytes of data are not a multiple of the sector size {unit}"
        )));
    }
    let resilience = match shift {
        0 => resilience(options, [&previous, &last], data_len, providers)?,
        _ => Resilience::None,
    };
    let mut course = Reencryption::new(
        Mode::Reencrypt,
        direction,
        resilience,
        (free_slot(&metadata, None)?, area),
        Backups { previous, last, moved: None },
        [Some(old_digest), Some(new_digest)],
    )?;
    course.device_size = options.device_size;
    let keys = Keys::of_new_work([Some(old_key), Some(new_key)], is_empty_passphrase);
    super::sides::refuse_null(&course, &keys)?;
    if !header_image.is_same(data) {
        course.samples = sample(&course, data, &keys, providers)?;
    }
    let begun = begin(&course, &metadata, &keys, size, options, providers)?;
    let _claim = lock.take()?;
    header.check_unchanged(device)?;
    for (offset, piece) in &pieces {
        device.write_at(piece.expose(), *offset)?;
    }
    device.flush()?;
    header.metadata = begun;
    header.write(device, providers, &mut |bytes| Source::System.fill(bytes))?;
    Ok(keys)
}

/// Refuses what protects data that are rewritten in place, for data that move.
pub(super) fn refuse_protection(options: &ReencryptOptions) -> Result<(), Error> {
    match options.protection.is_some() || options.resilience_hash.is_some() {
        true => Err(Error::argument(
            "data that move to make room are protected by their old place, and by nothing else: name no protection",
        )),
        false => Ok(()),
    }
}

/// Refuses to have the data give up their end while the header is not whole: work that has just ended looks like that when
/// power fails, and the same command again would take as many bytes once more.
fn check_both_copies(header: &luks2::Header) -> Result<(), Error> {
    match header.copies().iter().find(|copy| **copy != CopyState::Valid(header.seqid)) {
        Some(_) => Err(Error::argument(
            "one of the two headers is invalid: a reencryption may have just ended when power failed, and the data may \
             have given up their end already. casemate luks dump shows where they begin now, and casemate luks repair \
             restores the header",
        )),
        None => Ok(()),
    }
}

/// Samples of data whose header lies elsewhere, for work that is about to begin.
pub(super) fn sample(
    course: &Reencryption,
    data: &Medium,
    keys: &Keys,
    providers: &Providers,
) -> Result<Vec<Sample>, Error> {
    let sampler = Sampler::new(keys, providers)?;
    let len = course.len(data.top().size()).unwrap_or(0);
    sampler.map_or(Ok(Vec::new()), |sampler| sampler.take(course, data.top(), len)).at(data.name())
}

/// Metadata in which a reencryption begins, with its digest.
pub(super) fn begin(
    course: &Reencryption,
    metadata: &Metadata,
    keys: &Keys,
    size: u64,
    options: &ReencryptOptions,
    providers: &Providers,
) -> Result<Metadata, Error> {
    let len = course.len(size).map_err(|_| {
        Error::argument(format!("a device of {size} bytes is too small: it has no room for data"))
    })?;
    super::limit(course, len, options)?;
    let [old, new] = keys.refs();
    let message = course.message(old, new);
    let digest = new_digest(&message, options.hash(), &[course.keyslot], &mut Source::System, providers)?;
    let begun = course.begun(metadata, &digest, len);
    match begun.is_err() && !course.samples.is_empty() {
        // A header that is nearly full may have no room for samples.
        true => {
            let mut course = course.clone();
            course.samples.clear();
            course.begun(metadata, &digest, len)
        }
        false => begun,
    }
}

/// An area of 4096 bytes, for a reencryption that needs none.
pub(super) fn shift_area(metadata: &Metadata) -> Result<Range<u64>, Error> {
    let gap = largest_gap(metadata)?;
    Ok(gap.start..gap.start + 4096)
}

fn set(object: &mut Object, section: &str, id: u32, value: Object) {
    if let Some(section) = object.get_mut(section).and_then(Json::object_mut) {
        section.set(id.to_string(), value.into());
    }
}
