#![no_main]
//! A backup of an encrypted folder, damaged: restored into a folder of its own, with its key and without, beside which
//! nothing appears; and into an image, which is sound afterwards.
//!
//! The first byte says where to and how; the rest are edits.

use std::io::Write;
use std::sync::{Arc, LazyLock};

use casemate::backup::{RestoreOptions, extract, restore};
use casemate::{Keys, SecretSource, Work};
use casemate_blockdev::BlockDevice;
use casemate_ext4::{CheckOptions, WriteOptions, Writer, check};
use casemate_fuzz::{backup, fix_tar_sums, images};

/// The backup's key.
static KEYS: LazyLock<Keys> = LazyLock::new(|| {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(&[b'k'; 64]).expect("a key");
    Keys::default().with_raw(&SecretSource::file(file.path())).expect("a key")
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let [how, edits @ ..] = bytes else { return };
    let device = backup().edited(edits);
    let mut tar = vec![0; device.size() as usize];
    device.read_at(&mut tar, 0).expect("memory");
    if how & 1 == 0 {
        fix_tar_sums(&mut tar);
    }
    let work = Work::default();
    if how & 2 == 0 {
        return into_image(&tar, usize::from(how >> 2), &work);
    }
    let top = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let mut options = RestoreOptions::default();
    (options.owners, options.xattrs) = (false, how & 8 == 0);
    let folder = top.path().join("folder");
    let none = Keys::default();
    let keys = if how & 4 == 0 { &*KEYS } else { &none };
    let _ = extract(&mut &tar[..], "input", &folder, keys, &options, &work);
    assert!(std::fs::read_dir(top.path()).expect("the folder").count() <= 1);
});

fn into_image(tar: &[u8], image: usize, work: &Work<'_>) {
    let seeds = images();
    let device: Arc<dyn BlockDevice> = Arc::new(seeds[image % seeds.len()].edited(&[]));
    let options = WriteOptions { seed: Some(1), is_direct: true, ..WriteOptions::default() };
    let Ok(mut writer) = Writer::open(device.clone(), options) else { return };
    if restore(&mut &tar[..], "input", &mut writer, b"/restored", work).is_ok() {
        writer.commit().expect("what was restored can be committed");
    }
    drop(writer);
    let report = check(device, &CheckOptions::default(), &Work::default()).expect("a file system");
    assert!(report.is_clean(), "{:?}", report.faults);
}
