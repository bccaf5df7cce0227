//! Parts of trees: what many machines make of data that is too much for one.

use std::sync::{Mutex, PoisonError};

use casemate_blockdev::u64_of;
use casemate_providers::Work;
use casemate_verity::tree::{Geometry, TreeSink};
pub use casemate_verity::{Part, Whole};

use crate::{Error, Image};

/// Hash blocks of a part's tree that lie one behind the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeBlocks {
    /// The first byte in the whole tree.
    pub offset: u64,
    /// The blocks.
    pub bytes: Vec<u8>,
}

/// A sink that keeps blocks in memory.
struct Kept<'a> {
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

impl Image {
    /// The part of the tree over a [file](crate::fsverity::WholeFile) or the data of a dm-verity device
    /// ([`Layout`](crate::verity::Layout)) that the image's bytes are, from byte `start` of the whole on; with the hash blocks
    /// of it, in order, if they are wanted.
    ///
    /// # Errors
    /// Errors of [`Part::build`].
    pub fn tree_part<W: Whole>(
        &self,
        whole: W,
        start: u64,
        with_tree: bool,
        work: &Work<'_>,
    ) -> Result<(Part<W>, Vec<TreeBlocks>), Error> {
        let geometry = whole.geometry()?;
        let kept = Kept { geometry: &geometry, blocks: Mutex::default() };
        let sink: &dyn TreeSink = if with_tree { &kept } else { &() };
        let part = Part::build(whole, start, &self.named(), sink, work);
        let part = part.map_err(|error| error.at(self.name()))?;
        let mut blocks = kept.blocks.into_inner().unwrap_or_else(PoisonError::into_inner);
        blocks.sort_by_key(|blocks| blocks.offset);
        blocks.dedup_by(|next, last| {
            let follows = last.offset + u64_of(last.bytes.len()) == next.offset;
            if follows {
                last.bytes.append(&mut next.bytes);
            }
            follows
        });
        Ok((part, blocks))
    }
}
