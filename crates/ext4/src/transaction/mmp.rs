//! Multi-mount protection: a block whose number counts up says that somebody is using the file system.
//!
//! Whoever wants to change it reads the number. If that is not the one of a closed file system he waits, longer than
//! a user of it may take to count, and looks again. Then he writes a number of his own, waits again for others that
//! did the same at once, and counts until he is done.
//!
//! Sources: Documentation/filesystems/ext4/mmp.rst; the kernel's fs/ext4/mmp.c, for the order and the times.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io::ErrorKind;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use casemate_blockdev::{BlockDevice, Events, check_process, u64_of};
use casemate_primitives::crc32c::Crc32c;

use crate::error::{Error, Place, Result, Structure};
use crate::format::csum::{Checksums, Context, Subject, recipe};
use crate::format::features::Incompat;
use crate::format::layout::Layout;
use crate::format::mmp::{CLEAN, FSCK, HIGHEST, MMP_SIZE, MmpBlock};
use crate::format::superblock::Superblock;
use crate::number::low32;
use crate::read::fs::OpenOptions;

/// Seconds that are waited for at least (`EXT4_MMP_MIN_CHECK_INTERVAL`), and between counts if nothing says so.
const SHORTEST: u16 = 5;

/// Mark that the file system is in use, until it is dropped.
pub(crate) struct Mmp {
    shared: Arc<Shared>,
    /// Dropped to end the thread that counts.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// The process in which the thread runs.
    process: u32,
}

struct Shared {
    device: Arc<dyn BlockDevice>,
    place: Place,
    offset: u64,
    checksums: Checksums,
    /// Whether a block with a wrong checksum is refused.
    verify: bool,
    /// How often the number is counted up, and how old it may be before another may take the file system.
    every: Duration,
    valid: Duration,
    state: Mutex<State>,
}

struct State {
    block: MmpBlock,
    written: Instant,
    lost: bool,
}

impl Mmp {
    /// Takes the file system on `device`, if `superblock` says that it has this protection.
    pub fn start(
        device: &Arc<dyn BlockDevice>,
        superblock: &Superblock,
        options: &OpenOptions,
        events: &dyn Events,
    ) -> Result<Option<Mmp>> {
        if !superblock.incompat.has(Incompat::MMP) {
            return Ok(None);
        }
        let layout = Layout::new(superblock)?;
        let block = superblock.mmp_block.unwrap_or_default();
        let place = Place::of(Structure::MmpBlock).at(block);
        let offset = block.checked_offset(layout.block_size.into()).filter(|_| layout.contains(block, 1));
        let Some(offset) = offset else { return Err(place.malformed("lies outside of the file system")) };
        let every = match superblock.mmp_interval() {
            0 => SHORTEST,
            seconds => seconds,
        };
        let valid = every.saturating_mul(2).max(SHORTEST);
        let mut shared = Shared {
            device: Arc::clone(device),
            place,
            offset,
            checksums: Checksums::new(Crc32c::new(options.providers.cpu()), superblock)?,
            verify: options.verify_checksums,
            every: Duration::from_secs(every.into()),
            valid: Duration::from_secs(valid.into()),
            state: Mutex::new(State { block: MmpBlock::new(), written: Instant::now(), lost: false }),
        };
        let mut block = shared.read()?;
        let mut wait = Duration::ZERO;
        match block.number() {
            CLEAN => {}
            FSCK => {
                let text = "e2fsck is at work on the file system, or died there (tune2fs -E clear_mmp)";
                return Err(busy(text));
            }
            number @ ..=HIGHEST => {
                let interval = u64::from(every.max(SHORTEST).max(block.interval()));
                wait = Duration::from_secs((2 * interval + 1).min(interval + 60));
                let reason = "the file system was not closed (multi-mount protection), so it has to be seen whether another \
                              machine uses it";
                events.waiting(2 * wait, reason);
                std::thread::sleep(wait);
                block = shared.read()?;
                if block.number() != number {
                    return Err(in_use(&block));
                }
            }
            number => return Err(place.malformed(format!("has the number {number:#x}"))),
        }
        // The standard library seeds its hashers from the system. The low half is as random as the rest.
        let number = low32(RandomState::new().build_hasher().finish()) % HIGHEST + 1;
        block.set_number(number);
        block.set_user(&casemate_blockdev::os::host_name(), b"casemate", valid);
        shared.write(&mut block)?;
        std::thread::sleep(wait);
        let found = shared.read()?;
        if found.number() != number {
            return Err(in_use(&found));
        }
        shared.state = Mutex::new(State { block, written: Instant::now(), lost: false });
        let shared = Arc::new(shared);
        let (stop, stopped) = channel();
        let counting = Arc::clone(&shared);
        let thread =
            std::thread::Builder::new().name("mmp".to_owned()).spawn(move || counting.count(&stopped))?;
        Ok(Some(Mmp { shared, stop: Some(stop), thread: Some(thread), process: std::process::id() }))
    }

    /// Makes sure that nobody took the file system because this process slept for too long.
    pub fn check(&self) -> Result<()> {
        let mut state = self.shared.state();
        self.shared.look(&mut state)?;
        if state.lost {
            Err(busy("another machine took the file system while this one was asleep"))
        } else {
            Ok(())
        }
    }
}

impl Drop for Mmp {
    fn drop(&mut self) {
        // After a fork the file system is still the parent's, and the thread runs there alone.
        if check_process(self.process).is_err() {
            if let Some(thread) = self.thread.take() {
                std::mem::forget(thread);
            }
            return;
        }
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let mut state = self.shared.state();
        if self.shared.look(&mut state).is_ok() && !state.lost {
            let mut block = state.block;
            block.set_number(CLEAN);
            // If that fails, whoever comes next has to wait.
            let _ = self.shared.write(&mut block);
        }
    }
}

impl Shared {
    /// Counts until it is told to stop, or the file system is somebody else's.
    fn count(&self, stopped: &Receiver<()>) {
        while stopped.recv_timeout(self.every) == Err(RecvTimeoutError::Timeout) {
            let mut state = self.state();
            if self.look(&mut state).is_err() || state.lost {
                continue;
            }
            let mut block = state.block;
            block.set_number(block.number() % HIGHEST + 1);
            // What fails shows when the next commit looks.
            if self.write(&mut block).is_ok() {
                state.block = block;
                state.written = Instant::now();
            }
        }
    }

    /// Looks whether the block still is what was written, if that was so long ago that it need not be.
    fn look(&self, state: &mut State) -> Result<()> {
        if !state.lost && state.written.elapsed() > self.valid {
            state.lost = self.read()?.number() != state.block.number();
        }
        Ok(())
    }

    fn read(&self) -> Result<MmpBlock> {
        let mut raw = [0; MMP_SIZE];
        self.device.forget_cached(self.offset, u64_of(MMP_SIZE))?;
        self.device.read_at(&mut raw, self.offset)?;
        let block = MmpBlock::from_bytes(&raw, self.place)?;
        if self.verify {
            self.checksums.verify(Subject::MmpBlock, &Context::default(), &raw, self.place)?;
        }
        Ok(block)
    }

    /// Writes the block with the time of now.
    fn write(&self, block: &mut MmpBlock) -> Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        block.set_time(now);
        if self.checksums.covers(Subject::MmpBlock) {
            self.checksums.store(recipe(Subject::MmpBlock), &Context::default(), block.as_bytes_mut());
        }
        self.device.write_at(block.as_bytes(), self.offset)?;
        self.device.flush()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn in_use(block: &MmpBlock) -> Error {
    let [machine, device] = block.user();
    busy(&format!("{machine} uses the file system, as {device}"))
}

fn busy(text: &str) -> Error {
    Error::path(ErrorKind::ResourceBusy, text.to_owned())
}
