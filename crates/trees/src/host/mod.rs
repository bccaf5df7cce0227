//! Trees of the host, read in batches of neighbours before it is their turn to be copied.
//!
//! A [`Walk`] says in which order, [`Reading`] reads what it gives out, on any thread.

mod file;
mod outline;
mod walk;

use std::ffi::{CStr, CString};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use casemate_blockdev::os::{self, FileExt};
use casemate_blockdev::{Buffer, FileDevice, u32_of, u64_of, usize_of};

#[cfg(target_os = "linux")]
use crate::mode_without_acl;
use crate::system::{
    self, AsFd, AtFlags, BorrowedFd, Dir, Errno, HostType, Mode, OFlags, OwnedFd, Stat, fstat, openat,
    readlinkat, statat,
};
use crate::{ACCESS_ACL, Error, FileType, Node, Result, Time};

pub use file::HostFile;
pub use outline::{Outline, Outlined, Unread};
pub use walk::{Part, Walk};

/// Bytes of an attribute's value that are read: far more than any kernel stores.
const LARGEST_VALUE: usize = 1 << 24;

/// Larger files are not read ahead.
const MOST_AHEAD: u64 = 256 << 10;

/// Extended attributes by their names.
pub type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// A folder of the host that is being copied.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    path: Arc<Path>,
    /// Whether a link to a file stands for the file.
    follow: bool,
    /// The folder's number in its tree.
    pub number: usize,
}

/// A name in a folder.
#[derive(Debug)]
struct Name {
    name: CString,
    kind: NameKind,
}

/// The kind of file that a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameKind {
    File,
    /// A folder, and its number.
    Folder(usize),
    Other,
}

/// Files that are neighbours in a folder.
#[derive(Debug)]
pub struct Batch {
    /// The folder.
    pub folder: Arc<Folder>,
    /// The files, in the order of the walk.
    pub entries: Vec<Entry>,
    /// Contents, each file's from the beginning of a block on and with zeros to the end of one.
    pub buffer: Buffer,
    /// Whether these are the folder's last ones.
    pub ends: bool,
    /// The error of the file behind them, if that could not be read.
    pub failed: Option<Error>,
}

/// A file of any kind, as it was when it was read.
#[derive(Debug)]
pub struct Entry {
    /// The file's name in its folder.
    pub name: CString,
    /// The file's kind, mode, owners and time.
    pub node: Node,
    /// The device and inode on the host, which all names of one file have.
    pub inode: (u64, u64),
    /// Whether the file has more names than this one.
    pub has_more_names: bool,
    /// The length of the contents in bytes, as the host tells it.
    pub size: u64,
    /// Extended attributes, in the order of their names.
    pub xattrs: Xattrs,
    /// The contents.
    pub body: Body,
}

/// The contents of a file of the host.
#[derive(Debug)]
pub enum Body {
    /// A folder, and its number.
    Folder(usize),
    /// A file's contents in the batch's buffer, from this byte on.
    Read(usize),
    /// A file's contents that are still to be read.
    Open(Arc<HostFile>),
    /// A file's contents that are still to be read, and whose length is not known.
    Stream(std::fs::File),
    /// A symbolic link's target.
    Symlink(Vec<u8>),
    /// None: a device, a pipe or a socket.
    Node,
}

/// The way in which files are read.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// The block size in bytes of the file system that the files are for.
    pub block: usize,
    /// The names of the extended attributes that are read; none are if `None`.
    pub xattrs: Option<fn(&[u8]) -> bool>,
    /// The device and inode of a file that is refused: the image that the tree is copied into.
    pub image: Option<(u64, u64)>,
}

impl Folder {
    fn open(path: &Path, number: usize) -> Result<Folder> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = system::open(path, flags, Mode::empty()).map_err(|error| at(path, error))?;
        Ok(Folder { fd, path: path.into(), follow: false, number })
    }

    /// The folder that paths are looked up from. With `follow`, a link to a file stands for the file.
    ///
    /// # Errors
    /// `Io`.
    pub fn current(follow: bool) -> Result<Folder> {
        let flags = system::WAY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = system::open(".", flags, Mode::empty()).map_err(|error| at(Path::new("."), error))?;
        Ok(Folder { fd, path: Path::new("").into(), follow, number: 0 })
    }

    /// The path of the file that has this name in the folder.
    pub fn join(&self, name: &CStr) -> PathBuf {
        self.path.join(os::path(name.to_bytes()))
    }

    /// All names and what they stand for, in the order of their bytes: the same wherever the folder lies.
    fn list(&self) -> Result<Vec<(CString, HostType)>> {
        let host = |error| at(&self.path, error);
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.fd).map_err(host)? {
            let entry = entry.map_err(host)?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let kind = match entry.file_type() {
                HostType::Unknown => HostType::from_raw_mode(self.stat(name)?.st_mode),
                known => known,
            };
            names.push((name.to_owned(), kind));
        }
        names.sort_by(|(a, _), (b, _)| a.cmp(b));
        // A folder that changes meanwhile may show a name twice.
        names.dedup_by(|(a, _), (b, _)| a == b);
        Ok(names)
    }

    fn stat(&self, name: &CStr) -> Result<Stat> {
        statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|error| at(&self.join(name), error))
    }
}

impl Reading {
    /// The length of a batch's buffer in bytes.
    pub fn buffer_size(&self) -> usize {
        (1 << 20).max(16 * self.block)
    }

    /// Reads a part of a folder, as far as it can be read. `buffer` is as long as all buffers.
    pub fn batch(&self, part: Part, mut buffer: Buffer) -> Batch {
        let Part { folder, names, ends } = part;
        let mut used = 0;
        let (mut entries, mut failed) = (Vec::with_capacity(names.len()), None);
        for name in names {
            match self.entry(&folder, name, &mut buffer, &mut used) {
                Ok(entry) => entries.push(entry),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        Batch { folder, entries, buffer, ends, failed }
    }

    fn entry(&self, folder: &Folder, name: Name, buffer: &mut [u8], used: &mut usize) -> Result<Entry> {
        let Name { name, kind } = name;
        let (stat, xattrs, body) = if kind == NameKind::File {
            self.file(folder, &name, buffer, used)?
        } else {
            let stat = folder.stat(&name)?;
            let body = match (HostType::from_raw_mode(stat.st_mode), kind) {
                (HostType::Directory, NameKind::Folder(number)) => Body::Folder(number),
                (HostType::Symlink, NameKind::Other) => {
                    let target = readlinkat(&folder.fd, &*name, Vec::new());
                    Body::Symlink(target.map_err(|error| at(&folder.join(&name), error))?.into_bytes())
                }
                (HostType::Directory | HostType::RegularFile, _) | (_, NameKind::Folder(_)) => {
                    return Err(changed(&folder.join(&name)));
                }
                _ => Body::Node,
            };
            let path = folder.join(&name);
            let mut stat = stat;
            let xattrs = self.attributes(&Attributed::Path(&path), &mut stat);
            (stat, xattrs.map_err(|error| at(&path, error))?, body)
        };
        let path = || changed(&folder.join(&name));
        let node = node(&stat).ok_or_else(path)?;
        let (inode, has_more_names) = (system::inode(&stat), stat.st_nlink > 1);
        Ok(Entry { node, inode, has_more_names, size: stat.st_size.cast_unsigned(), xattrs, body, name })
    }

    fn file(
        &self,
        folder: &Folder,
        name: &CStr,
        buffer: &mut [u8],
        used: &mut usize,
    ) -> Result<(Stat, Xattrs, Body)> {
        let host = |error| at(&folder.join(name), error);
        let failed = |error: io::Error| Error::io(folder.join(name).display(), error);
        // A file that was replaced by a pipe must not keep us waiting.
        let mut flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        flags.set(OFlags::NOFOLLOW, !folder.follow);
        let fd = openat(&folder.fd, name, flags, Mode::empty()).map_err(host)?;
        let mut stat = fstat(&fd).map_err(host)?;
        if HostType::from_raw_mode(stat.st_mode) != HostType::RegularFile {
            return Err(changed(&folder.join(name)));
        }
        if self.image == Some(system::inode(&stat)) {
            let text = format!("{}: is the image itself", folder.join(name).display());
            return Err(Error::path(ErrorKind::InvalidInput, text));
        }
        let xattrs = self.attributes(&Attributed::File(fd.as_fd()), &mut stat).map_err(host)?;
        let size = stat.st_size.cast_unsigned();
        let sparse = allocated(&stat) < size;
        let padded = |size: u64| usize_of(size).next_multiple_of(self.block);
        // Of a file with several names one is copied.
        let ahead =
            !sparse && stat.st_nlink == 1 && size <= MOST_AHEAD && padded(size) <= buffer.len() - *used;
        let file = std::fs::File::from(fd);
        if stat.st_blocks == 0 && self.has_other_size(&file, size).map_err(failed)? {
            return Ok((stat, xattrs, Body::Stream(file)));
        }
        if !ahead {
            let file = FileDevice::from_file(file).map_err(|error| error.at(folder.join(name).display()))?;
            let source = HostFile { file, path: folder.join(name), size, sparse };
            return Ok((stat, xattrs, Body::Open(Arc::new(source))));
        }
        let (from, end) = (*used, *used + usize_of(size));
        *used += padded(size);
        match file.read_exact_at(&mut buffer[from..end], 0) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(shorter(&folder.join(name))),
            result => result.map_err(failed),
        }?;
        buffer[end..*used].fill(0);
        Ok((stat, xattrs, Body::Read(from)))
    }
}

impl Reading {
    /// Whether a file has contents of another size than it says, as those have that a kernel makes up.
    fn has_other_size(&self, file: &std::fs::File, size: u64) -> io::Result<bool> {
        let mut begin = vec![0; self.block];
        let mut len = 0;
        while len < begin.len() {
            match file.read_at(&mut begin[len..], u64_of(len))? {
                0 => break,
                more => len += more,
            }
        }
        Ok(if size == 0 { len > 0 } else { u64_of(len) < size.min(u64_of(begin.len())) })
    }
}

/// Whose attributes are read.
enum Attributed<'a> {
    File(BorrowedFd<'a>),
    Path(&'a Path),
}

impl Attributed<'_> {
    fn list(&self, names: &mut [u8]) -> system::Result<usize> {
        match self {
            Attributed::File(fd) => system::flistxattr(fd, names),
            Attributed::Path(path) => system::llistxattr(*path, names),
        }
    }

    fn get(&self, name: &CStr, value: &mut [u8]) -> system::Result<usize> {
        match self {
            Attributed::File(fd) => system::fgetxattr(fd, name, value),
            Attributed::Path(path) => system::lgetxattr(*path, name, value),
        }
    }
}

impl Reading {
    /// The attributes of a file that are wanted. The mode of a file that loses its ACL gives the group what the ACL gave it.
    fn attributes(&self, of: &Attributed<'_>, stat: &mut Stat) -> system::Result<Xattrs> {
        if !self.xattrs.is_some_and(|is_wanted| is_wanted(ACCESS_ACL)) {
            leave_acl(of, stat)?;
        }
        self.xattrs.map_or(Ok(Vec::new()), |is_wanted| xattrs(of, is_wanted))
    }
}

/// Takes from the mode what the mask of the file's ACL lends the group. Where the group has no rights there is nothing to look for.
#[cfg(target_os = "linux")]
fn leave_acl(of: &Attributed<'_>, stat: &mut Stat) -> system::Result<()> {
    let is_link = HostType::from_raw_mode(stat.st_mode) == HostType::Symlink;
    if is_link || stat.st_mode & 0o070 == 0 {
        return Ok(());
    }
    let mut value = vec![0; 256];
    let len = loop {
        match of.get(c"system.posix_acl_access", &mut value) {
            Ok(len) => break len,
            Err(Errno::RANGE) if value.len() < LARGEST_VALUE => value.resize(value.len() * 4, 0),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => return Ok(()),
            Err(error) => return Err(error),
        }
    };
    let bits = u16::try_from(stat.st_mode & 0o7777).unwrap_or(0);
    let lost = bits & !mode_without_acl(bits, value.get(..len).unwrap_or_default());
    stat.st_mode &= !u32::from(lost);
    Ok(())
}

/// Leaves the mode as it is: it is not the ACL's on other systems.
#[cfg(not(target_os = "linux"))]
fn leave_acl(_: &Attributed<'_>, _: &mut Stat) -> system::Result<()> {
    Ok(())
}

/// The attributes that are wanted, in the order of their names.
fn xattrs(of: &Attributed<'_>, is_wanted: fn(&[u8]) -> bool) -> system::Result<Xattrs> {
    let mut few = [0; 256];
    let mut many = Vec::new();
    let names = match of.list(&mut few) {
        Ok(len) => &few[..len],
        Err(Errno::RANGE) => {
            many.resize(1 << 16, 0);
            let len = of.list(&mut many)?;
            &many[..len]
        }
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut list = Vec::new();
    for name in names.split_inclusive(|byte| *byte == 0) {
        let Ok(c_name) = CStr::from_bytes_with_nul(name) else { continue };
        if is_wanted(c_name.to_bytes()) {
            let mut value = vec![0u8; 4096];
            let len = loop {
                match of.get(c_name, &mut value) {
                    Ok(len) => break len,
                    Err(Errno::RANGE) if value.len() < LARGEST_VALUE => {
                        value.resize(value.len() * 4, 0);
                    }
                    Err(error) => return Err(error),
                }
            };
            value.truncate(len);
            list.push((c_name.to_bytes().to_vec(), value));
        }
    }
    list.sort();
    Ok(list)
}

/// The file's kind, mode, owners and time.
fn node(stat: &Stat) -> Option<Node> {
    let bits = u16::try_from(stat.st_mode).ok()?;
    let kind = FileType::from_mode(bits)?;
    let modified = Time { seconds: stat.st_mtime, nanoseconds: u32_of(stat.st_mtime_nsec) };
    let device = (system::major(stat.st_rdev), system::minor(stat.st_rdev));
    let (mode, uid, gid) = (bits & 0o7777, stat.st_uid, stat.st_gid);
    Some(Node { kind, mode, uid, gid, modified, accessed: None, device })
}

/// An error of the host, with the path that it happened at.
fn at(path: &Path, error: Errno) -> Error {
    Error::io(path.display(), io::Error::from(error))
}

fn shorter(path: &Path) -> Error {
    let text = format!("{}: became shorter while it was read", path.display());
    Error::path(ErrorKind::UnexpectedEof, text)
}

fn changed(path: &Path) -> Error {
    Error::path(ErrorKind::InvalidData, format!("{}: changed while it was copied", path.display()))
}

/// Bytes that the host says it has given a file. Their type depends on the machine.
fn allocated(stat: &Stat) -> u64 {
    u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512)
}
