//! Nodes of extent trees: a header, and entries that point to blocks or to further nodes. The root has room for four of
//! them in the inode.
//!
//! Source: Documentation/filesystems/ext4/ifork.rst, "Extent Tree".

use crate::error::{Place, Result};
use crate::format::field::{Le16, Le32, Split};
use crate::number::u16_of;
use crate::units::Block;

/// The deepest tree that can be needed: 2^32 blocks in 1 KiB nodes.
pub(crate) const MOST_LEVELS: u16 = 5;

/// Blocks of a written extent; an unwritten one has one less.
pub(crate) const LONGEST: u16 = UNWRITTEN;

/// Blocks of the longest extent of a kind.
pub(crate) fn longest(unwritten: bool) -> u64 {
    u64::from(LONGEST) - u64::from(unwritten)
}

/// Addend to the length of an unwritten extent.
const UNWRITTEN: u16 = 32768;

/// Bytes of the header and of each entry.
const ENTRY: usize = 12;

const MAGIC: u16 = 0xf30a;

const MAGIC_AT: Le16 = Le16(0);
const ENTRIES: Le16 = Le16(2);
const MAX: Le16 = Le16(4);
const DEPTH: Le16 = Le16(6);

/// The first block that an entry is about, counted in the file: of leaves and inner nodes.
const LOGICAL: Le32 = Le32(0);
const LEN: Le16 = Le16(4);
const PHYSICAL: Split<Le32, Le16> = Split(Le32(8), Le16(6));
const BELOW: Split<Le32, Le16> = Split(Le32(4), Le16(8));

/// A node of an extent tree: a header and entries that point to blocks or to further nodes.
#[derive(Clone, Copy, Debug)]
pub struct ExtentNode<'a> {
    entries: &'a [u8],
    max: u16,
    depth: u16,
}

/// An entry of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first block, counted in the file.
    pub logical: u32,
    /// Where it lies.
    pub physical: Block,
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
    pub block: Block,
}

impl Extent {
    fn from_bytes(entry: &[u8]) -> Extent {
        let ee_len = LEN.get(entry);
        // Above 32768 the length is that of an unwritten extent.
        let unwritten = ee_len > UNWRITTEN;
        let len = if unwritten { ee_len - UNWRITTEN } else { ee_len };
        Extent { logical: LOGICAL.get(entry), physical: Block::new(PHYSICAL.get(entry)), len, unwritten }
    }

    pub(crate) fn to_bytes(self) -> [u8; ENTRY] {
        let mut entry = [0; ENTRY];
        LOGICAL.set(&mut entry, self.logical);
        LEN.set(&mut entry, self.len | if self.unwritten { UNWRITTEN } else { 0 });
        PHYSICAL.set(&mut entry, self.physical.get());
        entry
    }
}

impl ExtentIndex {
    fn from_bytes(entry: &[u8]) -> ExtentIndex {
        ExtentIndex { logical: LOGICAL.get(entry), block: Block::new(BELOW.get(entry)) }
    }

    pub(crate) fn to_bytes(self) -> [u8; ENTRY] {
        let mut entry = [0; ENTRY];
        LOGICAL.set(&mut entry, self.logical);
        BELOW.set(&mut entry, self.block.get());
        entry
    }
}

impl<'a> ExtentNode<'a> {
    /// An entry of a leaf from its 12 bytes.
    pub(crate) fn entry(bytes: &[u8]) -> Extent {
        Extent::from_bytes(&bytes[..ENTRY])
    }

    /// A node from its bytes: the inode's block area, or a block.
    ///
    /// # Errors
    /// `Corrupt` at `place` when the header makes no sense.
    pub fn from_bytes(bytes: &'a [u8], place: Place) -> Result<ExtentNode<'a>> {
        if bytes.len() < ENTRY || MAGIC_AT.get(bytes) != MAGIC {
            return Err(place.malformed("no magic number 0xf30a of an extent node"));
        }
        let (eh_entries, eh_max) = (usize::from(ENTRIES.get(bytes)), MAX.get(bytes));
        let eh_depth = DEPTH.get(bytes);
        if eh_depth > MOST_LEVELS {
            return Err(place.malformed(format!("an extent tree of {eh_depth} levels")));
        }
        let max = usize::from(eh_max);
        if eh_entries > max || max > bytes.len() / ENTRY - 1 || max == 0 {
            let what = format!("{eh_entries} extents where there is room for {eh_max}");
            return Err(place.malformed(what));
        }
        if eh_entries == 0 && eh_depth > 0 {
            return Err(place.malformed("an inner extent node without entries"));
        }
        Ok(ExtentNode { entries: &bytes[ENTRY..ENTRY * (1 + eh_entries)], max: eh_max, depth: eh_depth })
    }

    /// Levels below this node; 0 for leaves.
    pub fn depth(&self) -> u16 {
        self.depth
    }

    /// The entries of a leaf.
    pub fn extents(&self) -> impl ExactSizeIterator<Item = Extent> + use<'a> {
        self.entries.chunks_exact(ENTRY).map(Extent::from_bytes)
    }

    /// The entries of an inner node.
    pub fn indexes(&self) -> impl ExactSizeIterator<Item = ExtentIndex> + use<'a> {
        self.entries.chunks_exact(ENTRY).map(ExtentIndex::from_bytes)
    }

    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() / ENTRY
    }

    /// How many entries it has room for.
    pub(crate) fn max(&self) -> usize {
        self.max.into()
    }

    /// The first block that an entry is about, whichever kind of entry it is.
    pub(crate) fn logical(&self, slot: usize) -> u32 {
        LOGICAL.from(ENTRY * slot).get(self.entries)
    }

    pub(crate) fn extent(&self, slot: usize) -> Extent {
        Extent::from_bytes(&self.entries[ENTRY * slot..])
    }

    pub(crate) fn index(&self, slot: usize) -> ExtentIndex {
        ExtentIndex::from_bytes(&self.entries[ENTRY * slot..])
    }

    /// The bytes of the entries from `slot` on.
    pub(crate) fn entries_from(&self, slot: usize) -> &'a [u8] {
        &self.entries[ENTRY * slot..]
    }
}

/// Whether the block area of an inode looks like the root of a tree.
pub(crate) fn is_root(area: &[u8]) -> bool {
    let max = MAX.get(area);
    MAGIC_AT.get(area) == MAGIC && ENTRIES.get(area) <= max && (1..=4).contains(&max)
}

/// Entries that a node of `size` bytes has room for.
pub(crate) fn capacity(size: usize) -> usize {
    size / ENTRY - 1
}

/// A node of `size` bytes with these entries.
pub(crate) fn node_bytes(size: usize, depth: u16, entries: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; size];
    MAGIC_AT.set(&mut bytes, MAGIC);
    // A block of 64 KiB has room for 5460 entries.
    ENTRIES.set(&mut bytes, u16_of(entries.len() / ENTRY));
    MAX.set(&mut bytes, u16_of(capacity(size)));
    DEPTH.set(&mut bytes, depth);
    bytes[ENTRY..ENTRY + entries.len()].copy_from_slice(entries);
    bytes
}

/// A root with these entries.
pub(crate) fn root_bytes(depth: u16, entries: &[u8]) -> Vec<u8> {
    node_bytes(60, depth, entries)
}

/// The bytes to be written, and their place in the node, for it to have so many entries.
pub(crate) fn entries_patch(entries: usize) -> (usize, [u8; 2]) {
    // Not more than a node has room for.
    (ENTRIES.0, u16_of(entries).to_le_bytes())
}

/// The byte of a node that an entry begins at, which is that of its first block's number.
pub(crate) const fn entry_at(slot: usize) -> usize {
    ENTRY * (slot + 1)
}

/// Where the checksum of a block lies, behind as many entries as there is room for; that may be behind its end.
pub(crate) fn checksum_at(block: &[u8]) -> Option<usize> {
    (block.len() >= ENTRY).then(|| entry_at(MAX.get(block).into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Structure;

    #[test]
    fn what_is_written_is_read() {
        let place = Place::of(Structure::ExtentBlock);
        let extents = [
            Extent { logical: 1, physical: Block::new(0x2_0000_0003), len: 32768, unwritten: false },
            Extent { logical: 40000, physical: Block::new(5), len: 32767, unwritten: true },
            Extent { logical: u32::MAX, physical: Block::new(6), len: 1, unwritten: false },
        ];
        let leaf = node_bytes(60, 0, &extents.map(Extent::to_bytes).concat());
        let node = ExtentNode::from_bytes(&leaf, place).unwrap();
        assert_eq!((node.depth(), node.len(), node.max()), (0, 3, 4));
        assert!(node.extents().eq(extents));
        assert_eq!((node.extent(1), node.logical(2)), (extents[1], u32::MAX));
        let indexes = [(0, 0x7_0000_0008), (9, 10)]
            .map(|(logical, block)| ExtentIndex { logical, block: Block::new(block) });
        let mut inner = node_bytes(1024, 2, &indexes.map(ExtentIndex::to_bytes).concat());
        let node = ExtentNode::from_bytes(&inner, place).unwrap();
        assert_eq!((node.depth(), node.max(), node.entries_from(1)), (2, 84, &indexes[1].to_bytes()[..]));
        assert!(node.indexes().eq(indexes));
        let (at, count) = entries_patch(1);
        inner[at..at + 2].copy_from_slice(&count);
        inner[entry_at(0)] = 11;
        let node = ExtentNode::from_bytes(&inner, place).unwrap();
        assert_eq!((node.len(), node.index(0).logical), (1, 11));
    }
}
