//! New volumes: superblock, an empty journal, data and their tags, as the kernel would make and fill them.

use std::io::Read;
use std::sync::{Mutex, PoisonError};

use casemate_blockdev::BlockDevice;
use casemate_providers::Work;

use crate::journal::empty_section;
use crate::{BlockGuard, Error, Flags, Layout, Result, Superblock};

/// Bytes that a thread tags and writes at once.
const PIECE: u64 = 1 << 20;

/// Sectors of a new journal where nothing is said: a 128th of the device, at most these.
const MOST_JOURNAL_SECTORS: u64 = 131_072;

/// The base-2 logarithm of the sectors that a bit of the bitmap stands for, where they are few enough.
const LOG2_BITMAP_SECTORS: u32 = 15;

/// The layout of a new volume.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FormatOptions {
    /// The size of a block in bytes: 512, 1024, 2048 or 4096.
    pub block_size: u32,
    /// The length of a tag in bytes.
    pub tag_size: u16,
    /// The size of the journal in bytes; a 128th of the device, at most 64 MiB, if `None`.
    pub journal_size: Option<u64>,
    /// The sectors of 512 bytes of data between two runs of tags, a power of two from 8 to 2^31.
    pub interleave_sectors: u32,
    /// The salt.
    pub salt: [u8; 16],
}

impl FormatOptions {
    /// As integritysetup takes them: sectors of 512 bytes, tags after each 16 MiB.
    pub fn new(tag_size: u16, salt: [u8; 16]) -> FormatOptions {
        FormatOptions { block_size: 512, tag_size, journal_size: None, interleave_sectors: 1 << 15, salt }
    }
}

impl Superblock {
    /// The superblock of a new volume that fills a device of `size` bytes.
    ///
    /// # Errors
    /// `Argument` for sizes that are none, and for a device that has no room.
    pub fn new(size: u64, options: &FormatOptions) -> Result<Superblock> {
        let FormatOptions { block_size, tag_size, interleave_sectors, salt, .. } = *options;
        let refuse = |text: String| Err(Error::argument(text));
        if !block_size.is_power_of_two() || !(512..=4096).contains(&block_size) {
            return refuse(format!("blocks of {block_size} bytes: they have 512, 1024, 2048 or 4096"));
        }
        if !interleave_sectors.is_power_of_two() || interleave_sectors < 8 {
            return refuse(format!(
                "tags after each {interleave_sectors} sectors: a power of two from 8 to 2^31"
            ));
        }
        // OK to cast: few bits.
        let log2_block = (block_size / 512).trailing_zeros() as u8;
        let sectors = size / 512;
        let mut superblock = Superblock {
            version: 5,
            log2_interleave_sectors: interleave_sectors.trailing_zeros() as u8,
            tag_size,
            journal_sections: 1,
            provided_data_sectors: 8,
            flags: Flags::FIX_PADDING.with(Flags::FIX_HMAC),
            log2_sectors_per_block: log2_block,
            log2_blocks_per_bitmap_bit: 0,
            recalc_sector: 0,
            salt,
        };
        let checked = Superblock::from_bytes(&superblock.to_bytes());
        let layout = checked.and_then(|superblock| superblock.layout(false));
        let layout = layout.map_err(|error| Error::argument(error.text().into_owned()))?;
        let default = (sectors >> 7).min(MOST_JOURNAL_SECTORS);
        let journal_sectors = options.journal_size.map_or(default, |size| size / 512);
        let sections = (journal_sectors / layout.section_sectors()).max(1);
        let Ok(sections) = u32::try_from(sections) else {
            return refuse(format!("a journal of {journal_sectors} sectors"));
        };
        superblock.journal_sections = sections;
        // The most that fits, as the kernel finds it: bit by bit, down to eight sectors.
        superblock.provided_data_sectors = 0;
        for bit in (3..54).rev() {
            let more = superblock.provided_data_sectors | 1 << bit;
            let fits = Superblock { provided_data_sectors: more, ..superblock.clone() }.layout(false);
            if fits.is_ok_and(|layout| layout.check(size, size).is_ok()) {
                superblock.provided_data_sectors = more;
            }
        }
        if superblock.provided_data_sectors == 0 {
            return refuse(format!("{size} bytes have no room for a volume with its journal and tags"));
        }
        let layout = superblock.layout(false)?;
        let mut log2 = LOG2_BITMAP_SECTORS;
        while (superblock.provided_data_sectors + (1 << log2) - 1) >> log2 > layout.journal_len() * 8 {
            log2 += 1;
        }
        superblock.log2_blocks_per_bitmap_bit = log2 as u8 - log2_block;
        Ok(superblock)
    }
}

/// Makes a volume on a device: an empty journal, the data that `from` gives and zeros behind them, and their tags. The
/// superblock is written last, when everything else is on stable storage.
///
/// # Errors
/// `Argument` if there are more data than the volume has room for; `Io`.
pub fn format(
    device: &dyn BlockDevice,
    superblock: &Superblock,
    guard: &dyn BlockGuard,
    mut from: Option<&mut dyn Read>,
    work: &Work<'_>,
) -> Result<()> {
    let layout = superblock.layout(false)?;
    layout.check(device.size(), device.size())?;
    device.write_zeroes(0, 4096, false)?;
    device.flush()?;
    for section in 0..layout.sections() {
        device.write_at(&empty_section(&layout, section), layout.journal_sector(section, 0))?;
    }
    let (size, threads) = (layout.blocks() * layout.block_size(), work.pool.threads());
    let mut buffers: Vec<Mutex<(Vec<u8>, Vec<u8>)>> = Vec::new();
    buffers.resize_with(threads, Mutex::default);
    let mut start = 0;
    while start < size {
        // As many pieces at once as there are threads.
        let pieces = threads.min((size - start).div_ceil(PIECE) as usize);
        let mut len = 0;
        for buffer in &mut buffers[..pieces] {
            let (data, _) = buffer.get_mut().unwrap_or_else(PoisonError::into_inner);
            // OK to cast: at most a MiB.
            data.resize(PIECE.min(size - start - len) as usize, 0);
            len += data.len() as u64;
            let read = from.as_mut().map_or(Ok(0), |from| fill(*from, data))?;
            data[read..].fill(0);
            if read < data.len() {
                from = None;
            }
        }
        work.pool.run(
            pieces as u64,
            || (),
            |(), piece| {
                let mut buffer = buffers[piece as usize].lock().unwrap_or_else(PoisonError::into_inner);
                let (data, tags) = &mut *buffer;
                write(device, &layout, guard, (start + piece * PIECE) / layout.block_size(), data, tags)?;
                work.events.advance(data.len() as u64)
            },
        )?;
        start += len;
    }
    if let Some(from) = from {
        let mut more = [0];
        if fill(from, &mut more)? > 0 {
            return Err(Error::argument(format!("there are more data than the {size} bytes of the volume")));
        }
    }
    device.flush()?;
    device.write_at(&superblock.to_bytes(), 0)?;
    device.flush()
}

/// Writes whole blocks from the one of this number on, and their tags.
fn write(
    device: &dyn BlockDevice,
    layout: &Layout,
    guard: &dyn BlockGuard,
    mut block: u64,
    mut data: &mut [u8],
    tags: &mut Vec<u8>,
) -> Result<()> {
    // OK to cast: within a piece.
    let (size, tag_size) = (layout.block_size() as usize, layout.tag_size() as usize);
    while !data.is_empty() {
        let count = layout.run(block, (data.len() / size) as u64) as usize;
        let (now, rest) = data.split_at_mut(count * size);
        tags.resize(count * tag_size, 0);
        guard.seal(block, now, tags)?;
        match now.iter().all(|byte| *byte == 0) {
            true => device.write_zeroes(layout.data(block), now.len() as u64, true)?,
            false => device.write_at(now, layout.data(block))?,
        }
        device.write_at(tags, layout.tag(block))?;
        block += count as u64;
        data = rest;
    }
    Ok(())
}

/// Reads until a buffer is full, or there is no more.
fn fill(from: &mut dyn Read, buffer: &mut [u8]) -> Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match from.read(&mut buffer[done..]) {
            Ok(0) => break,
            Ok(len) => done += len,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes and superblocks that a kernel made.
    #[test]
    fn as_many_sectors_as_the_kernel_finds() {
        for (size, tag, block, journal, interleave, provided) in [
            (2_097_152, 32, 512, None, 32768, 1952),
            (1_048_576, 32, 4096, Some(262_144), 32768, 1520),
            (1_048_576, 4, 512, Some(131_072), 32768, 1608),
        ] {
            let mut options = FormatOptions::new(tag, [0; 16]);
            (options.block_size, options.journal_size) = (block, journal);
            options.interleave_sectors = interleave;
            let superblock = Superblock::new(size, &options).unwrap();
            assert_eq!(superblock.provided_data_sectors, provided, "{size} {tag} {block}: {superblock:?}");
        }
    }

    #[test]
    fn what_has_no_room_is_refused() {
        for (size, tag, block, interleave) in
            [(4096, 4, 512, 32768), (1 << 20, 0, 512, 32768), (1 << 20, 4, 513, 32768), (1 << 20, 4, 512, 4)]
        {
            let mut options = FormatOptions::new(tag, [0; 16]);
            (options.block_size, options.interleave_sectors) = (block, interleave);
            assert!(Superblock::new(size, &options).is_err(), "{size} {tag} {block} {interleave}");
        }
    }
}
