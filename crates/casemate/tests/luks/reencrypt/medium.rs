//! Volumes in memory that are being reencrypted.

use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};

use casemate::blockdev::{BlockDevice, Events, MemoryDevice, Result};
use casemate::luks::luks2::reencrypt::{Direction, Mode, Part, Resilience, State};
use casemate::luks::{Header, LuksKey, LuksOptions, ReencryptOptions};
use casemate::{Image, Providers, Work};
use casemate_testkit::{Place, slow_tests, tool};

/// How many states cryptsetup went on with.
pub static OTHERS: AtomicU32 = AtomicU32::new(0);

/// A volume in memory: its data, and its header if that lies apart.
pub struct Medium {
    pub data: Arc<MemoryDevice>,
    pub header: Option<Arc<MemoryDevice>>,
}

impl Medium {
    pub fn new(data: Vec<u8>, header: Option<Vec<u8>>) -> Medium {
        let device = |bytes| Arc::new(MemoryDevice::new(bytes));
        Medium { data: device(data), header: header.map(device) }
    }

    pub fn volume(&self) -> casemate::luks::Volume {
        let header = self.header.clone().map(|header| Image::over("header", header));
        Image::over("image", self.data.clone()).luks_volume(header.as_ref(), &Providers::default()).unwrap()
    }

    pub fn header_device(&self) -> &MemoryDevice {
        self.header.as_ref().unwrap_or(&self.data)
    }

    pub fn read(&self, key: &LuksKey, work: &Work<'_>) -> Result<Vec<u8>> {
        let opened = self.volume().open(key, &LuksOptions::default(), work)?;
        let mut bytes = vec![0; opened.device().size() as usize];
        opened.device().read_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    pub fn resume(&self, key: &LuksKey, work: &Work<'_>) -> Result<bool> {
        let mut options = ReencryptOptions::default();
        options.resume_only = true;
        self.volume().reencrypt(std::slice::from_ref(key), &LuksOptions::default(), &options, work)
    }

    /// Changes the parts that the header tells of.
    pub fn set_parts(&self, change: impl Fn(u64, &[Part]) -> Vec<Part>) {
        let volume = self.volume();
        let Header::Luks2(header) = volume.header() else { panic!() };
        let course = header.metadata.reencryption().unwrap().unwrap();
        let (len, parts) = (course.len(self.data.size()).unwrap(), course.parts(self.data.size()).unwrap());
        let mut header = header.clone();
        header.metadata = course.with_parts(&header.metadata, &change(len, &parts), len).unwrap();
        header.write(self.header_device(), &Providers::default(), &mut |_| Ok(())).unwrap();
    }

    pub fn is_reencrypting(&self) -> bool {
        let volume = self.volume();
        let Header::Luks2(header) = volume.header() else { panic!() };
        header.metadata.requirements().iter().any(|name| name.contains("reencrypt"))
    }

    /// The plain data, which are the data of the image itself after a decryption.
    pub fn end(&self, key: &LuksKey, len: usize) -> Vec<u8> {
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

    pub fn journal(&self) -> u64 {
        let volume = self.volume();
        let Header::Luks2(header) = volume.header() else { panic!() };
        header.metadata.reencryption().unwrap().unwrap().area.start
    }

    /// Whether the volume is one that was made, or is none any more.
    pub fn is_changed(&self) -> bool {
        let volume = self.volume();
        let Header::Luks2(header) = volume.header() else { panic!() };
        let segment = header.metadata.segments().remove(0);
        segment.kind == "linear" || bytes_of(&self.data)[..4] == *b"LUKS" || segment.offset == 0
    }

    /// Has cryptsetup go on with a copy, in slow tests: it must come to the same end. Not where it is known to fail: if all
    /// is done but for the end, with a moved part that is shorter than the shift, where sectors of a block with one checksum may
    /// be torn from each other, and where the first positions are hot while data move towards the end.
    pub fn is_finished_by_cryptsetup(&self, key: &LuksKey, plaintext: &[u8], what: &str) -> bool {
        let Some(cryptsetup) = slow_tests().then(|| tool("cryptsetup")).flatten() else { return false };
        let volume = self.volume();
        let Header::Luks2(header) = volume.header() else { panic!() };
        let Some(course) = header.metadata.reencryption().unwrap() else { return false };
        let parts = course.parts(self.data.size()).unwrap();
        let moved = course.backups.moved.as_ref().map_or(0, |_| course.moved_len());
        let is_open = parts.iter().any(|part| part.state != State::New && part.range.start >= moved);
        // It takes the shift for the length of what was moved.
        let is_too_short = course.mode == Mode::Decrypt && moved > 0 && course.shift != Some(moved);
        // It goes on at a wrong place when what it recovers are the first positions of data that move towards the end.
        let is_first_hot = parts.first().is_some_and(|part| part.state == State::Hot)
            && course.shift.is_some()
            && course.direction == Direction::Backward;
        if !is_open
            || is_too_short
            || is_first_hot
            || matches!(course.resilience, Resilience::Checksum { block: 1024.., .. })
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
        // Its repair ends the work where nothing is left then.
        let may_end = is_hot && parts.iter().all(|part| part.state != State::Old);
        let repair = is_hot.then_some("repair -q");
        for line in repair.into_iter().chain(["reencrypt -q --resume-only --force-offline-reencrypt"]) {
            let output = place.run(&cryptsetup, &format!("{line} {files}"));
            let said = String::from_utf8_lossy(&output.stderr);
            let is_ended = may_end && said.contains("Device reencryption not in progress");
            assert!(output.status.success() || is_ended, "{what}: {said}");
        }
        let header = self.header.is_some().then(|| place.read("header"));
        let end = Medium::new(place.read("data"), header).end(key, plaintext.len());
        assert!(end == plaintext, "{what}: cryptsetup came to other data");
        true
    }
}

pub fn bytes_of(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(&mut bytes, 0).unwrap();
    bytes
}

/// A listener that keeps what it is told.
#[derive(Default)]
pub struct Notes(Mutex<Vec<String>>);

impl Events for Notes {
    fn note(&self, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }
}

impl Notes {
    pub fn work(&self) -> Work<'_> {
        Work { events: self, ..Work::default() }
    }

    pub fn take(&self) -> String {
        self.0.lock().unwrap().drain(..).collect::<Vec<_>>().join("\n")
    }
}
