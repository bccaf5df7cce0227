//! Threads that take turns to lead.

use std::sync::{Condvar, Mutex, PoisonError};

use crate::link::lock;

/// A connection's threads. There are as many as processors, and more while some are stuck: they wait for the device or
/// the client, and need no processor.
pub(crate) struct Crew {
    state: Mutex<State>,
    call: Condvar,
    processors: usize,
    most: usize,
}

#[derive(Default)]
struct State {
    threads: usize,
    /// Threads that wait to lead.
    waiting: usize,
    stuck: usize,
    /// Threads that wait until they are called, because there are enough without them.
    spare: usize,
    called: usize,
    ended: bool,
}

impl Crew {
    /// The crew of a connection, with one thread at first and at most `most`.
    pub(crate) fn new(processors: usize, most: usize) -> Crew {
        let state = Mutex::new(State { threads: 1, ..State::default() });
        Crew { state, call: Condvar::new(), processors, most }
    }

    /// Lines this thread up to lead, if need be after a while as a spare. `false` when the connection ends.
    pub(crate) fn line_up(&self) -> bool {
        let mut state = lock(&self.state);
        if state.waiting > 0 && state.busy() > self.processors {
            state.spare += 1;
            while state.called == 0 && !state.ended {
                state = self.call.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.called = state.called.saturating_sub(1);
        }
        state.waiting += 1;
        !state.ended
    }

    /// Notes that a thread that lined up has become the leader. `false` when the connection ends.
    pub(crate) fn lead(&self) -> bool {
        let mut state = lock(&self.state);
        state.waiting -= 1;
        !state.ended
    }

    /// Notes that the leader stops leading; with `stuck`, that this thread is about to wait for the device or the
    /// client. Returns whether a thread is to be started.
    pub(crate) fn must_grow(&self, stuck: bool) -> bool {
        let mut state = lock(&self.state);
        state.stuck += usize::from(stuck);
        if state.waiting > 0 || state.busy() >= self.processors {
            return false;
        }
        if state.spare > 0 {
            state.spare -= 1;
            state.called += 1;
            self.call.notify_one();
            return false;
        }
        let grows = state.threads < self.most;
        state.threads += usize::from(grows);
        grows
    }

    /// Notes that no thread could be started; the others go on when they are done.
    pub(crate) fn could_not_grow(&self) {
        lock(&self.state).threads -= 1;
    }

    /// Notes that a thread's wait for the device or the client is over.
    pub(crate) fn free(&self) {
        lock(&self.state).stuck -= 1;
    }

    /// Ends the waits of all threads, because the connection ends.
    pub(crate) fn end(&self) {
        lock(&self.state).ended = true;
        self.call.notify_all();
    }
}

impl State {
    /// The number of threads that have something to do, or will have.
    fn busy(&self) -> usize {
        self.threads - self.stuck - self.spare
    }
}
