#![no_main]
//! A backup, restored without keys into a folder of its own: nothing appears beside it.
//!
//! Reaches little without a seed, which is what `casemate fscrypt backup` makes.

use casemate::Providers;
use casemate::backup::{Restoring, extract};
use casemate::fscrypt::Keyring;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let top = tempfile::tempdir().expect("a folder");
    let restoring = Restoring { owners: false, xattrs: false };
    let keyring = Keyring::new(Providers::default());
    let _ = extract(&mut &bytes[..], "input", &top.path().join("folder"), &keyring, &restoring);
    assert!(std::fs::read_dir(top.path()).expect("the folder").count() <= 1);
});
