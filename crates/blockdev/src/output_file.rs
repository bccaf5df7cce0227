//! A file that is there whole or not at all.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use tempfile::{NamedTempFile, PersistError};

use crate::code::Code;
use crate::device::BlockDevice;
use crate::error::{Error, Result};
use crate::exclusive::claim_name;
use crate::file::FileDevice;
use crate::held::Held;
use crate::identity::{FileId, folder_of, sync_name};
use crate::lease::check_process;
use crate::os::{self, OpenOptionsExt};
use crate::unfinished;

/// A new file, written beside its final name and renamed to it by [`OutputFile::commit`].
///
/// Dropped without a commit, it leaves nothing behind. A file that had the name before stays as it was until
/// the rename. Until then the new one is its owner's alone. Its permissions then are those of the file that it replaces, if this user
/// owns that, else those of any new file (0666 less the umask); or fewer with [`OutputFile::narrow`], or others with
/// [`OutputFile::set_mode`].
#[derive(Debug)]
pub struct OutputFile {
    device: FileDevice,
    temporary: Temporary,
    path: PathBuf,
    /// The file that has the name so far: nobody shall begin to change what is going to be replaced.
    replaced: Option<Held>,
    /// State of the name at the beginning: whoever asked for this file knew of nothing else.
    before: Before,
    /// The permissions of the file when it has its name; if `None`, those that it has.
    mode: Mutex<Option<u32>>,
    modified: Mutex<Option<SystemTime>>,
}

/// State of what has a name: the link that it may be, and the file that it leads to.
#[derive(Debug, PartialEq, Eq)]
struct Before {
    link: Option<PathBuf>,
    file: Option<FileId>,
    len_and_time: Option<(u64, Option<SystemTime>)>,
}

impl Before {
    fn of(path: &Path) -> Before {
        let found = fs::metadata(path).ok();
        Before {
            link: fs::read_link(path).ok(),
            file: FileId::at(path),
            len_and_time: found.map(|found| (found.len(), found.modified().ok())),
        }
    }

    fn is_free(&self) -> bool {
        self.link.is_none() && self.len_and_time.is_none()
    }

    /// Whether the name is free now, and what has it may be replaced.
    ///
    /// # Errors
    /// [`Code::Exists`] or [`Code::Changed`] if it is not what it was, and not free.
    fn check(&self, path: &Path) -> Result<bool> {
        let now = Before::of(path);
        match now.is_free() {
            true => Ok(true),
            false if now == *self => Ok(false),
            false if self.is_free() => Err(taken()),
            false => {
                let text = "the file changed while its replacement was written, and was not replaced";
                Err(Error::coded(Code::Changed, text))
            }
        }
    }
}

/// A file under its temporary name, which goes with it.
#[derive(Debug)]
struct Temporary {
    file: Option<NamedTempFile>,
    /// The process that made it. One that was forked off must leave the name alone.
    process: u32,
}

impl Temporary {
    fn reopen(&self) -> std::io::Result<File> {
        match &self.file {
            Some(file) => file.reopen(),
            None => Err(std::io::ErrorKind::NotFound.into()),
        }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let Some(mut file) = self.file.take() else { return };
        let path = file.path().to_owned();
        unfinished::end(&path, || {
            if check_process(self.process).is_err() {
                file.disable_cleanup(true);
            }
            drop(file);
        });
    }
}

impl OutputFile {
    /// Begins a file that will be called `path`.
    ///
    /// # Errors
    /// `Busy` when a file of this name is in use, as [`FileDevice::open_exclusive`] sees it; `Argument` when what has the
    /// name is not a regular file: a device, a pipe.
    pub fn create(path: impl Into<PathBuf>) -> Result<OutputFile> {
        let path = path.into();
        if path.as_os_str().is_empty() {
            return Err(Error::path(
                io::ErrorKind::NotFound,
                "a new file needs a name, and the path is empty",
            ));
        }
        let before = Before::of(&path);
        let replaced = claim_name(&path)?;
        let old = fs::metadata(&path).ok();
        unfinished::announce();
        let temporary = tempfile::Builder::new()
            .prefix(".casemate-")
            .suffix(".part")
            // Errors name what the caller named, not the temporary file.
            .make_in(folder_of(&path), |part| {
                File::options().read(true).write(true).create_new(true).mode(0o600).open(part)
            })?;
        unfinished::begin(temporary.path());
        let temporary = Temporary { file: Some(temporary), process: process::id() };
        let device = FileDevice::from_file(temporary.reopen()?)?;
        let mode = match &old {
            Some(old) => os::permissions_after(device.file(), old),
            None => 0o666 & !os::umask(),
        };
        Ok(OutputFile {
            device,
            temporary,
            path,
            replaced,
            before,
            mode: Mutex::new(Some(mode)),
            modified: Mutex::new(None),
        })
    }

    /// Takes from the file the permissions that are not in `mode`.
    pub fn narrow(&self, mode: u32) {
        let mut known = self.mode.lock().unwrap_or_else(PoisonError::into_inner);
        *known = known.map(|known| known & mode);
    }

    /// Sets the permissions that the file has when it has its name.
    pub fn set_mode(&self, mode: u32) {
        *self.mode.lock().unwrap_or_else(PoisonError::into_inner) = Some(mode);
    }

    /// Leaves the permissions of the file as they are: whoever has its descriptor has set them.
    pub fn leave_mode(&self) {
        *self.mode.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Sets the time of modification that the file has when it has its name.
    pub fn set_modified(&self, time: SystemTime) {
        *self.modified.lock().unwrap_or_else(PoisonError::into_inner) = Some(time);
    }

    /// Looks whether the file can get its name: of several outputs none is to replace anything where another one can't.
    ///
    /// # Errors
    /// Errors of [`OutputFile::commit`] that can be known before it.
    pub fn check_name(&self) -> Result<()> {
        self.before.check(&self.path).map(drop)
    }

    /// The way back for when the file has its name, and others of the same work can't get theirs.
    pub(crate) fn way_back(&self) -> WayBack {
        let folder = folder_of(&self.path);
        let keep = || {
            let mut second = tempfile::Builder::new();
            second
                .prefix(".casemate-")
                .suffix(".old")
                .make_in(folder, |second| fs::hard_link(&self.path, second))
        };
        WayBack {
            own: os::id_of(self.device.file()).ok(),
            was_free: self.before.is_free(),
            // File systems without second names, and files that may have none, have no way back.
            earlier: if self.before.is_free() { None } else { keep().ok() },
            path: self.path.clone(),
        }
    }

    /// Gives the file its name. With `sync` its contents are on stable storage before, and its name is afterwards.
    ///
    /// # Errors
    /// `Io`; `Busy` or `Argument` if what has got the name meanwhile can't be replaced; [`Code::Exists`] or [`Code::Changed`] if a
    /// file has got it, or the one that had it has changed since the beginning. Nothing is left then. `Busy` in a process that a
    /// fork made of the file's.
    pub fn commit(mut self, sync: bool) -> Result<()> {
        check_process(self.temporary.process)?;
        let file = self.device.file();
        if let Some(time) = self.modified.into_inner().unwrap_or_else(PoisonError::into_inner) {
            file.set_modified(time)?;
        }
        if let Some(mode) = self.mode.into_inner().unwrap_or_else(PoisonError::into_inner)
            && let Err(error) = os::set_mode(file, mode)
            // File systems without permissions may refuse those that they can't show. Nobody reads what he should not.
            && os::mode(file)? & 0o066 & !mode != 0
        {
            return Err(error.into());
        }
        if sync {
            self.device.flush()?;
        }
        // One that came meanwhile may be in use as well.
        let replaced = self.replaced.map_or_else(|| claim_name(&self.path), |file| Ok(Some(file)))?;
        // On Windows nothing takes the name of a file that is open.
        let _replaced = replaced.filter(|_| !cfg!(windows));
        if let Some(temporary) = self.temporary.file.take() {
            let part = temporary.path().to_owned();
            unfinished::end(&part, || give_name(temporary, &self.path, &self.before))?;
        }
        if sync { sync_name(&self.path) } else { Ok(()) }
    }

    /// The file as a device; it grows by writing.
    pub fn device(&self) -> &FileDevice {
        &self.device
    }
}

/// The file that had a name before, kept under a second name until all outputs of a work have theirs.
#[derive(Debug)]
pub(crate) struct WayBack {
    path: PathBuf,
    own: Option<FileId>,
    was_free: bool,
    earlier: Option<NamedTempFile<()>>,
}

impl WayBack {
    /// Gives the name back to the file that had it, or to none. What has got it since from somebody else stays.
    pub fn take(&self) {
        if self.own.is_none() || FileId::at(&self.path) != self.own {
            return;
        }
        // There is nobody to tell where that fails, too: the error that led here is told.
        let _ = match &self.earlier {
            Some(earlier) => fs::rename(earlier.path(), &self.path),
            None if self.was_free => fs::remove_file(&self.path),
            None => Ok(()),
        };
    }
}

/// Gives a file its name, unless what had it at the beginning is another now: nobody has asked for that to be replaced.
fn give_name(temporary: NamedTempFile, path: &Path, before: &Before) -> Result<()> {
    let is_free = before.check(path)?;
    if !is_free {
        return temporary.persist(path).map(drop).map_err(|error| error.error.into());
    }
    match temporary.persist_noclobber(path) {
        Ok(_) => Ok(()),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Err(taken()),
        // The file system can only replace.
        Err(PersistError { file, .. }) => file.persist(path).map(drop).map_err(|error| error.error.into()),
    }
}

fn taken() -> Error {
    Error::coded(Code::Exists, "a file of this name was made meanwhile, and was not replaced")
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
    fn an_output_is_its_owners_until_it_has_its_name() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        let part = || std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
        let part = || part().find(|path| path.extension().is_some_and(|end| end == "part")).unwrap();
        let ordinary = {
            let path = folder.path().join("ordinary");
            std::fs::write(&path, "").unwrap();
            mode(&path)
        };
        let path = folder.path().join("out");
        let make = |change: &dyn Fn(&OutputFile)| {
            let output = OutputFile::create(&path).unwrap();
            assert_eq!(mode(&part()), 0o600);
            change(&output);
            assert_eq!(mode(&part()), 0o600);
            output.commit(false).unwrap();
            mode(&path)
        };
        assert_eq!(make(&|_| ()), ordinary);
        assert_eq!(make(&|output| output.narrow(0o640)), ordinary & 0o640);
        // Once more: the file that is replaced hands its permissions on.
        assert_eq!(make(&|_| ()), ordinary & 0o640);
        assert_eq!(make(&|output| output.set_mode(0o751)), 0o751);
        // A file that somebody else has prepared opens nothing.
        if os::is_root() {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
            std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
            assert_eq!(make(&|_| ()), ordinary);
            let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&path).unwrap());
            assert_eq!(owner, rustix::process::geteuid().as_raw());
        }
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1 << 30);
        make(&|output| output.set_modified(time));
        assert_eq!(std::fs::metadata(&path).unwrap().modified().unwrap(), time);
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
    fn only_what_was_there_at_the_beginning_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let names = || fs::read_dir(folder.path()).unwrap().count();
        let refused = |output: OutputFile, code: Code, left: &str| {
            assert_eq!(output.commit(false).unwrap_err().code(), code);
            assert_eq!((fs::read_to_string(&path).unwrap().as_str(), names()), (left, 1));
        };
        let output = OutputFile::create(&path).unwrap();
        fs::write(&path, "came").unwrap();
        refused(output, Code::Exists, "came");
        let output = OutputFile::create(&path).unwrap();
        fs::write(&path, "changed").unwrap();
        refused(output, Code::Changed, "changed");
        // Another file of the same length and time.
        let output = OutputFile::create(&path).unwrap();
        let other = folder.path().join("other");
        fs::write(&other, "another").unwrap();
        let time = fs::metadata(&path).unwrap().modified().unwrap();
        File::options().write(true).open(&other).unwrap().set_modified(time).unwrap();
        fs::rename(&other, &path).unwrap();
        #[cfg(unix)]
        refused(output, Code::Changed, "another");
        // One that is gone leaves its name.
        let output = OutputFile::create(&path).unwrap();
        fs::remove_file(&path).unwrap();
        output.commit(false).unwrap();
        assert_eq!(names(), 1);
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
