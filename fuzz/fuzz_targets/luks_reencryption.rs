#![no_main]
//! Volumes in the middle of a reencryption: read, and gone on with, without a panic, and without a change to the data.
//!
//! An input that begins with `{` is the text of metadata, which may say anything, a NUL, and the device's bytes behind the
//! header. Any other one is choices, from which a reencryption of any kind is begun and brought to any state, and then the
//! device's bytes. A volume key that the fuzzer knows stands for passphrases; digests are put right.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use casemate::blockdev::{BlockDevice, Events, MemoryDevice};
use casemate::luks::luks2::reencrypt::{Backups, Direction, Mode, Part, Reencryption, Resilience, State};
use casemate::luks::luks2::{Header, Metadata, Segment, SegmentSize, encode};
use casemate::luks::{Header as Any, LuksKey, LuksOptions, ReencryptOptions, Volume};
use casemate::{Cpu, Image, Providers, SecretVec, Work};
use casemate_luks::json::{Json, Object};
use casemate_providers::{KdfLimits, pbkdf2};

const HDR_SIZE: u64 = 16384;
const KEY: [u8; 64] = {
    let mut key = [3; 64];
    key[0] = 1;
    key
};

fn member<'a>(object: &'a mut Object, name: &str) -> Option<&'a mut Object> {
    object.get_mut(name)?.object_mut()
}

/// Makes a digest right, if it can be.
fn put_right(object: &mut Object, id: &str, secret: &[u8]) -> Option<()> {
    let digest = member(object, "digests")?.get_mut(id)?.object_mut()?;
    let hash = Providers::default().hash("sha256").ok()?;
    let made = pbkdf2(hash, secret, &[1; 32], 1, 32, &KdfLimits::default()).ok()?;
    for (name, value) in
        [("type", Json::from("pbkdf2")), ("hash", Json::from("sha256")), ("iterations", Json::from(1))]
    {
        digest.set(name, value);
    }
    digest.set("salt", encode(&[1; 32], Cpu::detect()).into());
    digest.set("digest", encode(made.expose(), Cpu::detect()).into());
    Some(())
}

/// A volume, its header if that lies apart, and its key.
struct Made {
    data: Vec<u8>,
    header: Option<Vec<u8>>,
    key: SecretVec,
}

/// The volume of metadata that are text.
fn of_text(bytes: &[u8]) -> Option<Made> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    let (text, data) = (&bytes[..end], &bytes[end + 1..]);
    let mut area = [text, &[0]].concat();
    area.resize((HDR_SIZE as usize - 4096).max(area.len()), 0);
    let mut metadata = Metadata::from_bytes(&area, HDR_SIZE).ok()?;
    let course = metadata.reencryption().ok()??;
    let len = metadata
        .keyslots()
        .iter()
        .map(|slot| slot.key_size as usize)
        .find(|len| (1..=KEY.len()).contains(len))
        .unwrap_or(KEY.len());
    let key = SecretVec::from(&KEY[..len]);
    let mut object = metadata.object().clone();
    for digest in course.digests.into_iter().flatten() {
        put_right(&mut object, &digest.to_string(), key.expose());
    }
    let message = course.message(course.digests[0].map(|_| &key), course.digests[1].map(|_| &key));
    let own = metadata.digests().into_iter().find(|digest| digest.keyslots.contains(&course.keyslot))?;
    put_right(&mut object, &own.id.to_string(), message.expose());
    metadata = Metadata::new(object, HDR_SIZE).ok()?;
    let mut disk = vec![0; 2 * HDR_SIZE as usize];
    disk.extend_from_slice(data);
    Some(Made { data: with_header(disk, metadata)?, header: None, key })
}

/// The bytes with a header at their beginning.
fn with_header(bytes: Vec<u8>, metadata: Metadata) -> Option<Vec<u8>> {
    let device = MemoryDevice::new(bytes);
    let mut header = Header::new("fc88ce7a-e42f-4827-d46f-604faf9dccfb".to_owned(), metadata);
    header.write(&device, &Providers::default(), &mut |_| Ok(())).ok()?;
    Some(device.into_bytes())
}

/// Choices of the fuzzer, one after the other; zeros when there are no more.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn below(&mut self, end: u64) -> u64 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        u64::from(*first) % end
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize].clone()
    }
}

const BLOCK: u64 = 4096;

/// The first byte of the data, behind slots and the reencryption's area.
const DATA: u64 = 2 * HDR_SIZE + 8 * BLOCK;

/// A digest of a secret, for key slots and segments.
fn digest(secret: &[u8], slot: u32, segments: Vec<Json>) -> Option<Object> {
    let mut all = Object::default().with("digests", Object::default().with("0", Object::default()));
    put_right(&mut all, "0", secret)?;
    let digest = member(&mut all, "digests")?.get("0")?.object()?.clone();
    Some(digest.with("keyslots", vec![Json::from(slot.to_string())]).with("segments", segments))
}

/// Metadata before a reencryption, with slots that nothing opens.
fn base(previous: &Segment, digests: [Option<u32>; 2], key: &[u8]) -> Option<Metadata> {
    let salt = encode(&[1; 32], Cpu::detect());
    let slot = |at: u64| {
        Object::default()
            .with("type", "luks2")
            .with("key_size", 32)
            .with("af", Object::default().with("type", "luks1").with("stripes", 4000).with("hash", "sha256"))
            .with(
                "area",
                Object::default()
                    .with("type", "raw")
                    .with("offset", at.to_string())
                    .with("size", BLOCK.to_string())
                    .with("encryption", "aes-xts-plain64")
                    .with("key_size", 32),
            )
            .with(
                "kdf",
                Object::default()
                    .with("type", "pbkdf2")
                    .with("hash", "sha256")
                    .with("iterations", 1000)
                    .with("salt", salt.clone()),
            )
            .into()
    };
    let (mut slots, mut sums) = (Object::default(), Object::default());
    for (id, at) in [2 * HDR_SIZE, 2 * HDR_SIZE + BLOCK].into_iter().enumerate() {
        if digests[id].is_some() {
            slots.set(id.to_string(), slot(at));
            let segments = if id == 0 { vec![Json::from("0")] } else { Vec::new() };
            sums.set(id.to_string(), digest(key, id as u32, segments)?.into());
        }
    }
    let mut segment = Object::default()
        .with("type", &*previous.kind)
        .with("offset", previous.offset.to_string())
        .with("size", "dynamic");
    if previous.kind == "crypt" {
        segment = segment
            .with("iv_tweak", "0")
            .with("encryption", &*previous.encryption)
            .with("sector_size", previous.sector_size);
    }
    let config = Object::default()
        .with("json_size", (HDR_SIZE - 4096).to_string())
        .with("keyslots_size", (8 * BLOCK).to_string());
    let object = Object::default()
        .with("keyslots", slots)
        .with("tokens", Object::default())
        .with("segments", Object::default().with("0", segment))
        .with("digests", sums)
        .with("config", config);
    Metadata::new(object, HDR_SIZE).ok()
}

/// The volume of a reencryption that is begun and brought to a state.
fn of_choices(bytes: &[u8]) -> Option<Made> {
    let mut choices = Choices(bytes);
    let key = SecretVec::from(&KEY[..32]);
    let mode = choices.of(&[Mode::Reencrypt, Mode::Encrypt, Mode::Decrypt]);
    let direction = choices.of(&[Direction::Forward, Direction::Backward]);
    let is_apart = choices.below(2) == 1;
    let start = if is_apart { choices.below(4) * 512 } else { DATA };
    let shift = choices.below(4) * choices.of(&[512, BLOCK]);
    let mut segment = |is_plain: bool, offset: u64| Segment {
        id: 0,
        kind: if is_plain { "linear" } else { "crypt" }.to_owned(),
        offset,
        size: SegmentSize::Dynamic,
        iv_tweak: 0,
        encryption: match is_plain {
            true => String::new(),
            false => choices
                .of(&["aes-xts-plain64", "aes-cbc-essiv:sha256", "aes-cbc-plain", "aes-ecb"])
                .to_owned(),
        },
        sector_size: 512 << choices.below(4),
        integrity: None,
        flags: Vec::new(),
    };
    let [to_start, to_end] = match direction {
        Direction::Forward => [shift, 0],
        Direction::Backward => [0, shift],
    };
    let previous = segment(mode == Mode::Encrypt, start + to_start);
    let last = segment(mode == Mode::Decrypt, start + to_end);
    let len = (1 + choices.below(16)) * choices.of(&[512, BLOCK]);
    let moved = (choices.below(3) == 0).then(|| Segment {
        offset: choices.of(&[0, start, start + len]),
        size: SegmentSize::Fixed((1 + choices.below(4)) * choices.of(&[512, BLOCK])),
        ..previous.clone()
    });
    let resilience = match choices.below(3) {
        0 => Resilience::None,
        1 => Resilience::Journal,
        _ => Resilience::Checksum {
            hash: choices.of(&["sha256", "sha1"]).to_owned(),
            block: 512 << choices.below(5),
        },
    };
    let area = DATA - 6 * BLOCK;
    let area = area..area + (1 + choices.below(6)) * BLOCK;
    let digests = [(mode != Mode::Encrypt).then_some(0), (mode != Mode::Decrypt).then_some(1)];
    let room = moved.as_ref().map_or(0, |moved| moved.offset) + start + shift + len;
    let size = room.min(start + shift + len + 4 * BLOCK);
    // What is not a multiple of the largest sector can't be opened when all is done.
    if !(size - last.offset.min(size)).is_multiple_of(BLOCK) {
        return None;
    }
    let metadata = base(&previous, digests, key.expose())?;
    let backups = Backups { previous, last, moved };
    let course =
        Reencryption::new(mode, direction, resilience.clone(), (2, area.clone()), backups, digests).ok()?;
    let len = course.len(size).ok()?;
    let message = course.message(digests[0].map(|_| &key), digests[1].map(|_| &key));
    let own = digest(message.expose(), course.keyslot, Vec::new())?;
    let begun = course.begun(&metadata, &own, len).ok()?;
    assert!(begun.reencryption().is_ok_and(|found| found.is_some()), "what begins is a reencryption");
    let mut parts = Vec::new();
    let mut at = 0;
    while at < len && parts.len() < 5 {
        let state = choices.of(&[State::Old, State::New, State::Hot]);
        let end = match choices.below(8) {
            0 => len,
            count => (at + count * choices.of(&[512, BLOCK])).min(len),
        };
        parts.push(Part { state, range: at..end });
        at = end;
    }
    let metadata = course.with_parts(&begun, &parts, len).ok()?;
    let with_sums = choices.below(2) == 1;
    let rest = if choices.0.is_empty() { &[1, 2, 3] } else { choices.0 };
    let bytes = |len: u64| {
        rest.iter()
            .copied()
            .cycle()
            .enumerate()
            .map(|(k, byte)| byte.wrapping_add((k / 512) as u8))
            .take(len as usize)
    };
    let mut data: Vec<u8> = bytes(size).collect();
    let mut header: Vec<u8> = bytes(DATA).collect();
    // What is hot has the checksums of what is there: it is all old.
    if let (Resilience::Checksum { hash, block }, true) = (&resilience, with_sums)
        && let Some(hot) = parts.iter().find(|part| part.state == State::Hot)
    {
        let hash = Providers::default().hash(hash).ok()?;
        let place = course.new_place(hot.range.start) as usize;
        let hot = data.get(place..place + (hot.range.end - hot.range.start) as usize)?;
        let sums: Vec<u8> = hot.chunks(*block as usize).flat_map(|block| hash.digest(block)).collect();
        header.get_mut(area.start as usize..)?.get_mut(..sums.len())?.copy_from_slice(&sums);
    }
    match is_apart {
        true => Some(Made { data, header: Some(with_header(header, metadata)?), key }),
        false => {
            let front = data.get_mut(..DATA as usize)?;
            front.copy_from_slice(&header);
            Some(Made { data: with_header(data, metadata)?, header: None, key })
        }
    }
}

/// A listener that hears of data that are lost.
#[derive(Default)]
struct Listener(AtomicBool);

impl Events for Listener {
    fn note(&self, _: &str) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn all_of(device: &dyn BlockDevice) -> Option<Vec<u8>> {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(&mut bytes, 0).ok()?;
    Some(bytes)
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let made = match bytes.first() {
        Some(b'{') => of_text(bytes),
        _ => of_choices(bytes),
    };
    let Some(Made { data, header, key }) = made else { return };
    let (key, unlocking, listener) = (LuksKey::VolumeKey(key), LuksOptions::default(), Listener::default());
    let pool = casemate::blockdev::Pool::new(std::num::NonZeroUsize::new(1));
    let work = Work { pool, events: &listener, ..Work::default() };
    let device = Arc::new(MemoryDevice::new(data.clone()));
    let apart = header.clone().map(|header| Arc::new(MemoryDevice::new(header)));
    let image = || Image::over("image", device.clone());
    let apart_image = || apart.clone().map(|apart| Image::over("header", apart));
    let volume =
        || -> Option<Volume> { image().luks_volume(apart_image().as_ref(), &Providers::default()).ok() };
    let read = || {
        let opened = image().luks(apart_image().as_ref(), &key, &unlocking, &work).ok()?;
        all_of(&*opened.device())
    };
    let plain = read();
    assert!(all_of(&*device).as_ref() == Some(&data), "reading writes nothing");
    assert!(
        apart.as_ref().and_then(|apart| all_of(&**apart)) == header,
        "reading writes nothing to the header"
    );
    let Some(mut found) = volume() else { return };
    let mut options = ReencryptOptions::default();
    options.resume_only = true;
    options.hotzone_size = Some(BLOCK);
    let resumed = found.reencrypt(std::slice::from_ref(&key), &unlocking, &options, &work);
    let Ok(is_done) = resumed else { return };
    // What could be gone on with could be read before, and is the same after.
    let plain = plain.expect("it could be read");
    if !is_done || listener.0.load(Ordering::Relaxed) {
        return;
    }
    let done = volume().expect("it is a volume");
    let Any::Luks2(header) = done.header() else { panic!("of LUKS2") };
    let segment = header.metadata.segments().remove(0);
    let after = match &*segment.kind {
        "linear" => all_of(&*device).expect("memory")[segment.offset as usize..].to_vec(),
        _ => read().expect("it is whole"),
    };
    let len = after.len().min(plain.len());
    assert!(after[..len] == plain[..len], "the data are another's");
});
