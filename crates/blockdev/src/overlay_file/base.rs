//! Proof that a device below an overlay is the one that the overlay was made over.

use std::fmt;

use super::layout::{OverlayEdition, SECTOR, STATE, SUM};
use crate::device::BlockDevice;
use crate::error::Result;

/// Checksum that stands for a sector which could not be read. All zeros stand for none at all: nothing was noted.
pub const UNREADABLE: [u8; SUM] = [0xff; SUM];

/// Proof that the device below an overlay is the one that it was made over, and has not changed.
pub trait OverlayBase: fmt::Debug + Send + Sync {
    /// At most 64 bytes that say which device `device` is, such as a digest of samples, in the way of an edition of the format.
    ///
    /// # Errors
    /// Errors of reading the device.
    fn identity(&self, device: &dyn BlockDevice, edition: OverlayEdition) -> Result<Vec<u8>>;

    /// Digest that stays the same until somebody writes to the device; `None` if nothing tells.
    ///
    /// # Errors
    /// Errors of asking for it.
    fn state(&self) -> Result<Option<[u8; STATE]>>;

    /// Whether the identity proves all that the device holds.
    fn is_constant(&self) -> bool;

    /// Whether the caller answers for a device whose state is not what it was.
    fn is_trusted(&self) -> bool;

    /// Number of the commit that has marked the device, if one has. There are no marks unless the base has a place for them.
    ///
    /// # Errors
    /// Errors of reading the mark.
    fn marked(&self) -> Result<Option<[u8; 32]>> {
        Ok(None)
    }

    /// Marks the device before a commit writes its first byte, or the rest of it, with a number that is that of this commit.
    ///
    /// # Errors
    /// Errors of marking; `Argument` if other work is unfinished on it.
    fn begin_commit(&self, _number: [u8; 32]) -> Result<()> {
        Ok(())
    }

    /// Removes the mark, once the store is empty.
    ///
    /// # Errors
    /// Errors of removing it.
    fn end_commit(&self) -> Result<()> {
        Ok(())
    }

    /// Checksums of sectors of 512 bytes, of which the last one may be shorter: 8 bytes for each.
    fn checksums(&self, sectors: &[u8]) -> Vec<u8>;
}

/// A device that never changes, by at most 64 bytes that name it.
#[derive(Clone, Debug)]
pub struct ConstantBase(pub Vec<u8>);

impl OverlayBase for ConstantBase {
    fn identity(&self, _: &dyn BlockDevice, _: OverlayEdition) -> Result<Vec<u8>> {
        Ok(self.0.clone())
    }

    fn state(&self) -> Result<Option<[u8; STATE]>> {
        Ok(None)
    }

    fn is_constant(&self) -> bool {
        true
    }

    fn is_trusted(&self) -> bool {
        false
    }

    fn checksums(&self, sectors: &[u8]) -> Vec<u8> {
        vec![0; sectors.len().div_ceil(SECTOR) * SUM]
    }
}
