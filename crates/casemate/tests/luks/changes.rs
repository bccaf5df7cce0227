//! Key slots added and removed, with the power cut at every write.

use casemate::luks::luks1::SlotState;
use casemate::luks::{Header, LuksFormatOptions, LuksKey, LuksOptions, LuksVersion, NewKeyOptions, Pbkdf};
use casemate::target::{Made, overwrite};
use casemate::{ErrorKind, Image, Providers, SecretVec, Target, Work};
use casemate_testkit::{Medium, Rng, cut_states};

use crate::images::{image, passphrase, volume};

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

/// The states in which the power may be cut: each write is there in none, a part, or all of its sectors.
fn states(before: &[u8], medium: &Medium) -> Vec<Vec<u8>> {
    cut_states(before, &medium.take_writes(), |len| vec![0, 512, len / 1024 * 512, len])
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
        let after = medium.bytes();
        let new = passphrase(b"new");
        assert!(opens(&after, old) && opens(&after, &new), "{name}");
        let opened = image(after.clone()).luks(None, &new, &LuksOptions::default(), &work).unwrap();
        let mut plain = vec![0; 4096];
        opened.device().read_at(&mut plain, 0).unwrap();
        assert!(plain == before.plaintext());

        let mut changed = open();
        changed.kill_slot(slot, &work).unwrap();
        let during = states(&after, &medium);
        for state in &during {
            assert!(opens(state, &new), "{name}: the other key while one is removed");
        }
        let wiped = &during[1];
        assert!(!opens(wiped, old), "{name}: a slot opens nothing from the first write on");
        let last = medium.bytes();
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
    assert!(medium.take_writes().is_empty());
    let read_only = image(full.data).make_read_only();
    let mut changed = read_only.luks_volume(None, &Providers::default()).unwrap();
    assert_eq!(changed.kill_slot(0, &work).unwrap_err().kind(), ErrorKind::Argument);
}

/// Where no slot is free, or no room, the new key takes the place of the old one, and the others open at any moment.
#[test]
fn a_key_of_a_full_header_is_changed_where_it_lies() {
    let work = Work::default();
    let (one, other) = (SecretVec::from(&b"one"[..]), SecretVec::from(&b"other"[..]));
    for (version, keys, offset) in [
        (LuksVersion::One, 8, None),
        (LuksVersion::Two, 32, Some(3 << 20)),
        (LuksVersion::Two, 2, Some(160 << 10)),
    ] {
        let mut options = LuksFormatOptions::default();
        (options.version, options.cipher, options.key_bits) =
            (version, "aes-cbc-plain64".to_owned(), Some(128));
        options.pbkdf = Some(Pbkdf::Pbkdf2 { hash: "sha256".to_owned(), iterations: 1000 });
        options.offset = offset;
        let medium = Medium::new(vec![0; 4 << 20]);
        let target = Image::over("image", medium.clone());
        options.prepare(&one, &work).unwrap().format(&target, None, true, &work).unwrap();
        let mut opened = target.luks_volume(None, &work.providers).unwrap();
        let (key, others) = (LuksKey::Passphrase(one.clone()), passphrase(b"other"));
        let unlocked = opened.unlock(&key, &LuksOptions::default(), &work).unwrap();
        let mut how = NewKeyOptions::default();
        how.pbkdf = options.pbkdf.clone();
        for _ in 1..keys {
            opened.add_key(&unlocked, &other, &how, &work).unwrap();
        }
        assert!(opened.add_key(&unlocked, &other, &how, &work).is_err());
        let before = medium.bytes();
        medium.take_writes();
        let new = SecretVec::from(&b"new"[..]);
        assert_eq!(opened.change_key(&unlocked, &new, &how, &work).unwrap(), 0);
        let states = states(&before, &medium);
        assert!(states.len() > 4);
        for state in states {
            assert!(opens(&state, &others), "{keys}");
        }
        let after = medium.bytes();
        assert!(opens(&after, &passphrase(b"new")) && !opens(&after, &key), "{keys}");
        // Nor with the header of before.
        let header = if version == LuksVersion::One { 1024 } else { 32 << 10 };
        assert!(!opens(&[&before[..header], &after[header..]].concat(), &key), "{keys}");
        assert!(opens(&[&before[..header], &after[header..]].concat(), &others), "{keys}");
    }
}

#[test]
fn a_header_is_there_once_all_data_are() {
    let mut options = LuksFormatOptions::default();
    options.pbkdf = Some(Pbkdf::Pbkdf2 { hash: "sha256".to_owned(), iterations: 1000 });
    options.offset = Some(2 << 20);
    let plain = Rng::new(3).bytes(3 << 20);
    let work = Work::default();
    for version in [LuksVersion::One, LuksVersion::Two] {
        options.version = version;
        let new = options.prepare(&SecretVec::from(&b"key"[..]), &work).unwrap();
        // A partition with an older volume.
        let mut before = vec![0xa5; 5 << 20];
        before[..6].copy_from_slice(b"LUKS\xba\xbe");
        let medium = Medium::new(before.clone());
        let target = Target::on(Image::over("disk", medium.clone()), Made::Data, &overwrite).unwrap();
        new.encrypt(&image(plain.clone()), &target, None, &work).unwrap();
        let (mut none, mut all) = (0, 0);
        for state in states(&before, &medium) {
            match image(state).luks(None, &passphrase(b"key"), &LuksOptions::default(), &work) {
                Ok(opened) => {
                    let mut found = vec![0; plain.len()];
                    opened.device().read_at(&mut found, 0).unwrap();
                    assert!(found == plain, "{version:?}");
                    all += 1;
                }
                Err(_) => none += 1,
            }
        }
        assert!(none > 5 && all > 0, "{version:?}: {none} without, {all} with a volume");
    }
}
