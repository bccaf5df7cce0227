//! Bytes of no known format: how they look.

use casemate_blockdev::{BlockDevice, samples, u64_of, usize_of};

/// Bytes of no known format, as far as they were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// How many bytes were read: the beginning, and samples of the rest.
    pub read: u64,
    /// How these bytes look.
    pub look: Look,
}

/// How bytes look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// There are none.
    Empty,
    /// All are zero.
    Zeros,
    /// All values are about as frequent, as in what is encrypted or compressed.
    Random,
    /// None of these.
    Other,
}

/// Look of bytes of no known format, and how many could not be read.
pub(super) fn content(device: &dyn BlockDevice) -> (Content, u64) {
    // Of blocks that are not zero: a sparse file may have been encrypted without its holes.
    let (mut counts, mut read, mut unreadable) = ([0_u32; 256], 0, 0);
    let mut buffer = Vec::new();
    for range in samples(device.size()) {
        // At most a MiB.
        buffer.resize(usize_of(range.end - range.start), 0);
        if device.read_at(&mut buffer, range.start).is_err() {
            unreadable += u64_of(buffer.len());
            continue;
        }
        read += u64_of(buffer.len());
        for block in buffer.chunks(4096).filter(|block| block.iter().any(|byte| *byte != 0)) {
            block.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
        }
    }
    let counted: u32 = counts.iter().sum();
    let look = match (read, counted) {
        (0, _) if unreadable == 0 => Look::Empty,
        (0, _) => Look::Other,
        (_, 0) => Look::Zeros,
        _ if is_even(&counts, counted) => Look::Random,
        _ => Look::Other,
    };
    (Content { read, look }, unreadable)
}

/// Whether all values are about as frequent. The sum below is 255 on average for random bytes, and 255 +- 23 in two of three
/// cases; texts and programs have more than ten times as much.
fn is_even(counts: &[u32; 256], bytes: u32) -> bool {
    const LEAST: u32 = 4096;
    let expected = f64::from(bytes) / 256.0;
    let squares = counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected);
    bytes >= LEAST && squares.sum::<f64>() < 400.0
}
