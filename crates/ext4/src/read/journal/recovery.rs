//! Reports on what was replayed.

use crate::error::{Corrupt, Result};

/// Report on the journal when a file system was opened.
#[derive(Clone, Debug, Default)]
pub struct Recovery {
    /// Transactions that were replayed over the image, in memory.
    pub transactions: u32,
    /// Fast commits that were replayed on top of those.
    pub fast_commits: u32,
    /// Blocks of the file system that are read from the journal because of that.
    pub blocks: u64,
    /// Why the log ends before its last transaction: one that was committed is damaged.
    pub cut: Option<Corrupt>,
    /// Whether there was something to replay, and it lies behind the end of the device.
    pub missing: bool,
    /// The number that the transaction behind the last one would have.
    pub(crate) next_sequence: u32,
}

impl Recovery {
    /// The part that is missing where the log was cut, in words.
    pub fn cut_text(&self) -> Option<String> {
        if self.missing {
            return Some("the journal lies behind the end of the image, and was not replayed".to_owned());
        }
        let (cut, number) = (self.cut.as_ref()?, self.next_sequence);
        Some(format!("transaction {number} of the journal was committed and is damaged ({cut})"))
    }

    /// Refuses a log that was cut: writing what is left of it would throw the rest away.
    pub(crate) fn require_whole(&self) -> Result<()> {
        let (Some(cut), number) = (&self.cut, self.next_sequence) else { return Ok(()) };
        let text = format!(
            "{}; transaction {number} was committed, and would be lost with all that follow it: \
             copy from the image what you need, then run e2fsck -f, which drops them and repairs the rest",
            cut.problem()
        );
        Err(cut.place().malformed(text))
    }
}
