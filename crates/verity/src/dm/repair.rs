//! Volumes with parity: it is compared, and restores what is damaged.

use casemate_blockdev::target::{Consent, Loss};
use casemate_blockdev::{BlockDevice, Medium, Overlay};
use casemate_providers::Work;

use super::Volume;
use super::fec::{self, Differences, FecDevices, FecLayout, Repaired};
use super::parity::{Parity, Roots, other_than_parity};
use super::remains::with_remains;
use crate::Error;
use crate::tree::Ranges;

/// A repair that was tried, and of which nothing was written.
#[derive(Debug)]
#[non_exhaustive]
pub struct TriedRepair {
    /// The blocks that it would restore, and those that it can't.
    pub repaired: Repaired,
    /// Bytes that it would change.
    pub changed_bytes: u64,
}

impl Volume {
    /// Compares the parity with data and hash device; returns the numbers of the rounds that differ, and of those that can't be read.
    ///
    /// # Errors
    /// `Argument` if the volume was opened without parity, `Corrupt` if it is cut off, `Io`.
    pub fn check_parity(&self, work: &Work<'_>) -> Result<Differences, Error> {
        let (data, hash) = (self.data.named(), self.hash.named());
        self.with_parity(&data, &hash, |layout, devices| fec::check(layout, devices, work))
    }

    /// Restores damaged data and hash blocks in place.
    ///
    /// # Errors
    /// `Argument` if the volume was opened without parity, data or hash device were opened for reading, or the root hash
    /// has a wrong length; `Corrupt` if something is cut off; `Io`.
    pub fn repair(&self, root_hash: &[u8], work: &Work<'_>) -> Result<Repaired, Error> {
        let _lease = Medium::lease_all(&[&self.data, &self.hash])?;
        let work = &self.driven(work)?;
        let (data, hash) = (self.data.named(), self.hash.named());
        self.with_parity(&data, &hash, |layout, devices| {
            fec::repair(&self.layout, layout, devices, root_hash, work)
        })
    }

    /// Makes the parity again, in place, after [`Volume::repair`] has left nothing wrong and [`Volume::check_parity`] has found these
    /// rounds to differ, or that they can't be read. Returns those that still can't be. `consent` is asked if no round shows that the
    /// place holds this parity, and it is not zeros.
    ///
    /// # Errors
    /// `Argument` if the volume was opened without parity, or that for reading, or blocks are wrong of which it would be made;
    /// whatever the consent says; `Io`.
    pub fn repair_parity(
        &self,
        repaired: &Repaired,
        wrong: &Ranges,
        consent: Consent<'_>,
        work: &Work<'_>,
    ) -> Result<Ranges, Error> {
        if !repaired.left.is_clean() {
            return Err(Error::argument(
                "parity of damaged blocks would make the damage good; restore them first",
            ));
        }
        let (data, hash) = (self.data.named(), self.hash.named());
        let is_there = self.with_parity(&data, &hash, |layout, devices| {
            fec::is_in_part_there(layout, devices, wrong, work)
        })?;
        let Some(parity) = &self.parity else { return Ok(Ranges::new()) };
        let medium = &parity.medium;
        let _lease = medium.lease()?;
        if !is_there {
            // The place is looked at as that of new parity is: zeros are free in a place of their own alone.
            let place = parity.place(&self.data)?;
            let ask = |loss: &Loss| consent(&other_than_parity(loss));
            place.look_at_all(&ask, work)?;
        }
        let made = self.with_parity(&data, &hash, |layout, devices| {
            fec::encode(layout, devices, work)?;
            devices.parity.flush()?;
            fec::unreadable(layout, devices, wrong)
        });
        let remains = || format!("{} may be changed in part, do the repair again", medium.name());
        made.map_err(|error| with_remains(error, medium, remains))
    }

    /// The changes that [`Volume::repair`] would make; nothing is written.
    ///
    /// # Errors
    /// Errors of [`Volume::repair`], but for how the media were opened.
    pub fn try_repair(&self, root_hash: &[u8], work: &Work<'_>) -> Result<TriedRepair, Error> {
        let work = &self.driven(work)?;
        let (data, hash) = (Overlay::new(self.data.named()), Overlay::new(self.hash.named()));
        let repaired = self.with_parity(&data, &hash, |layout, devices| {
            fec::repair(&self.layout, layout, devices, root_hash, work)
        })?;
        let changed = data.changed_bytes().and_then(|bytes| Ok(bytes + hash.changed_bytes()?));
        Ok(TriedRepair { repaired, changed_bytes: changed.map_err(|error| Error::io("input", error))? })
    }

    /// Bytes that [`Volume::check_parity`] reads: all that the parity covers.
    pub fn parity_size(&self) -> u64 {
        self.fec_layout().map_or(0, |fec| fec.blocks().saturating_mul(fec.block_size()))
    }

    /// The layout of the parity, if the volume was opened with one.
    pub fn fec_layout(&self) -> Option<&FecLayout> {
        self.parity.as_ref().map(|parity| &parity.layout)
    }

    /// The number of roots of the parity that the volume takes, if nobody has said it, and its size should tell it and does not. It is
    /// that of some rounds of a file of its own (`true`), or the usual one because they tell none, either.
    pub fn untold_fec_roots(&self) -> Option<(u32, bool)> {
        let parity = self.parity.as_ref()?;
        match parity.roots {
            Roots::Rounds if parity.is_alone => Some((parity.layout.roots(), true)),
            // Parity that is cut off is an error of whoever reads it.
            Roots::Unknown if parity.has_room() => Some((parity.layout.roots(), false)),
            _ => None,
        }
    }

    /// The number of roots of the parity, where its size alone tells it.
    pub fn fec_roots_by_size(&self) -> Option<u32> {
        let parity = self.parity.as_ref().filter(|parity| parity.roots == Roots::Size)?;
        Some(parity.layout.roots())
    }

    /// Looks whether rounds of the parity are of another number of roots than its size tells, where nobody has said it, and takes that
    /// number; returns it then.
    ///
    /// # Errors
    /// `Argument` if data or hash device is cut off; `Io`.
    pub fn settle_fec_roots(&mut self, work: &Work<'_>) -> Result<Option<u32>, Error> {
        let Some(parity) = self.parity.as_mut().filter(|parity| parity.roots != Roots::Said) else {
            return Ok(None);
        };
        let before = parity.layout.roots();
        let devices = (&self.layout, &self.data, &self.hash);
        parity.settle(devices, &Ranges::new(), work.providers.cpu())?;
        let roots = parity.layout.roots();
        Ok((roots != before).then_some(roots))
    }

    /// The number of roots that the parity seems to have been made with, if the volume was opened with another one.
    pub fn other_fec_roots(&self) -> Option<u32> {
        let parity = self.parity.as_ref()?;
        parity.fitting.filter(|roots| *roots != parity.layout.roots())
    }

    pub(super) fn with_parity<T>(
        &self,
        data: &dyn BlockDevice,
        hash: &dyn BlockDevice,
        work: impl FnOnce(&FecLayout, &FecDevices<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let Some(Parity { medium, layout, offset, .. }) = &self.parity else {
            return Err(Error::argument("there is no device with parity"));
        };
        let parity = medium.named();
        work(layout, &FecDevices { data, hash, parity: &parity, parity_offset: *offset })
    }
}
