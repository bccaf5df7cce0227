//! New volumes: superblock, an empty journal, data and their tags, as the kernel would make and fill them.

use std::io::Read;
use std::sync::{Mutex, PoisonError};

use casemate_blockdev::{BlockDevice, u64_of, usize_of};
use casemate_providers::Work;

use crate::journal::empty_section;
use crate::seal::no_code;
use crate::{BlockGuard, Error, Flags, JournalSeal, Layout, Result, Superblock};

/// Bytes that a thread tags and writes at once.
const PIECE: u64 = 1 << 20;

/// Sectors of a new journal where nothing is said: a 128th of the device, at most these.
const MOST_JOURNAL_SECTORS: u64 = 131_072;

/// Sectors of the journal of a volume whose size is not known when it is begun: that of one of 512 MiB.
const STREAM_JOURNAL_SECTORS: u64 = 8192;

/// Sectors of a volume are a multiple of these.
const GRAIN: u64 = 8;

/// Sectors of a volume at most, as the kernel counts them.
const MOST_SECTORS: u64 = 1 << 53;

/// The base-2 logarithm of the sectors that a bit of the bitmap stands for, where they are few enough.
const LOG2_BITMAP_SECTORS: u8 = 15;

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
    /// Whether the journal has codes under a key, which the guard makes.
    pub has_journal_code: bool,
    /// The salt.
    pub salt: [u8; 16],
}

impl FormatOptions {
    /// As integritysetup takes them: sectors of 512 bytes, tags after each 16 MiB.
    pub fn new(tag_size: u16, salt: [u8; 16]) -> FormatOptions {
        FormatOptions {
            block_size: 512,
            tag_size,
            journal_size: None,
            interleave_sectors: 1 << 15,
            has_journal_code: false,
            salt,
        }
    }
}

impl Superblock {
    /// The superblock of a new volume that fills a device of `size` bytes.
    ///
    /// # Errors
    /// `Argument` for sizes that are none, and for a device that has no room.
    pub fn new(size: u64, options: &FormatOptions) -> Result<Superblock> {
        let default = (size / 512 / 128).min(MOST_JOURNAL_SECTORS);
        let mut superblock = Superblock::without_data(options, default)?;
        // The most that fits, as the kernel finds it: bit by bit, down to eight sectors.
        let mut sectors = 0;
        for bit in (GRAIN.trailing_zeros()..54).rev() {
            superblock.provided_data_sectors = sectors | 1 << bit;
            if superblock.layout(false).is_ok_and(|layout| layout.check(size, size).is_ok()) {
                sectors = superblock.provided_data_sectors;
            }
        }
        if sectors == 0 {
            let text = format!("{size} bytes are too few for a volume with its journal and tags");
            return Err(Error::argument(text));
        }
        superblock.set_data(sectors)?;
        Ok(superblock)
    }

    /// The superblock of a volume that takes as many data as there will be: those of [`format_stream`].
    ///
    /// # Errors
    /// `Argument` for sizes that are none.
    pub fn for_stream(options: &FormatOptions) -> Result<Superblock> {
        let superblock = Superblock::without_data(options, STREAM_JOURNAL_SECTORS)?;
        Ok(Superblock { provided_data_sectors: MOST_SECTORS, ..superblock })
    }

    /// A superblock with all numbers but those that follow from how many data there are.
    fn without_data(options: &FormatOptions, journal_sectors: u64) -> Result<Superblock> {
        let FormatOptions { block_size, tag_size, interleave_sectors, salt, .. } = *options;
        let refuse = |text: String| Err(Error::argument(text));
        let log2 = |number: u32| u8::try_from(number.trailing_zeros()).unwrap_or(u8::MAX);
        if !block_size.is_power_of_two() || !(512..=4096).contains(&block_size) {
            return refuse(format!("blocks of {block_size} bytes: they have 512, 1024, 2048 or 4096"));
        }
        if !interleave_sectors.is_power_of_two() || interleave_sectors < 8 {
            return refuse(format!(
                "tags after each {interleave_sectors} sectors: a power of two from 8 to 2^31"
            ));
        }
        let mut superblock = Superblock {
            version: 5,
            log2_interleave_sectors: log2(interleave_sectors),
            tag_size,
            journal_sections: 1,
            provided_data_sectors: GRAIN,
            flags: match options.has_journal_code {
                true => Flags::FIX_PADDING.with(Flags::FIX_HMAC).with(Flags::JOURNAL_MAC),
                false => Flags::FIX_PADDING.with(Flags::FIX_HMAC),
            },
            log2_sectors_per_block: log2(block_size / 512),
            log2_blocks_per_bitmap_bit: 0,
            recalc_sector: 0,
            salt,
        };
        let checked = Superblock::from_bytes(&superblock.to_bytes());
        let layout = checked.and_then(|superblock| superblock.layout(false));
        let layout = layout.map_err(|error| Error::argument(error.text().into_owned()))?;
        let journal_sectors = options.journal_size.map_or(journal_sectors, |size| size / 512);
        let sections = (journal_sectors / layout.section_sectors()).max(1);
        let Ok(sections) = u32::try_from(sections) else {
            return refuse(format!("a journal of {journal_sectors} sectors is too large"));
        };
        superblock.journal_sections = sections;
        Ok(superblock)
    }

    /// Notes how many sectors of data there are, and with it how many a bit of the bitmap stands for.
    fn set_data(&mut self, sectors: u64) -> Result<()> {
        self.provided_data_sectors = sectors;
        let layout = self.layout(false)?;
        let mut log2 = LOG2_BITMAP_SECTORS;
        while sectors.div_ceil(1 << log2) > layout.journal_len() * 8 {
            log2 += 1;
        }
        self.log2_blocks_per_bitmap_bit = log2 - self.log2_sectors_per_block;
        Ok(())
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
    from: Option<&mut dyn Read>,
    work: &Work<'_>,
) -> Result<()> {
    fill(device, superblock, guard, from, false, work)?;
    finish(device, superblock, guard)
}

/// Makes a volume that is as long as the data of a stream, with zeros behind them up to 4096 bytes. `superblock` is one
/// [for a stream](Superblock::for_stream), and `device` grows by being written. Returns the superblock that was written.
///
/// # Errors
/// `Argument` if no data come, or more than a volume has; `Io`.
pub fn format_stream(
    device: &dyn BlockDevice,
    superblock: &Superblock,
    guard: &dyn BlockGuard,
    from: &mut dyn Read,
    work: &Work<'_>,
) -> Result<Superblock> {
    let size = fill(device, superblock, guard, Some(from), true, work)?;
    if size == 0 {
        return Err(Error::argument("no data came, and a volume has at least 4096 bytes of data"));
    }
    let mut superblock = superblock.clone();
    superblock.set_data(size / 512)?;
    finish(device, &superblock, guard)?;
    Ok(superblock)
}

fn finish(device: &dyn BlockDevice, superblock: &Superblock, guard: &dyn BlockGuard) -> Result<()> {
    device.flush()?;
    write_superblock(device, superblock, guard.journal())?;
    device.flush()
}

/// Writes a superblock, with its code if it has one.
pub(crate) fn write_superblock(
    device: &dyn BlockDevice,
    superblock: &Superblock,
    seal: Option<&JournalSeal>,
) -> Result<()> {
    let mut bytes = superblock.to_bytes();
    if let Some(seal) = seal {
        seal.close_superblock(&mut bytes);
    }
    device.write_at(&bytes, 0)
}

/// Writes everything but the superblock. Returns the bytes of the data, which are fewer than there is room for where the
/// volume ends with the stream.
fn fill(
    device: &dyn BlockDevice,
    superblock: &Superblock,
    guard: &dyn BlockGuard,
    mut from: Option<&mut dyn Read>,
    ends_with_stream: bool,
    work: &Work<'_>,
) -> Result<u64> {
    let layout = superblock.layout(false)?;
    layout.check(device.size(), device.size())?;
    if superblock.flags.contains(Flags::JOURNAL_MAC) && guard.journal().is_none() {
        return Err(no_code());
    }
    device.write_zeroes(0, 4096, false)?;
    device.flush()?;
    for section in 0..layout.sections() {
        let empty = empty_section(&layout, guard.journal(), section)?;
        device.write_at(&empty, layout.journal_sector(section, 0))?;
    }
    let (mut size, threads) = (layout.blocks() * layout.block_size(), work.pool.threads());
    let mut buffers: Vec<Mutex<(Vec<u8>, Vec<u8>)>> = Vec::new();
    buffers.resize_with(threads, Mutex::default);
    let mut start = 0;
    while start < size {
        // As many pieces at once as there are threads.
        let (mut pieces, mut len) = (0, 0);
        for buffer in &mut buffers {
            let (data, _) = buffer.get_mut().unwrap_or_else(PoisonError::into_inner);
            // At most a MiB.
            data.resize(usize_of(PIECE.min(size - start - len)), 0);
            let read = from.as_mut().map_or(Ok(0), |from| read_full(*from, data))?;
            data[read..].fill(0);
            if read < data.len() {
                from = None;
                if ends_with_stream {
                    data.truncate(read.next_multiple_of(usize_of(GRAIN) * 512));
                    size = start + len + u64_of(data.len());
                }
            }
            pieces += u64::from(!data.is_empty());
            len += u64_of(data.len());
        }
        work.pool.run(
            pieces,
            || (),
            |(), piece| {
                let mut buffer = buffers[usize_of(piece)].lock().unwrap_or_else(PoisonError::into_inner);
                let (data, tags) = &mut *buffer;
                write(device, &layout, guard, (start + piece * PIECE) / layout.block_size(), data, tags)?;
                work.events.advance(u64_of(data.len()))
            },
        )?;
        start += len;
    }
    if let Some(from) = from {
        let mut more = [0];
        if read_full(from, &mut more)? > 0 {
            return Err(Error::argument(format!("there are more data than the {size} bytes of the volume")));
        }
    }
    Ok(size)
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
    let (size, tag_size) = (usize_of(layout.block_size()), usize_of(layout.tag_size()));
    while !data.is_empty() {
        let count = usize_of(layout.run(block, u64_of(data.len() / size)));
        let (now, rest) = data.split_at_mut(count * size);
        tags.resize(count * tag_size, 0);
        guard.seal(block, now, tags)?;
        match now.iter().all(|byte| *byte == 0) {
            true => device.write_zeroes(layout.data(block), u64_of(now.len()), true)?,
            false => device.write_at(now, layout.data(block))?,
        }
        device.write_at(tags, layout.tag(block))?;
        block += u64_of(count);
        data = rest;
    }
    Ok(())
}

/// Reads until a buffer is full, or there is no more.
fn read_full(from: &mut dyn Read, buffer: &mut [u8]) -> Result<usize> {
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
    use casemate_blockdev::MemoryDevice;

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

    /// A volume that grew with its data is the one that a kernel would have made with that journal, for all lengths around
    /// those of pieces and areas.
    #[test]
    fn a_stream_makes_the_volume_of_its_length() {
        for (len, interleave, journal) in [
            (1, 64, None),
            (4096, 64, Some(4096)),
            (3 << 20, 512, Some(4096)),
            ((3 << 20) - 5, 32768, Some(8192)),
        ] {
            let mut options = FormatOptions::new(4, [5; 16]);
            (options.journal_size, options.interleave_sectors) = (journal, interleave);
            let data: Vec<u8> = (0..len).map(|at: u32| (at % 251) as u8 + 1).collect();
            let superblock = Superblock::for_stream(&options).unwrap();
            let work = Work::default();
            let tagger =
                |superblock| crate::Tagger::new("crc32c", None, superblock, &work.providers).unwrap();
            // Longer than the volume will be.
            let stream = MemoryDevice::new(vec![0; 32 << 20]);
            let whole = Unbounded(&stream);
            let made =
                format_stream(&whole, &superblock, &tagger(&superblock), &mut &data[..], &work).unwrap();
            let size = u64::from(len).next_multiple_of(4096);
            assert_eq!(made.provided_data_sectors * 512, size);
            let mut known = options.clone();
            known.journal_size = Some(journal.unwrap_or(STREAM_JOURNAL_SECTORS * 512));
            let end = made.layout(false).unwrap().data(size / 512 - 1) + 512;
            assert_eq!(Superblock::new(end, &known).unwrap(), made, "{len}");
            let other = MemoryDevice::new(vec![0; 32 << 20]);
            format(&other, &made, &tagger(&made), Some(&mut &data[..]), &work).unwrap();
            assert!(stream.into_bytes() == other.into_bytes(), "{len}");
        }
        let superblock = Superblock::for_stream(&FormatOptions::new(4, [0; 16])).unwrap();
        let (disk, work) = (MemoryDevice::new(vec![0; 8 << 20]), Work::default());
        let tagger = crate::Tagger::new("crc32c", None, &superblock, &work.providers).unwrap();
        let refused = format_stream(&Unbounded(&disk), &superblock, &tagger, &mut &[][..], &work);
        assert!(refused.unwrap_err().to_string().contains("no data came"));
    }

    /// A device that has room for everything.
    #[derive(Debug)]
    struct Unbounded<'a>(&'a MemoryDevice);

    impl BlockDevice for Unbounded<'_> {
        fn below(&self) -> Option<&dyn BlockDevice> {
            Some(self.0)
        }
        fn size(&self) -> u64 {
            u64::MAX
        }
        fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
            self.0.read_at(buf, offset)
        }
        fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
            self.0.write_at(buf, offset)
        }
        fn flush(&self) -> Result<()> {
            Ok(())
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
