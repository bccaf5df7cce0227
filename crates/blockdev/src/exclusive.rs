//! Files and block devices that one program changes at a time.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::ops::Deref;
use std::path::Path;
use std::process;
use std::sync::Arc;

use crate::beneath::Beneath;
use crate::error::{Error, Result};
use crate::file::{FileDevice, open_to_read};
use crate::identity::{FileId, all_below};
use crate::inputs;
use crate::lock::Sharing;
use crate::mark;
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
            mark::check(&held, os::id_of(&held)?, path)?;
            Ok(Some(held))
        }
        // What this user may not read can be replaced all the same, and nothing of this project works on it.
        Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::NotFound) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// An open file, which may be locked. When it is dropped it is unlocked as well as closed: a process that another thread is just
/// starting has a copy of it for a moment, and would keep the lock.
#[derive(Debug)]
pub(crate) struct Held {
    file: File,
    /// The process that locked it. One that was forked off has the file too, and must leave the lock alone.
    process: Option<u32>,
    /// The locks of the files that a device lies on; they go after the device is closed.
    beneath: Vec<Arc<Beneath>>,
}

impl Held {
    /// A file without a lock.
    pub fn unlocked(file: File) -> Held {
        Held { file, process: None, beneath: Vec::new() }
    }

    /// A file that is locked in a way, with those that it lies on if it is a device; `Busy` if it can't be now.
    pub fn lock(file: File, sharing: Sharing) -> Result<Held> {
        let mut held = Held::lock_alone(file, sharing)?;
        held.beneath = Beneath::lock(os::id_of(&held)?, sharing)?;
        Ok(held)
    }

    /// A file that is locked in a way; `Busy` if it can't be now.
    pub fn lock_alone(file: File, sharing: Sharing) -> Result<Held> {
        let id = os::id_of(&file)?;
        Held::ask(file, sharing)?.ok_or_else(|| in_use(id))
    }

    /// A file that is locked in a way; `None` if it can't be now.
    pub fn ask(file: File, sharing: Sharing) -> Result<Option<Held>> {
        let process = match try_lock(&file, sharing) {
            Ok(()) => Some(process::id()),
            Err(TryLockError::WouldBlock) => return Ok(None),
            // Locks are a courtesy.
            Err(TryLockError::Error(error)) if os::has_no_locks(&error) => None,
            Err(TryLockError::Error(error)) => return Err(error.into()),
        };
        Ok(Some(Held { file, process, beneath: Vec::new() }))
    }

    /// Locks a file that this process has locked already in another way; `Busy` if it can't be now.
    pub fn relock(&self, sharing: Sharing) -> Result<()> {
        match try_lock(&self.file, sharing) {
            Err(TryLockError::WouldBlock) => Err(in_use(os::id_of(&self.file)?)),
            Err(TryLockError::Error(error)) if !os::has_no_locks(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Whether this process has locked it.
    pub fn is_ours(&self) -> bool {
        self.process == Some(process::id())
    }
}

fn try_lock(file: &File, sharing: Sharing) -> Result<(), TryLockError> {
    match sharing {
        Sharing::Shared => file.try_lock_shared(),
        Sharing::Exclusive => file.try_lock(),
    }
}

impl Deref for Held {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.is_ours() {
            // Closing the file does the same but for copies of it.
            let _ = self.file.unlock();
        }
    }
}

pub(crate) fn busy(what: &str) -> Error {
    Error::busy(what.to_owned())
}

/// Error about a file that is locked, with the process that has it if that can be seen. A lock is of all of a file: a server of
/// another partition has it, too.
pub(crate) fn in_use(id: FileId) -> Error {
    busy(&match os::holder(id) {
        Some(holder) if holder.pid == process::id() => "in use: this process has it open already".to_owned(),
        Some(holder) => format!("in use by another process ({holder})"),
        None => "in use by another process".to_owned(),
    })
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
