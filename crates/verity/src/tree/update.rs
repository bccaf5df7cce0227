//! Bringing a stored tree up to date after some of its data has changed.

use std::ops::Range;

use casemate_blockdev::{u64_of, usize_of};
use casemate_primitives::Messages;

use super::plan::Plan;
use super::{Block, Fault, Finding, Geometry, Job, Ranges, Stored};
use crate::{Code, Error};

/// Recomputes the digests of the data blocks in `changed`, and the hash blocks above them. Returns the new
/// root hash.
///
/// All other hash blocks are taken as they are, and so are those that will change, but for [`check_above`]. With `old_root` the hash blocks that will change, as they are
/// now, are first checked up to this root hash; nothing is written if one of them is bad.
///
/// # Errors
/// `Mismatch` if a hash block is not what `old_root` says, `Argument` if `changed` names a block behind the
/// end, `Io` when reading, writing or `job.work.events` fails; then some digests are new and some old, and the
/// update must be done again.
///
/// # Panics
/// If `job` and the geometry differ in their shapes, or a digest has another length than they say.
pub fn update(
    job: &Job<'_>,
    stored: &Stored<'_>,
    changed: &Ranges,
    old_root: Option<&[u8]>,
) -> Result<Vec<u8>, Error> {
    let geometry = stored.geometry;
    assert_eq!(job.shape, *geometry.shape());
    check_changed(geometry, changed)?;
    let dirty = above(geometry, changed);
    if let Some(root_hash) = old_root {
        check_paths(job, stored, &dirty, root_hash)?;
    }
    if dirty.is_empty() {
        return digest_of_top(job, stored);
    }
    for level in 0..geometry.levels().len() {
        let children = if level == 0 { changed } else { &dirty[level - 1] };
        rehash(job, stored, level, children)?;
    }
    digest_of_top(job, stored)
}

/// Refuses blocks behind the end.
fn check_changed(geometry: &Geometry, changed: &Ranges) -> Result<(), Error> {
    match changed.iter().last() {
        Some(Range { end, .. }) if end > geometry.data_blocks() => {
            let count = geometry.data_blocks();
            Err(Error::argument(format!("block {} was changed, but there are only {count}", end - 1)))
        }
        _ => Ok(()),
    }
}

/// For each level the hash blocks that change with these data blocks; those of level 0 first.
fn above(geometry: &Geometry, changed: &Ranges) -> Vec<Ranges> {
    let fan_out = u64_of(geometry.shape().digests_per_block());
    let mut dirty = Vec::new();
    for _ in geometry.levels() {
        dirty.push(dirty.last().unwrap_or(changed).parents(fan_out));
    }
    dirty
}

/// Checks what an [`update`] of the data blocks in `changed` takes as it is: all other data blocks, and the hash blocks that are
/// not above these, against the digests that the tree has for them.
///
/// # Errors
/// `Mismatch` if some do not match; `Argument` if `changed` names a block behind the end; `Io` when reading or `job.work.events`
/// fails.
///
/// # Panics
/// If `job` and the geometry differ in their shapes.
pub fn check_unchanged(job: &Job<'_>, stored: &Stored<'_>, changed: &Ranges) -> Result<(), Error> {
    let geometry = stored.geometry;
    check_changed(geometry, changed)?;
    if geometry.levels().is_empty() {
        // The root hash alone would tell of the only block.
        return Ok(());
    }
    let dirty = above(geometry, changed);
    let (mut first, mut more) = (None, 0_u64);
    let mut report = |finding: Finding| {
        let may_differ = match finding.block {
            Block::Data(index) => changed.contains(index),
            Block::Hash { level, index } => dirty[level].contains(index),
        };
        if may_differ || !matches!(finding.fault, Fault::Digest { .. }) {
            return Ok(());
        }
        match first.is_none() {
            true => first = Some(finding.block),
            false => more += 1,
        }
        Ok(())
    };
    super::check(job, stored, &digest_of_top(job, stored)?, &mut report)?;
    let block = match first {
        None => return Ok(()),
        Some(block) => block.to_string(),
    };
    let blocks = match more {
        0 => format!("{block} does not match the hash tree, and is"),
        more => format!("{block} and {more} more do not match the hash tree, and are"),
    };
    let text = format!(
        "{blocks} not among those that have changed; parity of damage could not restore what was there, so nothing was \
         changed; repair it first"
    );
    Err(Error::coded(Code::BadDigest, text))
}

/// Checks the hash blocks that an [`update`] of the data blocks in `changed` changes, as they are now, against the digests that the
/// blocks above them have. Above the top there is none. An update that was cut off leaves a tree that contradicts itself, too.
///
/// # Errors
/// `Mismatch` if some do not match; `Argument` if `changed` names a block behind the end; `Io`.
///
/// # Panics
/// If `job` and the geometry differ in their shapes.
pub fn check_above(job: &Job<'_>, stored: &Stored<'_>, changed: &Ranges) -> Result<(), Error> {
    check_changed(stored.geometry, changed)?;
    check_levels(job, stored, &above(stored.geometry, changed), "does not match the hash block above it")
}

/// Checks every block that will change against the digest above it, up to the root hash.
fn check_paths(job: &Job<'_>, stored: &Stored<'_>, dirty: &[Ranges], root_hash: &[u8]) -> Result<(), Error> {
    if digest_of_top(job, stored)? != root_hash && !dirty.is_empty() {
        let text = "the hash tree does not belong to the given root hash; nothing was changed";
        return Err(Error::coded(Code::BadDigest, text.to_owned()));
    }
    check_levels(job, stored, dirty, "does not belong to the given root hash")
}

/// Checks every block that will change against the digest above it, from the top down. `wrong`: the words for one that does not match.
fn check_levels(job: &Job<'_>, stored: &Stored<'_>, dirty: &[Ranges], wrong: &str) -> Result<(), Error> {
    for level in (0..dirty.len().saturating_sub(1)).rev() {
        let runs = Runs::new(&dirty[level], job.shape.hash_block_size(), job.work.pool.threads());
        job.work.pool.run(runs.pieces, Buffers::default, |buffers, piece| {
            let (first, count) = runs.piece(piece);
            buffers.hash(job, stored, Some(level), first, count)?;
            stored.tree.read_slots(level + 1, first, count, &mut buffers.blocks)?;
            let digests = buffers.digests.chunks_exact(job.shape.digest_len());
            let mut pairs = digests.zip(job.shape.slots(first, &buffers.blocks));
            match pairs.position(|(found, expected)| found != expected) {
                None => Ok(()),
                Some(bad) => Err(Error::coded(
                    Code::BadDigest,
                    format!(
                        "hash block {} of level {level} {wrong}; nothing was changed",
                        first + u64_of(bad)
                    ),
                )),
            }
        })?;
    }
    Ok(())
}

/// Writes the digests of `children` (data blocks, or blocks of the level below) into `level`.
fn rehash(job: &Job<'_>, stored: &Stored<'_>, level: usize, children: &Ranges) -> Result<(), Error> {
    let shape = &job.shape;
    let child_level = level.checked_sub(1);
    let child_size = child_level.map_or(shape.data_block_size(), |_| shape.hash_block_size());
    let runs = Runs::new(children, child_size, job.work.pool.threads());
    let per_block = shape.digests_per_block();
    job.work.pool.run(runs.pieces, Buffers::default, |buffers, piece| {
        let (first, count) = runs.piece(piece);
        let bytes = buffers.hash(job, stored, child_level, first, count)?;
        job.work.events.advance(if level == 0 { bytes } else { 0 })?;
        let mut child = first;
        let mut digests = &*buffers.digests;
        // Slots of one hash block at a time: between the last of one and the first of the next is its tail.
        while !digests.is_empty() {
            let room = per_block - usize_of(child % u64_of(per_block));
            let (run, rest) = digests.split_at(digests.len().min(room * shape.digest_len()));
            stored.tree.write_slots(level, child, run)?;
            child += u64_of(run.len() / shape.digest_len());
            digests = rest;
        }
        Ok::<_, Error>(())
    })
}

/// The root hash: the digest of the top hash block, or of the only data block.
fn digest_of_top(job: &Job<'_>, stored: &Stored<'_>) -> Result<Vec<u8>, Error> {
    let mut buffers = Buffers::default();
    buffers.hash(job, stored, stored.geometry.levels().len().checked_sub(1), 0, 1)?;
    Ok(buffers.digests)
}

#[derive(Default)]
struct Buffers {
    blocks: Vec<u8>,
    digests: Vec<u8>,
}

impl Buffers {
    /// Hashes blocks of the data or of a level. Returns how many bytes were read.
    fn hash(
        &mut self,
        job: &Job<'_>,
        stored: &Stored<'_>,
        level: Option<usize>,
        first: u64,
        count: usize,
    ) -> Result<u64, Error> {
        let (read, block_size) = match level {
            None => {
                self.blocks.resize(count * job.shape.data_block_size(), 0);
                let read = stored.geometry.read_data(stored.data, first, &mut self.blocks)?;
                (read, job.shape.data_block_size())
            }
            Some(level) => {
                self.blocks.resize(count * job.shape.hash_block_size(), 0);
                stored.tree.read(level, first, &mut self.blocks)?;
                (self.blocks.len(), job.shape.hash_block_size())
            }
        };
        self.digests.resize(count * job.shape.digest_len(), 0);
        job.hash.hash_many(Messages::contiguous(&self.blocks, block_size), &mut self.digests);
        Ok(u64_of(read))
    }
}

/// Ranges of blocks, cut into pieces that are hashed at once.
struct Runs {
    /// Each range with the number of its first piece.
    ranges: Vec<(u64, Range<u64>)>,
    pieces: u64,
    blocks: u64,
}

impl Runs {
    fn new(ranges: &Ranges, block_size: usize, threads: usize) -> Runs {
        let blocks = Plan::flat(block_size, threads).leaves;
        let mut pieces = 0;
        let number = |range: Range<u64>| {
            let first = pieces;
            pieces += (range.end - range.start).div_ceil(blocks);
            (first, range)
        };
        let ranges = ranges.iter().map(number).collect();
        Runs { ranges, pieces, blocks }
    }

    /// The first block and the number of blocks of a piece that exists.
    fn piece(&self, piece: u64) -> (u64, usize) {
        let after = self.ranges.partition_point(|(first, _)| *first <= piece);
        let (first_piece, range) = &self.ranges[after - 1];
        let first = range.start + (piece - first_piece) * self.blocks;
        (first, usize_of((range.end - first).min(self.blocks)))
    }
}

#[cfg(test)]
mod tests {
    use casemate_blockdev::{BlockDevice, MemoryDevice};
    use casemate_providers::{Providers, Work};
    use casemate_testkit::Rng;

    use super::*;
    use crate::ErrorKind;
    use crate::tree::{Shape, TreeDevice, build};

    #[test]
    fn an_updated_tree_is_the_tree_of_the_new_data() {
        let mut rng = Rng::new(11);
        for round in 0..40 {
            let digest = [20, 32][round % 2];
            let shape = Shape::power_of_two(512, 256, digest, true).unwrap();
            let hash = Providers::default().hash(["sha1", "sha256"][round % 2]).unwrap().salted(b"s", b"");
            let work = Work::default();
            let job = Job { shape, hash: &hash, work: &work };
            let blocks = 1 + rng.below(if round < 10 { 10 } else { 3000 });
            let geometry = Geometry::new(shape, blocks * 512).unwrap();
            let data = MemoryDevice::new(rng.bytes(blocks as usize * 512));
            let tree = MemoryDevice::new(vec![0; geometry.tree_size() as usize]);
            let tree = TreeDevice::new(&geometry, &tree, 0);
            let old = build(&job, &geometry, &data, &tree).unwrap().root_hash;
            let stored = Stored { geometry: &geometry, data: &data, tree: &tree };

            let mut changed = Ranges::new();
            for _ in 0..rng.below(4) {
                let start = rng.below(blocks);
                let end = (start + 1 + rng.below(1200)).min(blocks);
                data.write_at(&rng.bytes((end - start) as usize * 512), start * 512).unwrap();
                changed.insert(start..end);
            }
            let old_root = (round % 3 > 0).then_some(&*old);
            let found = update(&job, &stored, &changed, old_root).unwrap();
            let fresh = MemoryDevice::new(vec![0; geometry.tree_size() as usize]);
            let built = build(&job, &geometry, &data, &TreeDevice::new(&geometry, &fresh, 0)).unwrap();
            assert_eq!(found, built.root_hash, "round {round}: {changed:?} of {blocks}");
            let mut bytes = vec![0; geometry.tree_size() as usize];
            if !geometry.levels().is_empty() {
                let top = geometry.levels().len() - 1;
                tree.read(top, 0, &mut bytes).unwrap();
            }
            assert!(bytes == fresh.into_bytes(), "round {round}: {changed:?} of {blocks}");
        }
    }

    #[test]
    fn a_foreign_tree_is_left_alone() {
        let shape = Shape::power_of_two(512, 256, 32, true).unwrap();
        let hash = Providers::default().hash("sha256").unwrap().salted(b"", b"");
        let work = Work::default();
        let job = Job { shape, hash: &hash, work: &work };
        let geometry = Geometry::new(shape, 100 * 512).unwrap();
        let data = MemoryDevice::new(vec![1; 100 * 512]);
        let device = MemoryDevice::new(vec![0; geometry.tree_size() as usize]);
        let tree = TreeDevice::new(&geometry, &device, 0);
        let root = build(&job, &geometry, &data, &tree).unwrap().root_hash;
        let stored = Stored { geometry: &geometry, data: &data, tree: &tree };
        let changed: Ranges = std::iter::once(50..51).collect();
        let message = |root: &[u8]| match update(&job, &stored, &changed, Some(root)) {
            Err(error) if error.kind() == ErrorKind::Mismatch => error.text().into_owned(),
            other => panic!("{other:?}"),
        };
        assert!(message(&[0; 32]).contains("does not belong to the given root hash"));
        // Block 6 of level 0 holds the digest of data block 50.
        device.write_at(&[9], geometry.offset(0, 6) + 5).unwrap();
        assert!(message(&root).starts_with("hash block 6 of level 0"), "{}", message(&root));
        device.write_at(&[9], geometry.offset(0, 5)).unwrap();
        let beyond: Ranges = std::iter::once(0..101).collect();
        assert!(update(&job, &stored, &beyond, None).is_err_and(|error| error.kind() == ErrorKind::Argument));
    }
}
