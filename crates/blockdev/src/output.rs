//! A file that is there whole or not at all.

use std::fs::File;
use std::path::PathBuf;

use tempfile::NamedTempFile;

use crate::device::BlockDevice;
use crate::error::Result;
use crate::exclusive::{Held, claim_name};
use crate::file::FileDevice;
use crate::identity::{folder_of, sync_name};
use crate::os::{self, OpenOptionsExt};

/// A new file, written beside its final name and renamed to it by [`OutputFile::commit`].
///
/// Dropped without a commit, it leaves nothing behind. A file that had the name before stays as it was until
/// the rename. Permissions are those of any new file (0666 less the umask), or fewer with [`OutputFile::narrow`].
#[derive(Debug)]
pub struct OutputFile {
    device: FileDevice,
    temporary: NamedTempFile,
    path: PathBuf,
    /// The file that has the name so far: nobody shall begin to change what is going to be replaced.
    replaced: Option<Held>,
}

impl OutputFile {
    /// Begins a file that will be called `path`.
    ///
    /// # Errors
    /// `Busy` when a file of this name is in use, as [`FileDevice::open_exclusive`] sees it; `Argument` when what has the
    /// name is not a regular file: a device, a pipe.
    pub fn create(path: impl Into<PathBuf>) -> Result<OutputFile> {
        let path = path.into();
        let replaced = claim_name(&path)?;
        let temporary = tempfile::Builder::new()
            .prefix(".casemate-")
            .suffix(".part")
            // Errors name what the caller named, not the temporary file.
            .make_in(folder_of(&path), |part| {
                File::options().read(true).write(true).create_new(true).mode(0o666).open(part)
            })?;
        let device = FileDevice::from_file(temporary.reopen()?)?;
        Ok(OutputFile { device, temporary, path, replaced })
    }

    /// Takes from the file the permissions that are not in `mode`.
    ///
    /// # Errors
    /// `Io`.
    pub fn narrow(&self, mode: u32) -> Result<()> {
        let file = self.device.file();
        Ok(os::set_mode(file, os::mode(file)? & mode)?)
    }

    /// Gives the file its name. With `sync` its contents are on stable storage before, and its name is afterwards.
    pub fn commit(self, sync: bool) -> Result<()> {
        if sync {
            self.device.flush()?;
        }
        // One that came meanwhile may be in use as well.
        let replaced = self.replaced.map_or_else(|| claim_name(&self.path), |file| Ok(Some(file)))?;
        // On Windows nothing takes the name of a file that is open.
        let _replaced = replaced.filter(|_| !cfg!(windows));
        self.temporary.persist(&self.path).map_err(|error| error.error)?;
        if sync { sync_name(&self.path) } else { Ok(()) }
    }

    /// The file as a device; it grows by writing.
    pub fn device(&self) -> &FileDevice {
        &self.device
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_commit_leaves_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let names = || std::fs::read_dir(folder.path()).unwrap().count();
        let output = OutputFile::create(&path).unwrap();
        output.device().write_at(b"half", 0).unwrap();
        drop(output);
        assert_eq!(names(), 0);
        let output = OutputFile::create(&path).unwrap();
        output.device().write_at(b"whole", 0).unwrap();
        output.commit(true).unwrap();
        assert_eq!((names(), std::fs::read(&path).unwrap()), (1, b"whole".to_vec()));
    }

    #[test]
    #[cfg(unix)]
    fn only_regular_files_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (socket, late) = (folder.path().join("socket"), folder.path().join("late"));
        let output = OutputFile::create(&late).unwrap();
        let _listeners = [&socket, &late].map(|path| std::os::unix::net::UnixListener::bind(path).unwrap());
        let is_refused = |error: crate::Error| error.kind() == crate::ErrorKind::Argument;
        assert!(OutputFile::create(&socket).is_err_and(is_refused));
        assert!(output.commit(false).is_err_and(is_refused));
        assert!([socket, late].iter().all(|path| !path.metadata().unwrap().is_file()));
    }

    #[test]
    fn what_is_in_use_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let late = OutputFile::create(&path).unwrap();
        std::fs::write(&path, "image").unwrap();
        let user = FileDevice::open_exclusive(&path).unwrap();
        let is_busy = |error: crate::Error| error.is_busy();
        assert!(OutputFile::create(&path).is_err_and(is_busy));
        assert!(late.commit(false).is_err_and(is_busy));
        drop(user);
        let output = OutputFile::create(&path).unwrap();
        assert!(FileDevice::open_exclusive(&path).is_err_and(is_busy));
        output.device().write_at(b"new", 0).unwrap();
        output.commit(false).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert!(FileDevice::open_exclusive(&path).is_ok());
    }
}
