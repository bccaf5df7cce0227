//! Inodes that the kernel knows.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How often the kernel was told of each inode, less what it has forgotten: an inode without names that it knows may be
/// open, or somebody's working directory.
#[derive(Default)]
pub struct Known(Mutex<HashMap<u32, u64>>);

impl Known {
    /// Counts that the kernel is told of an inode: before it is.
    pub fn add(&self, number: u32) {
        let mut all = self.locked();
        let times = all.entry(number).or_default();
        *times = times.saturating_add(1);
    }

    /// Counts what the kernel has forgotten; whether it does not know the inode any more.
    pub fn forget(&self, number: u32, times: u64) -> bool {
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
    pub fn has(&self, number: u32) -> bool {
        self.locked().contains_key(&number)
    }

    /// All of them.
    pub fn all(&self) -> Vec<u32> {
        self.locked().keys().copied().collect()
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<u32, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_is_known_until_all_was_forgotten() {
        let known = Known::default();
        (0..3).for_each(|_| known.add(7));
        assert!(!known.forget(7, 2) && known.has(7));
        assert!(known.forget(7, 1) && !known.has(7));
        assert!(known.forget(7, 1));
    }
}
