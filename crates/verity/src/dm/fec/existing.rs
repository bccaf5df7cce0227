//! Parity that is stored already: whether a place holds that of an image.
//!
//! Codewords tell it, not whole rounds: a round has thousands of them, and one flipped bit makes one of them wrong.

use std::collections::BTreeSet;

use casemate_blockdev::{u64_of, usize_of};
use casemate_primitives::Cpu;
use casemate_primitives::reed_solomon::ReedSolomon;
use casemate_providers::Work;

use super::layout::ROOTS;
use super::message::Message;
use super::repair::{Target, rounds_of};
use super::{FecDevices, FecLayout};
use crate::Error;
use crate::dm::Layout;
use crate::tree::Ranges;

/// Rounds that are compared, at most.
const ROUNDS: u64 = 16;

/// Rounds that are compared with parity of each number of roots, at most.
const TRIED: u64 = 4;

/// Message rows that go through the encoder together.
const ROWS: usize = 32;

/// Contents of a place that parity is looked for in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It is the parity.
    Parity,
    /// It is not.
    Other,
    /// Nothing tells it: too many blocks have changed, or all are zeros.
    Unknown,
}

/// Looks whether a place holds the parity of an image, of which data blocks in `changed` may have changed since it was made while the
/// hash tree is as it was. Some rounds tell it for all.
///
/// Of rounds in which nothing can have changed at least half of the codewords must be right. If there are none, others must restore the
/// changed blocks, so that they have their digests in the tree; a tree that has the digests of the blocks as they are now was brought up to
/// date before the parity, and nothing tells then. Codewords without parity, of zeros, say nothing.
///
/// # Errors
/// `Argument` if data or hash device is shorter than the layout says; `Io`.
pub fn look(
    layout: &Layout,
    fec: &FecLayout,
    devices: &FecDevices<'_>,
    changed: &Ranges,
    work: &Work<'_>,
) -> Result<Seen, Error> {
    let message = Message::new(fec, devices)?;
    if message.check_parity_size().is_err() {
        return Ok(Seen::Other);
    }
    let hash = layout.parameters().salted_hash(&work.providers)?;
    // The only block of a device without a tree is not compared.
    let unknown = vec![0; layout.parameters().digest_len()];
    let target = Target { layout, message, root_hash: &unknown, hash: &hash };
    let doubtful = rounds_of(&doubtful(layout, changed), fec.rounds());
    let sure = gaps(&doubtful, fec.rounds());
    if sure.is_empty() && target.has_digests_of(changed)? {
        return Ok(Seen::Unknown);
    }
    let mut seen = Seen::Unknown;
    for round in some_of(if sure.is_empty() { &doubtful } else { &sure }, ROUNDS) {
        match target.parity_of(round, changed, work)? {
            Seen::Other => return Ok(Seen::Other),
            Seen::Parity => seen = Seen::Parity,
            Seen::Unknown => {}
        }
    }
    Ok(seen)
}

/// Whether rounds at the beginning of a place are parity of this layout, where data blocks in `changed` may have changed since it was made.
/// They lie where parity of any number of roots has written: further on may be the end of longer parity.
///
/// # Errors
/// `Argument` if data or hash device is shorter than the layout says; `Io`.
pub fn begins_with(
    (layout, metadata_end): (&Layout, u64),
    fec: &FecLayout,
    devices: &FecDevices<'_>,
    changed: &Ranges,
    cpu: Cpu,
) -> Result<bool, Error> {
    let message = Message::new(fec, devices)?;
    let shortest = FecLayout::new(layout, *ROOTS.start(), metadata_end)?.parity_size();
    let end = shortest / (fec.block_size() * u64::from(fec.roots()));
    let sure = gaps(&rounds_of(&doubtful(layout, changed), fec.rounds()), end.min(fec.rounds()));
    let code = fec.code(cpu);
    for round in some_of(&sure, TRIED) {
        if let Seen::Parity = message.codewords_of(&code, round)?.verdict() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The layout with the number of roots whose parity some rounds of a place are, where data blocks in `changed` may have changed since
/// it was made. A place that is too short for all of the parity can still show it.
///
/// # Errors
/// `Argument` if data or hash device is shorter than the layout says; `Io`.
pub fn layout_of_rounds(
    (layout, metadata_end): (&Layout, u64),
    devices: &FecDevices<'_>,
    changed: &Ranges,
    cpu: Cpu,
) -> Result<Option<FecLayout>, Error> {
    // From few roots to many: a shorter parity may have left the end of a longer one behind it.
    let room = devices.parity.size().saturating_sub(devices.parity_offset);
    for roots in ROOTS {
        let Ok(fec) = FecLayout::new(layout, roots, metadata_end) else { continue };
        let message = Message::new(&fec, devices)?;
        let there = room / (fec.block_size() * u64::from(roots));
        let doubtful = rounds_of(&doubtful(layout, changed), fec.rounds());
        let code = fec.code(cpu);
        for round in some_of(&gaps(&doubtful, fec.rounds().min(there)), TRIED) {
            if let Seen::Parity = message.codewords_of(&code, round)?.verdict() {
                return Ok(Some(fec));
            }
        }
    }
    Ok(None)
}

/// Whether a place of which the rounds in `wrong` differ holds the parity of an image nevertheless: another round is right and is not
/// zeros, or of one of some that differ at least half of the codewords are right.
///
/// # Errors
/// `Argument` if data or hash device is shorter than the layout says; `Io`.
pub fn is_in_part_there(
    fec: &FecLayout,
    devices: &FecDevices<'_>,
    wrong: &Ranges,
    work: &Work<'_>,
) -> Result<bool, Error> {
    let message = Message::new(fec, devices)?;
    let mut parity = vec![0; usize_of(fec.block_size()) * usize_of(fec.roots())];
    for round in gaps(wrong, fec.rounds()).iter().flatten() {
        message.read_parity_in_part(&mut parity, round * fec.block_size())?;
        if parity.iter().any(|byte| *byte != 0) {
            return Ok(true);
        }
    }
    let code = fec.code(work.providers.cpu());
    for round in some_of(wrong, ROUNDS) {
        if let Seen::Parity = message.codewords_of(&code, round)?.verdict() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Counts of a round's codewords that have parity, stored or by their message.
#[derive(Clone, Copy, Debug, Default)]
struct Codewords {
    right: usize,
    wrong: usize,
}

impl Codewords {
    fn verdict(self) -> Seen {
        match self {
            Codewords { right: 0, wrong: 0 } => Seen::Unknown,
            Codewords { right, wrong } if right >= wrong => Seen::Parity,
            Codewords { .. } => Seen::Other,
        }
    }
}

impl Message<'_> {
    /// Compares the codewords of one round with what is stored. Blocks that can't be read, and what was in them, say nothing.
    fn codewords_of(&self, code: &ReedSolomon, round: u64) -> Result<Codewords, Error> {
        let fec = self.layout;
        let (block_size, rows) = (usize_of(fec.block_size()), usize_of(fec.rows()));
        let mut message = vec![0; rows * block_size];
        for (row, bytes) in message.chunks_exact_mut(block_size).enumerate() {
            match self.read(bytes, (round + u64_of(row) * fec.rounds()) * fec.block_size()) {
                Err(error) if error.is_of_medium() => return Ok(Codewords::default()),
                read => read?,
            };
        }
        let mut stored = vec![0; code.roots() * block_size];
        let lost = self.read_parity_in_part(&mut stored, round * fec.block_size())?;
        let rows: Vec<&[u8]> = message.chunks_exact(block_size).collect();
        let mut encoder = code.encoder(block_size);
        rows.chunks(ROWS).for_each(|rows| encoder.feed(rows));
        let mut made = vec![0; stored.len()];
        encoder.finish(&mut made);
        let mut found = Codewords::default();
        let columns = stored.chunks_exact(code.roots()).zip(made.chunks_exact(code.roots())).enumerate();
        for (column, (stored, made)) in columns {
            match stored == made {
                _ if lost.iter().any(|lost| lost.contains(&column)) => {}
                true if made.iter().all(|byte| *byte == 0) => {}
                true => found.right += 1,
                false => found.wrong += 1,
            }
        }
        Ok(found)
    }
}

/// Message blocks that differ, or may, from what the parity was made of: data blocks, and hash blocks above them.
fn doubtful(layout: &Layout, changed: &Ranges) -> Ranges {
    let geometry = layout.geometry();
    let fan_out = u64_of(geometry.shape().digests_per_block());
    let mut all = changed.clone();
    let mut children = changed.clone();
    for level in geometry.levels() {
        children = children.parents(fan_out);
        for range in children.iter() {
            let first = geometry.data_blocks() + level.first_block + range.start;
            all.insert(first..first + (range.end - range.start));
        }
    }
    all
}

impl Target<'_> {
    /// Whether the tree has the digests of these data blocks, as far as some tell.
    fn has_digests_of(&self, blocks: &Ranges) -> Result<bool, Error> {
        let mut bytes = vec![0; usize_of(self.message.layout.block_size())];
        for block in some_of(blocks, ROUNDS) {
            match self.message.read(&mut bytes, block * self.message.layout.block_size()) {
                Err(error) if error.is_of_medium() => return Ok(false),
                read => read?,
            };
            if !self.is_right(block, &bytes)? {
                return Ok(false);
            }
        }
        Ok(!blocks.is_empty())
    }

    /// Compares the parity of one round with its message blocks, of which those in `changed` are restored first.
    fn parity_of(&self, round: u64, changed: &Ranges, work: &Work<'_>) -> Result<Seen, Error> {
        let fec = self.message.layout;
        let code = fec.code(work.providers.cpu());
        let (block_size, rows) = (usize_of(fec.block_size()), usize_of(fec.rows()));
        let block = |row: usize| round + u64_of(row) * fec.rounds();
        let is_changed =
            |row: &usize| changed.contains(block(*row)) && block(*row) < self.layout.geometry().data_blocks();
        let erasures: Vec<usize> = (0..rows).filter(is_changed).collect();
        if erasures.is_empty() {
            return Ok(self.message.codewords_of(&code, round)?.verdict());
        }
        let mut stored = vec![0; rows * block_size];
        for (row, bytes) in stored.chunks_exact_mut(block_size).enumerate() {
            match self.message.read(bytes, block(row) * fec.block_size()) {
                Err(error) if error.is_of_medium() => return Ok(Seen::Unknown),
                read => read?,
            };
        }
        let mut parity = vec![0; code.roots() * block_size];
        match self.message.read_parity(&mut parity, round * fec.block_size()) {
            Err(error) if error.is_of_medium() => return Ok(Seen::Unknown),
            read => read?,
        }
        if stored.iter().chain(&parity).all(|byte| *byte == 0) {
            return Ok(Seen::Unknown);
        }
        if erasures.len() > code.roots() || self.layout.geometry().levels().is_empty() {
            return Ok(Seen::Unknown);
        }
        let mut codewords = code.join(&stored, &parity);
        // OK to unwrap: they are distinct rows, not more than there are roots.
        let repair = code.repair(&mut codewords, block_size, &erasures).unwrap();
        let known: BTreeSet<usize> = erasures.iter().copied().collect();
        if !repair.unrepaired.is_empty() || repair.rows.iter().any(|row| !known.contains(row)) {
            return Ok(Seen::Other);
        }
        for row in erasures {
            if !self.is_right(block(row), &codewords[row * block_size..][..block_size])? {
                return Ok(Seen::Other);
            }
        }
        Ok(Seen::Parity)
    }
}

/// The numbers below `end` that are not in `ranges`.
fn gaps(ranges: &Ranges, end: u64) -> Ranges {
    let mut gaps = Ranges::new();
    let mut from = 0;
    for range in ranges.iter() {
        gaps.insert(from..range.start.clamp(from, end));
        from = range.end.min(end);
    }
    gaps.insert(from..end);
    gaps
}

/// Some of the numbers, at most so many, the first and the last among them.
fn some_of(ranges: &Ranges, most: u64) -> Vec<u64> {
    let count = ranges.count();
    let most = most.min(count);
    // OK to multiply: rounds are fewer than 2^62 bytes have blocks of 512.
    let wanted: BTreeSet<u64> = (0..most).map(|n| n * (count - 1) / (most - 1).max(1)).collect();
    let mut some = Vec::new();
    let mut before = 0;
    for range in ranges.iter() {
        let len = range.end - range.start;
        some.extend(wanted.range(before..before + len).map(|number| range.start + (number - before)));
        before += len;
    }
    some
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(all: &[(u64, u64)]) -> Ranges {
        all.iter().map(|(start, end)| *start..*end).collect()
    }

    #[test]
    fn numbers_between_ranges_are_found() {
        for (given, end, expected) in [
            (&[][..], 5, &[(0, 5)][..]),
            (&[(0, 5)], 5, &[]),
            (&[(1, 2), (4, 5)], 6, &[(0, 1), (2, 4), (5, 6)]),
            (&[(3, 9)], 6, &[(0, 3)]),
            (&[(1, 7), (8, 9)], 5, &[(0, 1)]),
            (&[(1, 2)], 0, &[]),
        ] {
            let found: Vec<u64> = gaps(&ranges(given), end).iter().flatten().collect();
            let expected: Vec<u64> = ranges(expected).iter().flatten().collect();
            assert_eq!(found, expected, "{given:?} below {end}");
        }
    }

    #[test]
    fn some_numbers_are_spread_over_all() {
        assert_eq!(some_of(&ranges(&[]), 16), Vec::<u64>::new());
        assert_eq!(some_of(&ranges(&[(7, 8)]), 16), vec![7]);
        assert_eq!(some_of(&ranges(&[(7, 9), (20, 21)]), 16), vec![7, 8, 20]);
        let many = some_of(&ranges(&[(10, 1 << 40), (1 << 50, 1 << 51)]), 16);
        assert_eq!((many.len(), many[0], many[15]), (16, 10, (1 << 51) - 1));
        // The most rounds that a layout can have.
        assert_eq!(some_of(&ranges(&[(0, 1 << 53)]), 16).len(), 16);
    }
}
