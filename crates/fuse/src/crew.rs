//! The threads that answer requests: all but one may be at long work at a time.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Work that takes long: contents that are read, decrypted and checked, or a whole folder's names.
type Work = Box<dyn FnOnce() + Send>;

/// The number of threads at long work, and the work that waits until one of them is through.
///
/// The thread that reads a request does it, and wakes no other thread. When the last thread but one is at long work, further such
/// work is left to those threads, and the one that read the request goes on to the next: a name is looked up meanwhile.
pub struct Crew {
    most: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    busy: usize,
    waiting: VecDeque<Work>,
}

impl Crew {
    /// A crew of which `most` may be at long work at a time.
    pub fn new(most: usize) -> Crew {
        Crew { most, state: Mutex::default() }
    }

    /// Does work, now on this thread or soon on another.
    pub fn work(&self, work: impl FnOnce() + Send + 'static) {
        {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.busy == self.most {
                state.waiting.push_back(Box::new(work));
                return;
            }
            state.busy += 1;
        }
        work();
        while let Some(work) = self.next() {
            work();
        }
    }

    /// The work that waits longest; without any, this thread is through.
    fn next(&self) -> Option<Work> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let next = state.waiting.pop_front();
        if next.is_none() {
            state.busy -= 1;
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    /// With one thread at work a second one is free at once, and its work is done by the first.
    #[test]
    fn one_thread_is_free_whatever_waits() {
        let crew = Crew::new(1);
        let (release, released) = mpsc::channel::<()>();
        let (started, has_started) = mpsc::channel();
        let (done, finished) = mpsc::channel();
        thread::scope(|scope| {
            let first = scope.spawn(|| {
                crew.work(move || {
                    started.send(()).unwrap();
                    released.recv().unwrap();
                });
                thread::current().id()
            });
            has_started.recv().unwrap();
            for number in 0..3 {
                let done = done.clone();
                crew.work(move || done.send((number, thread::current().id())).unwrap());
            }
            assert!(finished.try_recv().is_err());
            release.send(()).unwrap();
            let first = first.join().unwrap();
            let all: Vec<_> = finished.try_iter().collect();
            assert_eq!(all, [(0, first), (1, first), (2, first)]);
        });
        assert_eq!(crew.state.lock().unwrap().busy, 0);
    }
}
