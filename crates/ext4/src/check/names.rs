//! Names that were seen in a directory, as 64 bits each.

use casemate_blockdev::{u64_of, usize_of};

/// Names of a directory that are kept at once; more take several turns.
pub(crate) const MOST: u64 = 1 << 21;

/// A set of hashes that are not zero: a table whose places follow from them.
#[derive(Debug, Default)]
pub(crate) struct Names {
    table: Vec<u64>,
    used: usize,
}

/// The least size of a table.
const LEAST: usize = 1 << 10;

impl Names {
    pub fn clear(&mut self) {
        self.table.truncate(LEAST);
        self.table.fill(0);
        self.table.resize(LEAST, 0);
        self.used = 0;
    }

    /// Adds a hash; false if it is there.
    #[inline]
    pub fn insert(&mut self, hash: u64) -> bool {
        if self.used * 2 >= self.table.len() {
            self.grow();
        }
        let mask = self.table.len() - 1;
        let mut at = usize_of(hash) & mask;
        loop {
            match self.table[at] {
                0 => break,
                other if other == hash => return false,
                _ => at = (at + 1) & mask,
            }
        }
        self.table[at] = hash;
        self.used += 1;
        true
    }

    #[cold]
    fn grow(&mut self) {
        let old = std::mem::take(&mut self.table);
        self.table = vec![0; (old.len() * 2).max(LEAST)];
        self.used = 0;
        for hash in old.into_iter().filter(|hash| *hash != 0) {
            self.insert(hash);
        }
    }
}

/// 64 bits of a name, never zero, and whether it has a slash or a NUL.
#[inline]
pub(crate) fn mixed(name: &[u8]) -> (u64, bool) {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let has_zero = |word: u64| word.wrapping_sub(ONES) & !word & HIGHS;
    let mut hash = u64_of(name.len());
    let mut bad = 0;
    let mut add = |word: u64| {
        bad |= has_zero(word) | has_zero(word ^ (ONES * u64::from(b'/')));
        hash = (hash.rotate_left(23) ^ word).wrapping_mul(FACTOR);
    };
    let (words, rest) = name.as_chunks::<8>();
    for word in words {
        add(u64::from_le_bytes(*word));
    }
    if !rest.is_empty() {
        // Behind the end are bytes that are neither.
        let mut word = [1; 8];
        word[..rest.len()].copy_from_slice(rest);
        add(u64::from_le_bytes(word));
    }
    let hash = hash ^ hash >> 29;
    (hash.wrapping_mul(FACTOR) | 1, bad != 0)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use casemate_testkit::Rng;

    use super::*;

    #[test]
    fn a_set_of_hashes() {
        let (mut names, mut expected, mut rng) = (Names::default(), HashSet::new(), Rng::new(9));
        for turn in 0..3 {
            names.clear();
            expected.clear();
            for _ in 0..3000 * (3 - turn) {
                let hash = 1 + rng.below(5000) * 0x1_0000_0001;
                assert_eq!(names.insert(hash), expected.insert(hash));
            }
        }
    }

    #[test]
    fn slashes_and_nuls_are_seen_at_every_place() {
        for len in 1..40 {
            let name = vec![b'.'; len];
            assert!(!mixed(&name).1 && mixed(&name).0 != 0);
            for at in 0..len {
                for byte in [0, b'/', 0x80, 0x2e, 0xff, 1] {
                    let mut name = name.clone();
                    name[at] = byte;
                    assert_eq!(mixed(&name).1, matches!(byte, 0 | b'/'), "{len} {at} {byte}");
                }
            }
        }
    }
}
