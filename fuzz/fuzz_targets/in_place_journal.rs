#![no_main]
//! The journal of an encryption in place, damaged: resumed with the right key. Whatever is refused leaves the image as it
//! was.
//!
//! The first byte says after how many writes the work was stopped and whether the digests of records fit, the rest are
//! edits of the journal.

use std::num::NonZeroUsize;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use casemate_blockdev::{BlockDevice, Error, ErrorKind, MemoryDevice, Pool, Result};
use casemate_crypt::in_place::{Job, Unmarked, begin, resume};
use casemate_crypt::{Params, SectorCipher};
use casemate_fuzz::edit;
use casemate_providers::{Direction, Hash, Providers, Work};

const LEN: usize = 5 * 4096 + 512;

/// The cipher, its key, and the journal's hash.
static TOOLS: LazyLock<(SectorCipher, Vec<u8>, Hash)> = LazyLock::new(|| {
    let key: Vec<u8> = (0..64).collect();
    let params = Params::new("aes-xts-plain64".parse().expect("a cipher"));
    let providers = Providers::default();
    let cipher = SectorCipher::new(&params, &key, &providers).expect("a key");
    (cipher, key, providers.hash("sha256").expect("a hash"))
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let [how, edits @ ..] = bytes else { return };
    let (cipher, key, sha256) = &*TOOLS;
    let work = Work { pool: Pool::new(NonZeroUsize::new(1)), ..Work::default() };
    let job = Job {
        cipher,
        sha256,
        direction: Direction::Encrypt,
        key,
        mapping: "aes-xts-plain64 512",
        work: &work,
    };
    let (image, journal) = (MemoryDevice::new(vec![7; LEN]), MemoryDevice::new(vec![0; 4 * 4096]));
    begin(&job, &image, &journal, 4096, [3; 32]).expect("work that can be begun");
    let left = AtomicUsize::new(usize::from(how >> 1) % 8);
    let _ = resume(&job, &Until { device: &image, left }, &journal, &Unmarked);
    let mut bytes = journal.into_bytes();
    edit(&mut bytes, edits);
    if how & 1 == 0 {
        for record in [0, 4096] {
            let digest = sha256.digest(&bytes[record..record + 176]);
            bytes[record + 176..record + 208].copy_from_slice(&digest);
        }
    }
    let before = contents(&image);
    // A larger hot zone, with a digest that fits, finds the end of the journal in the middle of the work.
    let resumed = resume(&job, &image, &MemoryDevice::new(bytes), &Unmarked);
    if resumed.is_err_and(|error| matches!(error.kind(), ErrorKind::Argument | ErrorKind::Corrupt)) {
        assert!(contents(&image) == before, "refused, and changed");
    }
});

fn contents(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    device.read_at(&mut bytes, 0).expect("a device in memory");
    bytes
}

/// A device that fails after some writes, as if the machine had stopped.
struct Until<'a> {
    device: &'a MemoryDevice,
    left: AtomicUsize,
}

impl BlockDevice for Until<'_> {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(self.device)
    }

    fn size(&self) -> u64 {
        self.device.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.device.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        left.map_err(|_| Error::unsupported("stopped"))?;
        self.device.write_at(buf, offset)
    }

    fn flush(&self) -> Result<()> {
        self.device.flush()
    }
}
