//! Writes on their way to stable storage: through the journal, or in bitmap mode to its place at once.
//!
//! Before the first write the volume is brought in order: the journal replayed, the tags of what a bitmap notes made again.
//! After an interruption all of that is done again. Each flush makes a part of the tags that are still missing.

use std::collections::{BTreeMap, BTreeSet};

use casemate_blockdev::{BlockDevice, u64_of, usize_of};

use crate::device::{Waiting, Writes, too_long, unread_journal};
use crate::format::write_superblock;
use crate::journal::{Journal, empty_section, section};
use crate::layout::{BITMAP_BLOCK, ROUNDS};
use crate::{Advice, Error, Flags, IntegrityDevice, Result, Superblock};

/// Bytes of data whose tags are made at once.
const RECALCULATED_AT_ONCE: u64 = 1 << 20;

/// Bytes of data whose tags are made with each flush at most, so that nobody waits for long.
const RECALCULATED_WITH_FLUSH: u64 = 4 << 20;

/// A block's number, its data and its tag.
type Block<'a> = (u64, &'a [u8], &'a [u8]);

/// Blocks in the order of their numbers.
fn blocks(waiting: &BTreeMap<u64, Waiting>) -> impl Iterator<Item = Block<'_>> {
    waiting.iter().map(|(block, (data, tag))| (*block, &**data, &**tag))
}

impl<D: BlockDevice, M: BlockDevice> IntegrityDevice<D, M> {
    /// Brings the volume in order, so that it can be written to. Whatever is cut off, the same is done again.
    pub(crate) fn begin_to_write(&self, writes: &mut Writes) -> Result<()> {
        if writes.position.is_some() {
            return Ok(());
        }
        let flags = writes.superblock.flags;
        // Anybody may have set these flags, and a key would vouch for whatever is there; a bitmap is one of a volume that is
        // known to be used so. Without a key of the tags, one of the journal's may be what keeps strangers out.
        for (flag, is_said, what) in [
            (
                Flags::DIRTY_BITMAP,
                self.has_bitmap,
                "it was in use in bitmap mode, and some of its tags are not known",
            ),
            (Flags::RECALCULATING, false, "its tags are still to be computed"),
        ] {
            let is_safe = self.believes(flag) && self.guard.may_recalculate();
            if flags.contains(flag) && !is_said && !is_safe {
                let text =
                    format!("dm-integrity: {what}, which this key would vouch for; it can only be read");
                let error = Error::unsupported(text);
                let is_bitmap = flag == Flags::DIRTY_BITMAP;
                return Err(if is_bitmap { error.advise(Advice::BitmapMode) } else { error });
            }
        }
        if writes.journal.is_foreign() {
            return Err(unread_journal());
        }
        let was_marked = flags.contains(Flags::DIRTY_BITMAP);
        if was_marked || !writes.journal.is_new() {
            if !writes.is_in_order {
                match was_marked {
                    true => self.recalculate_marked(&writes.superblock)?,
                    false => self.replay(&writes.journal)?,
                }
                self.flush_below()?;
                // From here on nothing is read from the journal: an error may leave it half emptied.
                writes.journal = Journal::default();
                writes.is_in_order = true;
            }
            self.empty_journal()?;
            if was_marked {
                self.set_flags(writes, flags.without(Flags::DIRTY_BITMAP))?;
            }
        }
        writes.journal = Journal::default();
        if self.has_bitmap {
            // No section is whole from the first write on, and all that they had is in its place.
            let len =
                (writes.superblock.bit_of(self.layout().blocks() - 1) / 8 / BITMAP_BLOCK + 1) * BITMAP_BLOCK;
            self.meta().write_zeroes(self.layout().bitmap(), len, false)?;
            self.meta().flush()?;
            // The least version that has a bitmap.
            writes.superblock.version = writes.superblock.version.max(3);
            self.set_flags(writes, writes.superblock.flags.with(Flags::DIRTY_BITMAP))?;
        }
        writes.position = Some((1, 0));
        Ok(())
    }

    /// Writes the blocks that the journal has, and their tags, to their places.
    fn replay(&self, journal: &Journal) -> Result<()> {
        let (mut data, mut tag) =
            (vec![0; usize_of(self.layout().block_size())], vec![0; usize_of(self.layout().tag_size())]);
        let mut blocks: Vec<u64> = journal.blocks().collect();
        blocks.sort_unstable();
        for block in blocks {
            let seal = self.guard.journal();
            journal.read_block(self.meta(), self.layout(), seal, block, &mut data, &mut tag)?;
            self.data.write_at(&data, self.layout().data(block))?;
            self.meta().write_at(&tag, self.layout().tag(block))?;
        }
        Ok(())
    }

    /// Writes the superblock with these flags. They are the volume's once that is on stable storage.
    fn set_flags(&self, writes: &mut Writes, flags: Flags) -> Result<()> {
        let superblock = Superblock { flags, ..writes.superblock.clone() };
        write_superblock(self.meta(), &superblock, self.guard.journal())?;
        self.meta().flush()?;
        writes.superblock = superblock;
        Ok(())
    }

    /// Makes the journal one that nothing was ever written to, or one that nothing is to be replayed of.
    fn empty_journal(&self) -> Result<()> {
        let (layout, seal) = (self.layout(), self.guard.journal());
        // Without the first mark there is nothing to replay; it comes back when all others are there.
        let first = layout.journal_sector(0, 0);
        self.meta().write_at(&[0; 512], first)?;
        self.meta().flush()?;
        for number in 1..layout.sections() {
            let section = empty_section(layout, seal, number)?;
            self.meta().write_at(&section, layout.journal_sector(number, 0))?;
        }
        let section = empty_section(layout, seal, 0)?;
        self.meta().write_at(&section[512..], first + 512)?;
        self.meta().flush()?;
        self.meta().write_at(&section[..512], first)?;
        self.meta().flush()
    }

    /// Makes the tags of the blocks whose bits are set in the bitmap.
    fn recalculate_marked(&self, superblock: &Superblock) -> Result<()> {
        let blocks = self.layout().blocks();
        let last = superblock.bit_of(blocks - 1);
        if last / 8 >= self.layout().journal_len() {
            return Err(too_long());
        }
        // The run of blocks that the next bit may lengthen: the first one, and how many.
        let (mut run, mut bytes) = ((0, 0), vec![0; usize_of(BITMAP_BLOCK)]);
        for start in (0..=last / 8).step_by(usize_of(BITMAP_BLOCK)) {
            let len = usize_of((last / 8 + 1 - start).min(BITMAP_BLOCK));
            self.meta().read_at(&mut bytes[..len], self.layout().bitmap() + start)?;
            for bit in start * 8..((start + u64_of(len)) * 8).min(last + 1) {
                if bytes[usize_of(bit / 8 - start)] & 1 << (bit % 8) == 0 {
                    continue;
                }
                let shift = u32::from(superblock.log2_blocks_per_bitmap_bit);
                let first = bit.checked_shl(shift).unwrap_or(0);
                let count = 1_u64.checked_shl(shift).unwrap_or(blocks).min(blocks - first);
                if run.0 + run.1 == first {
                    run.1 += count;
                } else {
                    self.recalculate(run.0, run.1)?;
                    run = (first, count);
                }
            }
        }
        self.recalculate(run.0, run.1)
    }

    /// Makes the tags of blocks from their data as they are.
    fn recalculate(&self, mut block: u64, mut count: u64) -> Result<()> {
        let layout = self.layout();
        let (mut data, mut tags) = (Vec::new(), Vec::new());
        while count > 0 {
            let now = layout.run(block, count.min(RECALCULATED_AT_ONCE / layout.block_size()));
            // At most a MiB.
            data.resize(usize_of(now * layout.block_size()), 0);
            tags.resize(usize_of(now * layout.tag_size()), 0);
            self.data.read_at(&mut data, layout.data(block))?;
            self.guard.seal(block, &mut data, &mut tags)?;
            self.meta().write_at(&tags, layout.tag(block))?;
            (block, count) = (block + now, count - now);
        }
        Ok(())
    }

    /// Makes some of the tags that are still to be made. Nothing waits for being flushed then.
    fn go_on_recalculating(&self, writes: &mut Writes) -> Result<()> {
        let superblock = &mut writes.superblock;
        let log2 = superblock.log2_sectors_per_block;
        let first = superblock.recalc_sector >> log2;
        if !superblock.flags.contains(Flags::RECALCULATING) || first >= self.layout().blocks() {
            return Ok(());
        }
        let most = RECALCULATED_WITH_FLUSH / self.layout().block_size();
        let count = most.min(self.layout().blocks() - first);
        self.recalculate(first, count)?;
        self.flush_below()?;
        superblock.recalc_sector = (first + count) << log2;
        write_superblock(self.meta(), superblock, self.guard.journal())
    }

    /// Puts the blocks that wait on stable storage.
    ///
    /// After an error, blocks that are in the journal come to their places first, as they are there: until then the journal alone may
    /// have them whole, and nothing is written over it.
    pub(crate) fn commit(&self, writes: &mut Writes) -> Result<()> {
        let Some(mut position) = writes.position else { return Ok(()) };
        loop {
            self.place(writes)?;
            if writes.waiting.is_empty() {
                break;
            }
            let entries = self.layout().section_entries();
            // No section is used twice before what it has is in its place.
            let most =
                usize::try_from(self.layout().sections().saturating_mul(entries)).unwrap_or(usize::MAX);
            let blocks: Vec<Block<'_>> = blocks(&writes.waiting).take(most).collect();
            if self.has_bitmap {
                let bits = blocks.iter().map(|block| writes.superblock.bit_of(block.0)).collect();
                self.mark(&writes.marked, &bits)?;
                writes.marked = bits;
            } else {
                position = self.write_journal(position, &blocks)?;
                writes.position = Some(position);
            }
            let last = blocks.last().map(|block| block.0);
            let rest = last.map_or_else(BTreeMap::new, |last| writes.waiting.split_off(&(last + 1)));
            writes.placing = std::mem::replace(&mut writes.waiting, rest);
        }
        self.go_on_recalculating(writes)
    }

    /// Writes the blocks that are in the journal to their places, until they are on stable storage there.
    fn place(&self, writes: &mut Writes) -> Result<()> {
        if writes.placing.is_empty() {
            return Ok(());
        }
        self.write_places(&blocks(&writes.placing).collect::<Vec<_>>())?;
        self.flush_below()?;
        writes.placing.clear();
        Ok(())
    }

    /// Writes blocks to the journal, from a round and a section on, until they are on stable storage. Returns what is next.
    fn write_journal(
        &self,
        (mut round, mut number): (usize, u64),
        blocks: &[Block<'_>],
    ) -> Result<(usize, u64)> {
        let layout = self.layout();
        for some in blocks.chunks(usize_of(layout.section_entries())) {
            let section = section(layout, self.guard.journal(), number, round, some)?;
            self.meta().write_at(&section, layout.journal_sector(number, 0))?;
            number += 1;
            if number == layout.sections() {
                (number, round) = (0, (round + 1) % ROUNDS);
            }
        }
        self.meta().flush()?;
        Ok((round, number))
    }

    /// Sets these bits of the bitmap and clears those before, whose blocks are in their places, until that is on stable
    /// storage.
    fn mark(&self, before: &BTreeSet<u64>, bits: &BTreeSet<u64>) -> Result<()> {
        if before == bits {
            return Ok(());
        }
        let per_block = BITMAP_BLOCK * 8;
        let changed: BTreeSet<u64> = before.union(bits).map(|bit| bit / per_block).collect();
        for number in changed {
            let mut bytes = vec![0_u8; usize_of(BITMAP_BLOCK)];
            for bit in bits.range(number * per_block..(number + 1) * per_block) {
                bytes[usize_of(bit % per_block / 8)] |= 1 << (bit % 8);
            }
            self.meta().write_at(&bytes, self.layout().bitmap() + number * BITMAP_BLOCK)?;
        }
        self.meta().flush()
    }

    /// Writes blocks and their tags to their places.
    fn write_places(&self, blocks: &[Block<'_>]) -> Result<()> {
        let mut rest = blocks;
        while let Some((first, ..)) = rest.first() {
            let together = (*first..).zip(rest).take_while(|(block, (other, ..))| block == other).count();
            let (now, after) = rest.split_at(usize_of(self.layout().run(*first, u64_of(together))));
            let (mut data, mut tags) = (Vec::new(), Vec::new());
            for (_, block, tag) in now {
                data.extend_from_slice(block);
                tags.extend_from_slice(tag);
            }
            self.data.write_at(&data, self.layout().data(*first))?;
            self.meta().write_at(&tags, self.layout().tag(*first))?;
            rest = after;
        }
        Ok(())
    }

    pub(crate) fn flush_below(&self) -> Result<()> {
        self.data.flush()?;
        self.meta.as_ref().map_or(Ok(()), BlockDevice::flush)
    }

    /// Puts all that waits in its place; the bitmap makes room for the journal again.
    pub(crate) fn close(&self, writes: &mut Writes) -> Result<()> {
        self.commit(writes)?;
        if self.has_bitmap && writes.position.is_some() {
            self.flush_below()?;
            self.empty_journal()?;
            self.set_flags(writes, writes.superblock.flags.without(Flags::DIRTY_BITMAP))?;
        }
        Ok(())
    }
}
