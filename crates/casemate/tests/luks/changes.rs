//! Key slots added and removed, with the power cut at every write.

use std::sync::{Arc, Mutex};

use casemate::blockdev::{BlockDevice, MemoryDevice, Result};
use casemate::luks::luks1::SlotState;
use casemate::luks::{Header, LuksKey, LuksOptions, NewKeyOptions, Pbkdf};
use casemate::{ErrorKind, Image, Providers, SecretVec, Work};

use crate::images::{image, passphrase, volume};

/// A medium that remembers what was written, in order.
struct Medium {
    bytes: MemoryDevice,
    writes: Mutex<Vec<(u64, Vec<u8>)>>,
}

impl Medium {
    fn new(bytes: Vec<u8>) -> Arc<Medium> {
        Arc::new(Medium { bytes: MemoryDevice::new(bytes), writes: Mutex::default() })
    }
}

impl BlockDevice for Medium {
    fn below(&self) -> Option<&dyn BlockDevice> {
        None
    }

    fn size(&self) -> u64 {
        self.bytes.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.bytes.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.writes.lock().unwrap().push((offset, buf.to_vec()));
        self.bytes.write_at(buf, offset)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

fn cheap(version: u32) -> NewKeyOptions {
    let mut options = NewKeyOptions::default();
    let hash = if version == 1 { "sha256" } else { "sha512" }.to_owned();
    options.pbkdf = Some(Pbkdf::Pbkdf2 { hash, iterations: 1000 });
    options
}

fn opens(bytes: &[u8], key: &LuksKey) -> bool {
    image(bytes.to_vec()).luks(None, key, &LuksOptions::default(), &Work::default()).is_ok()
}

/// Whether a header has a key slot.
fn has_slot(bytes: &[u8], id: u32) -> bool {
    let found = image(bytes.to_vec()).luks_volume(None, &Providers::default()).unwrap();
    match found.header() {
        Header::Luks1(header) => header.slots[id as usize].state == SlotState::Enabled,
        Header::Luks2(header) => header.metadata.keyslots().iter().any(|slot| slot.id == id),
    }
}

/// The bytes before and after, and all states between in which the power may be cut: each write is there in none, a part, or
/// all of its sectors.
fn states(before: &[u8], medium: &Medium) -> Vec<Vec<u8>> {
    let mut states = Vec::new();
    let mut bytes = before.to_vec();
    for (offset, written) in medium.writes.lock().unwrap().iter() {
        let at = *offset as usize;
        for cut in [512, written.len() / 1024 * 512, written.len()] {
            let mut torn = bytes.clone();
            let cut = cut.min(written.len());
            torn[at..at + cut].copy_from_slice(&written[..cut]);
            states.push(torn);
        }
        bytes[at..at + written.len()].copy_from_slice(written);
    }
    states
}

#[test]
fn a_change_that_is_cut_leaves_the_old_keys_or_the_new_ones() {
    let work = Work::default();
    for (name, version) in
        [("l1-cast5-cbc", 1), ("luks2-label-token", 2), ("luks2-primary-damaged", 2), ("json-mutations", 2)]
    {
        let before = volume(name);
        let keys = before.passphrases();
        let (slot, old) = (keys[0].0, &keys[0].1);
        let data = before.data.clone();
        let medium = Medium::new(data.clone());
        let open = || Image::over("image", medium.clone()).luks_volume(None, &Providers::default()).unwrap();
        let mut changed = open();
        let unlocked = changed.unlock(old, &LuksOptions::default(), &work).unwrap();
        let new = SecretVec::from(&b"new"[..]);
        let added = match changed.add_key(&unlocked, &new, &cheap(version), &work) {
            Ok(added) => added,
            Err(error) => panic!("{name}: {error}"),
        };
        for state in states(&data, &medium) {
            assert!(opens(&state, old), "{name}: the old key while one is added");
            // A slot that the header has is one that opens.
            assert!(!has_slot(&state, added) || opens(&state, &passphrase(b"new")), "{name}: the new slot");
        }
        let mut after = vec![0; data.len()];
        medium.read_at(&mut after, 0).unwrap();
        let new = passphrase(b"new");
        assert!(opens(&after, old) && opens(&after, &new), "{name}");
        let opened = image(after.clone()).luks(None, &new, &LuksOptions::default(), &work).unwrap();
        let mut plain = vec![0; 4096];
        opened.device().read_at(&mut plain, 0).unwrap();
        assert!(plain == before.plaintext());

        medium.writes.lock().unwrap().clear();
        let mut changed = open();
        changed.kill_slot(slot, &work).unwrap();
        for state in states(&after, &medium) {
            assert!(opens(&state, &new), "{name}: the other key while one is removed");
        }
        let wiped = &states(&after, &medium)[0];
        assert!(!opens(wiped, old), "{name}: a slot opens nothing from the first write on");
        let mut last = vec![0; data.len()];
        medium.read_at(&mut last, 0).unwrap();
        assert!(!opens(&last, old) && opens(&last, &new), "{name}");
        if keys.len() == 1 {
            let error = open().kill_slot(added, &work).unwrap_err();
            assert!(error.text().contains("the last one that opens the data"), "{error}");
        }
        let error = open().kill_slot(slot, &work).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
    }
}

#[test]
fn a_full_header_and_one_that_requires_something_stay_as_they_are() {
    let work = Work::default();
    let full = volume("l2-hash-sha512");
    let (_, key) = full.passphrases().remove(0);
    let new = SecretVec::from(&b"new"[..]);
    let medium = Medium::new(full.data.clone());
    let mut changed = Image::over("image", medium.clone()).luks_volume(None, &Providers::default()).unwrap();
    let unlocked = changed.unlock(&key, &LuksOptions::default(), &work).unwrap();
    let error = changed.add_key(&unlocked, &new, &cheap(2), &work).unwrap_err();
    assert_eq!(error.text(), "the area for key slots has no room for another one");
    let mut options = cheap(2);
    options.keyslot = Some(0);
    let error = changed.add_key(&unlocked, &new, &options, &work).unwrap_err();
    assert_eq!(error.text(), "key slot 0 is not free");
    assert!(medium.writes.lock().unwrap().is_empty());
    let read_only = image(full.data).make_read_only();
    let mut changed = read_only.luks_volume(None, &Providers::default()).unwrap();
    assert_eq!(changed.kill_slot(0, &work).unwrap_err().kind(), ErrorKind::Argument);
}
