//! Restoring damaged data and hash blocks from the parity.
//!
//! The hash tree says which blocks are wrong, the parity what they were, and the tree again whether that is
//! true: nothing is written whose digest is not the expected one.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use casemate_blockdev::{Pool, u64_of, usize_of};
use casemate_primitives::reed_solomon::ReedSolomon;
use casemate_providers::{SaltedHash, Work};

use super::super::{Layout, verify};
use super::message::Message;
use super::{FecDevices, FecLayout};
use crate::Error;
use crate::tree::{Block, Fault, Finding, Ranges, Summary};

/// Bytes of all threads' codewords together, unless those of one thread are more.
const ALL_CODEWORDS: u64 = 32 << 20;

/// The data and hash blocks that [`repair`] restored, and those it could not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// The numbers of the data blocks that were restored.
    pub data: Ranges,
    /// The number of hash blocks that were restored.
    pub hash_blocks: u64,
    /// The blocks that are still wrong.
    pub left: Summary,
}

/// Restores the data and hash blocks that the hash tree finds damaged, in place.
///
/// Damaged blocks are erasures to the code, and so are blocks that can't be read, which are written: of the blocks
/// that share a codeword as many as there are roots can be restored. More are restored where damage is in few bytes
/// of them: in each codeword half as many wrong bytes as there are roots. Only blocks below the root hash are written: never the superblock, what
/// lies behind the tree, or the parity (which [`check`](super::check) can look at and
/// [`encode`](super::encode) renew).
///
/// To see what could be restored, give devices that keep what is written elsewhere. The listener hears of the
/// data each time it is verified: once, and again after hash blocks were restored.
///
/// # Errors
/// `Argument` if the root hash has a wrong length, or `fec` was made for another layout, `Corrupt` if a device
/// is cut off, `Io` when reading, writing or progress fails. What was restored until then is.
pub fn repair(
    layout: &Layout,
    fec: &FecLayout,
    devices: &FecDevices<'_>,
    root_hash: &[u8],
    work: &Work<'_>,
) -> Result<Repaired, Error> {
    let same = FecLayout::new(layout, fec.roots(), fec.metadata_offset() + fec.metadata_size())?;
    if same != *fec {
        return Err(Error::argument("the error correction belongs to another layout"));
    }
    let message = Message::new(fec, devices)?;
    message.check_parity_size()?;
    let hash = layout.parameters().salted_hash(&work.providers)?;
    let target = Target { layout, message, root_hash, hash: &hash };
    let mut done = Repaired::default();
    let mut all = Ranges::new();
    // Each pass brings back a level that hid others, unless the devices forget what is written.
    for _ in 0..layout.geometry().levels().len() + 2 {
        let (mut bad, mut suspect) = (Ranges::new(), Ranges::new());
        let mut report = |finding: Finding| {
            if let Fault::Digest { trusted, .. } | Fault::Unreadable { trusted, .. } = finding.fault {
                let block = target.message_block(finding.block);
                suspect.insert(block..block + 1);
                if trusted {
                    bad.insert(block..block + 1);
                }
            }
            Ok(())
        };
        done.left = verify(layout, devices.data, devices.hash, root_hash, work, &mut report)?;
        if bad.is_empty() {
            return Ok(done);
        }
        let restored = target.restore(&bad, &suspect, work)?;
        let before = all.count();
        restored.iter().for_each(|range| all.insert(range));
        let data = layout.geometry().data_blocks();
        done.data = all.iter().map(|range| range.start.min(data)..range.end.min(data)).collect();
        done.hash_blocks = all.iter().map(|range| range.end.max(data) - range.start.max(data)).sum();
        devices.data.flush()?;
        devices.hash.flush()?;
        // Nothing more helped: what is left, is left. So are sectors that can't be read once they were written, either.
        if all.count() == before {
            break;
        }
    }
    Ok(done)
}

/// The data being repaired.
pub(super) struct Target<'a> {
    pub(super) layout: &'a Layout,
    pub(super) message: Message<'a>,
    pub(super) root_hash: &'a [u8],
    pub(super) hash: &'a SaltedHash,
}

impl Target<'_> {
    /// Tries to restore the bad blocks, whose expected digests can be trusted; returns those that were.
    ///
    /// `suspect` are the bad ones and those that differ from a digest that can't be trusted.
    fn restore(&self, bad: &Ranges, suspect: &Ranges, work: &Work<'_>) -> Result<Ranges, Error> {
        let fec = self.message.layout;
        let code = fec.code(work.providers.cpu());
        let rounds = rounds_of(bad, fec.rounds());
        let rounds = Mutex::new(rounds.iter().flatten());
        let restored = Mutex::new(Ranges::new());
        let codewords = fec.block_size() * (fec.rows() + u64::from(fec.roots()));
        let threads = (ALL_CODEWORDS / codewords).clamp(1, u64_of(work.pool.threads()));
        let pool = Pool::new(std::num::NonZeroUsize::new(usize_of(threads)));
        pool.run(
            threads,
            || (),
            |(), _| {
                loop {
                    let round = rounds.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some(round) = round else { return Ok::<_, Error>(()) };
                    let blocks = self.restore_round(&code, round, bad, suspect)?;
                    let mut restored = restored.lock().unwrap_or_else(PoisonError::into_inner);
                    blocks.into_iter().for_each(|block| restored.insert(block..block + 1));
                }
            },
        )?;
        Ok(restored.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Restores the bad blocks of one round as far as possible and returns them.
    fn restore_round(
        &self,
        code: &ReedSolomon,
        round: u64,
        bad: &Ranges,
        suspect: &Ranges,
    ) -> Result<Vec<u64>, Error> {
        let fec = self.message.layout;
        let block_size = usize_of(fec.block_size());
        let row_count = usize_of(fec.rows());
        let block = |row: usize| round + u64_of(row) * fec.rounds();
        let rows_in =
            |set: &Ranges| -> Vec<usize> { (0..row_count).filter(|row| set.contains(block(*row))).collect() };

        let mut stored = vec![0; row_count * block_size];
        // What can't be read is an erasure, also where no digest covers it.
        let mut unreadable = Vec::new();
        for (row, bytes) in stored.chunks_exact_mut(block_size).enumerate() {
            match self.message.read(bytes, block(row) * fec.block_size()) {
                Err(error) if error.is_of_medium() => {
                    bytes.fill(0);
                    unreadable.push(row);
                }
                read => {
                    read?;
                }
            }
        }
        let mut parity = vec![0; code.roots() * block_size];
        let lost = self.message.read_parity_in_part(&mut parity, round * fec.block_size())?;

        // What is known to be bad helps most. If there is more damage than that, perhaps it is in the blocks
        // that are only suspect; or all of it is in so few bytes that it is found without help.
        let mut left = rows_in(bad);
        let with_unreadable = |rows: Vec<usize>| -> Vec<usize> {
            let all: BTreeSet<usize> = rows.into_iter().chain(unreadable.iter().copied()).collect();
            all.into_iter().collect()
        };
        let mut attempts =
            vec![with_unreadable(left.clone()), with_unreadable(rows_in(suspect)), unreadable.clone()];
        attempts.dedup();
        let mut restored = Vec::new();
        for erasures in attempts.into_iter().filter(|erasures| erasures.len() <= code.roots()) {
            let mut codewords = code.join(&stored, &parity);
            let repair = code.repair(&mut codewords, block_size, &erasures);
            // OK to unwrap: they are distinct rows, not more than there are roots.
            let changed = repair.unwrap().rows;
            let mut more = Vec::new();
            for row in left {
                let bytes = &mut codewords[row * block_size..][..block_size];
                // Without its parity a codeword says nothing.
                for columns in &lost {
                    bytes[columns.clone()].copy_from_slice(&stored[row * block_size..][columns.clone()]);
                }
                let is_right = changed.contains(&row) && self.is_right(block(row), bytes)?;
                if is_right && self.is_written(block(row), bytes)? {
                    stored[row * block_size..][..block_size].copy_from_slice(bytes);
                    restored.push(block(row));
                } else {
                    more.push(row);
                }
            }
            left = more;
            if left.is_empty() {
                break;
            }
        }
        Ok(restored)
    }

    /// Writes a block; one that the medium does not take stays as it was.
    fn is_written(&self, block: u64, bytes: &[u8]) -> Result<bool, Error> {
        match self.message.write(bytes, block * self.message.layout.block_size()) {
            Err(error) if error.is_of_medium() => Ok(false),
            written => written.map(|()| true),
        }
    }

    /// Whether these bytes have the digest that the tree expects of a message block.
    pub(super) fn is_right(&self, block: u64, bytes: &[u8]) -> Result<bool, Error> {
        let geometry = self.layout.geometry();
        let (child, parent_level) = match self.place(block) {
            Block::Data(index) => (index, 0),
            Block::Hash { level, index } => (index, level + 1),
        };
        let mut expected = self.root_hash.to_vec();
        if parent_level < geometry.levels().len() {
            let shape = geometry.shape();
            let per_block = u64_of(shape.digests_per_block());
            let slot = child % per_block * u64_of(shape.digest_stride());
            let offset = self.layout.tree_offset() + geometry.offset(parent_level, child / per_block) + slot;
            self.message.devices.hash.read_at(&mut expected, offset)?;
        }
        let mut found = vec![0; expected.len()];
        self.hash.hash(bytes, &mut found);
        Ok(found == expected)
    }

    /// The number of a block in the message.
    pub(super) fn message_block(&self, block: Block) -> u64 {
        let geometry = self.layout.geometry();
        match block {
            Block::Data(index) => index,
            Block::Hash { level, index } => {
                geometry.data_blocks() + geometry.levels()[level].first_block + index
            }
        }
    }

    /// The data or hash block with this number in the message, which is not behind the tree.
    fn place(&self, block: u64) -> Block {
        let geometry = self.layout.geometry();
        let Some(in_tree) = block.checked_sub(geometry.data_blocks()) else { return Block::Data(block) };
        // Level 0 is stored last, so the first level that does not begin behind the block has it.
        let level = geometry.levels().iter().position(|level| level.first_block <= in_tree);
        let level = level.expect("the top level begins at block 0");
        Block::Hash { level, index: in_tree - geometry.levels()[level].first_block }
    }
}

/// The rounds that message blocks belong to.
pub(super) fn rounds_of(blocks: &Ranges, rounds: u64) -> Ranges {
    let mut result = Ranges::new();
    for range in blocks.iter() {
        let first = range.start % rounds;
        let end = first + (range.end - range.start).min(rounds);
        result.insert(first..end.min(rounds));
        result.insert(0..end.saturating_sub(rounds));
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_block_numbers_modulo_their_count() {
        for (ranges, rounds, expected) in [
            ([(0, 1)].to_vec(), 10, vec![0]),
            ([(19, 21)].to_vec(), 10, vec![0, 9]),
            ([(8, 13)].to_vec(), 5, vec![0, 1, 2, 3, 4]),
            ([(3, 100)].to_vec(), 4, vec![0, 1, 2, 3]),
            ([(7, 8), (17, 18), (25, 26)].to_vec(), 10, vec![5, 7]),
        ] {
            let mut blocks = Ranges::new();
            ranges.iter().for_each(|(start, end)| blocks.insert(*start..*end));
            let found: Vec<u64> = rounds_of(&blocks, rounds).iter().flatten().collect();
            assert_eq!(found, expected, "{ranges:?} of {rounds} rounds");
        }
    }
}
