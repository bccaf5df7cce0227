#![no_main]
//! A tar stream, put into an ext4 image, which is sound afterwards, whatever the stream held.

use std::sync::Arc;

use casemate_blockdev::BlockDevice;
use casemate_ext4::{CheckOptions, PutOptions, RecoveryFile, WriteOptions, Writer, check};
use casemate_fuzz::images;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let [image, tar @ ..] = bytes else { return };
    let seeds = images();
    let device: Arc<dyn BlockDevice> = Arc::new(seeds[usize::from(*image) % seeds.len()].edited(&[]));
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let recovery = Some(RecoveryFile::new(folder.path().join("redo")));
    let options = WriteOptions { seed: Some(1), recovery, ..WriteOptions::default() };
    let mut writer = Writer::open(device.clone(), options).expect("a sound image");
    let mut put = PutOptions::default();
    put.owner = Some((0, 0));
    if writer.put_tar(&mut &tar[..], "input", b"/folder", &put, &Default::default()).is_ok() {
        writer.commit().expect("what was put can be committed");
    }
    drop(writer);
    let report = check(device, &CheckOptions::default(), &Default::default()).expect("a file system");
    assert!(report.is_clean(), "{:?}", report.faults);
});
