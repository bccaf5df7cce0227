//! Runs of bits in bitmaps.

use casemate_blockdev::{u64_of, usize_of};

/// How many of the first `count` bits are clear.
pub(crate) fn clear(bytes: &[u8], count: u32) -> u32 {
    let (whole, rest) = (usize_of(count) / 8, count % 8);
    let set: u32 = bytes[..whole].iter().map(|byte| byte.count_ones()).sum();
    let last = if rest > 0 { (bytes[whole] & !(0xff << rest)).count_ones() } else { 0 };
    count - set - last
}

/// Sets a bit.
#[inline]
pub(crate) fn set(bytes: &mut [u8], bit: u64) {
    bytes[usize_of(bit / 8)] |= 1 << (bit % 8);
}

/// Inverts `count` bits from `first` on.
pub(crate) fn flip(bytes: &mut [u8], first: u64, count: u64) {
    if count == 0 {
        return;
    }
    let end = first + count;
    let (from, to) = (usize_of(first / 8), usize_of(end / 8));
    let (head, tail) = (0xffu8 << (first % 8), !(0xffu8 << (end % 8)));
    if from == to {
        bytes[from] ^= head & tail;
        return;
    }
    bytes[from] ^= head;
    for byte in &mut bytes[from + 1..to] {
        *byte = !*byte;
    }
    if tail != 0 {
        bytes[to] ^= tail;
    }
}

/// Inverts all bits from `first` on.
pub(crate) fn flip_from(bytes: &mut [u8], first: u64) {
    let end = 8 * u64_of(bytes.len());
    flip(bytes, first, end - first);
}

/// Whether all bits of the range are `value`.
pub(crate) fn all(bytes: &[u8], first: u64, count: u64, value: bool) -> bool {
    next(bytes, first, first + count, !value).is_none()
}

/// The first bit from `from` on, below `to`, that is `value`.
pub(crate) fn next(bytes: &[u8], from: u64, to: u64, value: bool) -> Option<u64> {
    let mut at = from;
    while at < to {
        let index = usize_of(at / 8);
        if at.is_multiple_of(64)
            && let Some(word) = bytes.get(index..index + 8)
        {
            // OK to unwrap: eight bytes.
            let word = u64::from_le_bytes(word.try_into().unwrap());
            let word = if value { word } else { !word };
            if word == 0 {
                at += 64;
                continue;
            }
            let found = at + u64::from(word.trailing_zeros());
            return (found < to).then_some(found);
        }
        let byte = if value { bytes[index] } else { !bytes[index] } >> (at % 8);
        if byte != 0 {
            let found = at + u64::from(byte.trailing_zeros());
            return (found < to).then_some(found);
        }
        at = (at / 8 + 1) * 8;
    }
    None
}

/// The first run of clear bits in `from..to` of at least `want` bits, or else the longest one: its first bit
/// and its length, of which no more than `want` is counted.
pub(crate) fn clear_run(bytes: &[u8], from: u64, to: u64, want: u64) -> Option<(u64, u64)> {
    let mut best: Option<(u64, u64)> = None;
    let mut at = from;
    while let Some(start) = next(bytes, at, to, false) {
        let stop = to.min(start.saturating_add(want));
        let end = next(bytes, start, stop, true).unwrap_or(stop);
        let len = end - start;
        if best.is_none_or(|(_, longest)| len > longest) {
            best = Some((start, len));
        }
        if len >= want {
            return Some((start, len));
        }
        at = end;
    }
    best
}

#[cfg(test)]
mod tests {
    use casemate_testkit::Rng;

    use super::*;

    #[test]
    fn against_single_bits() {
        let mut rng = Rng::new(3);
        let bit = |bytes: &[u8], at: u64| bytes[(at / 8) as usize] >> (at % 8) & 1 == 1;
        let mut bytes = vec![0u8; 40];
        for _ in 0..3000 {
            let first = rng.below(320);
            let count = rng.below(320 - first + 1);
            let old = bytes.clone();
            flip(&mut bytes, first, count);
            for at in 0..320 {
                assert_eq!(bit(&bytes, at) != bit(&old, at), (first..first + count).contains(&at));
            }
            for value in [false, true] {
                let naive = (first..first + count).find(|at| bit(&bytes, *at) == value);
                assert_eq!(next(&bytes, first, first + count, value), naive);
                assert_eq!(all(&bytes, first, count, !value), naive.is_none());
            }
            let want = 1 + rng.below(20);
            let mut runs = Vec::new();
            let mut at = first;
            while at < first + count {
                let len = (at..first + count).take_while(|at| !bit(&bytes, *at)).count() as u64;
                if len > 0 {
                    runs.push((at, len));
                }
                at += len + 1;
            }
            let fits = runs.iter().find(|(_, len)| *len >= want).copied();
            let longest = runs.iter().map(|(_, len)| *len).max();
            let found = clear_run(&bytes, first, first + count, want);
            match fits {
                Some((start, _)) => assert_eq!(found, Some((start, want))),
                None => assert_eq!(found.map(|(_, len)| len), longest),
            }
        }
    }
}
