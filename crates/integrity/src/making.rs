//! Making volumes on targets.

use std::io::Read;

use casemate_blockdev::{AtFile, Medium, Target, fill_random};
use casemate_providers::Work;

use crate::{Error, FormatOptions, IntegrityOptions, Superblock};

/// A salt from the system's random numbers.
///
/// # Errors
/// `Io`.
pub fn random_salt() -> Result<[u8; 16], Error> {
    let mut salt = [0; 16];
    fill_random(&mut salt)?;
    Ok(salt)
}

impl IntegrityOptions {
    /// Makes a dm-integrity volume that fills a target, with the data that `from` gives, and zeros behind them.
    ///
    /// # Errors
    /// `Argument` for an image without room, or more data than the volume takes; those of [`Tagger::new`](crate::Tagger::new) and of
    /// [`Medium::check_partitions`] and [`Medium::lease`]; `Io`.
    pub fn format<M: AsRef<Medium>>(
        &self,
        target: &Target<M>,
        format: &FormatOptions,
        from: Option<&mut dyn Read>,
        work: &Work<'_>,
    ) -> Result<Superblock, Error> {
        let target: &Medium = target.as_ref();
        let _lease = target.lease()?;
        target.check_partitions()?;
        let mut format = format.clone();
        format.has_journal_code = self.journal_code.is_some();
        let superblock = Superblock::new(target.top().size(), &format).at(target.name())?;
        let tagger = self.tagger(&superblock, &work.providers).at(target.name())?;
        if !target.is_new() {
            target.erase_signatures(0, work.events)?;
        }
        crate::format(target.top(), &superblock, &tagger, from, work).at(target.name())?;
        Ok(superblock)
    }
}
