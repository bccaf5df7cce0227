//! Locks that other programs know, beside those of files that are open for changes.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::held::{Held, Sharing, in_use};
use crate::identity::FileId;
use crate::os::{self, DirBuilderExt, OpenOptionsExt};

/// A lock (flock) on a file, which is held until it is dropped.
#[derive(Debug)]
pub struct Lock {
    held: Held,
    /// The path of a file that is there for the lock alone, and goes with it.
    path: Option<PathBuf>,
}

/// How long it takes to ask for a lock again.
const PAUSE: Duration = Duration::from_millis(20);

impl Lock {
    /// Locks the file at a path against changes, as [`FileDevice::open_shared`](crate::FileDevice::open_shared) does; `None`
    /// if the path leads to another file than `id` by now.
    ///
    /// # Errors
    /// `Busy` when another process has it open for changes; `Io`.
    pub fn shared(path: &Path, id: FileId) -> Result<Option<Lock>> {
        let file = match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        if os::id_of(&file)? != id {
            return Ok(None);
        }
        Ok(Some(Lock { held: Held::lock(file, Sharing::Shared)?, path: None }))
    }

    /// Takes a lock by its name: that of a file in a folder, which are made if they are not there, for this user alone. Where
    /// they can't be made a file that is there is locked all the same; `None` if there is none that can be opened. What
    /// others hold is waited for as long as `patience` lasts.
    ///
    /// # Errors
    /// `Busy` when others still hold it then; `Io`.
    pub fn named(folder: &Path, name: &str, sharing: Sharing, patience: Duration) -> Result<Option<Lock>> {
        let path = folder.join(name);
        let begun = Instant::now();
        loop {
            let Some(file) = open(folder, &path)? else { return Ok(None) };
            match Held::ask(file, sharing)? {
                None if begun.elapsed() >= patience => return Err(in_use(os::id_at(&path)?)),
                None => thread::sleep(PAUSE),
                Some(held) => {
                    // Whoever held it last may have removed the file, and the next one makes another.
                    if os::id_at(&path).is_ok_and(|id| os::id_of(&held).is_ok_and(|held| held == id)) {
                        return Ok(Some(Lock { held, path: Some(path) }));
                    }
                }
            }
        }
    }
}

/// Opens the file of a lock.
fn open(folder: &Path, path: &Path) -> Result<Option<File>> {
    // Whether that was of use is seen below.
    let _ = fs::DirBuilder::new().mode(0o700).create(folder);
    let mut options = OpenOptions::new();
    os::itself(options.read(true).write(true).create(true).truncate(false).mode(0o600));
    match options.open(path) {
        Ok(file) => return Ok(Some(file)),
        Err(error) if is_out_of_reach(&error) => {}
        Err(error) => return Err(error.into()),
    }
    let mut options = OpenOptions::new();
    os::itself(options.read(true));
    match options.open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if is_out_of_reach(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn is_out_of_reach(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::NotFound
            | ErrorKind::PermissionDenied
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::NotADirectory
    )
}

impl Drop for Lock {
    fn drop(&mut self) {
        let Some(path) = &self.path else { return };
        // The last one that holds it removes the file.
        let is_last = self.held.is_ours() && matches!(self.held.try_lock(), Ok(()));
        if is_last && os::id_at(path).is_ok_and(|id| os::id_of(&self.held).is_ok_and(|held| held == id)) {
            // One that stays is locked as well as a new one.
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::ZERO;

    #[test]
    fn a_name_is_locked_by_one_or_shared_by_many() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("locks");
        let take = |sharing| Lock::named(&folder, "name", sharing, SOON);
        let one = take(Sharing::Exclusive).unwrap().unwrap();
        assert!(
            take(Sharing::Exclusive).unwrap_err().is_busy() && take(Sharing::Shared).unwrap_err().is_busy()
        );
        assert!(Lock::named(&folder, "other", Sharing::Exclusive, SOON).unwrap().is_some());
        drop(one);
        assert!(!folder.join("name").exists());
        let readers = [(); 2].map(|()| take(Sharing::Shared).unwrap().unwrap());
        assert!(take(Sharing::Exclusive).unwrap_err().is_busy());
        let [first, second] = readers;
        drop(first);
        assert!(folder.join("name").exists() && take(Sharing::Exclusive).unwrap_err().is_busy());
        drop(second);
        assert!(!folder.join("name").exists());
    }

    #[test]
    fn a_lock_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let take = |patience| Lock::named(folder.path(), "name", Sharing::Exclusive, patience);
        let one = take(SOON).unwrap().unwrap();
        thread::scope(|scope| {
            let other = scope.spawn(|| take(Duration::from_secs(600)));
            drop(one);
            assert!(other.join().unwrap().unwrap().is_some());
        });
    }

    #[test]
    fn without_a_folder_there_is_no_lock() {
        let none = Path::new("/nowhere/locks");
        assert!(Lock::named(none, "name", Sharing::Exclusive, SOON).unwrap().is_none());
    }

    #[test]
    fn a_file_that_took_the_name_is_not_locked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        fs::write(&path, "one").unwrap();
        let id = os::id_at(&path).unwrap();
        assert!(Lock::shared(&path, id).unwrap().is_some());
        fs::write(folder.path().join("other"), "two").unwrap();
        fs::rename(folder.path().join("other"), &path).unwrap();
        assert!(Lock::shared(&path, id).unwrap().is_none());
    }
}
