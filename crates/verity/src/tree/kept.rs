//! Hash blocks of a part that are kept in memory.

use std::sync::{Mutex, PoisonError};

use casemate_blockdev::u64_of;

use super::{Geometry, TreeSink};
use crate::Error;

/// Hash blocks of a part's tree that lie one behind the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeBlocks {
    /// The first byte in the whole tree.
    pub offset: u64,
    /// The blocks.
    pub bytes: Vec<u8>,
}

/// A sink that keeps blocks in memory.
pub(crate) struct Kept<'a> {
    geometry: &'a Geometry,
    blocks: Mutex<Vec<TreeBlocks>>,
}

impl TreeSink for Kept<'_> {
    fn write(&self, level: usize, first: u64, blocks: &[u8]) -> Result<(), Error> {
        let mut all = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(TreeBlocks { offset: self.geometry.offset(level, first), bytes: blocks.to_vec() });
        Ok(())
    }
}

impl Kept<'_> {
    pub(crate) fn new(geometry: &Geometry) -> Kept<'_> {
        Kept { geometry, blocks: Mutex::default() }
    }

    /// The blocks, in order.
    pub(crate) fn into_blocks(self) -> Vec<TreeBlocks> {
        let mut blocks = self.blocks.into_inner().unwrap_or_else(PoisonError::into_inner);
        blocks.sort_by_key(|blocks| blocks.offset);
        blocks.dedup_by(|next, last| {
            let follows = last.offset + u64_of(last.bytes.len()) == next.offset;
            if follows {
                last.bytes.append(&mut next.bytes);
            }
            follows
        });
        blocks
    }
}
