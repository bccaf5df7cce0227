//! Short descriptions of what an image holds, for errors of commands that looked for something else.

use std::fmt::Write as _;

use casemate::probe::{self, Content, Found, Look};
use casemate::{Advice, Error, ErrorKind, Image};

/// Describes something found, in a few words with an article.
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

/// Adds to an error where a hash area of dm-verity begins, if the image has one that does not begin at byte 0, such as
/// one behind a file system. `at` makes the advice for a place.
pub fn without_hash_area(error: Error, image: &Image, at: fn(u64) -> Advice) -> Error {
    match hash_area_within(&error, image) {
        Some(place) => error.advise(at(place)),
        None => explained(error, image, probe::VERITY),
    }
}

/// First byte of the hash area that an image has behind a file system, if none is where it was looked for. One in a partition is
/// that of another partition, and not of the disk.
pub fn hash_area_within(error: &Error, image: &Image) -> Option<u64> {
    let found = probe::look(image).ok().filter(|_| error.kind() == ErrorKind::Corrupt)?;
    if matches!(found.what, Some(probe::GPT | probe::MBR)) {
        return None;
    }
    found.inside.iter().find(|area| area.what == Some(probe::VERITY)).map(|area| area.start)
}

/// Describes bytes of no known format, by as much of them as was read.
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

/// Adds to an error what a device holds instead of the `wanted` format.
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
                Some(probe::LUKS) => error.advise(Advice::OpenLuks),
                _ => error,
            }
        }
        _ => error,
    }
}
