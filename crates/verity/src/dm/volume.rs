//! Volumes: data with their hash area and their parity, checked.

use std::sync::Arc;

use casemate_blockdev::Medium;
use casemate_primitives::Cpu;
use casemate_providers::{Providers, Work};

use super::driver::{driven, naming};
use super::parity::{Parity, Roots};
use super::{Layout, Table, TableFec, VerityOptions};
use crate::Error;
use crate::tree::{Finding, Ranges, Summary, Verified, VerifiedDevice};

/// Data with its hash area.
#[derive(Debug)]
pub struct Volume {
    pub(super) data: Medium,
    pub(super) hash: Medium,
    pub(super) parity: Option<Parity>,
    pub(super) layout: Layout,
    driver: Option<String>,
}

impl Volume {
    /// The data with their hash area, and their parity.
    ///
    /// # Errors
    /// Errors of [`Layout::read`]; `Argument` for options that can't be, or that the superblock contradicts.
    pub fn read(data: &Medium, hash: &Medium, options: &VerityOptions) -> Result<Volume, Error> {
        let layout = options.found(data, hash)?;
        let mut parity = options.fec.as_ref().map(|fec| fec.found(&layout, data, hash)).transpose()?;
        if let Some(parity) = parity.as_mut().filter(|parity| parity.roots == Roots::Unknown) {
            // Devices that are cut off, say, are for whoever reads them.
            let _ = parity.settle((&layout, data, hash), &Ranges::new(), Cpu::detect());
        }
        let driver = options.driver.clone();
        Ok(Volume { data: data.clone(), hash: hash.clone(), parity, layout, driver })
    }

    /// The device that dm-verity makes of the data, which can't be written: every block is checked when it is read.
    /// [`VerifiedDevice::laid_on`] makes a medium of it.
    ///
    /// # Errors
    /// `Argument` for a root hash of a wrong length, data that are too short, or a driver that does not make the hash;
    /// `Mismatch` for the root hash of another tree.
    pub fn open(&self, root_hash: &[u8], providers: &Providers) -> Result<Verified, Error> {
        let (layout, data) = (&self.layout, &self.data);
        let algorithm = layout.parameters().algorithm();
        let providers = naming(providers, algorithm, self.driver.as_deref())?;
        let geometry = layout.geometry();
        if root_hash.len() != geometry.shape().digest_len() {
            let (found, right) = (root_hash.len(), geometry.shape().digest_len());
            let text = format!("the root hash has {found} bytes; digests have {right}");
            return Err(Error::argument(text));
        }
        if geometry.data_size() > data.top().size() {
            let (needed, size) = (geometry.data_size(), data.top().size());
            let text = format!("the hash tree is over {needed} bytes, and there are {size}");
            return Err(Error::argument(text).at(data.name()));
        }
        let device = Arc::new(VerifiedDevice::new(
            geometry.clone(),
            layout.parameters().salted_hash(&providers)?,
            data.device(),
            self.hash.device(),
            layout.tree_offset(),
            root_hash,
        ));
        device.check_root().map_err(|error| error.at(self.hash.name()))?;
        Ok(device)
    }

    /// Checks everything below `root_hash`; `report` hears of each wrong block.
    ///
    /// # Errors
    /// `Argument` if the root hash has a wrong length, `Corrupt` if a file is cut off, `Io`.
    pub fn verify(
        &self,
        root_hash: &[u8],
        work: &Work<'_>,
        report: &mut (dyn FnMut(Finding) -> Result<(), Error> + Send),
    ) -> Result<Summary, Error> {
        let work = &self.driven(work)?;
        super::verify(&self.layout, &self.data.named(), &self.hash.named(), root_hash, work, report)
    }

    /// Bytes of the data's file or device behind the protected blocks that the root hash says nothing of. Hash area and parity are
    /// not counted where they lie there.
    pub fn unprotected_bytes(&self) -> u64 {
        let (device, layout) = (self.data.device(), &self.layout);
        let mut behind = device.size().saturating_sub(layout.geometry().data_size());
        if self.data.is_same(&self.hash) {
            behind = behind.saturating_sub(layout.hash_device_size().saturating_sub(layout.hash_offset()));
        }
        if let Some(parity) = self.parity.as_ref().filter(|parity| self.data.is_same(&parity.medium)) {
            behind = behind.saturating_sub(parity.layout.parity_size());
        }
        behind
    }

    /// The data blocks that these bytes are part of.
    pub fn blocks_of(&self, bytes: &Ranges) -> Ranges {
        let block_size = u64::from(self.layout.parameters().data_block_size.bytes());
        bytes.iter().map(|range| range.start / block_size..range.end.div_ceil(block_size)).collect()
    }

    /// The table line that opens the device in the kernel; data, hash device and parity have these names there.
    ///
    /// # Errors
    /// `Argument` if the root hash has a wrong length.
    pub fn table<'a>(
        &'a self,
        root_hash: &'a [u8],
        data: String,
        hash: String,
        fec: String,
    ) -> Result<Table<'a>, Error> {
        let mut table = Table::new(&self.layout, root_hash, data, hash)?;
        table.fec = self.parity.as_ref().map(|Parity { layout, offset, .. }| TableFec {
            device: fec,
            roots: layout.roots(),
            blocks: layout.blocks(),
            start: offset / layout.block_size(),
        });
        Ok(table)
    }

    /// True if data and hash area lie in one file or device.
    pub fn is_in_one_device(&self) -> bool {
        self.data.is_same(&self.hash)
    }

    /// The layout of data and hash area.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Work with the driver that was named.
    pub(super) fn driven<'a>(&self, work: &Work<'a>) -> Result<Work<'a>, Error> {
        driven(work, self.layout.parameters().algorithm(), self.driver.as_deref())
    }
}
