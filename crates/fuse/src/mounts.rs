//! The kernel's list of mounts (/proc/self/mountinfo).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use casemate::Error;

/// File system types of casemate's folders in the list of mounts.
const KINDS: [&str; 2] = ["fuse.casemate", "fuseblk.casemate"];

/// The list of mounts of this process.
const LIST: &str = "/proc/self/mountinfo";

/// KiB that the kernel reads ahead, two requests. 1 GiB of plain and of encrypted contents, with 2 CPUs: 0.52 and 0.59 s with
/// 128 KiB, 0.49 and 0.56 s with 1024, 0.45 and 0.48 s with 2048, 0.42 and 0.52 s with 4096. A page of a map in memory that is
/// not there reads as much, so that no more than helps is asked for.
const READ_AHEAD: &str = "2048";

/// A folder that something is mounted on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// The number of the mount, which no other one has at the same time.
    pub id: u64,
    /// The numbers of the device that files of it have.
    pub device: String,
    /// The file system's kind.
    pub kind: String,
    /// The source of the mount: the image.
    pub source: OsString,
    /// Whether the file system may be written.
    pub is_writable: bool,
    /// The user who mounted it, as the kernel knows it.
    pub user: Option<u32>,
}

impl Mounted {
    /// The mount on a folder, the topmost if there are several.
    ///
    /// # Errors
    /// `Io` if the list can't be read.
    pub fn on(folder: &Path) -> Result<Option<Mounted>, Error> {
        let list = std::fs::read(LIST).map_err(|error| Error::io(LIST, error))?;
        Ok(find(&list, folder))
    }

    /// Makes the kernel read further ahead than FUSE does by itself, so that contents are decrypted by several
    /// threads and requests are few. Only root can; for others it stays as it is.
    pub fn read_ahead(&self) {
        let _ = std::fs::write(format!("/sys/class/bdi/{}/read_ahead_kb", self.device), READ_AHEAD);
    }

    /// Another place where the same file system is mounted, as far as this user can see: a bind mount, or a copy in the mount
    /// namespace of another process.
    pub fn elsewhere(&self) -> Option<String> {
        let has = |list: &str| {
            let list = std::fs::read(list).ok()?;
            let device = self.device.as_bytes();
            let mut lines = list.split(|byte| *byte == b'\n').map(|line| line.split(|byte| *byte == b' '));
            let words = lines.find(|words| words.clone().nth(2) == Some(device))?;
            Some(unescaped(words.clone().nth(4)?))
        };
        if let Some(path) = has(LIST) {
            return Some(format!("at {}", path.display()));
        }
        let processes =
            std::fs::read_dir("/proc").ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        processes.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).find_map(|process| {
            let path = has(&format!("/proc/{process}/mountinfo"))?;
            Some(format!("at {} in the mount namespace of process {process}", path.display()))
        })
    }

    /// Whether this program serves it, or has.
    pub fn is_ours(&self) -> bool {
        KINDS.contains(&&*self.kind)
    }
}

/// The folder's name without links in it. The folder itself is not looked at: if nobody answers for it, that would fail.
///
/// # Errors
/// `Io`, with the folder's name.
pub fn full_path(folder: &Path) -> Result<PathBuf, Error> {
    let whole = std::path::absolute(folder).map_err(|error| Error::io(folder.display(), error))?;
    // A mount point is not a link, and its server may not answer.
    if let (Some(parent), Some(name)) = (whole.parent(), whole.file_name())
        && let Ok(path) = parent.canonicalize().map(|parent| parent.join(name))
        && Mounted::on(&path)?.is_some()
    {
        return Ok(path);
    }
    let found = match (whole.parent(), whole.file_name()) {
        (Some(parent), Some(name))
            if !std::fs::symlink_metadata(&whole).is_ok_and(|data| data.is_symlink()) =>
        {
            parent.canonicalize().map(|parent| parent.join(name))
        }
        _ => whole.canonicalize(),
    };
    found.map_err(|error| Error::io(folder.display(), error))
}

fn find(list: &[u8], folder: &Path) -> Option<Mounted> {
    list.split(|byte| *byte == b'\n').rev().find_map(|line| {
        let mut words = line.split(|byte| *byte == b' ');
        let id = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
        // Behind the parent; and behind that the root.
        let device = String::from_utf8_lossy(words.nth(1)?).into_owned();
        if unescaped(words.nth(1)?) != folder.as_os_str() {
            return None;
        }
        let mut behind = words.skip_while(|word| *word != b"-").skip(1);
        let kind = String::from_utf8_lossy(behind.next()?).into_owned();
        let source = unescaped(behind.next()?);
        let options: Vec<&[u8]> = behind.next().unwrap_or_default().split(|byte| *byte == b',').collect();
        let user = options.iter().find_map(|word| word.strip_prefix(b"user_id="));
        let user = user.and_then(|user| std::str::from_utf8(user).ok()?.parse().ok());
        let is_writable = options.contains(&&b"rw"[..]);
        Some(Mounted { id, device, kind, source, is_writable, user })
    })
}

/// A word of the list: spaces and the like are written as a backslash and three octal digits.
fn unescaped(word: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, after)) = rest.split_first() {
        let digits = after
            .get(..3)
            .filter(|digits| *first == b'\\' && digits.iter().all(|d| (b'0'..b'8').contains(d)));
        match digits {
            Some(digits) => {
                bytes.push(digits.iter().fold(0, |sum, digit| sum << 3 | (digit - b'0')));
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes)
}

/// The name of an image in the list, with its folders. The list has no room for everything that names may have.
pub fn source_name(name: &str) -> String {
    let whole = Path::new(name).canonicalize();
    let name = whole.as_ref().map_or(OsStr::new(name), |whole| whole.as_os_str());
    let shown = |byte: &u8| if matches!(byte, b',' | b'\\' | 0..b' ') { b'?' } else { *byte };
    String::from_utf8_lossy(&name.as_bytes().iter().map(shown).collect::<Vec<_>>()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_found_in_the_list() {
        let list = b"36 25 0:32 / /mnt/a\\040b rw,relatime shared:1 - ext4 /dev/vda1 rw\n\
            40 25 0:44 / /mnt/x ro,nosuid - fuse.casemate root\\134.img ro,user_id=0\n\
            41 40 0:45 / /mnt/x rw master:7 propagate_from:2 - tmpfs none rw\n";
        let found =
            |path: &str| find(list, Path::new(path)).map(|found| (found.id, found.kind, found.source));
        assert_eq!(found("/mnt/a b"), Some((36, "ext4".into(), "/dev/vda1".into())));
        assert_eq!(found("/mnt/x"), Some((41, "tmpfs".into(), "none".into())), "the topmost");
        assert_eq!(found("/mnt"), None);
        let first = find(&list[..list.len() - 60], Path::new("/mnt/x")).unwrap();
        assert!(first.is_ours() && first.source == "root\\.img" && !first.is_writable, "{first:?}");
        assert_eq!(first.user, Some(0));
        assert!(find(list, Path::new("/mnt/x")).unwrap().is_writable);
        assert_eq!(find(b"nonsense\n\n1 2 3 4 /x", Path::new("/x")), None);
    }
}
