//! Parts of plain data that are in use, and how far they reach.

use crate::error::Result;
use crate::medium::Medium;

/// A part of plain data that is in use: a file system, a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Used {
    /// Name of the part, such as "partition 2".
    pub what: String,
    /// The byte behind it.
    pub end: u64,
    /// True for a file system over all of the data: it does not use what lies behind it.
    pub is_whole: bool,
}

/// Function that finds what is in use of plain data, as far as it is known where that ends.
///
/// Errors are those of reading.
pub type Contents = fn(&Medium) -> Result<Vec<Used>>;

impl Used {
    /// Contents of plain data, from the first byte on or from another one, that reach behind a byte `end`. Its end is counted from
    /// the medium's first byte.
    ///
    /// # Errors
    /// Errors of reading.
    pub fn reaching_behind(data: &Medium, start: u64, end: u64, contents: Contents) -> Result<Option<Used>> {
        let mut places = vec![0, start];
        places.dedup();
        for from in places {
            let Ok(plain) = data.clone().window(from, None) else { continue };
            let used = contents(&plain)?.into_iter();
            let mut used = used.map(|used| Used { end: used.end.saturating_add(from), ..used });
            if let Some(found) = used.find(|used| used.end > end) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}
