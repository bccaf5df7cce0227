//! dm-verity over images: making hash areas and parity, checking data against them, repairing, and bringing them up
//! to date.
//!
//! [`Image::verity_format`] makes a hash area for the device on top of an image, [`Image::verity_volume`] opens both for
//! everything else, and [`Image::verity`] lays a device on the image whose every block is checked when it is read. Hash
//! area and parity are images too: partitions, what dm-crypt decrypts, or the data's image itself (a clone of it).
//! All of the format is the crate `casemate-verity`; here its volumes become layers of images.

use casemate_providers::{Providers, Work};
use casemate_verity::dm;

pub use casemate_blockdev::Uuid;
pub use casemate_providers::Seed;
pub use casemate_verity::dm::fec::{Differences, FecDevices, FecLayout, Repaired};
pub use casemate_verity::dm::{
    BlockSize, Fec, FormatOptions, Formatted, HashType, Layout, OnFault, Parameters, PartitionUuids,
    SUPERBLOCK_SIZE, Salt, Superblock, Table, TableFec, TriedRepair, VerityOptions, Volume, is_whole_area,
    partition_uuids,
};
pub use casemate_verity::hex;

use crate::part::Part;
use crate::target::{self, Consent};
use crate::{Error, Image};

impl Image {
    /// A dm-verity device, which can't be written: every block is checked when it is read. `hash` may be a clone of this
    /// image, for a hash area that lies behind the data.
    ///
    /// # Errors
    /// Errors of [`Image::verity_volume`] and [`Volume::open`].
    pub fn verity(
        self,
        hash: &Image,
        root_hash: &[u8],
        options: &VerityOptions,
        providers: &Providers,
    ) -> Result<Image, Error> {
        let mut options = options.clone();
        // Parity is for repairs, and may be wrong.
        options.fec = None;
        let volume = self.verity_volume(hash, &options)?;
        let device = volume.open(root_hash, providers)?;
        let block = volume.layout().parameters().data_block_size.bytes();
        Ok(self.with_verity(device, block).with_root_hash(root_hash))
    }

    /// Makes a hash area for the device on top, and parity if it is wanted: see [`FormatOptions::format`].
    ///
    /// # Errors
    /// Errors of [`FormatOptions::format`]; `Argument` if something would be lost.
    pub fn verity_format(
        &self,
        hash: &Image,
        options: &FormatOptions,
        work: &Work<'_>,
    ) -> Result<Formatted, Error> {
        self.verity_format_with(hash, options, &target::refuse, work)
    }

    /// Makes a hash area as [`Image::verity_format`] does. `consent` is asked if something would be lost, unless the options
    /// give it.
    ///
    /// # Errors
    /// Errors of [`Image::verity_format`] and of the consent.
    pub fn verity_format_with(
        &self,
        hash: &Image,
        options: &FormatOptions,
        consent: Consent<'_>,
        work: &Work<'_>,
    ) -> Result<Formatted, Error> {
        self.check_settled(&work.providers)?;
        options.format(self, hash, consent, work)
    }

    /// Completes a hash area, of which the hash blocks of all parts are there ([`Image::tree_part`]; the tree begins at
    /// [`Layout::tree_offset`]), by the levels above them and the superblock. Returns the root hash.
    ///
    /// # Errors
    /// Errors of [`dm::join_on`].
    pub fn verity_join(&self, parts: &[Part<Layout>], work: &Work<'_>) -> Result<Vec<u8>, Error> {
        dm::join_on(parts, self, work)
    }

    /// Opens the image's data with its hash area, and its parity.
    ///
    /// # Errors
    /// Errors of [`Volume::read`].
    pub fn verity_volume(&self, hash: &Image, options: &VerityOptions) -> Result<Volume, Error> {
        Volume::read(self, hash, options)
    }

    /// Reads the superblock of the hash area that begins at byte `hash_offset` of the device on top.
    ///
    /// # Errors
    /// Errors of [`Layout::read`].
    pub fn verity_superblock(&self, hash_offset: u64) -> Result<Layout, Error> {
        Layout::read(self, hash_offset)
    }
}
