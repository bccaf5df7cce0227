//! A device whose data is checked against a hash tree as it is read.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use casemate_blockdev::{BlockDevice, u32_of, u64_of, usize_of};
use casemate_primitives::Messages;
use casemate_providers::SaltedHash;

use super::check::first_not_zero;
use super::{Block, Geometry, Ranges, TreeDevice};
use crate::{Code, Error};

/// Blocks that are read and hashed together.
const RUN_BYTES: usize = 1 << 20;

/// The most bytes of hash blocks that are kept: the whole lowest level of 4 GiB with SHA-256.
const KEPT_BYTES: u64 = 32 << 20;

/// Data under a hash tree, as a device whose reads fail where the data does not match.
///
/// Every read checks the data that it returns, as many blocks as it covers in one call of the hash. Hash blocks that
/// were checked are kept in memory, up to 32 MiB of them, and what is kept is not read again; data is not kept, so what
/// changes underneath is noticed. Holes of the data are data here, for they have digests too.
pub struct VerifiedDevice<D, T> {
    geometry: Geometry,
    hash: SaltedHash,
    data: D,
    tree: T,
    tree_offset: u64,
    root_hash: Vec<u8>,
    /// Each hash block has one place, by its number, which it shares with others.
    kept: Vec<Mutex<Option<Kept>>>,
    counters: Counters,
}

/// Counters of a verified device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifiedStatistics {
    /// Data blocks that were hashed together with others.
    pub batched_blocks: u64,
    /// Data blocks that were hashed alone.
    pub single_blocks: u64,
    /// Data blocks that did not match, counted each time that they were read.
    pub bad_blocks: u64,
    /// Hash blocks that were read and checked.
    pub hash_blocks: u64,
    /// Hash blocks that were found in memory, checked before.
    pub kept_hash_blocks: u64,
    /// Time spent hashing data, all threads together.
    pub hash_time: Duration,
}

/// A hash block with its number.
type Kept = (u64, Arc<[u8]>);

#[derive(Default)]
struct Counters {
    batched_blocks: AtomicU64,
    single_blocks: AtomicU64,
    bad_blocks: AtomicU64,
    hash_blocks: AtomicU64,
    kept_hash_blocks: AtomicU64,
    nanoseconds: AtomicU64,
}

impl<D: BlockDevice, T: BlockDevice> VerifiedDevice<D, T> {
    /// The first bytes of `data`, as many as `geometry` says, below `root_hash`. The tree begins at byte
    /// `tree_offset` of `tree`.
    ///
    /// # Panics
    /// If the root hash has another length than the geometry says.
    pub fn new(
        geometry: Geometry,
        hash: SaltedHash,
        data: D,
        tree: T,
        tree_offset: u64,
        root_hash: &[u8],
    ) -> VerifiedDevice<D, T> {
        assert_eq!(root_hash.len(), geometry.shape().digest_len());
        let most = (KEPT_BYTES / u64_of(geometry.shape().hash_block_size())).max(1);
        let kept = (0..geometry.tree_blocks().min(most)).map(|_| Mutex::default()).collect();
        let (root_hash, counters) = (root_hash.to_vec(), Counters::default());
        VerifiedDevice { geometry, hash, data, tree, tree_offset, root_hash, kept, counters }
    }

    /// Checks that the root hash is that of the tree, which shows without reading much.
    ///
    /// # Errors
    /// `Mismatch` if it is not, or the highest block is damaged; what reading says.
    pub fn check_root(&self) -> Result<(), Error> {
        match self.geometry.levels().len() {
            0 => self.read_at(&mut vec![0; usize_of(self.size())], 0),
            levels => {
                self.hash_block(levels - 1, 0)?;
                self.check_end()
            }
        }
    }

    /// Refuses a tree over more data than there are said to be: the root hash does not tell how many blocks it is over. Blocks that
    /// can't be read are for whoever reads what is below them.
    fn check_end(&self) -> Result<(), Error> {
        for (level, blocks) in self.geometry.levels().iter().enumerate() {
            let last = blocks.blocks - 1;
            let Ok(block) = self.hash_block(level, last) else { continue };
            let digests = self.geometry.digests_in(level, last);
            if first_not_zero(self.geometry.shape(), &block, digests).is_some() {
                let text = format!(
                    "the hash tree is over more data blocks than the {} that it is said to be over: the number is forged, or the \
                     tree was not made by the rules",
                    self.geometry.data_blocks()
                );
                return Err(Error::coded(Code::BadDigest, text));
            }
        }
        Ok(())
    }

    /// Bytes of a data block, which are verified together.
    pub fn data_block_size(&self) -> u32 {
        u32_of(self.geometry.shape().data_block_size())
    }

    /// The device's counters so far.
    pub fn statistics(&self) -> VerifiedStatistics {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        VerifiedStatistics {
            batched_blocks: get(&self.counters.batched_blocks),
            single_blocks: get(&self.counters.single_blocks),
            bad_blocks: get(&self.counters.bad_blocks),
            hash_blocks: get(&self.counters.hash_blocks),
            kept_hash_blocks: get(&self.counters.kept_hash_blocks),
            hash_time: Duration::from_nanos(get(&self.counters.nanoseconds)),
        }
    }

    /// Checks whole data blocks from block `first` on, and adds those that do not match to `bad`.
    fn check_data(&self, first: u64, blocks: &[u8], bad: &mut Ranges) -> Result<(), Error> {
        let shape = self.geometry.shape();
        let messages = Messages::contiguous(blocks, shape.data_block_size());
        let count = messages.count();
        let mut digests = vec![0; count * shape.digest_len()];
        let start = Instant::now();
        self.hash.hash_many(messages, &mut digests);
        add(&self.counters.nanoseconds, u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
        let counter = if count > 1 { &self.counters.batched_blocks } else { &self.counters.single_blocks };
        add(counter, u64_of(count));
        for range in self.mismatches(0, first, &digests)?.iter() {
            add(&self.counters.bad_blocks, range.end - range.start);
            bad.insert(range);
        }
        Ok(())
    }

    /// Names the first of these data blocks that can't be read in the error of reading them all.
    fn unreadable(&self, first: u64, count: usize, error: Error) -> Error {
        if !error.is_of_medium() {
            return error;
        }
        let mut block = vec![0; self.geometry.shape().data_block_size()];
        let mut blocks = first..first + u64_of(count);
        let bad = blocks.find(|index| self.geometry.read_data(&self.data, *index, &mut block).is_err());
        let block = Block::Data(bad.unwrap_or(first));
        error.map_text(|text| format!("{block} can't be read: {text}"))
    }

    /// Compares the digests of data blocks, or of blocks of the level below, with what the blocks of `level` have for
    /// them. Gives those that differ.
    fn mismatches(&self, level: usize, first: u64, digests: &[u8]) -> Result<Ranges, Error> {
        let shape = self.geometry.shape();
        let fan_out = u64_of(shape.digests_per_block());
        let mut bad = Ranges::new();
        let mut parent: Option<(u64, Arc<[u8]>)> = None;
        for (index, digest) in (first..).zip(digests.chunks_exact(shape.digest_len())) {
            let expected = if level == self.geometry.levels().len() {
                &self.root_hash
            } else {
                let at = index / fan_out;
                if parent.as_ref().is_none_or(|(have, _)| *have != at) {
                    parent = Some((at, self.hash_block(level, at)?));
                }
                let block = parent.as_ref().map_or(&[][..], |(_, block)| block);
                // OK to cut: smaller than the number of digests in a block.
                &block[usize_of(index % fan_out) * shape.digest_stride()..][..shape.digest_len()]
            };
            if expected != digest {
                bad.insert(index..index + 1);
            }
        }
        Ok(bad)
    }

    /// A hash block that is checked, and those above it.
    fn hash_block(&self, level: usize, index: u64) -> Result<Arc<[u8]>, Error> {
        let shape = self.geometry.shape();
        let number = self.geometry.offset(level, index) / u64_of(shape.hash_block_size());
        let place = &self.kept[usize_of(number % u64_of(self.kept.len()))];
        if let Some((kept, block)) = &*place.lock().unwrap_or_else(PoisonError::into_inner)
            && *kept == number
        {
            add(&self.counters.kept_hash_blocks, 1);
            return Ok(Arc::clone(block));
        }
        let mut block = vec![0; shape.hash_block_size()];
        let read =
            TreeDevice::new(&self.geometry, &self.tree, self.tree_offset).read(level, index, &mut block);
        read.map_err(|error| match error.is_of_medium() {
            true => {
                let block = Block::Hash { level, index };
                let data = self.geometry.data_below(level, index);
                let last = data.end.saturating_sub(1);
                error.map_text(|text| {
                    format!(
                        "{block} can't be read: {text}; data blocks {} to {last} can't be verified",
                        data.start
                    )
                })
            }
            false => error,
        })?;
        let mut digest = vec![0; shape.digest_len()];
        self.hash.hash(&block, &mut digest);
        add(&self.counters.hash_blocks, 1);
        if !self.mismatches(level + 1, index, &digest)?.is_empty() {
            let data = self.geometry.data_below(level, index);
            let above = match level + 1 == self.geometry.levels().len() {
                true => "the root hash, which is that of other data, or the block is damaged",
                false => "the block above",
            };
            let text = format!(
                "hash block {index} of level {level} does not match {above}; data blocks {} to {} can't be verified",
                data.start,
                data.end.saturating_sub(1)
            );
            return Err(Error::coded(Code::BadDigest, text));
        }
        let block: Arc<[u8]> = block.into();
        *place.lock().unwrap_or_else(PoisonError::into_inner) = Some((number, Arc::clone(&block)));
        Ok(block)
    }
}

/// "data block 3 does not match", "data blocks 3, 5 to 7 do not match".
fn named(bad: &Ranges) -> String {
    let name = |range: std::ops::Range<u64>| match range.end - range.start {
        1 => range.start.to_string(),
        _ => format!("{} to {}", range.start, range.end - 1),
    };
    let mut list: Vec<_> = bad.iter().map(name).take(MOST_NAMED).collect();
    let left = bad.iter().skip(MOST_NAMED).map(|range| range.end - range.start).sum::<u64>();
    if left > 0 {
        list.push(format!("and {left} more"));
    }
    let (blocks, match_) =
        if bad.count() == 1 { ("block", "does not match") } else { ("blocks", "do not match") };
    format!("data {blocks} {} {match_}", list.join(", "))
}

/// Ranges of bad blocks in one message, which may be a line of a log.
const MOST_NAMED: usize = 200;

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

impl<D: BlockDevice, T: BlockDevice> BlockDevice for VerifiedDevice<D, T> {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&self.data)
    }

    fn size(&self) -> u64 {
        self.geometry.data_size()
    }

    fn read_at(&self, mut buf: &mut [u8], offset: u64) -> Result<(), Error> {
        if offset.checked_add(u64_of(buf.len())).is_none_or(|end| end > self.size()) {
            let text = format!("read of {} bytes at {offset} passes the end of the data", buf.len());
            return Err(Error::path(io::ErrorKind::UnexpectedEof, text));
        }
        let block_size = self.geometry.shape().data_block_size();
        let run = (RUN_BYTES / block_size).max(1);
        let mut blocks = Vec::new();
        let mut at = offset;
        // All of them are named, so what follows a bad one is checked too.
        let mut bad = Ranges::new();
        while !buf.is_empty() {
            let first = at / u64_of(block_size);
            let within = usize_of(at % u64_of(block_size));
            let whole = (buf.len() / block_size).min(run);
            let len = if within == 0 && whole > 0 {
                let len = whole * block_size;
                let read = self.data.read_at(&mut buf[..len], at);
                read.map_err(|error| self.unreadable(first, whole, error))?;
                self.check_data(first, &buf[..len], &mut bad)?;
                len
            } else {
                // A part of a block, or the last one, which may be shorter.
                let len = buf.len().min(block_size - within);
                blocks.resize(block_size, 0);
                let read = self.geometry.read_data(&self.data, first, &mut blocks);
                read.map_err(|error| self.unreadable(first, 1, error))?;
                self.check_data(first, &blocks, &mut bad)?;
                buf[..len].copy_from_slice(&blocks[within..within + len]);
                len
            };
            at += u64_of(len);
            buf = &mut buf[len..];
        }
        if bad.is_empty() {
            return Ok(());
        }
        Err(Error::coded(Code::BadDigest, format!("{} its hash tree", named(&bad))))
    }

    fn write_at(&self, _buf: &[u8], _offset: u64) -> Result<(), Error> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> Result<(), Error> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use casemate_blockdev::MemoryDevice;
    use casemate_providers::{Providers, Work};
    use casemate_testkit::Rng;

    use super::*;
    use crate::tree::{Job, Shape, build};

    #[test]
    fn only_what_matches_is_read() {
        let hash = Providers::default().hash("sha256").unwrap().salted(b"salt", b"");
        // Digests of 32 bytes in hash blocks of 128: four a block, four levels over 100 blocks and a part.
        let shape = Shape::packed(128, 32).unwrap();
        for size in [0, 1, 128, 129, 100 * 128 + 57] {
            let data = Rng::new(size as u64).bytes(size);
            let geometry = Geometry::new(shape, size as u64).unwrap();
            let tree = MemoryDevice::new(vec![0; geometry.tree_size() as usize + 10]);
            let work = Work::default();
            let job = Job { shape, hash: &hash, work: &work };
            let sink = TreeDevice::new(&geometry, &tree, 10);
            let built = build(&job, &geometry, &MemoryDevice::new(data.clone()), &sink).unwrap();
            let tree = tree.into_bytes();
            let open = |data: &[u8], tree: &[u8]| {
                let (data, tree) = (MemoryDevice::new(data.to_vec()), MemoryDevice::new(tree.to_vec()));
                VerifiedDevice::new(geometry.clone(), hash.clone(), data, tree, 10, &built.root_hash)
            };
            let device = open(&data, &tree);
            let mut read = vec![0; size];
            device.read_at(&mut read, 0).unwrap();
            assert_eq!(read, data);
            assert!(device.read_at(&mut [0], size as u64).is_err());
            if size < 1000 {
                continue;
            }
            device.read_at(&mut read[..300], 1000).unwrap();
            assert_eq!(read[..300], data[1000..1300]);
            let mut bad = data.clone();
            bad[5000] ^= 1;
            let device = open(&bad, &tree);
            assert_eq!(device.read_at(&mut read, 0).unwrap_err().kind(), crate::ErrorKind::Mismatch);
            assert!(device.read_at(&mut read[..1], 5000 / 128 * 128).is_err());
            device.read_at(&mut read[..4992], 0).unwrap();
            // All that are bad are named, wherever the others lie.
            for block in [1, 7, 8, 99] {
                bad[block * 128] ^= 1;
            }
            let error = open(&bad, &tree).read_at(&mut read, 0).unwrap_err();
            assert_eq!(error.to_string(), "data blocks 1, 7 to 8, 39, 99 do not match its hash tree");
            // What was checked is not read again.
            let before = open(&data, &tree);
            before.read_at(&mut read, 0).unwrap();
            let once = before.statistics();
            before.read_at(&mut read, 0).unwrap();
            let twice = before.statistics();
            assert_eq!(
                (once.hash_blocks, twice.hash_blocks),
                (geometry.tree_blocks(), geometry.tree_blocks())
            );
            assert_eq!((twice.batched_blocks, twice.single_blocks), (200, 2));
            // Any byte of the tree: what hangs below can't be read, something else can.
            for at in (10..tree.len()).step_by(97) {
                let mut bad = tree.clone();
                bad[at] ^= 1;
                let device = open(&data, &bad);
                assert!(device.read_at(&mut read, 0).is_err(), "byte {at} of the tree");
            }
        }
    }
}
