//! Copying files and trees of the host into a file system.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use casemate_blockdev::{BlockDevice, FileDevice, Progress};

use crate::error::{Error, Result};
use crate::inode::{FileType, Time};
use crate::write::create::{Body, NewNode, is_not_found};
use crate::write::inode::{InodeMut, Stamp};
use crate::write::{Writer, invalid};
use crate::xattr::LARGEST_VALUE;

/// What [`Writer::put`] copies, and how.
#[derive(Clone, Copy)]
pub struct PutOptions<'a> {
    /// Whether directories are copied with all that is in them.
    pub recursive: bool,
    /// The owner and group of everything instead of those on the host.
    pub owner: Option<(u32, u32)>,
    /// Whether extended attributes are copied.
    pub xattrs: bool,
    /// Hears of bytes of contents.
    pub progress: &'a dyn Progress,
}

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutReport {
    /// Regular files.
    pub files: u64,
    /// Directories that were not there before.
    pub directories: u64,
    /// Everything else: links, devices, pipes, sockets, further names.
    pub others: u64,
    /// Bytes of contents.
    pub bytes: u64,
}

/// A copy that is going on.
struct Put<'a> {
    options: &'a PutOptions<'a>,
    /// Inodes of files with more names, by device and inode on the host.
    links: HashMap<(u64, u64), u32>,
    report: PutReport,
}

impl Writer {
    /// Copies a file, or with `recursive` a directory, of the host to `to`: into it under its own name if it is a
    /// directory, else under the name that `to` ends in. What a directory `source/.` has goes right into `to`.
    ///
    /// Modes, owners, times of modification, holes, links and attributes are kept; a name that is there already
    /// gets the new file, a directory stays and is added to. Large copies are committed on the way.
    ///
    /// # Errors
    /// What the host says of the source; `StorageFull`; `IsADirectory` and `NotADirectory` when one would
    /// replace the other.
    pub fn put(&mut self, source: &Path, to: &[u8], options: &PutOptions<'_>) -> Result<PutReport> {
        let mut put = Put { options, links: HashMap::new(), report: PutReport::default() };
        let metadata = at(source, fs::symlink_metadata(source))?;
        let only_contents =
            source.as_os_str().as_bytes().split(|byte| *byte == b'/').next_back() == Some(b".");
        if metadata.is_dir() && !options.recursive {
            let text = format!("{}: is a directory, which only a recursive copy takes", source.display());
            return Err(invalid(ErrorKind::IsADirectory, text));
        }
        let existing = match self.fs.resolve(to, true) {
            Ok(inode) => Some(inode),
            Err(error) if is_not_found(&error) => None,
            Err(error) => return Err(error),
        };
        let into = existing.filter(crate::Inode::is_dir).map(|inode| inode.number());
        let (parent, name) = match into {
            Some(number) if only_contents => {
                self.put_tree(&mut put, source, number, None)?;
                return Ok(put.report);
            }
            Some(number) => {
                let whole = source.canonicalize();
                let name = match source.file_name() {
                    Some(name) => name.as_bytes().to_vec(),
                    None => {
                        at(source, whole)?.file_name().map_or_else(Vec::new, |name| name.as_bytes().to_vec())
                    }
                };
                (number, name)
            }
            None => self.parent_of(to)?,
        };
        if let Some((number, time)) = self.put_one(&mut put, parent, &name, source, &metadata)? {
            self.put_tree(&mut put, source, number, time)?;
        }
        Ok(put.report)
    }

    /// Copies all that is in a directory of the host into one of the file system, which gets this time then.
    fn put_tree(&mut self, put: &mut Put<'_>, source: &Path, number: u32, time: Option<Time>) -> Result<()> {
        let mut open = vec![(source.to_path_buf(), number, time)];
        while let Some((folder, parent, time)) = open.pop() {
            let mut entries =
                at(&folder, fs::read_dir(&folder).and_then(Iterator::collect::<io::Result<Vec<_>>>))?;
            // The same order wherever the tree lies.
            entries.sort_by_key(fs::DirEntry::file_name);
            let mut below = Vec::new();
            for entry in entries {
                let path = entry.path();
                let metadata = at(&path, entry.metadata())?;
                let name = entry.file_name();
                if let Some((number, time)) = self.put_one(put, parent, name.as_bytes(), &path, &metadata)? {
                    below.push((path, number, time));
                }
                self.commit_if_large()?;
            }
            if let Some(time) = time {
                // All names are in it by now.
                self.operation(|writer| {
                    let mut dir = writer.inode_mut(parent)?;
                    dir.set_time(Stamp::Modified, time);
                    dir.set_time(Stamp::Accessed, time);
                    writer.store_inode(&dir)
                })?;
            }
            open.extend(below.into_iter().rev());
        }
        Ok(())
    }

    /// Copies one file without what is below it; the inode if it is a directory, and the time of a new one.
    fn put_one(
        &mut self,
        put: &mut Put<'_>,
        parent: u32,
        name: &[u8],
        path: &Path,
        metadata: &Metadata,
    ) -> Result<Option<(u32, Option<Time>)>> {
        let kind = metadata.file_type();
        let (uid, gid) = put.options.owner.unwrap_or((metadata.uid(), metadata.gid()));
        // The host's nanoseconds are below 10^9.
        let modified = Time { seconds: metadata.mtime(), nanoseconds: metadata.mtime_nsec() as u32 };
        // OK to truncate: permission bits.
        let mode = (metadata.mode() & 0o7777) as u16;
        let node = NewNode { mode, uid, gid, modified: Some(modified) };
        if kind.is_dir() {
            let dir = self.inode_mut(parent)?;
            if let Some(found) = self.fs.lookup(&dir.reader()?, name)? {
                return if self.fs.inode(found)?.is_dir() {
                    Ok(Some((found, None)))
                } else {
                    let text = format!("{}: a file has the name of a directory", path.display());
                    Err(invalid(ErrorKind::NotADirectory, text))
                };
            }
        }
        let shared = (metadata.nlink() > 1 && !kind.is_dir()).then(|| (metadata.dev(), metadata.ino()));
        if let Some(number) = shared.and_then(|key| put.links.get(&key)).copied() {
            self.operation(|writer| {
                writer.make_way(parent, name)?;
                writer.link_in(parent, name, number)
            })?;
            put.report.others += 1;
            return Ok(None);
        }
        let target;
        let mut file = None;
        let body = if kind.is_dir() {
            Body::Directory
        } else if kind.is_file() {
            let opened = at(path, File::open(path).and_then(FileDevice::from_file))?;
            file = Some(Source {
                size: opened.size(),
                sparse: metadata.blocks() * 512 < metadata.len(),
                file: opened,
            });
            Body::File
        } else if kind.is_symlink() {
            target = at(path, fs::read_link(path))?;
            Body::Symlink(target.as_os_str().as_bytes())
        } else {
            let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
            let kind = if kind.is_char_device() {
                FileType::CharacterDevice
            } else if kind.is_block_device() {
                FileType::BlockDevice
            } else if kind.is_fifo() {
                FileType::Fifo
            } else {
                FileType::Socket
            };
            Body::Node(kind, major, minor)
        };
        let xattrs = if put.options.xattrs { at(path, host_xattrs(path))? } else { Vec::new() };
        let copy = |writer: &mut Writer| {
            if !kind.is_dir() {
                writer.make_way(parent, name)?;
            }
            let mut inode = writer.create_in(parent, name, &node, body)?;
            if let Some(file) = &file {
                writer.write_contents(&mut inode, file)?;
            }
            writer.put_xattrs(&mut inode, &xattrs)?;
            writer.finish(&mut inode, &node)?;
            Ok(inode.number())
        };
        // What was freed since the last commit can be used after one.
        let needed = file.as_ref().map_or(0, |file| file.size / self.block_size() as u64);
        if self.pins.clusters() > 0 && self.free_clusters() < needed / self.ratio() + 64 {
            self.commit()?;
        }
        let number = self.operation(copy)?;
        if let Some(key) = shared {
            put.links.insert(key, number);
        }
        match file {
            Some(file) => {
                put.report.files += 1;
                put.report.bytes += file.size;
                put.options.progress.advance(file.size)?;
            }
            None if kind.is_dir() => {
                put.report.directories += 1;
                return Ok(Some((number, node.modified)));
            }
            None => put.report.others += 1,
        }
        Ok(None)
    }

    /// Removes a file that has the name of a new one. Part of an operation.
    fn make_way(&mut self, parent: u32, name: &[u8]) -> Result<()> {
        let dir = self.fs.inode(parent)?;
        let Some(found) = self.fs.lookup(&dir, name)? else { return Ok(()) };
        if self.fs.inode(found)?.is_dir() {
            let text = format!("{}: a directory has the name of a file", String::from_utf8_lossy(name));
            return Err(invalid(ErrorKind::IsADirectory, text));
        }
        self.remove_in(parent, name)
    }

    pub(crate) fn put_xattrs(&mut self, inode: &mut InodeMut, list: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        if list.is_empty() {
            return Ok(());
        }
        let changes: Vec<_> = list.iter().map(|(name, value)| (&name[..], Some(&value[..]))).collect();
        self.change_attributes(inode, &changes)
    }
}

/// A host's file of a size that was noted once. Only sparse ones are asked for their holes.
struct Source {
    file: FileDevice,
    size: u64,
    sparse: bool,
}

impl BlockDevice for Source {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_at(buf, offset)
    }

    fn write_at(&self, _buf: &[u8], _offset: u64) -> io::Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<std::ops::Range<u64>>> {
        if self.sparse {
            return self.file.next_data(offset);
        }
        Ok((offset < self.size).then_some(offset..self.size))
    }
}

/// The attributes of a host's file that ext4 can store.
fn host_xattrs(path: &Path) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut names = vec![0u8; 4096];
    let len = loop {
        match rustix::fs::llistxattr(path, &mut names[..]) {
            Ok(len) => break len,
            Err(rustix::io::Errno::RANGE) if names.len() < 1 << 16 => names.resize(1 << 16, 0),
            Err(rustix::io::Errno::OPNOTSUPP) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        }
    };
    let mut list = Vec::new();
    for name in names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        if super::xattr::is_storable(name) {
            let c_name = CString::new(name).map_err(|_| ErrorKind::InvalidData)?;
            let mut value = vec![0u8; 4096];
            let len = loop {
                match rustix::fs::lgetxattr(path, c_name.as_c_str(), &mut value[..]) {
                    Ok(len) => break len,
                    Err(rustix::io::Errno::RANGE) if value.len() < LARGEST_VALUE as usize => {
                        value.resize(value.len() * 4, 0);
                    }
                    Err(error) => return Err(error.into()),
                }
            };
            value.truncate(len);
            list.push((name.to_vec(), value));
        }
    }
    list.sort();
    Ok(list)
}

/// An error of the host, with the path that it happened at.
fn at<T>(path: &Path, result: io::Result<T>) -> Result<T> {
    result.map_err(|error| Error::path(error.kind(), format!("{}: {error}", path.display())))
}
