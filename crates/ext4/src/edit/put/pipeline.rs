//! Reading ahead and writing behind, on several threads.
//!
//! One thread, the owner, decides where everything goes, in the order of the tree: what it makes does not depend
//! on the others. They read what comes next and write the contents that have got their places. The owner does
//! both, too, while it would have to wait. So much is read ahead, and so much left to be written: memory is
//! bounded whatever the tree's size.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder};

use casemate_blockdev::{BlockDevice, Buffer, Pool, u64_of, usize_of};
use casemate_trees::host::{Batch, HostFile, Reading, Walk};

use crate::error::{Error, Result, again};
use crate::read::encryption::EncryptedContents;

/// More threads have nothing to do: the owner is not so fast.
const MOST_THREADS: usize = 8;

/// Batches that each thread may be ahead, and writes that may wait for it.
const AHEAD: usize = 2;

/// Bytes that are copied at once.
pub(super) const CHUNK: u64 = 1 << 20;

/// After so many bytes the device is flushed, while others go on: at the end there is less to wait for.
const FLUSH_EVERY: u64 = 64 << 20;

pub(super) struct Pipeline {
    device: Arc<dyn BlockDevice>,
    /// Bytes since the last flush, and whom to tell when there are enough of them.
    unflushed: AtomicU64,
    flusher: Condvar,
    reading: Reading,
    threads: usize,
    walk: Mutex<Walk>,
    state: Mutex<State>,
    /// Something was done, or is to be done.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Batches that somebody reads or has read, those that are read, and those that the owner has got.
    claimed: u64,
    read: BTreeMap<u64, Result<Batch>>,
    taken: u64,
    /// How many there are, once that is known.
    total: Option<u64>,
    writes: VecDeque<Write>,
    /// Writes that somebody is at.
    writing: usize,
    /// Buffers that nobody uses.
    spare: Vec<Buffer>,
    /// The first error of a write.
    error: Option<Error>,
    /// Nothing is to be done any more.
    over: bool,
}

/// Contents that have got their places.
pub(super) enum Write {
    /// Bytes in a batch's buffer.
    Batch(Buffer, Vec<Piece>),
    /// A part of a file that is still to be read: its bytes begin at `from`.
    Copy { source: Arc<HostFile>, from: u64, piece: Piece },
}

/// Whole blocks in a buffer, and where they go.
pub(super) struct Piece {
    pub at: usize,
    pub len: usize,
    pub to: u64,
    /// Encryption of the bytes, and the block of the file that they begin with.
    pub cipher: Option<(Arc<dyn EncryptedContents>, u64)>,
}

enum Job {
    Read(Buffer),
    /// And a buffer for what is still to be read.
    Write(Write, Buffer),
}

impl Pipeline {
    pub fn new(device: Arc<dyn BlockDevice>, walk: Walk, reading: Reading, pool: Pool) -> Pipeline {
        Pipeline {
            device,
            unflushed: AtomicU64::new(0),
            flusher: Condvar::new(),
            reading,
            threads: pool.threads().min(MOST_THREADS),
            walk: Mutex::new(walk),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Runs the owner, and the other threads beside it. Everything that it gave to be written is then.
    ///
    /// # Errors
    /// Errors of the owner; or that of a write, with `true`.
    pub fn run<T>(&self, owner: impl FnOnce() -> Result<T>) -> std::result::Result<T, (Error, bool)> {
        thread::scope(|scope| {
            let _over = Over(self);
            // Where no more threads can be had, the owner does what there is to do.
            let start = |work: fn(&Self)| Builder::new().spawn_scoped(scope, move || work(self)).is_ok();
            if start(Self::flush_along) {
                let _ = (1..self.threads).all(|_| start(Self::help));
            }
            let result = owner();
            self.drain().map_err(|error| (error, true))?;
            result.map_err(|error| (error, false))
        })
    }

    /// The next batch.
    pub fn next(&self) -> Result<Option<Batch>> {
        let mut state = self.state();
        loop {
            if let Some(error) = &state.error {
                return Err(again(error));
            }
            let taken = state.taken;
            if let Some(batch) = state.read.remove(&taken) {
                state.taken += 1;
                self.changed.notify_all();
                return batch.map(Some);
            }
            if state.total == Some(taken) || state.over {
                return Ok(None);
            }
            state = self.work_or_wait(state);
        }
    }

    /// Has something written soon.
    pub fn submit(&self, write: Write) -> Result<()> {
        let mut state = self.state();
        state.writes.push_back(write);
        self.changed.notify_all();
        while state.writes.len() > AHEAD * self.threads && !state.over {
            state = self.work_or_wait(state);
        }
        state.error.as_ref().map_or(Ok(()), |error| Err(again(error)))
    }

    /// Returns when everything is written.
    pub fn drain(&self) -> Result<()> {
        let mut state = self.state();
        while (!state.writes.is_empty() || state.writing > 0) && !state.over {
            state = self.work_or_wait(state);
        }
        self.unflushed.store(0, Ordering::Relaxed);
        state.error.as_ref().map_or(Ok(()), |error| Err(again(error)))
    }

    /// Writes pieces of a buffer at once.
    pub fn write_now(&self, buffer: &mut [u8], pieces: &[Piece]) -> Result<()> {
        self.write(buffer, pieces).map_err(|error| {
            let copy = again(&error);
            self.state().error.get_or_insert(error);
            copy
        })
    }

    fn write(&self, buffer: &mut [u8], pieces: &[Piece]) -> Result<()> {
        for piece in pieces {
            if let Some((cipher, first)) = &piece.cipher {
                cipher.encrypt(*first, &mut buffer[piece.at..piece.at + piece.len])?;
            }
        }
        let mut rest = pieces;
        while let Some(first) = rest.first() {
            let mut len = first.len;
            let mut joined = 1;
            while let Some(next) = rest.get(joined)
                && (next.at, next.to) == (first.at + len, first.to + u64_of(len))
            {
                len += next.len;
                joined += 1;
            }
            self.device.write_from(&mut buffer[first.at..first.at + len], first.to)?;
            let before = self.unflushed.fetch_add(u64_of(len), Ordering::Relaxed);
            if before + u64_of(len) >= FLUSH_EVERY {
                // If it just was about to wait, the next write tells it.
                self.flusher.notify_one();
            }
            rest = &rest[joined..];
        }
        Ok(())
    }

    fn help(&self) {
        let _over = Over(self);
        let mut state = self.state();
        while !state.over {
            state = self.work_or_wait(state);
        }
    }

    /// Flushes the device from time to time.
    fn flush_along(&self) {
        let _over = Over(self);
        let mut state = self.state();
        while !state.over {
            if self.unflushed.load(Ordering::Relaxed) < FLUSH_EVERY {
                state = self.flusher.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            self.unflushed.store(0, Ordering::Relaxed);
            drop(state);
            let result = self.device.flush();
            state = self.state();
            if let Err(error) = result {
                state.error.get_or_insert(error);
            }
            self.changed.notify_all();
        }
    }

    /// Does what can be done now, or waits until something changes.
    fn work_or_wait<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let Some(job) = self.job(&mut state) else {
            return self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        drop(state);
        match job {
            Job::Read(buffer) => self.read(buffer),
            Job::Write(write, spare) => {
                let (spare, result) = self.carry_out(write, spare);
                let mut state = self.state();
                state.writing -= 1;
                state.spare.push(spare);
                if let Err(error) = result {
                    state.error.get_or_insert(error);
                }
            }
        }
        self.changed.notify_all();
        self.state()
    }

    fn job(&self, state: &mut State) -> Option<Job> {
        let ahead = state.claimed - state.taken;
        let may_read = !state.over && state.total.is_none() && ahead < u64_of(AHEAD * self.threads);
        // Systems take one write of a file at a time, so a second one is only begun if nothing else is left.
        if (state.writing == 0 || !may_read)
            && let Some(write) = state.writes.pop_front()
        {
            state.writing += 1;
            let spare = match write {
                Write::Batch(..) => Buffer::default(),
                Write::Copy { .. } => state.spare.pop().unwrap_or_default(),
            };
            return Some(Job::Write(write, spare));
        }
        if !may_read {
            return None;
        }
        state.claimed += 1;
        Some(Job::Read(state.spare.pop().unwrap_or_default()))
    }

    fn read(&self, mut buffer: Buffer) {
        let mut walk = self.walk.lock().unwrap_or_else(PoisonError::into_inner);
        let number = walk.parts();
        let part = walk.next();
        let is_end = part.as_ref().is_none_or(Result::is_err);
        drop(walk);
        if is_end {
            let mut state = self.state();
            let total = number + u64::from(part.is_some());
            state.total = Some(state.total.map_or(total, |other| other.min(total)));
        }
        let Some(part) = part else { return };
        buffer.resize(self.reading.buffer_size());
        let batch = part.map(|part| self.reading.batch(part, buffer));
        self.state().read.insert(number, batch);
    }

    /// Carries out a write. Also returns the buffer that is free then.
    fn carry_out(&self, write: Write, mut spare: Buffer) -> (Buffer, Result<()>) {
        match write {
            Write::Batch(mut buffer, pieces) => {
                let result = self.write(&mut buffer, &pieces);
                (buffer, result)
            }
            Write::Copy { source, from, piece } => {
                spare.resize(self.reading.buffer_size());
                let present = usize_of(source.size().saturating_sub(from)).min(piece.len);
                let read = source.read_at(&mut spare[..present], from);
                spare[present..piece.len].fill(0);
                let result = read.and_then(|()| self.write(&mut spare, &[piece]));
                (spare, result)
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the work of all threads when it goes out of scope: at the end, or when one of them panics.
struct Over<'a>(&'a Pipeline);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.state().over = true;
        self.0.changed.notify_all();
        self.0.flusher.notify_one();
    }
}
