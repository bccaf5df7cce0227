//! Files that loop devices stand on, which are locked with the devices: a device may have been attached while somebody worked on
//! its file.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::error::{Error, Result};
use crate::held::{Held, Sharing, busy, open_to_read};
use crate::identity::{FileId, all_below};
use crate::os::{self, Below};

/// A lock (flock) on the file that a loop device stands on. All that lies on the device shares it within this process, as its
/// partitions do: the device itself keeps them apart.
#[derive(Debug)]
pub(crate) struct Beneath {
    held: Held,
    sharing: Mutex<Sharing>,
}

/// A loop device of this process, and the lock that it has.
struct Known {
    device: FileId,
    /// The file that it stands on, and which bytes of it it has.
    file: FileId,
    range: Range<u64>,
    lock: Weak<Beneath>,
}

/// The locks that this process has.
static ALL: Mutex<Vec<Known>> = Mutex::new(Vec::new());

impl Beneath {
    /// Locks all files that a device lies on, but those that can't be opened here.
    ///
    /// # Errors
    /// `Busy` when others have locked one; `Io`.
    pub fn lock(device: FileId, sharing: Sharing) -> Result<Vec<Arc<Beneath>>> {
        let mut locks = Vec::new();
        for (device, below) in all_below(device) {
            if let Some(path) = &below.backing {
                locks.extend(Beneath::hold(device, path, &below, sharing)?);
            }
        }
        Ok(locks)
    }

    fn hold(device: FileId, path: &Path, below: &Below, sharing: Sharing) -> Result<Option<Arc<Beneath>>> {
        let explain = |error: Error| match error.is_busy() {
            true => busy(&format!("{}, which lies below it, is {}", path.display(), error.text())),
            false => error,
        };
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|known| known.lock.strong_count() > 0);
        let (file, range) = (below.id, below.range.clone());
        // Devices on other bytes of the file share the lock, too: nothing that one has is changed by the others.
        let is_apart = |known: &&Known| {
            known.device == device
                || known.file == file && (known.range.end <= range.start || range.end <= known.range.start)
        };
        let locks = all.iter().filter(is_apart).filter_map(|known| known.lock.upgrade());
        let lock = locks.filter(|lock| lock.held.is_ours()).find(|lock| {
            // All that have the lock are the device itself or apart from it.
            let mut sharers = all.iter().filter(|known| known.lock.ptr_eq(&Arc::downgrade(lock)));
            sharers.all(|known| is_apart(&known))
        });
        if let Some(lock) = lock {
            lock.strengthen(sharing).map_err(explain)?;
            if !all.iter().any(|known| known.device == device) {
                all.push(Known { device, file, range, lock: Arc::downgrade(&lock) });
            }
            return Ok(Some(lock));
        }
        // It may be gone, or the path be one of another mount namespace.
        let Some(opened) =
            open_to_read(path).ok().filter(|opened| os::id_of(opened).is_ok_and(|found| found == file))
        else {
            return Ok(None);
        };
        let held = Held::lock_alone(opened, sharing).map_err(explain)?;
        let lock = Arc::new(Beneath { held, sharing: Mutex::new(sharing) });
        all.push(Known { device, file, range, lock: Arc::downgrade(&lock) });
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
