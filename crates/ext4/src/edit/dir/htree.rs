//! Hash trees of directories that grow: leaves and nodes split where the kernel splits them.

use crate::edit::dir::name::Name;
use crate::edit::dir::{Directory, Found, NewName, name_too_long};
use crate::error::{Error, Place, Result, Structure, no_space};
use crate::format::csum::{Subject, recipe};
use crate::format::dir::Record;
use crate::format::dirhash::{NameHasher, SIPHASH};
use crate::format::features::{Compat, Incompat};
use crate::format::htree::{self, HtreeEntry, HtreeNode, HtreeRoot};
use crate::format::inode::{Inode, InodeFlags};
use crate::read::dir::BlockRole;
use crate::read::encryption::no_keys;
use crate::transaction::patch::Patching;
use crate::units::Block;

/// A node on the way to a leaf.
#[derive(Clone, Copy, Debug)]
struct Frame {
    block: Block,
    count: usize,
    limit: usize,
    slot: usize,
}

impl Directory<'_> {
    /// Whether a directory gets an index when it grows.
    pub fn can_index(&self) -> bool {
        let superblock = self.fs().superblock();
        superblock.compat.has(Compat::DIR_INDEX)
            && (self.dir.has_hashes() || NameHasher::new(superblock.hash.version, &superblock.hash).is_some())
    }

    /// Gives a directory of one block an index: its names move to a leaf behind the tree's root.
    pub fn index_directory(&mut self) -> Result<()> {
        let first = self.leaf(0)?;
        let place = Place::inode(Structure::DirectoryBlock, self.dir.number()).at(first);
        let records = self.live_records(first, |record| record.name.to_vec())?;
        let dots = records.split_first_chunk().filter(|([own, up], _)| own.0 == b"." && up.0 == b"..");
        let Some(([(_, own), (_, up)], names)) = dots else {
            return Err(place.malformed("does not begin with \".\" and \"..\""));
        };
        let version = if self.dir.has_hashes() { SIPHASH } else { self.fs().superblock().hash.version };
        let root = htree::root_bytes(self.block_size(), [own, up], version, self.has_node_tail());
        let leaf = self.pack(&plain(names));
        let (block, _) = self.append_block()?;
        self.create_block(Subject::DirectoryBlock, block, leaf);
        self.create_block(Subject::HtreeNode, first, root);
        self.dir.set_flags(self.dir.flags().0 | InodeFlags::INDEX.0);
        Ok(())
    }

    /// Puts a name into the leaf that its hash belongs to, splitting what is full.
    pub fn insert_indexed(&mut self, new: &NewName<'_>) -> Result<()> {
        // Each round splits something or ends; a path has three nodes and a leaf.
        for _ in 0..16 {
            let hasher = self.hasher()?;
            let hash = self.hash_of_name(hasher.as_ref(), new.name)?;
            let (frames, leaf) = self.frames(hash)?;
            let block = self.leaf(leaf)?;
            if self.insert_into_leaf(block, new)? {
                return Ok(());
            }
            let last = frames[frames.len() - 1];
            if last.count == last.limit {
                self.split_node(&frames)?;
            } else {
                self.split_leaf(hasher.as_ref(), block, &last, new.name.record_len())?;
            }
        }
        Err(name_too_long())
    }

    /// Finds a name in the leaves that its hash may lie in.
    pub fn find_indexed(&mut self, name: &Name) -> Result<Option<Found>> {
        let hasher = self.hasher()?;
        let hash = self.hash_of_name(hasher.as_ref(), name)?;
        let (mut frames, mut leaf) = self.frames(hash)?;
        loop {
            let block = self.leaf(leaf)?;
            let found = self.find_in_block(block, name)?;
            if found.is_some() {
                return Ok(found);
            }
            // The same hash may go on in the leaf behind.
            match self.next_leaf(&mut frames)? {
                Some((next_hash, next)) if next_hash == hash | 1 => leaf = next,
                _ => return Ok(None),
            }
        }
    }

    /// Where a node of the tree lies; it is in the cache then, and sound.
    pub fn htree_node(&mut self, logical: u64) -> Result<Block> {
        let block = self.block_of(logical)?;
        let place = Place::inode(Structure::HtreeNode, self.dir.number()).at(block);
        self.inodes.space().load(block, place, |bytes| {
            if self.fs().verifies() {
                self.fs().verify_directory_block(BlockRole::Node, &self.dir.context(), bytes, place)?;
            }
            HtreeNode::from_bytes(bytes, place).map(|_| ())
        })?;
        Ok(block)
    }

    fn root(&mut self) -> Result<HtreeRoot> {
        let block = self.htree_node(0)?;
        let place = Place::inode(Structure::HtreeNode, self.dir.number()).at(block);
        self.inodes.space().transaction().with(block, |bytes| HtreeRoot::from_bytes(bytes, place))?
    }

    /// The hash of the directory's names; `None` where names are stored with their hashes.
    fn hasher(&mut self) -> Result<Option<NameHasher>> {
        let root = self.root()?;
        if self.dir.has_hashes() && root.version == SIPHASH {
            return Ok(None);
        }
        let hasher =
            NameHasher::new(root.version, &self.fs().superblock().hash).filter(|_| !self.dir.has_hashes());
        hasher
            .map(Some)
            .ok_or_else(|| Error::unsupported(format!("directories with hash version {}", root.version)))
    }

    fn hash_of_name(&self, hasher: Option<&NameHasher>, name: &Name) -> Result<u32> {
        match (hasher, name.hash) {
            (Some(hasher), _) => Ok(hash_of(hasher, self.dir, &name.bytes)),
            (None, Some(hash)) => Ok(hash.major),
            (None, None) => Err(no_keys(self.dir)),
        }
    }

    /// The way from the root to the leaf for a hash.
    fn frames(&mut self, hash: u32) -> Result<(Vec<Frame>, u64)> {
        let mut frames = Vec::with_capacity(3);
        let mut logical = 0;
        let mut levels = None;
        loop {
            let (frame, child) =
                self.frame(logical, |hashes| hashes.iter().rposition(|entry| *entry <= hash).unwrap_or(0))?;
            if levels.is_none() {
                let root = self.root()?;
                levels = Some(usize::from(root.levels));
            }
            frames.push(frame);
            logical = child;
            if frames.len() > levels.unwrap_or(0) {
                return Ok((frames, logical));
            }
        }
    }

    /// A node, with the entry that `choose` takes from their hashes, and the block that it leads to.
    fn frame(&mut self, logical: u64, choose: impl FnOnce(&[u32]) -> usize) -> Result<(Frame, u64)> {
        let block = self.htree_node(logical)?;
        let place = Place::inode(Structure::HtreeNode, self.dir.number()).at(block);
        self.inodes.space().transaction().with(block, |bytes| {
            let node = HtreeNode::from_bytes(bytes, place)?;
            let hashes: Vec<u32> = node.entries().map(|entry| entry.hash).collect();
            let slot = choose(&hashes);
            let frame = Frame { block, count: node.len(), limit: node.limit(), slot };
            Ok((frame, u64::from(node.entry(slot).block)))
        })?
    }

    /// Goes to the next leaf: the hash that it begins with, and its block in the directory.
    fn next_leaf(&mut self, frames: &mut [Frame]) -> Result<Option<(u32, u64)>> {
        let Some(level) = frames.iter().rposition(|frame| frame.slot + 1 < frame.count) else {
            return Ok(None);
        };
        frames[level].slot += 1;
        let frame = frames[level];
        let HtreeEntry { hash, block } = self.with_node(&frame, |node| node.entry(frame.slot))?;
        let mut logical = u64::from(block);
        for below in &mut frames[level + 1..] {
            let (frame, child) = self.frame(logical, |_| 0)?;
            *below = frame;
            logical = child;
        }
        Ok(Some((hash, logical)))
    }

    /// Moves the upper half of a leaf to a new one.
    fn split_leaf(
        &mut self,
        hasher: Option<&NameHasher>,
        block: Block,
        parent: &Frame,
        needed: usize,
    ) -> Result<()> {
        let mut records = self.live_records(block, |record| match hasher {
            Some(hasher) => hash_of(hasher, self.dir, record.name),
            None => record.hash.map_or(0, |hash| hash.major),
        })?;
        records.sort_by_key(|(hash, _)| *hash);
        let size = self.block_size();
        let bytes_of = |records: &[(u32, Vec<u8>)]| -> usize { records.iter().map(|(_, r)| r.len()).sum() };
        if records.len() < 2 || bytes_of(&records) + needed <= size - self.tail_size() {
            // There is room, only in pieces.
            let bytes = self.pack(&plain(&records));
            self.create_block(Subject::DirectoryBlock, block, bytes);
            return Ok(());
        }
        let mut moved = 0;
        let mut at = records.len();
        while at > 1 && moved + records[at - 1].1.len() / 2 <= size / 2 {
            at -= 1;
            moved += records[at].1.len();
        }
        let at = if at > 1 { at } else { records.len() / 2 };
        let hash = records[at].0;
        let continued = u32::from(hash == records[at - 1].0);
        let (low, high) = (self.pack(&plain(&records[..at])), self.pack(&plain(&records[at..])));
        let (new, logical) = self.append_block()?;
        self.create_block(Subject::DirectoryBlock, block, low);
        self.create_block(Subject::DirectoryBlock, new, high);
        self.insert_entry(parent, hash + continued, logical)
    }

    /// Splits the highest full node below one that has room, or gives the tree another level.
    fn split_node(&mut self, frames: &[Frame]) -> Result<()> {
        let (size, has_tail) = (self.block_size(), self.has_node_tail());
        let Some(level) = frames.iter().rposition(|frame| frame.count < frame.limit) else {
            let most = if self.fs().superblock().incompat.has(Incompat::LARGEDIR) { 3 } else { 2 };
            if frames.len() >= most {
                return Err(no_space("room in the directory's index"));
            }
            let root = frames[0];
            let entries = self.with_node(&root, |node| node.entries_from(0).to_vec())?;
            let (block, logical) = self.append_block()?;
            self.create_block(Subject::HtreeNode, block, htree::node_bytes(size, &entries, has_tail));
            let mut root_bytes = self.inodes.space().transaction().with(root.block, <[u8]>::to_vec)?;
            htree::deepen_root(&mut root_bytes, logical);
            self.create_block(Subject::HtreeNode, root.block, root_bytes);
            return Ok(());
        };
        let full = frames[level + 1];
        let kept = full.count / 2;
        let (hash, moved, (count_at, count)) = self.with_node(&full, |node| {
            (node.entry(kept).hash, node.entries_from(kept).to_vec(), node.count_patch(kept))
        })?;
        let (block, logical) = self.append_block()?;
        self.create_block(Subject::HtreeNode, block, htree::node_bytes(size, &moved, has_tail));
        let mut old = self.inodes.space().transaction().with(full.block, <[u8]>::to_vec)?;
        old[count_at..count_at + 2].copy_from_slice(&count);
        self.create_block(Subject::HtreeNode, full.block, old);
        self.insert_entry(&frames[level], hash, logical)
    }

    /// Calls `f` with a node that is in the cache.
    fn with_node<T>(&self, frame: &Frame, f: impl FnOnce(HtreeNode<'_>) -> T) -> Result<T> {
        let place = Place::inode(Structure::HtreeNode, self.dir.number()).at(frame.block);
        let transaction = self.inodes.space().transaction();
        transaction.with(frame.block, |bytes| HtreeNode::from_bytes(bytes, place).map(f))?
    }

    /// Puts an entry behind the one that a frame went down.
    fn insert_entry(&mut self, frame: &Frame, hash: u32, logical: u32) -> Result<()> {
        let part = self.inodes.space().transaction().whole(Subject::HtreeNode, self.dir.context());
        let recipe = recipe(Subject::HtreeNode);
        let patcher = *self.inodes.space().transaction().patcher();
        let covered = patcher.sums.covers(Subject::HtreeNode);
        let entry = HtreeEntry { hash, block: logical }.to_bytes();
        let slot = frame.slot + 1;
        let (at, tail_at, rest, (count_at, count)) = self.with_node(frame, |node| {
            let rest = node.entries_from(slot).to_vec();
            (node.entry_at(slot), node.tail_at(), rest, node.count_patch(frame.count + 1))
        })?;
        self.transaction().update(frame.block, |edit| {
            let bytes = edit.bytes();
            let mut sum = None;
            if covered && patcher.patching == Patching::Splice {
                let mut tail = [0; htree::TAIL];
                tail[..4].copy_from_slice(&bytes[tail_at..tail_at + 4]);
                let old = patcher.sums.stored(recipe, bytes);
                let counted = old.and_then(|old| patcher.sums.splice(recipe, bytes, old, count_at, &count));
                sum = counted.map(|sum| patcher.sums.grown(sum, &[&rest, &tail], &[&entry, &rest, &tail], 8));
            }
            edit.write(at, &[&entry[..], &rest].concat());
            edit.write(count_at, &count);
            if covered {
                let sum = sum.or_else(|| patcher.sums.compute(recipe, &part.context, edit.bytes()));
                if let Some(sum) = sum {
                    patcher.write_sum(edit, &part, sum);
                }
            }
        })?;
        Ok(())
    }

    /// The records in use of a leaf, each as long as it needs, and what `f` makes of it.
    fn live_records<T>(&self, block: Block, f: impl Fn(&Record<'_>) -> T) -> Result<Vec<(T, Vec<u8>)>> {
        self.records(block, |records| {
            let live = records.filter(|record| record.as_ref().map_or(true, |record| record.inode.is_some()));
            live.map(|record| record.map(|record| (f(&record), record.to_bytes()))).collect()
        })?
    }

    fn has_node_tail(&self) -> bool {
        self.inodes.space().transaction().sums().covers(Subject::HtreeNode)
    }
}

/// A name's hash as the tree orders it: without regard to case where the directory has none.
fn hash_of(hasher: &NameHasher, dir: &Inode, name: &[u8]) -> u32 {
    match dir.has(InodeFlags::CASEFOLD).then(|| crate::read::casefold::fold(name)).flatten() {
        Some(folded) => hasher.hash(folded.as_bytes()).major,
        None => hasher.hash(name).major,
    }
}

fn plain<T>(records: &[(T, Vec<u8>)]) -> Vec<Vec<u8>> {
    records.iter().map(|(_, record)| record.clone()).collect()
}
