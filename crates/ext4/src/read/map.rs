//! Which blocks hold a file's contents, whichever way the file says so.

use std::ops::ControlFlow;

use crate::error::{Place, Result};
use crate::format::inode::{FileType, Inode, InodeFlags};
use crate::read::extent;
use crate::read::fs::Ext4;
use crate::read::indirect;
use crate::read::mapping::{MapVisitor, Mapping};
use crate::units::Block;

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
