//! Which blocks hold a file's contents, whichever way the file says so.

use std::ops::{ControlFlow, Range};

use casemate_blockdev::usize_of;

use crate::error::{Error, Place, Result, Structure};
use crate::format::csum::Subject;
use crate::format::inode::{FileType, Inode, InodeFlags};
use crate::read::extent;
use crate::read::fs::Ext4;
use crate::read::indirect;
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

impl Ext4 {
    /// Calls `visit` for every run of blocks of `inode` that ends behind logical block `from`, in order, until
    /// it breaks. Holes are what is not mentioned.
    ///
    /// # Errors
    /// `Corrupt` when the map contradicts itself, and what `visit` returns.
    pub fn mappings(
        &self,
        inode: &Inode,
        from: u64,
        mut visit: impl FnMut(Mapping) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.visit_map(inode, from, &mut visit).map(|_| ())
    }

    pub(crate) fn visit_map(
        &self,
        inode: &Inode,
        from: u64,
        visitor: &mut dyn MapVisitor,
    ) -> Result<ControlFlow<()>> {
        if !has_map(inode) {
            return Ok(ControlFlow::Continue(()));
        }
        if inode.has(InodeFlags::EXTENTS) {
            extent::walk(self, inode, from, visitor)
        } else {
            indirect::walk(self, inode, from, visitor)
        }
    }

    /// Where logical block `block` of `inode` lies, with what follows it; `None` in a hole.
    pub fn mapping_at(&self, inode: &Inode, block: u64) -> Result<Option<Mapping>> {
        let mut found = None;
        self.mappings(inode, block, |mapping| {
            let skip = block.saturating_sub(mapping.logical);
            if mapping.logical <= block {
                found = Some(Mapping {
                    logical: block,
                    physical: mapping.physical + skip,
                    len: mapping.len - skip,
                    ..mapping
                });
            }
            Ok(ControlFlow::Break(()))
        })?;
        Ok(found)
    }

    /// Checks that blocks which `place` points to lie in the file system.
    pub(crate) fn check_blocks(&self, block: Block, len: u64, place: Place) -> Result<()> {
        if self.layout().contains(block, len) {
            return Ok(());
        }
        Err(place.malformed(format!("points to {len} blocks at {block}, outside the file system")))
    }
}

/// Whether the inode's block area is a map at all.
fn has_map(inode: &Inode) -> bool {
    if inode.has(InodeFlags::INLINE_DATA) {
        return false;
    }
    match inode.kind() {
        FileType::Regular | FileType::Directory => true,
        FileType::Symlink => !is_fast_symlink(inode),
        _ => false,
    }
}

/// Whether a symlink's target lies in its block area.
///
/// The size tells: what fits with its NUL lies there, always. (Blocks of an attribute confuse the counts that
/// old kernels went by.)
pub(crate) fn is_fast_symlink(inode: &Inode) -> bool {
    !inode.has(InodeFlags::INLINE_DATA) && inode.size() < 60
}

/// The place of an inode's map.
pub(crate) fn map_place(inode: &Inode) -> Place {
    Place::inode(Structure::Inode, inode.number())
}
