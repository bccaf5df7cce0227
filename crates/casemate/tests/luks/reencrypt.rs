//! Reencryptions: what cryptsetup left in the middle of them, read and finished; and ours, with the power cut at any
//! operation, any number of times.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use casemate::blockdev::{BlockDevice, Events, MemoryDevice, Result};
use casemate::luks::luks2::reencrypt::{Mode, Part, Resilience, State};
use casemate::luks::{Header, LuksFormatOptions, LuksKey, LuksOptions, Pbkdf, Protection, ReencryptOptions};
use casemate::{Error, ErrorKind, Image, Providers, SecretVec, Work, hex};
use casemate_testkit::{Place, Rng, fixture, slow_tests, tool};
use serde_json::Value;

use crate::images::{image, passphrase};

/// How many states cryptsetup went on with.
static OTHERS: AtomicU32 = AtomicU32::new(0);

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

/// A volume in memory: its data, and its header if that lies apart.
struct Medium {
    data: Arc<MemoryDevice>,
    header: Option<Arc<MemoryDevice>>,
}

impl Medium {
    fn new(data: Vec<u8>, header: Option<Vec<u8>>) -> Medium {
        let device = |bytes| Arc::new(MemoryDevice::new(bytes));
        Medium { data: device(data), header: header.map(device) }
    }

    fn volume(&self) -> casemate::luks::Volume {
        let header = self.header.clone().map(|header| Image::over("header", header));
        Image::over("image", self.data.clone()).luks_volume(header.as_ref(), &Providers::default()).unwrap()
    }

    fn header_device(&self) -> &MemoryDevice {
        self.header.as_ref().unwrap_or(&self.data)
    }

    fn read(&self, key: &LuksKey, work: &Work<'_>) -> Result<Vec<u8>> {
        let opened = self.volume().open(key, &LuksOptions::default(), work)?;
        let mut bytes = vec![0; opened.device().size() as usize];
        opened.device().read_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    fn resume(&self, key: &LuksKey, work: &Work<'_>) -> Result<bool> {
        let mut options = ReencryptOptions::default();
        options.resume_only = true;
        self.volume().reencrypt(std::slice::from_ref(key), &LuksOptions::default(), &options, work)
    }

    /// Changes the parts that the header tells of.
    fn set_parts(&self, change: impl Fn(u64, &[Part]) -> Vec<Part>) {
        let volume = self.volume();
        let Header::Luks2(header) = volume.header() else { panic!() };
        let course = header.metadata.reencryption().unwrap().unwrap();
        let (len, parts) = (course.len(self.data.size()).unwrap(), course.parts(self.data.size()).unwrap());
        let mut header = header.clone();
        header.metadata = course.with_parts(&header.metadata, &change(len, &parts), len).unwrap();
        header.write(self.header_device(), &Providers::default(), &mut |_| Ok(())).unwrap();
    }

    fn is_reencrypting(&self) -> bool {
        let volume = self.volume();
        let Header::Luks2(header) = volume.header() else { panic!() };
        !header.metadata.requirements().is_empty()
    }

    /// The plain data, which are the data of the image itself after a decryption.
    fn end(&self, key: &LuksKey, len: usize) -> Vec<u8> {
        let volume = self.volume();
        let Header::Luks2(header) = volume.header() else { panic!() };
        match &*header.metadata.segments()[0].kind {
            "linear" => {
                let at = header.metadata.segments()[0].offset as usize;
                bytes_of(&self.data)[at..at + len].to_vec()
            }
            _ => self.read(key, &Work::default()).unwrap()[..len].to_vec(),
        }
    }
}

fn bytes_of(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(&mut bytes, 0).unwrap();
    bytes
}

/// A listener that keeps what it is told.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl Events for Notes {
    fn note(&self, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }
}

impl Notes {
    fn work(&self) -> Work<'_> {
        Work { events: self, ..Work::default() }
    }

    fn take(&self) -> String {
        self.0.lock().unwrap().drain(..).collect::<Vec<_>>().join("\n")
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
            assert!(medium.resume(&key, &Work::default()).unwrap(), "{name}");
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

impl Medium {
    fn journal(&self) -> u64 {
        let volume = self.volume();
        let Header::Luks2(header) = volume.header() else { panic!() };
        header.metadata.reencryption().unwrap().unwrap().area.start
    }
}

#[test]
fn damage_is_told_and_the_rest_is_read() {
    let cut = cut("re-checksum-torn");
    let (key, plaintext, notes) = (cut.key(), cut.plaintext(), Notes::default());
    let medium = cut.medium();
    let place = medium.volume().data_offset_of_new() + 32768 + 5000;
    medium.data.write_at(&[cut.data[place] ^ 1], place as u64).unwrap();
    let read = medium.read(&key, &notes.work()).unwrap();
    let differ: Vec<usize> = (0..read.len()).filter(|at| read[*at] != plaintext[*at]).collect();
    // One block of 4096 bytes.
    assert!(differ.iter().all(|at| (36864..40960).contains(at)) && !differ.is_empty());
    let told = notes.take();
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
            assert!(error.text().contains("not as somebody who has the keys has written them"), "{error}");
        }
    }
}

/// A disk that forgets: what was not flushed is there, gone or there in part after the power fails.
struct Disk {
    state: Mutex<DiskState>,
    power: Arc<Mutex<i64>>,
    flushes: AtomicU32,
}

struct DiskState {
    stable: Vec<u8>,
    cached: Vec<u8>,
}

impl Disk {
    fn new(bytes: Vec<u8>, power: &Arc<Mutex<i64>>) -> Arc<Disk> {
        let state = DiskState { stable: bytes.clone(), cached: bytes };
        Arc::new(Disk { state: Mutex::new(state), power: Arc::clone(power), flushes: AtomicU32::new(0) })
    }

    /// One more operation, if there is still power.
    fn spend(&self) -> Result<()> {
        let mut power = self.power.lock().unwrap();
        *power -= 1;
        if *power < 0 { Err(io::Error::other("the power failed").into()) } else { Ok(()) }
    }

    /// What is there when the power comes back: each sector old or new.
    fn after_power_failure(&self, rng: &mut Rng) -> Vec<u8> {
        let state = self.state.lock().unwrap();
        let mut stable = state.stable.clone();
        let most = rng.below(3);
        for (old, new) in stable.chunks_mut(512).zip(state.cached.chunks(512)) {
            if rng.below(4) <= most {
                old.copy_from_slice(new);
            }
        }
        stable
    }
}

impl BlockDevice for Disk {
    fn below(&self) -> Option<&dyn BlockDevice> {
        None
    }

    fn size(&self) -> u64 {
        self.state.lock().unwrap().cached.len() as u64
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let state = self.state.lock().unwrap();
        let bytes = state.cached.get(offset as usize..offset as usize + buf.len());
        buf.copy_from_slice(bytes.ok_or_else(|| io::Error::other("past the end"))?);
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        // A write that the power failure interrupts has done part of its work.
        let whole = self.spend();
        let part = if whole.is_ok() { buf.len() } else { buf.len() / 2 / 512 * 512 };
        let mut state = self.state.lock().unwrap();
        let at = offset as usize;
        state.cached[at..at + part].copy_from_slice(&buf[..part]);
        whole
    }

    fn flush(&self) -> Result<()> {
        self.spend()?;
        let mut state = self.state.lock().unwrap();
        state.stable = state.cached.clone();
        self.flushes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

fn cheap() -> Pbkdf {
    Pbkdf::Pbkdf2 { hash: "sha256".to_owned(), iterations: 1000 }
}

/// A volume with 128-bit keys, so that slots are small: its bytes, and what is in it.
fn volume(sector_size: u32, cipher: &str, header: u64, len: usize) -> (Vec<u8>, Vec<u8>) {
    let mut options = LuksFormatOptions::default();
    options.cipher = cipher.to_owned();
    options.key_bits = Some(if cipher.contains("xts") { 256 } else { 128 });
    options.sector_size = sector_size;
    options.offset = Some(header);
    options.pbkdf = Some(cheap());
    let plaintext = Rng::new(len as u64).bytes(len);
    let target = Arc::new(MemoryDevice::new(vec![0; header as usize + len]));
    let made = options.prepare(&SecretVec::from(&b"pass"[..]), &Work::default()).unwrap();
    made.encrypt(&image(plaintext.clone()), &Image::over("image", target.clone()), None, &Work::default())
        .unwrap();
    (bytes_of(&target), plaintext)
}

impl Medium {
    /// Has cryptsetup go on with a copy, in slow tests: it must come to the same end. Not where it is known to fail: if all
    /// is done but for the end, with a moved part that is shorter than the shift, and where sectors of a block with one
    /// checksum may be torn from each other.
    fn is_finished_by_cryptsetup(&self, key: &LuksKey, plaintext: &[u8], what: &str) -> bool {
        let Some(cryptsetup) = slow_tests().then(|| tool("cryptsetup")).flatten() else { return false };
        let volume = self.volume();
        let Header::Luks2(header) = volume.header() else { panic!() };
        let Some(course) = header.metadata.reencryption().unwrap() else { return false };
        let parts = course.parts(self.data.size()).unwrap();
        let moved = course.backups.moved.as_ref().map_or(0, |_| course.moved_len());
        let is_open = parts.iter().any(|part| part.state != State::New && part.range.start >= moved);
        // It takes the shift for the length of what was moved.
        let is_too_short = course.mode == Mode::Decrypt && moved > 0 && course.shift != Some(moved);
        if !is_open || is_too_short || matches!(course.resilience, Resilience::Checksum { block: 1024.., .. })
        {
            return false;
        }
        let place = Place::new("");
        place.file("key", "pass");
        place.file("data", bytes_of(&self.data));
        let mut files = "--key-file key data".to_owned();
        if let Some(header) = &self.header {
            place.file("header", bytes_of(header));
            files.push_str(" --header header");
        }
        let is_hot = parts.iter().any(|part| part.state == State::Hot);
        let repair = is_hot.then_some("repair -q");
        for line in repair.into_iter().chain(["reencrypt -q --resume-only --force-offline-reencrypt"]) {
            let output = place.run(&cryptsetup, &format!("{line} {files}"));
            assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
        }
        let header = self.header.is_some().then(|| place.read("header"));
        let end = Medium::new(place.read("data"), header).end(key, plaintext.len());
        assert!(end == plaintext, "{what}: cryptsetup came to other data");
        true
    }
}

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
                    return states;
                }
            }
            Err(error) if error.kind() == ErrorKind::Io => {}
            other => panic!("{what}, seed {seed}, attempt {attempt}: {other:?}"),
        }
    }
    panic!("{what}, seed {seed}: never done");
}

fn options(zone: u64, change: impl Fn(&mut ReencryptOptions)) -> ReencryptOptions {
    let mut options = ReencryptOptions::default();
    options.hotzone_size = Some(zone);
    change(&mut options);
    options
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
        let (bytes, mut plaintext) = volume(sector_size, cipher, 32768 + 2 * slot + 16384, len);
        plaintext.truncate(len - options.reduce_device_size.unwrap_or(0) as usize);
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
                && medium.is_reencrypting()
            {
                match medium.read(&key, &Work::default()) {
                    Ok(read) if read[..plaintext.len()] == *plaintext && rng.below(8) == 0 => {
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

impl Medium {
    /// Whether the volume is one that was made, or is none any more.
    fn is_changed(&self) -> bool {
        let volume = self.volume();
        let Header::Luks2(header) = volume.header() else { panic!() };
        let segment = header.metadata.segments().remove(0);
        segment.kind == "linear" || bytes_of(&self.data)[..4] == *b"LUKS" || segment.offset == 0
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
                Change { data: bytes.clone(), header: Some(vec![0; 131072]), flushes: 1, is_named: false };
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
    assert!(medium.read(&key, &notes.work()).unwrap()[16384..] == plaintext[16384..]);
    assert!(notes.take().contains("without protection"));
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
        "no multiple of the sector size",
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
    refused(keys, with(|options| options.resilience_hash = "md6".into()), ErrorKind::Argument, "md6");
    refused(
        keys,
        with(|options| options.reduce_device_size = Some(1 << 20)),
        ErrorKind::Argument,
        "no room for data",
    );
    let none = [LuksKey::VolumeKey(SecretVec::new(vec![1; 16]))];
    refused(&none, with(|_| ()), ErrorKind::Argument, "needs passphrases");
}
