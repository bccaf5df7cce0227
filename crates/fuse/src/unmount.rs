//! Folders given back.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use casemate::Error;

use crate::mounts::{Mounted, full_path};
use crate::tree::PROCESS;

/// When a folder is unmounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmount {
    /// Now, if nobody uses it.
    WhenUnused,
    /// Now for everybody who comes later; those who have files open keep them, and the process that serves them stays until
    /// they have closed them.
    Lazily,
}

/// How long the process that served a folder may take to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Unmounts a folder that this program serves, or has served, and waits for the end of that process, so that the image is
/// free afterwards.
///
/// # Errors
/// `Argument` if nothing of this program is mounted there; `Busy` if somebody uses it.
pub fn unmount(folder: &Path, when: Unmount) -> Result<(), Error> {
    let path = full_path(folder)?;
    if !Mounted::on(&path)?.is_some_and(|mounted| mounted.is_ours()) {
        return Err(Error::argument(format!("{}: nothing of casemate is mounted here", folder.display())));
    }
    let process = process(&path);
    unmount_if(&path, when, Mounted::is_ours)?;
    if when == Unmount::WhenUnused {
        process.iter().for_each(|process| wait(*process));
    }
    Ok(())
}

/// Unmounts a folder if what is mounted there is what is meant.
pub fn unmount_if(
    folder: &Path,
    when: Unmount,
    is_meant: impl FnOnce(&Mounted) -> bool,
) -> Result<(), Error> {
    if !Mounted::on(folder)?.is_some_and(|mounted| is_meant(&mounted)) {
        return Ok(());
    }
    let flags = match when {
        Unmount::WhenUnused => UnmountFlags::NOFOLLOW,
        Unmount::Lazily => UnmountFlags::NOFOLLOW | UnmountFlags::DETACH,
    };
    let busy = || {
        let text = format!("{}: somebody uses a file or folder in it", folder.display());
        Error::busy(format!("{text}; --lazy unmounts it for everybody else"))
    };
    match rustix::mount::unmount(folder, flags) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(busy()),
        // Only root may; for others fusermount3 does it.
        Err(Errno::PERM) => match fusermount(folder, when) {
            Ok(said) if said.contains("busy") => Err(busy()),
            Ok(said) if !said.is_empty() => {
                Err(Error::io(folder.display(), io::Error::other(said.trim().to_owned())))
            }
            Ok(_) => Ok(()),
            Err(error) => Err(Error::io("fusermount3", error)),
        },
        Err(error) => Err(Error::io(folder.display(), io::Error::from(error))),
    }
}

/// Lets fusermount3 unmount a folder; what it says against it.
fn fusermount(folder: &Path, when: Unmount) -> io::Result<String> {
    let mut command = Command::new("fusermount3");
    command.arg("-u").args((when == Unmount::Lazily).then_some("-z")).arg("--").arg(folder);
    let output = command.stdin(Stdio::null()).output()?;
    match output.status.success() {
        true => Ok(String::new()),
        false if output.stderr.is_empty() => Ok(format!("fusermount3: {}", output.status)),
        false => Ok(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// The process that serves a folder, if it is there and can be seen from here.
fn process(folder: &Path) -> Option<Pid> {
    let mut text = [0; 16];
    let len = rustix::fs::getxattr(folder, PROCESS, &mut text).ok()?;
    Pid::from_raw(std::str::from_utf8(text.get(..len)?).ok()?.parse().ok()?)
}

/// Waits for the end of a process, not for ever.
fn wait(process: Pid) {
    let Ok(process) = pidfd_open(process, PidfdFlags::empty()) else { return };
    let timeout = Timespec::try_from(PATIENCE).ok();
    let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], timeout.as_ref());
}
