#![no_main]
//! A whole ext4 image, damaged, with checksums that fit the damage or not, checked and mended. What a repair says that it
//! mended is not found again, and a second repair finds nothing left to do.
//!
//! The first byte chooses an image of `fuzz/seeds`, the second how it is opened; the rest are edits.

use std::num::NonZeroUsize;
use std::sync::Arc;

use casemate_blockdev::{BlockDevice, Pool};
use casemate_ext4::{CheckOptions, Ext4, OpenOptions, RecoveryFile, RepairOptions, RepairReport, Result};
use casemate_ext4::{check, fix_checksums, repair};
use casemate_fuzz::images;
use casemate_providers::Work;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let [image, how, edits @ ..] = bytes else { return };
    let seeds = images();
    let device: Arc<dyn BlockDevice> = Arc::new(seeds[usize::from(*image) % seeds.len()].edited(edits));
    let work = Work { pool: Pool::new(NonZeroUsize::new(1)), ..Work::default() };
    let open = CheckOptions::default();
    if how & 1 == 0 {
        let open = OpenOptions { verify_checksums: false, ..open.open.clone() };
        let _ = fix_checksums(device.clone(), &CheckOptions { open, ..CheckOptions::default() }, &work);
    }
    let Ok(RepairReport { mended, report, .. }) = mend(&device, &open, &work) else { return };
    let twice = mended.iter().find(|finding| report.faults.contains(finding));
    assert!(twice.is_none(), "{twice:?} is told to be mended, and is still there");
    let now = check(device.clone(), &open, &work).expect("what was mended can be checked");
    assert_eq!(now.faults, report.faults, "a check tells something else than the repair did");
    if report.faults.is_empty() {
        Ext4::open(device.clone(), &open.open).expect("a sound file system opens");
    }
    let again = mend(&device, &open, &work).expect("what was mended can be mended");
    assert!(again.mended.is_empty(), "there was something left to mend: {:?}", again.mended);
});

/// A repair that mends whatever it can.
fn mend(device: &Arc<dyn BlockDevice>, open: &CheckOptions, work: &Work<'_>) -> Result<RepairReport> {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let recovery = Some(RecoveryFile::new(folder.path().join("redo")));
    let options = RepairOptions { check: open.clone(), seed: Some(1), recovery, ..RepairOptions::default() };
    repair(device.clone(), options, &mut |_, _| Ok(true), work)
}
