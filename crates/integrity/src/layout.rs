//! The places of data, tags and journal on their devices.

use casemate_blockdev::usize_of;

use crate::{Error, Flags, Result, Superblock};

/// Bytes of the superblock's place.
const SUPERBLOCK: u64 = 4096;

/// Sectors of a journal's section that hold its entries.
pub(crate) const METADATA_SECTORS: u64 = 8;

/// Rounds that the marks of a journal's sections go through.
pub(crate) const ROUNDS: usize = 4;

/// The marks of the rounds, before a section's and a sector's number go in.
pub(crate) const MARKS: [u64; ROUNDS] =
    [0x1111_1111_1111_1111, 0x2222_2222_2222_2222, 0x3333_3333_3333_3333, 0x4444_4444_4444_4444];

/// Bytes of a block of the bitmap.
pub(crate) const BITMAP_BLOCK: u64 = 4096;

const SECTOR: u64 = 512;

/// Bytes of a journal's metadata sector that entries may fill, without and with a code.
const ENTRY_ROOM: u64 = 504;
const ENTRY_ROOM_WITH_MAC: u64 = 496;

/// The places of a volume's data, tags and journal, in bytes from the superblock's device's beginning or, for data on a
/// device of their own, from that one's.
#[derive(Clone, Debug)]
pub struct Layout {
    separate: bool,
    blocks: u64,
    block_size: u64,
    tag_size: u64,
    log2_blocks_per_area: u32,
    /// Bytes from the beginning to the first tags, and of the tags of each area.
    journal_end: u64,
    tag_run: u64,
    journal_sections: u64,
    entry_size: u64,
    entries_per_sector: u64,
}

impl Superblock {
    /// The places of data, tags and journal. `separate` says whether the data lie on another device than the superblock.
    ///
    /// # Errors
    /// `Corrupt` if that does not go with the superblock.
    pub fn layout(&self, separate: bool) -> Result<Layout> {
        Layout::new(self, separate)
    }
}

impl Layout {
    pub(crate) fn new(superblock: &Superblock, separate: bool) -> Result<Layout> {
        if separate != (superblock.log2_interleave_sectors == 0) {
            return Err(Error::corrupt(match separate {
                true => {
                    "dm-integrity superblock: the tags lie between the data, so the data are not on a device of their own"
                }
                false => "dm-integrity superblock: its data lie on another device, which was not given",
            }));
        }
        let log2_block = u32::from(superblock.log2_sectors_per_block);
        let (block_size, tag_size) = (SECTOR << log2_block, u64::from(superblock.tag_size));
        let blocks = superblock.provided_data_sectors >> log2_block;
        let sectors_per_block = 1u64 << log2_block;
        let entry_size = (8 + 8 * sectors_per_block + tag_size).next_multiple_of(8);
        let has_mac = superblock.flags.contains(Flags::JOURNAL_MAC);
        let entries_per_sector = if has_mac { ENTRY_ROOM_WITH_MAC } else { ENTRY_ROOM } / entry_size;
        if entries_per_sector == 0 {
            let text =
                format!("dm-integrity superblock: tags of {tag_size} bytes, which no journal has room for");
            return Err(Error::corrupt(text));
        }
        let section = (entries_per_sector * METADATA_SECTORS * sectors_per_block + METADATA_SECTORS) * SECTOR;
        // No overflow up to here and in this: 32 bits of sections of less than 4 MiB.
        let journal_end = SUPERBLOCK + section * u64::from(superblock.journal_sections);
        let log2_blocks_per_area = u32::from(superblock.log2_interleave_sectors).saturating_sub(log2_block);
        let padding = if superblock.flags.contains(Flags::FIX_PADDING) { 4096 } else { 128 << 10 };
        // At most 2^31 blocks with tags of less than 2^9 bytes.
        let tag_run = (tag_size << log2_blocks_per_area).next_multiple_of(padding);
        let layout = Layout {
            separate,
            blocks,
            block_size,
            tag_size,
            log2_blocks_per_area,
            journal_end,
            tag_run,
            journal_sections: superblock.journal_sections.into(),
            entry_size,
            entries_per_sector,
        };
        match layout.ends() {
            Some(_) => Ok(layout),
            None => Err(Error::corrupt("dm-integrity superblock: data or tags lie behind all devices")),
        }
    }

    /// The number of blocks of the volume.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The size of a block in bytes.
    pub fn block_size(&self) -> u64 {
        self.block_size
    }

    /// The length of a tag in bytes.
    pub fn tag_size(&self) -> u64 {
        self.tag_size
    }

    /// The byte that the data of a block of the volume begin at.
    pub fn data(&self, block: u64) -> u64 {
        if self.separate {
            return block * self.block_size;
        }
        let area = block >> self.log2_blocks_per_area;
        self.journal_end + (area + 1) * self.tag_run + block * self.block_size
    }

    /// The byte of a journal's section that an entry begins at.
    pub(crate) fn place(&self, entry: u64) -> usize {
        usize_of((entry % METADATA_SECTORS) * SECTOR + entry / METADATA_SECTORS * self.entry_size)
    }

    /// The byte of the superblock's device that the tag of a block of the volume begins at.
    pub fn tag(&self, block: u64) -> u64 {
        if self.separate {
            return self.journal_end + block * self.tag_size;
        }
        let (area, within) = (block >> self.log2_blocks_per_area, block & (self.blocks_per_area() - 1));
        self.journal_end
            + area * (self.tag_run + (self.block_size << self.log2_blocks_per_area))
            + within * self.tag_size
    }

    /// The number of blocks from `block` on whose data and tags lie side by side, at most `most`.
    pub(crate) fn run(&self, block: u64, most: u64) -> u64 {
        let left = self.blocks - block;
        let in_area = match self.separate {
            true => left,
            false => self.blocks_per_area() - (block & (self.blocks_per_area() - 1)),
        };
        most.min(left).min(in_area)
    }

    fn blocks_per_area(&self) -> u64 {
        1 << self.log2_blocks_per_area
    }

    /// The sizes in bytes that the data's device and the superblock's device must have; `None` if there are no such
    /// devices.
    fn ends(&self) -> Option<(u64, u64)> {
        let last = self.blocks - 1;
        if self.separate {
            let tags = self.blocks.checked_mul(self.tag_size)?.checked_add(self.journal_end)?;
            return Some((self.blocks.checked_mul(self.block_size)?, tags));
        }
        let areas = (last >> self.log2_blocks_per_area) + 1;
        let tags = areas.checked_mul(self.tag_run)?.checked_add(self.journal_end)?;
        let end = self.blocks.checked_mul(self.block_size)?.checked_add(tags)?;
        Some((end, end))
    }

    /// Checks that data and tags lie within their devices.
    pub(crate) fn check(&self, data_size: u64, meta_size: u64) -> Result<()> {
        // What `new` has computed.
        let (data, meta) = self.ends().unwrap_or((u64::MAX, u64::MAX));
        for (needed, size) in [(data, data_size), (meta, meta_size)] {
            if needed > size {
                let text = format!(
                    "dm-integrity superblock: the volume needs {needed} bytes, and the device has {size}"
                );
                return Err(Error::corrupt(text));
            }
        }
        Ok(())
    }

    pub(crate) fn sections(&self) -> u64 {
        self.journal_sections
    }

    /// The byte that a sector of a section of the journal begins at.
    pub(crate) fn journal_sector(&self, section: u64, sector: u64) -> u64 {
        SUPERBLOCK + (section * self.section_sectors() + sector) * SECTOR
    }

    pub(crate) fn section_sectors(&self) -> u64 {
        self.section_entries() * self.sectors_per_block() + METADATA_SECTORS
    }

    pub(crate) fn section_entries(&self) -> u64 {
        self.entries_per_sector * METADATA_SECTORS
    }

    pub(crate) fn sectors_per_block(&self) -> u64 {
        self.block_size / SECTOR
    }

    pub(crate) fn entry_size(&self) -> u64 {
        self.entry_size
    }

    /// Bytes of the journal.
    pub(crate) fn journal_len(&self) -> u64 {
        self.journal_end - SUPERBLOCK
    }

    /// The byte that the bitmap begins at, in the journal's place.
    pub(crate) fn bitmap(&self) -> u64 {
        SUPERBLOCK
    }
}
