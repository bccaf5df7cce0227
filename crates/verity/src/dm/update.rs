//! Volumes whose data have changed: hash area and parity are brought up to date.

use casemate_blockdev::Medium;
use casemate_blockdev::target::{self, Consent, Loss};
use casemate_providers::Work;

use super::remains::with_remains;
use super::{Volume, check_above, check_unchanged, place};
use crate::tree::Ranges;
use crate::{Code, Error, ErrorKind};

impl Volume {
    /// Brings the hash area up to date after the data blocks in `changed` have changed, and all of the parity;
    /// returns the new root hash. With `old_root` the hash blocks that will change are checked against it first; with parity all
    /// blocks that have not changed are checked against the tree.
    ///
    /// # Errors
    /// `Mismatch` if they do not belong to `old_root`, or others are damaged, or without `old_root` they contradict the blocks above
    /// them, as after an update that was cut off; nothing is changed then. `Argument` without blocks that
    /// have changed; if something would be lost: the place of the parity has something else, or neither a superblock nor `old_root`
    /// tells of a hash tree. `Corrupt`, `Io`.
    pub fn update(
        &self,
        changed: &Ranges,
        old_root: Option<&[u8]>,
        work: &Work<'_>,
    ) -> Result<Vec<u8>, Error> {
        self.update_with(changed, old_root, &target::refuse, work)
    }

    /// Brings the hash area up to date as [`Volume::update`] does. `consent` is asked if something would be lost.
    ///
    /// # Errors
    /// Errors of [`Volume::update`]; whatever the consent says.
    pub fn update_with(
        &self,
        changed: &Ranges,
        old_root: Option<&[u8]>,
        consent: Consent<'_>,
        work: &Work<'_>,
    ) -> Result<Vec<u8>, Error> {
        if changed.is_empty() {
            return Err(Error::argument("no block is said to have changed"));
        }
        let medium = self.parity.as_ref().map(|parity| &parity.medium);
        let _lease = Medium::lease_all(&[&self.hash].into_iter().chain(medium).collect::<Vec<_>>())?;
        let work = &self.driven(work)?;
        let (data, hash) = (self.data.named(), self.hash.named());
        let is_told = self.layout.superblock().is_some() || old_root.is_some();
        if !is_told && self.layout.geometry().tree_blocks() > 0 {
            consent(&Loss::new(self.hash.name(), "data that nothing shows to be a hash tree")).map_err(
                |error| {
                    error.map_text(|text| format!("{text}; or give the root hash of the data as they were"))
                },
            )?;
        }
        if old_root.is_none() {
            self.ask_about_contradiction(changed, consent, work)?;
        }
        let mut parity = self.parity.clone();
        let mut there = None;
        if let Some(parity) = &mut parity {
            check_unchanged(&self.layout, &data, &hash, changed, work)
                .map_err(|error| error.at(self.data.name()))?;
            let devices = (&self.layout, &self.data, &self.hash);
            parity.settle(devices, changed, work.providers.cpu())?;
            parity.place(&self.data)?.check_room("parity")?;
            let is_there = parity.look(devices, changed, consent, work)?;
            parity.check_known()?;
            if parity.is_alone && !parity.keep_behind {
                there = match is_there {
                    true => Some(parity.layout.parity_size()),
                    false => parity.end_of_other_roots(devices, changed, work)?,
                };
            }
        }
        let root_hash = super::update(&self.layout, &data, &hash, changed, old_root, work);
        let path = self.hash.name();
        let remains = || match self.layout.superblock() {
            Some(_) => {
                format!(
                    "{path} may be changed in part, do the update again without the old root hash, and consent to what it finds"
                )
            }
            None => format!("{path} may be changed in part, format it again"),
        };
        let root_hash = root_hash.map_err(|error| with_remains(error, &self.hash, remains))?;
        if let Some(parity) = &parity {
            // Before the parity is made: whoever repeats this finds no longer file then.
            place::cut(&parity.medium, there, parity.layout.parity_size())?;
            parity.make(&self.data, &self.hash, work)?;
        }
        Ok(root_hash)
    }

    /// Asks for consent if the hash blocks that an update changes are not those that the blocks above them have digests of: what it
    /// makes of them would make damage good.
    fn ask_about_contradiction(
        &self,
        changed: &Ranges,
        consent: Consent<'_>,
        work: &Work<'_>,
    ) -> Result<(), Error> {
        let (data, hash) = (self.data.named(), self.hash.named());
        let found = match check_above(&self.layout, &data, &hash, changed, work) {
            Err(error) if error.code() == Code::BadDigest => error,
            checked => return checked.map_err(|error| error.at(self.hash.name())),
        };
        let loss = Loss::new(self.hash.name(), "a hash tree that contradicts itself");
        consent(&loss).map_err(|error| match error.kind() {
            ErrorKind::Argument => Error::coded(
                Code::BadDigest,
                format!("{}; it is damaged, or an update was cut off: {}", found.text(), error.text()),
            ),
            _ => error,
        })
    }

    /// Bytes that [`Volume::update`] will work on.
    pub fn update_size(&self, changed: &Ranges) -> u64 {
        let block_size = u64::from(self.layout.parameters().data_block_size.bytes());
        // With parity all of the data are checked first.
        let checked = self.parity.as_ref().map_or(0, |_| self.layout.geometry().data_size());
        let changed = changed.count().saturating_mul(block_size);
        changed.saturating_add(checked).saturating_add(self.parity_size())
    }
}
