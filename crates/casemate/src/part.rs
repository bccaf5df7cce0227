//! Parts of trees: what many machines make of data that is too much for one.

use std::sync::{Mutex, PoisonError};

use casemate_providers::Work;
use casemate_verity::tree::{Geometry, TreeSink};
pub use casemate_verity::{Part, Whole};

use crate::{Error, Image};

/// Hash blocks of a part's tree: where in the whole tree they lie, in bytes, and what they are.
pub type TreeBlocks = Vec<(u64, Vec<u8>)>;

/// A sink that keeps blocks in memory.
struct Kept<'a> {
    geometry: &'a Geometry,
    blocks: Mutex<TreeBlocks>,
}

impl TreeSink for Kept<'_> {
    fn write(&self, level: usize, first: u64, blocks: &[u8]) -> Result<(), Error> {
        let mut all = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        all.push((self.geometry.offset(level, first), blocks.to_vec()));
        Ok(())
    }
}

impl Image {
    /// The part of the tree over a [file](crate::fsverity::WholeFile) or the data of a dm-verity device
    /// ([`Layout`](crate::verity::Layout)) that the image's bytes are, from byte `start` of the whole on; with the hash blocks
    /// of it, in order, if they are wanted.
    ///
    /// # Errors
    /// Those of [`Part::build`].
    pub fn tree_part<W: Whole>(
        &self,
        whole: W,
        start: u64,
        with_tree: bool,
        work: &Work<'_>,
    ) -> Result<(Part<W>, TreeBlocks), Error> {
        let geometry = whole.geometry()?;
        let kept = Kept { geometry: &geometry, blocks: Mutex::default() };
        let sink: &dyn TreeSink = if with_tree { &kept } else { &() };
        let part = Part::build(whole, start, &self.named(), sink, work);
        let part = part.map_err(|error| error.at(self.name()))?;
        let mut blocks = kept.blocks.into_inner().unwrap_or_else(PoisonError::into_inner);
        blocks.sort_by_key(|(offset, _)| *offset);
        blocks.dedup_by(|next, last| {
            let follows = last.0 + last.1.len() as u64 == next.0;
            if follows {
                last.1.append(&mut next.1);
            }
            follows
        });
        Ok((part, blocks))
    }
}
