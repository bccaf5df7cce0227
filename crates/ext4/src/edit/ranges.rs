//! Runs of numbers, of which what was said last counts.

use std::collections::BTreeMap;

/// Values of runs of numbers.
#[derive(Debug)]
pub(crate) struct Ranges<T>(BTreeMap<u64, (u64, T)>);

/// A value of a run, from which that of each part follows.
pub(crate) trait Said: Copy {
    /// The value of the part that begins `skipped` numbers later.
    fn behind(self, skipped: u64) -> Self;
}

impl<T> Default for Ranges<T> {
    fn default() -> Self {
        Ranges(BTreeMap::new())
    }
}

impl Said for bool {
    fn behind(self, _skipped: u64) -> bool {
        self
    }
}

impl<T: Said> Ranges<T> {
    /// Sets the value of `len` numbers from `at` on, in place of any that they had.
    pub fn set(&mut self, at: u64, len: u64, said: T) {
        let end = at + len;
        let before = self.0.range(..at).next_back().map(|(first, (len, _))| (*first, *len));
        if let Some((first, len)) = before.filter(|(first, len)| first + len > at) {
            let (_, said) = self.0[&first];
            self.0.insert(first, (at - first, said));
            self.0.insert(at, (first + len - at, said.behind(at - first)));
        }
        while let Some((first, (len, said))) =
            self.0.range(at..end).next().map(|(first, entry)| (*first, *entry))
        {
            self.0.remove(&first);
            if first + len > end {
                self.0.insert(end, (first + len - end, said.behind(end - first)));
            }
        }
        if len > 0 {
            self.0.insert(at, (len, said));
        }
    }

    /// Runs in their order: the first number, how many, and what was said last.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64, T)> {
        self.0.iter().map(|(first, (len, said))| (*first, *len, *said))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct At(u64);

    impl Said for At {
        fn behind(self, skipped: u64) -> At {
            At(self.0 + skipped)
        }
    }

    #[test]
    fn what_is_said_last_counts() {
        let mut rng = casemate_testkit::Rng::new(1);
        let (mut ranges, mut plain) = (Ranges::default(), [None; 64]);
        for _ in 0..5000 {
            let (at, len, said) = (rng.below(56), rng.below(9), rng.below(1000));
            ranges.set(at, len, At(said));
            for (number, place) in (0..len).zip(&mut plain[at as usize..]) {
                *place = Some(said + number);
            }
            let mut told = [None; 64];
            for (first, len, At(said)) in ranges.iter() {
                (0..len).for_each(|number| told[(first + number) as usize] = Some(said + number));
            }
            assert_eq!(told, plain);
        }
    }
}
