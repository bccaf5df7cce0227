#![no_main]
//! Volumes in the middle of a reencryption, whose metadata say anything: read, and gone on with, without a panic.
//!
//! The input is the text of the metadata, a NUL, and the device's bytes behind the header. A volume key that the fuzzer
//! knows stands for passphrases; the digests of the metadata are put right where they are there.

use std::sync::Arc;

use casemate::blockdev::{BlockDevice, MemoryDevice};
use casemate::luks::luks2::{Header, Metadata, encode};
use casemate::luks::{LuksKey, LuksOptions, ReencryptOptions};
use casemate::{Image, Providers, SecretVec, Work};
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
    for (name, value) in [("type", Json::from("pbkdf2")), ("hash", Json::from("sha256")), ("iterations", Json::from(1))] {
        digest.set(name, value);
    }
    digest.set("salt", encode(&[1; 32]).into());
    digest.set("digest", encode(made.expose()).into());
    Some(())
}

fn volume(bytes: &[u8]) -> Option<(Vec<u8>, SecretVec)> {
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
    let device = MemoryDevice::new(disk);
    let mut header = Header::new("fc88ce7a-e42f-4827-d46f-604faf9dccfb".to_owned(), metadata);
    header.write(&device, &Providers::default(), &mut |_| Ok(())).ok()?;
    Some((device.into_bytes(), key))
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((disk, key)) = volume(bytes) else { return };
    let (key, unlocking) = (LuksKey::VolumeKey(key), LuksOptions::default());
    let work = Work { pool: casemate::blockdev::Pool::new(std::num::NonZeroUsize::new(1)), ..Work::default() };
    let device = Arc::new(MemoryDevice::new(disk.clone()));
    let image = || Image::over("image", device.clone());
    let mut plain = None;
    if let Ok(opened) = image().luks(None, &key, &unlocking, &work) {
        let mut read = vec![0; opened.device().size() as usize];
        if opened.device().read_at(&mut read, 0).is_ok() {
            plain = Some(read);
        }
    }
    let mut after = vec![0; disk.len()];
    device.read_at(&mut after, 0).unwrap();
    assert!(after == disk, "reading writes nothing");
    let Ok(mut volume) = image().luks_volume(None, &Providers::default()) else { return };
    let mut options = ReencryptOptions::default();
    options.resume_only = true;
    options.hotzone_size = Some(4096);
    let resumed = volume.reencrypt(&[key], &unlocking, &options, &work);
    // What could be gone on with could be read before.
    assert!(resumed.is_err() || plain.is_some());
});
