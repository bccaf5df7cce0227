#![no_main]
//! A backup, restored without keys into a folder of its own: nothing appears beside it.
//!
//! Reaches little without a seed, which is what `casemate fscrypt backup` makes.

use casemate::backup::{RestoreOptions, extract};
use casemate::{Keys, Work};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let top = tempfile::tempdir().expect("a folder");
    let (keys, mut options) = (Keys::default(), RestoreOptions::default());
    (options.owners, options.xattrs) = (false, false);
    let folder = top.path().join("folder");
    let _ = extract(&mut &bytes[..], "input", &folder, &keys, &options, &Work::default());
    assert!(std::fs::read_dir(top.path()).expect("the folder").count() <= 1);
});
