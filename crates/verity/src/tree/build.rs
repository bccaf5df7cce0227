//! Building a hash tree on all cores.
//!
//! In the simplest words: hash every data block, put the digests into blocks, hash these
//! blocks, and so on. In practice workers claim pieces, runs of data blocks that fill whole hash blocks as
//! many levels up as fit in one piece. A worker reads its piece in chunks that stay in its core's cache,
//! hashes each chunk in one call, lays out the hash blocks and writes them to their place, which no other
//! worker touches. The few digests at the top of a piece go, in order, to the [`Climber`].

use std::io::{self, Read};
use std::sync::{Mutex, PoisonError};

use casemate_blockdev::{BlockDevice, Buffer, u64_of, usize_of};
use casemate_primitives::Messages;
use casemate_providers::{SaltedHash, Work};

use super::climber::{Climber, OrderedClimber};
use super::plan::{Plan, SMALLEST_PIECE};
use super::{Geometry, Shape, TreeSink};
use crate::Error;

/// A tree's shape and hash, and the threads that build or check the tree.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// The sizes of blocks and digests.
    pub shape: Shape,
    /// The hash with its salt. Digests have the length that `shape` says.
    pub hash: &'a SaltedHash,
    /// The threads that hash, and the listener, which hears of bytes of data.
    pub work: &'a Work<'a>,
}

/// A tree that was built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built {
    /// The digest of the top hash block, or of the only data block. All zeros if there was no data, which is
    /// fs-verity's rule; dm-verity has no such trees.
    pub root_hash: Vec<u8>,
    /// Bytes of data.
    pub data_size: u64,
}

/// Builds the tree over the first bytes of `data`, as many as `geometry` says.
///
/// A last data block that is not full is taken as filled up with zeros. Hash blocks go to `sink`.
///
/// # Errors
/// `Io` when reading, writing or the listener fails; `UnexpectedEof` among them means that the data is shorter
/// than said.
///
/// # Panics
/// If `job` and `geometry` differ in their shapes, or the hash has another digest length.
pub fn build(
    job: &Job<'_>,
    geometry: &Geometry,
    data: &dyn BlockDevice,
    sink: &dyn TreeSink,
) -> Result<Built, Error> {
    assert_eq!(job.shape, *geometry.shape());
    let plan = Plan::for_size(&job.shape, geometry.data_size(), job.work.pool.threads());
    let pieces = geometry.data_blocks().div_ceil(plan.leaves);
    let climber = Climber::new(job.shape, job.hash, sink, plan.levels);
    let climber = Mutex::new(OrderedClimber::new(climber));
    let new_worker = || Worker::new(job, sink, plan);
    job.work.pool.run(pieces, new_worker, |worker, piece| {
        worker.read(geometry, piece, data)?;
        worker.climb(piece, pieces == 1)?;
        climber.lock().unwrap_or_else(PoisonError::into_inner).deliver(piece, &worker.digests)
    })?;
    finish(climber, &job.shape, geometry.data_size())
}

/// Builds the tree over everything that `input` yields.
///
/// Reading is in order, hashing on all threads meanwhile.
///
/// # Errors
/// `Io` when reading, writing or the listener fails; `Argument` if the input is too long for a tree.
///
/// # Panics
/// If the hash has another digest length than `job.shape` says.
pub fn build_stream(
    job: &Job<'_>,
    input: &mut (dyn Read + Send),
    sink: &dyn TreeSink,
) -> Result<Built, Error> {
    let plan = Plan::climbing(&job.shape, SMALLEST_PIECE, job.work.pool.threads());
    let climber = Climber::new(job.shape, job.hash, sink, plan.levels);
    let climber = Mutex::new(OrderedClimber::new(climber));
    let stream = Mutex::new(Stream { input, pieces: 0, bytes: 0, ended: false });
    let piece_size = usize_of(plan.leaves) * job.shape.data_block_size();
    let new_worker = || Worker::new(job, sink, plan);
    job.work.pool.run(u64_of(job.work.pool.threads()), new_worker, |worker, _| {
        loop {
            worker.data.resize(piece_size);
            let claimed = stream.lock().unwrap_or_else(PoisonError::into_inner).claim(&mut worker.data)?;
            let Some(Claimed { piece, len, last }) = claimed else { return Ok::<_, Error>(()) };
            worker.digests.clear();
            let blocks = len.div_ceil(job.shape.data_block_size());
            worker.data.resize(blocks * job.shape.data_block_size());
            worker.data[len..].fill(0);
            worker.hash_data();
            worker.climb(piece, piece == 0 && last)?;
            climber.lock().unwrap_or_else(PoisonError::into_inner).deliver(piece, &worker.digests)?;
            job.work.events.advance(u64_of(len))?;
        }
    })?;
    let data_size = stream.into_inner().unwrap_or_else(PoisonError::into_inner).bytes;
    Geometry::new(job.shape, data_size)?;
    finish(climber, &job.shape, data_size)
}

fn finish(climber: Mutex<OrderedClimber<'_>>, shape: &Shape, data_size: u64) -> Result<Built, Error> {
    let root_hash = climber.into_inner().unwrap_or_else(PoisonError::into_inner).finish()?;
    Ok(Built { root_hash: root_hash.unwrap_or_else(|| vec![0; shape.digest_len()]), data_size })
}

/// State of one thread.
pub(super) struct Worker<'a> {
    job: &'a Job<'a>,
    sink: &'a dyn TreeSink,
    plan: Plan,
    /// Whole blocks.
    data: Buffer,
    /// Digests of the level that the worker has reached, side by side.
    digests: Vec<u8>,
    blocks: Vec<u8>,
}

impl<'a> Worker<'a> {
    pub(super) fn new(job: &'a Job<'a>, sink: &'a dyn TreeSink, plan: Plan) -> Worker<'a> {
        Worker { job, sink, plan, data: Buffer::default(), digests: Vec::new(), blocks: Vec::new() }
    }

    /// Digests of the level that was reached, side by side.
    pub(super) fn digests(&self) -> &[u8] {
        &self.digests
    }

    /// Hashes the data blocks of a piece.
    pub(super) fn read(
        &mut self,
        geometry: &Geometry,
        piece: u64,
        data: &dyn BlockDevice,
    ) -> Result<(), Error> {
        self.digests.clear();
        let mut block = piece * self.plan.leaves;
        let end = geometry.data_blocks().min(block + self.plan.leaves);
        while block < end {
            let blocks = (end - block).min(u64_of(self.plan.chunk_blocks));
            self.data.resize(usize_of(blocks) * self.job.shape.data_block_size());
            let len = geometry.read_data(data, block, &mut self.data)?;
            self.hash_data();
            self.job.work.events.advance(u64_of(len))?;
            block += blocks;
        }
        Ok(())
    }

    /// Appends the digests of the blocks in the data buffer.
    fn hash_data(&mut self) {
        let messages = Messages::contiguous(&self.data, self.job.shape.data_block_size());
        let before = self.digests.len();
        self.digests.resize(before + messages.count() * self.job.shape.digest_len(), 0);
        self.job.hash.hash_many(messages, &mut self.digests[before..]);
    }

    /// Makes the levels that `piece` fills, and leaves the digests of the highest of them.
    pub(super) fn climb(&mut self, piece: u64, only_piece: bool) -> Result<(), Error> {
        let shape = &self.job.shape;
        let fan_out = shape.digests_per_block();
        let mut first = piece * self.plan.leaves;
        for level in 0..self.plan.levels {
            let count = self.digests.len() / shape.digest_len();
            // One digest of all data is the root hash.
            if only_piece && count == 1 {
                break;
            }
            // Whole: a piece before the last fills `levels` levels.
            first /= u64_of(fan_out);
            let blocks = count.div_ceil(fan_out);
            self.blocks.resize(blocks * shape.hash_block_size(), 0);
            shape.lay_out(&self.digests, &mut self.blocks);
            self.sink.write(level, first, &self.blocks)?;
            self.digests.resize(blocks * shape.digest_len(), 0);
            let messages = Messages::contiguous(&self.blocks, shape.hash_block_size());
            self.job.hash.hash_many(messages, &mut self.digests);
        }
        Ok(())
    }
}

/// Input that comes in order, cut into pieces by the worker that asks next.
struct Stream<'a> {
    input: &'a mut (dyn Read + Send),
    pieces: u64,
    bytes: u64,
    ended: bool,
}

/// A piece of a stream.
struct Claimed {
    piece: u64,
    len: usize,
    /// Certainly the last; a last piece that is full is not known to be the last.
    last: bool,
}

impl Stream<'_> {
    /// Fills `buf` with the next piece. `None` at the end.
    fn claim(&mut self, buf: &mut [u8]) -> Result<Option<Claimed>, Error> {
        let mut len = 0;
        while len < buf.len() && !self.ended {
            match self.input.read(&mut buf[len..]) {
                Ok(0) => self.ended = true,
                Ok(more) => len += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.ended = true;
                    return Err(error.into());
                }
            }
        }
        if len == 0 {
            return Ok(None);
        }
        let piece = self.pieces;
        self.pieces += 1;
        self.bytes += u64_of(len);
        Ok(Some(Claimed { piece, len, last: self.ended }))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use casemate_blockdev::{MemoryDevice, Pool};
    use casemate_providers::{Providers, Work};
    use casemate_testkit::Rng;

    use super::*;
    use crate::tree::{SpilledLevels, TreeDevice, TreeHasher};

    /// The definition: level after level, block after block.
    fn oracle(shape: &Shape, hash: &SaltedHash, data: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let digests_of = |bytes: &[u8], block_size: usize| {
            let mut digests = Vec::new();
            for block in bytes.chunks(block_size) {
                let mut block = block.to_vec();
                block.resize(block_size, 0);
                let mut digest = vec![0; shape.digest_len()];
                hash.hash(&block, &mut digest);
                digests.push(digest);
            }
            digests
        };
        let mut tree = Vec::new();
        let mut digests = digests_of(data, shape.data_block_size());
        while digests.len() > 1 {
            let mut level = Vec::new();
            for group in digests.chunks(shape.digests_per_block()) {
                let mut block = vec![0; shape.hash_block_size()];
                for (k, digest) in group.iter().enumerate() {
                    block[k * shape.digest_stride()..][..digest.len()].copy_from_slice(digest);
                }
                level.extend(block);
            }
            digests = digests_of(&level, shape.hash_block_size());
            tree.splice(0..0, level);
        }
        (digests.pop().unwrap_or_else(|| vec![0; shape.digest_len()]), tree)
    }

    fn check(shape: Shape, algorithm: &str, size: usize, threads: usize) {
        let what = format!("{shape:?} {algorithm} {size} bytes, {threads} threads");
        let mut data = vec![0; size];
        Rng::new(size as u64).fill(&mut data);
        let hash = Providers::default().hash(algorithm).unwrap().salted(b"salt", b"");
        let (root_hash, tree) = oracle(&shape, &hash, &data);
        let built = Built { root_hash, data_size: size as u64 };
        let pool = Pool::new(NonZeroUsize::new(threads));
        let work = Work { pool, ..Work::default() };
        let job = Job { shape, hash: &hash, work: &work };

        let geometry = Geometry::new(shape, size as u64).unwrap();
        assert_eq!(geometry.tree_size(), tree.len() as u64, "{what}");
        let device = MemoryDevice::new(vec![0xee; 100 + tree.len()]);
        let sink = TreeDevice::new(&geometry, &device, 100);
        let found = build(&job, &geometry, &MemoryDevice::new(data.clone()), &sink).unwrap();
        assert_eq!(found, built, "{what}");
        assert!(device.into_bytes()[100..] == tree, "{what}: the tree differs");

        let spilled = SpilledLevels::new(shape.hash_block_size());
        assert_eq!(build_stream(&job, &mut data.as_slice(), &spilled).unwrap(), built, "{what}: stream");
        let mut found = Vec::new();
        spilled.copy_to(&mut found).unwrap();
        assert!(found == tree, "{what}: the tree of the stream differs");

        let mut rng = Rng::new(size as u64);
        let mut hasher = TreeHasher::new(shape, hash);
        let mut rest = &data[..];
        while !rest.is_empty() {
            let most = [1, 5000, 600_000][rng.below(3) as usize];
            let (piece, behind) = rest.split_at(rng.below(most + 1) as usize % (rest.len() + 1));
            hasher.update(piece);
            rest = behind;
        }
        assert_eq!(hasher.clone().finish().unwrap(), built, "{what}: handed over");
        assert_eq!(hasher.finish().unwrap(), built, "{what}: handed over, twice");
    }

    #[test]
    fn trees_are_what_the_definition_says() {
        let dm = |data, hash, digest| Shape::power_of_two(data, hash, digest, true).unwrap();
        for size in [0, 1, 4095, 4096, 4097, 8192, 128 << 12, (128 << 12) + 1, 1 << 20, (3 << 20) + 5] {
            check(dm(4096, 4096, 32), "sha256", size, 2);
        }
        // A piece of one block and several levels; the stream's pieces are all full, or nearly so.
        for size in [512, 1024, 512 * 8, 512 * 9, 512 << 10, (512 << 10) + 1, 1 << 20, (1 << 20) - 512] {
            check(dm(512, 512, 64), "sha512", size, 3);
        }
        check(Shape::packed(64, 32).unwrap(), "sha256", 100_000, 2);
        check(Shape::packed(1000, 32).unwrap(), "sha256", 2_000_000, 2);
        check(dm(4096, 512, 20), "sha1", 600_000, 1);
        // A hash block holds more than a piece does.
        check(dm(4096, 65536, 32), "sha256", 20 << 20, 2);
        check(dm(524_288, 512, 32), "sha256", 9 << 19, 2);
    }

    #[test]
    fn data_that_shrinks_is_an_error() {
        let shape = Shape::packed(4096, 32).unwrap();
        let hash = Providers::default().hash("sha256").unwrap().salted(b"", b"");
        let work = Work::default();
        let job = Job { shape, hash: &hash, work: &work };
        let geometry = Geometry::new(shape, 1 << 20).unwrap();
        let error = build(&job, &geometry, &MemoryDevice::new(vec![0; 1 << 19]), &()).unwrap_err();
        assert!(error.io_kind() == Some(std::io::ErrorKind::UnexpectedEof));
    }
}
