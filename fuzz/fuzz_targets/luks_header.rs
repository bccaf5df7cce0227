#![no_main]
//! Headers of LUKS1 and LUKS2: as they are, and LUKS2's metadata behind a checksum that is right.

use casemate_blockdev::MemoryDevice;
use casemate_luks::luks2::{BINARY_LEN, Metadata};
use casemate_luks::Header;
use casemate_providers::Providers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(header) = Header::read(&MemoryDevice::new(bytes.to_vec()), &Providers::default()) {
        let _ = header.uuid();
    }
    let mut area = bytes.to_vec();
    area.resize(area.len().max(16384 - BINARY_LEN), 0);
    let hdr_size = (area.len() + BINARY_LEN) as u64;
    if let Ok(metadata) = Metadata::from_bytes(&area, hdr_size) {
        let _ = (metadata.keyslots(), metadata.segments(), metadata.digests(), metadata.tokens());
        // What was taken is taken again as it is written, if there is room: what is written escapes more than it must.
        if metadata.to_plain().len() < area.len() {
            Metadata::new(metadata.object().clone(), hdr_size).expect("metadata that were taken");
        }
    }
});
