//! Files that loop devices stand on, which are locked with the devices: a device may have been attached while somebody worked on
//! its file.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::error::{Error, Result};
use crate::exclusive::{Held, busy};
use crate::file::open_to_read;
use crate::identity::{FileId, MAX_DEPTH};
use crate::lock::Sharing;
use crate::os;

/// A lock (flock) on the file that a loop device stands on. All that lies on the device shares it within this process, as its
/// partitions do: the device itself keeps them apart.
#[derive(Debug)]
pub(crate) struct Beneath {
    held: Held,
    sharing: Mutex<Sharing>,
}

/// The locks that this process has, by their loop devices.
static ALL: Mutex<Vec<(FileId, Weak<Beneath>)>> = Mutex::new(Vec::new());

impl Beneath {
    /// Locks all files that a device lies on, but those that can't be opened here.
    ///
    /// # Errors
    /// `Busy` when others have locked one; `Io`.
    pub fn lock(mut device: FileId, sharing: Sharing) -> Result<Vec<Arc<Beneath>>> {
        let mut locks = Vec::new();
        for _ in 0..MAX_DEPTH {
            let Some(below) = os::below(device) else { break };
            if let Some(path) = &below.backing {
                locks.extend(Beneath::hold(device, path, below.id, sharing)?);
            }
            device = below.id;
        }
        Ok(locks)
    }

    fn hold(device: FileId, path: &Path, id: FileId, sharing: Sharing) -> Result<Option<Arc<Beneath>>> {
        let explain = |error: Error| match error.is_busy() {
            true => busy(&format!("another process is working on {}, which it stands on", path.display())),
            false => error,
        };
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, lock)| lock.strong_count() > 0);
        let known = all
            .iter()
            .find(|(id, lock)| *id == device && lock.upgrade().is_some_and(|lock| lock.held.is_ours()));
        if let Some(lock) = known.and_then(|(_, lock)| lock.upgrade()) {
            lock.strengthen(sharing).map_err(explain)?;
            return Ok(Some(lock));
        }
        // It may be gone, or the path be one of another mount namespace.
        let Some(file) =
            open_to_read(path).ok().filter(|file| os::id_of(file).is_ok_and(|found| found == id))
        else {
            return Ok(None);
        };
        let held = Held::lock_alone(file, sharing).map_err(explain)?;
        let lock = Arc::new(Beneath { held, sharing: Mutex::new(sharing) });
        all.push((device, Arc::downgrade(&lock)));
        Ok(Some(lock))
    }

    /// Makes a shared lock an exclusive one, if that is asked for.
    fn strengthen(&self, sharing: Sharing) -> Result<()> {
        let mut now = self.sharing.lock().unwrap_or_else(PoisonError::into_inner);
        if (*now, sharing) != (Sharing::Shared, Sharing::Exclusive) {
            return Ok(());
        }
        if let Err(error) = self.held.relock(sharing) {
            // The system gave up the lock that was there.
            self.held.relock(Sharing::Shared)?;
            return Err(error);
        }
        *now = sharing;
        Ok(())
    }
}
