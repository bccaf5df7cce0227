//! Copying files and trees of the host into a file system.

mod pipeline;
mod placed;
mod steps;
mod stream;
mod tar;

pub(crate) use self::tar::{LeftOut, attributes, tell_open};
use std::collections::HashMap;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;

use casemate_blockdev::os::{FileTypeExt, OsStrExt};
use casemate_blockdev::{BlockDevice, Events, usize_of};
use casemate_providers::Work;
use casemate_trees::host::{Batch, Body as HostBody, Entry, Folder, HostFile, Reading, Walk};

use crate::edit::Writer;
use crate::edit::create::{is_not_found, refuse_slash};
use crate::edit::encrypted::cipher;
use crate::edit::files::Files;
use crate::edit::node::{Body, NewNode};
use crate::edit::too_large::TooLarge;
use crate::edit::writer::Behind;
use crate::edit::xattr::is_storable;
use crate::error::{Error, Result, invalid};
use crate::format::acl;
use crate::format::inode::{Inode, InodeFlags, Stamp, Time};
use crate::units::InodeNo;

use pipeline::{CHUNK, Piece, Pipeline, Write};
use stream::{Ahead, NewFile, Stream, told};

use placed::Placed;

/// Sources and options of [`Writer::put`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PutOptions {
    /// Whether directories are copied with all that is in them.
    pub recursive: bool,
    /// Whether what is named is copied as it is: a symbolic link as a link, a pipe as a pipe. Else a link is followed,
    /// and what comes out of a pipe becomes a file. In a directory that is copied everything is copied as it is.
    pub no_dereference: bool,
    /// The owner and group of everything instead of those on the host.
    pub owner: Option<(u32, u32)>,
    /// Whether extended attributes are copied.
    pub xattrs: bool,
}

impl PutOptions {
    /// One file with all that it has.
    pub const fn new() -> Self {
        PutOptions { recursive: false, no_dereference: false, owner: None, xattrs: true }
    }
}

impl PutOptions {
    /// Copies directories with all that is in them.
    #[must_use]
    pub fn recursive(mut self, recursive: bool) -> Self {
        self.recursive = recursive;
        self
    }

    /// Copies what is named as it is: a link as a link.
    #[must_use]
    pub fn no_dereference(mut self, no_dereference: bool) -> Self {
        self.no_dereference = no_dereference;
        self
    }

    /// Gives everything an owner and a group.
    #[must_use]
    pub fn owner(mut self, uid: u32, gid: u32) -> Self {
        self.owner = Some((uid, gid));
        self
    }

    /// Copies extended attributes, or does not.
    #[must_use]
    pub fn xattrs(mut self, xattrs: bool) -> Self {
        self.xattrs = xattrs;
        self
    }
}

impl Default for PutOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// Counts of copied files.
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
    writer: &'a mut Writer,
    /// Contents that have got their places and are still to be written.
    placed: Placed,
    options: &'a PutOptions,
    work: &'a Work<'a>,
    pipeline: Arc<Pipeline>,
    /// The name that the topmost file gets, if it is copied itself.
    name: Option<Vec<u8>>,
    /// Where folders of the host go, by their numbers.
    folders: HashMap<usize, Target>,
    /// Inodes of files with more names, by device and inode on the host.
    links: HashMap<(u64, u64), InodeNo>,
    report: PutReport,
}

/// A directory that a folder goes to.
#[derive(Clone, Copy, Debug)]
struct Target {
    number: InodeNo,
    /// The time that it gets in the end.
    time: Option<Time>,
    /// True if all its names are from the folder.
    fresh: bool,
}

impl Writer {
    /// Copies a file, or with `recursive` a directory, of the host to `to`: into it under its own name if it is a
    /// directory, else under the name that `to` ends in. What a directory `source/.` has goes right into `to`.
    ///
    /// Modes, owners, times of modification, holes, links and attributes are kept; a name that is there already
    /// gets the new file, a directory stays and is added to. Large copies are committed on the way.
    ///
    /// # Errors
    /// Errors of the host about the source; `StorageFull`; `IsADirectory` and `NotADirectory` when one would
    /// replace the other. When the source can't be read, or the device not be written, after a file got its place,
    /// nothing can be committed any more.
    pub fn put(
        &mut self,
        source: &Path,
        to: &[u8],
        options: &PutOptions,
        work: &Work<'_>,
    ) -> Result<PutReport> {
        let told = |error| told(source, error);
        let link = std::fs::symlink_metadata(source).map_err(told)?;
        let follow = !options.no_dereference;
        let metadata = if follow { std::fs::metadata(source).map_err(told)? } else { link.clone() };
        let only_contents =
            source.as_os_str().as_bytes().split(|byte| *byte == b'/').next_back() == Some(b".");
        if metadata.is_dir() && !options.recursive {
            let text = format!("{}: is a directory, which only a recursive copy takes", source.display());
            return Err(invalid(ErrorKind::IsADirectory, text));
        }
        let existing = match self.fs().resolve(to, true) {
            Ok(inode) => Some(inode),
            Err(error) if is_not_found(&error) => None,
            Err(error) => return Err(error),
        };
        let into = existing.filter(Inode::is_dir).map(|inode| inode.number());
        if !metadata.is_dir() && into.is_none() {
            refuse_slash(to)?;
        }
        let (parent, name) = match into {
            Some(number) if only_contents => (number, None),
            Some(number) => {
                let name = match source.file_name() {
                    Some(name) => name.as_bytes().to_vec(),
                    None => {
                        let whole = source.canonicalize().map_err(told)?;
                        whole.file_name().map_or_else(Vec::new, |name| name.as_bytes().to_vec())
                    }
                };
                (number, Some(name))
            }
            None => {
                let (parent, name) = self.parent_of(to)?;
                (parent, Some(name))
            }
        };
        let kind = metadata.file_type();
        let is_linked_device = link.is_symlink() && (kind.is_char_device() || kind.is_block_device());
        if let Some(name) = name.as_ref().filter(|_| follow && (kind.is_fifo() || is_linked_device)) {
            let mut from = casemate_blockdev::Stream::open(source).map_err(told)?;
            let mut from = Ahead::new(&mut from, source);
            let stream = Stream { from: &mut from, events: work.events };
            let bytes = self.put_unowned(parent, name, stream, options.owner)?;
            return Ok(PutReport { files: 1, bytes, ..PutReport::default() });
        }
        let walk = match name {
            Some(_) => {
                let whole = if link.is_symlink() && metadata.is_dir() {
                    source.canonicalize().map_err(told)?
                } else {
                    source.to_owned()
                };
                Walk::to(Folder::current(follow)?, &whole, kind)?
            }
            None => Walk::within(source.to_owned()),
        };
        let reading = Reading {
            block: self.files().space().block_size(),
            xattrs: options.xattrs.then_some(is_storable),
            image: self.image(),
        };
        let pipeline = Arc::new(Pipeline::new(
            self.files().space().transaction().below().clone(),
            walk,
            reading,
            work.pool,
        ));
        let top = Target { number: parent, time: None, fresh: false };
        let put = Put {
            writer: self,
            placed: Placed::new(pipeline.clone()),
            options,
            work,
            pipeline: pipeline.clone(),
            name,
            folders: HashMap::from([(0, top)]),
            links: HashMap::new(),
            report: PutReport::default(),
        };
        let report = pipeline.run(|| put.run()).map_err(|(error, is_lost)| {
            if is_lost {
                self.break_off();
            }
            error
        })?;
        self.tell_cut_times(work.events);
        Ok(report)
    }

    /// Commits if what was freed since the last time, which can be used then, may be needed for contents of `size`
    /// bytes.
    fn recycle(&mut self, behind: &mut impl Behind, size: u64) -> Result<()> {
        let space = self.files().space();
        let needed = size / space.block_bytes();
        if space.pinned_clusters() > 0 && space.free_clusters() < needed / space.ratio() + 64 {
            self.commit_with(behind)?;
        }
        Ok(())
    }

    /// Copies all that comes out of `from`, which errors call `path`, to a file that the path `to` names: a new one,
    /// or one that gets the name of an older file. A new one is root's, if the options name no owner, with the permission
    /// bits that [`make_file`](Writer::make_file) would give it for 0666 without 0022. In place of a regular file it has the permission
    /// bits, the owner and the attributes of that one, but its capabilities, as if that one had been written to. Other names of that
    /// one keep what they had.
    ///
    /// # Errors
    /// Errors of `from`; `IsADirectory`, `NotFound`, `StorageFull`.
    pub fn put_contents(
        &mut self,
        from: &mut dyn Read,
        path: &Path,
        to: &[u8],
        options: &PutOptions,
        work: &Work<'_>,
    ) -> Result<PutReport> {
        match self.fs().resolve(to, true) {
            Ok(inode) if inode.is_dir() => {
                let text = format!("{}: is a directory; name the new file", String::from_utf8_lossy(to));
                return Err(invalid(ErrorKind::IsADirectory, text));
            }
            Err(error) if !is_not_found(&error) => return Err(error),
            _ => refuse_slash(to)?,
        }
        let (parent, name) = self.parent_of(to)?;
        let mut from = Ahead::new(from, path);
        let stream = Stream { from: &mut from, events: work.events };
        let bytes = self.put_unowned(parent, &name, stream, options.owner)?;
        Ok(PutReport { files: 1, bytes, ..PutReport::default() })
    }
}

impl Put<'_> {
    /// Copies everything.
    fn run(mut self) -> Result<PutReport> {
        while let Some(batch) = self.pipeline.next()? {
            let Batch { folder, entries, buffer, ends, failed } = batch;
            let Some(target) = self.folders.get(&folder.number).copied() else { continue };
            self.placed.begin(buffer);
            let result = entries.into_iter().try_for_each(|entry| self.put_entry(target, &folder, entry));
            // What was placed before is in the file system, whatever happened then.
            self.placed.submit()?;
            result?;
            failed.map_or(Ok(()), Err)?;
            if ends {
                self.folders.remove(&folder.number);
                if let Some(time) = target.time {
                    // All names are in it by now.
                    self.operation(|files, _| {
                        let mut dir = files.get(target.number)?;
                        dir.set_time(Stamp::Modified, time);
                        dir.set_time(Stamp::Accessed, time);
                        files.inodes().store(&dir)
                    })?;
                }
            }
        }
        Ok(self.report)
    }

    /// Copies one file without what is below it.
    fn put_entry(&mut self, target: Target, folder: &Folder, entry: Entry) -> Result<()> {
        let Entry {
            name: host_name,
            node: host,
            inode: host_inode,
            has_more_names,
            size,
            xattrs,
            body: host_body,
        } = entry;
        let Target { number: parent, fresh, .. } = target;
        let top = self.name.take();
        let name = top.as_deref().unwrap_or(host_name.to_bytes());
        let (uid, gid) = self.options.owner.unwrap_or((host.uid, host.gid));
        let node = NewNode { mode: host.mode, umask: 0, uid, gid, modified: Some(host.modified) };
        if let HostBody::Folder(number) = host_body {
            let dir = self.writer.fs().inode(parent)?;
            if let Some(found) = self.writer.fs().lookup(&dir, name)? {
                if !self.writer.fs().inode(found)?.is_dir() {
                    let path = folder.join(&host_name);
                    let text = format!("{}: a file is in the way", path.display());
                    return Err(invalid(ErrorKind::NotADirectory, text));
                }
                self.folders.insert(number, Target { number: found, time: None, fresh: false });
                return Ok(());
            }
        }
        let is_folder = matches!(host_body, HostBody::Folder(_));
        let shared = (has_more_names && !is_folder).then_some(host_inode);
        if let Some(number) = shared.and_then(|key| self.links.get(&key)).copied() {
            self.operation(|files, _| {
                files.make_way(parent, name)?;
                files.link_in(parent, name, number)
            })?;
            self.report.others += 1;
            return Ok(());
        }
        let body = match &host_body {
            HostBody::Folder(_) => Body::Directory,
            HostBody::Read(_) | HostBody::Open(_) | HostBody::Stream(_) => Body::File,
            HostBody::Symlink(target) => Body::Symlink(target),
            HostBody::Node => Body::Node(host.kind, host.device.0, host.device.1),
        };
        let size = if matches!(body, Body::File) { size } else { 0 };
        self.writer.recycle(&mut self.placed, size)?;
        let events = self.work.events;
        if let HostBody::Stream(file) = &host_body {
            let path = folder.join(&host_name);
            let mut file = file;
            let mut from = Ahead::new(&mut file, &path);
            let stream = Stream { from: &mut from, events };
            let new = NewFile { parent, name, node: &node, xattrs: &xattrs, acls: Vec::new() };
            let (number, size) = self.writer.put_stream(&mut self.placed, &new, stream)?;
            if let Some(key) = shared {
                self.links.insert(key, number);
            }
            self.report.files += 1;
            self.report.bytes += size;
            return Ok(());
        }
        let copy = |files: &mut Files, placed: &mut Placed| {
            let mut inode = if fresh {
                let dir = files.get(parent)?;
                files.create_new(dir, name, &node, body)?
            } else {
                if !is_folder {
                    files.make_way(parent, name)?;
                }
                files.create_in(parent, name, &node, body)?
            };
            match &host_body {
                HostBody::Read(at) => place_read(files, placed, &mut inode, *at, size)?,
                HostBody::Open(source) => copy_source(files, placed, &mut inode, source, events)?,
                _ => {}
            }
            files.put_xattrs(&mut inode, &xattrs)?;
            files.finish(&mut inode, &node)?;
            Ok(inode)
        };
        let inode = match (self.operation(copy), &host_body) {
            (Err(error), HostBody::Open(source)) if TooLarge::is(&error) => {
                self.put_in_steps(parent, name, &node, source, &xattrs)?
            }
            (result, _) => result.map_err(|error| from_source(&folder.join(&host_name), error))?,
        };
        if let Some(key) = shared {
            self.links.insert(key, inode.number());
        }
        match host_body {
            HostBody::Folder(number) => {
                // Other names may be the same without regard to case.
                let fresh = !inode.has(InodeFlags::CASEFOLD);
                let target = Target { number: inode.number(), time: node.modified, fresh };
                self.folders.insert(number, target);
                self.report.directories += 1;
            }
            HostBody::Read(_) | HostBody::Open(_) => {
                self.report.files += 1;
                self.report.bytes += size;
                if matches!(host_body, HostBody::Read(_)) {
                    events.advance(size)?;
                }
            }
            _ => self.report.others += 1,
        }
        Ok(())
    }

    /// Runs one operation, and has what got its place in it written.
    fn operation<T>(&mut self, f: impl FnOnce(&mut Files, &mut Placed) -> Result<T>) -> Result<T> {
        self.writer.operation_with(&mut self.placed, f)
    }
}

impl Files {
    /// Removes a file that has the name of a new one. Part of an operation.
    pub(super) fn make_way(&mut self, parent: InodeNo, name: &[u8]) -> Result<()> {
        let mut dir = self.get(parent)?;
        let Some(found) = self.directory(&mut dir).find(name)? else { return Ok(()) };
        if self.fs().inode(found.inode)?.is_dir() {
            let text = format!("{}: a directory has the name of a file", String::from_utf8_lossy(name));
            return Err(invalid(ErrorKind::IsADirectory, text));
        }
        self.remove_in(parent, name)
    }

    /// Gives a new file attributes. An access ACL gets the file's permission bits. Part of an operation; the caller stores the
    /// inode.
    pub fn put_xattrs(&mut self, inode: &mut Inode, list: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        if list.is_empty() {
            return Ok(());
        }
        let mut changes: Vec<_> = list.iter().map(|(name, value)| (&name[..], Some(&value[..]))).collect();
        let mut access = None;
        if let Some(change) = changes.iter_mut().find(|(name, _)| *name == b"system.posix_acl_access") {
            let seen = change.1.and_then(|seen| acl::change_seen_mode(seen, inode.mode()));
            let seen = seen.ok_or_else(|| invalid(ErrorKind::InvalidInput, "an ACL that makes no sense"))?;
            change.1 = Some(access.insert(seen));
        }
        self.inodes().attributes(inode).change(&changes)
    }
}

/// Gives contents that were read a place. Part of an operation.
fn place_read(files: &mut Files, placed: &mut Placed, inode: &mut Inode, at: usize, size: u64) -> Result<()> {
    if files.inodes().contents(inode).fits_inline(size)? {
        let bytes = placed.bytes(at, size).to_vec();
        return files.inodes().contents(inode).store_inline(&bytes);
    }
    let block = files.space().block_bytes();
    let cipher = cipher(files.fs(), inode)?;
    let mut runs = Vec::new();
    files.inodes().map(inode).fill(0, size.div_ceil(block), false, |run| runs.push(run))?;
    for run in runs {
        let piece = Piece {
            at: at + usize_of(run.logical * block),
            len: usize_of(run.len * block),
            to: files.fs().layout().offset(run.physical),
            cipher: cipher.clone().map(|cipher| (cipher, run.logical)),
        };
        placed.add(piece);
    }
    files.inodes().map(inode).set_size(size)
}

/// Gives contents that are still to be read a place, holes none, and has them copied there. Part of an
/// operation.
fn copy_source(
    files: &mut Files,
    placed: &mut Placed,
    inode: &mut Inode,
    source: &Arc<HostFile>,
    events: &dyn Events,
) -> Result<()> {
    let size = source.size();
    files.inodes().view(inode).check_size(size)?;
    if files.inodes().contents(inode).fits_inline(size)? {
        // Less than an inode.
        let mut bytes = vec![0; usize_of(size)];
        source.read_at(&mut bytes, 0)?;
        return files.inodes().contents(inode).store_inline(&bytes);
    }
    if copy_some(files, placed, inode, source, events, 0)? < size {
        return Err(TooLarge::error());
    }
    files.inodes().map(inode).set_size(size)
}

/// Copies a file from byte `at` on as far as the transaction has room. Returns the byte that it came to. The file's
/// size is left as it is.
fn copy_some(
    files: &mut Files,
    placed: &mut Placed,
    inode: &mut Inode,
    source: &Arc<HostFile>,
    events: &dyn Events,
    mut at: u64,
) -> Result<u64> {
    let size = source.size();
    let block = files.space().block_bytes();
    let cipher = cipher(files.fs(), inode)?;
    while let Some(data) = source.next_data(at)? {
        // Whole blocks; two ranges may share one.
        let first = (data.start / block).max(at / block);
        let end = data.end.min(size).div_ceil(block);
        if files.space().transaction().is_full() {
            return Ok(first * block);
        }
        let mut runs = Vec::new();
        let mut reached = end;
        if first < end {
            reached = files.inodes().map(inode).fill_some(first, end, false, |run| runs.push(run))?;
        }
        for run in runs {
            let (mut from, end) = (run.logical * block, run.end() * block);
            let mut to = files.fs().layout().offset(run.physical);
            while from < end {
                let len = (end - from).min(CHUNK);
                let cipher = cipher.clone().map(|cipher| (cipher, from / block));
                let piece = Piece { at: 0, len: usize_of(len), to, cipher };
                placed.copy(Write::Copy { source: source.clone(), from, piece })?;
                events.advance(len)?;
                from += len;
                to += len;
            }
        }
        if reached < end {
            return Ok(reached * block);
        }
        at = end * block;
        if at >= size {
            break;
        }
    }
    Ok(size)
}

/// An error of the file system about a file of the host, with its path.
fn from_source(path: &Path, error: Error) -> Error {
    match error.io_kind() {
        Some(
            ErrorKind::InvalidInput
            | ErrorKind::InvalidFilename
            | ErrorKind::StorageFull
            | ErrorKind::FileTooLarge,
        ) => error.within(path.display()),
        _ => error,
    }
}
