//! Sets of blocks as runs.

use std::collections::BTreeMap;

use crate::units::Block;

/// Blocks of which none may be there twice. Neighbours are one run, so that what lies together takes little memory.
#[derive(Debug, Default)]
pub(crate) struct BlockRuns {
    /// The block behind each run's last one, by its first.
    ends: BTreeMap<Block, Block>,
}

impl BlockRuns {
    /// Adds blocks of the file system; `false`, and nothing is added, if one of them is there already.
    #[must_use]
    pub fn insert(&mut self, block: Block, len: u64) -> bool {
        let (mut start, mut end) = (block, block + len);
        if let Some((first, last)) = self.ends.range(..end).next_back() {
            if *last > start {
                return false;
            }
            if *last == start {
                start = *first;
            }
        }
        if let Some(last) = self.ends.remove(&end) {
            end = last;
        }
        self.ends.insert(start, end);
        true
    }

    /// Whether all of these blocks are there.
    pub fn has(&self, block: Block, len: u64) -> bool {
        self.ends.range(..=block).next_back().is_some_and(|(_, end)| *end >= block + len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_block_is_there_twice() {
        let mut runs = BlockRuns::default();
        let cases = [
            (10, 5, true),
            (14, 1, false),
            (9, 2, false),
            (0, 100, false),
            (15, 5, true),
            (5, 5, true),
            (12, 1, false),
            (30, 1, true),
            (19, 2, false),
            (20, 10, true),
        ];
        for (block, len, is_new) in cases {
            assert_eq!(runs.insert(Block::new(block), len), is_new, "{len} blocks at {block}");
        }
        assert_eq!(runs.ends.into_iter().collect::<Vec<_>>(), [(Block::new(5), Block::new(31))]);
    }
}
