//! The block of multi-mount protection: who uses the file system, and a number that counts up while somebody does.
//!
//! Source: Documentation/filesystems/ext4/mmp.rst.

use crate::error::{Place, Result};
use crate::format::bytes::array;
use crate::format::field::{Bytes, Le16, Le32, Le64};

/// Numbers above the highest that is counted to: nobody uses the file system; e2fsck does.
pub(crate) const HIGHEST: u32 = 0xe24d_4d4f;
pub(crate) const FSCK: u32 = 0xe24d_4d50;
pub(crate) const CLEAN: u32 = 0xff4d_4d50;

/// Bytes of the structure.
pub(crate) const MMP_SIZE: usize = 1024;

const MAGIC: u32 = 0x004d_4d50;

const MAGIC_AT: Le32 = Le32(0x0);
const NUMBER: Le32 = Le32(0x4);
const TIME: Le64 = Le64(0x8);
const NODE: Bytes<64> = Bytes(0x10);
const DEVICE: Bytes<32> = Bytes(0x50);
const INTERVAL: Le16 = Le16(0x70);

/// The structure, as the bytes on disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MmpBlock {
    raw: [u8; MMP_SIZE],
}

impl MmpBlock {
    /// A structure that says nothing.
    pub fn new() -> MmpBlock {
        let mut raw = [0; MMP_SIZE];
        MAGIC_AT.set(&mut raw, MAGIC);
        MmpBlock { raw }
    }

    /// The structure from the first bytes of its block.
    ///
    /// # Errors
    /// `Corrupt` at `place` when the magic number is missing.
    pub fn from_bytes(bytes: &[u8], place: Place) -> Result<MmpBlock> {
        if bytes.len() < MMP_SIZE || MAGIC_AT.get(bytes) != MAGIC {
            return Err(place.malformed("no magic number 0x4d4d50"));
        }
        Ok(MmpBlock { raw: array(bytes, 0) })
    }

    /// Sets the user of the file system, and the seconds that its number stays unchanged at most.
    pub fn set_user(&mut self, node: &[u8], device: &[u8], interval: u16) {
        NODE.set_text(&mut self.raw, node);
        DEVICE.set_text(&mut self.raw, device);
        INTERVAL.set(&mut self.raw, interval);
    }

    pub fn set_number(&mut self, number: u32) {
        NUMBER.set(&mut self.raw, number);
    }

    /// Notes when it is written, in seconds since 1970.
    pub fn set_time(&mut self, seconds: u64) {
        TIME.set(&mut self.raw, seconds);
    }

    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        &mut self.raw
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.raw
    }

    /// The number that counts up.
    pub fn number(&self) -> u32 {
        NUMBER.get(&self.raw)
    }

    /// `mmp_check_interval`, in seconds.
    pub fn interval(&self) -> u16 {
        INTERVAL.get(&self.raw)
    }

    /// The machine and the device of whoever uses the file system.
    pub fn user(&self) -> [String; 2] {
        [&NODE.get(&self.raw)[..], DEVICE.get(&self.raw)].map(|field| {
            let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
            field[..end].escape_ascii().to_string()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Structure;

    #[test]
    fn what_is_written_is_read() {
        let place = Place::of(Structure::MmpBlock);
        assert!(MmpBlock::from_bytes(&[0; MMP_SIZE], place).is_err());
        let mut block = MmpBlock::new();
        block.set_user(&[b'n'; 70], b"device", 11);
        block.set_number(12);
        block.set_time(13);
        let block = MmpBlock::from_bytes(block.as_bytes(), place).unwrap();
        assert_eq!((block.number(), block.interval(), TIME.get(&block.raw)), (12, 11, 13));
        assert_eq!(block.user(), ["n".repeat(63), "device".to_owned()]);
        assert!(MmpBlock::from_bytes(&block.raw[..1023], place).is_err());
    }
}
