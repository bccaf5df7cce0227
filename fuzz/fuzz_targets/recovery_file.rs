#![no_main]
//! A recovery file beside an ext4 image that was being changed: shown as complete, then completed.
//!
//! The first byte chooses an image, the second whether the file's checksum fits; then come the number of blocks that the
//! file has, their numbers (16 bits each), and edits of the file.

use std::sync::Arc;

use casemate_blockdev::BlockDevice;
use casemate_ext4::{CheckOptions, Ext4, OpenOptions, RecoveryFile, WriteOptions, Writer, fix_checksums};
use casemate_fuzz::{edit, images, read_all};
use casemate_primitives::Cpu;
use casemate_primitives::crc32c::Crc32c;

/// Where the superblock says that the file system is clean.
const STATE: u64 = 1024 + 0x3a;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let [image, how, count, rest @ ..] = bytes else { return };
    let count = usize::from(*count % 16);
    let Some((numbers, edits)) = rest.split_at_checked(2 * count) else { return };
    let seeds = images();
    let device: Arc<dyn BlockDevice> = Arc::new(seeds[usize::from(*image) % seeds.len()].edited(&[]));
    device.write_at(&[0], STATE).expect("a device in memory");
    let _ = fix_checksums(device.clone(), &CheckOptions::default(), &Default::default());
    let mut numbers: Vec<u64> =
        numbers.chunks_exact(2).map(|number| u64::from(u16::from_le_bytes([number[0], number[1]]))).collect();
    numbers.sort_unstable();
    let mut file = redo(&*device, &numbers);
    let sums = file.len();
    edit(&mut file, edits);
    if how & 1 == 0 && sums >= 48 {
        let crc = Crc32c::new(Cpu::detect());
        let sum = crc.update(crc.update(!0, &file[..44]), &file[48..]);
        file[44..48].copy_from_slice(&sum.to_le_bytes());
    }
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let path = folder.path().join("redo");
    std::fs::write(&path, &file).expect("a file");
    let recovery = RecoveryFile::new(&path);
    if let Ok(Some(device)) = recovery.over(&device, &Default::default()) {
        read_all(&*device);
        let _ = Ext4::open(device, &OpenOptions::default());
    }
    let options = WriteOptions { recovery: Some(recovery), ..WriteOptions::default() };
    if Writer::open(device.clone(), options).is_ok() {
        assert!(!path.exists(), "what was completed is kept");
        Ext4::open(device, &OpenOptions::default()).expect("what was completed opens");
    }
});

/// A file that puts back what each block has, its first byte inverted (docs/formats/recovery-file.md).
fn redo(device: &dyn BlockDevice, numbers: &[u64]) -> Vec<u8> {
    const BLOCK: usize = 1024;
    let crc = Crc32c::new(Cpu::detect());
    let mut uuid = [0; 16];
    device.read_at(&mut uuid, 1024 + 0x68).expect("a superblock");
    let mut file = b"casemate redo 2\n".to_vec();
    file.extend(uuid);
    file.extend((BLOCK as u32).to_le_bytes());
    file.extend((numbers.len() as u64).to_le_bytes());
    file.extend([0; 4]);
    for number in numbers {
        let mut block = [0; BLOCK];
        let _ = device.read_at(&mut block, number * BLOCK as u64);
        file.extend(number.to_le_bytes());
        block.chunks(512).for_each(|sector| file.extend(crc.update(!0, sector).to_le_bytes()));
        block[0] = !block[0];
        file.extend(block);
    }
    file
}
