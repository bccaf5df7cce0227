//! Reencryptions that cryptsetup left in the middle, read and finished.

use std::path::Path;

use casemate::blockdev::BlockDevice;
use casemate::luks::luks2::reencrypt::{Part, Resilience, State};
use casemate::luks::{Header, LuksKey, LuksOptions};
use casemate::{ErrorKind, Image, Providers, Work, hex};
use casemate_testkit::{Rng, fixture};
use serde_json::Value;

use super::medium::{Medium, Notes, bytes_of};
use crate::images::passphrase;

/// A volume that cryptsetup was cut off at.
struct Cut {
    manifest: Value,
    data: Vec<u8>,
    header: Option<Vec<u8>>,
}

fn file(name: &str) -> Vec<u8> {
    fixture(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/luks/fixtures").join(name))
}

fn cuts() -> Vec<Cut> {
    let list: Value = serde_json::from_slice(&file("reencryptions.json.xz")).unwrap();
    let load = |manifest: &Value| {
        let name = manifest["name"].as_str().unwrap();
        let header = manifest["detached"].as_bool().unwrap().then(|| file(&format!("{name}.hdr.xz")));
        Cut { manifest: manifest.clone(), data: file(&format!("{name}.img.xz")), header }
    };
    list.as_array().unwrap().iter().map(load).collect()
}

fn cut(name: &str) -> Cut {
    cuts().into_iter().find(|cut| cut.name() == name).unwrap()
}

impl Cut {
    fn name(&self) -> &str {
        self.manifest["name"].as_str().unwrap()
    }

    fn key(&self) -> LuksKey {
        passphrase(&hex::decode(self.manifest["passphrases_hex"]["0"].as_str().unwrap()).unwrap())
    }

    /// SHA-256 of `SEED:0`, of `SEED:1`, ... joined.
    fn plaintext(&self) -> Vec<u8> {
        let hash = Providers::default().hash("sha256").unwrap();
        let seed = self.manifest["plaintext_seed"].as_str().unwrap();
        let size = self.manifest["plaintext_size"].as_u64().unwrap();
        (0..size / 32).flat_map(|i| hash.digest(format!("{seed}:{i}").as_bytes())).collect()
    }

    fn medium(&self) -> Medium {
        Medium::new(self.data.clone(), self.header.clone())
    }
}

#[test]
fn what_cryptsetup_left_is_read_as_it_is_and_finished() {
    let cuts = cuts();
    assert!(cuts.len() >= 7);
    for cut in cuts {
        let (name, key, plaintext) = (cut.name(), cut.key(), cut.plaintext());
        let (medium, notes) = (cut.medium(), Notes::default());
        let read = medium.read(&key, &notes.work()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(read == plaintext, "{name}");
        // Reading writes nothing.
        assert!(bytes_of(&medium.data) == cut.data, "{name}");
        assert!(medium.header.is_none_or(|header| bytes_of(&header) == *cut.header.as_ref().unwrap()));
        let medium = cut.medium();
        let error = medium.resume(&passphrase(b"wrong"), &Work::default()).unwrap_err();
        if name != "enc-shift-done" {
            assert_eq!(error.kind(), ErrorKind::Mismatch, "{name}: {error}");
        }
        assert!(bytes_of(&medium.data) == cut.data, "{name}: a wrong passphrase changes nothing");
        assert!(medium.resume(&key, &notes.work()).unwrap_or_else(|error| panic!("{name}: {error}")));
        assert!(!medium.is_reencrypting(), "{name}");
        assert!(medium.end(&key, plaintext.len()) == plaintext, "{name}");
        assert_eq!(notes.take(), "", "{name}");
    }
}

/// States in which cryptsetup loses the volume, or never finishes it.
#[test]
fn what_is_done_is_only_ended() {
    let all_new = |len, _: &[Part]| vec![Part { state: State::New, range: 0..len }];
    // Data that are all new, with the header as it is before the end.
    for name in ["re-checksum-torn", "re-checksum-cipher", "dec-export-torn", "enc-shift-last-torn"] {
        let cut = cut(name);
        let (key, plaintext) = (cut.key(), cut.plaintext());
        let after = cut.medium();
        after.resume(&key, &Work::default()).unwrap();
        let done = cut.medium();
        let at = done.volume().data_offset_of_new();
        let mut bytes = bytes_of(&after.data);
        if cut.header.is_none() {
            // The old header.
            bytes[..at].copy_from_slice(&cut.data[..at]);
        }
        done.data.write_at(&bytes, 0).unwrap();
        done.set_parts(all_new);
        for is_old_slot_wiped in [false, true] {
            let medium =
                Medium::new(bytes_of(&done.data), done.header.as_ref().map(|header| bytes_of(header)));
            if is_old_slot_wiped {
                let volume = medium.volume();
                let Header::Luks2(header) = volume.header() else { panic!() };
                // The first slot's area, with the old key, if there is one.
                medium
                    .header_device()
                    .write_at(&[7; 4096], header.metadata.keyslots()[0].area.offset)
                    .unwrap();
                if name.starts_with("enc") {
                    continue;
                }
            }
            if !name.starts_with("dec") {
                assert!(
                    medium.read(&key, &Work::default()).unwrap() == plaintext,
                    "{name}, {is_old_slot_wiped}"
                );
                let error = medium.resume(&passphrase(b"wrong"), &Work::default()).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Mismatch, "{name}");
                assert!(medium.is_reencrypting());
            }
            if name.starts_with("dec") && is_old_slot_wiped {
                // No key proves it: nothing is read or written, and the header alone may go.
                for refused in [
                    medium.read(&key, &Work::default()).map(drop),
                    medium.resume(&key, &Work::default()).map(drop),
                ] {
                    let error = refused.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
                    assert!(error.text().contains("nothing proves that"), "{error}");
                }
                let before = bytes_of(&medium.data);
                let mut volume = medium.volume();
                assert!(volume.says_decrypted());
                volume.end_decryption(&Work::default()).unwrap();
                assert!(bytes_of(&medium.data) == before, "{name}: the data stay");
                assert!(volume.end_decryption(&Work::default()).is_err());
            } else {
                assert!(medium.resume(&key, &Work::default()).unwrap(), "{name}");
            }
            assert!(!medium.is_reencrypting() && medium.end(&key, plaintext.len()) == plaintext, "{name}");
        }
    }
    // Only the segment that was moved is left, and it is shorter than the shift.
    let cut = cut("dec-export-journal-last-torn");
    let (key, plaintext) = (cut.key(), cut.plaintext());
    let medium = cut.medium();
    medium.resume(&key, &Work::default()).unwrap();
    let first = Medium::new(cut.data.clone(), None);
    let header = cut.header.clone().unwrap();
    let medium = Medium::new(bytes_of(&medium.data), Some(header));
    // The journal has the moved segment as it was.
    let area = medium.journal();
    let mut moved = vec![0; 32768];
    medium.header_device().read_at(&mut moved, area).unwrap();
    medium.data.write_at(&moved, 0).unwrap();
    drop(first);
    medium.set_parts(|len, _| {
        vec![Part { state: State::Old, range: 0..32768 }, Part { state: State::New, range: 32768..len }]
    });
    assert!(medium.read(&key, &Work::default()).unwrap() == plaintext);
    assert!(medium.resume(&key, &Work::default()).unwrap());
    assert!(medium.end(&key, plaintext.len()) == plaintext);
}

/// Where this volume's new data begin, and where its journal lies.
trait Places {
    fn data_offset_of_new(&self) -> usize;
}

impl Places for casemate::luks::Volume {
    fn data_offset_of_new(&self) -> usize {
        let Header::Luks2(header) = self.header() else { panic!() };
        header.metadata.reencryption().unwrap().unwrap().new_place(0) as usize
    }
}

#[test]
fn damage_is_told_and_the_rest_is_read() {
    let cut = cut("re-checksum-torn");
    let (key, plaintext, notes) = (cut.key(), cut.plaintext(), Notes::default());
    let medium = cut.medium();
    let place = medium.volume().data_offset_of_new() + 32768 + 5000;
    medium.data.write_at(&[cut.data[place] ^ 1], place as u64).unwrap();
    let error = medium.read(&key, &notes.work()).unwrap_err();
    assert!(error.kind() == ErrorKind::Corrupt && error.text().contains("neither as before"), "{error}");
    let told = notes.take();
    // One block of 4096 bytes.
    let image = Image::over("image", medium.data.clone());
    let opened = image.luks(None, &key, &LuksOptions::default(), &Work::default()).unwrap();
    let mut read = Vec::new();
    let rescued = opened.rescue_stream(("copy", &mut read), &Work::default()).unwrap();
    assert_eq!((rescued.lost.len(), &rescued.lost[0]), (1, &(36864..40960)));
    assert!((0..read.len()).all(|at| (36864..40960).contains(&at) || read[at] == plaintext[at]));
    assert!(
        told.contains("1 of the blocks of 4096 bytes") && told.contains("at byte 36864 of the data"),
        "{told}"
    );
    assert!(medium.resume(&key, &notes.work()).unwrap());
    assert!(notes.take().contains("neither as before nor as after"));
    // What was changed in the header by somebody without the keys is told from what was written with them.
    let medium = cut.medium();
    let volume = medium.volume();
    let Header::Luks2(header) = volume.header() else { panic!() };
    let json = String::from_utf8(header.metadata.to_plain()).unwrap();
    for (what, with) in
        [("\"checksum\",\"hash\":\"sha256\"", "\"checksum\",\"hash\":\"sha1\""), ("forward", "backward")]
    {
        let mut changed = header.clone();
        let area = [json.replace(what, with).as_bytes(), &[0]].concat();
        changed.metadata =
            casemate::luks::luks2::Metadata::from_bytes(&area, header.metadata.hdr_size()).unwrap();
        let medium = cut.medium();
        changed.write(&*medium.data, &Providers::default(), &mut |_| Ok(())).unwrap();
        for error in [
            medium.read(&key, &Work::default()).unwrap_err(),
            medium.resume(&key, &Work::default()).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert!(error.text().contains("were not written with these keys"), "{error}");
        }
    }
}

/// Another device, whose hot zone holds other data or repeated bytes, is neither as before nor as after.
#[test]
fn work_does_not_go_on_with_another_device() {
    let mut refused = 0;
    for cut in cuts() {
        let (name, key) = (cut.name(), cut.key());
        let course = {
            let volume = cut.medium().volume();
            let Header::Luks2(header) = volume.header() else { panic!() };
            header.metadata.reencryption().unwrap().unwrap()
        };
        let parts = course.parts(cut.data.len() as u64).unwrap();
        let Some(hot) = parts.into_iter().find(|part| part.state == State::Hot).map(|part| part.range) else {
            continue;
        };
        let place = course.new_place(hot.start);
        let is_in_place = course.old_place(hot.start) == place && course.resilience != Resilience::None;
        // Of fewer blocks a power failure may have left as many that do not fit.
        if !is_in_place || hot.end - hot.start < 8192 {
            continue;
        }
        let medium = cut.medium();
        let len = (hot.end - hot.start) as usize;
        medium.data.write_at(&Rng::new(7).bytes(len), place).unwrap();
        let before = bytes_of(&medium.data);
        let error = medium.resume(&key, &Work::default()).unwrap_err();
        assert!(error.text().contains("this is another device"), "{name}: {error}");
        assert!(bytes_of(&medium.data) == before, "{name}");
        refused += 1;
    }
    assert!(refused > 2);
}
