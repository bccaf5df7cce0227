//! Requests that devices over others pass down.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use casemate::blockdev::{BlockDevice, MemoryDevice, Named, Overlay, OverlayFile, Result, Window};
use casemate::crypt::{CryptDevice, Mapping, Params, SectorCipher};
use casemate::verity::{Fec, FormatOptions, VerityOptions};
use casemate::{Access, Image, Providers, SecretVec, Work};
use casemate_testkit::{Rng, tempdir};

const SIZE: u64 = 1 << 20;

/// A medium that keeps a list of what it was asked.
struct Medium {
    bytes: MemoryDevice,
    asked: Mutex<Vec<(&'static str, Range<u64>)>>,
}

impl Medium {
    fn new() -> Arc<Medium> {
        let bytes = MemoryDevice::new(vec![0; SIZE as usize]);
        Arc::new(Medium { bytes, asked: Mutex::default() })
    }

    fn note(&self, what: &'static str, offset: u64, len: u64) -> Result<()> {
        self.asked.lock().unwrap().push((what, offset..offset + len));
        Ok(())
    }

    /// Requests since the last call.
    fn asked(&self) -> Vec<(&'static str, Range<u64>)> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

impl BlockDevice for Medium {
    fn below(&self) -> Option<&dyn BlockDevice> {
        None
    }

    fn size(&self) -> u64 {
        SIZE
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.bytes.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.note("write", offset, buf.len() as u64)?;
        self.bytes.write_at(buf, offset)
    }

    fn write_from(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.note("write from", offset, buf.len() as u64)?;
        self.bytes.write_at(buf, offset)?;
        // The contents are not needed any more.
        buf.fill(0xa5);
        Ok(())
    }

    fn write_zeroes(&self, offset: u64, len: u64, _: bool) -> Result<()> {
        self.note("zeros", offset, len)?;
        self.bytes.write_zeroes(offset, len, false)
    }

    fn zero_fast(&self, offset: u64, len: u64, _: bool) -> Result<()> {
        self.note("fast zeros", offset, len)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.note("discard", offset, len)
    }

    fn can_discard(&self) -> bool {
        true
    }

    fn flush(&self) -> Result<()> {
        self.note("flush", 0, 0)
    }

    fn forget_cached(&self, offset: u64, len: u64) -> Result<()> {
        self.note("forget", offset, len)
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>> {
        Ok((offset < 8192).then_some(offset.max(4096)..8192))
    }
}

/// Layers that show the bytes below as they are pass everything down as it is, from another place on.
#[test]
fn layers_that_change_no_bytes_pass_everything_down() {
    let check = |name: &str, medium: &Medium, device: &dyn BlockDevice, start: u64| {
        let at = |what, offset: u64, len: u64| vec![(what, start + offset..start + offset + len)];
        device.write_at(&[1; 512], 4096).unwrap();
        assert_eq!(medium.asked(), at("write", 4096, 512), "{name}");
        device.write_from(&mut [1; 512], 4096).unwrap();
        assert_eq!(medium.asked(), at("write from", 4096, 512), "{name}");
        device.write_zeroes(4096, 512, true).unwrap();
        assert_eq!(medium.asked(), at("zeros", 4096, 512), "{name}");
        device.zero_fast(4096, 512, true).unwrap();
        assert_eq!(medium.asked(), at("fast zeros", 4096, 512), "{name}");
        device.discard(4096, 512).unwrap();
        assert_eq!(medium.asked(), at("discard", 4096, 512), "{name}");
        device.forget_cached(4096, 512).unwrap();
        assert_eq!(medium.asked(), at("forget", 4096, 512), "{name}");
        device.flush().unwrap();
        assert_eq!(medium.asked(), [("flush", 0..0)], "{name}");
        assert!(device.can_discard(), "{name}");
        assert_eq!(device.next_data(0).unwrap(), Some(4096 - start..8192 - start), "{name}");
        assert_eq!(device.next_data(8192).unwrap(), None, "{name}");
    };
    let medium = Medium::new();
    check("reference", &medium, &&*medium, 0);
    check("arc", &medium, &Arc::clone(&medium), 0);
    check("box", &medium, &Box::new(&*medium), 0);
    check("name", &medium, &Named::new("image", &*medium), 0);
    check("window", &medium, &Window::new(&*medium, 512, SIZE - 512).unwrap(), 512);
    let nested = Window::new(Named::new("image", Arc::clone(&medium)), 512, SIZE - 512).unwrap();
    check("window of a name", &medium, &nested, 512);
}

/// Layers that make other bytes write zeros as any bytes, call everything data where they can't know, and let what is
/// below be forgotten.
#[test]
fn layers_that_change_bytes_skip_nothing_that_counts() {
    let medium = Medium::new();
    let params = Params::new("aes-xts-plain64".parse().unwrap());
    let key: [u8; 64] = std::array::from_fn(|at| at as u8);
    let cipher = || SectorCipher::new(&params, &key, &Providers::default()).unwrap();
    let crypt = CryptDevice::new(&*medium, cipher()).unwrap();
    crypt.write_from(&mut [1; 512], 1024).unwrap();
    assert_eq!(medium.asked(), [("write from", 1024..1536)]);
    // More than are written at a time: what the medium leaves in the buffer is none of them.
    crypt.write_zeroes(4096, 600 << 10, true).unwrap();
    assert!(medium.asked().iter().all(|(what, _)| *what == "write from"));
    let mut zeros = vec![1; 600 << 10];
    crypt.read_at(&mut zeros, 4096).unwrap();
    assert!(zeros.iter().all(|byte| *byte == 0));
    assert!(crypt.zero_fast(0, 512, true).is_err());
    assert_eq!(crypt.next_data(0).unwrap(), Some(0..SIZE), "zeros are ciphertext too");
    crypt.discard(0, 4096).unwrap();
    assert!(!crypt.can_discard() && medium.asked().is_empty(), "nobody allowed discards");
    let crypt = CryptDevice::new(&*medium, cipher()).unwrap().allowing_discards();
    crypt.discard(0, 4096).unwrap();
    crypt.flush().unwrap();
    crypt.forget_cached(512, 512).unwrap();
    assert!(crypt.can_discard());
    assert_eq!(medium.asked(), [("discard", 0..4096), ("flush", 0..0), ("forget", 512..1024)]);

    let overlay = Overlay::new(&*medium);
    overlay.write_zeroes(0, 4096, true).unwrap();
    overlay.discard(0, 4096).unwrap();
    overlay.flush().unwrap();
    assert_eq!(medium.asked(), [], "nothing below is changed");
    overlay.forget_cached(0, 4096).unwrap();
    assert_eq!(medium.asked(), [("forget", 0..SIZE)], "who does not say where forgets all");

    let store = Medium::new();
    OverlayFile::<&Medium, _>::format(&*store, SIZE / 2, b"identity").unwrap();
    let half = Window::new(&*medium, 0, SIZE / 2).unwrap();
    let overlay = OverlayFile::open(half, &*store, b"identity").unwrap();
    store.asked();
    overlay.write_zeroes(0, 4096, true).unwrap();
    overlay.discard(0, 4096).unwrap();
    overlay.flush().unwrap();
    assert!(store.asked().contains(&("flush", 0..0)));
    assert!(!overlay.can_discard() && medium.asked().is_empty(), "nothing below is changed");
    overlay.forget_cached(0, 4096).unwrap();
    assert_eq!(medium.asked(), [("forget", 0..SIZE / 2)]);
}

/// Data, hash tree and parity in one encrypted partition: formatted, verified, updated and repaired there, and nothing
/// around it is touched.
#[test]
fn hash_trees_lie_in_images_of_any_nesting() {
    const DATA: u64 = 256 << 10;
    let folder = tempdir().unwrap();
    let path = folder.path().join("image");
    let around = Rng::new(7).bytes(2 << 20);
    std::fs::write(&path, &around).unwrap();
    let open = |access| {
        let params = Params::new("aes-xts-plain64".parse().unwrap());
        let key = SecretVec::new((0..64).collect());
        let mapping = Mapping::new(params, key, 0, &Providers::default()).unwrap();
        Image::open(&path, access).unwrap().window(64 << 10, Some(1 << 20)).unwrap().crypt(mapping).unwrap()
    };
    let work = Work::default();
    let area = |image: &Image| {
        let mut area = VerityOptions::default();
        (area.data_blocks, area.hash_offset) = (Some(DATA / 4096), DATA);
        let mut fec = Fec::new(image.clone());
        fec.offset = 512 << 10;
        area.fec = Some(fec);
        area
    };
    let format = |image: &Image| {
        let mut options = FormatOptions::default();
        // The partition holds data of no known kind.
        (options.area, options.overwrite) = (area(image), true);
        image.verity_format(image, &options, &work)
    };
    let error = format(&open(Access::Read)).unwrap_err();
    assert!(error.to_string().contains("opened for reading only"), "{error}");
    assert!(std::fs::read(&path).unwrap() == around, "nothing was written");
    // The same part of the file by another name is the same place: the hash area can't lie over its data.
    let part = |access| Image::open(&path, access).unwrap().window(64 << 10, Some(1 << 20)).unwrap();
    let (data, hash) = (part(Access::Read), part(Access::Change));
    let error = data.verity_format(&hash, &FormatOptions::default(), &work).unwrap_err();
    assert!(error.to_string().contains("data area overlaps with hash area"), "{error}");
    assert!(std::fs::read(&path).unwrap() == around, "nothing was written");
    drop(hash);

    let image = open(Access::Change);
    let root = format(&image).unwrap().root_hash;
    let volume = |image: &Image| image.verity_volume(image, &area(image)).unwrap();
    let is_whole = |root: &[u8]| {
        let volume = volume(&image);
        volume.verify(root, &work, &mut |_| Ok(())).unwrap().is_clean()
    };
    assert!(is_whole(&root));
    image.device().write_at(&[1; 5000], 10_000).unwrap();
    assert!(!is_whole(&root));
    volume(&image).repair(&root, &work).unwrap();
    assert!(is_whole(&root));
    image.device().write_at(&[1; 5000], 10_000).unwrap();
    let changed = std::iter::once(2..4).collect();
    let new = volume(&image).update(&changed, Some(&root), &work).unwrap();
    assert!(is_whole(&new) && !is_whole(&root));
    let found = std::fs::read(&path).unwrap();
    assert!(found[..64 << 10] == around[..64 << 10] && found[1088 << 10..] == around[1088 << 10..]);
}
