#![no_main]
//! Command lines, words between line ends, of the command itself and under the names of other tools.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let links = casemate_cli::LINKS.iter().map(|(name, _)| *name);
    for name in std::iter::once("casemate").chain(links) {
        let words = bytes.split(|byte| *byte == b'\n').map(|word| OsString::from_vec(word.to_vec()));
        let line: Vec<OsString> = std::iter::once(OsString::from(name)).chain(words).collect();
        let _ = casemate_cli::understands(&line);
    }
});
