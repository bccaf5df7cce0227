//! A regular file or a block device of the system.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::code::ErrorKind;
use crate::device::{BlockDevice, past_end};
use crate::error::{Error, Result};
use crate::held::{Held, no_device, open_to_read};
use crate::identity::FileId;
use crate::lease::check_process;
use crate::os::{self, FileExt, FileTypeExt};
use crate::{u64_of, usize_of};

/// Sets a file's length, as [`File::set_len`] does, with a clear error for a length that no file has.
///
/// # Errors
/// Errors of the system.
pub fn set_len(file: &File, len: u64) -> io::Result<()> {
    if i64::try_from(len).is_err() {
        let text = format!("{len} bytes are more than any file can have");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    file.set_len(len)
}

/// A file or block device, opened for reading or for both.
#[derive(Debug)]
pub struct FileDevice {
    file: Held,
    /// Block devices have no size in their metadata and never grow, so theirs is found once.
    fixed_size: Option<u64>,
    /// True for a file that had a name when it was opened: without one its contents go when it is closed.
    is_named: bool,
    /// The process that opened it, which alone writes to it: what a fork makes of that one is a second writer.
    process: u32,
    flushes: Arc<Flushes>,
}

/// The flushes of an open file. The system reports lost writes once, to the first flush after them, of any caller; so
/// after one failure every later flush fails too, for all who use the device.
#[derive(Debug, Default)]
struct Flushes {
    /// How many have begun.
    begun: AtomicU64,
    has_failed: Mutex<bool>,
    /// Whether there is anything that they put on stable storage.
    has_writes: AtomicBool,
}

impl Flushes {
    /// Flushes one at a time, so that who comes next knows how the one before ended. One that begins after it was asked for
    /// serves all who wait.
    fn run(&self, flush: impl FnOnce() -> io::Result<()>) -> Result<()> {
        let asked = self.begun.load(Ordering::SeqCst);
        let mut has_failed = self.has_failed.lock().unwrap_or_else(PoisonError::into_inner);
        if *has_failed {
            return Err(
                io::Error::other("an earlier flush failed, and the writes before it may be lost").into()
            );
        }
        if self.begun.load(Ordering::SeqCst) == asked {
            self.begun.store(asked + 1, Ordering::SeqCst);
            let done = flush();
            *has_failed = done.is_err();
            done?;
        }
        Ok(())
    }
}

impl FileDevice {
    /// Opens a file or block device for reading, whatever others do with it.
    pub fn open(path: impl AsRef<Path>) -> Result<FileDevice> {
        FileDevice::from_file(open_to_read(path.as_ref())?)
    }

    /// Opens an existing file for reading and writing that nobody else knows; what others may use is for
    /// [`FileDevice::open_exclusive`].
    pub fn open_writable(path: impl AsRef<Path>) -> Result<FileDevice> {
        FileDevice::from_file(OpenOptions::new().read(true).write(true).open(path)?)
    }

    /// The device over a file that is already open.
    ///
    /// # Errors
    /// Directories, pipes and terminals are refused: they have no positions.
    pub fn from_file(file: File) -> Result<FileDevice> {
        FileDevice::over(Held::unlocked(file))
    }

    /// The device over a file that may be locked.
    pub(crate) fn over(file: Held) -> Result<FileDevice> {
        let metadata = file.metadata()?;
        let kind = metadata.file_type();
        let fixed_size = if kind.is_file() {
            None
        } else if kind.is_block_device() {
            Some(os::device_size(&file)?)
        } else {
            return Err(no_device());
        };
        let is_named = kind.is_file() && !os::is_removed(&metadata);
        Ok(FileDevice { fixed_size, is_named, ..FileDevice::regular(file) })
    }

    /// A device on a file of which it is known that it is a regular one: nobody is asked.
    pub fn from_regular_file(file: File) -> FileDevice {
        FileDevice::regular(Held::unlocked(file))
    }

    fn regular(file: Held) -> FileDevice {
        FileDevice {
            file,
            fixed_size: None,
            is_named: false,
            process: process::id(),
            flushes: Arc::default(),
        }
    }

    /// The device over the same open file once more, without a lock of its own.
    ///
    /// # Errors
    /// `Io`.
    pub fn try_clone(&self) -> Result<FileDevice> {
        let mut clone = FileDevice::from_file(self.file.try_clone()?)?;
        // The system tells one of both of a write that was lost.
        (clone.flushes, clone.process) = (Arc::clone(&self.flushes), self.process);
        Ok(clone)
    }

    /// Which file or device it is.
    ///
    /// # Errors
    /// `Io`.
    pub fn id(&self) -> Result<FileId> {
        Ok(os::id_of(&self.file)?)
    }

    /// The file itself, for what only files can do.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Makes the file as long as this.
    ///
    /// # Errors
    /// `Io`; [`Error::is_busy`] for another process than the one that opened it.
    pub fn set_len(&self, len: u64) -> Result<()> {
        self.begin_write()?;
        Ok(set_len(&self.file, len)?)
    }

    /// Refuses a process that did not open the file, and notes that something is written.
    fn begin_write(&self) -> Result<()> {
        check_process(self.process)?;
        self.flushes.has_writes.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Refuses to call stable what goes with the last open descriptor of a file that was removed.
    fn check_name(&self) -> Result<()> {
        let is_at_stake = self.is_named && self.flushes.has_writes.load(Ordering::Relaxed);
        match is_at_stake && os::is_removed(&self.file.metadata()?) {
            true => Err(Error::path(io::ErrorKind::StaleNetworkFileHandle, REMOVED)),
            false => Ok(()),
        }
    }
}

/// Error of a file without a name.
const REMOVED: &str = "removed, or replaced by another file, while it was being changed: all changes are lost when it is closed";

impl BlockDevice for FileDevice {
    fn below(&self) -> Option<&dyn BlockDevice> {
        None
    }

    fn size(&self) -> u64 {
        self.fixed_size.unwrap_or_else(|| self.file.metadata().map_or(0, |metadata| metadata.len()))
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_exact_at(buf, offset).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => past_end(offset, buf.len(), self.size()),
            _ => error.into(),
        })
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.begin_write()?;
        Ok(self.file.write_all_at(buf, offset)?)
    }

    fn write_zeroes(&self, offset: u64, len: u64, may_punch: bool) -> Result<()> {
        match self.zero_fast(offset, len, may_punch) {
            Err(error) if error.kind() == ErrorKind::Unsupported => {}
            done => return done,
        }
        let zeroes = vec![0; usize_of(len.min(1 << 20))];
        let mut done = 0;
        while done < len {
            let now = (len - done).min(u64_of(zeroes.len()));
            self.write_at(&zeroes[..usize_of(now)], offset + done)?;
            done += now;
        }
        Ok(())
    }

    fn zero_fast(&self, offset: u64, len: u64, may_punch: bool) -> Result<()> {
        self.begin_write()?;
        let done =
            may_punch && os::punch(&self.file, offset, len)? || os::zero_range(&self.file, offset, len)?;
        if done { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) }
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.begin_write()?;
        Ok(os::punch(&self.file, offset, len).map(drop)?)
    }

    fn can_discard(&self) -> bool {
        true
    }

    fn flush(&self) -> Result<()> {
        self.flushes.run(|| self.file.sync_data())?;
        self.check_name()
    }

    fn forget_cached(&self, offset: u64, len: u64) -> Result<()> {
        Ok(os::forget_cached(&self.file, offset, len)?)
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>> {
        let size = self.size();
        Ok(if offset < size { os::next_data(&self.file, offset, size) } else { None })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_length_that_no_file_has_is_said_to_be_one() {
        let file = tempfile::tempfile().unwrap();
        let device = FileDevice::from_file(file).unwrap();
        for len in [1 << 63, u64::MAX] {
            let error = device.set_len(len).unwrap_err();
            assert_eq!(error.io_kind(), Some(io::ErrorKind::FileTooLarge));
            assert!(error.to_string().contains(&format!("{len} bytes are more than any file")), "{error}");
        }
        device.set_len(7).unwrap();
        assert_eq!(device.size(), 7);
    }

    #[test]
    fn a_short_read_says_where_the_file_ends() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"12345").unwrap();
        let device = FileDevice::from_file(file).unwrap();
        let mut buf = [0; 4];
        device.read_at(&mut buf, 1).unwrap();
        assert_eq!(&buf, b"2345");
        let error = device.read_at(&mut buf, 2).unwrap_err();
        assert_eq!(error.io_kind(), Some(io::ErrorKind::UnexpectedEof));
        assert_eq!(error.to_string(), "read of 4 bytes at 2 passes the end of the device at 5");
    }

    /// The system tells one of those who flush. All others hear of it too, also one that waits meanwhile.
    #[test]
    fn a_flush_that_failed_fails_for_all() {
        let flushes = Flushes::default();
        flushes.run(|| Ok(())).unwrap();
        let (begun, is_begun) = channel();
        let (fail, may_fail) = channel();
        std::thread::scope(|scope| {
            let flushes = &flushes;
            let failing = scope.spawn(move || {
                flushes.run(|| {
                    begun.send(()).unwrap();
                    may_fail.recv().unwrap();
                    Err(io::Error::from_raw_os_error(5))
                })
            });
            is_begun.recv().unwrap();
            let waiting = scope.spawn(|| flushes.run(|| Ok(())));
            fail.send(()).unwrap();
            assert!(failing.join().unwrap().is_err() && waiting.join().unwrap().is_err());
        });
        let error = flushes.run(|| Ok(())).unwrap_err();
        assert!(error.text().contains("an earlier flush failed"), "{error}");
    }

    #[test]
    #[cfg(unix)]
    fn a_flush_of_a_file_that_was_removed_or_replaced_fails() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("image"), folder.path().join("other"));
        let open = || {
            std::fs::write(&path, [0; 4096]).unwrap();
            FileDevice::open_exclusive(&path).unwrap()
        };
        let remove = || std::fs::remove_file(&path).unwrap();
        let replace = || {
            std::fs::write(&other, "").unwrap();
            std::fs::rename(&other, &path).unwrap();
        };
        for take_name in [&remove as &dyn Fn(), &replace] {
            let (device, unchanged) = (open(), FileDevice::open(&path).unwrap());
            device.write_at(b"changes", 0).unwrap();
            device.flush().unwrap();
            take_name();
            for _ in 0..2 {
                assert!(device.flush().unwrap_err().text().starts_with("removed, or replaced"));
            }
            unchanged.flush().unwrap();
        }
        // A file that has got another name is there, and one that never had a name is no surprise.
        let device = open();
        device.write_at(b"changes", 0).unwrap();
        std::fs::rename(&path, &other).unwrap();
        device.flush().unwrap();
        let device = FileDevice::from_file(tempfile::tempfile().unwrap()).unwrap();
        device.write_at(b"changes", 0).unwrap();
        device.flush().unwrap();
    }

    /// A fork makes a second process of one that has a file open.
    #[test]
    fn only_the_process_that_opened_a_file_writes_to_it() {
        let mut device = FileDevice::from_file(tempfile::tempfile().unwrap()).unwrap();
        device.write_at(&[1; 4096], 0).unwrap();
        device.process += 1;
        for device in [device.try_clone().unwrap(), device] {
            for refused in [
                device.write_at(&[2], 0),
                device.write_zeroes(0, 4096, true),
                device.zero_fast(0, 4096, false),
                device.discard(0, 4096),
                device.set_len(0),
            ] {
                let error = refused.unwrap_err();
                assert!(error.is_busy() && error.text().contains("fork"), "{error}");
            }
            let mut bytes = [0; 4096];
            device.read_at(&mut bytes, 0).unwrap();
            assert_eq!(bytes, [1; 4096]);
        }
    }

    #[test]
    fn holes_are_found_or_called_data() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(3 << 20).unwrap();
        file.write_all_at(&[1; 4096], 1 << 20).unwrap();
        let device = FileDevice::from_file(file).unwrap();
        let data = device.next_data(0).unwrap().unwrap();
        assert!(data.start <= 1 << 20 && data.end >= (1 << 20) + 4096, "{data:?}");
        assert_eq!(device.next_data(3 << 20).unwrap(), None);
    }

    #[test]
    fn zeros_are_written_with_and_without_holes() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[1; 3 << 20], 0).unwrap();
        let device = FileDevice::from_file(file).unwrap();
        device.write_zeroes(4095, 1 << 20, false).unwrap();
        device.write_zeroes((1 << 20) + 4095, 2, true).unwrap();
        device.discard(2 << 20, 1 << 20).unwrap();
        device.write_zeroes(17, 0, true).unwrap();
        let mut buf = vec![0; 2 << 20];
        device.read_at(&mut buf, 0).unwrap();
        let zeros = 4095..4095 + (1 << 20) + 2;
        assert!(buf.iter().enumerate().all(|(at, byte)| *byte == u8::from(!zeros.contains(&at))));
        assert_eq!(device.size(), 3 << 20);
    }

    #[test]
    #[cfg(unix)]
    fn a_directory_is_refused() {
        let error = FileDevice::open(std::env::temp_dir()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument);
    }
}
