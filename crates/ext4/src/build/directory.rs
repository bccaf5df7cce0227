//! Directories that are written once: all names are known, so an index is made of full leaves.

use casemate_blockdev::{u32_of, usize_of};

use crate::error::{Error, Result};
use crate::format::csum::{Checksums, Context, Subject, recipe};
use crate::format::dir::{self, leaf_bytes, record_bytes, record_len};
use crate::format::dirhash::NameHasher;
use crate::format::htree::{self, HtreeEntry};
use crate::format::inode::FileType;
use crate::number::u8_of;
use crate::units::InodeNo;

/// Levels of nodes below the root that every kernel reads, and with the feature large_dir.
const LEVELS: usize = 1;
const LARGE_LEVELS: usize = 2;

/// Format of all directories of a file system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    pub block_size: usize,
    /// Whether blocks have checksums.
    pub has_sums: bool,
    /// Whether records tell the kind of file.
    pub has_kinds: bool,
    /// How names are hashed, and the number of that; `None` where directories have no index.
    pub hash: Option<(NameHasher, u8)>,
    /// Whether indexes may be higher (feature large_dir).
    pub is_large: bool,
}

/// In which block each name of a directory goes.
#[derive(Clone, Debug)]
pub(crate) struct Arranged {
    /// Numbers of names, block by block.
    order: Vec<u32>,
    /// Where each leaf ends in `order`.
    ends: Vec<usize>,
    /// The lowest hash of each leaf; empty without an index.
    hashes: Vec<u32>,
    /// Nodes of each level below the root, the lowest one first.
    nodes: Vec<usize>,
}

/// A name that is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name<'a> {
    pub name: &'a [u8],
    pub inode: InodeNo,
    pub kind: FileType,
}

impl Arranged {
    /// Blocks of the directory.
    pub fn blocks(&self) -> usize {
        let root = usize::from(self.is_indexed());
        root + self.nodes.iter().sum::<usize>() + self.ends.len()
    }

    /// Whether the directory has an index.
    pub fn is_indexed(&self) -> bool {
        !self.hashes.is_empty()
    }
}

impl Form {
    fn tail(&self) -> usize {
        if self.has_sums { dir::TAIL } else { 0 }
    }

    /// The blocks of a directory with these names, which are in order.
    ///
    /// # Errors
    /// `Unsupported` for more names than an index has room for.
    pub fn arrange<'a>(&self, names: impl ExactSizeIterator<Item = &'a [u8]> + Clone) -> Result<Arranged> {
        let room = self.block_size - self.tail();
        let dots = 2 * record_len(b"..", None);
        let len: usize = names.clone().map(|name| record_len(name, None)).sum();
        // A file system has 2^32 inodes.
        let count = u32_of(names.len());
        let Some((hasher, _)) = self.hash.filter(|_| dots + len > room) else {
            let order: Vec<u32> = (0..count).collect();
            let ends = fill(names.map(|name| record_len(name, None)), dots, room);
            return Ok(Arranged { order, ends, hashes: Vec::new(), nodes: Vec::new() });
        };
        let names: Vec<&[u8]> = names.collect();
        let mut hashed: Vec<_> =
            names.iter().zip(0..count).map(|(name, at)| (hasher.hash(name), at)).collect();
        hashed.sort_unstable();
        let order: Vec<u32> = hashed.iter().map(|(_, at)| *at).collect();
        let ends = fill(order.iter().map(|at| record_len(names[usize_of(*at)], None)), 0, room);
        let starts = std::iter::once(0).chain(ends.iter().copied()).take(ends.len());
        let hashes: Vec<u32> = starts
            .map(|start| {
                let hash = hashed[start].0.major;
                // The lowest bit says that the leaf before ends with the same hash.
                let goes_on = start > 0 && hashed[start - 1].0.major == hash;
                hash | u32::from(goes_on)
            })
            .collect();
        let root = htree::capacity(self.block_size, true, self.has_sums);
        let node = htree::capacity(self.block_size, false, self.has_sums);
        let (mut nodes, mut below) = (Vec::new(), ends.len());
        while below > root {
            below = below.div_ceil(node);
            nodes.push(below);
        }
        let most = if self.is_large { LARGE_LEVELS } else { LEVELS };
        if nodes.len() > most {
            let text = format!(
                "a directory of {count} names, whose index would be too high; the feature large_dir allows more"
            );
            return Err(Error::unsupported(text));
        }
        Ok(Arranged { order, ends, hashes, nodes })
    }

    /// The directory's bytes: `own` and `parent` are inodes, `names` all names in the order in which they were arranged.
    pub fn write(
        &self,
        arranged: &Arranged,
        [own, parent]: [InodeNo; 2],
        names: &[Name<'_>],
        sums: &Checksums,
        context: &Context,
        blocks: usize,
    ) -> Vec<u8> {
        let kind = |kind| self.has_kinds.then_some(kind);
        let dot = |inode, name| record_bytes(inode, name, kind(FileType::Directory), None);
        let dots = [dot(own, b"."), dot(parent, b"..")];
        let mut bytes = Vec::with_capacity(blocks * self.block_size);
        if let Some((_, version)) = self.hash.filter(|_| arranged.is_indexed()) {
            self.write_index(&mut bytes, arranged, [&dots[0], &dots[1]], version);
            for block in bytes.chunks_exact_mut(self.block_size) {
                store(sums, Subject::HtreeNode, context, block);
            }
        }
        let mut start = 0;
        let leaves = bytes.len();
        for &end in &arranged.ends {
            let is_first = bytes.is_empty();
            let records = arranged.order[start..end].iter().map(|at| {
                let Name { name, inode, kind: of } = names[usize_of(*at)];
                record_bytes(inode, name, kind(of), None)
            });
            let records: Vec<_> =
                if is_first { dots.iter().cloned().chain(records).collect() } else { records.collect() };
            bytes.extend(leaf_bytes(self.block_size, self.tail(), &records));
            start = end;
        }
        // Empty blocks, as those of lost+found.
        while bytes.len() < blocks * self.block_size {
            bytes.extend(leaf_bytes(self.block_size, self.tail(), &[]));
        }
        for block in bytes[leaves..].chunks_exact_mut(self.block_size) {
            store(sums, Subject::DirectoryBlock, context, block);
        }
        bytes
    }

    /// The index: the root, then the nodes of each level, the highest one first. Leaves follow.
    fn write_index(&self, bytes: &mut Vec<u8>, arranged: &Arranged, dots: [&[u8]; 2], version: u8) {
        let node = htree::capacity(self.block_size, false, self.has_sums);
        let first_leaf = 1 + arranged.nodes.iter().sum::<usize>();
        let numbered = |hashes: &[u32], first: usize| -> Vec<HtreeEntry> {
            // An index of three levels has fewer blocks than 2^28.
            let numbers = (u32_of(first)..).zip(hashes);
            numbers.map(|(block, hash)| HtreeEntry { hash: *hash, block }).collect()
        };
        let to_bytes = |entries: &[HtreeEntry]| -> Vec<u8> {
            entries.iter().flat_map(|entry| entry.to_bytes()).collect()
        };
        let mut below = numbered(&arranged.hashes, first_leaf);
        let mut levels = Vec::new();
        let mut first = first_leaf;
        for count in &arranged.nodes {
            first -= count;
            let nodes: Vec<&[HtreeEntry]> = below.chunks(node).collect();
            levels.push(nodes.iter().map(|entries| to_bytes(entries)).collect::<Vec<_>>());
            let hashes: Vec<u32> = nodes.iter().map(|entries| entries[0].hash).collect();
            below = numbered(&hashes, first);
        }
        let mut root = htree::root_bytes(self.block_size, dots, version, self.has_sums);
        htree::set_root_entries(&mut root, u8_of(levels.len()), &to_bytes(&below), self.has_sums);
        bytes.extend(root);
        for entries in levels.iter().rev().flatten() {
            bytes.extend(htree::node_bytes(self.block_size, entries, self.has_sums));
        }
    }
}

/// Where blocks end that are filled one after the other; the first one has `used` bytes in use.
fn fill(lens: impl Iterator<Item = usize>, mut used: usize, room: usize) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut count = 0;
    for len in lens {
        if used + len > room {
            ends.push(count);
            used = 0;
        }
        used += len;
        count += 1;
    }
    ends.push(count);
    ends
}

/// Stores a checksum where the file system has it.
pub(crate) fn store(sums: &Checksums, subject: Subject, context: &Context, bytes: &mut [u8]) {
    if sums.covers(subject) {
        // What is made here has room for its checksum.
        sums.store(recipe(subject), context, bytes);
    }
}
