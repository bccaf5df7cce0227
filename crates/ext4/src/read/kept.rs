//! Blocks of metadata that were read, kept for the next one who asks.

use std::sync::{Arc, Mutex, PoisonError};

use casemate_blockdev::usize_of;

use crate::error::Result;
use crate::units::Block;

/// Bytes of blocks that are kept at most: some thousand blocks of inodes, directories and maps.
const KEPT_BYTES: usize = 8 << 20;

/// Blocks by their numbers, each in the one slot that its number has; a block that comes takes the place of another.
///
/// Threads that look at different blocks hardly ever meet. Bytes are kept as they are on the device: who uses them checks
/// them for what they are in this place, since a damaged image may name one block for two purposes.
#[derive(Debug)]
pub(crate) struct KeptBlocks {
    slots: Box<[Mutex<Option<Kept>>]>,
}

#[derive(Debug)]
struct Kept {
    block: Block,
    bytes: Arc<[u8]>,
}

impl KeptBlocks {
    pub fn new(block_size: u32) -> KeptBlocks {
        let slots = (KEPT_BYTES / usize_of(block_size)).next_power_of_two();
        KeptBlocks { slots: (0..slots).map(|_| Mutex::default()).collect() }
    }

    /// The bytes of a block, by `read` if they are not there.
    pub fn get_or_read(&self, block: Block, read: impl FnOnce() -> Result<Vec<u8>>) -> Result<Arc<[u8]>> {
        let slot = &self.slots[self.slot(block)];
        let found = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = found.as_ref().filter(|kept| kept.block == block) {
            return Ok(Arc::clone(&kept.bytes));
        }
        // Nobody waits for the device who wants another block.
        drop(found);
        let bytes: Arc<[u8]> = read()?.into();
        let kept = Kept { block, bytes: Arc::clone(&bytes) };
        *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
        Ok(bytes)
    }

    /// Neighbours have different slots, and so have blocks at the same place of different groups, whose distances are powers
    /// of two: the multiplication spreads them.
    fn slot(&self, block: Block) -> usize {
        let spread = block.get().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        usize_of(spread >> 32) & (self.slots.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_has_its_own_bytes_and_memory_has_a_bound() {
        let kept = KeptBlocks::new(65_536);
        let bytes = |block: Block| block.get().to_le_bytes().to_vec();
        for block in (0..1000).chain((0..1000).map(|group| group << 15)).map(Block::new) {
            assert_eq!(*kept.get_or_read(block, || Ok(bytes(block))).unwrap(), bytes(block));
            let again = kept.get_or_read(block, || panic!("block {block} is read twice"));
            assert_eq!(*again.unwrap(), bytes(block));
        }
        let held = kept.slots.iter().filter(|slot| slot.lock().unwrap().is_some()).count();
        assert_eq!((held, kept.slots.len()), (128, KEPT_BYTES / 65_536));
    }

    #[test]
    fn what_could_not_be_read_is_asked_for_again() {
        let kept = KeptBlocks::new(4096);
        let error = || std::io::ErrorKind::TimedOut.into();
        assert!(kept.get_or_read(Block::new(7), || Err(error())).is_err());
        assert_eq!(*kept.get_or_read(Block::new(7), || Ok(vec![7])).unwrap(), [7]);
    }
}
