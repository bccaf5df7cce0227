//! Changing a file system in place.
//!
//! [`Writer`] collects changed metadata in memory; [`Writer::commit`] makes it the file system's state at once,
//! so that a crash at any point leaves the state before or after. Contents of new files are written before, to
//! blocks that were free (the kernel calls that ordered mode). An operation that fails changes nothing.
//!
//! Where the file system has a journal, a commit is a transaction in it: whoever opens the image next, be it
//! the kernel, e2fsck or this crate, completes it. Where there is none, the transaction is written to a file
//! beside the image first ([`RecoveryFile`]), which only this crate can complete it from. Readers see it as complete
//! through [`RecoveryFile::over`].

pub(crate) mod attributes;
pub(crate) mod contents;
pub(crate) mod create;
pub(crate) mod dir;
pub(crate) mod encrypted;
pub(crate) mod extents;
pub(crate) mod file_map;
pub(crate) mod htree;
pub(crate) mod inherit;
pub(crate) mod inline;
pub(crate) mod inode;
pub(crate) mod locked;
pub(crate) mod name;
pub(crate) mod orphans;
pub(crate) mod pointers;
pub(crate) mod put;
pub(crate) mod quota;
pub(crate) mod quota_file;
pub(crate) mod remove;
pub(crate) mod rename;
pub(crate) mod restore;
pub(crate) mod supported;
pub(crate) mod too_large;
pub(crate) mod value_inode;
pub(crate) mod xattr;

use std::collections::HashMap;
use std::sync::Arc;

use casemate_blockdev::{BlockDevice, Events, NoEvents};

use crate::alloc::Allocator;
use crate::error::Result;
use crate::format::csum::{Context, Subject};
use crate::format::inode::Time;
use crate::read::fs::{Ext4, OpenOptions};
use crate::transaction::patch::Patching;
use crate::transaction::recovery_file::{Interrupted, RecoveryFile};
use crate::transaction::{self, LogOptions, Mmp, Transaction};

pub use create::{Body, NewNode};
pub use put::{PutOptions, PutReport};
pub use restore::RawAttributes;

use put::Placed;
use quota::Quota;

/// How to change a file system.
pub struct WriteOptions<'a> {
    /// How to read it.
    pub open: OpenOptions,
    /// What generations and nonces of new inodes are made from; the same seed gives the same image. Random if
    /// `None`. Two encrypted files with the same key and nonce show where their contents are equal: a seed is for
    /// one image, and for no other one with the same keys.
    pub seed: Option<u64>,
    /// The time to note as that of changes; the clock's if `None`.
    pub time: Option<Time>,
    /// Where transactions are kept for a file system without a journal. Without, such a file system is refused.
    pub recovery: Option<RecoveryFile>,
    /// Whether a commit writes blocks to their places at once: for an image that is only being made, and thrown away if
    /// that fails.
    pub is_direct: bool,
    /// How checksums are brought up to date.
    pub patching: Patching,
    /// The listener, which is told of the wait where it must be seen whether another machine uses a file system with
    /// multi-mount protection.
    pub events: &'a dyn Events,
}

impl Default for WriteOptions<'_> {
    fn default() -> Self {
        WriteOptions {
            open: OpenOptions::default(),
            seed: None,
            time: None,
            recovery: None,
            is_direct: false,
            patching: Patching::default(),
            events: &NoEvents,
        }
    }
}

/// A file system open for changes, by one writer. What was not committed when it is dropped never happened.
pub struct Writer {
    pub(crate) space: Allocator,
    pub(crate) hints: Hints,
    /// What the current operation began and could not finish in its transaction, in the order in which it waits.
    unfinished: Vec<u32>,
    pub(crate) random: Random,
    pub(crate) quota: Quota,
    time: Option<Time>,
    /// What a copy still has to write.
    placed: Option<Placed>,
    interrupted: Interrupted,
}

/// Where to look first. Wrong hints cost time and nothing else.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    /// For each directory without an index, the first block that may have room.
    pub rooms: HashMap<u32, u64>,
    /// For each directory without an index, the block that a name was found in last.
    pub finds: HashMap<u32, u64>,
    /// For each leaf that names were put into, the byte that its last record begins at.
    pub last_records: HashMap<u64, usize>,
}

impl Writer {
    /// Opens the file system on `device` for changes, after replaying its journal or its recovery file, and after
    /// deleting what waits for that.
    ///
    /// The caller makes sure that nobody else changes the device. With multi-mount protection (feature mmp) other
    /// machines are asked too, which can take half a minute after an interruption.
    ///
    /// # Errors
    /// `Unsupported` for features that this writer does not keep right, by name; `Corrupt`
    /// when the file system is damaged, or wants to be repaired by e2fsck first; `ResourceBusy` when another
    /// machine uses it.
    pub fn open(device: Arc<dyn BlockDevice>, options: WriteOptions<'_>) -> Result<Writer> {
        let WriteOptions { open, seed, time, recovery, is_direct, patching, events } = options;
        let device = transaction::shared(device);
        let mmp = Mmp::start(&device, &open, events)?;
        let interrupted = transaction::recover(&device, &open, recovery.as_ref())?;
        supported::unsupported(&Ext4::open(device.clone(), &open)?)?;
        let log = LogOptions { recovery, is_direct, patching };
        let (fs, transaction) = Transaction::open(device, &open, log, mmp)?;
        let mut writer = Writer {
            quota: Quota::of(&fs),
            space: Allocator::new(fs, transaction),
            hints: Hints::default(),
            unfinished: Vec::new(),
            random: Random::new(seed),
            time,
            placed: None,
            interrupted,
        };
        if interrupted == Interrupted::Completed {
            writer.space.recount()?;
        }
        writer.release_orphans()?;
        Ok(writer)
    }

    /// The file system as it is with all changes so far, for reading.
    pub fn fs(&self) -> &Ext4 {
        self.space.fs()
    }

    /// What opening it did about a change that was interrupted.
    pub fn interrupted(&self) -> Interrupted {
        self.interrupted
    }

    /// Makes all changes so far permanent. Those of one operation are made at once, and so are those of many as
    /// long as they fill half of the journal at most; more is committed in parts.
    ///
    /// # Errors
    /// What the device says. The state on the device is then the one before or the one after, once the file system
    /// was opened again; this writer changes nothing any more.
    pub fn commit(&mut self) -> Result<()> {
        self.space.transaction().check()?;
        // Contents come before what leads to them.
        self.placed.as_mut().map_or(Ok(()), Placed::settle)?;
        self.space.commit(self.now())?;
        self.hints.last_records.clear();
        Ok(())
    }

    /// Runs one operation: all of it happens, or nothing. What it leaves unfinished follows.
    pub(crate) fn operation<T>(&mut self, f: impl FnOnce(&mut Writer) -> Result<T>) -> Result<T> {
        self.commit_if_large()?;
        let result = self.step(f)?;
        self.finish_all()?;
        Ok(result)
    }

    /// Does all of something in this transaction, or nothing.
    pub(crate) fn step<T>(&mut self, f: impl FnOnce(&mut Writer) -> Result<T>) -> Result<T> {
        self.space.transaction().check()?;
        let unfinished = self.unfinished.len();
        let placed = self.placed.as_ref().map_or(0, Placed::mark);
        let mark = self.space.begin();
        let result = f(self).and_then(|value| self.settle_quota().map(|()| value));
        if result.is_err() {
            self.space.roll_back(mark);
            if let Some(contents) = &mut self.placed {
                contents.roll_back(placed);
            }
            self.unfinished.truncate(unfinished);
            self.quota.roll_back();
            self.hints = Hints::default();
        }
        result
    }

    /// Commits if the transaction fills a good part of the log. Only between operations.
    fn commit_if_large(&mut self) -> Result<()> {
        if self.space.transaction().is_large() { self.commit() } else { Ok(()) }
    }

    /// Puts a new block of a directory in place.
    pub(crate) fn create_block(&mut self, subject: Subject, context: Context, block: u64, bytes: Vec<u8>) {
        self.hints.last_records.remove(&block);
        self.space.transaction_mut().create_structure(subject, context, block, bytes);
    }

    pub(crate) fn block_size(&self) -> usize {
        self.space.block_size()
    }

    /// Blocks in a cluster.
    pub(crate) fn ratio(&self) -> u64 {
        self.space.ratio()
    }

    pub(crate) fn now(&self) -> Time {
        self.time.unwrap_or_else(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            Time { seconds: now.as_secs().cast_signed(), nanoseconds: now.subsec_nanos() }
        })
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("fs", self.space.fs()).finish_non_exhaustive()
    }
}

/// Numbers for generations, and with a seed for nonces: SplitMix64, public domain by Sebastiano Vigna.
#[derive(Debug)]
pub(crate) struct Random {
    state: u64,
    seeded: bool,
}

impl Random {
    pub fn new(seed: Option<u64>) -> Random {
        use std::hash::{BuildHasher, Hasher};
        // The standard library seeds its hashers from the system.
        let random = || std::collections::hash_map::RandomState::new().build_hasher().finish();
        Random { state: seed.unwrap_or_else(random), seeded: seed.is_some() }
    }

    pub fn is_seeded(&self) -> bool {
        self.seeded
    }

    pub fn next(&mut self) -> u32 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        // OK to truncate: the low half is as random as the rest.
        (z ^ z >> 31) as u32
    }
}
