//! All blocks of a volume, checked on many threads.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use casemate_blockdev::{BlockDevice, Buffer, u64_of, usize_of};
use casemate_providers::Work;

use crate::device::Verdict;
use crate::{IntegrityDevice, Result};

/// Bytes that a thread checks at once.
const PIECE: u64 = 1 << 20;

/// Ranges of wrong blocks that are kept; those beyond are only counted.
const MOST_RANGES: usize = 25_000;

/// The result of a check of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The number of blocks.
    pub blocks: u64,
    /// The number of blocks whose tag is not that of their data.
    pub wrong: u64,
    /// The blocks whose tag is wrong, as ranges of their numbers in order; at most 25,000 ranges.
    pub wrong_blocks: Vec<Range<u64>>,
    /// The number of blocks whose tag does not fit and was still to be computed: nothing is known of them.
    pub unknown: u64,
    /// The number of blocks that were read from the journal.
    pub journalled: u64,
}

/// Checks all blocks of a volume.
///
/// # Errors
/// `Io`.
pub fn verify<D: BlockDevice, M: BlockDevice>(
    device: &IntegrityDevice<D, M>,
    work: &Work<'_>,
) -> Result<Report> {
    let layout = device.layout();
    let per_piece = PIECE / layout.block_size();
    let found = Mutex::new((Vec::<Range<u64>>::new(), 0u64, 0u64));
    work.pool.run(layout.blocks().div_ceil(per_piece), Buffer::default, |buffer: &mut Buffer, piece| {
        let first = piece * per_piece;
        let count = per_piece.min(layout.blocks() - first);
        // At most a MiB.
        buffer.resize(usize_of(count * layout.block_size()));
        let (mut ranges, mut wrong, mut unknown) = (Vec::<Range<u64>>::new(), 0, 0);
        device.read_blocks(first, buffer, &mut |block, verdict| {
            match (verdict, ranges.last_mut()) {
                (Verdict::Unknown, _) => unknown += 1,
                (Verdict::Wrong, Some(last)) if last.end == block => last.end += 1,
                (Verdict::Wrong, _) => ranges.push(block..block + 1),
            }
            wrong += u64::from(verdict == Verdict::Wrong);
            Ok(())
        })?;
        if wrong + unknown > 0 {
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            let room = MOST_RANGES.saturating_sub(found.0.len());
            found.0.extend(ranges.into_iter().take(room));
            found.1 += wrong;
            found.2 += unknown;
        }
        work.events.advance(u64_of(buffer.len()))
    })?;
    let (mut ranges, wrong, unknown) = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    ranges.sort_by_key(|range| range.start);
    ranges.dedup_by(|next, before| {
        let touches = before.end == next.start;
        before.end = if touches { next.end } else { before.end };
        touches
    });
    let journalled = device.journalled_blocks();
    Ok(Report { blocks: layout.blocks(), wrong, wrong_blocks: ranges, unknown, journalled })
}
