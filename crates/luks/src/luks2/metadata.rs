//! The metadata of LUKS2: validated JSON, and what keyslots, segments, digests and tokens it has.
//!
//! The JSON is what is kept. Views are made of it when they are asked for, and changes go into it, so whatever somebody
//! else has put there stays.

use std::ops::Range;

use casemate_blockdev::{u32_of, u64_of};
use casemate_primitives::Cpu;
use casemate_primitives::base64::{Alphabet, Base64, Padding};
use casemate_providers::{Argon2, Argon2Variant};

use crate::json::{Json, Object};
use crate::{Error, Pbkdf, Result};

use super::validate::{KEYSLOTS, validate};

/// How many tokens there may be.
pub const TOKENS: u32 = 32;
/// How many digests there may be.
pub const DIGESTS: u32 = 8;

/// Validated metadata.
#[derive(Clone, Debug, PartialEq)]
pub struct Metadata(Object);

/// A key slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyslot {
    /// The slot's number.
    pub id: u32,
    /// `luks2`, `reencrypt` or something else.
    pub kind: String,
    /// Bytes of the key in the slot.
    pub key_size: u32,
    /// When the slot is tried.
    pub priority: Priority,
    /// The slot's area.
    pub area: Area,
    /// KDF that makes the area's key of a passphrase, of a slot of kind `luks2`.
    pub kdf: Option<Kdf>,
    /// The hash of the stripes, of a slot of kind `luks2`.
    pub af_hash: String,
    /// The number of stripes as it is written there; 4000 are used, whatever it says.
    pub af_stripes: u32,
}

/// When a key slot is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Before others.
    Prefer,
    /// In its turn.
    Normal,
    /// Only if it is named.
    Ignore,
}

/// Where the stripes of a key lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    /// `raw` for stripes.
    pub kind: String,
    /// The area's first byte.
    pub offset: u64,
    /// The area's size in bytes.
    pub size: u64,
    /// The specification of the area's cipher.
    pub encryption: String,
    /// Bytes of the cipher's key.
    pub key_size: u32,
}

/// KDF with its costs, and its salt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kdf {
    /// The KDF with its costs, or the name of one that is not known.
    pub pbkdf: std::result::Result<Pbkdf, String>,
    /// The salt in base64.
    pub salt: String,
}

/// Digest of a key, which tells the right key from wrong ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    /// The digest's number.
    pub id: u32,
    /// `pbkdf2` or something else.
    pub kind: String,
    /// The numbers of the slots that hold the key.
    pub keyslots: Vec<u32>,
    /// The numbers of the segments that the key is for.
    pub segments: Vec<u32>,
    /// The hash's name.
    pub hash: String,
    /// The number of iterations.
    pub iterations: u32,
    /// The salt in base64.
    pub salt: String,
    /// The digest in base64.
    pub digest: String,
}

/// A part of the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The segment's number.
    pub id: u32,
    /// `crypt`, `linear` or something else.
    pub kind: String,
    /// The segment's first byte on the device with the data.
    pub offset: u64,
    /// The segment's size.
    pub size: SegmentSize,
    /// The number of the first sector of 512 bytes, for IVs.
    pub iv_tweak: u64,
    /// The specification of the cipher.
    pub encryption: String,
    /// Bytes of an encryption sector.
    pub sector_size: u32,
    /// The kind of integrity protection, if there is any.
    pub integrity: Option<String>,
    /// The segment's flags.
    pub flags: Vec<String>,
}

/// The size of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentSize {
    /// To the device's end.
    Dynamic,
    /// So many bytes.
    Fixed(u64),
}

/// Note on how key slots are opened without typing a passphrase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The token's number.
    pub id: u32,
    /// The token's kind, such as `systemd-tpm2`.
    pub kind: String,
    /// The numbers of the slots that the token opens.
    pub keyslots: Vec<u32>,
}

fn codec(cpu: Cpu) -> Base64<'static> {
    Base64::new(cpu, &Alphabet::STANDARD, Padding::Padded)
}

/// Bytes in base64, as salts and digests are kept.
pub fn encode(bytes: &[u8], cpu: Cpu) -> String {
    codec(cpu).encode_to_string(bytes)
}

/// The bytes of a salt or digest.
///
/// # Errors
/// `Corrupt` for what is not base64.
pub fn decode(text: &str, what: &str, cpu: Cpu) -> Result<Vec<u8>> {
    codec(cpu).decode_to_vec(text.as_bytes()).map_err(|error| Error::corrupt(format!("{what}: {error}")))
}

fn text(object: &Object, name: &str) -> String {
    object
        .get(name)
        .and_then(Json::bytes)
        .map_or_else(String::new, |bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// A number; one that has no room in 32 bits is the largest that has, and too much for whatever it counts.
fn number(object: &Object, name: &str) -> u32 {
    match object.get(name) {
        Some(Json::Integer(number)) => u32::try_from(*number).unwrap_or(u32::MAX),
        _ => 0,
    }
}

fn number64(object: &Object, name: &str) -> u64 {
    object.get(name).and_then(Json::text).and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

fn ids(object: &Object, name: &str) -> Vec<u32> {
    let values = object.get(name).and_then(Json::array).unwrap_or_default();
    values.iter().filter_map(Json::text).filter_map(|id| id.parse().ok()).collect()
}

fn texts(values: Option<&Json>) -> Vec<String> {
    let values = values.and_then(Json::array).unwrap_or_default();
    let text = |value: &Json| value.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    values.iter().filter_map(text).collect()
}

impl Metadata {
    /// Reads the JSON area of a header of `hdr_size` bytes.
    ///
    /// # Errors
    /// `Corrupt` for what cryptsetup does not take.
    pub fn from_bytes(area: &[u8], hdr_size: u64) -> Result<Metadata> {
        let bad = |text: &str| Error::corrupt(format!("LUKS2 metadata: {text}"));
        if area.first() != Some(&b'{') {
            return Err(bad("not a JSON object"));
        }
        if !area.contains(&0) {
            return Err(bad("no NUL behind the JSON"));
        }
        let (json, end) = Json::parse(area).ok_or_else(|| {
            bad("the JSON is not well formed, or nested too deeply, or has more than 65536 values")
        })?;
        if area[end..].iter().any(|byte| *byte != 0) {
            return Err(bad("something lies behind the JSON"));
        }
        let Json::Object(mut object) = json else { return Err(bad("not a JSON object")) };
        let valid = validate(&object, end, hdr_size);
        if valid.is_err() && drop_foreign_kdf_members(&mut object) {
            validate(&object, end, hdr_size)?;
        } else {
            valid?;
        }
        Ok(Metadata(object))
    }

    /// Metadata that somebody has made or changed, read back from the text that will be written: a header that its reader
    /// refuses would lose the volume.
    ///
    /// # Errors
    /// `Corrupt` for what cryptsetup, or [`Metadata::from_bytes`], would not take; nothing of that kind should be written.
    pub fn new(object: Object, hdr_size: u64) -> Result<Metadata> {
        let mut text = Json::Object(object).to_plain();
        // A NUL ends the text.
        text.push(0);
        Metadata::from_bytes(&text, hdr_size)
    }

    /// The JSON.
    pub fn json(&self) -> Json {
        Json::Object(self.0.clone())
    }

    /// The JSON's members.
    pub fn object(&self) -> &Object {
        &self.0
    }

    /// The text as it is written.
    pub fn to_plain(&self) -> Vec<u8> {
        self.json().to_plain()
    }

    /// The objects of a section whose numbers are as they are usually written.
    fn objects(&self, section: &str, most: u32) -> impl Iterator<Item = (u32, &Object)> {
        let section = self.0.get(section).and_then(Json::object);
        (0..most).filter_map(move |id| Some((id, section?.get(id.to_string())?.object()?)))
    }

    /// The key slots, by number.
    pub fn keyslots(&self) -> Vec<Keyslot> {
        self.objects("keyslots", KEYSLOTS).map(|(id, object)| Keyslot::of(id, object)).collect()
    }

    /// The numbers of the key slots in the order in which the metadata have them.
    pub fn keyslot_order(&self) -> Vec<u32> {
        let section = self.0.get("keyslots").and_then(Json::object);
        let ids =
            section.into_iter().flat_map(Object::iter).filter_map(|(name, _)| str::from_utf8(name).ok());
        ids.filter_map(|name| name.parse().ok().filter(|id: &u32| id.to_string() == name && *id < KEYSLOTS))
            .collect()
    }

    /// The digests, by number.
    pub fn digests(&self) -> Vec<Digest> {
        let digest = |(id, object): (u32, &Object)| Digest {
            id,
            kind: text(object, "type"),
            keyslots: ids(object, "keyslots"),
            segments: ids(object, "segments"),
            hash: text(object, "hash"),
            iterations: number(object, "iterations"),
            salt: text(object, "salt"),
            digest: text(object, "digest"),
        };
        self.objects("digests", DIGESTS).map(digest).collect()
    }

    /// The digests of the keys that open the data. While the volume is reencrypted these are the keys of the data as they will
    /// be, or where those will have none, as they were.
    pub fn digests_of_data(&self) -> Vec<Digest> {
        let is_last = |segment: &Segment| segment.flags.iter().any(|flag| flag == "backup-final");
        let last = self.segments().into_iter().find(is_last).map(|segment| segment.id);
        let with = |is_it: &dyn Fn(&Digest) -> bool| -> Vec<Digest> {
            self.digests().into_iter().filter(|digest| is_it(digest)).collect()
        };
        match last.map(|last| with(&|digest| digest.segments.contains(&last))) {
            None => with(&|digest| digest.segments.contains(&0)),
            Some(none) if none.is_empty() => with(&|digest| !digest.segments.is_empty()),
            Some(found) => found,
        }
    }

    /// The segments, by number.
    pub fn segments(&self) -> Vec<Segment> {
        let count = self.0.get("segments").and_then(Json::object).map_or(0, Object::len);
        let segment = |(id, object): (u32, &Object)| Segment {
            id,
            kind: text(object, "type"),
            offset: number64(object, "offset"),
            size: match object.get("size").and_then(Json::bytes) {
                Some(b"dynamic") => SegmentSize::Dynamic,
                _ => SegmentSize::Fixed(number64(object, "size")),
            },
            iv_tweak: number64(object, "iv_tweak"),
            encryption: text(object, "encryption"),
            sector_size: number(object, "sector_size"),
            integrity: object.get("integrity").and_then(Json::object).map(|inner| text(inner, "type")),
            flags: texts(object.get("flags")),
        };
        self.objects("segments", u32_of(count)).map(segment).collect()
    }

    /// The tokens, by number.
    pub fn tokens(&self) -> Vec<Token> {
        let token = |(id, object): (u32, &Object)| Token {
            id,
            kind: text(object, "type"),
            keyslots: ids(object, "keyslots"),
        };
        self.objects("tokens", TOKENS).map(token).collect()
    }

    /// The JSON of a token.
    pub fn token(&self, id: u32) -> Option<&Object> {
        self.0.get("tokens")?.object()?.get(id.to_string())?.object()
    }

    /// Whether a token has a number that is too high, on which cryptsetup itself ends.
    pub fn has_token_out_of_range(&self) -> bool {
        let tokens = self.0.get("tokens").and_then(Json::object);
        let mut names = tokens.into_iter().flat_map(Object::iter).map(|(name, _)| name);
        names.any(|name| {
            str::from_utf8(name).ok().and_then(|name| name.parse().ok()).is_none_or(|id: u32| id >= TOKENS)
        })
    }

    pub(super) fn config(&self) -> &Object {
        // OK to unwrap: validated.
        self.0.get("config").and_then(Json::object).unwrap()
    }

    /// Names of the features that a program must know in order to open the volume (`requirements.mandatory`).
    pub fn requirements(&self) -> Vec<String> {
        texts(
            self.config().get("requirements").and_then(Json::object).and_then(|inner| inner.get("mandatory")),
        )
    }

    /// The persistent flags of mappings.
    pub fn flags(&self) -> Vec<String> {
        texts(self.config().get("flags"))
    }

    /// Bytes of the area of key slots, behind both copies of the header.
    pub fn keyslots_size(&self) -> u64 {
        number64(self.config(), "keyslots_size")
    }

    /// Bytes of a copy of the header.
    pub fn hdr_size(&self) -> u64 {
        number64(self.config(), "json_size") + u64_of(super::BINARY_LEN)
    }

    /// The bytes that key slots lie in.
    pub fn keyslots_area(&self) -> Range<u64> {
        let start = 2 * self.hdr_size();
        start..start + self.keyslots_size()
    }
}

impl Keyslot {
    fn of(id: u32, object: &Object) -> Keyslot {
        let part = |name: &str| object.get(name).and_then(Json::object).cloned().unwrap_or_default();
        let (area, kdf, af) = (part("area"), part("kdf"), part("af"));
        let kind = text(object, "type");
        Keyslot {
            id,
            key_size: number(object, "key_size"),
            priority: match object.get("priority") {
                Some(Json::Integer(0)) => Priority::Ignore,
                Some(Json::Integer(2)) => Priority::Prefer,
                _ => Priority::Normal,
            },
            area: Area {
                kind: text(&area, "type"),
                offset: number64(&area, "offset"),
                size: number64(&area, "size"),
                encryption: text(&area, "encryption"),
                key_size: number(&area, "key_size"),
            },
            kdf: (kind == "luks2").then(|| Kdf::of(&kdf)),
            af_hash: text(&af, "hash"),
            af_stripes: number(&af, "stripes"),
            kind,
        }
    }
}

impl Keyslot {
    /// The KDF with its costs.
    ///
    /// # Errors
    /// `Unsupported` for another kind of slot, and for a KDF that is not known.
    pub fn pbkdf(&self) -> Result<&Pbkdf> {
        match &self.kdf {
            Some(Kdf { pbkdf: Ok(pbkdf), .. }) => Ok(pbkdf),
            Some(Kdf { pbkdf: Err(name), .. }) => Err(Error::unsupported(format!("its KDF is {name}"))),
            None => Err(Error::unsupported(format!("it is of type '{}'", self.kind))),
        }
    }
}

impl Kdf {
    fn of(object: &Object) -> Kdf {
        let argon2 = |variant| {
            let (passes, memory) = (number(object, "time"), number(object, "memory"));
            Pbkdf::Argon2(Argon2 { variant, passes, memory, lanes: number(object, "cpus") })
        };
        let pbkdf = match &*text(object, "type") {
            "pbkdf2" => {
                Ok(Pbkdf::Pbkdf2 { hash: text(object, "hash"), iterations: number(object, "iterations") })
            }
            "argon2i" => Ok(argon2(Argon2Variant::I)),
            "argon2id" => Ok(argon2(Argon2Variant::Id)),
            other => Err(other.to_owned()),
        };
        Kdf { pbkdf, salt: text(object, "salt") }
    }
}

/// Old versions left members of another KDF behind: without these such metadata may be valid. Says whether there were any.
fn drop_foreign_kdf_members(metadata: &mut Object) -> bool {
    let Some(keyslots) = metadata.get_mut("keyslots").and_then(Json::object_mut) else { return false };
    let mut dropped = false;
    for (_, keyslot) in keyslots.iter_mut() {
        let Some(kdf) = keyslot.object_mut().and_then(|slot| slot.get_mut("kdf")?.object_mut()) else {
            continue;
        };
        let own: &[&[u8]] = match kdf.get("type").and_then(Json::bytes) {
            Some(b"pbkdf2") => &[b"type", b"salt", b"hash", b"iterations"],
            Some(b"argon2i" | b"argon2id") => &[b"type", b"salt", b"time", b"memory", b"cpus"],
            _ => continue,
        };
        let before = kdf.len();
        kdf.retain(|name, _| own.contains(&name));
        dropped |= kdf.len() < before;
    }
    dropped
}
