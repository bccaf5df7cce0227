//! Sets of numbers, in little memory where they lie together.

use std::collections::BTreeMap;
use std::ops::Range;

use casemate_blockdev::{u64_of, usize_of};

const WORDS: usize = 64;

/// Numbers of a chunk.
const CHUNK: u64 = 64 * 64;

/// Set of numbers. Memory goes by the chunks of 4096 numbers in which there are some.
#[derive(Clone, Debug, Default)]
pub(super) struct Bits {
    chunks: BTreeMap<u64, Box<[u64; WORDS]>>,
}

impl Bits {
    /// Adds a number; `false` if it is there already.
    pub fn insert(&mut self, number: u64) -> bool {
        let (word, mask) = place(number);
        let chunk = self.chunks.entry(number / CHUNK).or_insert_with(|| Box::new([0; WORDS]));
        let is_new = chunk[word] & mask == 0;
        chunk[word] |= mask;
        is_new
    }

    /// Adds all numbers of another set.
    pub fn unite(&mut self, other: Bits) {
        for (at, chunk) in other.chunks {
            let own = self.chunks.entry(at).or_insert_with(|| Box::new([0; WORDS]));
            own.iter_mut().zip(chunk.iter()).for_each(|(own, other)| *own |= other);
        }
    }

    /// Whether a number is there.
    pub fn has(&self, number: u64) -> bool {
        let (word, mask) = place(number);
        self.chunks.get(&(number / CHUNK)).is_some_and(|chunk| chunk[word] & mask != 0)
    }

    /// Whether one of these numbers is there.
    pub fn any(&self, range: Range<u64>) -> bool {
        self.next(range).is_some()
    }

    /// Numbers that follow each other, the first ones within a range.
    pub fn next_run(&self, range: Range<u64>) -> Option<Range<u64>> {
        let first = self.next(range.clone())?;
        let mut end = first + 1;
        while end < range.end {
            let (word, _) = place(end);
            let bits = self.chunks.get(&(end / CHUNK)).map_or(0, |chunk| chunk[word]);
            let ones = u64::from((bits >> (end % 64)).trailing_ones());
            if ones == 0 {
                break;
            }
            end += ones;
        }
        Some(first..end.min(range.end))
    }

    /// Removes numbers.
    pub fn remove(&mut self, range: Range<u64>) {
        let mut at = range.start;
        while at < range.end {
            let chunk_end = (at / CHUNK + 1) * CHUNK;
            if at.is_multiple_of(CHUNK) && chunk_end <= range.end {
                self.chunks.remove(&(at / CHUNK));
                at = chunk_end;
                continue;
            }
            let count = (64 - at % 64).min(range.end - at);
            let (word, _) = place(at);
            if let Some(chunk) = self.chunks.get_mut(&(at / CHUNK)) {
                chunk[word] &= !(!0 >> (64 - count) << (at % 64));
                if chunk.iter().all(|word| *word == 0) {
                    self.chunks.remove(&(at / CHUNK));
                }
            }
            at += count;
        }
    }

    /// The first number of a range that is there.
    fn next(&self, range: Range<u64>) -> Option<u64> {
        if range.is_empty() {
            return None;
        }
        for (at, chunk) in self.chunks.range(range.start / CHUNK..=(range.end - 1) / CHUNK) {
            let base = at * CHUNK;
            let first = range.start.saturating_sub(base);
            for (index, word) in chunk.iter().enumerate().skip(usize_of(first / 64)) {
                let start = u64_of(index) * 64;
                let word = if start < first { *word >> (first - start) << (first - start) } else { *word };
                if word != 0 {
                    let found = base + start + u64::from(word.trailing_zeros());
                    return (found < range.end).then_some(found);
                }
            }
        }
        None
    }
}

/// Word of a chunk that has a number, and its bit.
fn place(number: u64) -> (usize, u64) {
    (usize_of(number % CHUNK / 64), 1 << (number % 64))
}

#[cfg(test)]
mod tests {
    use casemate_testkit::Rng;

    use super::*;

    #[test]
    fn against_single_numbers() {
        let mut rng = Rng::new(7);
        let (mut bits, mut all) = (Bits::default(), vec![false; 20_000]);
        for _ in 0..2_000 {
            let start = rng.below(19_000);
            for number in start..start + rng.below(200) {
                assert_eq!(bits.insert(number), !all[number as usize]);
                all[number as usize] = true;
            }
            let (start, len) = (rng.below(19_000), rng.below(900));
            if rng.below(3) == 0 {
                bits.remove(start..start + len);
                all[start as usize..(start + len) as usize].fill(false);
            }
            let (start, len) = (rng.below(19_000), rng.below(900));
            let first = (start..start + len).find(|at| all[*at as usize]);
            let run = first.map(|first| {
                first..(first..start + len).find(|at| !all[*at as usize]).unwrap_or(start + len)
            });
            assert_eq!(bits.next_run(start..start + len), run, "{start} {len}");
            assert_eq!(bits.any(start..start + len), first.is_some());
            assert_eq!(bits.has(start), all[start as usize]);
        }
    }
}
