//! Parts of trees: what many machines make of data that is too much for one.

use casemate_providers::Work;
pub use casemate_verity::tree::TreeBlocks;
pub use casemate_verity::{Part, Whole};

use crate::{Error, Image};

impl Image {
    /// The part of the tree over a [file](crate::fsverity::WholeFile) or the data of a dm-verity device
    /// ([`Layout`](crate::verity::Layout)) that the image's bytes are, from byte `start` of the whole on; with the hash blocks
    /// of it, in order, if they are wanted.
    ///
    /// # Errors
    /// Errors of [`Part::of_medium`].
    pub fn tree_part<W: Whole>(
        &self,
        whole: W,
        start: u64,
        with_tree: bool,
        work: &Work<'_>,
    ) -> Result<(Part<W>, Vec<TreeBlocks>), Error> {
        Part::of_medium(whole, start, self, with_tree, work)
    }
}
