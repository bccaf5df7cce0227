//! The process that keeps a file or a device from others, as Linux tells it in `/proc`.
//!
//! Sources: proc(5), on `/proc/locks`, `/proc/PID/fd`, `/proc/PID/fdinfo` and `/proc/PID/cmdline`.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process;

use rustix::fs::{AtFlags, CWD, FileType, OFlags, StatxFlags, makedev, statx};

use super::Holder;
use crate::identity::FileId;

/// The process that has locked a file, or has opened a block device for itself alone; `None` where that can't be seen, as that of
/// another user may be. Another process is told before this one.
pub(crate) fn holder(id: FileId) -> Option<Holder> {
    let own = process::id();
    let named = named_by_locks(id);
    // Whose files this user may not see is believed if device and inode are those of the lock.
    let is_named = |(pid, is_exact): &(u32, bool)| has_claimed(*pid, id).unwrap_or(*is_exact);
    let by_locks = || named.iter().filter(|lock| is_named(lock)).map(|(pid, _)| *pid);
    let holds = |pid: &u32| has_claimed(*pid, id) == Some(true);
    // A lock that was taken before a fork is told as that of the parent, which may be gone.
    let pid = by_locks()
        .find(|pid| *pid != own)
        .or_else(|| processes().filter(|pid| *pid != own).find(holds))
        .or_else(|| holds(&own).then_some(own))?;
    Some(Holder { pid, name: name_of(pid) })
}

/// The processes that `/proc/locks` has for a file by its inode, and whether the lock's device is the file's, too: some file
/// systems have other numbers there.
fn named_by_locks(id: FileId) -> Vec<(u32, bool)> {
    let FileId::Inode(device, inode) = id else { return Vec::new() };
    let device = format!("{:02x}:{:02x}", rustix::fs::major(device), rustix::fs::minor(device));
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let of_line = |line: &str| {
        // Number, kind, mode, access, process, place, range; those that wait for a lock have an arrow.
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, pid, place, ..] = words[..] else { return None };
        let (found, number) = place.rsplit_once(':')?;
        let is_it = number.parse() == Ok(inode);
        pid.parse().ok().filter(|_| is_it).map(|pid| (pid, found == device))
    };
    locks.lines().filter_map(of_line).collect()
}

/// All processes that can be seen.
fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Whether a process has the file open with a lock, or the block device for itself alone; `None` if its files can't be seen.
fn has_claimed(pid: u32, id: FileId) -> Option<bool> {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
    let is_claimed = |number: &OsStr| {
        let path = Path::new("/proc").join(pid.to_string()).join("fdinfo").join(number);
        let text = fs::read_to_string(path).unwrap_or_default();
        let is_alone = |flags: &str| {
            let flags = u32::from_str_radix(flags.trim(), 8).unwrap_or(0);
            matches!(id, FileId::BlockDevice(_)) && flags & OFlags::EXCL.bits() != 0
        };
        text.lines().any(|line| match line.split_once(':') {
            Some(("lock", _)) => true,
            Some(("flags", flags)) => is_alone(flags),
            _ => false,
        })
    };
    Some(files.into_iter().any(|file| id_at(&file.path()) == Some(id) && is_claimed(&file.file_name())))
}

/// The file that an open one is, without asking a server for it, which may be away.
fn id_at(path: &Path) -> Option<FileId> {
    let found = statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::BASIC_STATS).ok()?;
    Some(match FileType::from_raw_mode(found.stx_mode.into()) {
        FileType::BlockDevice => FileId::BlockDevice(makedev(found.stx_rdev_major, found.stx_rdev_minor)),
        _ => FileId::Inode(makedev(found.stx_dev_major, found.stx_dev_minor), found.stx_ino),
    })
}

/// A process's program, and its command if it has such a word behind that: `casemate serve`.
fn name_of(pid: u32) -> String {
    const MOST: u64 = 4096;
    let mut line = Vec::new();
    // What can't be read has no name.
    let _ =
        File::open(format!("/proc/{pid}/cmdline")).and_then(|file| file.take(MOST).read_to_end(&mut line));
    let line = String::from_utf8_lossy(&line).into_owned();
    let mut words = line.split('\0');
    let program = words.next().unwrap_or_default().rsplit('/').next().unwrap_or_default();
    if program.is_empty() {
        return shown(fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim());
    }
    let is_command = |word: &&str| {
        word.starts_with(|c: char| c.is_ascii_lowercase())
            && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    match words.next().filter(is_command) {
        Some(command) => shown(&format!("{program} {command}")),
        None => shown(program),
    }
}

/// A name that another process chose, without what would steer a terminal.
fn shown(name: &str) -> String {
    const LONGEST: usize = 60;
    name.chars().take(LONGEST).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::FileDevice;
    use crate::os;

    #[test]
    fn the_process_that_has_a_lock_is_found() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let id = os::id_at(file.path()).unwrap();
        assert!(holder(id).is_none());
        let open = File::open(file.path()).unwrap();
        assert!(holder(id).is_none(), "open, and not locked");
        open.lock_shared().unwrap();
        assert_eq!(holder(id).unwrap().pid, process::id());
        // The child has the lock with the open file; what was locked before is told as that of the parent.
        let mut child = Command::new("sleep").arg("600").stdin(Stdio::from(open)).spawn().unwrap();
        let found = holder(id).unwrap();
        let error = FileDevice::open_exclusive(file.path()).unwrap_err();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((found.pid, &*found.name), (child.id(), "sleep"));
        assert_eq!(error.text(), format!("in use by another process (sleep, PID {})", child.id()));
        assert!(holder(id).is_none());
    }

    #[test]
    fn names_of_programs_steer_no_terminal() {
        assert_eq!(shown("a\x1b[31m\n"), "a\u{fffd}[31m\u{fffd}");
        assert_eq!(shown(&"x".repeat(100)).len(), 60);
    }
}
