//! Walks over extent trees.

use std::ops::ControlFlow;

use casemate_blockdev::ErrorKind;

use crate::error::{Place, Result, Structure};
use crate::format::extent::ExtentNode;
use crate::format::inode::Inode;
use crate::read::fs::Ext4;
use crate::read::mapping::{MapVisitor, Mapping, map_place};
use crate::units::Block;

/// Blocks that a file can have.
const MOST_BLOCKS: u64 = 1 << 32;

/// Visits an inode's extents from logical block `from` on.
pub(crate) fn walk(
    fs: &Ext4,
    inode: &Inode,
    from: u64,
    visitor: &mut dyn MapVisitor,
) -> Result<ControlFlow<()>> {
    let root = ExtentNode::from_bytes(inode.block_area(), map_place(inode))?;
    let mut walk = Walk { fs, inode, from, visitor, nodes: 0 };
    walk.node(root, map_place(inode), 0, MOST_BLOCKS)
}

struct Walk<'a> {
    fs: &'a Ext4,
    inode: &'a Inode,
    from: u64,
    visitor: &'a mut dyn MapVisitor,
    /// Blocks of the tree so far. Indexes may all point to one block without extents.
    nodes: u64,
}

impl Walk<'_> {
    /// Visits what a node has of the file's blocks `start .. end`. That ranges only ever shrink and grow
    /// towards the end bounds the walk, whatever points where.
    fn node(&mut self, node: ExtentNode<'_>, place: Place, start: u64, end: u64) -> Result<ControlFlow<()>> {
        if node.depth() == 0 {
            return self.leaf(node, place, start, end);
        }
        let mut start = start;
        let mut entries = node.indexes().peekable();
        while let Some(entry) = entries.next() {
            let logical = u64::from(entry.logical);
            let next = entries.peek().map_or(end, |next| u64::from(next.logical));
            if logical < start || next <= logical || next > end {
                return Err(place.malformed(format!("extent index {logical} is out of order")));
            }
            start = next;
            if next <= self.from {
                continue;
            }
            let below = self.child(entry.block, place, node.depth() - 1, logical, next);
            match below {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return Ok(ControlFlow::Break(())),
                Err(error) if error.kind() == ErrorKind::Corrupt => self.visitor.broken(error)?,
                Err(error) => return Err(error),
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn child(
        &mut self,
        block: Block,
        parent: Place,
        depth: u16,
        start: u64,
        end: u64,
    ) -> Result<ControlFlow<()>> {
        self.fs.check_blocks(block, 1, parent)?;
        self.nodes += 1;
        if self.nodes > self.fs.layout().blocks {
            return Err(parent.malformed("an extent tree of more blocks than there are"));
        }
        self.visitor.map_block(block)?;
        let place = Place::inode(Structure::ExtentBlock, self.inode.number()).at(block);
        let bytes = self.fs.metadata_block(block)?;
        if !self.visitor.node(self.fs, self.inode, place, block, &bytes)? {
            return Ok(ControlFlow::Continue(()));
        }
        let node = ExtentNode::from_bytes(&bytes, place)?;
        if node.depth() != depth {
            return Err(place.malformed(format!("is on level {}, not {depth}", node.depth())));
        }
        self.node(node, place, start, end)
    }

    fn leaf(
        &mut self,
        node: ExtentNode<'_>,
        place: Place,
        mut start: u64,
        end: u64,
    ) -> Result<ControlFlow<()>> {
        for extent in node.extents() {
            let (logical, len) = (u64::from(extent.logical), u64::from(extent.len));
            if len == 0 || logical < start || logical + len > end {
                return Err(place.malformed(format!("the extent of block {logical} is out of order")));
            }
            start = logical + len;
            if start <= self.from {
                continue;
            }
            self.fs.check_blocks(extent.physical, len, place)?;
            let mapping = Mapping { logical, physical: extent.physical, len, unwritten: extent.unwritten };
            if self.visitor.mapping(mapping)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}
