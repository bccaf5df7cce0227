//! Data encrypted, reencrypted and decrypted where they lie, which first looks for what the plain data hold: nothing of that may be
//! lost.

use casemate_blockdev::target::{SMALLEST_FILE_SYSTEM, beginning};
use casemate_blockdev::{AtFile, Medium, Used, signatures, table_to_read};
use casemate_providers::{Direction, Providers, Work};

use crate::crypt::{InPlaceOptions, Mapping};
use crate::luks::{LuksFormatOptions, LuksKey, LuksOptions, ReencryptOptions, Volume};
use crate::{Error, Image, SecretVec, probe};

impl Image {
    /// Encrypts the image's data where they lie: see [`casemate_luks::encrypt_in_place`].
    ///
    /// # Errors
    /// Errors of [`casemate_luks::encrypt_in_place`].
    pub fn luks_encrypt(
        &self,
        header: Option<&Image>,
        passphrase: &SecretVec,
        format: &LuksFormatOptions,
        options: &ReencryptOptions,
        work: &Work<'_>,
    ) -> Result<bool, Error> {
        self.check_settled(&work.providers)?;
        let header: Option<&Medium> = header.map(AsRef::as_ref);
        casemate_luks::encrypt_in_place(self, header, passphrase, format, &knowing(options), work)
    }

    /// Encrypts or decrypts the image's data where they lie, and first looks for what the plain data hold: see
    /// [`Mapping::transform_in_place`].
    ///
    /// # Errors
    /// Errors of [`Mapping::transform_in_place`].
    pub fn crypt_in_place(
        &self,
        direction: Direction,
        mapping: &Mapping,
        options: &InPlaceOptions,
        work: &Work<'_>,
    ) -> Result<(), Error> {
        // What was begun can't be completed any more.
        if direction == Direction::Encrypt && !options.resume {
            self.check_settled(&work.providers)?;
        }
        let mut options = options.clone();
        options.contents = options.contents.or(Some(used));
        mapping.transform_in_place(direction, self, &options, work)
    }

    /// Text that names what on the image a transformation in place would cut, if it would cut something: see [`Mapping::cut`].
    ///
    /// # Errors
    /// Errors of [`Mapping::cut`].
    pub fn crypt_cut(
        &self,
        direction: Direction,
        mapping: &Mapping,
        providers: &Providers,
    ) -> Result<Option<String>, Error> {
        mapping.cut(direction, self, Some(used), providers)
    }

    /// A file system or partition on the image, or on its bytes from `start` on, that reaches behind the byte `end`, as far as it is
    /// known where it ends: `None` if nothing known does.
    ///
    /// # Errors
    /// Errors of reading.
    pub fn reaching_behind(&self, start: u64, end: u64) -> Result<Option<Used>, Error> {
        Used::reaching_behind(self, start, end, used)
    }

    /// Bytes behind the image's end that a window with a length leaves out: see [`Medium::left_out`].
    pub fn left_out(&self) -> u64 {
        self.as_ref().left_out()
    }
}

impl Volume {
    /// Reencrypts the data: see [`casemate_luks::Volume::reencrypt`].
    ///
    /// # Errors
    /// Errors of [`casemate_luks::Volume::reencrypt`].
    pub fn reencrypt(
        &mut self,
        keys: &[LuksKey],
        unlocking: &LuksOptions,
        options: &ReencryptOptions,
        work: &Work<'_>,
    ) -> Result<bool, Error> {
        casemate_luks::Volume::reencrypt(self, keys, unlocking, &knowing(options), work)
    }
}

/// Options of a reencryption that knows what plain data hold.
fn knowing(options: &ReencryptOptions) -> ReencryptOptions {
    let mut options = options.clone();
    options.contents = options.contents.or(Some(used));
    options
}

/// File systems and partitions on plain data, as far as it is known where they end.
fn used(plain: &Medium) -> Result<Vec<Used>, Error> {
    let found = probe::look(plain)?;
    let said = beginning(plain.top()).at(plain.name())?.and_then(|contents| {
        let whole = || signatures::is_as_large_as_its_device(contents.what).then(|| plain.top().size());
        contents.end.or_else(whole)
    });
    // One that does not fit its device says so by this alone. A btrfs says here what it has on all its devices.
    let said =
        said.or_else(|| found.fact("bytes")?.parse().ok().filter(|bytes| *bytes >= SMALLEST_FILE_SYSTEM));
    let whole =
        said.map(|end| Used { what: found.what.unwrap_or("what is on it").to_owned(), end, is_whole: true });
    // A disk may have both: an image of a CD that boots from a stick, or a file system from before its partitions.
    let parts = table_to_read(plain.top()).map(|table| table.partitions).unwrap_or_default();
    let parts = parts.into_iter().map(|part| Used {
        what: format!("partition {}", part.number),
        end: part.start.saturating_add(part.len),
        is_whole: false,
    });
    Ok(whole.into_iter().chain(parts).collect())
}
