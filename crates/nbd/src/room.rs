//! Memory that clients share: how much may still be taken.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::link::lock;

/// So many bytes, which are taken and given back.
pub(crate) struct Room {
    size: usize,
    state: Mutex<State>,
    freed: Condvar,
}

struct State {
    free: usize,
    /// How often something was given back.
    given: u64,
    waiting: usize,
}

impl Room {
    pub(crate) fn new(size: usize) -> Room {
        Room { size, state: Mutex::new(State { free: size, given: 0, waiting: 0 }), freed: Condvar::new() }
    }

    /// Takes bytes, or waits for them; `false` if nobody has given anything back for so long. There must be so many.
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

    /// How much is taken now.
    pub(crate) fn taken(&self) -> usize {
        self.size - lock(&self.state).free
    }
}
