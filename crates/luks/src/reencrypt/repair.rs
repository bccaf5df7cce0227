//! A reencryption that was cut off, checked and protected, without going on with it.

use crate::Header;
use crate::luks2::reencrypt::State;
use casemate_blockdev::{AtFile, Medium};
use casemate_providers::Work;

use super::sides::{self, Keys};
use crate::Error;
use crate::backup;
use crate::digest::new_digest;
use crate::locks::HeaderLock;
use crate::random::Source;
use crate::unlock::Budget;
use crate::{LuksKey, LuksOptions, Volume};

/// State of a reencryption that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReencryptionState {
    /// Nothing proves that somebody who has the keys has written what the header says of it.
    Unproven,
    /// It was stopped between two of its steps.
    Clean,
    /// It was cut off while a part of the data was rewritten.
    CutOff,
    /// The header alone is there: how the data stand, which lie elsewhere, is not known.
    HeaderAlone,
}

impl Volume {
    /// The state of the reencryption that goes on, if one does.
    ///
    /// # Errors
    /// `Corrupt` for one that contradicts itself; `Unsupported` for one that only cryptsetup can go on with.
    pub fn reencryption_state(&self) -> Result<Option<ReencryptionState>, Error> {
        let Header::Luks2(header) = &self.header else { return Ok(None) };
        let state = || {
            if header.metadata.unproven_reencryption()?.is_some() {
                return Ok(Some(ReencryptionState::Unproven));
            }
            if self.is_header_alone() {
                return Ok(Some(ReencryptionState::HeaderAlone));
            }
            let Some(course) = self.reencryption()? else { return Ok(None) };
            let parts = course.parts(self.data.top().size())?;
            let is_hot = parts.iter().any(|part| part.state == State::Hot);
            Ok(Some(if is_hot { ReencryptionState::CutOff } else { ReencryptionState::Clean }))
        };
        state().map_err(|error: Error| error.at(self.header_image.name()))
    }

    /// Gives a reencryption that nothing proves a digest, which from now on proves it as it is. The key must open the data
    /// before and after.
    ///
    /// # Errors
    /// `Mismatch` for a wrong key; `Argument` if there is none that needs it, or the image was opened for reading; `Busy` if
    /// somebody else is at it; `Io`.
    pub fn protect_reencryption(
        &mut self,
        key: &LuksKey,
        options: &LuksOptions,
        work: &Work<'_>,
    ) -> Result<(), Error> {
        self.header_image.check_writable()?;
        let _lease = self.header_image.lease_bytes(0..backup::len(&self.header))?;
        let _lock = self.claim_reencryption()?;
        self.check_policy(options.policy.as_ref(), &work.providers)?;
        let (image, size) = (&self.header_image, self.data.top().size());
        let Header::Luks2(header) = &mut self.header else { return Err(Error::unsupported("LUKS1")) };
        let mut protect = || {
            let course = header.metadata.unproven_reencryption()?;
            let course = course.ok_or_else(|| Error::argument("no reencryption needs to be protected"))?;
            // What no reencryption comes to is not protected.
            course.parts(size)?;
            let mut budget = Budget::new(options.limits);
            let (keys, _) =
                sides::keys_of(header, image.top(), &course, false, key, options, &mut budget, work)?;
            sides::refuse_null(&course, &keys)?;
            let [old, new] = keys.refs();
            let message = course.message(old, new);
            let slots = [course.keyslot];
            let digest = new_digest(&message, "sha256", &slots, &mut Source::System, &work.providers)?;
            let proven = course.proven(&header.metadata, &digest)?;
            let _claim = HeaderLock::of(image).take()?;
            header.check_unchanged(image.top())?;
            header.metadata = proven;
            header.write(image.top(), &work.providers, &mut |bytes| Source::System.fill(bytes))
        };
        protect().at(image.name())
    }

    /// Checks that somebody who has the keys has written what the header says of the reencryption, and that the key opens
    /// the data before and after. With `recover` what was being rewritten when it was cut off is finished.
    ///
    /// # Errors
    /// `Mismatch` for a wrong key, `Corrupt` if the metadata are not proven; `Busy` if somebody else is at it; those of writing.
    pub fn check_reencryption(
        &mut self,
        key: &LuksKey,
        options: &LuksOptions,
        recover: bool,
        work: &Work<'_>,
    ) -> Result<(), Error> {
        let images = [&self.header_image, &self.data];
        let _lease = recover.then(|| Medium::lease_all(&images)).transpose()?;
        let _lock = self.claim_reencryption()?;
        self.check_policy(options.policy.as_ref(), &work.providers)?;
        let (name, data) = (self.header_image.name().to_owned(), self.data.clone());
        let mut check = || {
            let Some(course) = self.reencryption()? else { return Ok(()) };
            let Header::Luks2(header) = &self.header else { return Err(Error::unsupported("LUKS1")) };
            // What is finished loses nothing behind a window.
            super::length::check(&course, &data, true)?;
            let (size, named) = (data.top().size(), data.named());
            let parts = course.parts(size)?;
            let keys: Keys = self.keys(header, &course, &parts, key, options, work)?;
            if recover {
                self.header_image.check_writable()?;
                self.data.check_writable()?;
                self.refuse_other_data(true, options, &work.providers)?;
                self.zones(&named, course, parts, &keys, options, work)?.recover_hot(work)?;
                return data.top().flush();
            }
            Ok(())
        };
        check().at(name)
    }
}
