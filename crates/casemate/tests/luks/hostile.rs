//! Headers and superblocks that somebody without the key has written: no plaintext comes out of them, and nothing is believed.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use casemate::blockdev::{Error as DeviceError, Events, MemoryDevice};
use casemate::luks::{LuksFormatOptions, LuksKey, LuksOptions, ReencryptOptions};
use casemate::target::{Made, Target, overwrite};
use casemate::{Error, ErrorKind, Image, KdfLimits, Providers, SecretVec, Work};
use casemate_testkit::Rng;
use serde_json::{Value, json};

use crate::images::{image, passphrase};
use crate::reencrypt::medium::bytes_of;
use crate::reencrypt::{cheap, volume};
use crate::verdicts::with_area;

/// Bytes of a copy of the header.
const HDR_SIZE: usize = 16 << 10;
const SECTOR: usize = 512;

/// A volume with the passphrase "pass".
struct Sample {
    name: &'static str,
    data: Vec<u8>,
    header: Option<Vec<u8>>,
    plain: Vec<u8>,
    /// Whether the data have tags.
    is_protected: bool,
    /// Whether a part of the data is not encrypted: which part, nothing proves.
    is_part_plain: bool,
}

/// A listener that stops work after its first step.
struct Stop;

impl Events for Stop {
    fn advance(&self, _: u64) -> Result<(), DeviceError> {
        Err(io::Error::from(io::ErrorKind::Interrupted).into())
    }
}

fn options() -> LuksOptions {
    let mut options = LuksOptions::default();
    options.limits = KdfLimits { memory: 1 << 10, work: 1 << 12, iterations: 20_000 };
    options
}

/// Readable sectors: the place of each, and its plaintext.
fn read(sample: &Sample, key: &LuksKey) -> Result<Vec<(usize, Vec<u8>)>, Error> {
    let header = sample.header.clone().map(image);
    let opened = image(sample.data.clone()).luks(header.as_ref(), key, &options(), &Work::default())?;
    let mut found = Vec::new();
    for at in (0..opened.device().size().min(96 << 10) as usize).step_by(SECTOR) {
        let mut sector = vec![0; SECTOR.min(opened.device().size() as usize - at)];
        if opened.device().read_at(&mut sector, at as u64).is_ok() {
            found.push((at, sector));
        }
    }
    Ok(found)
}

impl Sample {
    fn plain_one(name: &'static str, cipher: &str) -> Sample {
        let (data, plain) = volume(512, cipher, 180_224, 64 << 10);
        Sample { name, data, header: None, plain, is_protected: false, is_part_plain: false }
    }

    fn protected(name: &'static str, cipher: &str, bits: usize, integrity: &str) -> Sample {
        let mut format = LuksFormatOptions::default();
        (format.cipher, format.key_bits, format.integrity) =
            (cipher.to_owned(), Some(bits), Some(integrity.to_owned()));
        (format.offset, format.pbkdf) = (Some(512 << 10), Some(cheap()));
        let plain = Rng::new(bits as u64).bytes(40 << 10);
        let target = Arc::new(MemoryDevice::new(vec![0; 2 << 20]));
        let made = format.prepare(&SecretVec::from(&b"pass"[..]), &Work::default()).unwrap();
        let place = Target::on(Image::over("image", target.clone()), Made::Data, &overwrite).unwrap();
        made.protect_stream(&mut &plain[..], &place, None, &Work::default()).unwrap();
        let data = bytes_of(&target);
        Sample { name, data, header: None, plain, is_protected: true, is_part_plain: false }
    }

    /// A volume whose reencryption was stopped in the middle.
    fn in_the_middle(name: &'static str) -> Sample {
        let mut sample = Sample::plain_one(name, "aes-cbc-essiv:sha256");
        let data = Arc::new(MemoryDevice::new(sample.data.clone()));
        let mut options = ReencryptOptions::default();
        options.hotzone_size = Some(16384);
        let work = Work { events: &Stop, ..Work::default() };
        let (on, pass) = (Image::over("image", data.clone()), SecretVec::from(&b"pass"[..]));
        let stopped = match name {
            "reencryption" => on.luks_volume(None, &Providers::default()).unwrap().reencrypt(
                &[passphrase(b"pass")],
                &LuksOptions::default(),
                &options,
                &work,
            ),
            "decryption" => {
                let header = Arc::new(MemoryDevice::new(vec![0; 180_224]));
                let export = Image::over("header", header.clone());
                let volume = on.luks_volume(None, &Providers::default()).unwrap();
                let key = passphrase(b"pass");
                let done = volume.decrypt(&key, Some(&export), &LuksOptions::default(), &options, &work);
                sample.header = Some(bytes_of(&header));
                sample.is_part_plain = true;
                done
            }
            _ => {
                let (bare, header) = (
                    Arc::new(MemoryDevice::new(sample.plain.clone())),
                    Arc::new(MemoryDevice::new(vec![0; 256 << 10])),
                );
                let mut format = LuksFormatOptions::default();
                (format.cipher, format.key_bits, format.pbkdf) =
                    ("aes-cbc-essiv:sha256".to_owned(), Some(128), Some(cheap()));
                format.offset = Some(256 << 10);
                let apart = Image::over("header", header.clone());
                let done = Image::over("image", bare.clone()).luks_encrypt(
                    Some(&apart),
                    &pass,
                    &format,
                    &options,
                    &work,
                );
                (sample.data, sample.header) = (bytes_of(&bare), Some(bytes_of(&header)));
                sample.is_part_plain = true;
                assert_eq!(done.unwrap_err().kind(), ErrorKind::Interrupted, "{name}");
                return sample;
            }
        };
        assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Interrupted, "{name}");
        sample.data = bytes_of(&data);
        sample
    }

    fn metadata(&self) -> Value {
        let header = self.header.as_ref().unwrap_or(&self.data);
        let area = &header[4096..HDR_SIZE];
        let end = area.iter().position(|byte| *byte == 0).unwrap();
        serde_json::from_slice(&area[..end]).unwrap()
    }

    /// Volume with other metadata, and right checksums.
    fn with_metadata(&self, metadata: &Value) -> Sample {
        let area = serde_json::to_vec(metadata).unwrap();
        let (mut data, mut header) = (self.data.clone(), self.header.clone());
        match &mut header {
            Some(header) => *header = with_area(header, &area),
            None => data = with_area(&data, &area),
        }
        let plain = self.plain.clone();
        Sample { data, header, plain, ..*self }
    }

    /// Looks at all that can be read: with a wrong key nothing, with the right one the data, or what a cipher makes of other
    /// bytes, but never bytes as they lie there. `may_garble` says that a cipher's place or kind was changed.
    fn check(&self, lying: &HashSet<&[u8]>, may_garble: bool, what: &str) -> bool {
        let name = self.name;
        if let Ok(found) = read(self, &passphrase(b"wrong")) {
            assert!(found.is_empty(), "{name}: {what}: a wrong passphrase reads");
        }
        let Ok(found) = read(self, &passphrase(b"pass")) else { return false };
        for (at, sector) in &found {
            let expected = match self.plain.get(*at..at + SECTOR) {
                Some(plain) => *sector == plain,
                None => sector.iter().all(|byte| *byte == 0),
            };
            let is_garbled = (may_garble || !self.is_protected) && !lying.contains(&sector[..]);
            assert!(expected || is_garbled || self.is_part_plain, "{name}: {what}: other data at {at}");
        }
        !found.is_empty()
    }
}

fn samples() -> Vec<Sample> {
    vec![
        Sample::plain_one("xts", "aes-xts-plain64"),
        Sample::protected("hmac", "aes-xts-plain64", 256, "hmac-sha256"),
        Sample::protected("aead", "aes-gcm-random", 128, "aead"),
        Sample::in_the_middle("reencryption"),
        Sample::in_the_middle("decryption"),
        Sample::in_the_middle("encryption"),
    ]
}

/// The places of all values.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    let mut inner = |name: &str, value: &Value| {
        let at = format!("{at}/{name}");
        found.push(at.clone());
        places(value, &at, found);
    };
    match value {
        Value::Object(members) => members.iter().for_each(|(name, value)| inner(name, value)),
        Value::Array(values) => {
            values.iter().enumerate().for_each(|(k, value)| inner(&k.to_string(), value));
        }
        _ => {}
    }
}

/// Takes a value away.
fn remove(metadata: &mut Value, place: &str) {
    let (parent, name) = place.rsplit_once('/').unwrap();
    match metadata.pointer_mut(parent).unwrap() {
        Value::Object(members) => drop(members.remove(name)),
        Value::Array(values) => drop(values.remove(name.parse().unwrap())),
        _ => unreachable!(),
    }
}

#[test]
fn forged_headers_show_nothing_to_strangers() {
    let values = [
        json!(""),
        json!("0"),
        json!("1"),
        json!("dynamic"),
        json!("4096"),
        json!("18446744073709551104"),
        json!("linear"),
        json!("crypt"),
        json!("none"),
        json!("sha1"),
        json!("decrypt"),
        json!("reencrypt"),
        json!("cipher_null-ecb"),
        json!("aes-ecb"),
        json!("aes-xts-plain64"),
        json!("hmac(sha1)"),
        json!(0),
        json!(1),
        json!(16),
        json!(4_294_967_295u32),
        json!([]),
        json!(["0"]),
        json!(["1"]),
        json!(["backup-final"]),
        json!(["in-reencryption"]),
        json!({}),
        json!({ "mandatory": ["online-reencrypt-v2"] }),
        json!(null),
    ];
    let mut rng = Rng::new(53);
    for sample in samples() {
        let lying: HashSet<&[u8]> = sample.data.chunks_exact(SECTOR).collect();
        assert!(sample.check(&lying, false, "as it is"), "{}", sample.name);
        let metadata = sample.metadata();
        let mut all = Vec::new();
        places(&metadata, "", &mut all);
        let (mut forged, mut readable) = (0, 0);
        for place in &all {
            let may_garble = place.starts_with("/segments");
            let mut changed = metadata.clone();
            remove(&mut changed, place);
            let mut changes = vec![(changed, "is gone".to_owned())];
            // Mostly of the same kind: others are refused soon.
            let is_alike = |value: &&Value| {
                std::mem::discriminant(*value) == std::mem::discriminant(metadata.pointer(place).unwrap())
            };
            let alike: Vec<&Value> = values.iter().filter(is_alike).collect();
            let any = |from: &[&Value], rng: &mut Rng| from[rng.below(from.len() as u64) as usize].clone();
            let mut chosen = vec![any(&values.iter().collect::<Vec<_>>(), &mut rng)];
            // What decides what is done with the data is tried with everything.
            match ["/encryption", "/type", "/mode", "/segments", "/flags"]
                .iter()
                .any(|end| place.ends_with(end))
            {
                true => chosen.extend(alike.iter().copied().cloned()),
                false => chosen.extend((0..4).map(|_| any(&alike, &mut rng))),
            }
            for value in chosen {
                let mut changed = metadata.clone();
                *changed.pointer_mut(place).unwrap() = value.clone();
                changes.push((changed, format!("is {value}")));
            }
            for (changed, how) in changes {
                let read =
                    sample.with_metadata(&changed).check(&lying, may_garble, &format!("{place} {how}"));
                (forged, readable) = (forged + 1, readable + u32::from(read));
            }
        }
        println!("{}: {forged} headers, {readable} of which are read", sample.name);
        assert!(forged > 100 && readable > 0, "{}: {forged} {readable}", sample.name);
    }
}

/// Where there are tags, no superblock says that one need not fit.
#[test]
fn forged_superblocks_excuse_no_tag() {
    for sample in [
        Sample::protected("hmac", "aes-xts-plain64", 256, "hmac-sha256"),
        Sample::protected("aead", "aes-gcm-random", 128, "aead"),
    ] {
        let at = 512 << 10;
        let superblock = image(sample.data[at..].to_vec()).integrity_superblock().unwrap();
        let first = at + superblock.layout(false).unwrap().data(0) as usize;
        let lying = HashSet::new();
        let mut readable = 0;
        for byte in 8..40 {
            for value in [0, 2, 4, 6, 0x18, 0xff] {
                let mut data = sample.data.clone();
                data[at + byte] = value;
                if byte != 8 {
                    data[at + 8] = 5;
                }
                if value & 4 > 0 {
                    // The bitmap, if it is believed.
                    data[at + 4096..at + 4096 + 512].fill(0xff);
                }
                data[first] ^= 1;
                let plain = sample.plain.clone();
                let forged = Sample { data, header: None, plain, ..sample };
                readable += u32::from(forged.check(&lying, false, &format!("byte {byte} is {value}")));
            }
        }
        assert!(readable > 0, "{}", sample.name);
    }
}

/// The header of a volume whose decryption is done by what it says: nothing that is there proves it.
#[test]
fn a_decryption_that_is_done_is_believed_with_the_key_alone() {
    let sample = Sample::plain_one("forged", "aes-xts-plain64");
    let mut metadata = sample.metadata();
    let area = json!({ "type": "none", "offset": "176128", "size": "4096" });
    metadata["keyslots"]["1"] = json!({
        "type": "reencrypt", "key_size": 1, "mode": "decrypt", "direction": "forward", "priority": 0, "area": area,
    });
    let mut previous = metadata["segments"]["0"].clone();
    previous["flags"] = json!(["backup-previous"]);
    let linear = json!({ "type": "linear", "offset": "180224", "size": "dynamic" });
    let mut last = linear.clone();
    last["flags"] = json!(["backup-final"]);
    metadata["segments"] = json!({ "0": linear, "1": previous, "2": last });
    metadata["digests"]["0"]["segments"] = json!(["1"]);
    metadata["config"]["requirements"] = json!({ "mandatory": ["online-reencrypt-v2"] });
    let forged = sample.with_metadata(&metadata);
    let open = |key: &[u8]| {
        let image = image(forged.data.clone());
        let volume = image.luks_volume(None, &Providers::default()).unwrap();
        assert!(volume.says_decrypted());
        let (key, options, work) = (passphrase(key), LuksOptions::default(), Work::default());
        let ways = [
            volume.clone().open(&key, &options, &work).map(drop),
            volume.clone().open_reencrypting(&key, &options, None, &work).map(drop),
            volume
                .clone()
                .reencrypt(std::slice::from_ref(&key), &options, &ReencryptOptions::default(), &work)
                .map(drop),
            volume.extract_stream(&key, ("out", &mut Vec::new()), &options, &work),
        ];
        let mut left = vec![0; forged.data.len()];
        image.device().read_at(&mut left, 0).unwrap();
        assert!(left == forged.data, "nothing is written");
        ways
    };
    for way in open(b"wrong") {
        let error = way.unwrap_err();
        assert!(
            error.kind() == ErrorKind::Mismatch && error.text().contains("nothing proves that"),
            "{error}"
        );
    }
    // The key is right, and its owner has not written this.
    for way in open(b"pass") {
        let error = way.unwrap_err();
        assert!(error.kind() == ErrorKind::Corrupt, "{error}");
    }
}

/// Slots and digests together cost no more than one limit, and what is too much costs nothing.
#[test]
fn all_that_an_opening_costs_is_bounded() {
    let sample = Sample::plain_one("costs", "aes-cbc-essiv:sha256");
    let open = |metadata: &Value, iterations: u64| {
        let forged = sample.with_metadata(metadata);
        let mut options = LuksOptions::default();
        options.limits.iterations = iterations;
        let opened = image(forged.data).luks(None, &passphrase(b"pass"), &options, &Work::default());
        opened.map(drop).map_err(|error| (error.kind(), error.text().into_owned()))
    };
    let mut metadata = sample.metadata();
    // A slot and its digest, each of 1000 iterations.
    assert_eq!(open(&metadata, 2000), Ok(()));
    let (kind, text) = open(&metadata, 1999).unwrap_err();
    assert!(kind == ErrorKind::Unsupported && text.contains("it demands 2000 iterations"), "{text}");
    // A digest that costs all.
    metadata["digests"]["0"]["iterations"] = json!(1 << 30);
    let (kind, text) = open(&metadata, 1 << 30).unwrap_err();
    assert!(kind == ErrorKind::Unsupported && text.contains("key slot 0 was not tried"), "{text}");
    // A slot of another passphrase before it uses up what there is.
    let mut metadata = sample.metadata();
    metadata["keyslots"]["1"] = metadata["keyslots"]["0"].clone();
    metadata["keyslots"]["1"]["priority"] = json!(2);
    metadata["keyslots"]["1"]["area"]["offset"] = json!("98304");
    metadata["digests"]["0"]["keyslots"] = json!(["0", "1"]);
    assert_eq!(open(&metadata, 4000), Ok(()));
    let (kind, text) = open(&metadata, 3999).unwrap_err();
    let why =
        "key slot 1 does not open with this passphrase; key slot 0 was not tried: it demands 2000 iterations";
    assert!(kind == ErrorKind::Unsupported && text.starts_with(why), "{text}");
    assert!(text.contains("2000 of which are spent"), "{text}");
}
