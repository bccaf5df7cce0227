//! Work that was cut off, on a device that somebody has changed or put back since.

use std::sync::{Arc, Mutex};

use casemate::blockdev::{BlockDevice, MemoryDevice};
use casemate::luks::luks2::reencrypt::Mode;
use casemate::luks::{LuksFormatOptions, LuksOptions};
use casemate::{ErrorKind, Image, Providers, SecretVec, Work};
use casemate_testkit::Rng;

use super::disk::Disk;
use super::medium::{Medium, bytes_of};
use super::{cheap, options, volume};
use crate::images::passphrase;

/// Bytes of a disk as a process that was killed has left them.
fn bytes(disk: &Disk) -> Vec<u8> {
    let mut bytes = vec![0; disk.size() as usize];
    disk.read_at(&mut bytes, 0).unwrap();
    bytes
}

/// A decryption wipes nothing: what it leaves behind the data is ciphertext without a key, and by then others may have written there.
#[test]
fn the_end_of_a_decryption_leaves_the_data_alone() {
    let key = passphrase(b"pass");
    let (whole, plaintext) = volume(512, "aes-cbc-essiv:sha256", 131072, 300 << 10);
    let decrypt = options(16384, |options| options.mode = Some(Mode::Decrypt));
    let mut endings = 0;
    for operations in 20.. {
        let power = Arc::new(Mutex::new(operations));
        let (data, header) = (Disk::new(whole.clone(), &power), Disk::new(vec![0; 131072], &power));
        let (image, export) = (Image::over("image", data.clone()), Image::over("header", header.clone()));
        let begun = image.luks_volume(None, &Providers::default()).unwrap();
        let result = begun.decrypt(&key, Some(&export), &LuksOptions::default(), &decrypt, &Work::default());
        *power.lock().unwrap() = i64::MAX;
        if result.is_ok() {
            break;
        }
        let ending = Medium::new(bytes(&data), Some(bytes(&header)));
        if !ending.header.as_ref().is_some_and(|header| bytes_of(header).starts_with(b"LUKS")) {
            continue;
        }
        if !ending.volume().is_ending() {
            continue;
        }
        endings += 1;
        let len = plaintext.len();
        assert!(bytes_of(&ending.data)[..len] == plaintext);
        ending.data.write_at(&[9; 4096], ending.data.size() - 4096).unwrap();
        ending.data.write_at(&[8; 4096], len as u64).unwrap();
        let before = bytes_of(&ending.data);
        assert!(ending.resume(&key, &Work::default()).unwrap());
        assert!(bytes_of(&ending.data) == before, "{operations}");
        // The device is what it was before the work.
        let back = Medium::new(whole.clone(), Some(bytes(&header)));
        let error = back.resume(&key, &Work::default()).unwrap_err();
        assert!(error.text().contains("an earlier copy of the device"), "{error}");
    }
    assert!(endings > 3, "{endings}");
}

/// Areas of keys, from byte 32768 on, that can't be read for a while.
struct Unreadable(Arc<MemoryDevice>);

impl BlockDevice for Unreadable {
    fn below(&self) -> Option<&dyn BlockDevice> {
        None
    }

    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> casemate::blockdev::Result<()> {
        match offset + buf.len() as u64 > 32768 {
            true => Err(std::io::Error::other("a bad sector").into()),
            false => self.0.read_at(buf, offset),
        }
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> casemate::blockdev::Result<()> {
        self.0.write_at(buf, offset)
    }

    fn flush(&self) -> casemate::blockdev::Result<()> {
        self.0.flush()
    }
}

/// A key that can't be read is none that is gone: nothing is wiped without a proof of the device.
#[test]
fn the_end_of_a_decryption_takes_no_bad_sector_for_a_key_that_is_gone() {
    let key = passphrase(b"pass");
    let (whole, _) = volume(512, "aes-cbc-essiv:sha256", 131072, 300 << 10);
    let decrypt = options(16384, |options| options.mode = Some(Mode::Decrypt));
    let mut refused = 0;
    for operations in 20.. {
        let power = Arc::new(Mutex::new(operations));
        let (data, header) = (Disk::new(whole.clone(), &power), Disk::new(vec![0; 131072], &power));
        let (image, export) = (Image::over("image", data.clone()), Image::over("header", header.clone()));
        let begun = image.luks_volume(None, &Providers::default()).unwrap();
        let result = begun.decrypt(&key, Some(&export), &LuksOptions::default(), &decrypt, &Work::default());
        *power.lock().unwrap() = i64::MAX;
        if result.is_ok() {
            break;
        }
        let before = bytes(&header);
        if !before.starts_with(b"LUKS")
            || !Medium::new(bytes(&data), Some(before.clone())).volume().is_ending()
        {
            continue;
        }
        let apart = Arc::new(MemoryDevice::new(before.clone()));
        let bad = Image::over("header", Arc::new(Unreadable(apart.clone())));
        // Another device, which no key could be proven for.
        let other = Image::over("image", Arc::new(MemoryDevice::new(Rng::new(3).bytes(whole.len()))));
        let mut volume = other.luks_volume(Some(&bad), &Providers::default()).unwrap();
        let resume = options(16384, |options| options.resume_only = true);
        let keys = std::slice::from_ref(&key);
        let error = volume.reencrypt(keys, &LuksOptions::default(), &resume, &Work::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert!(bytes_of(&apart) == before, "{operations}");
        refused += 1;
    }
    assert!(refused > 3, "{refused}");
}

/// Of the place that plain data were moved to only what is still their copy is wiped later: it belongs to the volume.
#[test]
fn the_end_of_an_encryption_wipes_only_what_it_has_moved() {
    const ROOM: usize = 104 << 10;
    let mut format = LuksFormatOptions::default();
    (format.cipher, format.key_bits) = ("aes-cbc-essiv:sha256".to_owned(), Some(128));
    format.pbkdf = Some(cheap());
    let (pass, key) = (SecretVec::from(&b"pass"[..]), passphrase(b"pass"));
    let plaintext = Rng::new(5).bytes(272 << 10);
    let plain = [&plaintext[..], &vec![0; 2 * ROOM]].concat();
    let encrypt = options(16384, |options| options.reduce_device_size = Some(2 * ROOM as u64));
    let mut endings = 0;
    for operations in 20.. {
        let power = Arc::new(Mutex::new(operations));
        let data = Disk::new(plain.clone(), &power);
        let image = Image::over("image", data.clone());
        let result = image.luks_encrypt(None, &pass, &format, &encrypt, &Work::default());
        *power.lock().unwrap() = i64::MAX;
        if result.is_ok() {
            break;
        }
        let ending = Medium::new(bytes(&data), None);
        if !bytes_of(&ending.data).starts_with(b"LUKS") || !ending.volume().is_ending() {
            continue;
        }
        // Where the first sector of the data was moved to.
        let now = bytes_of(&ending.data);
        let Some(at) = now.chunks(512).position(|sector| *sector == plaintext[..512]) else { continue };
        endings += 1;
        ending.data.write_at(&[9; 1024], at as u64 * 512 + 2048).unwrap();
        assert!(ending.resume(&key, &Work::default()).unwrap());
        let now = bytes_of(&ending.data);
        assert!(now[at * 512 + 2048..][..1024] == [9; 1024], "{operations}");
        let is_left = |sector: &[u8]| plaintext.chunks(512).any(|plain| plain == sector);
        assert!(!now.chunks(512).any(is_left), "{operations}: plain data are left");
        assert!(ending.read(&key, &Work::default()).unwrap()[..plaintext.len()] == plaintext);
    }
    assert!(endings > 0, "{endings}");
}

/// Blocks that were transformed never become what they were before: then the device was put back, and its header was not.
#[test]
fn a_device_that_was_put_back_is_not_gone_on_with() {
    let key = passphrase(b"pass");
    const HEADER: usize = 32768 + 2 * 65536 + 16384;
    let (whole, plaintext) = volume(512, "aes-cbc-essiv:sha256", HEADER as u64, 300 << 10);
    let mut begun = vec![7; HEADER];
    begun.extend(&whole[HEADER..]);
    let reencrypt = options(16384, |_| ());
    let mut told = 0;
    for operations in (20..).step_by(7) {
        let power = Arc::new(Mutex::new(operations));
        let (data, header) = (Disk::new(begun.clone(), &power), Disk::new(whole[..HEADER].to_vec(), &power));
        let (image, apart) = (Image::over("image", data.clone()), Image::over("header", header.clone()));
        let mut work = image.luks_volume(Some(&apart), &Providers::default()).unwrap();
        let keys = std::slice::from_ref(&key);
        let result = work.reencrypt(keys, &LuksOptions::default(), &reencrypt, &Work::default());
        drop(work);
        *power.lock().unwrap() = i64::MAX;
        match result {
            Ok(done) => {
                assert!(done);
                break;
            }
            Err(error) => assert!(error.kind() == ErrorKind::Io, "{error}"),
        }
        let medium = Medium::new(begun.clone(), Some(bytes(&header)));
        match medium.resume(&key, &Work::default()) {
            Err(error) if error.text().contains("an earlier copy of the device") => {
                told += 1;
                assert!(bytes_of(&medium.data) == begun);
            }
            _ => {}
        }
        let right = Medium::new(bytes(&data), Some(bytes(&header)));
        if right.is_reencrypting() {
            assert!(right.resume(&key, &Work::default()).unwrap());
            assert!(right.read(&key, &Work::default()).unwrap() == plaintext, "{operations}");
        }
    }
    assert!(told > 5, "{told}");
}
