//! Headers that cryptsetup takes and refuses, with its verdicts, and headers with mutated bytes.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use casemate_blockdev::{Advice, BlockDevice, MemoryDevice};
use casemate_luks::json::Json;
use casemate_luks::luks2::{BINARY_LEN, BinaryHeader, CopyState, Metadata, Place};
use casemate_luks::{
    Error, ErrorKind, Header, LuksFormatOptions, LuksKey, LuksOptions, Pbkdf, ReencryptOptions, Result, Used,
    Volume, encrypt_in_place, luks1, luks2,
};
use casemate_primitives::hex;
use casemate_primitives::secret::SecretVec;
use casemate_providers::{Providers, Work};
use casemate_testkit::{Medium, Rng, cut_states, fixture, run_any, slow_tests, stderr, tempdir, tool};

const HDR_SIZE: u64 = 16384;

/// Metadata areas with the verdicts of cryptsetup 2.6.1 and 2.8.8, which are the same.
fn verdicts() -> Vec<(String, Vec<u8>, bool)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/verdicts.json.xz");
    let list: serde_json::Value = serde_json::from_slice(&fixture(path)).unwrap();
    let one = |case: &serde_json::Value| {
        let mut area = match case["json"].as_str() {
            Some(json) => json.as_bytes().to_vec(),
            None => hex::decode(case["area_hex"].as_str().unwrap()).unwrap(),
        };
        area.resize(HDR_SIZE as usize - BINARY_LEN, 0);
        (case["name"].as_str().unwrap().to_owned(), area, case["accepted"].as_bool().unwrap())
    };
    list.as_array().unwrap().iter().map(one).collect()
}

/// Metadata as cryptsetup makes them.
fn metadata() -> Metadata {
    Metadata::from_bytes(&verdicts()[0].1, HDR_SIZE).unwrap()
}

fn random(rng: &mut Rng) -> impl FnMut(&mut [u8]) -> Result<()> + '_ {
    |bytes| {
        bytes.copy_from_slice(&rng.bytes(bytes.len()));
        Ok(())
    }
}

fn bytes_of(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(&mut bytes, 0).unwrap();
    bytes
}

/// A disk with both copies of a header.
fn disk() -> (MemoryDevice, luks2::Header) {
    let device = MemoryDevice::new(vec![0; 40000]);
    let mut header = luks2::Header::new("fc88ce7a-e42f-4827-d46f-604faf9dccfb".to_owned(), metadata());
    header.label = "a label".to_owned();
    header.write(&device, &Providers::default(), &mut random(&mut Rng::new(1))).unwrap();
    (device, header)
}

fn read(bytes: &[u8]) -> Result<Header> {
    Header::read(&MemoryDevice::new(bytes.to_vec()), &Providers::default())
}

fn read2(bytes: &[u8]) -> luks2::Header {
    match read(bytes).unwrap() {
        Header::Luks2(header) => header,
        Header::Luks1(_) => panic!("LUKS1"),
    }
}

/// The end of a lone segment matters only when it is used; of several segments each has an end.
#[test]
fn a_lone_segment_is_as_long_as_a_number_can_be() {
    let (text, longest) = (metadata().to_plain(), (u64::MAX - 511).to_string());
    let text =
        String::from_utf8(text).unwrap().replace("\"size\":\"dynamic\"", &format!("\"size\":\"{longest}\""));
    let mut area = text.into_bytes();
    area.resize(HDR_SIZE as usize - BINARY_LEN, 0);
    let found = Metadata::from_bytes(&area, HDR_SIZE).unwrap();
    assert!(found.segments()[0].offset > 511, "the sum of both is not a number");
    assert_eq!(found.reencryption().unwrap().map(|_| ()), None);
}

#[test]
fn metadata_are_taken_or_refused_as_by_cryptsetup() {
    let verdicts = verdicts();
    assert!(verdicts.len() > 60);
    for (name, area, accepted) in verdicts {
        let found = Metadata::from_bytes(&area, HDR_SIZE);
        assert_eq!(found.is_ok(), accepted, "{name}: {found:?}");
    }
}

#[test]
fn foreign_members_and_their_order_stay() {
    for (name, area, accepted) in verdicts() {
        let text = area.split(|byte| *byte == 0).next().unwrap();
        // What json-c takes and does not write is written as json-c writes it.
        if accepted && !["single-quotes", "nan"].contains(&&*name) {
            let written = Metadata::from_bytes(&area, HDR_SIZE).unwrap().to_plain();
            assert_eq!(String::from_utf8_lossy(&written), String::from_utf8_lossy(text), "{name}");
        }
    }
}

#[test]
fn the_newer_copy_that_is_whole_is_taken() {
    let (device, mut header) = disk();
    let old = bytes_of(&device);
    header.label = "new".to_owned();
    header.write(&device, &Providers::default(), &mut random(&mut Rng::new(2))).unwrap();
    let new = bytes_of(&device);
    let at = HDR_SIZE as usize;
    let both = |one: &[u8], two: &[u8]| [&one[..at], &two[at..2 * at], &old[2 * at..]].concat();
    for (one, two, label, primary) in [
        (&new, &new, "new", true),
        (&new, &old, "new", true),
        (&old, &new, "new", false),
        (&old, &old, "a label", true),
    ] {
        let found = read2(&both(one, two));
        assert_eq!((&*found.label, found.is_primary()), (label, primary));
    }
    // A damaged copy is passed over, wherever it is damaged; where the first one says no size, the second is looked for.
    for place in [0, 7, 10, 20, 72, 300, 450, 3000, 4096, 16000] {
        let mut one = new.clone();
        one[place] ^= 1;
        let found = read2(&both(&one, &old));
        assert_eq!((&*found.label, found.is_primary()), ("a label", false), "byte {place}");
        assert!(matches!(found.copies(), [CopyState::Damaged(_), CopyState::Valid(1)]));
        let mut two = new.clone();
        two[at + place] ^= 1;
        assert_eq!(read2(&both(&old, &two)).label, "a label", "byte {place}");
        let error = read(&both(&one, &two)).unwrap_err();
        let unknown_version = place == 7;
        let kind = if unknown_version { ErrorKind::Unsupported } else { ErrorKind::Corrupt };
        assert_eq!(error.kind(), kind, "{error}");
    }
}

#[test]
fn a_copy_whose_metadata_are_refused_still_says_where_the_other_is() {
    let (device, header) = disk();
    let (_, area, _) = verdicts().into_iter().find(|(name, ..)| name == "no-segments").unwrap();
    let json = area.split(|byte| *byte == 0).next().unwrap();
    let binary = BinaryHeader {
        hdr_size: HDR_SIZE,
        seqid: 9,
        label: String::new(),
        checksum_alg: "sha512".to_owned(),
        salt: [0; 64],
        uuid: String::new(),
        subsystem: String::new(),
        hdr_offset: 0,
    };
    let mut bytes = bytes_of(&device);
    bytes[..HDR_SIZE as usize]
        .copy_from_slice(&binary.to_bytes(Place::Primary, json, &Providers::default()).unwrap());
    let found = read2(&bytes);
    assert_eq!(found.label, header.label);
    assert!(matches!(&found.copies()[0], CopyState::Obsolete(why) if why.contains("no object 'segments'")));
    let device = MemoryDevice::new(bytes);
    let mut found = found;
    assert!(found.repair(&device, &Providers::default(), &mut random(&mut Rng::new(3))).unwrap());
    let mended = read2(&bytes_of(&device));
    assert_eq!(mended.copies(), &[CopyState::Valid(1), CopyState::Valid(1)]);
    assert_eq!(mended.label, header.label);
}

/// A device that is cut off by a loss of power at each byte of each write.
#[test]
fn an_update_that_is_cut_leaves_the_old_header_or_the_new_one() {
    let (device, header) = disk();
    let old = bytes_of(&device);
    let at = HDR_SIZE as usize;
    let providers = Providers::default();
    for damage in [None, Some(100), Some(at + 100)] {
        let mut before = old.clone();
        if let Some(place) = damage {
            before[place] ^= 1;
        }
        let medium = Medium::new(before.clone());
        let mut changed = read2(&before);
        changed.label = "new".to_owned();
        changed.write(&*medium, &providers, &mut random(&mut Rng::new(4))).unwrap();
        let cuts = |len| vec![0, 1, 24, 512, 4095, 4096, 4200, 6000, len - 1, len];
        for torn in cut_states(&before, &medium.take_writes(), cuts) {
            let label = read2(&torn).label;
            assert!(label == header.label || label == "new", "{damage:?}: {label}");
        }
        let state = medium.bytes();
        assert_eq!((read2(&state).label, read2(&state).seqid), ("new".to_owned(), 2));
    }
}

/// An update that failed, and is tried again with the same header.
#[test]
fn a_failed_update_that_is_tried_again_leaves_a_whole_copy_at_any_moment() {
    let (device, _) = disk();
    let providers = Providers::default();
    for good in 0..4 {
        let medium = Medium::new(bytes_of(&device));
        let mut changed = read2(&medium.bytes());
        changed.label = "new".to_owned();
        let mut write = || changed.write(&*medium, &providers, &mut random(&mut Rng::new(4)));
        medium.fail_after(good % 2);
        write().unwrap_err();
        medium.fail_after(if good < 2 { u64::MAX } else { 0 });
        medium.take_writes();
        let before = medium.bytes();
        assert_eq!(write().is_ok(), good < 2);
        for torn in cut_states(&before, &medium.take_writes(), |len| vec![0, 512, 4200, len]) {
            read(&torn).unwrap_or_else(|error| panic!("{good} good writes before the failure: {error}"));
        }
    }
}

#[test]
fn mutated_headers_do_no_harm() {
    let mut rng = Rng::new(5);
    let (device, _) = disk();
    let mut luks1 = luks1::Header::new("aes", "cbc-plain", "sha1", 16).unwrap().to_bytes().to_vec();
    luks1.resize(1 << 20, 0);
    for round in 0..3000 {
        let mut bytes = if round % 4 == 0 { luks1.clone() } else { bytes_of(&device) };
        let area = if round % 4 == 0 { 600 } else { 6000 };
        for _ in 0..1 + rng.below(4) {
            let place = rng.below(area) as usize;
            bytes[place] = rng.below(256) as u8;
        }
        let _ = read(&bytes);
        // And past the checksum.
        let text = &mut bytes[BINARY_LEN..];
        let _ = Metadata::from_bytes(text, HDR_SIZE).map(|metadata| exercise(&metadata));
    }
}

/// Metadata in the middle of a reencryption, as cryptsetup writes them.
const REENCRYPTING: &str = r#"{"keyslots":{"0":{"type":"luks2","key_size":16,"af":{"type":"luks1","stripes":4000,"hash":"sha256"},"area":{"type":"raw","offset":"32768","size":"65536","encryption":"aes-cbc-essiv:sha256","key_size":16},"kdf":{"type":"pbkdf2","hash":"sha256","iterations":1000,"salt":"JgyghKBeF5DIllbrOdPlnHeBqxKvWAkxaR5wVCHpKuU="}},"1":{"area":{"offset":"98304","size":"32768","type":"datashift-checksum","hash":"sha256","sector_size":4096,"shift_size":"131072"},"type":"reencrypt","key_size":1,"mode":"decrypt","direction":"forward","priority":0}},"tokens":{"1":{"type":"systemd-tpm2","keyslots":["0"],"tpm2-pcrs":[7]}},"segments":{"0":{"type":"crypt","offset":"0","size":"32768","iv_tweak":"0","encryption":"aes-cbc-essiv:sha256","sector_size":512},"1":{"type":"linear","offset":"32768","size":"131072","flags":["in-reencryption"]},"2":{"type":"crypt","offset":"294912","size":"dynamic","iv_tweak":"320","encryption":"aes-cbc-essiv:sha256","sector_size":512,"integrity":{"type":"aead","journal_encryption":"none","journal_integrity":"none"}},"3":{"type":"crypt","offset":"131072","size":"dynamic","iv_tweak":"0","encryption":"aes-cbc-essiv:sha256","sector_size":512,"flags":["backup-previous"]},"4":{"type":"linear","offset":"0","size":"dynamic","flags":["backup-final"]}},"digests":{"0":{"type":"pbkdf2","keyslots":["0"],"segments":["3","0","2"],"hash":"sha256","iterations":1000,"salt":"FDGU9cBssBIq9htfOqn7Kslh9kPBqNmzSiMdEQy/iZQ=","digest":"4BnBURTp70zCL2aK55FoO65UzepzFav2b2xVFqqxcqI="},"2":{"type":"pbkdf2","keyslots":["1"],"segments":[],"hash":"sha256","iterations":24824,"salt":"dkzmSegTX8SoZ/L78H0QGt/7ZSgmEbpSgkuy0BK7bTo=","digest":"HfvQeTxALX8bY2NkmsrPWJEVA+Py+RuMIaYHZhvcROw="}},"config":{"json_size":"12288","keyslots_size":"98304","flags":["allow-discards"],"requirements":{"mandatory":["online-reencrypt-v3"]}}}"#;

/// JSON texts with a value exchanged, or a member removed.
fn changed(text: &[u8], rng: &mut Rng) -> Vec<u8> {
    let words: [&[u8]; 30] = [
        b"\"0\"",
        b"0",
        b"\"18446744073709551615\"",
        b"\"18446744073709551104\"",
        b"\"18446744073709551616\"",
        b"\"dynamic\"",
        b"{}",
        b"[]",
        b"[\"0\"]",
        b"[\"3\",\"0\"]",
        b"[0]",
        b"null",
        b"4294967295",
        b"4294967296",
        b"\"luks2\"",
        b"\"reencrypt\"",
        b"\"crypt\"",
        b"\"linear\"",
        b"\"\"",
        b"-1",
        b"{\"type\":\"x\"}",
        b"\"4096\"",
        b"[\"backup-x\"]",
        b"\"294912\"",
        b"2.5",
        b"[\"online-reencrypt\"]",
        b"\"datashift\"",
        b"\"datashift-journal\"",
        b"\"checksum\"",
        b"[]",
    ];
    let mut text = text.to_vec();
    let at = |text: &[u8], what: u8, rng: &mut Rng| {
        let places: Vec<usize> = (0..text.len()).filter(|k| text[*k] == what).collect();
        places[rng.below(places.len() as u64) as usize]
    };
    let value = at(&text, b':', rng) + 1;
    let Some((_, len)) = Json::parse(&text[value..]) else { return text };
    if rng.below(3) > 0 {
        let word = words[rng.below(words.len() as u64) as usize];
        text.splice(value..value + len, word.iter().copied());
    } else if rng.below(2) == 0 {
        // The member, from its name on, and the comma before or behind it; or one more digit of its name.
        let name = text[..value - 2].iter().rposition(|byte| *byte == b'"').unwrap_or(0);
        let end = value + len + usize::from(text.get(value + len) == Some(&b','));
        let start = name - usize::from(name > 0 && text[name - 1] == b',' && end == value + len);
        text.drain(start..end);
    } else {
        text.insert(value - 2, *b"0x9".get(rng.below(3) as usize).unwrap());
    }
    text
}

fn area(mut text: Vec<u8>) -> Vec<u8> {
    text.resize(HDR_SIZE as usize - BINARY_LEN, 0);
    text
}

/// Metadata whose parts are exchanged for those of other places and kinds.
#[test]
fn metadata_with_other_parts_do_no_harm() {
    let mut rng = Rng::new(6);
    let mut taken = 0;
    for round in 0..6000 {
        let base = if round % 2 == 0 { metadata().to_plain() } else { REENCRYPTING.into() };
        let mut text = changed(&base, &mut rng);
        if rng.below(2) == 0 {
            text = changed(&text, &mut rng);
        }
        if let Ok(metadata) = Metadata::from_bytes(&area(text), HDR_SIZE) {
            taken += 1;
            exercise(&metadata);
        }
    }
    assert!(taken > 100, "{taken}");
}

/// Compares verdicts on headers with changed metadata with cryptsetup's.
#[test]
fn changed_metadata_have_the_verdict_of_the_cryptsetup_that_is_here() {
    let Some(cryptsetup) = tool("cryptsetup") else { return };
    let (folder, mut rng) = (tempdir().unwrap(), Rng::new(7));
    let path = folder.path().join("image");
    let rounds = if slow_tests() { 2_000 } else { 200 };
    let (mut taken, mut differences) = (0, Vec::new());
    for round in 0..rounds {
        let base = if round % 2 == 0 { metadata().to_plain() } else { REENCRYPTING.into() };
        let mut text = base.clone();
        for _ in 0..if round < 2 { 0 } else { 1 + rng.below(2) } {
            text = changed(&text, &mut rng);
        }
        let binary = BinaryHeader {
            hdr_size: HDR_SIZE,
            seqid: 3,
            label: String::new(),
            checksum_alg: "sha256".to_owned(),
            salt: [1; 64],
            uuid: "fc88ce7a-e42f-4827-d46f-604faf9dccfb".to_owned(),
            subsystem: String::new(),
            hdr_offset: 0,
        };
        let mut bytes = binary.to_bytes(Place::Primary, &text, &Providers::default()).unwrap();
        bytes.resize(512 << 10, 0);
        std::fs::write(&path, bytes).unwrap();
        let output = run_any(Command::new(&cryptsetup).args(["luksDump", "--disable-locks"]).arg(&path));
        let found = Metadata::from_bytes(&area(text.clone()), HDR_SIZE);
        taken += u32::from(found.is_ok());
        if found.is_ok() != output.status.success() {
            let start = text.iter().zip(&base).take_while(|(one, two)| one == two).count().saturating_sub(60);
            let excerpt = String::from_utf8_lossy(&text[start..text.len().min(start + 120)]).into_owned();
            differences.push(format!(
                "{excerpt}\n  here: {:?}\n  cryptsetup: {}",
                found.err(),
                stderr(&output)
            ));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(taken > rounds / 10, "{taken}");
}

fn exercise(metadata: &Metadata) {
    let _ = (metadata.keyslots(), metadata.keyslot_order(), metadata.digests(), metadata.segments());
    let _ = (metadata.tokens(), metadata.requirements(), metadata.flags(), metadata.keyslots_area());
    let _ = metadata.has_token_out_of_range();
    let again = Metadata::new(metadata.object().clone(), HDR_SIZE);
    assert_eq!(again.as_ref().ok(), Some(metadata), "{again:?}");
}

/// A header is written only by who has read what is there: two who have read the same can't both write.
#[test]
fn a_header_is_written_only_as_it_was_read() {
    let providers = Providers::default();
    let device = disk().0;
    let read = || luks2::Header::read(&device, &providers).unwrap();
    let bytes = || {
        let mut bytes = vec![0; device.size() as usize];
        device.read_at(&mut bytes, 0).unwrap();
        bytes
    };
    let random = &mut |bytes: &mut [u8]| {
        bytes.fill(7);
        Ok(())
    };
    let (mut one, mut two) = (read(), read());
    one.label = "one".to_owned();
    one.write(&device, &providers, random).unwrap();
    let before = bytes();
    let error = two.write(&device, &providers, random).unwrap_err();
    assert!(error.is_busy() && error.text().contains("another program has changed"), "{error}");
    assert!(two.repair(&device, &providers, random).unwrap_err().is_busy());
    assert!(bytes() == before);
    // Who wrote it goes on.
    one.write(&device, &providers, random).unwrap();
    // Either copy is looked at, to its checksum.
    for at in [452, 16384 + 452] {
        let mut header = read();
        let before = bytes();
        device.write_at(&[before[at] ^ 1], at as u64).unwrap();
        assert!(header.write(&device, &providers, random).unwrap_err().is_busy());
        device.write_at(&before[at..=at], at as u64).unwrap();
        header.write(&device, &providers, random).unwrap();
    }
}

/// The older copy tells what an update was that was cut off between both copies.
#[test]
fn an_update_that_is_cut_off_tells_what_was_before() {
    let providers = Providers::default();
    let device = disk().0;
    let read = || luks2::Header::read(&device, &providers).unwrap();
    let random = &mut |bytes: &mut [u8]| {
        bytes.fill(7);
        Ok(())
    };
    let mut header = read();
    assert!(header.superseded().is_none());
    let before = header.metadata.to_plain();
    let cut = header.write_around(&device, &providers, random, || Err(Error::busy("cut")));
    assert_eq!(cut.unwrap_err().text(), "cut");
    let mut found = read();
    assert_eq!((found.seqid, found.superseded().unwrap().to_plain()), (header.seqid, before));
    found.repair(&device, &providers, random).unwrap();
    assert!(found.superseded().is_none() && read().superseded().is_none());
    found.write(&device, &providers, random).unwrap();
}

#[test]
fn a_header_of_luks1_is_written_only_as_it_was_read() {
    let mut made = luks1::Header::new("aes", "xts-plain64", "sha256", 64).unwrap();
    made.payload_offset = 4096;
    let device = MemoryDevice::new(vec![0; 4 << 20]);
    made.write(&device).unwrap();
    let read = || match Header::read(&device, &Providers::default()).unwrap() {
        Header::Luks1(header) => header,
        Header::Luks2(_) => panic!(),
    };
    let (mut one, mut two) = (read(), read());
    one.uuid = "one".to_owned();
    one.write(&device).unwrap();
    assert!(two.write(&device).unwrap_err().is_busy());
    one.write(&device).unwrap();
    assert_eq!(read().uuid, "one");
}

#[test]
fn data_give_up_their_end_only_where_it_is_known_what_they_hold() {
    let (work, passphrase) = (Work::default(), SecretVec::from(b"secret".as_slice()));
    let mut format = LuksFormatOptions::default();
    format.pbkdf = Some(Pbkdf::Pbkdf2 { hash: "sha256".to_owned(), iterations: 1000 });
    let mut plain = vec![0; 4 << 20];
    plain[..2 << 20].copy_from_slice(&Rng::new(7).bytes(2 << 20));
    let disk = casemate_luks::Medium::over("disk", Arc::new(MemoryDevice::new(plain.clone())));
    let bytes = |len: usize| {
        let mut bytes = vec![0; len];
        disk.top().read_at(&mut bytes, 0).unwrap();
        bytes
    };
    let mut options = ReencryptOptions::default();
    options.reduce_device_size = Some(2 << 20);
    let encrypt =
        |options: &ReencryptOptions| encrypt_in_place(&disk, None, &passphrase, &format, options, &work);
    assert_eq!(encrypt(&options).unwrap_err().kind(), ErrorKind::Unsupported);
    options.contents =
        Some(|_| Ok(vec![Used { what: "a file system".to_owned(), end: 4 << 20, is_whole: true }]));
    let error = encrypt(&options).unwrap_err();
    assert!(error.to_string().contains("a file system ends at byte 4194304"), "{error}");
    assert!(bytes(4 << 20) == plain);
    options.contents = Some(|_| Ok(Vec::new()));
    assert!(encrypt(&options).unwrap());
    let (key, unlocking) = (LuksKey::Passphrase(passphrase.clone()), LuksOptions::default());
    let volume = || Volume::read(&disk, None, &work.providers).unwrap();
    let read = |len: usize| {
        let opened = volume().open(&key, &unlocking, &work).unwrap().medium().unwrap();
        let mut bytes = vec![0; len];
        opened.top().read_at(&mut bytes, 0).unwrap();
        bytes
    };
    assert!(read(2 << 20) == plain[..2 << 20]);
    // A volume whose header grows, too.
    let mut options = ReencryptOptions::default();
    options.reduce_device_size = Some(1 << 20);
    let before = bytes(4 << 20);
    let error = volume().reencrypt(std::slice::from_ref(&key), &unlocking, &options, &work).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(bytes(4 << 20) == before);
    // What the encryption wiped is noise, which nobody can tell from data.
    options.contents = Some(|_| Ok(Vec::new()));
    let error = volume().reencrypt(std::slice::from_ref(&key), &unlocking, &options, &work).unwrap_err();
    assert!(error.to_string().contains("are not all zeros, and no file system shows"), "{error}");
    options.contents =
        Some(|_| Ok(vec![Used { what: "a file system".to_owned(), end: 2 << 20, is_whole: true }]));
    let error = volume().reencrypt(std::slice::from_ref(&key), &unlocking, &options, &work).unwrap_err();
    assert!(error.advice().contains(&Advice::Overwrite), "{error}");
    assert!(bytes(4 << 20) == before);
    options.give_up_data = true;
    assert!(volume().reencrypt(std::slice::from_ref(&key), &unlocking, &options, &work).unwrap());
    assert!(read(2 << 20) == plain[..2 << 20]);
}

/// A copy that leads to what is being wiped is not taken when the newer one is lost.
#[test]
fn a_copy_that_is_superseded_is_never_taken_for_the_header() {
    let providers = Providers::default();
    let device = disk().0;
    let read = || luks2::Header::read(&device, &providers);
    let random = &mut |bytes: &mut [u8]| {
        bytes.fill(7);
        Ok(())
    };
    let mut header = read().unwrap();
    let before = header.metadata.to_plain();
    let mut seen = 0;
    let between = || {
        let found = read()?;
        assert_eq!(found.superseded().unwrap().to_plain(), before);
        assert!(matches!(&found.copies()[1], CopyState::Damaged(why) if why.contains("superseded")));
        let mut byte = [0];
        device.read_at(&mut byte, 100)?;
        device.write_at(&[!byte[0]], 100)?;
        let error = read().unwrap_err();
        assert!(error.text().contains("of before the end of a reencryption"), "{error}");
        device.write_at(&byte, 100)?;
        seen += 1;
        Ok(())
    };
    header.write_around(&device, &providers, random, between).unwrap();
    assert_eq!(seen, 1);
    let found = read().unwrap();
    assert!(found.superseded().is_none() && found.copies()[1] == CopyState::Valid(found.seqid));
}
