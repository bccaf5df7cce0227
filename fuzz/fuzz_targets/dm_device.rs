#![no_main]
//! A dm-verity hash device whose superblock, tree and parity come from somebody else: verified and repaired.
//!
//! Reaches little without a seed: the number of roots in a byte; then data, hash device and parity; then the lengths
//! of the hash device and of the data, two bytes each, big-endian.

use std::num::NonZeroUsize;

use casemate::Work;
use casemate_blockdev::{MemoryDevice, Pool};
use casemate_verity::dm::fec::{FecDevices, FecLayout, check, repair};
use casemate_verity::dm::{Layout, Superblock, verify};

libfuzzer_sys::fuzz_target!(|input: (u8, &[u8], &[u8], &[u8])| {
    let (roots, data, hash, parity) = input;
    let Some(superblock) = hash.first_chunk().and_then(|bytes| Superblock::from_bytes(bytes).ok()) else {
        return;
    };
    let Ok(layout) = Layout::from_superblock(superblock, 0) else { return };
    let [data, hash, parity] = [data, hash, parity].map(|bytes| MemoryDevice::new(bytes.to_vec()));
    let work = Work { pool: Pool::new(NonZeroUsize::new(1)), ..Work::default() };
    let root_hash = vec![0; layout.geometry().shape().digest_len()];
    let _ = verify(&layout, &data, &hash, &root_hash, &work, &mut |_| Ok(()));
    let Ok(fec) = FecLayout::new(&layout, roots.into(), layout.hash_device_size()) else { return };
    let devices = FecDevices { data: &data, hash: &hash, parity: &parity, parity_offset: 0 };
    let _ = check(&fec, &devices, &work);
    let _ = repair(&layout, &fec, &devices, &root_hash, &work);
});
