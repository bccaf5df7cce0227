//! Reencryptions, with the power cut at any operation, any number of times.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use casemate::blockdev::{BlockDevice, Result};
use casemate::luks::luks2::CopyState;
use casemate::luks::luks2::reencrypt::Mode;
use casemate::luks::{Header, LuksFormatOptions, LuksOptions, Protection, ReencryptOptions};
use casemate::{Advice, ErrorKind, Image, Providers, SecretVec, Work};
use casemate_testkit::{Rng, slow_tests};

use super::disk::Disk;
use super::medium::{Medium, OTHERS, bytes_of};
use super::{cheap, options, volume, volume_with_end};
use crate::images::{image, passphrase};

/// Ends that were cut off before their last step.
static ENDINGS: AtomicUsize = AtomicUsize::new(0);

/// Cuts the work until it is done, each time after some operations, and reads what is there each time.
fn survive(
    what: &str,
    seed: u64,
    disks: &mut [Vec<u8>],
    options: &ReencryptOptions,
    plaintext: &[u8],
) -> usize {
    let (mut rng, key) = (Rng::new(seed), passphrase(b"pass"));
    let mut states = 0;
    for attempt in 0..1000 {
        // The first attempts are short, so that several failures hit one run.
        let power = Arc::new(Mutex::new(rng.below(12 + attempt * 6) as i64));
        let media: Vec<Arc<Disk>> = disks.iter().map(|bytes| Disk::new(bytes.clone(), &power)).collect();
        let header = media.get(1).map(|header| Image::over("header", header.clone()));
        let open =
            || Image::over("image", media[0].clone()).luks_volume(header.as_ref(), &Providers::default());
        let work = || {
            let mut volume = open()?;
            volume.reencrypt(std::slice::from_ref(&key), &LuksOptions::default(), options, &Work::default())
        };
        let result = work();
        *power.lock().unwrap() = i64::MAX;
        for (bytes, disk) in disks.iter_mut().zip(&media) {
            *bytes = disk.after_power_failure(&mut rng);
        }
        states += 1;
        let medium = Medium::new(disks[0].clone(), disks.get(1).cloned());
        let read = medium.read(&key, &Work::default());
        let read = read.unwrap_or_else(|error| panic!("{what}, seed {seed}, attempt {attempt}: {error}"));
        assert!(read[..plaintext.len()] == *plaintext, "{what}, seed {seed}, attempt {attempt}: other data");
        if rng.below(8) == 0 {
            let what = format!("{what}, seed {seed}, attempt {attempt}");
            OTHERS.fetch_add(
                medium.is_finished_by_cryptsetup(&key, plaintext, &what).into(),
                Ordering::Relaxed,
            );
        }
        match result {
            Ok(true) => return states,
            Err(error) if error.kind() == ErrorKind::Io && !medium.is_reencrypting() => {
                // Before the first header, or behind the last one.
                let volume = medium.volume();
                let Header::Luks2(header) = volume.header() else { panic!() };
                if header.metadata.digests().iter().all(|digest| digest.id != 0) {
                    let what = format!("{what}, seed {seed}, attempt {attempt}");
                    is_the_same_after_the_same_again(&medium, options, plaintext, &what);
                    return states;
                }
            }
            Err(error) if error.kind() == ErrorKind::Io => {}
            other => panic!("{what}, seed {seed}, attempt {attempt}: {other:?}"),
        }
    }
    panic!("{what}, seed {seed}: never done");
}

/// Does the same again where the work was cut off behind the last header: the data stay what they are, to their last byte.
fn is_the_same_after_the_same_again(
    medium: &Medium,
    options: &ReencryptOptions,
    plaintext: &[u8],
    what: &str,
) {
    let (key, mut volume) = (passphrase(b"pass"), medium.volume());
    let is_ending = volume.begun().unwrap().is_some();
    if is_ending {
        // A repair would forget what is still to be wiped.
        let image = Image::over("image", medium.header.as_ref().unwrap_or(&medium.data).clone());
        let error = image.luks_repair(&Work::default()).unwrap_err();
        assert_eq!(error.advice(), [Advice::FinishReencryption], "{what}: {error}");
        ENDINGS.fetch_add(1, Ordering::Relaxed);
    }
    let again =
        volume.reencrypt(std::slice::from_ref(&key), &LuksOptions::default(), options, &Work::default());
    match again {
        Ok(done) => assert!(done, "{what}"),
        // A copy that is torn does not tell what was before.
        Err(error) => {
            assert!(
                !is_ending && error.text().contains("one of the two headers is invalid"),
                "{what}: {error}"
            );
        }
    }
    assert!(
        medium.read(&key, &Work::default()).unwrap() == plaintext,
        "{what}: other data after the same again"
    );
    assert!(!is_ending || medium.volume().begun().unwrap().is_none(), "{what}: it never ends");
}

#[test]
fn the_power_may_fail_at_any_operation_of_a_reencryption() {
    let journal = |options: &mut ReencryptOptions| options.protection = Some(Protection::Journal);
    let wide = |options: &mut ReencryptOptions| {
        (options.cipher, options.key_bits) = (Some("aes-xts-plain64".to_owned()), Some(256));
        options.sector_size = Some(4096);
    };
    let shift = |options: &mut ReencryptOptions| options.reduce_device_size = Some(32768);
    const CBC: &str = "aes-cbc-essiv:sha256";
    const XTS: &str = "aes-xts-plain64";
    let cases = [
        ("checksums", CBC, 512, 96 << 10, options(16384, |_| ())),
        ("checksums of sectors", CBC, 512, (80 << 10) + 512, options(8192, |_| ())),
        ("checksums, wide", XTS, 4096, 96 << 10, options(16384, wide)),
        ("checksums, wide and chained", CBC, 4096, 96 << 10, options(16384, |_| ())),
        ("a journal", CBC, 512, 96 << 10, options(65536, journal)),
        ("a shift", CBC, 512, 128 << 10, options(16384, shift)),
    ];
    for (what, cipher, sector_size, len, options) in cases {
        let slot = if cipher == XTS { 131072 } else { 65536 };
        let reduce = options.reduce_device_size.unwrap_or(0) as usize;
        let (bytes, mut plaintext) =
            volume_with_end(sector_size, cipher, 32768 + 2 * slot + 16384, (len, reduce));
        plaintext.truncate(len - reduce);
        let mut states = 0;
        for seed in 0..if slow_tests() { 400 } else { 8 } {
            states += survive(what, seed, &mut [bytes.clone()], &options, &plaintext);
        }
        assert!(states > 16, "{what}: {states}");
        println!(
            "{what}: {states} states, {} of all gone on with by cryptsetup",
            OTHERS.load(Ordering::Relaxed)
        );
    }
    assert!(ENDINGS.load(Ordering::Relaxed) > 0, "no end was cut off");
}

/// The device gives up bytes for the header once, whichever write is the last one before the same command again.
#[test]
fn the_same_again_after_any_operation_gives_up_no_more_bytes() {
    let options = options(16384, |options| options.reduce_device_size = Some(32768));
    let offset = 32768 + 2 * 65536 + 16384;
    let (bytes, mut plaintext) = volume_with_end(512, "aes-cbc-essiv:sha256", offset, (64 << 10, 32 << 10));
    plaintext.truncate(32 << 10);
    let key = passphrase(b"pass");
    let run = |image: &Image| {
        let mut volume = image.luks_volume(None, &Providers::default())?;
        volume.reencrypt(std::slice::from_ref(&key), &LuksOptions::default(), &options, &Work::default())
    };
    let mut done = 0;
    for operations in 0.. {
        let power = Arc::new(Mutex::new(operations));
        let disk = Disk::new(bytes.clone(), &power);
        let first = run(&Image::over("image", disk.clone()));
        *power.lock().unwrap() = i64::MAX;
        if first.is_ok() {
            assert!(operations > 20);
            break;
        }
        // The process was killed: what it had written is there.
        let mut now = vec![0; bytes.len()];
        disk.read_at(&mut now, 0).unwrap();
        let medium = Medium::new(now, None);
        // Behind the last write, which may be whole though it was cut, and its flush only the exit is left.
        let Header::Luks2(header) = medium.volume().header().clone() else { panic!() };
        let is_whole = header.copies().iter().all(|copy| *copy == CopyState::Valid(header.seqid));
        if is_whole && header.metadata.digests().iter().all(|digest| digest.id != 0) {
            done += u32::from(medium.volume().begun().unwrap().is_none());
            assert!(done <= 2 && medium.read(&key, &Work::default()).unwrap() == plaintext, "{operations}");
            continue;
        }
        match run(&Image::over("image", medium.data.clone())) {
            Ok(done) => assert!(done, "{operations}"),
            Err(error) => assert!(error.text().contains("one of the two headers is invalid"), "{error}"),
        }
        assert!(medium.read(&key, &Work::default()).unwrap() == plaintext, "{operations}");
    }
}

/// A device that becomes a volume, or plain data, and its header if that goes to a file of its own.
struct Change {
    data: Vec<u8>,
    header: Option<Vec<u8>>,
    /// How often a new file is flushed before it gets its name.
    flushes: u32,
    is_named: bool,
}

impl Change {
    /// Cuts the work until it is done. `begin` is given the data and the header's file, and whether that is there.
    fn survive(
        mut self,
        what: &str,
        seed: u64,
        plaintext: &[u8],
        begin: impl Fn(&Image, Option<&Image>, bool) -> Result<bool>,
    ) -> usize {
        let (mut rng, key) = (Rng::new(seed), passphrase(b"pass"));
        let resume = |data: &Image, header: Option<&Image>, options: &ReencryptOptions| {
            let mut volume = data.luks_volume(header, &Providers::default())?;
            volume.reencrypt(std::slice::from_ref(&key), &LuksOptions::default(), options, &Work::default())
        };
        let options = options(16384, |options| options.resume_only = true);
        for attempt in 0..1000 {
            let power = Arc::new(Mutex::new(rng.below(12 + attempt * 6) as i64));
            let data = Disk::new(self.data.clone(), &power);
            let header = self.header.clone().map(|bytes| Disk::new(bytes, &power));
            let image = Image::over("image", data.clone());
            let apart = header.clone().map(|header| Image::over("header", header));
            let is_begun = self.volume().is_some_and(|medium| medium.is_reencrypting());
            let result = match is_begun {
                true => resume(&image, apart.as_ref(), &options),
                false => begin(&image, apart.as_ref(), self.is_named),
            };
            *power.lock().unwrap() = i64::MAX;
            self.data = data.after_power_failure(&mut rng);
            if let Some(header) = header {
                self.is_named |= header.flushes.load(Ordering::Relaxed) >= self.flushes;
                let bytes = header.after_power_failure(&mut rng);
                self.header = Some(if self.is_named { bytes } else { vec![0; bytes.len()] });
            }
            let fail = |why: &str| panic!("{what}, seed {seed}, attempt {attempt}: {why}");
            if let Some(medium) = self.volume()
                && (medium.is_reencrypting() || medium.volume().is_moving())
            {
                match medium.read(&key, &Work::default()) {
                    Ok(read)
                        if read[..plaintext.len()] == *plaintext
                            && medium.is_reencrypting()
                            && rng.below(8) == 0 =>
                    {
                        let what = format!("{what}, seed {seed}, attempt {attempt}");
                        let is_it = medium.is_finished_by_cryptsetup(&key, plaintext, &what);
                        OTHERS.fetch_add(is_it.into(), Ordering::Relaxed);
                    }
                    Ok(read) if read[..plaintext.len()] == *plaintext => {}
                    Ok(_) => fail("it reads as something else"),
                    Err(error) => fail(&error.to_string()),
                }
            }
            match result {
                Ok(true) => {
                    assert!(
                        self.volume().unwrap().end(&key, plaintext.len()) == plaintext,
                        "{what}, seed {seed}"
                    );
                    return attempt as usize + 1;
                }
                // Behind the last header.
                Err(error) if error.kind() == ErrorKind::Io && is_begun => {
                    let medium = self.volume().unwrap();
                    if !medium.is_reencrypting() {
                        assert!(medium.end(&key, plaintext.len()) == plaintext, "{what}, seed {seed}");
                        if medium.volume().begun().unwrap().is_some() {
                            assert!(medium.resume(&key, &Work::default()).unwrap());
                            assert!(medium.volume().begun().unwrap().is_none());
                            assert!(medium.end(&key, plaintext.len()) == plaintext, "{what}, seed {seed}");
                        }
                        return attempt as usize + 1;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Io => {
                    let is_done =
                        self.volume().is_some_and(|medium| !medium.is_reencrypting() && medium.is_changed());
                    if is_done {
                        assert!(self.volume().unwrap().end(&key, plaintext.len()) == plaintext);
                        return attempt as usize + 1;
                    }
                }
                other => fail(&format!("{other:?}")),
            }
        }
        panic!("{what}, seed {seed}: never done");
    }

    /// The volume, if its header is whole.
    fn volume(&self) -> Option<Medium> {
        let header = self.header.clone().filter(|_| self.is_named || self.flushes == 0);
        if self.header.is_some() && header.is_none() {
            return None;
        }
        let first = image(header.clone().unwrap_or_else(|| self.data.clone()));
        first.luks_volume(None, &Providers::default()).ok()?;
        Some(Medium::new(self.data.clone(), header))
    }
}

#[test]
fn the_power_may_fail_at_any_operation_of_an_encryption() {
    let mut format = LuksFormatOptions::default();
    (format.cipher, format.key_bits) = ("aes-cbc-essiv:sha256".to_owned(), Some(128));
    format.pbkdf = Some(cheap());
    let pass = SecretVec::from(&b"pass"[..]);
    let plaintext = Rng::new(5).bytes(272 << 10);
    let mut states = 0;
    for seed in 0..if slow_tests() { 400 } else { 8 } {
        let reduce = 2 * (104 << 10);
        let here = options(16384, |options| options.reduce_device_size = Some(reduce));
        let data = [&plaintext[..], &vec![0; reduce as usize]].concat();
        let change = Change { data, header: None, flushes: 0, is_named: true };
        states += change.survive("a header before the data", seed, &plaintext, |image, _, _| {
            image.luks_encrypt(None, &pass, &format, &here, &Work::default())
        });
        format.offset = Some(128 << 10);
        let change =
            Change { data: plaintext.clone(), header: Some(vec![0; 128 << 10]), flushes: 3, is_named: false };
        states += change.survive("a header apart", seed, &plaintext, |image, header, _| {
            image.luks_encrypt(header, &pass, &format, &options(16384, |_| ()), &Work::default())
        });
    }
    assert!(states > 30, "{states}");
    println!(
        "encryption: {states} states, {} of all gone on with by cryptsetup",
        OTHERS.load(Ordering::Relaxed)
    );
}

/// An encryption that was cut off, and then another one: it is refused and the first one goes on, or the data are whole.
#[test]
fn another_encryption_after_any_operation_is_refused_or_loses_nothing() {
    const ROOM: u64 = 104 << 10;
    let mut format = LuksFormatOptions::default();
    (format.cipher, format.key_bits) = ("aes-cbc-essiv:sha256".to_owned(), Some(128));
    format.pbkdf = Some(cheap());
    let (pass, key) = (SecretVec::from(&b"pass"[..]), passphrase(b"pass"));
    let plaintext = Rng::new(7).bytes(272 << 10);
    let bytes = [&plaintext[..], &vec![0; 6 * ROOM as usize]].concat();
    let reduce = |len, offset| {
        options(16384, |options| (options.reduce_device_size, options.offset) = (Some(len), offset))
    };
    let first = reduce(4 * ROOM, None);
    let others = [
        Some(reduce(2 * ROOM, None)),
        Some(reduce(6 * ROOM, None)),
        Some(reduce(4 * ROOM, Some(ROOM))),
        None,
    ];
    let run = |data: &Image, options: &ReencryptOptions| {
        data.luks_encrypt(None, &pass, &format, options, &Work::default())
    };
    let (mut rng, mut refused) = (Rng::new(1), 0);
    for operations in 0.. {
        let power = Arc::new(Mutex::new(operations));
        let disk = Disk::new(bytes.clone(), &power);
        let done = run(&Image::over("image", disk.clone()), &first);
        *power.lock().unwrap() = i64::MAX;
        let mut killed = vec![0; bytes.len()];
        disk.read_at(&mut killed, 0).unwrap();
        for now in [killed, disk.after_power_failure(&mut rng), disk.after_power_failure(&mut rng)] {
            if image(now.clone()).luks_volume(None, &Providers::default()).is_ok() {
                continue;
            }
            for (k, other) in others.iter().enumerate() {
                let what = format!("{operations} operations, then command {k}");
                let header = other.is_none().then(|| vec![0; 128 << 10]);
                let medium = Medium::new(now.clone(), header);
                let data = Image::over("image", medium.data.clone());
                let result = match (other, &medium.header) {
                    (Some(other), _) => run(&data, other),
                    (None, apart) => {
                        let apart = apart.clone().map(|apart| Image::over("header", apart));
                        let mut format = format.clone();
                        format.offset = Some(128 << 10);
                        let options = options(16384, |_| ());
                        data.luks_encrypt(apart.as_ref(), &pass, &format, &options, &Work::default())
                    }
                };
                let medium = match result {
                    Ok(done) => {
                        assert!(done, "{what}");
                        medium
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Argument, "{what}: {error}");
                        assert!(bytes_of(&medium.data) == now, "{what}: changed, and refused");
                        refused += u32::from(error.advice() == [Advice::EncryptAgain(425_984, 212_992)]);
                        assert!(run(&data, &first).unwrap(), "{what}");
                        Medium::new(bytes_of(&medium.data), None)
                    }
                };
                let read = medium.read(&key, &Work::default()).unwrap();
                assert!(read.starts_with(&plaintext), "{what}: other data");
            }
        }
        match done {
            Ok(_) => break,
            Err(error) => {
                let is_begun = disk.begins_with(b"LUKS");
                let is_whole = Image::over("image", disk).luks_volume(None, &Providers::default()).is_ok();
                let says = error.advice().contains(&Advice::EncryptAgain(425_984, 212_992));
                assert!(says || !is_begun || is_whole, "{operations}: {error}");
            }
        }
    }
    assert!(refused > 8, "{refused}");
}

/// A work goes on with the options that it was begun with, where the header gets less than half of what is given up.
#[test]
fn an_encryption_with_less_room_for_the_header_is_completed_by_the_same_again() {
    let mut format = LuksFormatOptions::default();
    (format.cipher, format.key_bits) = ("aes-cbc-essiv:sha256".to_owned(), Some(128));
    format.pbkdf = Some(cheap());
    let (pass, key) = (SecretVec::from(&b"pass"[..]), passphrase(b"pass"));
    let plaintext = Rng::new(8).bytes(272 << 10);
    let bytes = [&plaintext[..], &vec![0; 416 << 10]].concat();
    let here = options(16384, |options| {
        (options.reduce_device_size, options.offset) = (Some(416 << 10), Some(104 << 10));
    });
    for operations in 0.. {
        let power = Arc::new(Mutex::new(operations));
        let disk = Disk::new(bytes.clone(), &power);
        let image = Image::over("image", disk.clone());
        let run = || image.luks_encrypt(None, &pass, &format, &here, &Work::default());
        let done = run();
        *power.lock().unwrap() = i64::MAX;
        if done.is_ok() || image.luks_volume(None, &Providers::default()).is_ok() {
            assert!(operations > 8);
            break;
        }
        assert!(run().unwrap(), "{operations}");
        let mut now = vec![0; bytes.len()];
        disk.read_at(&mut now, 0).unwrap();
        assert!(Medium::new(now, None).read(&key, &Work::default()).unwrap().starts_with(&plaintext));
    }
}

/// Bytes at the end are given up if they are zeros, or if a file system says that it ends before them.
#[test]
fn an_end_that_may_be_in_use_is_not_given_up() {
    let mut format = LuksFormatOptions::default();
    (format.cipher, format.key_bits) = ("aes-cbc-essiv:sha256".to_owned(), Some(128));
    format.pbkdf = Some(cheap());
    let pass = SecretVec::from(&b"pass"[..]);
    let here = options(16384, |options| options.reduce_device_size = Some(208 << 10));
    for used in [(480 << 10) - 1, (480 << 10) - 4096, 272 << 10] {
        let mut bytes = [Rng::new(9).bytes(272 << 10), vec![0; 208 << 10]].concat();
        bytes[used] = 1;
        let medium = Medium::new(bytes.clone(), None);
        let data = Image::over("image", medium.data.clone());
        let error = data.luks_encrypt(None, &pass, &format, &here, &Work::default()).unwrap_err();
        assert!(error.text().contains("are not all zeros"), "{used}: {error}");
        assert!(bytes_of(&medium.data) == bytes);
    }
}

/// A secondary header of another volume that lies in the data would be taken for the new one's once the first sector is written.
#[test]
fn data_with_a_secondary_header_in_them_get_no_header_before_them() {
    let mut format = LuksFormatOptions::default();
    (format.cipher, format.key_bits) = ("aes-cbc-essiv:sha256".to_owned(), Some(128));
    format.pbkdf = Some(cheap());
    let pass = SecretVec::from(&b"pass"[..]);
    let here = options(16384, |options| options.reduce_device_size = Some(208 << 10));
    let (mut bytes, _) = volume(512, "aes-cbc-essiv:sha256", 32768 + 2 * 65536 + 16384, 272 << 10);
    bytes[..16384].fill(0);
    bytes[..4].copy_from_slice(b"PK\x03\x04");
    bytes.resize(bytes.len() + (208 << 10), 0);
    let medium = Medium::new(bytes.clone(), None);
    let data = Image::over("image", medium.data.clone());
    let error = data.luks_encrypt(None, &pass, &format, &here, &Work::default()).unwrap_err();
    assert!(error.text().contains("secondary header of an earlier LUKS2 volume"), "{error}");
    assert!(bytes_of(&medium.data) == bytes);
}

#[test]
fn the_power_may_fail_at_any_operation_of_a_decryption() {
    let key = passphrase(b"pass");
    let (bytes, plaintext) = volume(512, "aes-cbc-essiv:sha256", 131072, 300 << 10);
    let mut states = 0;
    for seed in 0..if slow_tests() { 400 } else { 8 } {
        for journal in [false, true] {
            let options =
                options(16384, |options| options.protection = journal.then_some(Protection::Journal));
            let change =
                Change { data: bytes.clone(), header: Some(vec![0; 131072]), flushes: 3, is_named: false };
            states +=
                change.survive("a header before the data", seed, &plaintext, |image, header, is_named| {
                    let volume = image.luks_volume(header.filter(|_| is_named), &Providers::default())?;
                    let export = header.filter(|_| !is_named);
                    volume.decrypt(&key, export, &LuksOptions::default(), &options, &Work::default())
                });
        }
        let head = bytes[..131072].to_vec();
        let mut data = vec![7; 131072];
        data.extend(&bytes[131072..]);
        let change = Change { data, header: Some(head), flushes: 0, is_named: true };
        states += change.survive("a header apart", seed, &plaintext, |image, header, _| {
            let volume = image.luks_volume(header, &Providers::default())?;
            volume.decrypt(&key, None, &LuksOptions::default(), &options(16384, |_| ()), &Work::default())
        });
    }
    assert!(states > 30, "{states}");
    println!(
        "decryption: {states} states, {} of all gone on with by cryptsetup",
        OTHERS.load(Ordering::Relaxed)
    );
}

/// While the first data are copied over the header before them, the data can be read, and nobody changes them: the copy would be old.
#[test]
fn data_that_are_being_moved_take_no_writes() {
    let (key, unlocking, providers) = (passphrase(b"pass"), LuksOptions::default(), Providers::default());
    let (bytes, plaintext) = volume(512, "aes-cbc-essiv:sha256", 131072, 300 << 10);
    let (mut rng, mut moving) = (Rng::new(1), 0);
    for operations in 0.. {
        let power = Arc::new(Mutex::new(operations));
        let (data, header) = (Disk::new(bytes.clone(), &power), Disk::new(vec![0; 131072], &power));
        let (image, export) = (Image::over("image", data.clone()), Image::over("header", header.clone()));
        let options = options(16384, |options| options.mode = Some(Mode::Decrypt));
        let work = Work::default();
        let begun = image.luks_volume(None, &providers).unwrap();
        let result = begun.decrypt(&key, Some(&export), &unlocking, &options, &work);
        *power.lock().unwrap() = i64::MAX;
        if result.is_ok() {
            break;
        }
        // Before that the file has no name.
        if header.flushes.load(Ordering::Relaxed) < 3 {
            continue;
        }
        let data = data.after_power_failure(&mut rng);
        let medium = Medium::new(data, Some(header.after_power_failure(&mut rng)));
        if !medium.volume().is_moving() {
            continue;
        }
        moving += 1;
        assert!(medium.read(&key, &work).unwrap() == plaintext);
        let opened = medium.volume().open(&key, &unlocking, &work).unwrap();
        let error = opened.check_writable().unwrap_err();
        assert!(error.to_string().contains("is being reencrypted"), "{error}");
        drop(opened);
        let error = medium.volume().remove_token(0, &work).unwrap_err();
        assert!(error.to_string().contains("requires casemate-move"), "{error}");
        // Whoever can't read the data can't make the code of them.
        let forged = Medium::new(bytes_of(&medium.data), Some(bytes_of(medium.header_device())));
        let Header::Luks2(mut header) = forged.volume().header().clone() else { panic!() };
        let plain = header.metadata.without_moving().unwrap();
        header.metadata = plain.with_moving(&"00".repeat(32)).unwrap();
        header.write(forged.header_device(), &providers, &mut |_| Ok(())).unwrap();
        let before = bytes_of(&forged.data);
        let error = forged.resume(&key, &work).unwrap_err();
        assert!(error.text().contains("Keep the header's file"), "{error}");
        assert!(bytes_of(&forged.data) == before);
        // The same work, or what goes on with whatever was begun.
        match moving % 2 {
            0 => assert!(medium.volume().decrypt(&key, None, &unlocking, &options, &work).unwrap()),
            _ => assert!(medium.resume(&key, &work).unwrap()),
        }
        assert!(medium.end(&key, plaintext.len()) == plaintext, "{operations}");
    }
    assert!(moving > 3, "{moving}");
}
