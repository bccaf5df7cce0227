//! Hash trees of directories: nodes of hashes that lead to the leaf that may hold a name.
//!
//! To whoever does not know of it a node is a block without names: an inner node begins with a free record as long as
//! the block, the root with "." and a ".." that reaches to the end.
//!
//! Source: Documentation/filesystems/ext4/directory.rst, "Hash Tree Directories".

use crate::error::{Place, Result};
use crate::format::dir;
use crate::format::field::{Byte, Le16, Le32};
use crate::number::u16_of;

/// Bytes of an entry, and of the tail with the checksum, which is covered too, with zeros for the checksum.
const ENTRY: usize = 8;
pub(crate) const TAIL: usize = 8;

/// Bytes of the record of "."; that of ".." follows.
const DOT: usize = 12;

/// Reserved bytes of the root behind the name of "..".
const RESERVED: Le32 = Le32(0x18);
const VERSION: Byte = Byte(0x1c);
const INFO_LENGTH: Byte = Byte(0x1d);
const LEVELS: Byte = Byte(0x1e);
const UNUSED: Byte = Byte(0x1f);
const INFO: u8 = 8;

/// Where the entries begin.
const IN_ROOT: usize = 0x20;
const IN_NODE: usize = 8;

/// Of the first entry's eight bytes, the first four; of an entry, the hash and the block.
const LIMIT: Le16 = Le16(0);
const COUNT: Le16 = Le16(2);
const HASH: Le32 = Le32(0);
const BLOCK: Le32 = Le32(4);

/// The bits of a block's number; the others are reserved.
pub(crate) const BLOCK_BITS: u32 = 0x0fff_ffff;

/// Of the tail, where the checksum lies.
const CHECKSUM: usize = 4;

/// Levels of nodes that the kernel allows, the root among them, with `large_dir`.
const MOST_LEVELS: u8 = 3;

/// Header of a tree's root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HtreeRoot {
    /// How names are hashed.
    pub version: u8,
    /// Levels of nodes below the root.
    pub levels: u8,
}

/// Where the entries of a node are, root or not.
#[derive(Clone, Copy, Debug)]
pub struct HtreeNode<'a> {
    /// Count and limit take the place of the first entry's hash.
    entries: &'a [u8],
    /// The byte of the block that they begin at.
    at: usize,
    limit: usize,
}

/// Names whose hash is not below `hash` lie in the block `block` of the directory, or below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HtreeEntry {
    /// The lowest hash; with the lowest bit set, the leaf before ends with the same one.
    pub hash: u32,
    /// The block, counted in the directory.
    pub block: u32,
}

impl HtreeRoot {
    /// The root's header from a directory's first block.
    ///
    /// # Errors
    /// `Corrupt` at `place` when it is none.
    pub fn from_bytes(block: &[u8], place: Place) -> Result<HtreeRoot> {
        if entries_at(block) != Some(IN_ROOT) {
            return Err(place.malformed("is not a root of a hash tree"));
        }
        let (version, info_length, levels) = (VERSION.get(block), INFO_LENGTH.get(block), LEVELS.get(block));
        if RESERVED.get(block) != 0 || info_length != INFO || levels >= MOST_LEVELS {
            return Err(place.malformed(format!("version {version}, {levels} levels, {info_length} bytes")));
        }
        Ok(HtreeRoot { version, levels })
    }
}

/// Fields of a tree's root in a directory's first block, whether or not they are valid: hash version, levels, unused
/// flags, and whether the reserved bytes are as they must be.
pub(crate) fn root_fields(block: &[u8], with_checksums: bool) -> Option<(u8, u8, u8, bool)> {
    // Where the checksum is follows from the length.
    let length = INFO_LENGTH.get(block);
    let fits = if with_checksums { length == INFO } else { length >= INFO };
    let is_sound = RESERVED.get(block) == 0 && fits;
    (entries_at(block) == Some(IN_ROOT))
        .then(|| (VERSION.get(block), LEVELS.get(block), UNUSED.get(block), is_sound))
}

impl HtreeEntry {
    fn from_bytes(entry: &[u8]) -> HtreeEntry {
        HtreeEntry { hash: HASH.get(entry), block: BLOCK.get(entry) & BLOCK_BITS }
    }

    pub(crate) fn to_bytes(self) -> [u8; ENTRY] {
        let mut entry = [0; ENTRY];
        HASH.set(&mut entry, self.hash);
        BLOCK.set(&mut entry, self.block);
        entry
    }
}

impl<'a> HtreeNode<'a> {
    /// A node's entries from its block.
    ///
    /// # Errors
    /// `Corrupt` at `place` when counts make no sense.
    pub fn from_bytes(block: &'a [u8], place: Place) -> Result<HtreeNode<'a>> {
        let at = entries_at(block).ok_or_else(|| place.malformed("is not a node of a hash tree"))?;
        let (limit, count) = counts(block, at);
        if count == 0 || count > limit || at + ENTRY * limit > block.len() {
            return Err(place.malformed(format!("{count} entries where there is room for {limit}")));
        }
        Ok(HtreeNode { entries: &block[at..at + ENTRY * count], at, limit })
    }

    /// The entries; the first one stands for all hashes below the second one's.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = HtreeEntry> + use<'a> {
        self.entries.chunks_exact(ENTRY).enumerate().map(|(number, entry)| match number {
            0 => HtreeEntry { hash: 0, ..HtreeEntry::from_bytes(entry) },
            _ => HtreeEntry::from_bytes(entry),
        })
    }

    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() / ENTRY
    }

    /// How many entries it has room for.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// An entry behind the first.
    pub(crate) fn entry(&self, slot: usize) -> HtreeEntry {
        HtreeEntry::from_bytes(&self.entries[ENTRY * slot..])
    }

    /// The byte of the block that an entry begins at.
    pub(crate) fn entry_at(&self, slot: usize) -> usize {
        self.at + ENTRY * slot
    }

    /// The bytes of the entries from `slot` on.
    pub(crate) fn entries_from(&self, slot: usize) -> &'a [u8] {
        &self.entries[ENTRY * slot..]
    }

    /// The byte of the block that the tail with the checksum begins at.
    pub(crate) fn tail_at(&self) -> usize {
        self.entry_at(self.limit)
    }

    /// The bytes to be written, and their place in the block, for the node to have so many entries.
    pub(crate) fn count_patch(&self, count: usize) -> (usize, [u8; 2]) {
        // Not more than a block has room for.
        (COUNT.from(self.at).0, u16_of(count).to_le_bytes())
    }
}

/// The root of a tree with one leaf, block 1 of the directory, in a block of `size` bytes: behind records of "." and
/// "..". With a checksum it has a tail.
pub(crate) fn root_bytes(size: usize, [own, up]: [&[u8]; 2], version: u8, has_tail: bool) -> Vec<u8> {
    let mut root = vec![0; size];
    root[..DOT].copy_from_slice(&own[..DOT]);
    root[DOT..2 * DOT].copy_from_slice(&up[..DOT]);
    dir::set_length(&mut root, DOT);
    dir::set_length(&mut root[DOT..], size - DOT);
    VERSION.set(&mut root, version);
    INFO_LENGTH.set(&mut root, INFO);
    set_entries(&mut root, IN_ROOT, &HtreeEntry { hash: 0, block: 1 }.to_bytes(), has_tail);
    root
}

/// An inner node of `size` bytes with these entries, the first of which stands for its hash and all below.
pub(crate) fn node_bytes(size: usize, entries: &[u8], has_tail: bool) -> Vec<u8> {
    let mut node = vec![0; size];
    dir::set_length(&mut node, size);
    set_entries(&mut node, IN_NODE, entries, has_tail);
    node
}

/// How many entries a root or another node of `size` bytes has room for.
pub(crate) fn capacity(size: usize, is_root: bool, has_tail: bool) -> usize {
    (size - if is_root { IN_ROOT } else { IN_NODE } - if has_tail { TAIL } else { 0 }) / ENTRY
}

/// Gives a root other entries, with so many levels of nodes below it.
pub(crate) fn set_root_entries(root: &mut [u8], levels: u8, entries: &[u8], has_tail: bool) {
    LEVELS.set(root, levels);
    set_entries(root, IN_ROOT, entries, has_tail);
}

/// Puts a level between a root and its entries: from now on it leads to this block alone.
pub(crate) fn deepen_root(root: &mut [u8], block: u32) {
    LEVELS.set(root, LEVELS.get(root) + 1);
    COUNT.from(IN_ROOT).set(root, 1);
    BLOCK.from(IN_ROOT).set(root, block);
}

fn set_entries(block: &mut [u8], at: usize, entries: &[u8], has_tail: bool) {
    block[at..at + entries.len()].copy_from_slice(entries);
    let limit = capacity(block.len(), at == IN_ROOT, has_tail);
    // At most 8191.
    LIMIT.from(at).set(block, u16_of(limit));
    COUNT.from(at).set(block, u16_of(entries.len() / ENTRY));
}

/// How many entries a node has room for, as it should say.
pub(crate) fn limit_of(block: &[u8], has_tail: bool) -> Option<usize> {
    Some((block.len() - entries_at(block)? - if has_tail { TAIL } else { 0 }) / ENTRY)
}

/// Whether a block begins as an inner node does. Where leaves have tails, the kind tells nodes from them, too.
pub(crate) fn is_inner(block: &[u8], has_tail: bool) -> bool {
    entries_at(block) == Some(IN_NODE)
        && dir::INODE.get(block) == 0
        && (dir::KIND.get(block) == 0 || !has_tail)
        && dir::NAME_LENGTH.get(block) == 0
}

/// Whether a block of an indexed directory behind the first is taken for an inner node: by its length, as the kernel does it, since a
/// leaf leaves room for its tail. Without tails a leaf with one name may be as long, and the name tells.
pub(crate) fn is_taken_for_inner(block: &[u8], has_tail: bool) -> bool {
    entries_at(block) == Some(IN_NODE) && (has_tail || dir::NAME_LENGTH.get(block) == 0)
}

/// The byte behind the last entry in use, up to which a node's checksum covers it; `None` if it is no node.
pub(crate) fn covered_end(block: &[u8]) -> Option<usize> {
    let at = entries_at(block)?;
    let (limit, count) = counts(block, at);
    (count <= limit).then_some(at + ENTRY * count)
}

/// Where the checksum of a node lies, which may be behind its end.
pub(crate) fn checksum_at(block: &[u8]) -> Option<usize> {
    let at = entries_at(block)?;
    Some(at + ENTRY * counts(block, at).0 + CHECKSUM)
}

/// Limit and count of entries.
fn counts(block: &[u8], at: usize) -> (usize, usize) {
    (LIMIT.from(at).get(block).into(), COUNT.from(at).get(block).into())
}

/// Where the entries of a node begin: behind the fake records of a root or an inner node.
fn entries_at(block: &[u8]) -> Option<usize> {
    // A record of the whole block is stored as 0 or 65535 where 65536 doesn't fit.
    let is = |field: Le16, len: usize| match field.get(block) {
        0 | 65535 => len == 65536,
        other => usize::from(other) == len,
    };
    if block.len() < 1024 {
        return None;
    }
    if is(dir::LENGTH, block.len()) {
        return Some(IN_NODE);
    }
    (is(dir::LENGTH, DOT) && is(dir::LENGTH.from(DOT), block.len() - DOT)).then_some(IN_ROOT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Structure;
    use crate::format::dir::record_bytes;
    use crate::units::InodeNo;

    #[test]
    fn what_is_written_is_read() {
        let place = Place::of(Structure::HtreeNode);
        let [own, up] = [
            record_bytes(InodeNo::LOST_AND_FOUND, b".", None, None),
            record_bytes(InodeNo::ROOT, b"..", None, None),
        ];
        for size in [1024, 4096, 65536] {
            for has_tail in [false, true] {
                let mut root = root_bytes(size, [&own, &up], 4, has_tail);
                assert_eq!(HtreeRoot::from_bytes(&root, place).unwrap(), HtreeRoot { version: 4, levels: 0 });
                let node = HtreeNode::from_bytes(&root, place).unwrap();
                assert!(node.entries().eq([HtreeEntry { hash: 0, block: 1 }]) && !is_inner(&root, has_tail));
                assert_eq!(node.limit(), (size - 32) / 8 - usize::from(has_tail));
                deepen_root(&mut root, 7);
                assert_eq!(HtreeRoot::from_bytes(&root, place).unwrap().levels, 1);
                let node = HtreeNode::from_bytes(&root, place).unwrap();
                assert!(node.entries().eq([HtreeEntry { hash: 0, block: 7 }]));

                let entries = [(0, 3), (0x10, 4), (0x20, 5)].map(|(hash, block)| HtreeEntry { hash, block });
                let mut inner = node_bytes(size, &entries.map(HtreeEntry::to_bytes).concat(), has_tail);
                let node = HtreeNode::from_bytes(&inner, place).unwrap();
                assert!(node.entries().eq(entries) && is_inner(&inner, has_tail));
                assert_eq!((node.entry(2), node.len()), (entries[2], 3));
                assert_eq!(node.entries_from(1).len(), 16);
                let (at, count) = node.count_patch(2);
                assert_eq!(node.tail_at() + if has_tail { 8 } else { 0 }, size);
                inner[at..at + 2].copy_from_slice(&count);
                assert_eq!(HtreeNode::from_bytes(&inner, place).unwrap().entries().len(), 2);
            }
        }
    }
}
