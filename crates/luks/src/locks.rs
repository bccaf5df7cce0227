//! cryptsetup's locks, so that it and casemate don't work on one header at a time.
//!
//! For regular files cryptsetup locks the file with the header itself, as [`Medium::open`] does. For block devices it locks a
//! file that is named after the device, whenever it reads or changes a header. A reencryption holds a lock that is named
//! after the volume's UUID from its beginning to its end, for files as well: in between nothing else says that somebody is
//! at work. Volumes that are copies of each other have one UUID, and are reencrypted one after the other.
//!
//! Only root can make these locks; others find out what the header's own number tells them ([`check_unchanged`]).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::Header;
use casemate_blockdev::{AtFile, BlockDevice, Lock, Medium, Sharing};

use super::Volume;
use crate::Error;

/// The folder of cryptsetup's locks.
const FOLDER: &str = "/run/cryptsetup";

/// How long another program may hold what it needs for one update of a header.
const PATIENCE: Duration = Duration::from_secs(20);

/// The lock of the header of a block device; of a regular file it is the file's own, which is held already.
#[derive(Clone, Debug)]
pub(super) struct HeaderLock {
    name: Option<String>,
}

impl HeaderLock {
    /// The lock of the header in an image.
    pub fn of(image: &Medium) -> HeaderLock {
        let numbers = image.device_numbers();
        HeaderLock { name: numbers.map(|(major, minor)| format!("L_{major}:{minor}")) }
    }

    /// Takes it for one update.
    ///
    /// # Errors
    /// `Busy` if another program does not give it back in time.
    pub fn take(&self) -> Result<Option<Lock>, Error> {
        let Some(name) = &self.name else { return Ok(None) };
        Lock::named(Path::new(FOLDER), name, Sharing::Exclusive, PATIENCE)
    }
}

/// Checks that a header is on the device as it was read.
///
/// # Errors
/// `Busy` if another program has changed it meanwhile.
pub(super) fn check_unchanged(header: &Header, device: &dyn BlockDevice) -> Result<(), Error> {
    match header {
        Header::Luks1(header) => header.check_unchanged(device),
        Header::Luks2(header) => header.check_unchanged(device),
    }
}

/// The lock of the reencryption of volumes with a UUID.
fn reencryption(uuid: &str, sharing: Sharing) -> Result<Option<Lock>, Error> {
    // A text that is not a UUID may not be a name of a file either.
    if uuid.is_empty() || !uuid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Ok(None);
    }
    let name = format!("LN_LUKS2-reencryption-{uuid}");
    Lock::named(Path::new(FOLDER), &name, sharing, Duration::ZERO).map_err(|error| match error.is_busy() {
        true => Error::busy(format!(
            "another process is reencrypting or reading this volume, or a copy of it: one with the UUID {uuid}, whose lock is {}",
            error.text()
        )),
        false => error,
    })
}

/// Keeps others from reencrypting a volume that is about to be made, and has this UUID.
///
/// # Errors
/// Errors of [`Volume::claim_reencryption`].
pub(super) fn claim_new(image: &Medium, uuid: &str) -> Result<Option<Arc<Lock>>, Error> {
    match image.is_in_file() {
        true => Ok(reencryption(uuid, Sharing::Exclusive).at(image.name())?.map(Arc::new)),
        false => Ok(None),
    }
}

impl Volume {
    /// Takes the header for one update: nobody else changes it, and it is as it was read.
    ///
    /// # Errors
    /// `Busy` if another program has changed it, or is changing it.
    pub(super) fn claim_header(&self) -> Result<Option<Lock>, Error> {
        let lock = HeaderLock::of(&self.header_image).take().at(self.header_image.name())?;
        check_unchanged(&self.header, self.header_image.top()).at(self.header_image.name())?;
        Ok(lock)
    }

    /// Keeps all others from the volume, as long as it is reencrypted.
    ///
    /// # Errors
    /// `Busy` if another program is reencrypting it, or reading it in the middle of that, or has changed its header since
    /// that was read.
    pub(super) fn claim_reencryption(&self) -> Result<Option<Arc<Lock>>, Error> {
        let lock = claim_new(&self.header_image, self.header.uuid())?;
        check_unchanged(&self.header, self.header_image.top()).at(self.header_image.name())?;
        Ok(lock)
    }

    /// Volume whose header and data nobody changes as long as its data are there.
    ///
    /// # Errors
    /// `Busy` if somebody is at it, or has changed the header since it was read.
    pub(super) fn locked(&self) -> Result<Volume, Error> {
        let mut volume = self.clone();
        volume.data = volume.data.locked()?;
        if !volume.is_attached {
            volume.header_image = volume.header_image.locked()?;
            volume.data = volume.data.keeping(&volume.header_image);
        }
        // What is locked as a file says all of files that nothing rewrites; a reencryption locks more.
        let is_in_device =
            [&volume.data, &volume.header_image].iter().any(|image| image.is_in_block_device());
        let is_shared = volume.header_image.is_in_file()
            && matches!(&volume.header, Header::Luks2(header)
                if is_in_device || header.metadata.requirements().iter().any(|name| name.contains("-reencrypt")));
        if is_shared {
            let lock = reencryption(volume.header.uuid(), Sharing::Shared).at(volume.header_image.name())?;
            volume.data = volume.data.with_locks(lock.map(Arc::new));
        }
        check_unchanged(&volume.header, volume.header_image.top()).at(volume.header_image.name())?;
        Ok(volume)
    }
}
