//! Ranges of a device that somebody is at work in.

use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Claims to ranges. Each waits for those before it that it can't stand beside, so that nobody waits for ever.
#[derive(Default)]
pub(super) struct Claims {
    /// In the order in which they came.
    queue: Mutex<Queue>,
    freed: Condvar,
}

#[derive(Default)]
struct Queue {
    next: u64,
    entries: Vec<Entry>,
}

struct Entry {
    number: u64,
    range: Range<u64>,
    /// Whether nobody else may be there.
    alone: bool,
}

/// A claim, until it is dropped.
pub(super) struct Claim<'a> {
    claims: &'a Claims,
    number: u64,
}

impl Entry {
    fn bars(&self, other: &Entry) -> bool {
        (self.alone || other.alone)
            && self.range.start < other.range.end
            && other.range.start < self.range.end
    }
}

impl Claims {
    /// Waits until the range can be had: `alone`, or beside others that are not.
    pub fn claim(&self, range: Range<u64>, alone: bool) -> Claim<'_> {
        let mut queue = self.queue();
        let number = queue.next;
        queue.next += 1;
        queue.entries.push(Entry { number, range, alone });
        let is_barred = |queue: &mut Queue| {
            let own = queue.entries.iter().position(|entry| entry.number == number).unwrap_or(0);
            let (before, rest) = queue.entries.split_at(own);
            before.iter().any(|entry| rest.first().is_some_and(|own| entry.bars(own)))
        };
        drop(self.freed.wait_while(queue, is_barred).unwrap_or_else(PoisonError::into_inner));
        Claim { claims: self, number }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.claims.queue().entries.retain(|entry| entry.number != self.number);
        self.claims.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn who_is_alone_waits_and_is_waited_for() {
        let claims = Claims::default();
        let (tell, told) = channel();
        let soon = Duration::from_millis(50);
        thread::scope(|scope| {
            let claims = &claims;
            let (one, two) = (claims.claim(0..10, false), claims.claim(5..15, false));
            let teller = tell.clone();
            scope.spawn(move || {
                let _zone = claims.claim(8..20, true);
                teller.send("zone").unwrap();
            });
            while claims.queue().entries.len() < 3 {
                thread::yield_now();
            }
            // Those that come later wait for it, though nobody is there yet; others don't.
            let teller = tell.clone();
            scope.spawn(move || {
                let _late = claims.claim(19..30, false);
                teller.send("late").unwrap();
            });
            drop(claims.claim(20..30, false));
            assert_eq!(told.recv_timeout(soon), Err(RecvTimeoutError::Timeout));
            drop(one);
            assert_eq!(told.recv_timeout(soon), Err(RecvTimeoutError::Timeout));
            drop(two);
            assert_eq!((told.recv(), told.recv()), (Ok("zone"), Ok("late")));
        });
        assert!(claims.queue().entries.is_empty());
    }
}
