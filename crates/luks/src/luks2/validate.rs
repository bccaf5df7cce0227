//! Rules for the metadata of LUKS2: exactly those by which cryptsetup takes or refuses a header.
//!
//! Some of it is odd: a slot may have any priority, and a digest no salt. What such a header can't do shows when it is
//! opened.

use std::collections::HashMap;
use std::ops::Range;

use casemate_blockdev::u64_of;

use crate::json::{Json, Object};
use crate::{Error, Result};

use super::binary::{BINARY_LEN, LARGEST_HEADER};

/// Bytes of the area of key slots, at most.
pub(super) const LARGEST_KEYSLOTS: u64 = 128 << 20;

/// How many keyslots there may be; those with higher numbers are not looked at.
pub const KEYSLOTS: u32 = 32;
/// Why metadata are refused, without the words before it.
type Found<T> = std::result::Result<T, String>;

/// Checks metadata of `text_len` bytes in a header of `hdr_size` bytes.
///
/// # Errors
/// `Corrupt`.
pub fn validate(metadata: &Object, text_len: usize, hdr_size: u64) -> Result<()> {
    let checked = Validator { metadata, hdr_size }.all(text_len);
    checked.map_err(|text| Error::corrupt(format!("LUKS2 metadata: {text}")))
}

struct Validator<'a> {
    metadata: &'a Object,
    hdr_size: u64,
}

impl<'a> Validator<'a> {
    fn all(&self, text_len: usize) -> Found<()> {
        let keyslots = self.section("keyslots")?;
        let (tokens, segments) = (self.section("tokens")?, self.section("segments")?);
        let (digests, config) = (self.section("digests")?, self.section("config")?);
        let online = requirements(config)?;
        for (id, token) in numbered(tokens, "token")? {
            within(&id, || {
                let token = object(token)?;
                string(token, "type")?;
                known(token, "keyslots", keyslots)
            })?;
        }
        let (mut named, mut bound) = (HashMap::new(), HashMap::new());
        for (id, digest) in numbered(digests, "digest")? {
            within(&id, || {
                let digest = object(digest)?;
                string(digest, "type")?;
                for (member, section, count) in
                    [("keyslots", keyslots, &mut named), ("segments", segments, &mut bound)]
                {
                    known(digest, member, section)?;
                    let mut ids: Vec<_> = digest
                        .get(member)
                        .and_then(Json::array)
                        .unwrap_or_default()
                        .iter()
                        .filter_map(Json::bytes)
                        .collect();
                    ids.sort_unstable();
                    ids.dedup();
                    ids.into_iter().for_each(|id| *count.entry(id).or_insert(0u32) += 1);
                }
                Ok(())
            })?;
        }
        let first = check_segments(segments, &bound)?;
        if online {
            check_reencrypted(segments)?;
        }
        let mut areas = Vec::new();
        for (id, keyslot) in numbered(keyslots, "keyslot")? {
            areas.push((within(&id, || keyslot_area(object(keyslot)?))?, id));
        }
        let room = self.config(config, first)?;
        check_areas(areas, room)?;
        if u64_of(text_len) + u64_of(BINARY_LEN) > self.hdr_size {
            return Err(format!("{text_len} bytes of JSON do not fit a header of {} bytes", self.hdr_size));
        }
        let mut reencrypting = 0;
        for (name, keyslot) in keyslots.iter() {
            within(&format!("keyslot {}", String::from_utf8_lossy(name)), || {
                let keyslot = object(keyslot)?;
                let id = str::from_utf8(name).ok().and_then(|name| name.parse::<u32>().ok());
                match string(keyslot, "type")? {
                    b"luks2" if id.is_none_or(|id| id < KEYSLOTS) => {
                        check_luks2(keyslot)?;
                        // Whoever looks for the digest looks for the number as it is usually written.
                        let canonical = id.map_or(String::new(), |id| id.to_string());
                        match named.get(canonical.as_bytes()) {
                            Some(1) => Ok(()),
                            count => Err(format!("{} digests name it", count.unwrap_or(&0))),
                        }
                    }
                    b"reencrypt" if id.is_none_or(|id| id < KEYSLOTS) => {
                        reencrypting += 1;
                        check_reencrypt(keyslot)
                    }
                    _ => Ok(()),
                }
            })?;
        }
        match (online, reencrypting) {
            (true, 1) | (false, 0) => Ok(()),
            (true, 0) => Err("reencryption is required, and no keyslot is of it".to_owned()),
            (false, _) => Err("a keyslot is of a reencryption that is not required".to_owned()),
            _ => Err("several keyslots are of a reencryption".to_owned()),
        }
    }

    fn section(&self, name: &str) -> Found<&'a Object> {
        self.metadata.get(name).and_then(Json::object).ok_or_else(|| format!("no object '{name}'"))
    }

    /// Checks sizes and flags. Returns the bytes that areas of key slots may have.
    fn config(&self, config: &Object, first_segment: u64) -> Found<Range<u64>> {
        within("config", || {
            let json_size = number64(config, "json_size")?;
            let keyslots_size = number64(config, "keyslots_size")?;
            let hdr_size = json_size.checked_add(u64_of(BINARY_LEN));
            if hdr_size != Some(self.hdr_size)
                || !self.hdr_size.is_power_of_two()
                || self.hdr_size > LARGEST_HEADER
            {
                return Err(format!("json_size {json_size} in a header of {} bytes", self.hdr_size));
            }
            if !keyslots_size.is_multiple_of(4096) || keyslots_size > LARGEST_KEYSLOTS {
                return Err(format!("keyslots_size {keyslots_size}"));
            }
            let start = 2 * self.hdr_size;
            if first_segment != 0 && start + keyslots_size > first_segment {
                return Err(format!(
                    "keyslots_size {keyslots_size} does not fit before the segment at {first_segment}"
                ));
            }
            if let Some(flags) = config.get("flags") {
                strings(flags, "flags")?;
            }
            Ok(start..start + keyslots_size)
        })
    }
}

/// Whether a requirement is that of a reencryption, of whatever version; another that begins in the same way is unknown.
fn is_reencryption(name: &[u8]) -> bool {
    name.strip_prefix(b"online-reencrypt").is_some_and(|rest| {
        let version = rest.strip_prefix(b"-v").unwrap_or_default();
        rest.is_empty() || !version.is_empty() && version.iter().all(u8::is_ascii_digit)
    })
}

/// Checks requirements. Says whether a reencryption in progress is one of them.
fn requirements(config: &Object) -> Found<bool> {
    let Some(requirements) = config.get("requirements") else { return Ok(false) };
    within("config: requirements", || {
        let Some(mandatory) = object(requirements)?.get("mandatory") else { return Ok(false) };
        let online = strings(mandatory, "mandatory")?;
        let online = online.iter().filter(|name| is_reencryption(name)).count();
        match online {
            0 | 1 => Ok(online == 1),
            _ => Err("more than one kind of reencryption".to_owned()),
        }
    })
}

/// Checks segments. Returns the first byte of a regular one; 0 of a detached header.
fn check_segments(segments: &Object, bound: &HashMap<&[u8], u32>) -> Found<u64> {
    if segments.is_empty() {
        return Err("no segments".to_owned());
    }
    let mut regular = Vec::new();
    let mut backups = false;
    numbered(segments, "segment")?;
    for k in 0..segments.len() {
        let id = format!("{k}");
        let segment = segments.get(&id).ok_or_else(|| format!("segment {id} is missing"))?;
        within(&format!("segment {id}"), || {
            let segment = object(segment)?;
            let kind = string(segment, "type")?;
            let offset = number64(segment, "offset")?;
            let size = match string(segment, "size")? {
                b"dynamic" => None,
                _ => Some(number64(segment, "size")?),
            };
            if !offset.is_multiple_of(512) || size.is_some_and(|size| size == 0 || !size.is_multiple_of(512))
            {
                return Err(format!("offset {offset} and size {} are not whole sectors", size.unwrap_or(0)));
            }
            let flags =
                segment.get("flags").map(|flags| strings(flags, "flags")).transpose()?.unwrap_or_default();
            if kind == b"crypt" {
                check_crypt(segment, size)?;
                if !bound.contains_key(id.as_bytes()) {
                    return Err("no digest names it".to_owned());
                }
            }
            match flags.iter().any(|flag| flag.starts_with(b"backup-")) {
                true => backups = true,
                false if backups => return Err("it follows one that is kept as a backup".to_owned()),
                false => regular.push((offset, size)),
            }
            Ok(())
        })?;
    }
    if regular.is_empty() {
        return Err("all segments are backups".to_owned());
    }
    let first = regular.iter().map(|(offset, _)| *offset).min().unwrap_or(0);
    if regular[..regular.len() - 1].iter().any(|(_, size)| size.is_none()) {
        return Err("a segment before the last one has no fixed size".to_owned());
    }
    // As there, a lone segment may pass the end of every device: its size is looked at where it is used.
    if regular.len() > 1
        && let Some((offset, size)) =
            regular.iter().find(|(offset, size)| offset.checked_add(size.unwrap_or(0)).is_none())
    {
        return Err(format!("{} bytes from {offset} on pass 2^64", size.unwrap_or(0)));
    }
    regular.sort_unstable_by_key(|(offset, _)| *offset);
    for pair in regular.windows(2) {
        let end = pair[0].1.and_then(|size| pair[0].0.checked_add(size));
        if end.is_none_or(|end| end > pair[1].0) {
            return Err(format!("the segments at {} and {} overlap", pair[0].0, pair[1].0));
        }
    }
    Ok(first)
}

/// During a reencryption every regular segment is as one that is kept as a backup: as it was, or as it will be.
fn check_reencrypted(segments: &Object) -> Found<()> {
    let has = |segment: &Object, flag: &[u8]| {
        let flags = segment.get("flags").and_then(Json::array).unwrap_or_default();
        flags.iter().filter_map(Json::bytes).any(|bytes| bytes.starts_with(flag))
    };
    let all: Vec<&Object> = segments.iter().filter_map(|(_, segment)| segment.object()).collect();
    let backup = |flag: &[u8]| {
        let missing = || format!("no segment has the flag {}", String::from_utf8_lossy(flag));
        all.iter().find(|segment| has(segment, flag)).ok_or_else(missing)
    };
    let (previous, last) = (backup(b"backup-previous")?, backup(b"backup-final")?);
    let is_as = |segment: &Object, other: &Object| {
        let names: &[&str] = match segment.get("type").and_then(Json::bytes) {
            Some(b"crypt") => &["type", "encryption", "sector_size"],
            _ => &["type"],
        };
        names.iter().all(|name| segment.get(name) == other.get(name))
    };
    let regular = all.iter().filter(|segment| !has(segment, b"backup-"));
    let fits = |segment: &&&Object| {
        is_as(segment, last) || (!has(segment, b"in-reencryption") && is_as(segment, previous))
    };
    match regular.into_iter().all(|segment| fits(&segment)) {
        true => Ok(()),
        false => Err("a segment is neither as before the reencryption nor as after it".to_owned()),
    }
}

fn check_crypt(segment: &Object, size: Option<u64>) -> Found<()> {
    number64(segment, "iv_tweak")?;
    string(segment, "encryption")?;
    let sector_size = u64::from(number32(segment, "sector_size")?);
    if sector_size == 0 || !sector_size.is_multiple_of(512) {
        return Err(format!("sector_size {sector_size}"));
    }
    if size.is_some_and(|size| !size.is_multiple_of(sector_size)) {
        return Err(format!("its size is not a multiple of its sectors of {sector_size} bytes"));
    }
    let Some(integrity) = segment.get("integrity") else { return Ok(()) };
    within("integrity", || {
        let integrity = object(integrity)?;
        for name in ["type", "journal_encryption", "journal_integrity"] {
            string(integrity, name)?;
        }
        Ok(())
    })
}

/// Checks what every keyslot has. Returns its area.
fn keyslot_area(keyslot: &Object) -> Found<(u64, u64)> {
    string(keyslot, "type")?;
    number32(keyslot, "key_size")?;
    let area = keyslot.get("area").and_then(Json::object).ok_or("no area")?;
    within("area", || {
        string(area, "type")?;
        Ok((number64(area, "offset")?, number64(area, "size")?))
    })
}

fn check_areas(mut areas: Vec<((u64, u64), String)>, room: Range<u64>) -> Found<()> {
    areas.sort();
    for ((offset, size), id) in &areas {
        let fits = offset.checked_add(*size).is_some_and(|end| end <= room.end);
        if *size == 0 || *offset < room.start || !fits {
            return Err(format!(
                "{id}: its area at {offset} of {size} bytes is not within {} to {}",
                room.start, room.end
            ));
        }
    }
    match areas.windows(2).find(|pair| pair[0].0.0 + pair[0].0.1 > pair[1].0.0) {
        Some(pair) => Err(format!("the areas of {} and {} overlap", pair[0].1, pair[1].1)),
        None => Ok(()),
    }
}

fn check_luks2(keyslot: &Object) -> Found<()> {
    let part =
        |name: &str| keyslot.get(name).and_then(Json::object).ok_or_else(|| format!("no object '{name}'"));
    let (kdf, af, area) = (part("kdf")?, part("af")?, part("area")?);
    within("kdf", || {
        let members: &[&str] = match string(kdf, "type")? {
            b"pbkdf2" => &["iterations"],
            b"argon2i" | b"argon2id" => &["time", "memory", "cpus"],
            _ => return Ok(()),
        };
        let mut len = 2 + members.len();
        members.iter().try_for_each(|name| integer(kdf, name))?;
        string(kdf, "salt")?;
        if members.len() == 1 {
            string(kdf, "hash")?;
            len += 1;
        }
        match kdf.len() == len {
            true => Ok(()),
            false => Err(format!("{} members, and there are {len}", kdf.len())),
        }
    })?;
    within("af", || {
        is_word(af, "type", &[b"luks1"])?;
        integer(af, "stripes")?;
        string(af, "hash").map(drop)
    })?;
    within("area", || {
        is_word(area, "type", &[b"raw"])?;
        string(area, "encryption")?;
        integer(area, "key_size")
    })
}

fn check_reencrypt(keyslot: &Object) -> Found<()> {
    if number32(keyslot, "key_size")? != 1 {
        return Err("a keyslot of a reencryption has no key".to_owned());
    }
    is_word(keyslot, "mode", &[b"reencrypt", b"encrypt", b"decrypt"])?;
    is_word(keyslot, "direction", &[b"forward", b"backward"])?;
    let area = keyslot.get("area").and_then(Json::object).ok_or("no area")?;
    let kind = string(area, "type")?;
    if matches!(kind, b"checksum" | b"datashift-checksum") {
        string(area, "hash")?;
        let sector_size = number32(area, "sector_size")?;
        if sector_size < 512 || !sector_size.is_power_of_two() {
            return Err(format!("sector_size {sector_size}"));
        }
    }
    if kind == b"datashift" {
        let shift_size = number64(area, "shift_size")?;
        if shift_size == 0 || !shift_size.is_multiple_of(512) {
            return Err(format!("shift_size {shift_size}"));
        }
    }
    Ok(())
}

/// Puts the place of a fault before its text.
fn within<T>(place: &str, check: impl FnOnce() -> Found<T>) -> Found<T> {
    check().map_err(|text| format!("{place}: {text}"))
}

fn object(value: &Json) -> Found<&Object> {
    value.object().ok_or_else(|| "not an object".to_owned())
}

/// The members of a section, whose names are numbers.
fn numbered<'a>(section: &'a Object, what: &str) -> Found<Vec<(String, &'a Json)>> {
    let one = |(name, value): (&[u8], &'a Json)| match name.iter().all(u8::is_ascii_digit) {
        true => Ok((format!("{what} {}", String::from_utf8_lossy(name)), value)),
        false => Err(format!("{what} '{}' is not a number", String::from_utf8_lossy(name))),
    };
    section.iter().map(one).collect()
}

/// A string that is not empty, and has no NUL.
fn string<'a>(object: &'a Object, name: &str) -> Found<&'a [u8]> {
    let bytes = object.get(name).and_then(Json::bytes);
    bytes
        .filter(|bytes| !bytes.is_empty() && !bytes.contains(&0))
        .ok_or_else(|| format!("no string '{name}'"))
}

/// A number of 64 bits, which is kept as the digits of a string.
fn number64(object: &Object, name: &str) -> Found<u64> {
    let digits = string(object, name)?;
    let number = str::from_utf8(digits).ok().filter(|_| digits.iter().all(u8::is_ascii_digit));
    number
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| format!("'{name}' is not a number of 64 bits"))
}

/// A number of any size: what it says is looked at when it is used.
fn integer(object: &Object, name: &str) -> Found<()> {
    match object.get(name) {
        Some(Json::Integer(_)) => Ok(()),
        _ => Err(format!("'{name}' is not an integer")),
    }
}

/// A string that must be one of some words.
fn is_word(object: &Object, name: &str, words: &[&[u8]]) -> Found<()> {
    match string(object, name)? {
        word if words.contains(&word) => Ok(()),
        word => Err(format!("{name} '{}'", String::from_utf8_lossy(word))),
    }
}

fn number32(object: &Object, name: &str) -> Found<u32> {
    object.get(name).and_then(Json::number).ok_or_else(|| format!("'{name}' is not a number of 32 bits"))
}

fn strings<'a>(value: &'a Json, name: &str) -> Found<Vec<&'a [u8]>> {
    let values = value.array().ok_or_else(|| format!("'{name}' is not an array"))?;
    let strings: Option<Vec<_>> = values.iter().map(Json::bytes).collect();
    strings.ok_or_else(|| format!("'{name}' has something else than strings"))
}

/// Checks an array of names of members of another section.
fn known(object: &Object, name: &str, section: &Object) -> Found<()> {
    let array = object.get(name).ok_or_else(|| format!("no '{name}'"))?;
    match strings(array, name)?.into_iter().find(|id| section.get(id).is_none()) {
        Some(id) => Err(format!("'{name}' has {}, which is not there", String::from_utf8_lossy(id))),
        None => Ok(()),
    }
}
