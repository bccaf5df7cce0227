#![no_main]
//! Two damaged ext4 images of one origin, compared: each byte that differs within the shorter file system has a line.
//!
//! The first byte chooses an image of `fuzz/seeds`, the second how many of the edits both images get; the rest are edits.

use std::num::NonZeroUsize;
use std::sync::Arc;

use casemate_blockdev::{BlockDevice, Pool};
use casemate_ext4::{DiffOptions, DiffSide, Ext4, OpenOptions, diff};
use casemate_providers::Work;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let [image, common, edits @ ..] = bytes else { return };
    let seeds = casemate_fuzz::images();
    let seed = &seeds[usize::from(*image) % seeds.len()];
    let common = usize::from(*common).min(edits.len());
    let side = |edits: &[u8]| {
        let device: Arc<dyn BlockDevice> = Arc::new(seed.edited(edits));
        let fs = Ext4::open(device.clone(), &OpenOptions::default()).ok()?;
        Some(DiffSide::new(fs, device))
    };
    let (Some(a), Some(b)) = (side(&edits[..common]), side(edits)) else { return };
    let work = Work { pool: Pool::new(NonZeroUsize::new(1)), ..Work::default() };
    for files_only in [false, true] {
        let mut lines = 0;
        let options = DiffOptions::new().files_only(files_only);
        let report = diff([&a, &b], options, &work, &mut |_| {
            lines += 1;
            Ok(())
        })
        .expect("damage is a line");
        assert!(files_only || report.is_equal == (report.bytes == 0 && report.unread == 0));
        assert!(report.is_equal || lines > 0);
    }
});
