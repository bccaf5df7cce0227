//! Inodes that the kernel knows.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use casemate::ext4::InodeNo;

/// How often the kernel was told of each inode, less what it has forgotten: an inode without names that it knows may be
/// open, or somebody's working directory.
#[derive(Default)]
pub struct Known(Mutex<HashMap<InodeNo, u64>>);

impl Known {
    /// Counts that the kernel is told of an inode: before it is.
    pub fn add(&self, number: InodeNo) {
        let mut all = self.locked();
        let times = all.entry(number).or_default();
        *times = times.saturating_add(1);
    }

    /// Counts what the kernel has forgotten; whether it does not know the inode any more.
    pub fn forget(&self, number: InodeNo, times: u64) -> bool {
        let mut all = self.locked();
        match all.get_mut(&number) {
            Some(left) if *left > times => {
                *left -= times;
                false
            }
            Some(_) => {
                all.remove(&number);
                true
            }
            None => true,
        }
    }

    /// Whether the kernel knows an inode.
    pub fn has(&self, number: InodeNo) -> bool {
        self.locked().contains_key(&number)
    }

    /// All of them.
    pub fn all(&self) -> Vec<InodeNo> {
        self.locked().keys().copied().collect()
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<InodeNo, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_is_known_until_all_was_forgotten() {
        let known = Known::default();
        (0..3).for_each(|_| known.add(InodeNo::ROOT));
        assert!(!known.forget(InodeNo::ROOT, 2) && known.has(InodeNo::ROOT));
        assert!(known.forget(InodeNo::ROOT, 1) && !known.has(InodeNo::ROOT));
        assert!(known.forget(InodeNo::ROOT, 1));
    }
}
