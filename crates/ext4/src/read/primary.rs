//! The superblock that counts, which a loss of power may have torn.
//!
//! It lies on two sectors of 512 bytes: what it says of the journal (`s_feature_incompat`) and whether it is clean
//! (`s_state`) on the first, its checksum on the second. Where only one of the two was written when such a mark was set
//! or cleared, the checksum is that of the other mark. Both were true when the power failed, so the one that fits is
//! taken. The kernel and e2fsprogs call such a superblock damaged.

use casemate_blockdev::{BlockDevice, u64_of};
use casemate_primitives::crc32c::Crc32c;

use crate::error::{Place, Result, Structure};
use crate::format::csum::{Checksums, Context, Subject};
use crate::format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock, SuperblockMut};

/// The file system's own superblock, with the mark that its checksum is of.
pub(crate) fn read_primary(device: &dyn BlockDevice, crc: Crc32c) -> Result<Superblock> {
    let found = read_superblock(device, SUPERBLOCK_OFFSET)?;
    if is_whole(&found, crc) {
        return Ok(found);
    }
    let other_marks: [fn(&Superblock, SuperblockMut<'_>); 2] = [
        |found, mut other| other.set_needs_recovery(!found.needs_recovery()),
        |found, mut other| other.set_clean(!found.is_clean()),
    ];
    for set_mark in other_marks {
        let mut raw = *found.as_bytes();
        set_mark(&found, SuperblockMut { raw: &mut raw });
        match Superblock::from_bytes(&raw) {
            Ok(other) if is_whole(&other, crc) => return Ok(other),
            _ => {}
        }
    }
    Ok(found)
}

/// The superblock at a byte of the device.
pub(crate) fn read_superblock(device: &dyn BlockDevice, offset: u64) -> Result<Superblock> {
    let mut raw = [0; SUPERBLOCK_SIZE];
    if device.size() < offset.saturating_add(u64_of(SUPERBLOCK_SIZE)) {
        return Err(Place::of(Structure::Superblock).malformed("the device is too short to hold one"));
    }
    device.read_at(&mut raw, offset)?;
    Superblock::from_bytes(&raw)
}

/// Whether a superblock's checksum is right, or it has none.
pub(crate) fn is_whole(superblock: &Superblock, crc: Crc32c) -> bool {
    let raw = &superblock.as_bytes()[..];
    Checksums::new(crc, superblock).is_ok_and(|checksums| {
        let place = Place::of(Structure::Superblock);
        checksums.verify(Subject::Superblock, &Context::default(), raw, place).is_ok()
    })
}

/// Writes a superblock that was torn as it should be.
pub(crate) fn mend(device: &dyn BlockDevice, crc: Crc32c) -> Result<()> {
    let found = read_superblock(device, SUPERBLOCK_OFFSET)?;
    let primary = read_primary(device, crc)?;
    if found.as_bytes() != primary.as_bytes() {
        device.write_at(primary.as_bytes(), SUPERBLOCK_OFFSET)?;
        device.flush()?;
    }
    Ok(())
}
