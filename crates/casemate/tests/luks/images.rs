//! Volumes of both versions, every KDF, and ciphers of every family.

use std::path::Path;
use std::sync::Arc;

use casemate::blockdev::MemoryDevice;
use casemate::luks::luks2::CopyState;
use casemate::luks::{Header, LuksKey, LuksOptions};
use casemate::{ErrorKind, Image, KdfLimits, Providers, SecretVec, Work, hex};
use casemate_testkit::fixture;
use serde_json::Value;

/// A volume, with what is known of it.
#[derive(Clone)]
pub struct Volume {
    pub name: String,
    pub manifest: Value,
    pub data: Vec<u8>,
    pub header: Option<Vec<u8>>,
}

fn file(name: &str) -> Vec<u8> {
    fixture(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/luks/fixtures").join(name))
}

fn manifests() -> Vec<Value> {
    let list: Value = serde_json::from_slice(&file("images.json.xz")).unwrap();
    list.as_array().unwrap().clone()
}

pub fn volumes() -> Vec<Volume> {
    manifests().into_iter().map(Volume::load).collect()
}

pub fn volume(name: &str) -> Volume {
    Volume::load(manifests().into_iter().find(|manifest| manifest["name"] == name).unwrap())
}

/// An image in memory.
pub fn image(bytes: Vec<u8>) -> Image {
    Image::over("image", Arc::new(MemoryDevice::new(bytes)))
}

pub fn passphrase(bytes: &[u8]) -> LuksKey {
    LuksKey::Passphrase(SecretVec::from(bytes))
}

impl Volume {
    fn load(manifest: Value) -> Volume {
        let name = manifest["name"].as_str().unwrap().to_owned();
        let data = file(&format!("{name}.img.xz"));
        let header = manifest["detached"].as_bool().map(|_| file(&format!("{name}.hdr.xz")));
        Volume { name, manifest, data, header }
    }

    /// Slots and their passphrases.
    pub fn passphrases(&self) -> Vec<(u32, LuksKey)> {
        let all = self.manifest["passphrases_hex"].as_object().unwrap();
        let one = |(slot, text): (&String, &Value)| {
            (slot.parse().unwrap(), passphrase(&hex::decode(text.as_str().unwrap()).unwrap()))
        };
        all.iter().map(one).collect()
    }

    fn bytes(&self, member: &str) -> Vec<u8> {
        hex::decode(self.manifest[member].as_str().unwrap()).unwrap()
    }

    /// The bytes that the kernel encrypted: SHA-256 of `SEED:0`, of `SEED:1`, ... joined.
    pub fn plaintext(&self) -> Vec<u8> {
        let hash = Providers::default().hash("sha256").unwrap();
        let seed = self.manifest["plaintext_seed"].as_str().unwrap();
        (0..4096 / 32).flat_map(|i| hash.digest(format!("{seed}:{i}").as_bytes())).collect()
    }

    pub fn open(&self, key: &LuksKey, options: &LuksOptions) -> Result<Image, casemate::Error> {
        let header = self.header.clone().map(image);
        image(self.data.clone()).luks(header.as_ref(), key, options, &Work::default())
    }
}

fn read(image: &Image) -> Vec<u8> {
    let device = image.device();
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn every_slot_opens_what_the_kernel_wrote() {
    let volumes = volumes();
    assert!(volumes.len() > 15);
    let mut slots = 0;
    for volume in &volumes {
        for (slot, key) in volume.passphrases() {
            let mut options = LuksOptions::default();
            options.keyslot = Some(slot);
            let opened =
                volume.open(&key, &options).unwrap_or_else(|error| panic!("{}: {error}", volume.name));
            assert!(read(&opened) == volume.plaintext(), "{}, slot {slot}", volume.name);
            // Without the slot's number it is found, at the cost of those before it.
            assert!(read(&volume.open(&key, &LuksOptions::default()).unwrap()) == volume.plaintext());
            slots += 1;
        }
        let key = LuksKey::VolumeKey(SecretVec::new(volume.bytes("volume_key_hex")));
        let opened = volume.open(&key, &LuksOptions::default()).unwrap();
        assert!(read(&opened) == volume.plaintext(), "{}: the volume key", volume.name);
    }
    assert!(slots > volumes.len());
}

#[test]
fn what_is_written_is_what_the_kernel_would_read() {
    let volume = volume("l2-adiantum20-s4096");
    let (_, key) = volume.passphrases().remove(0);
    let medium = Arc::new(MemoryDevice::new(volume.data.clone()));
    let opened = Image::over("image", medium.clone())
        .luks(None, &key, &LuksOptions::default(), &Work::default())
        .unwrap();
    let device = opened.device();
    device.write_at(&[0; 4096], 0).unwrap();
    device.write_at(&volume.plaintext(), 0).unwrap();
    let mut bytes = vec![0; volume.data.len()];
    casemate::blockdev::BlockDevice::read_at(&*medium, &mut bytes, 0).unwrap();
    assert!(bytes == volume.data);
}

#[test]
fn a_wrong_key_is_one() {
    for volume in volumes() {
        for key in [passphrase(b"wrong"), LuksKey::VolumeKey(SecretVec::new(vec![7; 32]))] {
            let error = volume.open(&key, &LuksOptions::default()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Mismatch, "{}: {error}", volume.name);
        }
        // A key with zeros behind it has the same HMAC, so its length counts too.
        let key = SecretVec::new([volume.bytes("volume_key_hex"), vec![0]].concat());
        let error = volume.open(&LuksKey::VolumeKey(key), &LuksOptions::default()).unwrap_err();
        assert_eq!(error.text(), "this is not the volume key", "{}", volume.name);
    }
}

#[test]
fn costs_are_bounded_before_they_are_paid() {
    let volume = volume("luks2-argon2id-4096");
    let (_, key) = volume.passphrases().remove(0);
    let mut options = LuksOptions::default();
    options.limits = KdfLimits { memory: 255, ..KdfLimits::default() };
    let error = volume.open(&key, &options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(
        error.text().starts_with("key slot 0 was not tried: it demands 4 passes over 256 KiB"),
        "{error}"
    );
    assert!(volume.open(&key, &options.raised(2)).is_ok());
    let slots = self::volume("luks1-cbc-plain-slots");
    let (last, key) = slots.passphrases().pop().unwrap();
    let mut options = LuksOptions::default();
    options.tries = 2;
    let error = slots.open(&key, &options).unwrap_err();
    assert_eq!(
        error.text(),
        format!(
            "no key slot opens with this passphrase; key slot {last} was not tried: it is one more than the 2 that are tried; it can be named"
        )
    );
    options.keyslot = Some(last);
    assert!(slots.open(&key, &options).is_ok());
    options.keyslot = Some(1);
    assert_eq!(slots.open(&key, &options).unwrap_err().text(), "key slot 1 is not active");
}

#[test]
fn the_better_copy_of_a_header_is_used_and_nothing_is_mended() {
    let volume = volume("luks2-primary-damaged");
    let found = image(volume.data.clone()).luks_volume(None, &Providers::default()).unwrap();
    let Header::Luks2(header) = found.header() else { panic!() };
    assert!(matches!(header.copies(), [CopyState::Damaged(_), CopyState::Valid(_)]), "{:?}", header.copies());
    assert!(volume.open(&volume.passphrases()[0].1, &LuksOptions::default()).is_ok());
}

#[test]
fn a_device_that_is_cut_off_is_no_panic() {
    for name in ["l1-aes-ecb", "l2-aes-cbc-plain64be"] {
        let volume = volume(name);
        let (_, key) = volume.passphrases().remove(0);
        for len in [0, 1, 591, 1023, 1024, 4095, 4096, 16384, 20000, 32768, 40000, 98303, 98304, 98305] {
            let cut = Volume { data: volume.data[..len].to_vec(), ..volume.clone() };
            if let Ok(opened) = cut.open(&key, &LuksOptions::default()) {
                assert_eq!(opened.device().size(), 0, "{name}: {len} bytes");
            }
        }
    }
}
