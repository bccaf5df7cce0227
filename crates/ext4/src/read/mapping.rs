//! Runs of a file's blocks, and visitors of them.

use std::ops::{ControlFlow, Range};

use casemate_blockdev::usize_of;

use crate::error::{Error, Place, Result, Structure};
use crate::format::csum::Subject;
use crate::format::inode::Inode;
use crate::read::fs::Ext4;
use crate::units::Block;

/// A run of a file's blocks that lie one after the other on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The first block, counted in the file.
    pub logical: u64,
    /// Where it lies, counted in the file system.
    pub physical: Block,
    /// How many blocks.
    pub len: u64,
    /// Allocated, but never written: reads as zeros.
    pub unwritten: bool,
}

impl Mapping {
    /// The block behind the last one, counted in the file.
    pub fn end(&self) -> u64 {
        self.logical + self.len
    }

    /// The run's bytes in a buffer that begins with block `first` of the file, in blocks of so many bytes.
    pub(crate) fn bytes_from(&self, first: u64, block_size: usize) -> Range<usize> {
        let start = usize_of(self.logical - first) * block_size;
        start..start + usize_of(self.len) * block_size
    }
}

/// Visitor of a file's blocks, in their order in the file.
pub(crate) trait MapVisitor {
    /// A run of blocks. A break ends the walk.
    fn mapping(&mut self, mapping: Mapping) -> Result<ControlFlow<()>>;

    /// A block of the map itself can't be used. Whoever returns `Ok` wants to see what else there is.
    fn broken(&mut self, error: Error) -> Result<()> {
        Err(error)
    }

    /// A block of the map itself, before it is read.
    fn map_block(&mut self, _block: Block) -> Result<()> {
        Ok(())
    }

    /// The bytes of a block of the map itself. Whether to go on to what it leads to.
    fn node(&mut self, fs: &Ext4, inode: &Inode, place: Place, _block: Block, bytes: &[u8]) -> Result<bool> {
        // Blocks of old maps have no checksums.
        if place.structure == Structure::ExtentBlock {
            fs.verify(Subject::ExtentBlock, &inode.context(), bytes, place)?;
        }
        Ok(true)
    }
}

impl<F: FnMut(Mapping) -> Result<ControlFlow<()>>> MapVisitor for F {
    fn mapping(&mut self, mapping: Mapping) -> Result<ControlFlow<()>> {
        self(mapping)
    }
}

/// The place of an inode's map.
pub(crate) fn map_place(inode: &Inode) -> Place {
    Place::inode(Structure::Inode, inode.number())
}
