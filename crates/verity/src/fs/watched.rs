//! A sink that tells who has failed.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::Error;
use crate::tree::TreeSink;

/// A sink that remembers whether it was the one that failed.
pub(super) struct Watched<S> {
    inner: S,
    failed: AtomicBool,
}

impl<S> Watched<S> {
    pub(super) fn new(inner: S) -> Watched<S> {
        Watched { inner, failed: AtomicBool::new(false) }
    }

    pub(super) fn failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    pub(super) fn into_inner(self) -> S {
        self.inner
    }
}

impl<S: TreeSink> TreeSink for Watched<S> {
    fn write(&self, level: usize, first: u64, blocks: &[u8]) -> Result<(), Error> {
        let written = self.inner.write(level, first, blocks);
        if written.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        written
    }
}
