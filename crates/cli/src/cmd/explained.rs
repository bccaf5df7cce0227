//! What an image holds, in a few words: for errors of those who looked for something else.

use std::fmt::Write as _;

use casemate::probe::{self, Content, Found, Look};
use casemate::{Advice, Error, ErrorKind, Image};

/// What to call something found, in a few words.
pub fn name(found: &Found) -> String {
    let mut text = match (found.what, found.fact("version")) {
        (Some(probe::EXT), Some(version)) => format!("an {version} file system"),
        (Some(probe::LUKS), Some(version)) => format!("a LUKS{version} header"),
        (Some(what), _) => what.to_owned(),
        (None, _) => unknown(found),
    };
    if matches!(found.what, Some(probe::GPT | probe::MBR)) {
        let numbers: Vec<String> =
            found.inside.iter().filter_map(|part| part.partition).map(|number| number.to_string()).collect();
        match &numbers[..] {
            [] => text.push_str(" without partitions that can be read"),
            numbers => write!(text, " with partitions {}", numbers.join(", ")).expect("writing to a string"),
        }
    }
    if let Some(label) = found.fact("label") {
        write!(text, " \"{label}\"").expect("writing to a string");
    }
    text
}

/// Says where a hash area of dm-verity begins, where none begins at the beginning: behind a file system, say. `at` is
/// the advice for a place.
pub fn without_hash_area(error: Error, image: &Image, at: fn(u64) -> Advice) -> Error {
    let place = || {
        let found = probe::look(image).ok().filter(|_| error.kind() == ErrorKind::Corrupt)?;
        let mut areas = found.inside.iter().filter(|area| area.what == Some(probe::VERITY));
        areas.next().map(|area| area.start)
    };
    match place() {
        Some(place) => error.advise(at(place)),
        None => explained(error, image, probe::VERITY),
    }
}

/// What to call bytes that are no format's: no more is said than was read.
fn unknown(found: &Found) -> String {
    let Some(Content { read, look }) = found.content else { return "nothing known".to_owned() };
    match look {
        Look::Empty => "nothing: there are no bytes".to_owned(),
        Look::Zeros if read == found.len => "nothing but zeros".to_owned(),
        Look::Zeros => {
            format!("nothing known; the {read} bytes that were read are zero, the rest was not read")
        }
        Look::Random => "nothing known; it looks random, and may be encrypted without a header".to_owned(),
        Look::Other => "nothing known".to_owned(),
    }
}

/// Says what a device holds, where it does not hold what was looked for.
pub fn explained(error: Error, image: &Image, wanted: &str) -> Error {
    if error.kind() != ErrorKind::Corrupt {
        return error;
    }
    match probe::look(image) {
        Ok(found) if found.what.is_some_and(|what| what != wanted) => {
            let error =
                error.map_text(|text| format!("{text}; this is {} (see casemate info)", name(&found)));
            match found.what {
                Some(probe::GPT | probe::MBR) => error.advise(Advice::Partition),
                _ => error,
            }
        }
        _ => error,
    }
}
