//! The superblock: 512 bytes, of which the first 64 say something; numbers are little-endian.

use std::fmt;

use crate::{Code, Error, Result};

const MAGIC: &[u8; 8] = b"integrt\0";

/// Bytes of a superblock that are read.
pub const LEN: usize = 512;

/// The largest tag in bytes: what an entry of the journal has room for.
const LARGEST_TAG: u16 = 424;

/// The superblock of a dm-integrity volume.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Superblock {
    /// The version: 1 to 5, the lowest that has all flags.
    pub version: u8,
    /// The base-2 logarithm of the sectors of data between two runs of tags; 0 where tags lie on a device of their own.
    pub log2_interleave_sectors: u8,
    /// The length of a tag in bytes.
    pub tag_size: u16,
    /// The number of sections of the journal.
    pub journal_sections: u32,
    /// The size of the volume in sectors of 512 bytes.
    pub provided_data_sectors: u64,
    /// Features and state of the volume.
    pub flags: Flags,
    /// The base-2 logarithm of the sectors of 512 bytes in a block.
    pub log2_sectors_per_block: u8,
    /// The base-2 logarithm of the blocks that a bit of the bitmap stands for.
    pub log2_blocks_per_bitmap_bit: u8,
    /// The first sector of 512 bytes whose tag was not computed yet, while tags are being recalculated.
    pub recalc_sector: u64,
    /// The salt, which tags are made with if [`Flags::FIX_HMAC`] is set.
    pub salt: [u8; 16],
}

/// Flags of a superblock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Flags(u32);

impl Flags {
    /// The journal's sections have codes under a key.
    pub const JOURNAL_MAC: Flags = Flags(1);
    /// Tags are being computed.
    pub const RECALCULATING: Flags = Flags(2);
    /// The bitmap says which tags may be old.
    pub const DIRTY_BITMAP: Flags = Flags(4);
    /// Runs of tags end at multiples of 4096 bytes, not of 128 KiB.
    pub const FIX_PADDING: Flags = Flags(8);
    /// Tags are made with the salt.
    pub const FIX_HMAC: Flags = Flags(16);
    /// Tags lie in metadata of the device's own sectors.
    pub const INLINE: Flags = Flags(32);

    const NAMES: [(Flags, &str); 6] = [
        (Flags::JOURNAL_MAC, "have_journal_mac"),
        (Flags::RECALCULATING, "recalculating"),
        (Flags::DIRTY_BITMAP, "dirty_bitmap"),
        (Flags::FIX_PADDING, "fix_padding"),
        (Flags::FIX_HMAC, "fix_hmac"),
        (Flags::INLINE, "inline"),
    ];

    /// Whether all flags of `other` are set.
    pub fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// These flags and others.
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// These flags but for others.
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }

    /// The names of the flags that are set, as integritysetup prints them.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Flags::NAMES.into_iter().filter(move |(flag, _)| self.contains(*flag)).map(|(_, name)| name)
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Flags({:#x}: {})", self.0, self.names().collect::<Vec<_>>().join(" "))
    }
}

impl Superblock {
    /// The superblock that these bytes begin with; at least 64 are needed.
    ///
    /// # Errors
    /// `Corrupt` if it is none, or its numbers make no sense; `Unsupported` for versions and flags that are not known.
    pub fn from_bytes(bytes: &[u8]) -> Result<Superblock> {
        let wrong = |what: String| Error::corrupt(format!("dm-integrity superblock: {what}"));
        let Some(bytes) = bytes.first_chunk::<64>().filter(|bytes| bytes.starts_with(MAGIC)) else {
            return Err(Error::coded(
                Code::NotThisFormat,
                "dm-integrity superblock: not found: the data do not begin with \"integrt\"",
            ));
        };
        // OK to unwrap: of constant places.
        let u16_at = |at: usize| u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap());
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let superblock = Superblock {
            version: bytes[8],
            log2_interleave_sectors: bytes[9],
            tag_size: u16_at(10),
            journal_sections: u32_at(12),
            provided_data_sectors: u64_at(16),
            flags: Flags(u32_at(24)),
            log2_sectors_per_block: bytes[28],
            log2_blocks_per_bitmap_bit: bytes[29],
            recalc_sector: u64_at(32),
            salt: bytes[48..64].try_into().unwrap(),
        };
        let Superblock { version, tag_size, flags, log2_sectors_per_block: log2_block, .. } = superblock;
        if flags.contains(Flags::INLINE) {
            return Err(Error::unsupported(
                "dm-integrity with tags inside the device's sectors (inline mode)",
            ));
        }
        if !(1..=5).contains(&version) || flags.0 >= 64 {
            let text = format!("dm-integrity superblock of version {version} with flags {:#x}", flags.0);
            return Err(Error::unsupported(text));
        }
        if log2_block > 3 {
            return Err(wrong(format!("blocks of 2^{log2_block} sectors")));
        }
        if !(1..=LARGEST_TAG).contains(&tag_size) {
            return Err(wrong(format!("tags of {tag_size} bytes")));
        }
        if superblock.journal_sections == 0 {
            return Err(wrong("the journal has no sections".to_owned()));
        }
        let sectors = superblock.provided_data_sectors;
        if sectors == 0 || !sectors.is_multiple_of(1 << log2_block) || sectors > u64::MAX >> 10 {
            return Err(wrong(format!("{sectors} sectors of data in blocks of {}", 1 << log2_block)));
        }
        let interleave = superblock.log2_interleave_sectors;
        if interleave != 0 && !(3..=31).contains(&interleave) {
            return Err(wrong(format!("tags after each 2^{interleave} sectors")));
        }
        Ok(superblock)
    }

    /// The 512 bytes of the superblock, as they are written.
    pub fn to_bytes(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..10].copy_from_slice(&[self.version, self.log2_interleave_sectors]);
        bytes[10..12].copy_from_slice(&self.tag_size.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.journal_sections.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.provided_data_sectors.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.flags.0.to_le_bytes());
        bytes[28..30].copy_from_slice(&[self.log2_sectors_per_block, self.log2_blocks_per_bitmap_bit]);
        bytes[32..40].copy_from_slice(&self.recalc_sector.to_le_bytes());
        bytes[48..64].copy_from_slice(&self.salt);
        bytes
    }

    /// The bit of the bitmap that stands for a block.
    pub(crate) fn bit_of(&self, block: u64) -> u64 {
        block.checked_shr(self.log2_blocks_per_bitmap_bit.into()).unwrap_or(0)
    }

    /// The size of a block in bytes.
    pub fn block_size(&self) -> u32 {
        512 << self.log2_sectors_per_block
    }

    /// The superblock as `integritysetup dump` prints it, behind the name of the device.
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "superblock_version {}\nlog2_interleave_sectors {}\nintegrity_tag_size {}\njournal_sections {}\n\
             provided_data_sectors {}\nsector_size {}\n",
            self.version,
            self.log2_interleave_sectors,
            self.tag_size,
            self.journal_sections,
            self.provided_data_sectors,
            self.block_size(),
        );
        if self.version >= 2 && self.flags.contains(Flags::RECALCULATING) {
            text += &format!("recalc_sector {}\n", self.recalc_sector);
        }
        text += &format!("log2_blocks_per_bitmap {}\nflags ", self.log2_blocks_per_bitmap_bit);
        for name in self.flags.names() {
            text += name;
            text.push(' ');
        }
        text.push('\n');
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn sample() -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..16].copy_from_slice(&[5, 15, 32, 0, 1, 0, 0, 0]);
        bytes[16..24].copy_from_slice(&1952u64.to_le_bytes());
        bytes[24] = 0x18;
        bytes[29] = 15;
        bytes
    }

    #[test]
    fn numbers_that_make_no_sense_are_refused() {
        let superblock = Superblock::from_bytes(&sample()).unwrap();
        assert_eq!(superblock.to_bytes()[..64], sample());
        for (at, value) in [(0, 0), (8, 0), (8, 7), (9, 1), (9, 2), (9, 32), (11, 2), (12, 0), (23, 0x40)] {
            let mut bytes = sample();
            bytes[at] = value;
            assert!(Superblock::from_bytes(&bytes).is_err(), "{at} {value}");
        }
        for (at, value) in [(10, 0), (24, 0x20), (24, 0x40), (28, 4), (16, 0)] {
            let mut bytes = sample();
            bytes[at] = value;
            bytes[17] = if at == 16 { 0 } else { bytes[17] };
            assert!(Superblock::from_bytes(&bytes).is_err(), "{at} {value}");
        }
        assert!(Superblock::from_bytes(&sample()[..63]).is_err());
    }
}
