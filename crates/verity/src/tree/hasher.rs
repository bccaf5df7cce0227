//! A tree's root hash from data that somebody hands over, as hashes take it.

use casemate_blockdev::u64_of;
use casemate_primitives::Messages;
use casemate_providers::SaltedHash;

use super::climber::Climber;
use super::plan::Plan;
use super::{Built, Geometry, Shape};
use crate::Error;

/// The tree over data that come in pieces of any size. Hashing is done by the thread that hands them over; of the tree one
/// block of each level is held.
///
/// ```
/// use casemate_providers::Providers;
/// use casemate_verity::tree::{Shape, TreeHasher};
///
/// let hash = Providers::default().hash("sha256")?.salted(b"", b"");
/// let mut hasher = TreeHasher::new(Shape::packed(4096, 32)?, hash);
/// for piece in vec![7; 100_000].chunks(1000) {
///     hasher.update(piece);
/// }
/// assert_eq!(hasher.finish()?.data_size, 100_000);
/// # Ok::<(), casemate_verity::Error>(())
/// ```
#[derive(Clone)]
pub struct TreeHasher {
    shape: Shape,
    hash: SaltedHash,
    climber: Climber<'static>,
    /// Bytes that are hashed in one call, whole blocks.
    chunk: usize,
    /// Bytes that do not fill a chunk yet.
    pending: Vec<u8>,
    digests: Vec<u8>,
    data_size: u64,
}

impl TreeHasher {
    /// A tree over nothing so far. Digests have the length that `shape` says.
    pub fn new(shape: Shape, hash: SaltedHash) -> TreeHasher {
        let chunk = Plan::flat(shape.data_block_size(), 1).chunk_blocks * shape.data_block_size();
        let climber = Climber::new(shape, &hash, &(), 0);
        TreeHasher { shape, hash, climber, chunk, pending: Vec::new(), digests: Vec::new(), data_size: 0 }
    }

    /// Takes the next bytes of the data.
    pub fn update(&mut self, mut data: &[u8]) {
        self.data_size += u64_of(data.len());
        if !self.pending.is_empty() {
            let (first, rest) = data.split_at(data.len().min(self.chunk - self.pending.len()));
            self.pending.extend_from_slice(first);
            data = rest;
            if self.pending.len() < self.chunk {
                return;
            }
            let mut pending = std::mem::take(&mut self.pending);
            self.hash_blocks(&pending);
            pending.clear();
            self.pending = pending;
        }
        let chunks = data.chunks_exact(self.chunk);
        self.pending.extend_from_slice(chunks.remainder());
        chunks.for_each(|chunk| self.hash_blocks(chunk));
    }

    /// The root hash of all that came. A last block that is not full is taken as filled up with zeros.
    ///
    /// # Errors
    /// `Argument` if the data are too long for a tree.
    pub fn finish(mut self) -> Result<Built, Error> {
        Geometry::new(self.shape, self.data_size)?;
        let mut pending = std::mem::take(&mut self.pending);
        pending.resize(pending.len().next_multiple_of(self.shape.data_block_size()), 0);
        self.hash_blocks(&pending);
        let root_hash = self.climber.finish()?;
        let root_hash = root_hash.unwrap_or_else(|| vec![0; self.shape.digest_len()]);
        Ok(Built { root_hash, data_size: self.data_size })
    }

    fn hash_blocks(&mut self, blocks: &[u8]) {
        let messages = Messages::contiguous(blocks, self.shape.data_block_size());
        self.digests.resize(messages.count() * self.shape.digest_len(), 0);
        self.hash.hash_many(messages, &mut self.digests);
        self.climber.push_all(&self.digests).expect("nothing keeps the tree, so nothing is written");
    }
}
