#![no_main]
//! A device-mapper line of a dm-crypt mapping: what is read is written back with the same meaning.

use casemate_crypt::Table;

libfuzzer_sys::fuzz_target!(|line: &str| {
    if let Ok(table) = line.parse::<Table>() {
        let again = table.with_key().parse::<Table>().expect("what was written can be read");
        assert_eq!(again.with_key(), table.with_key());
    }
});
