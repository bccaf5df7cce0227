//! Names of folders that are being listed.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use casemate::Error;
use casemate::ext4::{Ext4, Inode, InodeNo, Names};

/// Folders whose names are kept. More that are listed at the same time are read again for each piece.
const MOST: usize = 16;

/// The names of the folders that were listed last, and not to their ends. The kernel asks for names in pieces, without
/// opening a folder before.
#[derive(Default)]
pub struct Listings(Mutex<VecDeque<(InodeNo, Arc<Names>)>>);

impl Listings {
    /// The names in a directory, in an order that stays.
    pub fn names(&self, fs: &Ext4, dir: &Inode) -> Result<Arc<Names>, Error> {
        let known = self.locked().iter().find(|(number, _)| *number == dir.number()).cloned();
        if let Some((_, names)) = known {
            return Ok(names);
        }
        let names = Arc::new(fs.names(dir)?);
        let mut all = self.locked();
        if all.len() == MOST {
            all.pop_front();
        }
        all.push_back((dir.number(), Arc::clone(&names)));
        Ok(names)
    }

    /// Forgets a directory whose names were all told.
    pub fn forget(&self, number: InodeNo) {
        self.locked().retain(|(known, _)| *known != number);
    }

    /// Forgets all directories.
    pub fn forget_all(&self) {
        self.locked().clear();
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, VecDeque<(InodeNo, Arc<Names>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
