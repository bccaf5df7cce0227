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
use std::io;
use std::sync::Arc;

use casemate_blockdev::{BlockDevice, Events, NoEvents};
use casemate_primitives::crc32c::Crc32c;

use crate::alloc::Pins;
use crate::error::{Error, Result};
use crate::format::csum::Context;
use crate::format::inode::Time;
use crate::format::superblock::SUPERBLOCK_OFFSET;
use crate::read::fs::{Ext4, OpenOptions, read_superblock};
use crate::transaction::cache::Cache;
use crate::transaction::log::{self, Log};
use crate::transaction::mmp::Mmp;
use crate::transaction::patch::{Patcher, Patching};
use crate::transaction::recovery_file::{Interrupted, RecoveryFile};

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
            patching: Patching::default(),
            events: &NoEvents,
        }
    }
}

/// A file system open for changes, by one writer. What was not committed when it is dropped never happened.
pub struct Writer {
    /// Reads through the cache: sees every change.
    pub(crate) fs: Ext4,
    pub(crate) cache: Arc<Cache>,
    pub(crate) patcher: Patcher,
    /// What the superblock's counts will change by with the next commit.
    pub(crate) free: Counts,
    /// What they changed by with the commits since it was opened.
    pub(crate) base: Counts,
    pub(crate) pins: Pins,
    pub(crate) hints: Hints,
    /// What the current operation began and could not finish in its transaction, in the order in which it waits.
    unfinished: Vec<u32>,
    pub(crate) random: Random,
    pub(crate) quota: Quota,
    time: Option<Time>,
    pub(crate) log: Log,
    /// Tells other machines that the file system is in use.
    pub(crate) mmp: Option<Mmp>,
    /// What a copy still has to write.
    placed: Option<Placed>,
    /// Contents of a file that has got its place were not written.
    lost_contents: bool,
    interrupted: Interrupted,
}

/// Free clusters and inodes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub clusters: i64,
    pub inodes: i64,
}

/// Where to look first. Wrong hints cost time and nothing else.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    /// For each group, the block behind the last one that was allocated for it.
    pub blocks: HashMap<u32, u64>,
    /// For each group, the first inode that may be free.
    pub inodes: HashMap<u32, u32>,
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
        let mmp = Mmp::start(&device, &options)?;
        let mut interrupted = Interrupted::Nothing;
        if let Some(file) = &options.recovery {
            interrupted = file.replay(&*device, Crc32c::new(options.open.providers.cpu()))?;
        }
        let needs_recovery = read_superblock(&*device, SUPERBLOCK_OFFSET)?.needs_recovery();
        if needs_recovery {
            interrupted = Interrupted::Completed;
        }
        let device = log::replay(device, &options.open)?;
        let plain = Ext4::open(device.clone(), &options.open)?;
        supported::unsupported(&plain)?;
        let cache = Arc::new(Cache::new(device, plain.layout().block_size));
        let fs = Ext4::open(cache.clone(), &options.open)?;
        let mut log = Log::open(&fs, options.recovery)?;
        log.clear(&**cache.device())?;
        let patcher = Patcher { sums: *fs.checksums(), patching: options.patching };
        let mut writer = Writer {
            quota: Quota::of(&fs),
            fs,
            cache,
            patcher,
            free: Counts::default(),
            base: Counts::default(),
            pins: Pins::default(),
            hints: Hints::default(),
            unfinished: Vec::new(),
            random: Random::new(options.seed),
            time: options.time,
            log,
            mmp,
            placed: None,
            lost_contents: false,
            interrupted,
        };
        if needs_recovery {
            writer.recount()?;
        }
        writer.release_orphans()?;
        Ok(writer)
    }

    /// The file system as it is with all changes so far, for reading.
    pub fn fs(&self) -> &Ext4 {
        &self.fs
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
        self.log.check()?;
        if self.lost_contents {
            return Err(invalid(io::ErrorKind::InvalidData, "contents of files were not copied"));
        }
        // Contents come before what leads to them.
        self.placed.as_mut().map_or(Ok(()), Placed::settle)?;
        self.commit_counts()?;
        let (now, mmp, log, below) = (self.now(), &self.mmp, &mut self.log, self.cache.device());
        self.cache.with_dirty(|dirty| {
            if dirty.is_empty() {
                return Ok(());
            }
            if let Some(mmp) = mmp {
                mmp.check()?;
            }
            log.commit(&**below, dirty, now)
        })??;
        self.cache.keep();
        self.cache.clean(CACHE_BYTES / self.block_size());
        self.pins.clear();
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
        self.log.check()?;
        let unfinished = self.unfinished.len();
        let (free, pins) = (self.free, self.pins.mark());
        let placed = self.placed.as_ref().map_or(0, Placed::mark);
        self.cache.keep();
        let result = f(self).and_then(|value| self.settle_quota().map(|()| value));
        match &result {
            Ok(_) => self.cache.keep(),
            Err(_) => {
                self.cache.roll_back();
                self.free = free;
                self.pins.roll_back(pins);
                if let Some(contents) = &mut self.placed {
                    contents.roll_back(placed);
                }
                self.unfinished.truncate(unfinished);
                self.quota.roll_back();
                self.hints = Hints::default();
            }
        }
        result
    }

    /// Commits if the transaction fills a good part of the log. Only between operations.
    pub(crate) fn commit_if_large(&mut self) -> Result<()> {
        if self.cache.dirty_count() >= self.log.comfortable() { self.commit() } else { Ok(()) }
    }

    /// Whether only the end of an operation has room in this transaction.
    pub(crate) fn is_full(&self) -> bool {
        self.cache.dirty_count() >= self.log.most()
    }

    pub(crate) fn block_size(&self) -> usize {
        self.fs.layout().block_size as usize
    }

    /// Blocks in a cluster.
    pub(crate) fn ratio(&self) -> u64 {
        u64::from(self.fs.layout().cluster_blocks)
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
        f.debug_struct("Writer").field("fs", &self.fs).finish_non_exhaustive()
    }
}

/// Metadata that is kept in memory between transactions, in bytes.
const CACHE_BYTES: usize = 256 << 20;

/// The error for a full file system.
pub(crate) fn no_space(what: &str) -> Error {
    Error::path(io::ErrorKind::StorageFull, format!("no free {what} left in the file system"))
}

/// The error for what a caller may not ask for.
pub(crate) fn invalid(kind: io::ErrorKind, text: impl Into<String>) -> Error {
    Error::path(kind, text.into())
}

pub(crate) fn group_context(group: u32) -> Context {
    Context { group, ..Context::default() }
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
