//! Maps of sparse files: decimal lines, how many ranges, then start and length of each. A range of no bytes at the end
//! says how long the file is.

use std::ops::Range;

use casemate_blockdev::u64_of;

use super::RECORD;

/// Ranges of a sparse member that are taken.
pub(super) const MOST_RANGES: u64 = 1 << 22;

/// A map as GNU tar's format 1.0 has it before the contents.
pub(super) fn to_bytes(ranges: &[Range<u64>], size: u64) -> Vec<u8> {
    let mut map = format!("{}\n", ranges.len() + 1);
    for range in ranges {
        map.push_str(&format!("{}\n{}\n", range.start, range.end - range.start));
    }
    map.push_str(&format!("{size}\n0\n"));
    let mut map = map.into_bytes();
    map.resize(map.len().next_multiple_of(RECORD), 0);
    map
}

/// Numbers of a map, read from its bytes as they come.
#[derive(Default)]
pub(super) struct Numbers {
    numbers: Vec<u64>,
    number: u64,
}

impl Numbers {
    /// Takes a record; then all starts and lengths, if these were the last ones.
    pub fn take(&mut self, record: &[u8; RECORD]) -> Result<Option<&[u64]>, &'static str> {
        for byte in record {
            match byte {
                b'0'..=b'9' => {
                    let next = self.number.checked_mul(10);
                    let next = next.and_then(|number| number.checked_add(u64::from(byte - b'0')));
                    self.number = next.ok_or("a number in a map passes 2^64")?;
                }
                b'\n' => {
                    if self.numbers.is_empty() && self.number > MOST_RANGES {
                        return Err(TOO_MANY);
                    }
                    self.numbers.push(std::mem::take(&mut self.number));
                    if u64_of(self.numbers.len()) == 1 + 2 * self.numbers[0] {
                        return Ok(Some(&self.numbers[1..]));
                    }
                }
                _ => return Err("the map is not a list of numbers"),
            }
        }
        Ok(None)
    }
}

/// Error text for a map without end.
pub(super) const TOO_MANY: &str = "the map has more than 2^22 ranges";

/// Ranges of starts and lengths, in order, within a file of `size` bytes.
pub(super) fn ranges(numbers: &[u64], size: u64) -> Result<Vec<Range<u64>>, &'static str> {
    let (pairs, rest) = numbers.as_chunks::<2>();
    if !rest.is_empty() {
        return Err("the map has a start without a length");
    }
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for [start, len] in pairs {
        let end = start.checked_add(*len).filter(|end| *end <= size);
        let after = ranges.last().is_none_or(|last| last.end <= *start);
        let end = end.filter(|_| after).ok_or("ranges of the map overlap or pass the end")?;
        if *len > 0 {
            ranges.push(*start..end);
        }
    }
    Ok(ranges)
}
