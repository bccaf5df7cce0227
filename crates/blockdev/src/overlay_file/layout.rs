//! Places in the file of an overlay, and its header (docs/formats/overlay.md).

use crate::error::{Error, Result};
use crate::partition::crc32;
use crate::u64_of;

pub(super) const MAGIC: &[u8; 16] = b"casemate overlay";
pub(super) const HEADER: usize = 4096;
/// The longest identity of a device below.
pub(super) const BASE: usize = 64;
/// Where the identity lies in the header.
pub(super) const IDENTITY: usize = 40;
/// Bytes of the number of a commit.
pub(super) const NUMBER: usize = 32;
/// Where this lies in the header, with a checksum of its own behind it.
const NUMBER_AT: usize = 256;
/// Bytes of a sector, which is old or new after a power failure, and has a checksum.
pub(super) const SECTOR: usize = 512;
/// Bytes of a state of the device below, of which all zeros say that there is none.
pub const STATE: usize = 32;
/// Bytes of a checksum.
pub const SUM: usize = 8;
/// Bytes of the checksums of a block.
pub(super) const SUMS: usize = 4096 / SECTOR * SUM;
/// The bitmap is written in parts of so many bytes.
pub(super) const PART: usize = 4096;
/// Words of a part, each with the bits of 64 blocks.
pub(super) const PART_WORDS: usize = PART / 8;

/// Edition of an overlay's format, which has two versions: one to be used, and one for the time of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverlayEdition {
    /// Versions 1 and 2, without a state and checksums of the device below.
    First,
    /// Versions 3 and 4.
    Second,
}

/// Contents of a header, besides sizes.
#[derive(Clone, Copy)]
pub(super) struct Head {
    /// Whether a commit has begun.
    pub is_committed: bool,
    pub identity: [u8; BASE],
    pub state: Option<[u8; STATE]>,
    /// Random number of the commit that has begun, or will next.
    pub number: Option<[u8; NUMBER]>,
}

/// Number of a commit in the bytes of a header, if it has one: earlier versions write none.
pub(super) fn number(header: &[u8; HEADER]) -> Option<[u8; NUMBER]> {
    let number: [u8; NUMBER] = header[NUMBER_AT..][..NUMBER].try_into().expect("as many bytes");
    let is_right = header[NUMBER_AT + NUMBER..][..4] == crc32(&number).to_le_bytes();
    (number != [0; NUMBER] && is_right).then_some(number)
}

/// Places in a store.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub edition: OverlayEdition,
    pub size: u64,
    /// Bytes of the bitmap.
    pub bitmap: u64,
    /// Where the checksums of what lies below the blocks begin, if there are any.
    pub sums_start: Option<u64>,
    /// Where the blocks begin, at a whole block.
    pub data_start: u64,
}

impl Layout {
    pub fn new(edition: OverlayEdition, size: u64) -> Result<Layout> {
        // Positions in files end at 2^63.
        if size == 0 || size > 1 << 62 {
            let text = format!("an overlay can't be made for a device of {size} bytes");
            return Err(Error::argument(text));
        }
        let blocks = size.div_ceil(4096);
        let bitmap = blocks.div_ceil(8).next_multiple_of(4096);
        let behind = u64_of(HEADER) + bitmap;
        let (sums_start, data_start) = match edition {
            OverlayEdition::First => (None, behind),
            OverlayEdition::Second => (Some(behind), behind + (blocks * u64_of(SUMS)).next_multiple_of(4096)),
        };
        Ok(Layout { edition, size, bitmap, sums_start, data_start })
    }

    /// How many bytes of the header its checksum covers.
    pub fn checked(&self) -> usize {
        match self.edition {
            OverlayEdition::First => IDENTITY + BASE,
            OverlayEdition::Second => IDENTITY + BASE + STATE,
        }
    }

    /// The bytes of a header.
    pub fn header(&self, head: &Head) -> [u8; HEADER] {
        let version = match self.edition {
            OverlayEdition::First => 1u32,
            OverlayEdition::Second => 3,
        } + u32::from(head.is_committed);
        let mut header = [0; HEADER];
        header[..16].copy_from_slice(MAGIC);
        header[16..20].copy_from_slice(&version.to_le_bytes());
        header[20..24].copy_from_slice(&4096u32.to_le_bytes());
        header[24..32].copy_from_slice(&self.size.to_le_bytes());
        header[32..40].copy_from_slice(&self.data_start.to_le_bytes());
        header[IDENTITY..][..BASE].copy_from_slice(&head.identity);
        if self.edition == OverlayEdition::Second {
            header[IDENTITY + BASE..][..STATE].copy_from_slice(&head.state.unwrap_or_default());
        }
        let checked = self.checked();
        let crc = crc32(&header[..checked]);
        header[checked..checked + 4].copy_from_slice(&crc.to_le_bytes());
        if let Some(number) = &head.number {
            header[NUMBER_AT..][..NUMBER].copy_from_slice(number);
            header[NUMBER_AT + NUMBER..][..4].copy_from_slice(&crc32(number).to_le_bytes());
        }
        header
    }
}
