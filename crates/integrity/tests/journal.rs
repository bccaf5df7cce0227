//! A volume that was copied while a kernel used it: its journal holds what its places do not have yet.

use std::num::NonZeroUsize;

use casemate_blockdev::{BlockDevice, MemoryDevice, Pool};
use casemate_integrity::{IntegrityDevice, Superblock, Tagger, verify};
use casemate_providers::{Providers, Work};
use casemate_testkit::{Rng, fixture};

fn image() -> Vec<u8> {
    fixture(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/journal.img.xz"))
}

fn open(bytes: Vec<u8>) -> casemate_integrity::Result<IntegrityDevice<MemoryDevice, MemoryDevice>> {
    let superblock = Superblock::from_bytes(&bytes)?;
    let tagger = Tagger::new("sha256", None, &superblock, &Providers::default())?;
    IntegrityDevice::open(MemoryDevice::new(bytes), None, tagger)
}

fn one_thread() -> Work<'static> {
    Work { pool: Pool::new(NonZeroUsize::new(1)), ..Work::default() }
}

#[test]
fn what_the_journal_holds_is_read_from_there() {
    let volume = open(image()).unwrap();
    let report = verify(&volume, &one_thread()).unwrap();
    assert_eq!((report.blocks, report.wrong, report.unknown), (190, 0, 0));
    assert!(report.journalled > 0);
    let mut data = vec![0; 32768];
    volume.read_at(&mut data, 0).unwrap();
    // What the kernel's journal was found to hold: SHA-256 of the plaintext that was written.
    let digest = Providers::default().hash("sha256").unwrap().digest(&data);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, "4232b63cf12a42fd11f6d1b9ad1eb894ae1d2db47e77ac04ac73899f448ac8b6");
    // Any part of blocks is a part of the same bytes.
    let mut rng = Rng::new(1);
    for _ in 0..200 {
        let at = rng.below(32768) as usize;
        let len = rng.below(32768 - at as u64) as usize;
        let mut part = vec![0; len];
        volume.read_at(&mut part, at as u64).unwrap();
        assert!(part == data[at..at + len]);
    }
    assert!(volume.read_at(&mut data, volume.size() - 1).is_err());
    assert!(volume.write_at(&data, 0).is_err());
}

#[test]
fn a_damaged_block_is_refused_alone() {
    let mut bytes = image();
    let layout = Superblock::from_bytes(&bytes).unwrap().layout(false).unwrap();
    bytes[layout.data(100) as usize + 7] ^= 1;
    bytes[layout.tag(150) as usize] ^= 1;
    let volume = open(bytes).unwrap();
    let report = verify(&volume, &one_thread()).unwrap();
    assert_eq!((report.wrong, &report.wrong_blocks[..]), (2, &[100..101, 150..151][..]));
    let mut block = [0; 4096];
    for number in 0..report.blocks {
        let read = volume.read_at(&mut block, number * 4096);
        assert_eq!(read.is_err(), [100, 150].contains(&number), "{number}");
    }
}

/// Superblock, tags and journal are the image's word: nothing in them makes reading panic.
#[test]
fn mutated_volumes_are_refused_or_read() {
    let (image, mut rng) = (image(), Rng::new(5));
    let journal_end = Superblock::from_bytes(&image).unwrap().layout(false).unwrap().tag(0);
    for round in 0..3000 {
        let mut bytes = image.clone();
        for _ in 0..=rng.below(3) {
            let most = if round % 2 == 0 { 64 } else { journal_end };
            let at = rng.below(most) as usize;
            bytes[at] = match rng.below(3) {
                0 => 0,
                1 => 0xff,
                _ => rng.below(256) as u8,
            };
        }
        let Ok(volume) = open(bytes) else { continue };
        let mut block = vec![0; 8192];
        let _ = volume.read_at(&mut block, 1000);
        let _ = volume.read_at(&mut block, volume.size().saturating_sub(8192));
        if volume.size() < 8 << 20 {
            let _ = verify(&volume, &one_thread());
        }
    }
}
