//! Extent trees: a root of four entries in the inode, and blocks of entries below it.
//!
//! Source: Documentation/filesystems/ext4/ifork.rst, "Extent Tree".

use std::ops::ControlFlow;

use crate::format::bytes::{join, le16, le32};
use crate::format::csum::Subject;
use crate::format::inode::Inode;
use crate::read::fs::Ext4;
use crate::read::map::{MapVisitor, Mapping, map_place};
use crate::{ErrorKind, Place, Result, Structure};

/// The deepest tree that can be needed: 2^32 blocks in 1 KiB nodes.
const MOST_LEVELS: u16 = 5;

/// Bytes of the header and of each entry.
const ENTRY: usize = 12;

/// Blocks that a file can have.
const MOST_BLOCKS: u64 = 1 << 32;

/// A node of an extent tree: a header and entries that point to blocks or to further nodes.
#[derive(Clone, Copy, Debug)]
pub struct ExtentNode<'a> {
    entries: &'a [u8],
    depth: u16,
}

/// An entry of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first block, counted in the file.
    pub logical: u32,
    /// Where it lies.
    pub physical: u64,
    /// How many blocks: 1 to 32768.
    pub len: u16,
    /// Allocated, but never written.
    pub unwritten: bool,
}

/// An entry of an inner node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentIndex {
    /// The first block that the node below is about, counted in the file.
    pub logical: u32,
    /// Where that node lies.
    pub block: u64,
}

impl<'a> ExtentNode<'a> {
    /// A node from its bytes: the inode's block area, or a block.
    ///
    /// # Errors
    /// `Corrupt` at `place` when the header makes no sense.
    pub fn from_bytes(bytes: &'a [u8], place: Place) -> Result<ExtentNode<'a>> {
        if bytes.len() < ENTRY || le16(bytes, 0) != 0xf30a {
            return Err(place.malformed("no magic number 0xf30a of an extent node"));
        }
        let (eh_entries, eh_max) = (usize::from(le16(bytes, 2)), usize::from(le16(bytes, 4)));
        let eh_depth = le16(bytes, 6);
        if eh_depth > MOST_LEVELS {
            return Err(place.malformed(format!("an extent tree of {eh_depth} levels")));
        }
        if eh_entries > eh_max || eh_max > bytes.len() / ENTRY - 1 || eh_max == 0 {
            let what = format!("{eh_entries} extents where there is room for {eh_max}");
            return Err(place.malformed(what));
        }
        if eh_entries == 0 && eh_depth > 0 {
            return Err(place.malformed("an inner extent node without entries"));
        }
        Ok(ExtentNode { entries: &bytes[ENTRY..ENTRY * (1 + eh_entries)], depth: eh_depth })
    }

    /// Levels below this node; 0 for leaves.
    pub fn depth(&self) -> u16 {
        self.depth
    }

    /// The entries of a leaf.
    pub fn extents(&self) -> impl ExactSizeIterator<Item = Extent> + use<'a> {
        self.entries.chunks_exact(ENTRY).map(|entry| {
            let ee_len = le16(entry, 4);
            // Above 32768 the length is that of an unwritten extent.
            let unwritten = ee_len > 0x8000;
            Extent {
                logical: le32(entry, 0),
                physical: join(le32(entry, 8), u32::from(le16(entry, 6))),
                len: if unwritten { ee_len - 0x8000 } else { ee_len },
                unwritten,
            }
        })
    }

    /// The entries of an inner node.
    pub fn indexes(&self) -> impl ExactSizeIterator<Item = ExtentIndex> + use<'a> {
        self.entries.chunks_exact(ENTRY).map(|entry| ExtentIndex {
            logical: le32(entry, 0),
            block: join(le32(entry, 4), u32::from(le16(entry, 8))),
        })
    }
}

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
        if node.depth == 0 {
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
            let below = self.child(entry.block, place, node.depth - 1, logical, next);
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
        block: u64,
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
        let bytes = self.fs.read_block(block)?;
        self.fs.verify(Subject::ExtentBlock, &self.inode.context(), &bytes, place)?;
        let node = ExtentNode::from_bytes(&bytes, place)?;
        if node.depth != depth {
            return Err(place.malformed(format!("is on level {}, not {depth}", node.depth)));
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
