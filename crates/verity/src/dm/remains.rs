//! Remains of what failed or was interrupted, which errors tell of.

use casemate_blockdev::Medium;

use crate::Error;

/// Adds to an error what it has left of a file that was there before.
pub(super) fn left_behind(error: Error, medium: &Medium) -> Error {
    with_remains(error, medium, || format!("{} was begun and is not whole, format it again", medium.name()))
}

/// Adds to an I/O error, or an interruption, what it has left on disk.
pub(super) fn with_remains(error: Error, medium: &Medium, remains: impl FnOnce() -> String) -> Error {
    match error.io_kind() {
        Some(_) if !medium.leaves_nothing() => error.map_text(|text| format!("{text}; {}", remains())),
        _ => error,
    }
}
