//! Files and block devices that one program changes at a time.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::path::Path;

use crate::error::{Error, Result};
use crate::file::FileDevice;
use crate::held::{Held, Sharing, busy, open_to_read};
use crate::identity::all_below;
use crate::inputs;
use crate::journal;
use crate::os::{self, FileTypeExt};

impl FileDevice {
    /// Opens a file or block device for reading, and keeps others from changing it meanwhile; they may read it too. The file that
    /// a loop device stands on is locked with the device.
    ///
    /// # Errors
    /// `Busy` when another process has it open for changes, or the file that it stands on.
    pub fn open_shared(path: impl AsRef<Path>) -> Result<FileDevice> {
        FileDevice::over(Held::lock(open_to_read(path.as_ref())?, Sharing::Shared)?)
    }

    /// Opens an existing file or block device for changes, and keeps others from doing the same while it is open:
    /// files are locked (flock), block devices are opened as the kernel's own users of them are (`O_EXCL`). The file that a loop
    /// device stands on is locked with the device.
    ///
    /// # Errors
    /// `Busy` when another process has the lock, or one on the file that it stands on, the kernel uses the device (it is mounted, say), or a
    /// loop device stands on the file.
    pub fn open_exclusive(path: impl AsRef<Path>) -> Result<FileDevice> {
        let path = path.as_ref();
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        if fs::metadata(path)?.file_type().is_block_device() {
            os::exclusively(&mut options);
        }
        let file = match options.open(path) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                let by = os::id_at(path).ok().and_then(os::holder);
                let by = by.map_or_else(String::new, |holder| format!(" by another process ({holder})"));
                return Err(busy(&format!("the device is mounted or in use{by}")));
            }
            result => result?,
        };
        let device = FileDevice::exclusive(file)?;
        // What got another file's name before it was locked is nobody's any more.
        if os::id_at(path)? != os::id_of(device.file())? {
            return Err(busy("another process has just replaced the file; try again"));
        }
        Ok(device)
    }

    /// Takes a file that is open for writing already, with what [`FileDevice::open_exclusive`] sees to.
    ///
    /// # Errors
    /// Errors of [`FileDevice::open_exclusive`].
    pub fn exclusive(file: File) -> Result<FileDevice> {
        FileDevice::over(claim(file)?)
    }
}

/// Keeps others from using a file as long as it is open.
fn claim(file: File) -> Result<Held> {
    let held = Held::lock(file, Sharing::Exclusive)?;
    let id = os::id_of(&held)?;
    // A key, a list or data may be read from there, whatever the command says.
    inputs::check_output(id)?;
    // The kernel's own users have no locks, and open the device that they use alone.
    let is_used = |name: &String| {
        let mut options = OpenOptions::new();
        os::exclusively(options.read(true));
        let opened = options.open(Path::new("/dev").join(name));
        opened.is_err_and(|error| error.kind() == ErrorKind::ResourceBusy)
    };
    let devices = std::iter::once(id).chain(all_below(id).into_iter().map(|(_, below)| below.id));
    if let Some(name) = devices.flat_map(os::loops_beside).find(is_used) {
        return Err(busy(&format!("/dev/{name} uses the same file, and is mounted or in use")));
    }
    match os::loop_device(id) {
        Some(name) => Err(busy(&format!("in use by /dev/{name}; unmount and detach that first"))),
        None => Ok(held),
    }
}

/// Claims the regular file at a path, if there is one, before another takes its name. Nothing else loses its name to a file, nor
/// does an image on which in-place work is unfinished: its other half may be what a journal has.
pub(crate) fn claim_name(path: &Path) -> Result<Option<Held>> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => return Err(Error::argument("not a regular file, and only regular files are replaced")),
        Err(_) => return Ok(None),
    }
    match File::open(path) {
        Ok(file) => {
            let held = claim(file)?;
            journal::check_file(&held, os::id_of(&held)?, path)?;
            Ok(Some(held))
        }
        // What this user may not read can be replaced all the same, and nothing of this project works on it.
        Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::NotFound) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_writer_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let first = FileDevice::open_exclusive(file.path()).unwrap();
        for error in [FileDevice::open_exclusive(file.path()), FileDevice::open_shared(file.path())] {
            let error = error.unwrap_err();
            let is_told =
                !cfg!(target_os = "linux") || error.text() == "in use: this process has it open already";
            assert!(error.is_busy() && is_told, "{error}");
        }
        assert!(FileDevice::open(file.path()).is_ok());
        drop(first);
        let readers = [(); 2].map(|()| FileDevice::open_shared(file.path()).unwrap());
        assert!(FileDevice::open_exclusive(file.path()).is_err());
        drop(readers);
        FileDevice::open_exclusive(file.path()).unwrap();
    }

    /// A copy of the file, as a process has that is being started, does not keep the lock.
    #[test]
    fn nothing_is_held_by_copies() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let device = FileDevice::open_exclusive(file.path()).unwrap();
        let copy = device.file().try_clone().unwrap();
        drop(device);
        FileDevice::open_exclusive(file.path()).unwrap();
        drop(copy);
    }
}
