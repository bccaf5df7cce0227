//! The journal: blocks that were written to it and perhaps not yet to their places.
//!
//! A section is some entries (number of a block's first sector, the block's tag, and those bytes of its data that the marks
//! at the ends of sectors have displaced) and the blocks. Each of its sectors ends in a mark that says in which of four
//! rounds it was written; a section counts if all of its sectors are of one round.

use std::collections::HashMap;

use casemate_blockdev::{BlockDevice, u32_of, u64_of, usize_of};

use crate::layout::{MARKS, METADATA_SECTORS, ROUNDS};
use crate::seal::JournalSeal;
use crate::{Error, Flags, Layout, Result, Superblock};

/// The largest journal in bytes whose blocks are looked up: the kernel's own default is 64 MiB.
const MOST: u64 = 512 << 20;

const SECTOR: usize = 512;

/// Bytes of a sector before its mark.
const BEFORE_MARK: usize = SECTOR - 8;

/// Blocks that the journal has newer than their places.
#[derive(Clone, Debug, Default)]
pub(crate) struct Journal {
    /// Section and entry of each block.
    blocks: HashMap<u64, (u32, u32)>,
    /// Whether every section is as a new volume has it.
    is_new: bool,
    /// Whether there are marks of no round, or the device did not give them: nothing can be said of what was written.
    is_foreign: bool,
}

impl Journal {
    /// The blocks that the kernel would write to their places when it opens the volume.
    pub fn read(
        device: &dyn BlockDevice,
        superblock: &Superblock,
        layout: &Layout,
        seal: Option<&JournalSeal>,
    ) -> Result<Journal> {
        if superblock.flags.contains(Flags::DIRTY_BITMAP) {
            // Its place is the bitmap's.
            return Ok(Journal::default());
        }
        if layout.journal_len() > MOST {
            let text = format!(
                "the dm-integrity journal has {} bytes, and at most {MOST} are supported",
                layout.journal_len()
            );
            return Err(Error::unsupported(text));
        }
        let mut journal = Journal::default();
        let sections = layout.sections();
        let mut section = vec![0; usize_of(layout.section_sectors()) * SECTOR];
        // Of each round, the last section that it wrote something in.
        let mut last: [Option<u64>; ROUNDS] = [None; ROUNDS];
        for number in 0..sections {
            read_section(device, layout, seal, number, &mut section)?;
            for mark in marks(&section, number, seal) {
                // A mark of none: the journal was never used, or is not this one's.
                let Some(round) = mark else {
                    // Where it was being emptied the first sector has nothing.
                    let mut first = [0; SECTOR];
                    device.read_at(&mut first, layout.journal_sector(0, 0))?;
                    journal.is_foreign = first != [0; SECTOR];
                    return Ok(journal);
                };
                last[round] = Some(number);
            }
        }
        journal.is_new = last == [Some(sections - 1), None, None, None];
        let Some((mut round, mut number)) = begin(&last, sections) else { return Ok(journal) };
        for _ in 0..sections {
            read_section(device, layout, seal, number, &mut section)?;
            if marks(&section, number, seal).any(|mark| mark != Some(round)) {
                break;
            }
            seal.map_or(Ok(()), |seal| seal.check(layout, number, &section))?;
            for entry in 0..layout.section_entries() {
                let sector = u64_at(&section, layout.place(entry));
                // Unused entries have numbers behind all devices.
                if sector < superblock.provided_data_sectors {
                    let at = (u32_of(number), u32_of(entry));
                    journal.blocks.insert(sector >> superblock.log2_sectors_per_block, at);
                    journal.is_new = false;
                }
            }
            number += 1;
            if number == sections {
                (number, round) = (0, (round + 1) % ROUNDS);
            }
        }
        Ok(journal)
    }

    /// A journal of which nothing can be said.
    pub fn unread() -> Journal {
        Journal { is_foreign: true, ..Journal::default() }
    }

    pub fn len(&self) -> u64 {
        u64_of(self.blocks.len())
    }

    /// Whether there are marks that mean nothing.
    pub fn is_foreign(&self) -> bool {
        self.is_foreign
    }

    /// Whether nothing was ever written to the journal.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// The numbers of the blocks.
    pub fn blocks(&self) -> impl Iterator<Item = u64> {
        self.blocks.keys().copied()
    }

    /// Whether one of some blocks is in the journal.
    pub fn has_any(&self, first: u64, count: u64) -> bool {
        match count < u64_of(self.blocks.len()) {
            true => (first..first + count).any(|block| self.blocks.contains_key(&block)),
            false => self.blocks.keys().any(|block| (first..first + count).contains(block)),
        }
    }

    /// Reads a block and its tag, if the journal has it.
    pub fn read_block(
        &self,
        device: &dyn BlockDevice,
        layout: &Layout,
        seal: Option<&JournalSeal>,
        block: u64,
        data: &mut [u8],
        tag: &mut [u8],
    ) -> Result<bool> {
        let Some((section, entry)) = self.blocks.get(&block).copied() else { return Ok(false) };
        let (section, entry) = (u64::from(section), u64::from(entry));
        // A part of an encrypted section can't be read alone.
        let whole = match seal.is_some_and(JournalSeal::is_encrypted) {
            true => {
                let mut whole = vec![0; usize_of(layout.section_sectors()) * SECTOR];
                read_section(device, layout, seal, section, &mut whole)?;
                Some(whole)
            }
            false => None,
        };
        let read = |buf: &mut [u8], from: u64| match &whole {
            Some(whole) => {
                let at = usize_of(from) * SECTOR;
                buf.copy_from_slice(&whole[at..at + buf.len()]);
                Ok(())
            }
            None => device.read_at(buf, layout.journal_sector(section, from)),
        };
        let mut sector = [0; SECTOR];
        read(&mut sector, entry % METADATA_SECTORS)?;
        let entry_at = usize_of(entry / METADATA_SECTORS * layout.entry_size());
        let displaced = entry_at + 8;
        let tag_at = displaced + 8 * usize_of(layout.sectors_per_block());
        tag.copy_from_slice(&sector[tag_at..tag_at + tag.len()]);
        let first = METADATA_SECTORS + entry * layout.sectors_per_block();
        read(data, first)?;
        for (k, part) in data.chunks_exact_mut(SECTOR).enumerate() {
            part[BEFORE_MARK..].copy_from_slice(&sector[displaced + 8 * k..displaced + 8 * (k + 1)]);
        }
        Ok(true)
    }
}

/// Reads a section and decrypts it.
fn read_section(
    device: &dyn BlockDevice,
    layout: &Layout,
    seal: Option<&JournalSeal>,
    number: u64,
    section: &mut [u8],
) -> Result<()> {
    device.read_at(section, layout.journal_sector(number, 0))?;
    seal.map_or(Ok(()), |seal| seal.open(number, section))
}

/// The bytes of a section without entries, as the first round leaves it.
pub(crate) fn empty_section(layout: &Layout, seal: Option<&JournalSeal>, number: u64) -> Result<Vec<u8>> {
    section(layout, seal, number, 0, &[])
}

/// The bytes of a section with these blocks, each with its number, its data and its tag, as a round leaves it.
pub(crate) fn section(
    layout: &Layout,
    seal: Option<&JournalSeal>,
    number: u64,
    round: usize,
    blocks: &[(u64, &[u8], &[u8])],
) -> Result<Vec<u8>> {
    let mut section = vec![0; usize_of(layout.section_sectors()) * SECTOR];
    for entry in 0..layout.section_entries() {
        let at = layout.place(entry);
        section[at + 4..at + 8].fill(0xff);
    }
    for (entry, (block, data, tag)) in (0..).zip(blocks) {
        let at = layout.place(entry);
        section[at..at + 8].copy_from_slice(&(block * layout.sectors_per_block()).to_le_bytes());
        for (k, sector) in data.chunks_exact(SECTOR).enumerate() {
            section[at + 8 + 8 * k..at + 16 + 8 * k].copy_from_slice(&sector[BEFORE_MARK..]);
        }
        let tag_at = at + 8 + 8 * usize_of(layout.sectors_per_block());
        section[tag_at..tag_at + tag.len()].copy_from_slice(tag);
        let first = usize_of(METADATA_SECTORS + entry * layout.sectors_per_block()) * SECTOR;
        section[first..first + data.len()].copy_from_slice(data);
    }
    for (sector, bytes) in section.chunks_exact_mut(SECTOR).enumerate() {
        let mark = known_marks(seal)[round] ^ (number << 32 | u64_of(sector));
        bytes[BEFORE_MARK..].copy_from_slice(&mark.to_le_bytes());
    }
    seal.map_or(Ok(()), |seal| seal.close(layout, number, &mut section))?;
    Ok(section)
}

fn known_marks(seal: Option<&JournalSeal>) -> &[u64; ROUNDS] {
    seal.map_or(&MARKS, JournalSeal::marks)
}

/// The rounds of a section's sectors.
fn marks(section: &[u8], number: u64, seal: Option<&JournalSeal>) -> impl Iterator<Item = Option<usize>> {
    let known_marks = known_marks(seal);
    section.chunks_exact(SECTOR).enumerate().map(move |(sector, bytes)| {
        let mark = u64_at(bytes, BEFORE_MARK) ^ (number << 32 | u64_of(sector));
        known_marks.iter().position(|known| *known == mark)
    })
}

/// The round and the section that replay begins with, from the last section of each round; `None` if there is nothing to
/// replay. Three rounds at most have left marks: the newest is the one before a round that has not.
fn begin(last: &[Option<u64>; ROUNDS], sections: u64) -> Option<(usize, u64)> {
    let before = |round: usize| (round + ROUNDS - 1) % ROUNDS;
    let unused = match last[ROUNDS - 1] {
        None => (0..ROUNDS).find(|round| last[*round..].iter().all(Option::is_none))?,
        Some(_) => last.iter().position(Option::is_none)?,
    };
    let newest = before(unused);
    let (want, older) = (before(newest), before(before(newest)));
    if last[want].is_none() && last[older].is_some() {
        return None;
    }
    // Behind what the newest round has written lies what the one before has, and has not been written elsewhere yet.
    let next = last[newest].map_or(0, |section| section + 1);
    Some(if next >= sections { (newest, 0) } else { (want, next) })
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    // OK to unwrap: eight bytes.
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}
