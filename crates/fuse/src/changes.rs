//! The writer of a file system that is mounted for writing, and when it commits.

use std::collections::BTreeSet;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use casemate::ext4::{InodeNo, Writer};
use casemate::{Code, Error};

use crate::known::Known;

/// How long a change may wait for its commit, as with the kernel's ext4 (its option `commit`).
const COMMIT: Duration = Duration::from_secs(5);

/// Changes of a file system: made by one at a time, while nobody reads.
pub struct Changes {
    shared: Arc<Shared>,
    /// Inodes that the kernel knows: of these none is freed.
    known: Arc<Known>,
    clock: Mutex<Option<Clock>>,
    lost: Mutex<Lost>,
}

/// Inodes with contents that the kernel had taken from a program and that could not be written: it does not send them again.
#[derive(Default)]
struct Lost {
    inodes: BTreeSet<InodeNo>,
    /// Whether there were more than are kept.
    more: bool,
}

/// Inodes with lost contents that are kept by number.
const MOST_LOST: usize = 1000;

struct Shared {
    /// `None` once the file system is closed.
    writer: RwLock<Option<Writer>>,
}

/// The thread that commits from time to time, until it is told to stop.
struct Clock {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

/// The file system as it stays while this is held.
pub struct Steady<'a>(RwLockReadGuard<'a, Option<Writer>>);

impl Steady<'_> {
    /// The writer, to look at.
    pub fn writer(&self) -> Result<&Writer, Error> {
        self.0.as_ref().ok_or_else(closed)
    }
}

impl Changes {
    /// Changes by a writer. `failed` hears of a commit that fails when nobody waits for it.
    pub fn new(
        writer: Writer,
        known: Arc<Known>,
        failed: impl Fn(&Error) + Send + 'static,
    ) -> Result<Changes, Error> {
        let shared = Arc::new(Shared { writer: RwLock::new(Some(writer)) });
        let (stop, stopped) = channel();
        let watched = Arc::clone(&shared);
        let commits = move || {
            let mut told = None;
            while stopped.recv_timeout(COMMIT) == Err(RecvTimeoutError::Timeout) {
                // There may be room the next time. The same trouble is told once.
                let trouble = watched.commit_pending().err().map(|error| (error.to_string(), error));
                if let Some((text, error)) = trouble.as_ref().filter(|(text, _)| told.as_ref() != Some(text))
                {
                    failed(error);
                    told = Some(text.clone());
                } else if trouble.is_none() {
                    told = None;
                }
            }
        };
        let thread = std::thread::Builder::new().name("commits".to_owned()).spawn(commits);
        let thread = thread.map_err(|error| Error::io("a thread", error))?;
        let clock = Mutex::new(Some(Clock { stop, thread }));
        Ok(Changes { shared, known, clock, lost: Mutex::default() })
    }

    /// Keeps the file system as it is as long as the result is there. Its holder does not ask for it again.
    pub fn steady(&self) -> Steady<'_> {
        Steady(self.shared.writer.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes something, as one operation. Where room is wanted that was freed since the last commit, that is made first.
    pub fn change<T>(&self, mut f: impl FnMut(&mut Writer) -> Result<T, Error>) -> Result<T, Error> {
        let mut writer = self.shared.locked();
        let writer = writer.as_mut().ok_or_else(closed)?;
        writer.keep_reserve(false);
        match f(writer) {
            Err(error) if error.code() == Code::NoRoom && writer.has_pinned_room() => {
                writer.commit()?;
                f(writer)
            }
            result => result,
        }
    }

    /// How many inodes without names are not freed yet, because the kernel knows them.
    pub fn held(&self) -> usize {
        self.steady().writer().map_or(0, Writer::count_held)
    }

    /// Makes all changes permanent.
    pub fn commit(&self) -> Result<(), Error> {
        self.shared.commit()
    }

    /// Frees an inode without names that the kernel has forgotten.
    pub fn forgotten(&self, number: InodeNo) -> Result<(), Error> {
        if !self.steady().writer()?.is_held(number) {
            return Ok(());
        }
        self.change(|writer| if self.known.has(number) { Ok(()) } else { writer.release(number) })
    }

    /// Frees an inode that has just lost its last name, unless the kernel knows it.
    pub fn gone(&self, writer: &mut Writer, number: Option<InodeNo>) -> Result<(), Error> {
        match number.filter(|number| !self.known.has(*number)) {
            Some(number) => writer.release(number),
            None => Ok(()),
        }
    }

    /// Notes that contents of an inode could not be written, which no program is waiting for.
    pub fn note_lost(&self, number: InodeNo) {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        if lost.inodes.len() < MOST_LOST {
            lost.inodes.insert(number);
        } else {
            lost.more = true;
        }
    }

    /// Frees what is without names, makes all changes permanent, and ends.
    ///
    /// # Errors
    /// `Io`, also if contents of a file that is still there were lost before.
    pub fn close(&self) -> Result<(), Error> {
        if let Some(clock) = self.clock.lock().unwrap_or_else(PoisonError::into_inner).take() {
            drop(clock.stop);
            let _ = clock.thread.join();
        }
        let Some(mut writer) = self.shared.locked().take() else { return Ok(()) };
        // What can't be freed waits on the disk for who opens the file system next; the rest is made permanent.
        if writer.release_all().is_err() {
            writer.commit()?;
            writer.release_all()?;
        }
        writer.commit()?;
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).check(&writer)
    }
}

impl Lost {
    /// # Errors
    /// `Io` if a file is still there of which contents were lost.
    fn check(&self, writer: &Writer) -> Result<(), Error> {
        let is_there = |number: &&InodeNo| writer.inode(**number).is_ok_and(|inode| inode.links() > 0);
        let mut there = self.inodes.iter().filter(is_there);
        let Some(first) = there.next() else { return Ok(()) };
        let others = match (there.count(), self.more) {
            (0, false) => String::new(),
            (count, false) => format!(" and {count} others"),
            (count, true) => format!(" and more than {count} others"),
        };
        let text = format!(
            "contents that a program had written to a memory-mapped file are lost, because they could not be written to the image: inode {first}{others}"
        );
        Err(Error::io("the file system", std::io::Error::other(text)))
    }
}

impl Shared {
    /// Commits, if there is anything to commit: a disk may sleep meanwhile.
    fn commit_pending(&self) -> Result<(), Error> {
        match &mut *self.locked() {
            Some(writer) if writer.is_changed() => writer.commit(),
            _ => Ok(()),
        }
    }

    fn commit(&self) -> Result<(), Error> {
        match &mut *self.locked() {
            Some(writer) => writer.commit(),
            None => Ok(()),
        }
    }

    fn locked(&self) -> RwLockWriteGuard<'_, Option<Writer>> {
        self.writer.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn closed() -> Error {
    Error::io("the file system", std::io::Error::other("is unmounted"))
}
