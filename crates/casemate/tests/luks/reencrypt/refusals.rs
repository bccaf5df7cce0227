//! Reencryptions that are refused, or that can't go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use casemate::blockdev::{Events, MemoryDevice};
use casemate::luks::luks2::reencrypt::{Part, State};
use casemate::luks::{LuksKey, LuksOptions, Protection, ReencryptOptions, ReencryptionState, Volume};
use casemate::{Error, ErrorKind, Image, Providers, SecretVec, Work};
use casemate_testkit::Rng;

use super::medium::{Medium, Notes, bytes_of};
use super::{options, volume};
use crate::images::passphrase;

#[test]
fn work_without_protection_is_not_gone_on_with_where_it_was_cut_off() {
    let (bytes, plaintext) = volume(512, "aes-cbc-essiv:sha256", 180224, 96 << 10);
    let key = passphrase(b"pass");
    let none = options(16384, |options| options.protection = Some(Protection::None));
    let whole = Medium::new(bytes.clone(), None);
    let keys = std::slice::from_ref(&key);
    assert!(whole.volume().reencrypt(keys, &LuksOptions::default(), &none, &Work::default()).unwrap());
    assert!(whole.read(&key, &Work::default()).unwrap() == plaintext);
    let medium = Medium::new(bytes, None);
    let begin =
        options(16384, |options| (options.protection, options.init_only) = (Some(Protection::None), true));
    assert!(!medium.volume().reencrypt(keys, &LuksOptions::default(), &begin, &Work::default()).unwrap());
    medium.set_parts(|len, _| {
        vec![Part { state: State::Hot, range: 0..16384 }, Part { state: State::Old, range: 16384..len }]
    });
    let notes = Notes::default();
    let error = medium.resume(&key, &notes.work()).unwrap_err();
    assert!(error.kind() == ErrorKind::Corrupt && error.text().contains("some of them are lost"), "{error}");
    // What may be noise is an error, and never called data.
    let error = medium.read(&key, &notes.work()).unwrap_err();
    assert!(error.kind() == ErrorKind::Corrupt && error.text().contains("some of them are lost"), "{error}");
    assert!(notes.take().contains("without protection"));
    let image = Image::over("image", medium.data.clone());
    let opened = image.luks(None, &key, &LuksOptions::default(), &Work::default()).unwrap();
    let mut rest = vec![0; plaintext.len() - 16384];
    opened.device().read_at(&mut rest, 16384).unwrap();
    assert!(rest == plaintext[16384..]);
    let mut copy = Vec::new();
    let rescued = opened.rescue_stream(("copy", &mut copy), &Work::default()).unwrap();
    assert!(rescued.lost.len() == 1 && rescued.lost[0] == (0..16384) && copy[16384..] == plaintext[16384..]);
}

#[test]
fn a_reencryption_is_not_repaired_where_somebody_else_writes() {
    let (bytes, _) = volume(512, "aes-cbc-essiv:sha256", 180224, 96 << 10);
    let key = passphrase(b"pass");
    let medium = Medium::new(bytes, None);
    let begin = options(16384, |options| options.init_only = true);
    let keys = std::slice::from_ref(&key);
    assert!(!medium.volume().reencrypt(keys, &LuksOptions::default(), &begin, &Work::default()).unwrap());
    let check = |volume: &mut Volume, recover| {
        volume.check_reencryption(&key, &LuksOptions::default(), recover, &Work::default())
    };
    let image = Image::over("image", medium.data.clone());
    let mut volume = image.luks_volume(None, &Providers::default()).unwrap();
    assert_eq!(volume.reencryption_state().unwrap(), Some(ReencryptionState::Clean));
    let lease = image.lease().unwrap();
    assert!(check(&mut volume, true).unwrap_err().is_busy());
    drop(lease);
    check(&mut volume, true).unwrap();
    // What was read before somebody else went on is no longer so.
    medium.resume(&key, &Work::default()).unwrap();
    assert!(check(&mut volume, true).unwrap_err().is_busy());
}

#[test]
fn what_can_not_be_reencrypted_stays_as_it_is() {
    let key = passphrase(b"pass");
    let (bytes, _) = volume(512, "aes-cbc-essiv:sha256", 180224, (96 << 10) + 512);
    let refused = |keys: &[LuksKey], options: ReencryptOptions, kind: ErrorKind, why: &str| {
        let medium = Medium::new(bytes.clone(), None);
        let error: Error =
            medium.volume().reencrypt(keys, &LuksOptions::default(), &options, &Work::default()).unwrap_err();
        assert!(error.kind() == kind && error.text().contains(why), "{error:?}: {why}");
        assert!(bytes_of(&medium.data) == bytes, "{why}");
    };
    let with = |change: fn(&mut ReencryptOptions)| options(16384, change);
    let keys = std::slice::from_ref(&key);
    refused(&[passphrase(b"wrong")], with(|_| ()), ErrorKind::Mismatch, "does not open");
    refused(&[], with(|_| ()), ErrorKind::Argument, "no key slot holds");
    refused(keys, with(|options| options.resume_only = true), ErrorKind::Argument, "nothing to go on with");
    refused(
        keys,
        with(|options| options.sector_size = Some(4096)),
        ErrorKind::Argument,
        "not a multiple of the sector size",
    );
    refused(keys, with(|options| options.sector_size = Some(513)), ErrorKind::Argument, "sector size 513");
    refused(
        keys,
        with(|options| options.cipher = Some("cipher_null-ecb".into())),
        ErrorKind::Argument,
        "encrypts nothing",
    );
    refused(
        keys,
        with(|options| options.cipher = Some("aes-xts-plain65".into())),
        ErrorKind::Argument,
        "unknown IV mode",
    );
    refused(keys, with(|options| options.key_bits = Some(100)), ErrorKind::Argument, "multiple of 8 bits");
    refused(keys, with(|options| options.resilience_hash = Some("md6".into())), ErrorKind::Argument, "md6");
    refused(
        keys,
        with(|options| options.reduce_device_size = Some(1 << 20)),
        ErrorKind::Argument,
        "no room for data",
    );
    let none = [LuksKey::VolumeKey(SecretVec::new(vec![1; 16]))];
    refused(&none, with(|_| ()), ErrorKind::Argument, "needs passphrases");
}

/// The data have no end of their own, so a window's end leaves data without their key.
#[test]
fn a_window_is_not_taken_for_the_volume() {
    let (key, work) = (passphrase(b"pass"), Work::default());
    let (bytes, _) = volume(512, "aes-cbc-essiv:sha256", 180224, 96 << 10);
    let device = Arc::new(MemoryDevice::new(bytes.clone()));
    let window = |len| Image::over("image", device.clone()).window(0, Some(len)).unwrap();
    let part = || window(bytes.len() as u64 - 4096).luks_volume(None, &Providers::default()).unwrap();
    let run = |mut volume: Volume, options: &ReencryptOptions| {
        volume.reencrypt(std::slice::from_ref(&key), &LuksOptions::default(), options, &work)
    };
    let (usual, allowed) = (
        options(16384, |_| ()),
        options(16384, |options| (options.allow_window, options.init_only) = (true, true)),
    );
    let export = Image::over("header", Arc::new(MemoryDevice::new(vec![0; 1 << 20])));
    for error in [
        run(part(), &usual).unwrap_err(),
        part().decrypt(&key, Some(&export), &LuksOptions::default(), &usual, &work).unwrap_err(),
    ] {
        assert!(error.text().contains("a window that ends 4096 bytes before"), "{error}");
    }
    assert_eq!(part().bytes_left_out(), 4096);
    assert!(bytes_of(&device) == bytes);
    // What is allowed once goes on so, and otherwise not.
    assert!(!run(part(), &allowed).unwrap());
    assert_eq!(part().bytes_left_out(), 0);
    let whole = || window(bytes.len() as u64).luks_volume(None, &Providers::default()).unwrap();
    let error = run(whole(), &usual).unwrap_err();
    assert!(
        error.text().contains("begun with 94208 bytes of data, and there are 98304 bytes now"),
        "{error}"
    );
    assert!(whole().open_reencrypting(&key, &LuksOptions::default(), None, &work).is_err());
    assert!(part().open_reencrypting(&key, &LuksOptions::default(), None, &work).is_ok());
    assert!(run(part(), &usual).unwrap());
}

/// A listener that stops the work after so many bytes.
struct StopsAfter(AtomicU64);

impl Events for StopsAfter {
    fn advance(&self, bytes: u64) -> Result<(), Error> {
        let left = self.0.load(Ordering::Relaxed).saturating_sub(bytes);
        self.0.store(left, Ordering::Relaxed);
        match left {
            0 => Err(Error::new(ErrorKind::Interrupted, "stopped")),
            _ => Ok(()),
        }
    }
}

/// Between two zones nothing is hot: samples tell another device of the same length.
#[test]
fn work_is_not_gone_on_with_on_another_device_of_the_same_length() {
    const HEADER: usize = 180_224;
    let (bytes, plaintext) = volume(512, "aes-cbc-essiv:sha256", HEADER as u64, 96 << 10);
    let (key, usual) = (passphrase(b"pass"), options(16384, |_| ()));
    let keys = std::slice::from_ref(&key);
    let unlocking = LuksOptions::default();
    let device = |bytes: &[u8]| Arc::new(MemoryDevice::new(bytes.to_vec()));
    for (decrypts, zones) in [(false, 0), (false, 1), (false, 3), (true, 0), (true, 2)] {
        let mut data = device(&bytes);
        let mut header = device(&bytes[..HEADER]);
        let stops = StopsAfter(AtomicU64::new(if zones == 0 { 1 << 40 } else { zones * 16384 - 8192 }));
        let work = Work { events: &stops, ..Work::default() };
        let begin = options(16384, |options| options.init_only = zones == 0);
        let open = |header: &Arc<MemoryDevice>, data: &Arc<MemoryDevice>| {
            let header = Image::over("header", header.clone());
            Image::over("data", data.clone()).luks_volume(Some(&header), &Providers::default()).unwrap()
        };
        let begun = match decrypts {
            true => {
                header = device(&[0; 1 << 20]);
                let export = Image::over("header", header.clone());
                let whole = Image::over("data", data.clone()).luks_volume(None, &work.providers).unwrap();
                whole.decrypt(&key, Some(&export), &unlocking, &begin, &work)
            }
            false => {
                // The header is nowhere else.
                let mut apart = bytes.clone();
                apart[..HEADER].fill(0);
                data = device(&apart);
                open(&header, &data).reencrypt(keys, &unlocking, &begin, &work)
            }
        };
        assert!(match zones {
            0 => !begun.unwrap(),
            _ => begun.unwrap_err().is_interrupt(),
        });
        let what = format!("{decrypts} {zones}");
        let before = bytes_of(&header);
        let noise = Rng::new(zones + 1).bytes(bytes.len());
        let other = device(&noise);
        let error = open(&header, &other).reencrypt(keys, &unlocking, &usual, &Work::default()).unwrap_err();
        assert!(error.text().contains("spread over the data is as it was"), "{what}: {error}");
        assert!(bytes_of(&other) == noise && bytes_of(&header) == before, "{what}");
        // The contents of the right one may change, all but some.
        let mut changed = bytes_of(&data);
        let end = changed.len();
        changed[end - (32 << 10)..].copy_from_slice(&noise[..32 << 10]);
        let data = device(&changed);
        assert!(
            open(&header, &data).reencrypt(keys, &unlocking, &usual, &Work::default()).unwrap(),
            "{what}"
        );
        let first = match decrypts {
            true => bytes_of(&data)[..32 << 10].to_vec(),
            false => {
                let header = Image::over("header", header.clone());
                let volume = Image::over("data", data.clone());
                let opened = volume.luks(Some(&header), &key, &unlocking, &Work::default()).unwrap();
                let mut first = vec![0; 32 << 10];
                opened.device().read_at(&mut first, 0).unwrap();
                first
            }
        };
        assert!(first == plaintext[..32 << 10], "{what}");
    }
}
