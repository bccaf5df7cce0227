//! Work that a signal shall not leave behind: files under temporary names, which a process that is about to end removes, and changes
//! of files where they lie, whose end it waits for.

use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

static BEGINS: OnceLock<fn()> = OnceLock::new();

/// The files of this process, and of the one that it was forked from.
static PARTS: Mutex<Vec<Part>> = Mutex::new(Vec::new());

/// Changes that are being made.
static CHANGES: AtomicUsize = AtomicUsize::new(0);

/// A change of a file where it lies, which leaves that in a state to be completed if it is cut off.
#[derive(Debug)]
pub struct Change(());

impl Change {
    /// Begins one.
    pub fn begin() -> Change {
        announce();
        CHANGES.fetch_add(1, Ordering::Relaxed);
        Change(())
    }

    /// Whether one is being made in this process.
    pub fn is_under_way() -> bool {
        CHANGES.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        CHANGES.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Part {
    path: PathBuf,
    process: u32,
}

/// Has this called before each file that is begun under a temporary name. The first such function stays.
pub fn when_output_begins(f: fn()) {
    let _ = BEGINS.set(f);
}

/// Whether this process has files under temporary names.
pub fn has_unfinished_outputs() -> bool {
    parts().iter().any(is_own)
}

/// Removes all files of this process that are under temporary names, for one that ends at once: nothing can be begun or finished
/// any more.
pub fn remove_unfinished_outputs() {
    let parts = parts();
    for part in parts.iter().filter(|part| is_own(part)) {
        // It stays where it can't be removed; there is nobody to tell.
        let _ = std::fs::remove_file(&part.path);
    }
    std::mem::forget(parts);
}

/// Calls whoever wants to know that a file is begun.
pub(crate) fn announce() {
    if let Some(begins) = BEGINS.get() {
        begins();
    }
}

/// Notes a file that was begun.
pub(crate) fn begin(path: &Path) {
    parts().push(Part { path: path.to_owned(), process: process::id() });
}

/// Forgets a file after `end` has removed it, or given it its name.
pub(crate) fn end<T>(path: &Path, end: impl FnOnce() -> T) -> T {
    let mut parts = parts();
    let ended = end();
    parts.retain(|part| !is_own(part) || part.path != path);
    ended
}

fn parts() -> MutexGuard<'static, Vec<Part>> {
    PARTS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_own(part: &Part) -> bool {
    part.process == process::id()
}
