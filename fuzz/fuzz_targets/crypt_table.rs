#![no_main]
//! A device-mapper line of a dm-crypt mapping: what is read is written back with the same meaning.

use casemate_crypt::Table;

libfuzzer_sys::fuzz_target!(|line: &str| {
    if let Ok(table) = line.parse::<Table>() {
        let again = text(&table).parse::<Table>().expect("what was written can be read");
        assert_eq!(text(&again), text(&table));
    }
});

fn text(table: &Table) -> String {
    String::from_utf8(table.with_key().expose().to_vec()).expect("lines are text")
}
