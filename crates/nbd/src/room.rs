//! Memory that clients share: the bytes that may still be taken.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::link::lock;

/// A budget of memory in bytes, which requests take and give back.
pub(crate) struct Room {
    size: usize,
    state: Mutex<State>,
    freed: Condvar,
}

struct State {
    free: usize,
    /// The number of times that bytes were given back.
    given: u64,
    waiting: usize,
}

impl Room {
    pub(crate) fn new(size: usize) -> Room {
        Room { size, state: Mutex::new(State { free: size, given: 0, waiting: 0 }), freed: Condvar::new() }
    }

    /// Takes bytes, or waits for them. `false` if none were given back for as long as `patience`. `bytes` must not be
    /// above the budget.
    pub(crate) fn take(&self, bytes: usize, patience: Duration) -> bool {
        let mut state = lock(&self.state);
        let (mut given, mut since) = (state.given, None);
        while state.free < bytes {
            let now = Instant::now();
            if state.given != given {
                (given, since) = (state.given, Some(now));
            }
            let deadline = *since.get_or_insert(now) + patience;
            if now >= deadline {
                return false;
            }
            state.waiting += 1;
            let waited = self.freed.wait_timeout(state, deadline - now);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.waiting -= 1;
        }
        state.free -= bytes;
        true
    }

    pub(crate) fn give(&self, bytes: usize) {
        let mut state = lock(&self.state);
        state.free += bytes;
        state.given += 1;
        // Waking is a system call even if nobody waits. Those who do may want more or less than this.
        if state.waiting > 0 {
            self.freed.notify_all();
        }
    }

    /// The bytes that are taken at this moment.
    pub(crate) fn taken(&self) -> usize {
        self.size - lock(&self.state).free
    }
}
