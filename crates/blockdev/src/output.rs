//! A file that is there whole or not at all.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::device::BlockDevice;
use crate::file::FileDevice;

/// A new file, written beside its final name and renamed to it by [`OutputFile::commit`].
///
/// Dropped without a commit, it leaves nothing behind. A file that had the name before stays as it was until
/// the rename. Permissions are those of any new file (0666 less the umask).
#[derive(Debug)]
pub struct OutputFile {
    device: FileDevice,
    temporary: NamedTempFile,
    path: PathBuf,
}

impl OutputFile {
    /// Begins a file that will be called `path`.
    pub fn create(path: impl Into<PathBuf>) -> io::Result<OutputFile> {
        let path = path.into();
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let temporary = tempfile::Builder::new()
            .prefix(".casemate-")
            .suffix(".part")
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder)?;
        let device = FileDevice::from_file(temporary.reopen()?)?;
        Ok(OutputFile { device, temporary, path })
    }

    /// Gives the file its name. With `sync` its contents are on stable storage first.
    pub fn commit(self, sync: bool) -> io::Result<()> {
        if sync {
            self.device.flush()?;
        }
        self.temporary.persist(&self.path).map_err(|error| error.error)?;
        Ok(())
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
}
