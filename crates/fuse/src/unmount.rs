//! Folders given back.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use casemate::blockdev::Events;
use casemate::{Advice, Error};

use crate::ending::Server;
use crate::mounts::{Mounted, full_path};

/// When a folder is unmounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmount {
    /// Now, if nobody uses it, and all changes could be made permanent.
    WhenUnused,
    /// Now for everybody who comes later; those who have files open keep them, and the process that serves them stays until
    /// they have closed them.
    Lazily,
}

/// How long something may take before it is said what is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Answer of a folder's process that was asked to commit before the folder is unmounted.
enum Asked {
    /// All changes so far are permanent.
    Committed(Server),
    /// They are not.
    Failed(Error),
    /// The process has ended before.
    Dead,
    /// It could not be asked.
    Silent(io::Error),
}

/// Unmounts a folder that this program serves, or has served. All changes are made permanent before that, and if they can't
/// be, the folder stays mounted: they are nowhere else. Then the end of its process is waited for, which says whether those
/// are permanent that came meanwhile, so that the image is free afterwards; `events` hears if that takes long, or that the process
/// goes on because the file system is mounted elsewhere too. If the process is this one, `ended` of
/// [`Mount::new`](crate::Mount::new) hears what it says.
///
/// [`Unmount::Lazily`] unmounts also what can't be made permanent, says so, and waits for nothing.
///
/// # Errors
/// `Argument` if nothing of this program is mounted there; `Busy` if somebody uses it; `Io` if changes are not permanent, or
/// nobody has said that they are.
pub fn unmount(folder: &Path, when: Unmount, events: &dyn Events) -> Result<(), Error> {
    let path = full_path(folder)?;
    let Some(mounted) = Mounted::on(&path)?.filter(Mounted::is_ours) else {
        return Err(Error::argument(format!("{}: nothing of casemate is mounted here", folder.display())));
    };
    let waits =
        format!("{}: waiting for the process that makes its last changes permanent", folder.display());
    let asked = patiently(events, &waits, || ask(&path));
    let failed =
        |error: Error, what: &str| error.map_text(|text| format!("{what}: {text}")).at(folder.display());
    if let (Asked::Failed(error), Unmount::WhenUnused) = (&asked, when) {
        let text = match error.raw_os_error() == Some(Errno::STALE.raw_os_error()) {
            true => {
                "its image was removed or replaced, so it stays mounted: its files are nowhere else; copy them first"
            }
            false => {
                "the last changes can't be made permanent, so it stays mounted; make room, or let the disk work, and \
                 unmount it again"
            }
        };
        let error = Error::io(folder.display(), io::Error::other(error.to_string()));
        return Err(failed(error, text).advise(Advice::LoseChanges));
    }
    unmount_if(&path, when, Mounted::is_ours)?;
    let unsaid = |why: String| {
        let text = "is unmounted, but without an answer on whether its last changes are permanent";
        Err(Error::io(folder.display(), io::Error::other(format!("{text}: {why}"))))
    };
    match asked {
        Asked::Failed(error) => {
            Err(failed(error, "is unmounted, but its last changes could not be made permanent"))
        }
        Asked::Dead if mounted.is_writable => {
            let text = "is unmounted; the process that served it had ended before, and changes that it had not committed are lost";
            Err(Error::io(folder.display(), io::Error::other(text)))
        }
        Asked::Dead => Ok(()),
        Asked::Silent(error) if mounted.is_writable => unsaid(error.to_string()),
        Asked::Silent(_) => Ok(()),
        Asked::Committed(_) if when == Unmount::Lazily => Ok(()),
        Asked::Committed(server) if server.is_here() => Ok(()),
        Asked::Committed(server) => {
            let number = server.number();
            let waits =
                format!("{}: is unmounted; waiting for the end of process {number}", folder.display());
            match patiently(events, &waits, || end_of(server, &mounted)) {
                Err(Unended::Elsewhere(place)) => {
                    let text = "is unmounted here, but still mounted elsewhere";
                    events.note(&format!(
                        "{}: {text}: {place}; process {number} serves it, keeps the image in use, and commits later changes",
                        folder.display()
                    ));
                    Ok(())
                }
                Ok(Some(Ok(()))) => Ok(()),
                Ok(Some(Err(text))) => Err(Error::io(folder.display(), io::Error::other(text))),
                Ok(None) if !mounted.is_writable => Ok(()),
                Ok(None) => unsaid(format!("process {number} was killed")),
                Err(Unended::Failed(error)) => unsaid(error.to_string()),
            }
        }
    }
}

/// Why the end of a folder's process is not known.
enum Unended {
    /// It goes on, because what it serves is mounted at another place.
    Elsewhere(String),
    Failed(io::Error),
}

/// Waits for the end of a folder's process and reads how its last commit went, unless it goes on for others.
fn end_of(server: Server, mounted: &Mounted) -> Result<Option<Result<(), String>>, Unended> {
    // A process that is just being started has a copy of all mounts for a moment.
    while !server.ends_within(PATIENCE).map_err(Unended::Failed)? {
        if let Some(place) = mounted.elsewhere() {
            return Err(Unended::Elsewhere(place));
        }
    }
    server.wait().map_err(Unended::Failed)
}

/// Asks a folder's process to make all changes permanent.
fn ask(folder: &Path) -> Asked {
    let server = match Server::of(folder) {
        Ok(server) => server,
        Err(error) if is_dead(&error) => return Asked::Dead,
        // Its changes can be made permanent all the same.
        Err(error) => {
            return match commit(folder) {
                Err(failed) if is_dying(&failed) => Asked::Silent(failed),
                Err(failed) if is_fault(&failed) => Asked::Failed(Error::io(folder.display(), failed)),
                _ => Asked::Silent(error),
            };
        }
    };
    match commit(folder) {
        Ok(()) => Asked::Committed(server),
        Err(error) if is_dying(&error) => Asked::Silent(error),
        Err(error) if is_fault(&error) => Asked::Failed(Error::io(folder.display(), error)),
        // Who can't open the folder hears of the commit at the end.
        Err(_) => Asked::Committed(server),
    }
}

/// Whether nobody answers for a folder any more.
fn is_dead(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error())
}

/// Whether the process was killed while it was asked: what is mounted goes, and with it what was not committed.
fn is_dying(error: &io::Error) -> bool {
    is_dead(error) || error.raw_os_error() == Some(Errno::CONNABORTED.raw_os_error())
}

/// Whether a commit has failed: others who may not open the folder, or that it is read alone.
fn is_fault(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// Makes what is in the kernel's memory, and then all that the process has, permanent.
fn commit(folder: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = rustix::fs::open(folder, flags, Mode::empty())?;
    rustix::fs::syncfs(&open)?;
    Ok(rustix::fs::fsync(&open)?)
}

/// Does something that can't be interrupted, and lets `events` know what is waited for if it takes long.
fn patiently<T: Send>(events: &dyn Events, what: &str, f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let (done, is_done) = channel::<()>();
        let work = scope.spawn(move || {
            let _done = done;
            f()
        });
        if is_done.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            events.note(what);
        }
        work.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
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
        let text = format!("{}: a file or folder in it is in use", folder.display());
        Error::busy(text).advise(Advice::Lazy)
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

/// Has fusermount3 unmount a folder; returns its complaint.
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
