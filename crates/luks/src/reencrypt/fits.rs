//! Contents of a device, beside the bytes that it will have.

use casemate_blockdev::{Contents, Medium, Used};

use crate::Error;

/// Checks that the file system or the partitions on plain data lie within their first `len` bytes, as far as it is known
/// where they end. Returns whether there is a file system whose size is known: it does not use what lies behind it.
///
/// # Errors
/// `Argument`, which names what would be cut; `Unsupported` without knowledge of contents; `Io`.
pub(super) fn check(plain: &Medium, len: u64, contents: Option<Contents>) -> Result<bool, Error> {
    let contents = contents.ok_or_else(|| {
        Error::unsupported(
            "data give up their end only where their contents are known, and no function was given that finds these",
        )
    })?;
    let used = contents(plain)?;
    match used.iter().find(|used| used.end > len) {
        Some(Used { what, end, .. }) => Err(Error::argument(format!(
            "{what} ends at byte {end} of the data, of which {len} are left: make it smaller first"
        ))),
        None => Ok(used.iter().any(|used| used.is_whole)),
    }
}
