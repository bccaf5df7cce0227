//! How a folder's process tells what became of the last commit, which comes when nobody can ask it for anything any more.
//!
//! The process has a file in memory, and an attribute of the root with its number. Who is going to unmount the folder opens
//! that file first, of the process of the same attribute, and reads it when the process has ended: a line `done`, or
//! `failed TEXT`, or nothing if it was killed.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, MemfdFlags, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use casemate::Error;

/// The attribute of the root that tells which process serves it. No list has it.
pub const PROCESS: &str = "casemate.pid";

/// The attribute of the root that tells where that process says how the last commit went. No list has it.
pub const ENDING: &str = "casemate.end";

/// The file's name, which /proc shows.
const NAME: &str = "casemate-ending";

/// The longest text that is read.
const LONGEST: u64 = 4096;

/// Last word of a process: how its last commit went.
pub struct Ending(File);

/// The process that serves a folder, and what it is going to say.
pub struct Server {
    pid: Pid,
    process: OwnedFd,
    ending: File,
}

impl Ending {
    /// Nothing yet.
    pub fn new() -> Result<Ending, Error> {
        let file = rustix::fs::memfd_create(NAME, MemfdFlags::CLOEXEC);
        Ok(Ending(file.map_err(|error| Error::io("a file in memory", io::Error::from(error)))?.into()))
    }

    /// The number by which other processes find it.
    pub fn number(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// Reports how the last commit ended.
    pub fn say(&self, closed: &Result<(), Error>) {
        let text = match closed {
            Ok(()) => "done\n".to_owned(),
            Err(error) => format!("failed {}\n", error.to_string().replace('\n', " ")),
        };
        // What can't be said is as if the process had been killed: nobody takes that for success.
        let _ = (&self.0).write_all(text.as_bytes());
    }
}

impl Server {
    /// The process that serves a folder, as the folder says.
    ///
    /// # Errors
    /// Errors of the system: of a folder whose process has ended, of one that this user may not look into, of a process that
    /// can't be seen from here, or is another user's.
    pub fn of(folder: &Path) -> io::Result<Server> {
        let pid = Pid::from_raw(number(folder, PROCESS)?).ok_or(io::ErrorKind::InvalidData)?;
        let name = format!("/proc/{}/fd/{}", pid.as_raw_pid(), number(folder, ENDING)?);
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        // Another process than that one may have its number here, and opening a file can have effects.
        let found = rustix::fs::open(&*name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let is_file = FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode) == FileType::RegularFile;
        let target = std::fs::read_link(&name)?;
        if !is_file || !target.to_string_lossy().starts_with(&format!("/memfd:{NAME} ")) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let ending = File::open(format!("/proc/self/fd/{}", found.as_raw_fd()))?;
        Ok(Server { pid, process, ending })
    }

    /// Whether the process is this one.
    pub fn is_here(&self) -> bool {
        self.pid == rustix::process::getpid()
    }

    /// The process's number.
    pub fn number(&self) -> i32 {
        self.pid.as_raw_pid()
    }

    /// Waits for the process's end for at most `limit`. Returns whether it has ended.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn ends_within(&self, limit: Duration) -> io::Result<bool> {
        let limit = Timespec::try_from(limit).map_err(|_| io::ErrorKind::InvalidInput)?;
        let ended = poll(&mut [PollFd::new(&self.process, PollFlags::IN)], Some(&limit));
        match ended {
            Err(Errno::INTR) => Ok(false),
            ended => Ok(ended? > 0),
        }
    }

    /// Waits for the process's end, and says how the last commit went: `None` if that was not told.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn wait(mut self) -> io::Result<Option<Result<(), String>>> {
        retry_on_intr(|| poll(&mut [PollFd::new(&self.process, PollFlags::IN)], None))?;
        self.ending.rewind()?;
        let mut text = String::new();
        self.ending.take(LONGEST).read_to_string(&mut text)?;
        Ok(match text.trim_end() {
            "done" => Some(Ok(())),
            text => text.strip_prefix("failed ").map(|text| Err(text.to_owned())),
        })
    }
}

/// A number that a folder has as an attribute.
fn number(folder: &Path, name: &str) -> io::Result<i32> {
    let mut text = [0; 16];
    let len = rustix::fs::getxattr(folder, name, &mut text)?;
    let text = std::str::from_utf8(text.get(..len).unwrap_or_default());
    text.ok().and_then(|text| text.parse().ok()).ok_or(io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_read_by_number() {
        let ending = Ending::new().unwrap();
        ending.say(&Err(Error::corrupt("two\nlines").at("root.img")));
        let name = format!("/proc/self/fd/{}", ending.number());
        assert!(std::fs::read_link(&name).unwrap().to_string_lossy().starts_with(&format!("/memfd:{NAME} ")));
        let mut text = String::new();
        File::open(name).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "failed root.img: two lines\n");
    }
}
