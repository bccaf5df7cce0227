//! Extent trees that grow and shrink.

use casemate_blockdev::u32_of;

use crate::edit::file_map::{FileMap, MapView};
use crate::error::{Place, Result, Structure, invalid};
use crate::format::csum::Subject;
use crate::format::extent::{self, Extent, ExtentIndex, ExtentNode, MOST_LEVELS};
use crate::number::u16_of;
use crate::read::mapping::Mapping;
use crate::units::Block;

/// Where a path through the tree goes through a node.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// The node's block; `None` for the root in the inode.
    block: Option<Block>,
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
                let next = self.node(step.block, |node| node.logical(step.slot + 1))?;
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
                let (entries, max, depth) = (node.len(), node.max(), node.depth());
                let (mut low, mut high) = (0, entries);
                while low < high {
                    let middle = low.midpoint(high);
                    if u64::from(node.logical(middle)) <= logical {
                        low = middle + 1;
                    } else {
                        high = middle;
                    }
                }
                if depth == 0 {
                    return (Step { block, entries, max, slot: low }, depth, None);
                }
                let slot = low.max(1) - 1;
                (Step { block, entries, max, slot }, depth, Some(node.index(slot).block))
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
            block = child;
        }
    }

    fn extent_at(&self, block: Option<Block>, slot: usize) -> Result<Mapping> {
        let extent = self.node(block, |node| node.extent(slot))?;
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

    /// Calls `f` with a node. Checksums are checked when nodes come in.
    fn node<T>(&self, block: Option<Block>, f: impl FnOnce(ExtentNode<'_>) -> T) -> Result<T> {
        let Some(block) = block else {
            let place = Place::inode(Structure::Inode, self.inode.number());
            return ExtentNode::from_bytes(self.inode.block_area(), place).map(f);
        };
        let place = Place::inode(Structure::ExtentBlock, self.inode.number()).at(block);
        self.space.load(block, place, |bytes| {
            self.space.fs().verify(Subject::ExtentBlock, &self.inode.context(), bytes, place)
        })?;
        self.space.transaction().with(block, |bytes| ExtentNode::from_bytes(bytes, place).map(f))?
    }
}

impl FileMap<'_> {
    /// Adds an extent where there is a hole, joined with those of its neighbours in the same leaf that it continues.
    pub fn insert_extent(&mut self, new: Mapping) -> Result<()> {
        loop {
            let path = self.view().extent_path(new.logical)?;
            let leaf = path[path.len() - 1];
            let after = match leaf.slot < leaf.entries {
                true => Some(self.view().extent_at(leaf.block, leaf.slot)?),
                false => None,
            };
            if leaf.slot > 0 {
                let before = self.view().extent_at(leaf.block, leaf.slot - 1)?;
                if let Some(joined) = joined(before, new) {
                    let all = after.and_then(|after| self::joined(joined, after));
                    let joined = all.unwrap_or(joined);
                    self.write_node(leaf.block, extent::entry_at(leaf.slot - 1), &stored(joined))?;
                    return if all.is_some() { self.remove_entry(&path, leaf.slot) } else { Ok(()) };
                }
            }
            if let Some(joined) = after.and_then(|after| joined(new, after)) {
                self.write_node(leaf.block, extent::entry_at(leaf.slot), &stored(joined))?;
                return if leaf.slot == 0 { self.correct_indexes(&path, joined.logical) } else { Ok(()) };
            }
            if leaf.entries == leaf.max {
                self.make_room(&path, new.logical)?;
                continue;
            }
            let mut bytes = stored(new).to_vec();
            self.view().node(leaf.block, |node| bytes.extend(node.entries_from(leaf.slot)))?;
            self.write_node(leaf.block, extent::entry_at(leaf.slot), &bytes)?;
            self.set_entries(leaf.block, leaf.entries + 1)?;
            // Indexes are not above what they lead to.
            for step in path[..path.len() - 1].iter().rev() {
                let first = self.view().node(step.block, |node| node.logical(step.slot))?;
                if u64::from(first) > new.logical {
                    self.set_logical(*step, new.logical)?;
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
        let Some(parent) = path.iter().rposition(|step| step.entries < step.max) else {
            let depth = u16_of(path.len());
            if depth >= MOST_LEVELS {
                return Err(invalid(std::io::ErrorKind::FileTooLarge, "an extent tree of 5 levels is full"));
            }
            let (first, entries) =
                self.view().node(None, |root| (root.logical(0), root.entries_from(0).to_vec()))?;
            let below = extent::node_bytes(self.space.block_size(), depth - 1, &entries);
            self.space.transaction_mut().create_structure(subject, context, block, below);
            let index = ExtentIndex { logical: first, block }.to_bytes();
            self.inode.block_area_mut().copy_from_slice(&extent::root_bytes(depth, &index));
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
        let (depth, entries, first) = self.view().node(full.block, |node| {
            let first = (split < full.entries).then(|| node.logical(split));
            (node.depth(), node.entries_from(split).to_vec(), first)
        })?;
        let bytes = extent::node_bytes(self.space.block_size(), depth, &entries);
        self.space.transaction_mut().create_structure(subject, context, block, bytes);
        self.set_entries(full.block, split)?;
        let step = path[parent];
        let logical = first.unwrap_or(u32_of(logical));
        let mut entries = ExtentIndex { logical, block }.to_bytes().to_vec();
        self.view().node(step.block, |node| entries.extend(node.entries_from(step.slot + 1)))?;
        self.write_node(step.block, extent::entry_at(step.slot + 1), &entries)?;
        self.set_entries(step.block, step.entries + 1)
    }

    /// Takes away the first run of blocks that lies in `from..to`, as far as it does, and nodes that are empty then.
    pub fn take_next_extent(&mut self, from: u64, to: u64) -> Result<Option<Mapping>> {
        let Some(extent) = self.view().extent_from(from)?.filter(|extent| extent.logical < to) else {
            return Ok(None);
        };
        let path = self.view().extent_path(extent.logical)?;
        let leaf = path[path.len() - 1];
        let slot = leaf.slot - 1;
        let (first, end) = (from.max(extent.logical), to.min(extent.end()));
        let part = |from: u64, to: u64| {
            let physical = extent.physical + (from - extent.logical);
            Mapping { logical: from, physical, len: to - from, unwritten: extent.unwritten }
        };
        if first > extent.logical {
            let before = part(extent.logical, first);
            self.write_node(leaf.block, extent::entry_at(slot), &stored(before))?;
            if end < extent.end() {
                self.insert_extent(part(end, extent.end()))?;
            }
        } else if end < extent.end() {
            let behind = part(end, extent.end());
            self.write_node(leaf.block, extent::entry_at(slot), &stored(behind))?;
            if slot == 0 {
                self.correct_indexes(&path, behind.logical)?;
            }
        } else {
            self.remove_entry(&path, slot)?;
        }
        Ok(Some(part(first, end)))
    }

    /// Removes an entry of the leaf that a path leads to, and nodes that are empty then.
    fn remove_entry(&mut self, path: &[Step], slot: usize) -> Result<()> {
        if path.iter().all(|step| step.entries == 1) {
            return self.remove_last(path);
        }
        for (level, step) in path.iter().enumerate().rev() {
            if step.entries == 1
                && let Some(block) = step.block
            {
                self.free_metadata_block(block)?;
                continue;
            }
            let slot = if level + 1 == path.len() { slot } else { step.slot };
            let behind = self.view().node(step.block, |node| node.entries_from(slot + 1).to_vec())?;
            self.write_node(step.block, extent::entry_at(slot), &behind)?;
            self.set_entries(step.block, step.entries - 1)?;
            if slot == 0 {
                let first = self.view().node(step.block, |node| node.logical(0))?;
                self.correct_indexes(&path[..=level], first.into())?;
            }
            break;
        }
        Ok(())
    }

    /// Sets the first block of the indexes on a path: the node that they lead to begins with logical block `first`.
    fn correct_indexes(&mut self, path: &[Step], first: u64) -> Result<()> {
        for step in path[..path.len() - 1].iter().rev() {
            self.set_logical(*step, first)?;
            if step.slot > 0 {
                break;
            }
        }
        Ok(())
    }

    /// Sets the first logical block of an entry.
    fn set_logical(&mut self, step: Step, logical: u64) -> Result<()> {
        // Logical blocks have 32 bits.
        self.write_node(step.block, extent::entry_at(step.slot), &u32_of(logical).to_le_bytes())
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
            let kept = stored(Mapping { len: kept, ..extent });
            self.write_node(leaf.block, extent::entry_at(leaf.entries - 1), &kept)?;
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
        if path.iter().all(|step| step.entries == 1) {
            self.inode.block_area_mut().copy_from_slice(&extent::root_bytes(0, &[]));
        }
        Ok(())
    }

    fn write_node(&mut self, block: Option<Block>, at: usize, new: &[u8]) -> Result<()> {
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

    fn set_entries(&mut self, block: Option<Block>, entries: usize) -> Result<()> {
        let (at, bytes) = extent::entries_patch(entries);
        self.write_node(block, at, &bytes)
    }
}

/// Two extents as one, if the second continues the first.
fn joined(first: Mapping, second: Mapping) -> Option<Mapping> {
    let len = first.len + second.len;
    let continues = first.unwritten == second.unwritten
        && first.end() == second.logical
        && first.physical + first.len == second.physical;
    (continues && len <= extent::longest(first.unwritten)).then_some(Mapping { len, ..first })
}

fn stored(extent: Mapping) -> [u8; 12] {
    let Mapping { logical, physical, len, unwritten } = extent;
    // Logical blocks have 32 bits, and an extent at most 32768 of them.
    Extent { logical: u32_of(logical), physical, len: u16_of(len), unwritten }.to_bytes()
}
