#![no_main]
//! A dm-integrity volume with a journal, damaged: opened, read and checked.

use std::num::NonZeroUsize;

use casemate_blockdev::{BlockDevice, MemoryDevice, Pool};
use casemate_fuzz::integrity_volume;
use casemate_integrity::{IntegrityDevice, Superblock, Tagger, verify};
use casemate_providers::{Providers, Work};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let [how, edits @ ..] = bytes else { return };
    let device = integrity_volume().edited(edits);
    let mut head = [0; 512];
    device.read_at(&mut head, 0).expect("memory");
    let Ok(superblock) = Superblock::from_bytes(&head) else { return };
    let name = if how & 1 == 0 { "sha256" } else { "crc32c" };
    let tagger = Tagger::new(name, None, &superblock, &Providers::default()).expect("a hash");
    let Ok(volume) = IntegrityDevice::open(device, None::<MemoryDevice>, tagger) else { return };
    let mut block = [0; 5000];
    let _ = volume.read_at(&mut block, 100);
    let _ = volume.read_at(&mut block, volume.size().saturating_sub(5000));
    let work = Work { pool: Pool::new(NonZeroUsize::new(1)), ..Work::default() };
    if volume.size() < 4 << 20 {
        let _ = verify(&volume, &work);
    }
});
