//! Open files that are locked, as long as they are used.

use std::fs::{self, File, TryLockError};
use std::ops::Deref;
use std::path::Path;
use std::process;
use std::sync::Arc;

use crate::beneath::Beneath;
use crate::error::{Error, Result};
use crate::identity::FileId;
use crate::os::{self, FileTypeExt};

/// How many may hold a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Any number that share it.
    Shared,
    /// One.
    Exclusive,
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

/// Opens a file for reading, but no pipe: that would wait for somebody who writes to it.
pub(crate) fn open_to_read(path: &Path) -> Result<File> {
    match fs::metadata(path)?.file_type().is_fifo() {
        true => Err(no_device()),
        false => Ok(File::open(path)?),
    }
}

/// Error of what has no positions, or no bytes to be kept.
pub(crate) fn no_device() -> Error {
    Error::argument("neither a regular file nor a block device")
}
