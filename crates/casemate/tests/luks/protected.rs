//! Volumes with integrity protection that cryptsetup made and the kernel wrote. Their key slots are not there: the volume key
//! opens them.

use std::path::Path;

use casemate::luks::{LuksFormatOptions, LuksKey, LuksOptions, Pbkdf, ReencryptOptions};
use casemate::target::{Made, overwrite};
use casemate::{Error, ErrorKind, Image, Providers, SecretVec, Target, Work, hex};
use casemate_testkit::{Medium, Rng, cut_states, fixture};
use serde_json::Value;

use crate::images::image;

struct Protected {
    name: String,
    data: Vec<u8>,
    key: Vec<u8>,
    payload_size: usize,
    plaintext_sha256: String,
}

fn volumes() -> Vec<Protected> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/luks/fixtures");
    let list: Value = serde_json::from_slice(&std::fs::read(folder.join("protected.json")).unwrap()).unwrap();
    let one = |manifest: &Value| {
        let text = |member: &str| manifest[member].as_str().unwrap().to_owned();
        Protected {
            data: fixture(folder.join(format!("{}.img.xz", text("name")))),
            name: text("name"),
            key: hex::decode(&text("volume_key_hex")).unwrap(),
            payload_size: manifest["payload_size"].as_u64().unwrap() as usize,
            plaintext_sha256: text("plaintext_sha256"),
        }
    };
    list.as_array().unwrap().iter().map(one).collect()
}

fn open(image: Image, key: &[u8]) -> Result<Image, Error> {
    image.luks(None, &LuksKey::VolumeKey(SecretVec::from(key)), &LuksOptions::default(), &Work::default())
}

impl Protected {
    fn plain(&self) -> Vec<u8> {
        let opened = open(image(self.data.clone()), &self.key).unwrap();
        let mut data = vec![0; self.payload_size];
        opened.device().read_at(&mut data, 0).unwrap();
        data
    }
}

#[test]
fn what_the_kernel_wrote_is_read() {
    let hash = Providers::default().hash("sha256").unwrap();
    for volume in volumes() {
        assert_eq!(hex::encode(&hash.digest(&volume.plain())), volume.plaintext_sha256, "{}", volume.name);
        let mut wrong = volume.key.clone();
        wrong[3] ^= 1;
        let error = open(image(volume.data.clone()), &wrong).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Mismatch, "{}", volume.name);
    }
}

/// One bit of a sector, or of what is kept of it: that sector alone is an error, and nothing of it is shown.
#[test]
fn a_damaged_sector_is_an_error_alone() {
    for volume in volumes() {
        let plain = volume.plain();
        let whole = open(image(volume.data.clone()), &volume.key).unwrap();
        let sector = whole.preferred_block().min(4096) as usize;
        let mut found = 0;
        // The data are the last that is not zero in the image.
        let end = volume.data.iter().rposition(|byte| *byte != 0).unwrap();
        for at in [end, end - 20_000, end - 40_000] {
            let mut data = volume.data.clone();
            data[at] ^= 0x10;
            let opened = open(image(data), &volume.key).unwrap();
            let mut bytes = vec![0; 512];
            let mut wrong = Vec::new();
            for place in (0..volume.payload_size).step_by(512) {
                match opened.device().read_at(&mut bytes, place as u64) {
                    Ok(()) => assert!(bytes == plain[place..place + 512], "{} {place}", volume.name),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Mismatch);
                        wrong.push(place);
                    }
                }
            }
            assert!(wrong.len() <= sector / 512, "{}: {wrong:?}", volume.name);
            found += usize::from(!wrong.is_empty());
        }
        assert!(found > 1, "{}", volume.name);
    }
}

/// Written data are there, encrypted afresh, when the volume is opened again; the rest stays.
#[test]
fn what_is_written_is_read_again() {
    for volume in volumes() {
        let mut model = volume.plain();
        let below = image(volume.data.clone());
        for round in 0..3u8 {
            let opened = open(below.clone(), &volume.key).unwrap();
            opened.device().write_at(&[round + 1; 5000], 1000).unwrap();
            opened.device().flush().unwrap();
            model[1000..6000].fill(round + 1);
            let mut data = vec![0; model.len()];
            open(below.clone(), &volume.key).unwrap().device().read_at(&mut data, 0).unwrap();
            assert!(data == model, "{} {round}", volume.name);
        }
        let mut bytes = vec![0; volume.data.len()];
        below.device().read_at(&mut bytes, 0).unwrap();
        assert!(!bytes.windows(100).any(|part| part.iter().all(|byte| *byte == 3)), "{}", volume.name);
    }
}

/// Nothing that works on the data in place takes them for a mapping alone.
#[test]
fn what_has_tags_is_not_reencrypted() {
    for volume in volumes() {
        let below = image(volume.data.clone());
        let opened = below.luks_volume(None, &Providers::default()).unwrap();
        let (options, work) = (LuksOptions::default(), Work::default());
        let key = LuksKey::VolumeKey(SecretVec::from(&volume.key[..]));
        let unlocked = opened.unlock(&key, &options, &work).unwrap();
        let how = ReencryptOptions::default();
        for refused in [
            opened.mapping(unlocked, &options, &Providers::default()).map(drop),
            opened.clone().reencrypt(std::slice::from_ref(&key), &options, &how, &work).map(drop),
            opened.clone().decrypt(&key, Some(&image(vec![0; 1 << 20])), &options, &how, &work).map(drop),
        ] {
            let refused = refused.unwrap_err();
            assert!(refused.text().contains("integrity protection"), "{refused}");
        }
        let mut bytes = vec![0; volume.data.len()];
        below.device().read_at(&mut bytes, 0).unwrap();
        assert!(bytes == volume.data);
    }
}

/// A stream becomes a volume in one pass; wherever power fails there is no volume yet, or all of it.
#[test]
fn a_stream_that_is_cut_leaves_no_volume() {
    let work = Work::default();
    let medium = Medium::new(vec![0; 3 << 20]);
    let target = Target::on(Image::over("image", medium.clone()), Made::Data, &overwrite).unwrap();
    let data = Rng::new(4).bytes(300_001);
    let mut options = LuksFormatOptions::default();
    options.integrity = Some("hmac-sha256".to_owned());
    options.offset = Some(512 << 10);
    options.pbkdf = Some(Pbkdf::Pbkdf2 { hash: "sha256".to_owned(), iterations: 1000 });
    let passphrase = SecretVec::from(&b"one"[..]);
    let made = options.prepare(&passphrase, &work).unwrap();
    let before = medium.bytes();
    made.protect_stream(&mut &data[..], &target, None, &work).unwrap();
    let writes = medium.take_writes();
    let key = LuksKey::Passphrase(passphrase);
    let read = |bytes: &[u8]| {
        let below = image(bytes.to_vec());
        below.luks_volume(None, &work.providers).ok()?;
        let opened = below.luks(None, &key, &LuksOptions::default(), &work).unwrap();
        let mut found = vec![1; opened.device().size() as usize];
        opened.device().read_at(&mut found, 0).unwrap();
        Some(found)
    };
    let (states, mut there) = (cut_states(&before, &writes, |len| vec![0, len / 1024 * 512, len]), 0);
    for state in &states {
        if let Some(found) = read(state) {
            assert!(found[..data.len()] == data && found[data.len()..].iter().all(|byte| *byte == 0));
            there += 1;
        }
    }
    assert!(there > 0 && there < states.len() / 2, "{there} of {}", states.len());
    options.integrity = None;
    let plain = options.prepare(&SecretVec::from(&b"one"[..]), &work);
    assert!(plain.unwrap().protect_stream(&mut &data[..], &target, None, &work).is_err());
    assert!(made.protect_stream(&mut &vec![1; 3 << 20][..], &target, None, &work).is_err());
}
