//! Images of the caller: the one way in which those that exist are opened.

use std::path::Path;

use casemate_blockdev::FileDevice;

use crate::Error;

/// What an image, or a file of any other kind that exists, is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Reading, whatever others do with it meanwhile.
    Read,
    /// Reading, while no other process changes it.
    ReadLocked,
    /// Changes, while no other process uses it.
    Change,
}

/// Opens a file or block device.
///
/// # Errors
/// `Io`; [`Error::is_busy`] if somebody has it locked, it is mounted, or a loop device stands on it.
pub(crate) fn open(path: &Path, access: Access) -> Result<FileDevice, Error> {
    let opened = match access {
        Access::Read => FileDevice::open(path),
        Access::ReadLocked => FileDevice::open_shared(path),
        Access::Change => FileDevice::open_exclusive(path),
    };
    opened.map_err(|error| Error::io(path.display(), error))
}
