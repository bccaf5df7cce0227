//! Reencryptions: what cryptsetup left in the middle of them, and ours, cut off at any moment.

mod cuts;
mod disk;
mod ends;
pub mod medium;
mod power;
mod refusals;

use std::sync::Arc;

use casemate::blockdev::MemoryDevice;
use casemate::luks::{LuksFormatOptions, Pbkdf, ReencryptOptions};
use casemate::target::{Made, overwrite};
use casemate::{Image, SecretVec, Target, Work};
use casemate_testkit::Rng;

use crate::images::image;
use medium::bytes_of;

pub fn cheap() -> Pbkdf {
    Pbkdf::Pbkdf2 { hash: "sha256".to_owned(), iterations: 1000 }
}

/// A volume with 128-bit keys, so that slots are small: its bytes, and what is in it.
pub fn volume(sector_size: u32, cipher: &str, header: u64, len: usize) -> (Vec<u8>, Vec<u8>) {
    volume_with_end(sector_size, cipher, header, (len, 0))
}

/// A volume as [`volume`] makes it, of `len` bytes, of which the last `free` are zeros: data are given up only there.
pub fn volume_with_end(
    sector_size: u32,
    cipher: &str,
    header: u64,
    (len, free): (usize, usize),
) -> (Vec<u8>, Vec<u8>) {
    let mut options = LuksFormatOptions::default();
    options.cipher = cipher.to_owned();
    options.key_bits = Some(if cipher.contains("xts") { 256 } else { 128 });
    options.sector_size = sector_size;
    options.offset = Some(header);
    options.pbkdf = Some(cheap());
    let mut plaintext = Rng::new(len as u64).bytes(len);
    plaintext[len - free..].fill(0);
    let target = Arc::new(MemoryDevice::new(vec![0; header as usize + len]));
    let made = options.prepare(&SecretVec::from(&b"pass"[..]), &Work::default()).unwrap();
    let place = Target::on(Image::over("image", target.clone()), Made::Data, &overwrite).unwrap();
    made.encrypt(&image(plaintext.clone()), &place, None, &Work::default()).unwrap();
    (bytes_of(&target), plaintext)
}

fn options(zone: u64, change: impl Fn(&mut ReencryptOptions)) -> ReencryptOptions {
    let mut options = ReencryptOptions::default();
    options.hotzone_size = Some(zone);
    change(&mut options);
    options
}
