//! Blocks of the file that lists orphans: inode numbers, zero where there is none, and a tail.
//!
//! Source: Documentation/filesystems/ext4/orphan.rst.

use crate::error::{Place, Result};
use crate::format::field::Le32;

/// Bytes of the tail: magic number and checksum.
const TAIL: usize = 8;

const MAGIC: u32 = 0x0b10_ca04;

/// The magic number, in the tail.
const MAGIC_AT: Le32 = Le32(0);

/// The numbers of a block of so many bytes.
pub(crate) fn numbers(block_size: usize) -> impl Iterator<Item = Le32> {
    (0..block_size - TAIL).step_by(Le32(0).end()).map(Le32)
}

/// A block of so many bytes that lists nothing; its checksum is left out.
pub(crate) fn new_bytes(block_size: usize) -> Vec<u8> {
    let mut block = vec![0; block_size];
    MAGIC_AT.from(block_size - TAIL).set(&mut block, MAGIC);
    block
}

/// Refuses what has no magic number.
///
/// # Errors
/// `Corrupt` at `place`.
pub(crate) fn check(block: &[u8], place: Place) -> Result<()> {
    if MAGIC_AT.from(block.len() - TAIL).get(block) != MAGIC {
        return Err(place.malformed("no magic number 0xb10ca04"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Structure;

    #[test]
    fn numbers_end_before_the_tail() {
        let place = Place::of(Structure::OrphanBlock);
        let mut block = vec![0; 1024];
        assert!(check(&block, place).is_err());
        MAGIC_AT.from(1016).set(&mut block, MAGIC);
        assert!(check(&block, place).is_ok());
        assert_eq!(numbers(1024).count(), 254);
        numbers(1024).for_each(|number| number.set(&mut block, u32::MAX));
        assert!(check(&block, place).is_ok() && block[1020..] == [0; 4]);
    }
}
