//! The upper levels of a tree, made one digest after the other.

use casemate_providers::SaltedHash;

use super::in_order::InOrder;
use super::{Shape, TreeSink};
use crate::Error;

/// Takes the digests of one level and makes every level above.
///
/// It holds one hash block of each level. Of the work on a tree this is a small part: where digests are
/// many in a block few remain, where they are few the workers climb the lower levels themselves.
#[derive(Clone)]
pub(super) struct Climber<'a> {
    shape: Shape,
    hash: SaltedHash,
    sink: &'a dyn TreeSink,
    /// The level that the digests belong to which are pushed from outside: `levels[0]`.
    bottom: usize,
    levels: Vec<OpenLevel>,
    /// The level that is not made: its digests are kept.
    end: usize,
    kept: Vec<u8>,
}

/// A [`Climber`] that is given its digests in any order.
pub(super) struct OrderedClimber<'a> {
    order: InOrder<Vec<u8>>,
    climber: Climber<'a>,
}

/// A level whose last block is still being filled.
#[derive(Clone)]
struct OpenLevel {
    block: Vec<u8>,
    filled: usize,
    blocks_done: u64,
}

impl<'a> OrderedClimber<'a> {
    pub(super) fn new(climber: Climber<'a>) -> OrderedClimber<'a> {
        OrderedClimber { order: InOrder::new(), climber }
    }

    /// Takes the digests of a piece.
    pub(super) fn deliver(&mut self, piece: u64, digests: &[u8]) -> Result<(), Error> {
        self.order.deliver(piece, digests.to_vec(), |digests| self.climber.push_all(&digests))
    }

    /// Closes all levels and returns the root hash; `None` if there was no digest at all.
    pub(super) fn finish(self) -> Result<Option<Vec<u8>>, Error> {
        self.climber.finish()
    }

    /// Closes all levels below the last one, and returns its digests.
    pub(super) fn finish_part(self) -> Result<Vec<u8>, Error> {
        self.climber.finish_part()
    }
}

impl<'a> Climber<'a> {
    pub(super) fn new(shape: Shape, hash: &SaltedHash, sink: &'a dyn TreeSink, bottom: usize) -> Climber<'a> {
        let (end, kept) = (usize::MAX, Vec::new());
        Climber { shape, hash: hash.clone(), sink, bottom, levels: Vec::new(), end, kept }
    }

    /// This climber, making the levels before this one alone.
    pub(super) fn up_to(self, end: usize) -> Climber<'a> {
        Climber { end, ..self }
    }

    fn finish_part(mut self) -> Result<Vec<u8>, Error> {
        let mut index = 0;
        while let Some(level) = self.levels.get(index) {
            if level.filled > 0 {
                let digest = self.close_block(index)?;
                self.push(index + 1, digest)?;
            }
            index += 1;
        }
        Ok(self.kept)
    }

    /// Closes all levels and returns the root hash; `None` if there was no digest at all.
    pub(super) fn finish(mut self) -> Result<Option<Vec<u8>>, Error> {
        let mut index = 0;
        while let Some(level) = self.levels.get(index) {
            if level.blocks_done == 0 && level.filled == 1 {
                return Ok(Some(level.block[..self.shape.digest_len()].to_vec()));
            }
            if level.filled > 0 {
                let digest = self.close_block(index)?;
                self.push(index + 1, digest)?;
            }
            index += 1;
        }
        Ok(None)
    }

    pub(super) fn push_all(&mut self, digests: &[u8]) -> Result<(), Error> {
        digests.chunks_exact(self.shape.digest_len()).try_for_each(|digest| self.push(0, digest.to_vec()))
    }

    fn push(&mut self, mut index: usize, mut digest: Vec<u8>) -> Result<(), Error> {
        loop {
            if self.bottom + index == self.end {
                self.kept.extend_from_slice(&digest);
                return Ok(());
            }
            if index == self.levels.len() {
                let block = vec![0; self.shape.hash_block_size()];
                self.levels.push(OpenLevel { block, filled: 0, blocks_done: 0 });
            }
            let level = &mut self.levels[index];
            level.block[level.filled * self.shape.digest_stride()..][..digest.len()].copy_from_slice(&digest);
            level.filled += 1;
            if level.filled < self.shape.digests_per_block() {
                return Ok(());
            }
            digest = self.close_block(index)?;
            index += 1;
        }
    }

    /// Writes the open block of a level and returns its digest.
    fn close_block(&mut self, index: usize) -> Result<Vec<u8>, Error> {
        let level = &mut self.levels[index];
        self.sink.write(self.bottom + index, level.blocks_done, &level.block)?;
        let mut digest = vec![0; self.shape.digest_len()];
        self.hash.hash(&level.block, &mut digest);
        level.block.fill(0);
        level.filled = 0;
        level.blocks_done += 1;
        Ok(digest)
    }
}
