//! What fuzz targets share: small sound images, and inputs that are edits of them.
//!
//! Bytes of a fuzzer that stand for a whole image are mostly zeros in the wrong place. As edits of the parts of a sound
//! image that hold something they get past every magic number, and are short enough to be mutated well.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use casemate_blockdev::{BlockDevice, MemoryDevice, Overlay};

/// Bytes of a place that an edit names.
const PLACE: usize = 64;

/// Bytes of an edit: number of the place (16 bits), byte in it and width (8 bits), new value (64 bits).
const EDIT: usize = 11;

/// A sound image.
pub struct Seed {
    device: Arc<MemoryDevice>,
    /// The places of [`PLACE`] bytes that are not all zero.
    places: Vec<u64>,
}

impl Seed {
    /// An image that holds `bytes`.
    pub fn new(bytes: Vec<u8>) -> Seed {
        let places = bytes.chunks(PLACE).enumerate().filter(|(_, place)| place.iter().any(|byte| *byte != 0));
        let places = places.map(|(index, _)| (index * PLACE) as u64).collect();
        Seed { device: Arc::new(MemoryDevice::new(bytes)), places }
    }

    /// A copy of the image, changed by the edits that a fuzzer made up.
    pub fn edited(&self, edits: &[u8]) -> Overlay<Arc<MemoryDevice>> {
        let device = Overlay::new(self.device.clone());
        for edit in edits.chunks_exact(EDIT) {
            let place = usize::from(u16::from_le_bytes([edit[0], edit[1]]));
            let at = self.places[place % self.places.len()] + u64::from(edit[2] >> 2) % PLACE as u64;
            // An edit behind the end is none.
            let _ = device.write_at(&edit[3..3 + (1 << (edit[2] & 3))], at);
        }
        device
    }
}

/// The images of ext4 in `fuzz/seeds`, unpacked once.
pub fn images() -> &'static [Seed] {
    static IMAGES: OnceLock<Vec<Seed>> = OnceLock::new();
    IMAGES.get_or_init(|| {
        let folder = seeds();
        let entries = std::fs::read_dir(&folder).expect("the folder of seeds");
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
        paths.retain(|path| path.to_string_lossy().ends_with(".img.xz"));
        paths.sort();
        assert!(!paths.is_empty(), "no seeds in {}", folder.display());
        paths.iter().map(|path| Seed::new(unpacked(path))).collect()
    })
}

/// A backup of the encrypted folder of one of the images, unpacked once; its key is 64 times the letter k.
pub fn backup() -> &'static Seed {
    static BACKUP: OnceLock<Seed> = OnceLock::new();
    BACKUP.get_or_init(|| Seed::new(unpacked(&seeds().join("backup.tar.xz"))))
}

/// A dm-integrity volume with tags of SHA-256 and blocks in its journal, unpacked once: a fixture of its tests.
pub fn integrity_volume() -> &'static Seed {
    static VOLUME: OnceLock<Seed> = OnceLock::new();
    VOLUME.get_or_init(|| {
        let beside = seeds().join("journal.img.xz");
        let fixture = seeds().join("../../crates/integrity/tests/fixtures/journal.img.xz");
        Seed::new(unpacked(if beside.exists() { &beside } else { &fixture }))
    })
}

/// Makes the sums of a tar's headers fit what they say.
pub fn fix_tar_sums(tar: &mut [u8]) {
    for header in tar.chunks_exact_mut(512).filter(|block| block[257..262] == *b"ustar") {
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
}

/// The folder of seeds: that of the variable `CASEMATE_SEEDS`, else `seeds` beside the program, which may run on another
/// machine than it was built on, else that of the sources.
fn seeds() -> PathBuf {
    if let Some(folder) = std::env::var_os("CASEMATE_SEEDS") {
        return PathBuf::from(folder);
    }
    let program = std::env::current_exe().unwrap_or_default();
    let beside = program.with_file_name("seeds");
    if beside.is_dir() { beside } else { Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds") }
}

fn unpacked(path: &Path) -> Vec<u8> {
    let packed = std::fs::read(path).expect("a seed");
    let mut bytes = Vec::new();
    lzma_rs::xz_decompress(&mut &packed[..], &mut bytes).expect("a seed is packed with xz");
    bytes
}

/// An edit of bytes that are not an image, at any byte.
pub fn edit(bytes: &mut [u8], edits: &[u8]) {
    for edit in edits.chunks_exact(EDIT) {
        let at = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % bytes.len().max(1);
        let width = 1 << (edit[2] & 3);
        if let Some(there) = bytes.get_mut(at..at + width) {
            there.copy_from_slice(&edit[3..3 + width]);
        }
    }
}

/// Everything that can be read through a device.
pub fn read_all(device: &dyn BlockDevice) {
    let mut buffer = vec![0; 64 << 10];
    for at in (0..device.size().min(16 << 20)).step_by(64 << 10) {
        let len = (device.size() - at).min(64 << 10) as usize;
        let _ = device.read_at(&mut buffer[..len], at);
    }
}
