//! Checking data against a stored hash tree, and naming every bad block.
//!
//! Levels are checked from the root down, all blocks of a level in parallel, then the data. A block is good
//! if its digest is the one in its parent; it is *trusted* if also its parent is. Below a bad hash block
//! nothing can be trusted, whatever its digest: these data blocks are [`Summary::unverified`], and the kernel
//! refuses to read them as it refuses the bad ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Mutex, PoisonError};

use casemate_blockdev::{BlockDevice, Buffer, MemoryDevice, u64_of, usize_of};
use casemate_primitives::Messages;

use super::in_order::InOrder;
use super::plan::Plan;
use super::{Geometry, Job, Ranges, Shape, TreeDevice};
use crate::Error;

/// Data with the tree that is stored for it.
#[derive(Clone, Copy)]
pub struct Stored<'a> {
    /// The geometry: where data and hash blocks lie.
    pub geometry: &'a Geometry,
    /// The data; at least as long as `geometry` says.
    pub data: &'a dyn BlockDevice,
    /// The tree on its device.
    pub tree: &'a TreeDevice<'a>,
}

/// A block of the data or of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Block {
    /// A data block, by its number.
    Data(u64),
    /// A hash block.
    Hash {
        /// The block's level; 0 holds the digests of data blocks.
        level: usize,
        /// The block's number in its level.
        index: u64,
    },
}

impl fmt::Display for Block {
    /// "data block 3", "hash block 5 of level 0".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Block::Data(index) => write!(f, "data block {index}"),
            Block::Hash { level, index } => write!(f, "hash block {index} of level {level}"),
        }
    }
}

/// A block that is wrong, and its fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The data or hash block.
    pub block: Block,
    /// The block's fault.
    pub fault: Fault,
}

impl Finding {
    /// The error of a block that can't be read, for those who stop there.
    pub fn unreadable(&self) -> Option<Error> {
        let Fault::Unreadable { reason, .. } = &self.fault else { return None };
        let text = format!("{} can't be read: {reason}", self.block);
        Some(Error::path(std::io::ErrorKind::Other, text))
    }
}

/// A way in which a block can be wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The block's digest is not the one that the block above (or the root hash) has for it.
    Digest {
        /// The digest that the block above has for this one.
        expected: Vec<u8>,
        /// The digest of the block as it is.
        found: Vec<u8>,
        /// Whether `expected` can be trusted. If not, a block above is bad, and this one may be good.
        trusted: bool,
    },
    /// A byte of a hash block that must be zero is not. If the digest is right all the same, the tree was made
    /// wrong; the kernel does not look.
    NotZero {
        /// The byte's offset in the block.
        offset: usize,
    },
    /// The block can't be read.
    Unreadable {
        /// The text of the error.
        reason: String,
        /// Whether the block above, which has the digest, can be trusted.
        trusted: bool,
    },
}

/// The blocks that a check found wrong, in all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The numbers of data blocks that differ from a trusted digest.
    pub bad_data: Ranges,
    /// The number of hash blocks that differ from a trusted digest.
    pub bad_hash_blocks: u64,
    /// The numbers of data blocks of which nothing is known, because a hash block above them is bad.
    pub unverified: Ranges,
    /// The number of hash blocks with a byte that must be zero and is not.
    pub not_zero: u64,
    /// The numbers of data blocks that can't be read.
    pub unreadable_data: Ranges,
    /// The number of hash blocks that can't be read.
    pub unreadable_hash_blocks: u64,
}

impl Summary {
    /// Whether all blocks are right.
    pub fn is_clean(&self) -> bool {
        !self.is_wrong() && self.unreadable_data.is_empty() && self.unreadable_hash_blocks == 0
    }

    /// Whether a block that could be read was found wrong.
    pub fn is_wrong(&self) -> bool {
        !self.bad_data.is_empty() || self.bad_hash_blocks > 0 || self.not_zero > 0
    }
}

/// Checks the whole tree and all data below `root_hash`.
///
/// `report` is called for each wrong block: hash blocks of the highest level first, data blocks last, in the
/// order of their numbers. Its error ends the check.
///
/// # Errors
/// `Io` when reading, `job.work.events` or `report` fails; it names the block that can't be read.
///
/// # Panics
/// If `job` and the geometry differ in their shapes, or a digest has another length than they say.
pub fn check(
    job: &Job<'_>,
    stored: &Stored<'_>,
    root_hash: &[u8],
    report: &mut (dyn FnMut(Finding) -> Result<(), Error> + Send),
) -> Result<Summary, Error> {
    check_all(job, stored, root_hash, false, report)
}

/// Checks tree and data as [`check`] does. Blocks that can't be read ([`Error::is_of_medium`]) are reported as others that are wrong
/// ([`Fault::Unreadable`]), and the check goes on behind them.
///
/// # Errors
/// Errors of [`check`], but for those of single blocks.
///
/// # Panics
/// As [`check`].
pub fn check_readable(
    job: &Job<'_>,
    stored: &Stored<'_>,
    root_hash: &[u8],
    report: &mut (dyn FnMut(Finding) -> Result<(), Error> + Send),
) -> Result<Summary, Error> {
    check_all(job, stored, root_hash, true, report)
}

fn check_all(
    job: &Job<'_>,
    stored: &Stored<'_>,
    root_hash: &[u8],
    goes_on: bool,
    report: &mut (dyn FnMut(Finding) -> Result<(), Error> + Send),
) -> Result<Summary, Error> {
    let (mut summary, untrusted) = check_levels(job, stored, root_hash, goes_on, report)?;
    let geometry = stored.geometry;
    let pass = Pass { job, stored, root_hash, level: None, untrusted_parents: &untrusted, goes_on };
    let found = pass.run(report)?;
    (summary.bad_data, summary.unreadable_data) = (found.bad, found.unreadable);
    summary.unverified = untrusted.children(u64_of(job.shape.digests_per_block()), geometry.data_blocks());
    Ok(summary)
}

/// Checks the whole tree below `root_hash`, and no data: one read of the tree. `report` is called for each wrong block, those of the
/// highest level first.
///
/// # Errors
/// Errors of [`check`].
///
/// # Panics
/// As [`check`].
pub fn check_tree(
    job: &Job<'_>,
    tree: &TreeDevice<'_>,
    root_hash: &[u8],
    report: &mut (dyn FnMut(Finding) -> Result<(), Error> + Send),
) -> Result<Summary, Error> {
    let no_data = MemoryDevice::new(Vec::new());
    let stored = Stored { geometry: tree.geometry(), data: &no_data, tree };
    check_levels(job, &stored, root_hash, false, report).map(|(summary, _)| summary)
}

/// Checks all levels of a tree; also returns the blocks of the lowest that can't be trusted.
fn check_levels(
    job: &Job<'_>,
    stored: &Stored<'_>,
    root_hash: &[u8],
    goes_on: bool,
    report: &mut (dyn FnMut(Finding) -> Result<(), Error> + Send),
) -> Result<(Summary, Ranges), Error> {
    assert_eq!((job.shape, root_hash.len()), (*stored.geometry.shape(), job.shape.digest_len()));
    let geometry = stored.geometry;
    let fan_out = u64_of(job.shape.digests_per_block());
    let mut summary = Summary::default();
    let mut untrusted = Ranges::new();
    for level in (0..geometry.levels().len()).rev() {
        let pass =
            Pass { job, stored, root_hash, level: Some(level), untrusted_parents: &untrusted, goes_on };
        let found = pass.run(report)?;
        let mut children = untrusted.children(fan_out, geometry.levels()[level].blocks);
        found.bad.iter().chain(found.unreadable.iter()).for_each(|range| children.insert(range));
        untrusted = children;
        summary.bad_hash_blocks += found.bad.count();
        summary.unreadable_hash_blocks += found.unreadable.count();
        summary.not_zero += found.not_zero;
    }
    Ok((summary, untrusted))
}

/// The check of all blocks of one level, or of the data.
struct Pass<'a> {
    job: &'a Job<'a>,
    stored: &'a Stored<'a>,
    root_hash: &'a [u8],
    level: Option<usize>,
    untrusted_parents: &'a Ranges,
    /// Whether blocks that can't be read are findings, and no errors.
    goes_on: bool,
}

#[derive(Default)]
struct Found {
    bad: Ranges,
    unreadable: Ranges,
    not_zero: u64,
}

#[derive(Default)]
struct Buffers {
    blocks: Buffer,
    digests: Vec<u8>,
    parents: Vec<u8>,
}

impl Pass<'_> {
    fn run(&self, report: &mut (dyn FnMut(Finding) -> Result<(), Error> + Send)) -> Result<Found, Error> {
        let geometry = self.stored.geometry;
        let (count, block_size) = match self.level {
            Some(level) => (geometry.levels()[level].blocks, self.job.shape.hash_block_size()),
            None => (geometry.data_blocks(), self.job.shape.data_block_size()),
        };
        let plan = Plan::flat(block_size, self.job.work.pool.threads());
        let results = Mutex::new((InOrder::new(), Found::default(), report));
        self.job.work.pool.run(count.div_ceil(plan.leaves), Buffers::default, |buffers, piece| {
            let first = piece * plan.leaves;
            let findings = self.check_run(buffers, first, usize_of(plan.leaves.min(count - first)))?;
            let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
            let (order, found, report) = &mut *results;
            order.deliver(piece, findings, |findings| {
                findings.into_iter().try_for_each(|finding| {
                    found.count(&finding);
                    report(finding)
                })
            })
        })?;
        Ok(results.into_inner().unwrap_or_else(PoisonError::into_inner).1)
    }

    fn block_size(&self) -> usize {
        match self.level {
            Some(_) => self.job.shape.hash_block_size(),
            None => self.job.shape.data_block_size(),
        }
    }

    /// Reads blocks from block `first` on. Returns how many bytes of data there were.
    fn read(&self, first: u64, blocks: &mut [u8]) -> Result<usize, Error> {
        match self.level {
            Some(level) => self.stored.tree.read(level, first, blocks).map(|()| 0),
            None => self.stored.geometry.read_data(self.stored.data, first, blocks),
        }
    }

    fn block(&self, index: u64) -> Block {
        match self.level {
            Some(level) => Block::Hash { level, index },
            None => Block::Data(index),
        }
    }

    /// Reads blocks one by one, of which some can't be read: these are zeros, and `lost`.
    fn read_singly(
        &self,
        first: u64,
        blocks: &mut [u8],
        lost: &mut BTreeMap<u64, String>,
    ) -> Result<usize, Error> {
        let mut all = 0;
        for (index, block) in (first..).zip(blocks.chunks_exact_mut(self.block_size())) {
            match self.read(index, block) {
                Ok(len) => all += len,
                Err(error) if error.is_of_medium() && self.goes_on => {
                    block.fill(0);
                    lost.insert(index, error.text().into_owned());
                }
                Err(error) if error.is_of_medium() => {
                    let block = self.block(index);
                    return Err(error.map_text(|text| format!("{block} can't be read: {text}")));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    /// Reads the digests of blocks from block `first` on out of the level above. Returns the blocks whose digest is in a block that can't be
    /// read, which was found to be so.
    fn read_parents(
        &self,
        level: usize,
        first: u64,
        count: usize,
        slots: &mut Vec<u8>,
    ) -> Result<BTreeSet<u64>, Error> {
        let tree = self.stored.tree;
        let mut unknown = BTreeSet::new();
        match tree.read_slots(level, first, count, slots) {
            Err(error) if error.is_of_medium() && self.goes_on => {}
            read => return read.map(|()| unknown),
        }
        slots.fill(0);
        let len = self.job.shape.digest_len();
        let mut slot = Vec::new();
        let start = self.stored.geometry.slot_offset(level, first);
        for index in first..first + u64_of(count) {
            match tree.read_slots(level, index, 1, &mut slot) {
                Err(error) if error.is_of_medium() => {
                    unknown.insert(index);
                }
                read => {
                    read?;
                    let at = usize_of(self.stored.geometry.slot_offset(level, index) - start);
                    slots[at..][..len].copy_from_slice(&slot);
                }
            }
        }
        Ok(unknown)
    }

    fn check_run(&self, buffers: &mut Buffers, first: u64, count: usize) -> Result<Vec<Finding>, Error> {
        let shape = &self.job.shape;
        let block_size = self.block_size();
        buffers.blocks.resize(count * block_size);
        let mut lost = BTreeMap::new();
        let bytes_of_data = match self.read(first, &mut buffers.blocks) {
            Err(error) if error.is_of_medium() => self.read_singly(first, &mut buffers.blocks, &mut lost)?,
            read => read?,
        };
        buffers.digests.resize(count * shape.digest_len(), 0);
        self.job.hash.hash_many(Messages::contiguous(&buffers.blocks, block_size), &mut buffers.digests);
        self.job.work.events.advance(u64_of(bytes_of_data))?;
        let parent_level = self.level.map_or(0, |level| level + 1);
        let mut findings = Vec::new();
        let fan_out = u64_of(shape.digests_per_block());
        let digests = buffers.digests.chunks_exact(shape.digest_len());
        let blocks = buffers.blocks.chunks_exact(block_size);
        let mut check = |k: u64, found: &[u8], expected: Option<&[u8]>, block: &[u8]| {
            let index = first + k;
            let is_trusted = || !self.untrusted_parents.contains(index / fan_out);
            if let Some(reason) = lost.remove(&index) {
                let fault = Fault::Unreadable { reason, trusted: is_trusted() };
                return findings.push(Finding { block: self.block(index), fault });
            }
            let wrong = expected.filter(|expected| *expected != found);
            let wrong = wrong.map(|expected| Fault::Digest {
                expected: expected.to_vec(),
                found: found.to_vec(),
                trusted: is_trusted(),
            });
            let digests = self.level.map(|level| self.stored.geometry.digests_in(level, index));
            let not_zero = digests.and_then(|digests| first_not_zero(shape, block, digests));
            let not_zero = not_zero.map(|offset| Fault::NotZero { offset });
            let block = self.block(index);
            findings.extend(wrong.into_iter().chain(not_zero).map(|fault| Finding { block, fault }));
        };
        if parent_level == self.stored.geometry.levels().len() {
            check(0, &buffers.digests, Some(self.root_hash), &buffers.blocks);
            return Ok(findings);
        }
        let unknown = self.read_parents(parent_level, first, count, &mut buffers.parents)?;
        let slots = shape.slots(first, &buffers.parents);
        for (k, ((found, expected), block)) in digests.zip(slots).zip(blocks).enumerate() {
            let is_known = unknown.is_empty() || !unknown.contains(&(first + u64_of(k)));
            check(u64_of(k), found, is_known.then_some(expected), block);
        }
        Ok(findings)
    }
}

impl Found {
    fn count(&mut self, finding: &Finding) {
        let (Block::Data(index) | Block::Hash { index, .. }) = finding.block;
        match finding.fault {
            Fault::Digest { trusted: true, .. } => self.bad.insert(index..index + 1),
            Fault::Digest { trusted: false, .. } => {}
            Fault::NotZero { .. } => self.not_zero += 1,
            Fault::Unreadable { .. } => self.unreadable.insert(index..index + 1),
        }
    }
}

/// The first byte of a hash block that belongs to none of its digests and is not zero.
pub(super) fn first_not_zero(shape: &Shape, block: &[u8], digests: usize) -> Option<usize> {
    let tail = digests * shape.digest_stride();
    let gap = |k: usize| k * shape.digest_stride() + shape.digest_len()..(k + 1) * shape.digest_stride();
    let gaps = (0..digests).map(gap).chain(std::iter::once(tail..block.len()));
    gaps.flatten().find(|offset| block[*offset] != 0)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use casemate_blockdev::Pool;
    use casemate_providers::{Providers, SaltedHash, Work};
    use casemate_testkit::Rng;

    use super::*;
    use crate::tree::build;

    /// Data and its tree: 20 blocks of 512 bytes, digests of which a hash block of 256 holds 8 with gaps.
    struct Example {
        shape: Shape,
        hash: SaltedHash,
        data: Vec<u8>,
        tree: Vec<u8>,
        root_hash: Vec<u8>,
    }

    impl Example {
        fn new() -> Example {
            let shape = Shape::power_of_two(512, 256, 20, true).unwrap();
            let hash = Providers::default().hash("sha1").unwrap().salted(b"x", b"");
            let data = Rng::new(5).bytes(20 * 512);
            let work = work();
            let job = Job { shape, hash: &hash, work: &work };
            let geometry = Geometry::new(shape, data.len() as u64).unwrap();
            let tree = MemoryDevice::new(vec![0; geometry.tree_size() as usize]);
            let sink = TreeDevice::new(&geometry, &tree, 0);
            let built = build(&job, &geometry, &MemoryDevice::new(data.clone()), &sink).unwrap();
            Example { shape, hash, data, tree: tree.into_bytes(), root_hash: built.root_hash }
        }

        fn check(&self) -> (Summary, Vec<Finding>) {
            let geometry = Geometry::new(self.shape, self.data.len() as u64).unwrap();
            let (data, tree) = (MemoryDevice::new(self.data.clone()), MemoryDevice::new(self.tree.clone()));
            let stored =
                Stored { geometry: &geometry, data: &data, tree: &TreeDevice::new(&geometry, &tree, 0) };
            let mut findings = Vec::new();
            let mut report = |finding| {
                findings.push(finding);
                Ok(())
            };
            let work = work();
            let job = Job { shape: self.shape, hash: &self.hash, work: &work };
            let summary = check(&job, &stored, &self.root_hash, &mut report).unwrap();
            (summary, findings)
        }
    }

    fn work() -> Work<'static> {
        Work { pool: Pool::new(NonZeroUsize::new(2)), ..Work::default() }
    }

    fn ranges(set: &Ranges) -> Vec<(u64, u64)> {
        set.iter().map(|range| (range.start, range.end)).collect()
    }

    #[test]
    fn a_good_tree_has_no_findings() {
        let (summary, findings) = Example::new().check();
        assert!(summary.is_clean() && findings.is_empty(), "{findings:?}");
    }

    #[test]
    fn every_bad_data_block_is_named() {
        let mut example = Example::new();
        for block in [0, 7, 19] {
            example.data[block * 512 + 100] ^= 4;
        }
        let (summary, findings) = example.check();
        let blocks: Vec<_> = findings.iter().map(|finding| finding.block).collect();
        assert_eq!(blocks, [Block::Data(0), Block::Data(7), Block::Data(19)]);
        assert_eq!(ranges(&summary.bad_data), [(0, 1), (7, 8), (19, 20)]);
        assert!(summary.unverified.is_empty() && !summary.is_clean());
        let Fault::Digest { found, trusted, .. } = &findings[1].fault else { panic!("{findings:?}") };
        let mut digest = vec![0; 20];
        example.hash.hash(&example.data[7 * 512..8 * 512], &mut digest);
        assert_eq!((found, trusted), (&digest, &true));
    }

    #[test]
    fn below_a_bad_hash_block_nothing_is_known() {
        let mut example = Example::new();
        // The tree: one root block, then 3 blocks of level 0. The digest of data block 9.
        example.tree[2 * 256 + 32] ^= 1;
        let (summary, findings) = example.check();
        let blocks: Vec<_> = findings.iter().map(|finding| finding.block).collect();
        assert_eq!(blocks, [Block::Hash { level: 0, index: 1 }, Block::Data(9)]);
        assert!(matches!(findings[1].fault, Fault::Digest { trusted: false, .. }));
        assert_eq!(summary.bad_hash_blocks, 1);
        assert_eq!((ranges(&summary.bad_data), ranges(&summary.unverified)), (vec![], vec![(8, 16)]));
    }

    #[test]
    fn a_wrong_root_hash_leaves_nothing_verified() {
        let mut example = Example::new();
        example.root_hash[0] ^= 1;
        let (summary, findings) = example.check();
        assert_eq!(findings.len(), 1);
        assert_eq!((summary.bad_hash_blocks, ranges(&summary.unverified)), (1, vec![(0, 20)]));
    }

    #[test]
    fn spare_bytes_must_be_zero_even_if_the_digest_is_right() {
        for (offset, level, index) in [(20, 1, 0), (255, 1, 0), (256 + 31, 0, 0), (3 * 256 + 4 * 32, 0, 2)] {
            let mut example = Example::new();
            example.tree[offset] = 1;
            if level == 0 {
                let mut digest = vec![0; 20];
                let block = 1 + index as usize;
                example.hash.hash(&example.tree[block * 256..][..256], &mut digest);
                example.tree[index as usize * 32..][..20].copy_from_slice(&digest);
            }
            let top = example.tree[..256].to_vec();
            example.hash.hash(&top, &mut example.root_hash);
            let (summary, findings) = example.check();
            let fault = Fault::NotZero { offset: offset % 256 };
            assert_eq!(findings, [Finding { block: Block::Hash { level, index }, fault }]);
            assert_eq!((summary.not_zero, summary.bad_hash_blocks, summary.is_clean()), (1, 0, false));
        }
    }

    #[test]
    fn a_tree_is_checked_without_its_data() {
        let mut example = Example::new();
        let geometry = Geometry::new(example.shape, example.data.len() as u64).unwrap();
        let (work, hash) = (work(), example.hash.clone());
        let job = Job { shape: example.shape, hash: &hash, work: &work };
        let check = |tree: &[u8], root_hash: &[u8]| {
            let device = MemoryDevice::new(tree.to_vec());
            check_tree(&job, &TreeDevice::new(&geometry, &device, 0), root_hash, &mut |_| Ok(()))
        };
        assert!(check(&example.tree, &example.root_hash).unwrap().is_clean());
        for at in [0, 255, 256, 2 * 256 + 32, example.tree.len() - 1] {
            let mut tree = example.tree.clone();
            tree[at] ^= 1;
            assert!(!check(&tree, &example.root_hash).unwrap().is_clean(), "byte {at}");
        }
        assert!(check(&example.tree[..256], &example.root_hash).is_err(), "a tree that is cut off");
        example.root_hash[0] ^= 1;
        assert_eq!(check(&example.tree, &example.root_hash).unwrap().bad_hash_blocks, 1);
    }

    #[test]
    fn one_block_is_checked_against_the_root_hash() {
        let mut example = Example::new();
        example.data.truncate(300);
        let mut padded = example.data.clone();
        padded.resize(512, 0);
        example.tree.clear();
        example.hash.hash(&padded, &mut example.root_hash);
        assert!(example.check().0.is_clean());
        example.data[299] ^= 1;
        assert_eq!(ranges(&example.check().0.bad_data), [(0, 1)]);
    }
}
