//! The way in to changing a file system.

use std::sync::Arc;

use casemate_blockdev::{BlockDevice, Events, NoEvents, u64_of, usize_of};

use crate::alloc::Allocator;
use crate::edit::file_map::Cut;
use crate::edit::files::Files;
use crate::edit::inodes::Inodes;
use crate::edit::random::Random;
use crate::edit::{descriptors, fast_commit, supported};
use crate::error::Result;
use crate::format::inode::{OLD_INODE_SIZE, Time, cut_times};
use crate::format::superblock::SUPERBLOCK_OFFSET;
use crate::read::fs::{Ext4, OpenOptions};
use crate::read::primary::read_superblock;
use crate::transaction::patch::Patching;
use crate::transaction::recovery_file::{Interrupted, RecoveryFile};
use crate::transaction::{self, LogOptions, Mmp, Transaction};
use crate::units::InodeNo;

/// How to change a file system.
pub struct WriteOptions<'a> {
    /// How to read it.
    pub open: OpenOptions,
    /// Seed of the generations and nonces of new inodes; the same seed gives the same image. Random if
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
    /// The device and inode, on the host, of the file that the file system lies in: it is not copied into itself.
    pub image: Option<(u64, u64)>,
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
            image: None,
        }
    }
}

/// A file system open for changes, by one writer. What was not committed when it is dropped never happened.
pub struct Writer {
    files: Files,
    interrupted: Interrupted,
    /// Where transactions go that the journal can't hold.
    recovery: Option<RecoveryFile>,
    /// The device, to open it once more.
    device: Arc<dyn BlockDevice>,
    /// How it is read.
    open: OpenOptions,
    /// Whether an inode waits on the device to be deleted or cut, which only the next commit says is done.
    has_left: bool,
    /// The file that the file system lies in.
    image: Option<(u64, u64)>,
}

/// Contents of files that others write while operations go on: before the commit of what leads to them.
pub(crate) trait Behind {
    /// Returns when everything is written.
    fn settle(&mut self) -> Result<()>;

    /// A point to which [`roll_back`](Behind::roll_back) can go.
    fn mark(&self) -> usize;

    /// Forgets the writes that were queued since the mark.
    fn roll_back(&mut self, mark: usize);
}

/// Operations that write all contents themselves.
impl Behind for () {
    fn settle(&mut self) -> Result<()> {
        Ok(())
    }

    fn mark(&self) -> usize {
        0
    }

    fn roll_back(&mut self, _mark: usize) {}
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
        let WriteOptions { open, seed, time, recovery, is_direct, patching, events, image } = options;
        let mmp = Mmp::start(&device, &read_superblock(&*device, SUPERBLOCK_OFFSET)?, &open, events)?;
        let interrupted =
            transaction::recover(&device, &open, recovery.as_ref(), &mut |_, error| Err(error), |commits| {
                fast_commit::fold_in(&device, &open, commits)
            })?;
        let found = Ext4::open_changing(device.clone(), &open)?;
        supported::unsupported(&found)?;
        let structures = descriptors::check(&found)?;
        let log = LogOptions { recovery: recovery.clone(), is_direct, patching, ..LogOptions::default() };
        let (fs, transaction) = Transaction::open(device.clone(), &open, log, mmp)?;
        let mut space = Allocator::new(fs, transaction);
        space.know_structures(structures);
        if interrupted == Interrupted::Completed {
            space.recount()?;
        }
        let inodes = Inodes::new(space, Random::new(seed), time);
        let mut writer =
            Writer { files: Files::new(inodes), interrupted, recovery, device, open, has_left: false, image };
        writer.release_orphans()?;
        Ok(writer)
    }

    /// The device and inode, on the host, of the file that the file system lies in.
    pub(crate) fn image(&self) -> Option<(u64, u64)> {
        self.image
    }

    /// The file system as it is with all changes so far, for reading.
    pub fn fs(&self) -> &Ext4 {
        self.files.fs()
    }

    /// The interrupted change that was found on opening, and its outcome.
    pub fn interrupted(&self) -> Interrupted {
        self.interrupted
    }

    /// The time that changes are noted with.
    pub fn time(&self) -> Time {
        self.files.now()
    }

    /// Notes how many files got times, since this was called last, that the file system can't hold.
    pub fn tell_cut_times(&mut self, events: &dyn Events) {
        let files = u64_of(self.files.inodes().take_cut_times());
        if files > 0 {
            let has_extra = usize_of(self.fs().superblock().inode_size) > OLD_INODE_SIZE;
            events.note(&cut_times(files, has_extra));
        }
    }

    /// Makes all changes so far permanent. Those of one operation are made at once, and so are those of many as
    /// long as they fill half of the journal at most; more is committed in parts.
    ///
    /// # Errors
    /// Errors of the device. The state on the device is then the one before or the one after, once the file system
    /// was opened again. Where something could not be written, as on a disk that is full, nothing is lost: this may be
    /// called again. After a flush that failed this writer changes nothing any more.
    pub fn commit(&mut self) -> Result<()> {
        self.commit_with(&mut ())
    }

    /// Commits while contents are written by others.
    pub(crate) fn commit_with(&mut self, behind: &mut impl Behind) -> Result<()> {
        self.files.space().transaction().check_known()?;
        behind.settle()?;
        self.files.commit()?;
        self.has_left = false;
        Ok(())
    }

    /// Gives up what was not committed, as dropping it does, and deletes or cuts what waits for that on the device because a large
    /// change was committed in steps. (Whoever opens the file system next would do that.)
    ///
    /// # Errors
    /// Errors of [`Writer::open`].
    pub fn abandon(self) -> Result<()> {
        let Writer { files, recovery, device, open, has_left, .. } = self;
        // Before the device is opened once more.
        drop(files);
        match has_left {
            true => {
                Writer::open(device, WriteOptions { open, recovery, ..WriteOptions::default() }).map(drop)
            }
            false => Ok(()),
        }
    }

    /// Commits if the transaction fills a good part of the log. Only between operations.
    pub(crate) fn commit_if_large(&mut self, behind: &mut impl Behind) -> Result<()> {
        if self.files.space().transaction().is_large() { self.commit_with(behind) } else { Ok(()) }
    }

    /// Breaks off: nothing is committed any more, because changes that belong together were not all made.
    pub fn break_off(&mut self) {
        self.files.inodes().transaction().break_off();
    }

    /// Whether there is a recovery file to commit through.
    pub(crate) fn has_recovery(&self) -> bool {
        self.recovery.is_some()
    }

    /// Commits through the recovery file from now on: for what the journal has no room for, or is part of.
    ///
    /// # Errors
    /// `Unsupported` without such a file.
    pub(crate) fn leave_journal(&mut self) -> Result<()> {
        let recovery = self.recovery.clone();
        self.files.inodes().transaction().leave_journal(recovery)
    }

    /// The files, to change what is no part of an operation.
    pub(crate) fn files_mut(&mut self) -> &mut Files {
        &mut self.files
    }

    /// The files, to look at.
    pub(crate) fn files(&self) -> &Files {
        &self.files
    }

    /// Runs one operation: all of it happens, or nothing. What it leaves unfinished follows.
    pub(crate) fn operation<T>(&mut self, f: impl FnOnce(&mut Files) -> Result<T>) -> Result<T> {
        self.operation_with(&mut (), |files, ()| f(files))
    }

    /// Runs an operation while contents are written by others.
    pub(crate) fn operation_with<B: Behind, T>(
        &mut self,
        behind: &mut B,
        f: impl FnOnce(&mut Files, &mut B) -> Result<T>,
    ) -> Result<T> {
        self.commit_if_large(behind)?;
        // Of an earlier operation, if a commit failed.
        self.finish_all(behind)?;
        let result = self.step(behind, f)?;
        self.finish_all(behind)?;
        Ok(result)
    }

    /// Does all of something in this transaction, or nothing.
    fn step<B: Behind, T>(
        &mut self,
        behind: &mut B,
        f: impl FnOnce(&mut Files, &mut B) -> Result<T>,
    ) -> Result<T> {
        self.files.space().transaction().check()?;
        let (mark, written) = (self.files.begin(), behind.mark());
        let result = f(&mut self.files, behind).and_then(|value| self.files.end().map(|()| value));
        if result.is_err() {
            self.files.roll_back(mark);
            behind.roll_back(written);
        }
        result
    }

    /// Does what operations left unfinished.
    fn finish_all(&mut self, behind: &mut impl Behind) -> Result<()> {
        while let Some(number) = self.files.inodes().unfinished() {
            self.commit_with(behind)?;
            self.has_left = true;
            match self.step(behind, |files, _| files.inodes().finish_some(number)) {
                Ok(Cut::Begun) => {}
                Ok(Cut::Done) => self.files.inodes().is_finished(),
                Err(error) => {
                    // It stays on the list.
                    self.files.inodes().leave_unfinished();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Goes on with something that no transaction has room for, in steps, of which each leaves the file system whole
    /// and returns whether it was the last one.
    ///
    /// If the inode was put on the list of orphans, the last step takes it off again: a file that is being removed or
    /// cut is gone or short after a crash, one that was growing is as long as before, and a new one, which gets its
    /// name last, was never there. (Unwritten extents may lie behind a file's end for good, so growing by those needs
    /// no list.) When a step fails, the inode is cut to its size, and goes if it has no name; that is committed, as
    /// the steps before were.
    pub(crate) fn in_steps<B: Behind>(
        &mut self,
        behind: &mut B,
        number: InodeNo,
        is_listed: bool,
        mut f: impl FnMut(&mut Files, &mut B) -> Result<bool>,
    ) -> Result<()> {
        loop {
            let is_last = self.commit_with(behind).and_then(|()| {
                self.has_left |= is_listed;
                self.step(behind, &mut f)
            });
            match is_last {
                // The last step may have removed what was in its way.
                Ok(true) => return self.finish_all(behind),
                Ok(false) => {}
                // After a commit that failed and may count, whoever opens the file system next does this.
                Err(error) if self.files.space().transaction().check().is_err() => {
                    self.break_off();
                    return Err(error);
                }
                Err(error) => {
                    self.step(behind, |files, _| files.give_up(number, is_listed))?;
                    self.finish_all(behind)?;
                    self.commit_with(behind)?;
                    return Err(error);
                }
            }
        }
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("fs", self.fs()).finish_non_exhaustive()
    }
}
