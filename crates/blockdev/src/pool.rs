//! Numbered pieces of work, spread over threads.

use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use crate::stack::wipe_worker;

/// The number of threads that work on a job. Threads live as long as one job: jobs here take long, threads start fast.
#[derive(Clone, Copy, Debug)]
pub struct Pool {
    threads: NonZeroUsize,
}

impl Pool {
    /// A pool of `threads` workers, or one for each core if `None`.
    pub fn new(threads: Option<NonZeroUsize>) -> Pool {
        // The kernel tells in files of control groups, and whoever works on small files asks for each of them.
        static CORES: OnceLock<NonZeroUsize> = OnceLock::new();
        let cores = || *CORES.get_or_init(|| thread::available_parallelism().unwrap_or(NonZeroUsize::MIN));
        Pool { threads: threads.unwrap_or_else(cores) }
    }

    /// This pool with at most `threads` workers: starting one takes as long as reading some 100 KB.
    #[must_use]
    pub fn at_most(self, threads: usize) -> Pool {
        Pool { threads: self.threads.min(NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN)) }
    }

    /// The number of workers.
    pub fn threads(&self) -> usize {
        self.threads.get()
    }

    /// Calls `work(state, piece)` for every piece in `0..pieces`, each once, on all workers.
    ///
    /// Pieces are claimed in order, so neighbours are worked on at about the same time. Each worker makes its
    /// own `state` once, for buffers.
    ///
    /// # Errors
    /// The first error stops the claiming of pieces; of several errors the one of the lowest piece is
    /// returned.
    pub fn run<S: Send, E: Send>(
        &self,
        pieces: u64,
        state: impl Fn() -> S + Sync,
        work: impl Fn(&mut S, u64) -> Result<(), E> + Sync,
    ) -> Result<(), E> {
        self.gather(pieces, state, work).1
    }

    /// Calls `work(state, piece)` as [`Pool::run`] does. Returns the workers' states, also after an error: what each has counted and
    /// collected.
    pub fn gather<S: Send, E: Send>(
        &self,
        pieces: u64,
        state: impl Fn() -> S + Sync,
        work: impl Fn(&mut S, u64) -> Result<(), E> + Sync,
    ) -> (Vec<S>, Result<(), E>) {
        let next = AtomicU64::new(0);
        let failed = AtomicBool::new(false);
        let pieces_of_one = || {
            let mut state = state();
            while !failed.load(Ordering::Relaxed) {
                let piece = next.fetch_add(1, Ordering::Relaxed);
                if piece >= pieces {
                    break;
                }
                if let Err(error) = work(&mut state, piece) {
                    failed.store(true, Ordering::Relaxed);
                    return (state, Err((piece, error)));
                }
            }
            (state, Ok(()))
        };
        let worker = || {
            let result = pieces_of_one();
            // A thread's stack is kept for the next one. That of whoever called is wiped by them.
            wipe_worker();
            result
        };
        let threads = self.threads.get().min(usize::try_from(pieces).unwrap_or(usize::MAX));
        if threads <= 1 {
            let (state, result) = pieces_of_one();
            return (vec![state], result.map_err(|(_, error)| error));
        }
        let (states, results): (Vec<S>, Vec<_>) = thread::scope(|scope| {
            // Where no more threads can be had, those that there are do the work.
            let start = |_| thread::Builder::new().spawn_scoped(scope, worker).ok();
            let others: Vec<_> = (1..threads).map_while(start).collect();
            let own = pieces_of_one();
            let joined =
                others.into_iter().map(|other| other.join().unwrap_or_else(|panic| resume_unwind(panic)));
            std::iter::once(own).chain(joined).unzip()
        });
        let first = results.into_iter().filter_map(Result::err).min_by_key(|(piece, _)| *piece);
        (states, first.map_or(Ok(()), |(_, error)| Err(error)))
    }

    /// Calls `work(piece)` for every piece in `0..pieces`, each once, on all workers, and `take` with each result on the thread
    /// that called, in any order. That one works too while no result waits; `most` of them wait at most.
    ///
    /// # Errors
    /// The first error of `work` or `take`, which stops the claiming of pieces.
    pub fn feed<T: Send, E: Send>(
        &self,
        pieces: u64,
        most: usize,
        work: impl Fn(u64) -> Result<T, E> + Sync,
        mut take: impl FnMut(T) -> Result<(), E>,
    ) -> Result<(), E> {
        let next = AtomicU64::new(0);
        let claim = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|piece| *piece < pieces);
        let threads = self.threads.get().min(usize::try_from(pieces).unwrap_or(usize::MAX));
        let (results, waiting) = mpsc::sync_channel(most);
        let worker = |results: mpsc::SyncSender<Result<T, E>>| {
            while let Some(piece) = claim() {
                let result = work(piece);
                // Nobody takes any more after an error.
                if result.is_err() | results.send(result).is_err() {
                    break;
                }
            }
            wipe_worker();
        };
        thread::scope(|scope| {
            // Owned here, so that it is gone, and nobody waits to send, before the threads are waited for.
            let waiting = waiting;
            for _ in 1..threads {
                let results = results.clone();
                let start = thread::Builder::new().spawn_scoped(scope, || worker(results));
                if start.is_err() {
                    break;
                }
            }
            drop(results);
            loop {
                while let Ok(result) = waiting.try_recv() {
                    take(result?)?;
                }
                match claim() {
                    Some(piece) => take(work(piece)?)?,
                    None => break,
                }
            }
            waiting.iter().try_for_each(|result| take(result?))
        })
    }
}

impl Default for Pool {
    fn default() -> Pool {
        Pool::new(None)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn every_piece_is_done_once() {
        for threads in [1, 2, 7] {
            let pool = Pool::new(NonZeroUsize::new(threads));
            for pieces in [0, 1, 2, 100] {
                let seen = Mutex::new(Vec::new());
                let work = |_: &mut (), piece| {
                    seen.lock().unwrap().push(piece);
                    Ok::<_, ()>(())
                };
                pool.run(pieces, || (), work).unwrap();
                let mut seen = seen.into_inner().unwrap();
                seen.sort_unstable();
                assert_eq!(seen, (0..pieces).collect::<Vec<_>>(), "{threads} threads");
            }
        }
    }

    #[test]
    fn who_calls_takes_every_result() {
        let here = thread::current().id();
        for threads in [1, 2, 7] {
            let pool = Pool::new(NonZeroUsize::new(threads));
            for pieces in [0, 1, 2, 100] {
                let mut seen = Vec::new();
                let take = |piece| {
                    assert_eq!(thread::current().id(), here);
                    seen.push(piece);
                    Ok::<_, ()>(())
                };
                pool.feed(pieces, threads, Ok, take).unwrap();
                seen.sort_unstable();
                assert_eq!(seen, (0..pieces).collect::<Vec<_>>(), "{threads} threads");
            }
            let mut taken = 0;
            let error = pool.feed(
                1 << 40,
                threads,
                |piece| if piece >= 5 { Err(piece) } else { Ok(()) },
                |()| {
                    taken += 1;
                    Ok(())
                },
            );
            assert!(error.unwrap_err() >= 5 && taken <= 5, "{error:?}");
            let refuse = |piece| if piece == 3 { Err("no") } else { Ok(()) };
            assert_eq!(pool.feed(1 << 40, 1, Ok, refuse), Err("no"));
        }
    }

    #[test]
    fn states_come_back_after_an_error_too() {
        for threads in [1, 2, 7] {
            let pool = Pool::new(NonZeroUsize::new(threads));
            let work = |seen: &mut Vec<u64>, piece| {
                seen.push(piece);
                if piece == 50 { Err(piece) } else { Ok(()) }
            };
            let (states, result) = pool.gather(50, Vec::new, work);
            let mut seen = states.concat();
            seen.sort_unstable();
            assert_eq!((seen, result), ((0..50).collect(), Ok(())), "{threads} threads");
            let (states, result) = pool.gather(1 << 40, Vec::new, work);
            assert_eq!(result, Err(50));
            assert!((0..=50).all(|piece| states.iter().flatten().any(|seen| *seen == piece)));
        }
        let panics =
            || Pool::new(NonZeroUsize::new(3)).gather(3, || (), |(), _| -> Result<(), ()> { panic!("here") });
        assert!(std::panic::catch_unwind(panics).is_err());
    }

    #[test]
    fn an_error_stops_the_claiming() {
        let pool = Pool::new(NonZeroUsize::new(3));
        let done = AtomicU64::new(0);
        let work = |_: &mut (), piece| {
            done.fetch_add(1, Ordering::Relaxed);
            if piece >= 5 { Err(piece) } else { Ok(()) }
        };
        let error = pool.run(1 << 40, || (), work).unwrap_err();
        assert!((5..8).contains(&error), "{error}");
        assert!(done.into_inner() < 100);
    }
}
