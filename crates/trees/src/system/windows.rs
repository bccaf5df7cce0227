//! The calls on Windows, by paths: a folder is its path, and each name is looked at before it is joined to it.
//!
//! Modes, owners, attributes, links and special files are not made. What is a link is not gone through.

use std::ffi::{CStr, CString};
use std::fs::{self, File, FileTimes, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::ops::BitOr;
use std::os::windows::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use casemate_blockdev::os::OsStrExt;

/// An error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(ErrorKind);

pub type Result<T> = std::result::Result<T, Errno>;

impl Errno {
    pub const EXIST: Errno = Errno(ErrorKind::AlreadyExists);
    pub const OPNOTSUPP: Errno = Errno(ErrorKind::Unsupported);
    /// No call has this one.
    pub const RANGE: Errno = Errno(ErrorKind::ArgumentListTooLong);
}

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Errno {
        Errno(error.kind())
    }
}

impl From<Errno> for io::Error {
    fn from(error: Errno) -> io::Error {
        error.0.into()
    }
}

impl From<Errno> for casemate_blockdev::Error {
    fn from(error: Errno) -> casemate_blockdev::Error {
        error.0.into()
    }
}

/// An open file or folder.
#[derive(Debug)]
pub struct OwnedFd {
    path: PathBuf,
    file: File,
}

/// A borrowed file descriptor.
#[derive(Clone, Copy, Debug)]
pub struct BorrowedFd<'a> {
    /// Nobody asks for that of a file.
    path: &'a Path,
    file: &'a File,
}

/// Types with a descriptor to borrow.
pub trait AsFd {
    /// Borrows it.
    fn as_fd(&self) -> BorrowedFd<'_>;
}

impl AsFd for OwnedFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        BorrowedFd { path: &self.path, file: &self.file }
    }
}

impl AsFd for BorrowedFd<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        *self
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        BorrowedFd { path: Path::new(""), file: self }
    }
}

impl<T: AsFd> AsFd for &T {
    fn as_fd(&self) -> BorrowedFd<'_> {
        (*self).as_fd()
    }
}

impl From<OwnedFd> for File {
    fn from(fd: OwnedFd) -> File {
        fd.file
    }
}

/// How a file is opened; what Windows does by itself, or does not have, is nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OFlags(u8);

impl OFlags {
    pub const RDONLY: OFlags = OFlags(0);
    pub const CLOEXEC: OFlags = OFlags(0);
    pub const NONBLOCK: OFlags = OFlags(0);
    pub const EXCL: OFlags = OFlags(0);
    pub const RDWR: OFlags = OFlags(0);
    pub const DIRECTORY: OFlags = OFlags(1);
    pub const NOFOLLOW: OFlags = OFlags(2);
    /// A file that was not there, for reading and writing.
    pub const CREATE: OFlags = OFlags(4);

    pub fn set(&mut self, other: OFlags, value: bool) {
        self.0 = if value { self.0 | other.0 } else { self.0 & !other.0 };
    }

    fn has(self, other: OFlags) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for OFlags {
    type Output = OFlags;

    fn bitor(self, other: OFlags) -> OFlags {
        OFlags(self.0 | other.0)
    }
}

/// How a folder is opened that is only gone through.
pub const WAY: OFlags = OFlags::DIRECTORY;

/// Modes, which nothing has here.
#[derive(Clone, Copy, Debug)]
pub struct Mode;

impl Mode {
    pub const RWXU: Mode = Mode;
    pub const RUSR: Mode = Mode;
    pub const WUSR: Mode = Mode;

    pub fn empty() -> Mode {
        Mode
    }

    pub fn from_raw_mode(_: u32) -> Mode {
        Mode
    }
}

impl BitOr for Mode {
    type Output = Mode;

    fn bitor(self, _: Mode) -> Mode {
        Mode
    }
}

pub struct AtFlags;

impl AtFlags {
    pub const SYMLINK_NOFOLLOW: AtFlags = AtFlags;

    pub fn empty() -> AtFlags {
        AtFlags
    }
}

pub struct XattrFlags;

impl XattrFlags {
    pub fn empty() -> XattrFlags {
        XattrFlags
    }
}

pub struct Uid;
pub struct Gid;

impl Uid {
    pub fn from_raw(_: u32) -> Uid {
        Uid
    }
}

impl Gid {
    pub fn from_raw(_: u32) -> Gid {
        Gid
    }
}

pub struct Timespec {
    pub tv_sec: i64,
    pub tv_nsec: i64,
}

pub struct Timestamps {
    pub last_access: Timespec,
    pub last_modification: Timespec,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostType {
    RegularFile,
    Directory,
    Symlink,
    CharacterDevice,
    BlockDevice,
    Fifo,
    Socket,
    Unknown,
}

impl HostType {
    pub fn from_raw_mode(mode: u32) -> HostType {
        match mode >> 12 {
            0o10 => HostType::RegularFile,
            0o4 => HostType::Directory,
            0o12 => HostType::Symlink,
            _ => HostType::Unknown,
        }
    }
}

/// Metadata of a file. All are root's, and each name is a file of its own.
pub struct Stat {
    pub st_mode: u32,
    pub st_nlink: u32,
    pub st_uid: u32,
    pub st_gid: u32,
    pub st_rdev: u64,
    pub st_size: i64,
    /// Holes are not known.
    pub st_blocks: i64,
    pub st_mtime: i64,
    pub st_mtime_nsec: u64,
}

impl Stat {
    fn of(metadata: &Metadata) -> Result<Stat> {
        let st_mode = match () {
            () if metadata.is_symlink() => 0o120_777,
            () if metadata.is_dir() => 0o040_755,
            () if metadata.permissions().readonly() => 0o100_444,
            () => 0o100_644,
        };
        let modified = metadata.modified()?.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let size = if metadata.is_dir() { 0 } else { metadata.len().cast_signed() };
        Ok(Stat {
            st_mode,
            st_nlink: 1,
            st_uid: 0,
            st_gid: 0,
            st_rdev: 0,
            st_size: size,
            st_blocks: size.saturating_add(511) / 512,
            st_mtime: modified.as_secs().cast_signed(),
            st_mtime_nsec: modified.subsec_nanos().into(),
        })
    }
}

/// The device and inode of a file, which are not known.
pub fn inode(_: &Stat) -> (u64, u64) {
    (0, 0)
}

/// There are no numbers of devices.
pub fn device(_: &Stat) -> u64 {
    0
}

/// The path of a name in a folder.
///
/// A name is part of one path and no more: none that leads elsewhere, to a device or to a stream of another file.
fn join(folder: impl AsFd, name: impl AsRef<CStr>) -> Result<PathBuf> {
    const NAMES: [&str; 6] = ["con", "prn", "aux", "nul", "conin$", "conout$"];
    let refused = Errno(ErrorKind::InvalidFilename);
    let name = name.as_ref().to_str().map_err(|_| refused)?;
    if name == "." {
        return Ok(folder.as_fd().path.to_owned());
    }
    let stem = name.split('.').next().unwrap_or_default().trim_end().to_ascii_lowercase();
    let port = stem.strip_prefix("com").or_else(|| stem.strip_prefix("lpt"));
    let is_device = NAMES.contains(&&*stem) || port.is_some_and(|number| number.chars().count() == 1);
    let is_other = |char: char| char < ' ' || "\\/:*?\"<>|".contains(char);
    if name.is_empty() || is_device || name.contains(is_other) || name.ends_with(['.', ' ']) {
        return Err(refused);
    }
    Ok(folder.as_fd().path.join(name))
}

/// `FILE_FLAG_BACKUP_SEMANTICS`: folders are opened too.
const FOLDERS: u32 = 0x0200_0000;

/// `FILE_FLAG_OPEN_REPARSE_POINT`: links are opened themselves.
const LINKS: u32 = 0x0020_0000;

pub fn open(path: impl AsRef<Path>, flags: OFlags, _: Mode) -> Result<OwnedFd> {
    let path = path.as_ref();
    let is_new = flags.has(OFlags::CREATE);
    let links = if flags.has(OFlags::NOFOLLOW) { LINKS } else { 0 };
    let mut options = OpenOptions::new();
    options.read(true).write(is_new).create_new(is_new).custom_flags(FOLDERS | links);
    let file = options.open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_symlink() || flags.has(OFlags::DIRECTORY) && !metadata.is_dir() {
        return Err(Errno(ErrorKind::NotADirectory));
    }
    Ok(OwnedFd { path: path.to_owned(), file })
}

pub fn openat(folder: impl AsFd, name: impl AsRef<CStr>, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
    open(path_at(folder, name)?, flags, mode)
}

/// A path that the user named, or a name in a folder.
fn path_at(folder: impl AsFd, name: impl AsRef<CStr>) -> Result<PathBuf> {
    // Only the folder that paths are looked up from has no path.
    let folder = folder.as_fd();
    if folder.path == Path::new(".") {
        return Ok(casemate_blockdev::os::path(name.as_ref().to_bytes()).into_owned());
    }
    join(folder, name)
}

pub fn stat(path: impl AsRef<Path>) -> Result<Stat> {
    Stat::of(&fs::metadata(path)?)
}

pub fn fstat(fd: impl AsFd) -> Result<Stat> {
    Stat::of(&fd.as_fd().file.metadata()?)
}

pub fn statat(folder: impl AsFd, name: impl AsRef<CStr>, _: AtFlags) -> Result<Stat> {
    Stat::of(&fs::symlink_metadata(path_at(folder, name)?)?)
}

pub fn readlinkat(folder: impl AsFd, name: impl AsRef<CStr>, _: Vec<u8>) -> Result<CString> {
    let target = fs::read_link(path_at(folder, name)?)?.to_string_lossy().replace('\\', "/");
    CString::new(target).map_err(|_| Errno(ErrorKind::InvalidFilename))
}

pub fn mkdirat(folder: impl AsFd, name: impl AsRef<CStr>, _: Mode) -> Result<()> {
    Ok(fs::create_dir(join(folder, name)?)?)
}

pub fn unlinkat(folder: impl AsFd, name: impl AsRef<CStr>, _: AtFlags) -> Result<()> {
    Ok(fs::remove_file(join(folder, name)?)?)
}

pub fn linkat<N: AsRef<CStr>>(from: impl AsFd, old: N, folder: impl AsFd, name: N, _: AtFlags) -> Result<()> {
    Ok(fs::hard_link(join(from, old)?, join(folder, name)?)?)
}

pub fn symlinkat<N>(_: N, _: impl AsFd, _: N) -> Result<()> {
    Err(Errno::OPNOTSUPP)
}

pub fn mknodat<N>(_: impl AsFd, _: N, _: HostType, _: Mode, _: u64) -> Result<()> {
    Err(Errno::OPNOTSUPP)
}

pub fn fchown(_: impl AsFd, _: Option<Uid>, _: Option<Gid>) -> Result<()> {
    Ok(())
}

pub fn chownat<N>(_: impl AsFd, _: N, _: Option<Uid>, _: Option<Gid>, _: AtFlags) -> Result<()> {
    Ok(())
}

pub fn fchmod(_: impl AsFd, _: Mode) -> Result<()> {
    Ok(())
}

pub fn chmodat<N>(_: impl AsFd, _: N, _: Mode, _: AtFlags) -> Result<()> {
    Ok(())
}

pub fn futimens(fd: impl AsFd, times: &Timestamps) -> Result<()> {
    let time = |time: &Timespec| {
        let (seconds, rest) = (Duration::from_secs(time.tv_sec.unsigned_abs()), time.tv_nsec.unsigned_abs());
        let whole = if time.tv_sec < 0 {
            SystemTime::UNIX_EPOCH.checked_sub(seconds)
        } else {
            SystemTime::UNIX_EPOCH.checked_add(seconds)
        };
        whole.and_then(|whole| whole.checked_add(Duration::from_nanos(rest))).ok_or(Errno::OPNOTSUPP)
    };
    let times = FileTimes::new()
        .set_accessed(time(&times.last_access)?)
        .set_modified(time(&times.last_modification)?);
    Ok(fd.as_fd().file.set_times(times)?)
}

pub fn utimensat<N>(_: impl AsFd, _: N, _: &Timestamps, _: AtFlags) -> Result<()> {
    Ok(())
}

pub fn fsetxattr<N>(_: impl AsFd, _: N, _: &[u8], _: XattrFlags) -> Result<()> {
    Err(Errno::OPNOTSUPP)
}

pub fn set_xattr_of(_: BorrowedFd<'_>, _: &CStr, _: &[u8]) -> Result<()> {
    Err(Errno::OPNOTSUPP)
}

pub fn flistxattr(_: impl AsFd, _: &mut [u8]) -> Result<usize> {
    Ok(0)
}

pub fn llistxattr(_: &Path, _: &mut [u8]) -> Result<usize> {
    Ok(0)
}

pub fn fgetxattr(_: impl AsFd, _: &CStr, _: &mut [u8]) -> Result<usize> {
    Err(Errno::OPNOTSUPP)
}

pub fn lgetxattr(_: &Path, _: &CStr, _: &mut [u8]) -> Result<usize> {
    Err(Errno::OPNOTSUPP)
}

pub fn major(_: u64) -> u32 {
    0
}

pub fn minor(_: u64) -> u32 {
    0
}

pub fn makedev(_: u32, _: u32) -> u64 {
    0
}

/// The entries of a folder.
pub struct Dir(fs::ReadDir);

/// A name in a folder.
pub struct DirEntry(CString, HostType);

impl Dir {
    pub fn read_from(folder: impl AsFd) -> Result<Dir> {
        Ok(Dir(fs::read_dir(folder.as_fd().path)?))
    }
}

impl Iterator for Dir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Result<DirEntry>> {
        let entry = self.0.next()?.map_err(Errno::from);
        Some(entry.and_then(|entry| {
            let kind = entry.file_type()?;
            let kind = match () {
                () if kind.is_symlink() => HostType::Symlink,
                () if kind.is_dir() => HostType::Directory,
                () => HostType::RegularFile,
            };
            let name = CString::new(entry.file_name().as_bytes());
            Ok(DirEntry(name.map_err(|_| Errno(ErrorKind::InvalidFilename))?, kind))
        }))
    }
}

impl DirEntry {
    pub fn file_name(&self) -> &CStr {
        &self.0
    }

    pub fn file_type(&self) -> HostType {
        self.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let top = open(folder.path(), OFlags::DIRECTORY, Mode).unwrap();
        for name in
            [c"a/b", c"a\\b", c"c:", c"a:stream", c"..", c"a.", c"a ", c"NUL", c"com1.txt", c"aux .c", c""]
        {
            assert_eq!(join(&top, name), Err(Errno(ErrorKind::InvalidFilename)), "{name:?}");
        }
        for name in [c"a", c"com10", c"console", c".hidden", c"a b"] {
            assert!(join(&top, name).is_ok(), "{name:?}");
        }
    }
}
