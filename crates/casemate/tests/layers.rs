//! Requests that devices over others pass down.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

use casemate::blockdev::{
    BlockDevice, ConstantBase, MemoryDevice, Named, Overlay, OverlayFile, Result, Window,
};
use casemate::crypt::{CryptDevice, Mapping, Params, SectorCipher};
use casemate::image_spec::{ImageSpec, KINDS, KeyPlace, LayerSpec};
use casemate::target::{self, Made, Target};
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
    let base = Arc::new(ConstantBase(b"identity".to_vec()));
    let half = Window::new(&*medium, 0, SIZE / 2).unwrap();
    OverlayFile::format(&&*store, &half, &*base).unwrap();
    let overlay = OverlayFile::open(half, &*store, base).unwrap();
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
    let (data, hash) = (part(Access::ReadUnlocked), part(Access::Change));
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

/// Why a specification is refused.
fn refusal(text: &str) -> String {
    let error = ImageSpec::parse(text).unwrap_err();
    error.text().strip_prefix("image specification: ").unwrap().to_owned()
}

#[test]
fn what_is_wrong_with_a_specification_is_said_with_its_place() {
    for (text, error) in [
        ("", "it does not begin with the name of a file"),
        (",luks", "it does not begin with the name of a file"),
        ("disk.img,", "nothing follows the comma before character 10"),
        ("disk.img,lusk", "unknown layer 'lusk' at character 10; did you mean luks?"),
        (
            "disk.img,part 2.img",
            "unknown layer 'part 2.img' at character 10; a comma in the name of a file is written twice",
        ),
        ("disk.img,key-file=k", "unknown layer 'key-file' at character 10; it is an option of crypt"),
        (
            "d,luks,key-fil=k",
            "unknown layer or option 'key-fil' of luks at character 8; did you mean key-file?",
        ),
        (
            "d,luks,root-hash=00",
            "unknown layer or option 'root-hash' of luks at character 8; it is an option of verity",
        ),
        ("d,luks=1", "'luks' at character 3: it takes no value"),
        ("d,luks,key-file", "'key-file' at character 8: a value is missing: key-file=FILE"),
        ("d,luks,key-file=", "'key-file' at character 8: its value is empty"),
        ("d,luks,key-file=a,key-file=b", "'key-file' at character 19: it is given twice to luks"),
        ("d,luks,key-file=a,key-fd=3", "'key-fd' at character 19: it does not go with 'key-file'"),
        ("d,luks,keyfile-offset=3", "'keyfile-offset' at character 8: it goes with key-file or key-fd"),
        ("d,luks,mac-key-file=m", "'mac-key-file' at character 8: it goes with policy"),
        ("d,luks,kdf-limit=0", "'kdf-limit' at character 8: it is at least 1"),
        ("d,luks,key-slot=x", "'key-slot' at character 8: its value is not a number that it takes"),
        ("d,partition", "'partition' at character 3: a value is missing: partition=WHICH"),
        ("d,partition=0", "'partition' at character 3: '0': partitions are counted from 1"),
        (
            "d,offset=1k",
            "'offset' at character 3: k: not a unit of K, M, G, T (powers of 1024), s (sectors), B (bytes)",
        ),
        (
            "d,crypt",
            "'crypt' at character 3: a value is missing: crypt=SPEC, such as crypt=aes-xts-plain64, or crypt,table=FILE",
        ),
        ("d,crypt=a-b-c,table=t", "'crypt' at character 3: with 'table' it takes no value"),
        ("d,crypt,table=t,key-size=8", "'key-size' at character 17: it does not go with 'table'"),
        (
            "d,crypt=a,crypt-offset=7",
            "'crypt-offset' at character 11: not a multiple of 512 bytes; 7s are so many sectors",
        ),
        ("d,verity", "'verity' at character 3: it needs root-hash=HEX, or root-hash=@FILE"),
        (
            "d,verity,root-hash=00,no-superblock=1",
            "'no-superblock' at character 23: it takes no value in verity",
        ),
        ("d,integrity", "'integrity' at character 3: a value is missing: integrity=ALGORITHM"),
        (
            "d,integrity=crc32c,journal-crypt=ctr-aes",
            "'journal-crypt' at character 20: it goes with journal-crypt-key-file",
        ),
        ("d,ext4,luks", "'luks' at character 8: no layer lies on ext4, which comes last"),
        ("d,ext4,protector=p", "'protector' at character 8: it goes with fscrypt-passphrase-file"),
        ("\u{e4}\u{f6},lusk", "unknown layer 'lusk' at character 4; did you mean luks?"),
    ] {
        assert_eq!(refusal(text), error, "{text}");
    }
}

#[test]
fn a_secret_in_a_specification_is_refused_and_not_repeated() {
    for word in ["passphrase", "password", "key", "secret"] {
        let text = refusal(&format!("d,luks,{word}=hunter2"));
        assert!(text.contains("no secret is given on a command line") && !text.contains("hunter2"), "{text}");
    }
    for word in ["password:hunter2", "passphrase hunter2", "pass/hunter2", "pw:hunter2", "key-file:hunter2"] {
        for text in [refusal(&format!("d,luks,{word}")), refusal(&format!("d,{word}"))] {
            assert!(!text.contains("hunter2") && text.contains("..."), "{text}");
        }
    }
    let text = refusal("d,luks,key-slot=hunter2");
    assert!(!text.contains("hunter2"), "{text}");
}

#[test]
fn two_commas_are_one_of_a_name() {
    let spec = ImageSpec::parse("a,,b.img,luks,key-file=k,,,header=,,h,,").unwrap();
    assert_eq!(spec.file(), "a,b.img");
    let [LayerSpec::Luks(luks)] = spec.layers() else { panic!("{spec:?}") };
    assert_eq!(luks.key, KeyPlace::File("k,".into(), 0));
    assert_eq!(luks.header.as_deref(), Some(Path::new(",h,")));
    assert_eq!(spec.to_string(), "a,,b.img,luks,key-file=k,,,header=,,h,,");
    assert_eq!(ImageSpec::parse("a,,luks").unwrap(), ImageSpec::of_file("a,luks"));
}

/// A name that is a file's and a specification is refused: it never opens another file than the one that is meant.
#[test]
fn an_argument_opens_no_other_file_than_is_meant() {
    let folder = tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).into_os_string();
    let read = |name: &str| ImageSpec::of_argument(path(name));
    for name in ["plain.img", "a,b.img", "disk.img,luks"] {
        fs::write(path(name), "").unwrap();
    }
    assert_eq!(read("plain.img").unwrap(), ImageSpec::of_file(path("plain.img")));
    // No layer is called b.img.
    assert_eq!(read("a,b.img").unwrap(), ImageSpec::of_file(path("a,b.img")));
    assert!(read("disk.img,luks").unwrap_err().text().contains("is the name of a file"));
    assert_eq!(read("disk.img,,luks").unwrap(), ImageSpec::of_file(path("disk.img,luks")));
    assert_eq!(read("plain.img,luks").unwrap().file(), Path::new(&path("plain.img")));
    assert!(read("c,d.img").unwrap_err().text().contains("written twice"));
}

/// No word means two things, and none that the grammar can't read.
#[test]
fn words_are_told_apart() {
    let heads: BTreeSet<&str> = KINDS.iter().flat_map(|kind| [kind.name, kind.alias]).collect();
    for kind in KINDS {
        let names: BTreeSet<&str> = kind.options.iter().map(|choice| choice.name).collect();
        assert_eq!(names.len(), kind.options.len(), "{}", kind.name);
        for name in &names {
            assert!(!heads.contains(name) && !name.contains(['=', ',']), "{name}");
        }
    }
}

/// A value of an option that is taken for it.
fn value(choice: &str, wanted: &str, rng: &mut Rng) -> String {
    let names = ["k", "a,b", ",", "=x", "-", "d\u{e9}"];
    match (choice, wanted) {
        ("format", _) => "1".to_owned(),
        ("data-block-size" | "hash-block-size", _) => "4096".to_owned(),
        ("key-fd" | "skip" | "superblock" | "data-blocks" | "key-slot", _) | (_, "TIMES" | "BITS") => {
            (rng.below(9) + 1).to_string()
        }
        (_, "BYTES") => format!("{}s", rng.below(9)),
        (_, "HEX") => "00ff".to_owned(),
        (_, "WHICH" | "[SPEC]") => {
            ["2", "auto", "aes-cbc-essiv:sha256", "0fc63daf-8483-4772-8e79-3d69d8477de4"]
                [rng.below(4) as usize]
                .to_owned()
        }
        _ => names[rng.below(6) as usize].to_owned(),
    }
}

#[test]
fn what_is_written_is_read_again() {
    let mut rng = Rng::new(7);
    let mut read = 0;
    for _ in 0..20_000 {
        let mut text = "disk,,.img".to_owned();
        for _ in 0..rng.below(4) {
            let kind = &KINDS[rng.below(KINDS.len() as u64) as usize];
            let word = |name: &str, wanted: &str, rng: &mut Rng| match wanted {
                "" => format!(",{name}"),
                _ => format!(",{name}={}", value(name, wanted, rng).replace(',', ",,")),
            };
            text += &word(kind.name, kind.value, &mut rng);
            for choice in kind.options {
                if rng.below(4) == 0 || choice.name == "root-hash" {
                    text += &word(choice.name, choice.value, &mut rng);
                }
            }
        }
        let Ok(spec) = ImageSpec::parse(&text) else { continue };
        assert_eq!(ImageSpec::parse(spec.to_os_string()).unwrap(), spec, "{text}");
        read += usize::from(!spec.layers().is_empty());
    }
    assert!(read > 2000, "{read}");
}

#[test]
fn random_text_does_not_panic() {
    let mut words: Vec<String> =
        [",", ",,", "=", "", "\u{e9}", "-", "@", "0", "18446744073709551616", "T", "s", "\0"]
            .map(str::to_owned)
            .to_vec();
    for kind in KINDS {
        words.push(format!(",{}", kind.name));
        words.extend(kind.options.iter().map(|choice| format!(",{}=", choice.name)));
    }
    let mut rng = Rng::new(8);
    for _ in 0..50_000 {
        let pick = |rng: &mut Rng| words[rng.below(words.len() as u64) as usize].clone();
        let text: String = (0..rng.below(12)).map(|_| pick(&mut rng)).collect();
        if let Ok(spec) = ImageSpec::parse(&text) {
            assert_eq!(ImageSpec::parse(spec.to_os_string()).unwrap(), spec, "{text}");
        }
    }
}

/// An overlay keeps changes of the image as it is: nobody else changes that meanwhile.
#[test]
fn the_image_below_an_overlay_is_locked() {
    let folder = casemate_testkit::tempdir().unwrap();
    let path = folder.path().join("image");
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    let change = || Image::open(&path, Access::Change);
    let image = Image::open(&path, Access::ReadUnlocked).unwrap();
    drop(change().unwrap());
    let overlay = image.overlay(&folder.path().join("overlay"), &Providers::default()).unwrap();
    assert!(change().unwrap_err().is_busy());
    drop(overlay);
    change().unwrap();
}

/// An overlay fits the image as it was: nobody could open it again over bytes that somebody changed meanwhile.
#[test]
fn nobody_writes_below_an_overlay_that_is_open() {
    let folder = casemate_testkit::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("image"), vec![7; 4 << 20]).unwrap();
    let providers = Providers::default();
    let image = Image::open(at("image"), Access::Change).unwrap();
    let part = |from: u64| image.clone().window(from, Some(1 << 20)).unwrap();
    let overlay = part(0).overlay(&at("overlay"), &providers).unwrap();
    overlay.write_at(b"kept", 4096).unwrap();
    let key = SecretVec::new((0..64).collect());
    let params = Params::new("aes-xts-plain64".parse().unwrap());
    let plain = image.clone().crypt(Mapping::new(params, key, 0, &providers).unwrap()).unwrap();
    for below in [&image, &part(0), &plain] {
        for refused in [below.write_at(b"below", 0), below.lease().map(drop)] {
            let error = refused.unwrap_err();
            assert!(error.is_busy() && error.to_string().contains("an overlay is open on it"), "{error}");
        }
    }
    let error = part(0).commit_overlay(&at("overlay"), &Work::default()).unwrap_err();
    assert!(error.is_busy(), "{error}");
    // What lies beside it is not its own, and a second overlay changes nothing.
    part(2 << 20).write_at(b"beside", 0).unwrap();
    let second = part(0).overlay(&at("second"), &providers).unwrap();
    second.write_at(b"kept", 8192).unwrap();
    let upper = second.clone().overlay(&at("upper"), &providers).unwrap();
    assert!(second.write_at(b"below", 0).unwrap_err().is_busy());
    drop((overlay, second));
    // The device goes with its claim, whatever else of the overlay is gone.
    let device = upper.device();
    drop(upper);
    assert!(image.write_at(b"below", 0).unwrap_err().is_busy());
    drop(device);
    let lease = image.lease_bytes(0..10).unwrap();
    let error = part(0).overlay(&at("overlay"), &providers).map(drop).unwrap_err();
    assert!(error.is_busy() && error.to_string().contains("another writer"), "{error}");
    part(1 << 20).overlay(&at("other"), &providers).unwrap();
    drop(lease);
    drop(part(0).overlay(&at("overlay"), &providers).unwrap());
    image.write_at(b"below", 0).unwrap();
}

/// The image's time says nothing of what an overlay between keeps: what lies below the blocks is compared.
#[test]
fn an_overlay_over_an_overlay_is_refused_where_the_lower_one_was_written_to() {
    let folder = tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("image"), Rng::new(5).bytes(4 << 20)).unwrap();
    let providers = Providers::default();
    let lower = || Image::open(at("image"), Access::Read).unwrap().overlay(&at("lower"), &providers).unwrap();
    let upper = |lower: Image| lower.overlay(&at("upper"), &providers);
    let write = |image: &Image, offset| {
        image.device().write_at(b"written", offset).unwrap();
        image.device().flush().unwrap();
    };
    write(&upper(lower()).unwrap(), 2 << 20);
    write(&lower(), 3 << 20);
    upper(lower()).unwrap();
    write(&lower(), (2 << 20) + 200);
    let error = upper(lower()).map(drop).unwrap_err().to_string();
    assert!(error.contains("1 blocks of 4096 bytes that the overlay keeps are neither"), "{error}");
}

/// Zeros that nobody wrote decrypt to noise, which is nothing that would be lost; what an overlay keeps over zeros is.
#[test]
fn noise_of_zeros_is_nothing_and_what_an_overlay_keeps_is_something() {
    let folder = tempdir().unwrap();
    let zeros = || Image::over("zeros", Arc::new(MemoryDevice::new(vec![0; SIZE as usize])));
    let providers = Providers::default();
    let plain = |image: Image| {
        let key = SecretVec::new((0..64).collect());
        let mapping =
            Mapping::new(Params::new("aes-xts-plain64".parse().unwrap()), key, 0, &providers).unwrap();
        image.crypt(mapping).unwrap()
    };
    let asked = |image: Image| Target::on(image, Made::Data, &target::refuse).is_err();
    assert!(!asked(zeros()) && !asked(plain(zeros())) && !asked(plain(zeros()).window(4096, None).unwrap()));
    let written = plain(zeros());
    written.device().write_at(&[7; 512], SIZE - 512).unwrap();
    assert!(asked(written));
    let overlay = zeros().overlay(&folder.path().join("overlay"), &providers).unwrap();
    overlay.device().write_at(b"precious", 0).unwrap();
    assert!(asked(overlay.clone()) && asked(plain(overlay)));
    let trial = zeros().on_trial().unwrap();
    trial.device().write_at(b"precious", 0).unwrap();
    assert!(asked(trial));
}
