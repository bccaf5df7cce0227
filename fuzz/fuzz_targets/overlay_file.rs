#![no_main]
//! An overlay file: opened over a device, read, written, flushed, and opened again.
//!
//! The first byte says whether the header's checksum fits, the second the size of the device in blocks; the rest are
//! edits.

use std::sync::Arc;

use casemate_blockdev::{BlockDevice, ConstantBase, MemoryDevice, OverlayFile};
use casemate_fuzz::{edit, read_all};

type Overlay<'a> = OverlayFile<&'a MemoryDevice, &'a MemoryDevice>;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let [how, blocks, edits @ ..] = bytes else { return };
    let size = u64::from(*blocks % 32) * 4096 + u64::from(how >> 1);
    let below = MemoryDevice::new(vec![1; size as usize]);
    let store = MemoryDevice::new(vec![0; 64 << 10]);
    let base = Arc::new(ConstantBase(b"base".to_vec()));
    if Overlay::format(&&store, &&below, &*base).is_err() {
        return;
    }
    let mut bytes = store.into_bytes();
    edit(&mut bytes, edits);
    if how & 1 == 0 {
        // Versions 1 and 2 have a shorter header.
        let end = if matches!(bytes[16], 1 | 2) { 104 } else { 136 };
        let sum = crc32(&bytes[..end]);
        bytes[end..end + 4].copy_from_slice(&sum.to_le_bytes());
    }
    let store = MemoryDevice::new(bytes);
    for round in 0..2 {
        let Ok(overlay) = Overlay::open(&below, &store, base.clone()) else { return };
        read_all(&overlay);
        for at in [0, size / 2, size.saturating_sub(1000)] {
            let _ = overlay.write_at(&[9; 1000], at);
            let _ = overlay.write_zeroes(at / 2, 5000, round == 0);
        }
        let _ = overlay.flush();
        assert!(overlay.changed_blocks() <= size.div_ceil(Overlay::BLOCK));
    }
});

/// CRC-32 as in zlib, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ (crc & 1) * 0xedb8_8320)
    })
}
