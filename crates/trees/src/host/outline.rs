//! Everything about files of the host but their contents, for those who must know all of a tree before they copy it.

use std::ffi::{CStr, CString};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use casemate_blockdev::{BlockDevice, FileDevice, os};

use super::{Attributed, Folder, HostFile, NameKind, Part, Reading, Xattrs, allocated, at, changed, node};
use crate::system::{self, AtFlags, HostType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat};
use crate::{Node, Result};

/// A file of any kind, without its contents.
#[derive(Debug)]
pub struct Outlined {
    /// The file's name in its folder.
    pub name: CString,
    /// The file's kind, mode, owners and time.
    pub node: Node,
    /// The device and inode on the host, which all names of one file have.
    pub inode: (u64, u64),
    /// Whether the file has more names than this one.
    pub has_more_names: bool,
    /// Extended attributes, in the order of their names.
    pub xattrs: Xattrs,
    /// The description that stands for the file's contents.
    pub body: Outline,
}

/// Contents that were not read.
#[derive(Debug)]
pub enum Outline {
    /// A folder, and its number.
    Folder(usize),
    /// A regular file of so many bytes, and what of them is not a hole; everything if `None`.
    File(Unread, u64, Option<Vec<Range<u64>>>),
    /// A symbolic link's target.
    Symlink(Vec<u8>),
    /// None: a device, a pipe or a socket.
    Node,
}

/// A regular file that was not opened yet.
#[derive(Clone, Debug)]
pub struct Unread {
    folder: Arc<Path>,
    name: CString,
}

impl Unread {
    /// The file's path.
    pub fn path(&self) -> std::path::PathBuf {
        self.folder.join(os::path(self.name.to_bytes()))
    }

    /// Opens the file, which is to have so many bytes still.
    ///
    /// # Errors
    /// Errors of the host; `InvalidData` if it is another file by now.
    pub fn open(&self, size: u64) -> Result<HostFile> {
        let path = self.path();
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = system::open(&path, flags, Mode::empty()).map_err(|error| at(&path, error))?;
        let stat = fstat(&fd).map_err(|error| at(&path, error))?;
        let is_file = HostType::from_raw_mode(stat.st_mode) == HostType::RegularFile;
        if !is_file || stat.st_size.cast_unsigned() != size {
            return Err(changed(&path));
        }
        let file = FileDevice::from_regular_file(fd.into());
        Ok(HostFile { file, path, size, sparse: false })
    }

    /// The error for a file with other contents than when they were read before.
    pub fn changed(&self) -> crate::Error {
        changed(&self.path())
    }
}

impl Reading {
    /// The folder at a path that a walk goes through: what it is itself.
    ///
    /// # Errors
    /// Errors of the host.
    pub fn top(&self, path: &Path) -> Result<(Node, Xattrs)> {
        let mut stat = system::stat(path).map_err(|error| at(path, error))?;
        let xattrs = self.attributes(&Attributed::Path(path), &mut stat).map_err(|error| at(path, error))?;
        Ok((node(&stat).ok_or_else(|| changed(path))?, xattrs))
    }

    /// Everything about the files of a part of a folder but their contents.
    ///
    /// # Errors
    /// Of the first file of which something can't be read.
    pub fn outline(&self, part: Part) -> Result<(Arc<Folder>, Vec<Outlined>)> {
        let Part { folder, names, .. } = part;
        let entries = names.into_iter().map(|name| self.outlined(&folder, name.name, name.kind));
        let entries = entries.collect::<Result<_>>()?;
        Ok((folder, entries))
    }

    fn outlined(&self, folder: &Folder, name: CString, kind: NameKind) -> Result<Outlined> {
        let host = |error| at(&folder.join(&name), error);
        let mut stat = statat(&folder.fd, &*name, AtFlags::SYMLINK_NOFOLLOW).map_err(host)?;
        let body = match (HostType::from_raw_mode(stat.st_mode), kind) {
            (HostType::Directory, NameKind::Folder(number)) => Outline::Folder(number),
            (HostType::RegularFile, NameKind::File) => {
                let path = folder.join(&name);
                if self.image == Some(system::inode(&stat)) {
                    let text = format!("{}: is the image itself", path.display());
                    return Err(crate::Error::path(std::io::ErrorKind::InvalidInput, text));
                }
                let size = stat.st_size.cast_unsigned();
                let file = Unread { folder: Arc::clone(&folder.path), name: name.clone() };
                Outline::File(file, size, ranges(folder, &name, &stat)?)
            }
            (HostType::Symlink, NameKind::Other) => {
                Outline::Symlink(readlinkat(&folder.fd, &*name, Vec::new()).map_err(host)?.into_bytes())
            }
            (HostType::Directory | HostType::RegularFile, _) | (_, NameKind::Folder(_) | NameKind::File) => {
                return Err(changed(&folder.join(&name)));
            }
            _ => Outline::Node,
        };
        let path = folder.join(&name);
        let xattrs = self.attributes(&Attributed::Path(&path), &mut stat).map_err(host)?;
        let (inode, has_more_names) = (system::inode(&stat), stat.st_nlink > 1);
        let node = node(&stat).ok_or_else(|| changed(&path))?;
        Ok(Outlined { name, node, inode, has_more_names, xattrs, body })
    }
}

/// Ranges of a file that are not holes, if it has holes.
fn ranges(folder: &Folder, name: &CStr, stat: &Stat) -> Result<Option<Vec<Range<u64>>>> {
    let size = stat.st_size.cast_unsigned();
    if allocated(stat) >= size {
        return Ok(None);
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = openat(&folder.fd, name, flags, Mode::empty()).map_err(|error| at(&folder.join(name), error))?;
    let file = FileDevice::from_file(fd.into()).map_err(|error| error.at(folder.join(name).display()))?;
    let mut ranges = Vec::new();
    let mut from = 0;
    while let Some(range) = file.next_data(from)?.filter(|range| range.start < size) {
        from = range.end.min(size);
        ranges.push(range.start..from);
    }
    Ok(Some(ranges))
}
