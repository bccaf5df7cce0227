//! Hash trees of directories: which block is a node, which a leaf and of which hashes.

use std::ops::RangeInclusive;

use casemate_blockdev::{u64_of, usize_of};

use crate::check::findings::FindingKind;
use crate::check::worker::{Directory, Worker};
use crate::error::{Corrupt, Place, Result, Structure};
use crate::format::dirhash::{DirHash, NameHasher, SIPHASH};
use crate::format::htree::{HtreeNode, is_inner, limit_of, root_fields};
use crate::format::inode::InodeFlags;
use crate::read::mapping::Mapping;

/// Versions of hashes that a tree may say, but for the keyed one: which bytes are signed, the superblock tells.
const VERSIONS: std::ops::Range<u8> = 0..3;

/// Levels of nodes below the root: with large_dir, and without.
const MOST_LEVELS: [u8; 2] = [2, 1];

/// The flags of a root whose tree nobody but newer systems knows.
const UNKNOWN_FLAGS: u8 = 1;

/// Role of a directory's block in the hash tree.
#[derive(Clone, Debug)]
pub(crate) enum Leaf {
    /// Of names in any order.
    Any,
    /// Of the tree.
    Node,
    /// Of names with these hashes.
    Range(RangeInclusive<u32>),
}

/// A directory's tree.
pub(crate) struct Tree {
    blocks: Vec<Visited>,
    hasher: Option<NameHasher>,
}

#[derive(Clone, Copy, Default)]
struct Visited {
    first: u32,
    last: u32,
    /// How many nodes lead to it.
    found: u8,
    is_node: bool,
}

impl Worker<'_, '_> {
    /// Reads the tree of a directory with an index; `None` where there is nothing that can be one.
    pub fn tree(&mut self, directory: &Directory, runs: &[Mapping]) -> Result<Option<Tree>> {
        let place = Place::inode(Structure::HtreeNode, directory.number);
        // Holes are faults by themselves; what is not there needs no room here.
        let mapped = runs.iter().fold(0u64, |sum, run| sum.saturating_add(run.len));
        if u64::from(directory.blocks) > mapped.min(self.check.fs.layout().blocks) {
            return Ok(None);
        }
        let Some(root) = self.node(runs, 0)? else {
            self.say(FindingKind::HtreeRoot, place, "there is no root");
            return Ok(None);
        };
        let wrong = |text: String| self.say(FindingKind::HtreeRoot, place, text);
        let Some((version, levels, flags, is_sound)) = root_fields(&root, self.check.has.checksums) else {
            wrong("the first block is not a root".to_owned());
            return Ok(None);
        };
        let dir_flags = InodeFlags(directory.flags);
        let is_keyed = dir_flags.has(InodeFlags::ENCRYPT) && dir_flags.has(InodeFlags::CASEFOLD);
        if !is_sound {
            wrong("its reserved bytes are not zero, or it is too short".to_owned());
        }
        if !(VERSIONS.contains(&version) || version == SIPHASH) || is_keyed != (version == SIPHASH) {
            wrong(format!("names are hashed by version {version}"));
        }
        if flags & UNKNOWN_FLAGS != 0 {
            wrong(format!("it has flags {flags:#x}"));
        }
        if levels > MOST_LEVELS[usize::from(!self.check.has.large_dir)] {
            wrong(format!("there are {levels} levels below it"));
        }
        if levels > MOST_LEVELS[0] || !is_sound {
            return Ok(None);
        }
        let hasher = NameHasher::new(version, &self.check.fs.superblock().hash);
        // Not more than it has, whatever its size says.
        let mapped = runs.iter().map(|run| run.len).sum::<u64>().max(1);
        let blocks = vec![Visited::default(); usize_of(u64::from(directory.blocks).min(mapped))];
        let mut tree = Tree { blocks, hasher };
        tree.blocks[0] = Visited { found: 1, is_node: true, first: 0, last: u32::MAX };
        self.level(&mut tree, runs, &root, place, (0, u32::MAX), levels)?;
        Ok(Some(tree))
    }

    /// Goes on from a node that stands for these hashes, and has so many levels of nodes below.
    fn level(
        &mut self,
        tree: &mut Tree,
        runs: &[Mapping],
        bytes: &[u8],
        place: Place,
        (first, last): (u32, u32),
        levels: u8,
    ) -> Result<()> {
        let node = match HtreeNode::from_bytes(bytes, place) {
            Ok(node) => node,
            Err(error) => {
                self.say(
                    FindingKind::HtreeNode,
                    place,
                    Corrupt::of(&error).map_or_else(String::new, |it| it.problem().to_string()),
                );
                return Ok(());
            }
        };
        let limit = limit_of(bytes, self.check.has.checksums);
        if limit != Some(node.limit()) {
            let expected = u64_of(limit.unwrap_or(0));
            self.number(
                FindingKind::HtreeNode,
                place,
                "entries that it has room for",
                u64_of(node.limit()),
                expected,
            );
        }
        let mut low = first;
        let mut entries = node.entries().peekable();
        while let Some(entry) = entries.next() {
            let high = entries.peek().map_or(last, |next| next.hash & !1);
            if high < low || high > last {
                let text = format!("the hash {high:#010x} follows {low:#010x}");
                self.say(FindingKind::HtreeOrder, place, text);
            }
            let Some(block) = tree.blocks.get_mut(usize_of(entry.block)) else {
                let text = format!("leads to block {} of the directory", entry.block);
                self.say(FindingKind::HtreeNode, place, text);
                low = high;
                continue;
            };
            block.found = block.found.saturating_add(1);
            if block.found == 1 {
                (block.first, block.last, block.is_node) = (low, high, levels > 0);
                if levels > 0 && self.check.may_read(1) && self.is_present(runs, entry.block.into()) {
                    let place = Place { block: None, group: None, structure: Structure::HtreeNode, ..place };
                    match self.node(runs, entry.block.into())? {
                        Some(bytes) => {
                            if !is_inner(&bytes, self.check.has.checksums) {
                                let text = "does not begin with an empty record as long as the block";
                                self.say(FindingKind::HtreeNode, place, text);
                            }
                            self.level(tree, runs, &bytes, place, (low, high), levels - 1)?;
                        }
                        None => self.say(FindingKind::HtreeNode, place, "a node is not there"),
                    }
                }
            }
            low = high;
        }
        Ok(())
    }

    /// Whether a block is no part of what is missing at the end of an image.
    fn is_present(&self, runs: &[Mapping], logical: u64) -> bool {
        let run = runs.iter().find(|run| (run.logical..run.end()).contains(&logical));
        run.is_none_or(|run| self.check.fs.is_present(run.physical + (logical - run.logical), 1))
    }

    fn node(&self, runs: &[Mapping], logical: u64) -> Result<Option<Vec<u8>>> {
        let run = runs.iter().find(|run| (run.logical..run.end()).contains(&logical));
        run.map(|run| self.check.fs.read_block(run.physical + (logical - run.logical))).transpose()
    }
}

impl Tree {
    /// The role of the directory's block `logical`.
    pub fn leaf(&self, logical: u64) -> Leaf {
        match self.blocks.get(usize_of(logical)) {
            Some(block) if block.is_node => Leaf::Node,
            Some(block) if block.found > 0 => Leaf::Range(block.first..=block.last),
            _ => Leaf::Any,
        }
    }

    /// The hash that orders a name.
    pub fn hash(&self, name: &[u8], stored: Option<DirHash>) -> Option<u32> {
        match stored {
            Some(hash) => Some(hash.major),
            None => Some(self.hasher.as_ref()?.hash(name).major),
        }
    }

    /// Reports the blocks that are not where they should be in the tree.
    pub fn finish(&self, worker: &Worker<'_, '_>, place: Place) {
        for (logical, block) in self.blocks.iter().enumerate().filter(|(_, block)| block.found != 1) {
            let how = if block.found == 0 { "not" } else { "more than once" };
            worker.say(FindingKind::HtreeLeaf, place, format!("block {logical} is {how} in the hash tree"));
        }
    }
}
