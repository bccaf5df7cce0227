#![no_main]
//! Parts of trees as workers send them, edited: what is read is written as it was, and joined or refused.

use casemate_blockdev::{MemoryDevice, Uuid};
use casemate_primitives::Cpu;
use casemate_primitives::crc32c::Crc32c;
use casemate_providers::Work;
use casemate_verity::dm::{self, Layout};
use casemate_verity::fs::{Parameters, WholeFile};
use casemate_verity::{Part, Whole};

const DATA: usize = 8192;

fn edited<W: Whole>(whole: W, edits: &[u8]) {
    let work = Work::default();
    let data = MemoryDevice::new(vec![7; DATA]);
    let part = Part::build(whole, 0, &data, &(), &work).expect("a part that is all of it");
    let mut bytes = part.to_bytes(&work.providers);
    for edit in edits.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % bytes.len();
        bytes[at] = edit[2];
    }
    // Else nothing behind the checksum is reached.
    let body = bytes.len() - 4;
    let sum = !Crc32c::new(Cpu::detect()).update(!0, &bytes[..body]);
    bytes[body..].copy_from_slice(&sum.to_le_bytes());
    if let Ok(read) = Part::<W>::from_bytes(&bytes, &work.providers) {
        let stored = read.to_bytes(&work.providers);
        let again = Part::<W>::from_bytes(&stored, &work.providers).expect("what was written can be read");
        assert_eq!(again.to_bytes(&work.providers), stored);
        let _ = Part::join(&[read, part], &(), &work);
    }
}

libfuzzer_sys::fuzz_target!(|edits: &[u8]| {
    edited(WholeFile { parameters: Parameters::default(), size: DATA as u64 }, edits);
    let parameters = dm::Parameters::new("sha256").expect("an algorithm");
    let layout = Layout::new(parameters, 2, 0, Some(Uuid::from_bytes([1; 16])));
    edited(layout.expect("a layout"), edits);
});
