//! Extent trees that grow and shrink.

use crate::edit::file_map::{FileMap, MapView};
use crate::edit::inode::empty_extents;
use crate::error::{Place, Result, Structure, invalid};
use crate::format::bytes::{join, le16, le32};
use crate::format::csum::Subject;
use crate::read::extent::{Extent, ExtentNode};
use crate::read::map::Mapping;

/// Bytes of the header and of each entry.
const ENTRY: usize = 12;

/// Blocks of a written extent; an unwritten one has one less.
pub(crate) const LONGEST: u64 = 32768;

/// Where a path through the tree goes through a node.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// The node's block; `None` for the root in the inode.
    block: Option<u64>,
    entries: usize,
    max: usize,
    /// In inner nodes the entry to go down; in the leaf the first entry behind the searched block.
    slot: usize,
}

impl MapView<'_> {
    /// The extent that holds logical block `at`, or else the first one behind it.
    pub fn extent_from(&self, at: u64) -> Result<Option<Mapping>> {
        let path = self.extent_path(at)?;
        let leaf = path[path.len() - 1];
        if leaf.slot > 0 {
            let before = self.extent_at(leaf.block, leaf.slot - 1)?;
            if before.end() > at {
                return Ok(Some(before));
            }
        }
        if leaf.slot < leaf.entries {
            return self.extent_at(leaf.block, leaf.slot).map(Some);
        }
        // The next leaf begins where the nearest inner node goes on.
        for step in path[..path.len() - 1].iter().rev() {
            if step.slot + 1 < step.entries {
                let next = self.node(step.block, |node| le32(node, ENTRY * (step.slot + 2)))?;
                return self.extent_from(u64::from(next).max(at + 1));
            }
        }
        Ok(None)
    }

    /// The way from the root to the leaf for a logical block.
    fn extent_path(&self, logical: u64) -> Result<Vec<Step>> {
        let mut path = Vec::with_capacity(3);
        let mut block = None;
        let mut below: Option<u16> = None;
        loop {
            let (step, depth, child) = self.node(block, |node| {
                let (entries, max) = (usize::from(le16(node, 2)), usize::from(le16(node, 4)));
                let depth = le16(node, 6);
                let key = |slot: usize| u64::from(le32(node, ENTRY * (slot + 1)));
                let (mut low, mut high) = (0, entries);
                while low < high {
                    let middle = low.midpoint(high);
                    if key(middle) <= logical {
                        low = middle + 1;
                    } else {
                        high = middle;
                    }
                }
                if depth == 0 {
                    return (Step { block, entries, max, slot: low }, depth, 0);
                }
                let slot = low.max(1) - 1;
                let at = ENTRY * (slot + 1);
                let child = join(le32(node, at + 4), u32::from(le16(node, at + 8)));
                (Step { block, entries, max, slot }, depth, child)
            })?;
            path.push(step);
            if below.is_some_and(|below| below != depth) || depth > 5 {
                let place = Place::inode(Structure::ExtentBlock, self.inode.number());
                return Err(place.malformed("lies on the wrong level of the tree"));
            }
            if depth == 0 {
                return Ok(path);
            }
            below = Some(depth - 1);
            block = Some(child);
        }
    }

    fn extent_at(&self, block: Option<u64>, slot: usize) -> Result<Mapping> {
        let extent = self.node(block, |node| {
            let entry = &node[ENTRY * (slot + 1)..ENTRY * (slot + 2)];
            let ee_len = le16(entry, 4);
            let unwritten = ee_len > 0x8000;
            Extent {
                logical: le32(entry, 0),
                physical: join(le32(entry, 8), u32::from(le16(entry, 6))),
                len: if unwritten { ee_len - 0x8000 } else { ee_len },
                unwritten,
            }
        })?;
        let len = u64::from(extent.len);
        let place = Place::inode(Structure::ExtentBlock, self.inode.number());
        if len == 0 {
            return Err(place.malformed("an extent without blocks"));
        }
        self.space.fs().check_blocks(extent.physical, len, place)?;
        Ok(Mapping {
            logical: extent.logical.into(),
            physical: extent.physical,
            len,
            unwritten: extent.unwritten,
        })
    }

    /// Calls `f` with a node's bytes. Nodes are checked when they come in.
    fn node<T>(&self, block: Option<u64>, f: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let Some(block) = block else {
            let place = Place::inode(Structure::Inode, self.inode.number());
            ExtentNode::from_bytes(self.inode.block_area(), place)?;
            return Ok(f(self.inode.block_area()));
        };
        let place = Place::inode(Structure::ExtentBlock, self.inode.number()).at(block);
        self.space.load(block, place, |bytes| {
            self.space.fs().verify(Subject::ExtentBlock, &self.inode.context(), bytes, place)?;
            ExtentNode::from_bytes(bytes, place).map(|_| ())
        })?;
        self.space.transaction().with(block, f)
    }
}

impl FileMap<'_> {
    /// Adds an extent where there is a hole, joined with its neighbours if it continues one.
    pub fn insert_extent(&mut self, new: Mapping) -> Result<()> {
        let longest = if new.unwritten { LONGEST - 1 } else { LONGEST };
        let flag = if new.unwritten { 0x8000u16 } else { 0 };
        loop {
            let path = self.view().extent_path(new.logical)?;
            let leaf = path[path.len() - 1];
            if leaf.slot > 0 {
                let before = self.view().extent_at(leaf.block, leaf.slot - 1)?;
                let joins = before.unwritten == new.unwritten
                    && before.end() == new.logical
                    && before.physical + before.len == new.physical;
                if joins && before.len + new.len <= longest {
                    let len = stored_length(before.len + new.len, flag);
                    return self.write_node(leaf.block, ENTRY * leaf.slot + 4, &len);
                }
            }
            if leaf.entries == leaf.max {
                self.make_room(&path, new.logical)?;
                continue;
            }
            let at = ENTRY * (leaf.slot + 1);
            let mut bytes = entry(new.logical, new.physical, stored_length(new.len, flag));
            self.view().node(leaf.block, |node| bytes.extend(&node[at..ENTRY * (leaf.entries + 1)]))?;
            self.write_node(leaf.block, at, &bytes)?;
            self.set_entries(leaf.block, leaf.entries + 1)?;
            // Indexes are not above what they lead to.
            for step in path[..path.len() - 1].iter().rev() {
                let at = ENTRY * (step.slot + 1);
                let key = self.view().node(step.block, |node| le32(node, at))?;
                if u64::from(key) > new.logical {
                    // OK to truncate: logical blocks have 32 bits.
                    self.write_node(step.block, at, &(new.logical as u32).to_le_bytes())?;
                }
            }
            return Ok(());
        }
    }

    /// Makes room for one more entry somewhere on a path whose leaf is full: splits the highest node of those
    /// that are full below one that is not, or gives the root another level. One call may not be enough.
    fn make_room(&mut self, path: &[Step], logical: u64) -> Result<()> {
        let context = self.inode.context();
        let subject = Subject::ExtentBlock;
        let block = self.metadata_block()?;
        let mut bytes = vec![0; self.space.block_size()];
        let max = (self.space.block_size() / ENTRY).saturating_sub(1).min(usize::from(u16::MAX));
        // OK to truncate: at most 5460 entries.
        let max_bytes = (max as u16).to_le_bytes();
        let Some(parent) = path.iter().rposition(|step| step.entries < step.max) else {
            let root = path[0];
            let depth = path.len() as u16;
            if depth >= 5 {
                return Err(invalid(std::io::ErrorKind::FileTooLarge, "an extent tree of 5 levels is full"));
            }
            bytes[..60].copy_from_slice(self.inode.block_area());
            bytes[4..6].copy_from_slice(&max_bytes);
            let first = le32(&bytes, ENTRY);
            self.space.transaction_mut().create_structure(subject, context, block, bytes);
            let area = self.inode.block_area_mut();
            area[2..4].copy_from_slice(&1u16.to_le_bytes());
            area[6..8].copy_from_slice(&depth.to_le_bytes());
            area[ENTRY..2 * ENTRY].copy_from_slice(&index(first, block));
            area[2 * ENTRY..ENTRY * (root.max + 1)].fill(0);
            return Ok(());
        };
        let full = path[parent + 1];
        let is_leaf = parent + 2 == path.len();
        // What is appended to goes on in a node of its own, and leaves a full one behind.
        let split = match (is_leaf, full.slot) {
            (true, slot) if slot == full.entries => slot,
            (false, slot) if slot + 1 == full.entries => slot,
            _ => full.entries / 2,
        };
        let moved = full.entries - split;
        let mut first = logical as u32;
        self.view().node(full.block, |node| {
            bytes[..ENTRY].copy_from_slice(&node[..ENTRY]);
            let from = ENTRY * (split + 1);
            bytes[ENTRY..ENTRY * (moved + 1)].copy_from_slice(&node[from..from + ENTRY * moved]);
            if moved > 0 {
                first = le32(node, from);
            }
        })?;
        // OK to truncate: fewer than there were.
        bytes[2..4].copy_from_slice(&(moved as u16).to_le_bytes());
        bytes[4..6].copy_from_slice(&max_bytes);
        self.space.transaction_mut().create_structure(subject, context, block, bytes);
        self.set_entries(full.block, split)?;
        let step = path[parent];
        let at = ENTRY * (step.slot + 2);
        let mut entries = index(first, block).to_vec();
        self.view().node(step.block, |node| entries.extend(&node[at..ENTRY * (step.entries + 1)]))?;
        self.write_node(step.block, at, &entries)?;
        self.set_entries(step.block, step.entries + 1)
    }

    /// Takes away the last run of blocks that lies behind `from`, and nodes that are empty then.
    pub fn take_last_extent(&mut self, from: u64) -> Result<Option<Mapping>> {
        let path = self.view().extent_path(u64::from(u32::MAX))?;
        let leaf = path[path.len() - 1];
        if leaf.entries == 0 {
            return Ok(None);
        }
        let extent = self.view().extent_at(leaf.block, leaf.entries - 1)?;
        if extent.end() <= from {
            return Ok(None);
        }
        let kept = from.saturating_sub(extent.logical);
        if kept > 0 {
            let len = stored_length(kept, if extent.unwritten { 0x8000 } else { 0 });
            self.write_node(leaf.block, ENTRY * leaf.entries + 4, &len)?;
        } else {
            self.remove_last(&path)?;
        }
        let (logical, physical) = (extent.logical + kept, extent.physical + kept);
        Ok(Some(Mapping { logical, physical, len: extent.len - kept, unwritten: extent.unwritten }))
    }

    /// Removes the last entry of the last leaf, and nodes that are empty then.
    fn remove_last(&mut self, path: &[Step]) -> Result<()> {
        for (level, step) in path.iter().enumerate().rev() {
            if step.entries > 1 || level == 0 {
                self.set_entries(step.block, step.entries - 1)?;
                break;
            }
            if let Some(block) = step.block {
                self.free_metadata_block(block)?;
            }
        }
        if le16(self.inode.block_area(), 2) == 0 {
            self.inode.block_area_mut().copy_from_slice(&empty_extents());
        }
        Ok(())
    }

    fn write_node(&mut self, block: Option<u64>, at: usize, new: &[u8]) -> Result<()> {
        match block {
            None => self.inode.block_area_mut()[at..at + new.len()].copy_from_slice(new),
            Some(block) => self.space.transaction_mut().patch(
                Subject::ExtentBlock,
                self.inode.context(),
                block,
                at,
                new,
            )?,
        }
        Ok(())
    }

    fn set_entries(&mut self, block: Option<u64>, entries: usize) -> Result<()> {
        // OK to truncate: not more than eh_max.
        self.write_node(block, 2, &(entries as u16).to_le_bytes())
    }
}

/// `ee_len` of so many blocks: 32768 written ones are 0x8000, all above are unwritten.
fn stored_length(len: u64, flag: u16) -> [u8; 2] {
    // OK to truncate: at most 32768.
    (len as u16 | flag).to_le_bytes()
}

fn entry(logical: u64, physical: u64, len: [u8; 2]) -> Vec<u8> {
    let little = physical.to_le_bytes();
    // OK to truncate: logical blocks have 32 bits.
    [&(logical as u32).to_le_bytes()[..], &len, &little[4..6], &little[..4]].concat()
}

fn index(logical: u32, block: u64) -> [u8; ENTRY] {
    let little = block.to_le_bytes();
    let mut bytes = [0; ENTRY];
    bytes[..4].copy_from_slice(&logical.to_le_bytes());
    bytes[4..8].copy_from_slice(&little[..4]);
    bytes[8..10].copy_from_slice(&little[4..6]);
    bytes
}
