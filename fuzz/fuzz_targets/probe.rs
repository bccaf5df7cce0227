#![no_main]
//! What an image of any kind is said to hold, down to what lies in its partitions.
//!
//! With a first byte of 0xff the rest is the image; else it names a sound image, behind a partition table or not, and
//! the rest are edits.

use std::sync::Arc;

use casemate::{Image, probe};
use casemate_blockdev::{BlockDevice, MemoryDevice};
use casemate_fuzz::{edit, images};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let [image, rest @ ..] = bytes else { return };
    if *image == 0xff {
        return look(Arc::new(MemoryDevice::new(rest.to_vec())));
    }
    let seeds = images();
    let seed = &seeds[usize::from(image & 0x7f) % seeds.len()];
    if image & 0x80 == 0 {
        return look(Arc::new(seed.edited(rest)));
    }
    let device = seed.edited(&[]);
    let mut disk = vec![0; 512 + device.size() as usize];
    device.read_at(&mut disk[512..], 0).expect("memory");
    // One partition behind the table of an MBR.
    disk[450] = 0x83;
    disk[454..458].copy_from_slice(&1u32.to_le_bytes());
    disk[458..462].copy_from_slice(&(device.size() as u32 / 512).to_le_bytes());
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    edit(&mut disk[..4096], rest);
    look(Arc::new(MemoryDevice::new(disk)));
});

fn look(device: Arc<dyn BlockDevice>) {
    let _ = probe::device(&*device);
    let _ = probe::look(&Image::over("image", device));
}
