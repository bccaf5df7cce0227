//! Enough of a device to tell it from others.

use std::ops::Range;

/// The bytes of a device that tell it from others of `size` bytes: the first MiB, where superblocks and partition
/// tables lie, and 64 blocks of 4096 bytes spread over all of it, of which the last block is one.
pub fn samples(size: u64) -> impl Iterator<Item = Range<u64>> {
    let last = size.div_ceil(BLOCK).saturating_sub(1);
    // The last block's number has 52 bits, so nothing overflows.
    let blocks = (1..=BLOCKS).map(move |k| last * k / BLOCKS * BLOCK);
    let spread = blocks.map(move |start| start..size.min(start.saturating_add(BLOCK)));
    std::iter::once(0..size.min(BEGINNING)).chain(spread.filter(|block| block.start >= BEGINNING))
}

const BEGINNING: u64 = 1 << 20;
const BLOCK: u64 = 4096;
const BLOCKS: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginning_and_end_are_among_them() {
        for size in [0, 1, 4096, 1 << 20, (1 << 20) + 1, (9 << 20) + 512, 1 << 40, u64::MAX] {
            let all: Vec<_> = samples(size).collect();
            assert_eq!(all[0], 0..size.min(1 << 20));
            assert_eq!(all.last().unwrap().end, size);
            assert!(all.windows(2).all(|pair| pair[0].end <= pair[1].start), "{all:?}");
            assert!(all.iter().all(|range| range.end - range.start <= 1 << 20), "{all:?}");
        }
        assert_eq!(samples(1 << 40).count(), 65);
    }
}
