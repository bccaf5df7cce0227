//! What is on a device, beside the bytes that it will have.

use crate::probe::{self, Found};
use crate::{Error, Image};

/// Checks that the file system or the partitions on plain data lie within their first `len` bytes, as far as it is known
/// where they end. Returns whether there is a file system whose size is known: what lies behind it is not in use.
///
/// # Errors
/// `Argument`, which names what would be cut; `Io`.
pub(super) fn check(plain: &Image, len: u64) -> Result<bool, Error> {
    let found = probe::look(plain)?;
    let whole = found.fact("bytes").and_then(|bytes| bytes.parse().ok()).map(|end| (&found, end));
    let is_known = whole.is_some();
    let parts = found.inside.iter().filter(|part| part.partition.is_some());
    let parts = parts.map(|part| (part, part.start.saturating_add(part.len)));
    match whole.into_iter().chain(parts).find(|(_, end)| *end > len) {
        Some((cut, end)) => Err(Error::argument(format!(
            "{} ends at byte {end} of the data, of which {len} are left: make it smaller first",
            what(cut)
        ))),
        None => Ok(is_known),
    }
}

fn what(found: &Found) -> String {
    match (found.partition, found.what) {
        (Some(number), _) => format!("partition {number}"),
        (None, Some(what)) => what.to_owned(),
        (None, None) => "what is on it".to_owned(),
    }
}
