//! Copying a tree into a folder, level by level: all directories of a level are read in parallel, then all
//! their files are made in parallel, in pieces.
//!
//! Nothing is ever made by a path that could lead through a link: every folder is opened part by part from
//! the top, without following links, and every file is new.

use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use casemate_blockdev::os::FileExt;
use casemate_blockdev::{BlockDevice, Buffer, copy_data, set_len, u64_of, usize_of};
use casemate_providers::Work;
use casemate_trees::folder::{self as host, AsFd, BorrowedFd, OwnedFd, open_folder};
use casemate_trees::{Choice, join, split};

use crate::error::{Error, Place, Result, Structure};
use crate::format::inode::{FileType, Inode};
use crate::read::extract::{
    CHUNK, Entered, ExtractOptions, ExtractReport, FirstName, Folder, attributes, children, link_target,
    may_have_links,
};
use crate::read::fs::Ext4;
use crate::read::names::{Name, Names};
use crate::read::seen::SeenDirectories;
use crate::units::InodeNo;

/// Files from this size on are copied by all workers together, after the others of their level.
const LARGE: u64 = 32 << 20;

/// Large files that are open at once; more of one level are copied like small ones.
const MOST_LARGE: usize = 8;

/// Bytes of a large file that a worker copies at once.
const LARGE_PIECE: u64 = 8 << 20;

/// Names that a worker makes at once in one folder.
const NAMES: usize = 32;

/// Copies what is below `top` into `folder`, which is made if it is not there.
///
/// One file's failure keeps no other from being copied: it is in the report. A file that could not be read
/// whole is not left behind.
///
/// # Errors
/// When `folder` can't be used, or the copy was interrupted.
pub fn extract_to_folder(
    fs: &Ext4,
    top: &Inode,
    folder: &Path,
    options: &ExtractOptions<'_>,
    work: &Work<'_>,
) -> Result<ExtractReport> {
    let root = host::make_top(folder)?;
    let extract = Extract {
        fs,
        options,
        work,
        root: root.as_fd(),
        report: Mutex::default(),
        links: Mutex::default(),
        large: Mutex::default(),
    };
    extract.run(top)?;
    Ok(extract.report.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Restores what a file has beside its contents: owner (if `owners`), attributes (if `xattrs`), mode and times. Returns what could
/// not be restored, and restores the rest.
pub fn restore_file(
    fs: &Ext4,
    inode: &Inode,
    file: BorrowedFd<'_>,
    owners: bool,
    xattrs: bool,
) -> Vec<Error> {
    let (xattrs, node, failed) = attributes(fs, inode, xattrs);
    let xattrs = xattrs.iter().map(|xattr| (&xattr.name[..], &xattr.value[..]));
    let missing = host::restore(file, &node, xattrs, owners);
    failed.into_iter().chain(missing).collect()
}

struct Extract<'a> {
    fs: &'a Ext4,
    options: &'a ExtractOptions<'a>,
    work: &'a Work<'a>,
    root: BorrowedFd<'a>,
    report: Mutex<ExtractReport>,
    /// The first name of each inode that may have several.
    links: Mutex<HashMap<InodeNo, FirstName>>,
    /// Large files of this level, made and not filled yet.
    large: Mutex<Vec<Large>>,
}

struct Large {
    path: Vec<u8>,
    inode: Inode,
    file: OwnedFd,
    contents: Box<dyn BlockDevice>,
}

/// Entries of a directory of one level.
struct Listed {
    /// The directory's number in its level.
    number: usize,
    folders: Names,
    files: Names,
}

impl Extract<'_> {
    fn run(&self, top: &Inode) -> Result<()> {
        let mut seen = SeenDirectories::new();
        seen.enter(self.fs, b"", top)?;
        let mut folders: Vec<Arc<Folder>> = Vec::new();
        let mut level = vec![Folder::top(Entered { inode: top.number(), wanted: self.options.wants_top() })];
        // The inodes of directories on the way to something that is wanted.
        let mut ways = HashSet::new();
        while !level.is_empty() {
            let found = self.list(&level)?;
            let mut next = Vec::new();
            for Listed { number, folders, files } in &found {
                let above = &level[*number];
                let path = above.path();
                let is_wanted =
                    |name: &[u8]| self.options.choice(&path, name, true, above.wanted) == Choice::Wanted;
                if !files.is_empty() || folders.iter().any(|name| is_wanted(name.bytes)) {
                    self.make_way(above, &mut ways);
                }
                for name in folders.iter() {
                    let folder =
                        above.below(name.bytes, Entered { inode: name.inode, wanted: is_wanted(name.bytes) });
                    let path = join(&path, name.bytes);
                    let inode = self.fs.inode(name.inode);
                    match inode.and_then(|inode| seen.enter(self.fs, &path, &inode)) {
                        Ok(()) => next.push(folder),
                        Err(error) => self.fail(path, error, false),
                    }
                }
            }
            next.iter().filter(|folder| folder.wanted).for_each(|folder| self.make_folder(folder));
            self.make_files(&level, &found)?;
            self.fill_large()?;
            folders.append(&mut level);
            level = next;
        }
        // From the deepest up, so that nothing changes a folder's times, or needs to enter it, afterwards.
        for folder in folders.iter().rev() {
            if folder.wanted || folder.above().is_none() || ways.contains(&folder.inode) {
                self.finish_folder(folder);
            }
        }
        Ok(())
    }

    /// Reads all directories of a level.
    fn list(&self, level: &[Arc<Folder>]) -> Result<Vec<Listed>> {
        let found = Mutex::new(Vec::new());
        self.work.pool.run(
            u64_of(level.len()),
            || (),
            |(), number| {
                let number = usize_of(number);
                let path = level[number].path();
                match self.names(&path, &level[number]) {
                    Ok((folders, files)) => {
                        let listed = Listed { number, folders, files };
                        found.lock().unwrap_or_else(PoisonError::into_inner).push(listed);
                    }
                    Err(error) => self.fail(path, error, false),
                }
                // An empty piece of progress: whoever wants to stop may.
                self.work.events.advance(0)
            },
        )?;
        let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        found.sort_by_key(|listed| listed.number);
        Ok(found)
    }

    /// The directories and the files in a directory that are copied, or may lead to what is.
    fn names(&self, path: &[u8], folder: &Folder) -> Result<(Names, Names)> {
        let dir = self.fs.inode(folder.inode)?;
        let mut names = children(self.fs, &dir, |name, error| self.fail(join(path, name), error, false))?;
        // Where the entry tells the kind, files are left for later.
        let is_file = |name: &Name<'_>| name.kind.is_some_and(|kind| kind != FileType::Directory);
        let mut folders = HashSet::new();
        names.retain(|name| {
            let is_dir = match is_file(&name) {
                true => Ok(false),
                false => self.fs.inode(name.inode).map(|inode| inode.is_dir()),
            };
            let may_be_dir = *is_dir.as_ref().unwrap_or(&true);
            if self.options.choice(path, name.bytes, may_be_dir, folder.wanted) == Choice::LeftOut {
                return false;
            }
            match is_dir {
                Ok(is_dir) => {
                    if is_dir {
                        folders.insert(name.inode);
                    }
                    true
                }
                Err(error) => {
                    self.fail(join(path, name.bytes), error, false);
                    false
                }
            }
        });
        Ok(names.partition(|name| !is_file(&name) && folders.contains(&name.inode)))
    }

    /// Makes a folder and those above it, as far as they are not made.
    fn make_way(&self, folder: &Arc<Folder>, ways: &mut HashSet<InodeNo>) {
        let mut missing = Vec::new();
        let mut folder = Some(folder);
        while let Some(here) = folder.filter(|here| !here.wanted && ways.insert(here.inode)) {
            missing.push(here);
            folder = here.above();
        }
        missing.iter().rev().filter(|here| here.above().is_some()).for_each(|here| self.make_folder(here));
    }

    fn make_folder(&self, folder: &Folder) {
        let path = folder.path();
        let (parent, name) = split(&path);
        let made =
            open_folder(self.root, parent).and_then(|parent| match host::make_folder(parent.as_fd(), name) {
                Err(_) if self.options.overwrite => {
                    self.make_room(parent.as_fd(), name)?;
                    host::make_folder(parent.as_fd(), name)
                }
                made => made,
            });
        if let Err(error) = made {
            self.fail(path, error, false);
        }
    }

    /// Takes away what is there under the name of a file that is about to be made.
    fn make_room(&self, parent: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
        if !self.options.overwrite {
            return Ok(());
        }
        if let Some(found) = host::identity(parent, name)?
            && self.options.kept.contains(&found)
        {
            let text = "the host's file is read by this command, and was not replaced";
            return Err(Error::path(ErrorKind::InvalidInput, text));
        }
        match host::remove(parent, name) {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    fn make_files(&self, level: &[Arc<Folder>], found: &[Listed]) -> Result<()> {
        let pieces: Vec<(&Listed, usize)> = found
            .iter()
            .flat_map(|listed| (0..listed.files.len()).step_by(NAMES).map(move |first| (listed, first)))
            .collect();
        let buffer = || Buffer::new(usize_of(CHUNK));
        self.work.pool.run(u64_of(pieces.len()), buffer, |buffer, piece| {
            let (listed, first) = pieces[usize_of(piece)];
            let folder = &level[listed.number];
            let path = folder.path();
            let parent = match open_folder(self.root, &path) {
                Ok(parent) => parent,
                Err(error) => {
                    self.fail(path, error, false);
                    return Ok(());
                }
            };
            for name in (first..first + NAMES).map_while(|index| listed.files.get(index)) {
                let path = join(&path, name.bytes);
                let made = self
                    .fs
                    .inode(name.inode)
                    .and_then(|inode| self.make(parent.as_fd(), folder, name.bytes, &path, &inode, buffer));
                match made {
                    Err(error) if error.is_interrupt() => return Err(error),
                    Err(error) => self.fail(path, error, false),
                    Ok(()) => {}
                }
            }
            Ok(())
        })?;
        Ok(())
    }

    fn make(
        &self,
        parent: BorrowedFd<'_>,
        folder: &Arc<Folder>,
        name: &[u8],
        path: &[u8],
        inode: &Inode,
        buffer: &mut [u8],
    ) -> Result<()> {
        if may_have_links(inode) {
            let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((folder, old)) = links.get(&inode.number()) {
                self.make_room(parent, name)?;
                let from = open_folder(self.root, &folder.path())?;
                return host::make_link(from.as_fd(), old, parent, name);
            }
            // Still under the lock: whoever comes next must find the file that this one makes.
            let made = self.make_first(parent, name, path, inode)?;
            links.insert(inode.number(), (folder.clone(), name.into()));
            drop(links);
            return self.fill(made, parent, name, path, inode, buffer);
        }
        let made = self.make_first(parent, name, path, inode)?;
        self.fill(made, parent, name, path, inode, buffer)
    }

    /// Makes a file that has no other name yet; a regular one is open and empty then.
    fn make_first(
        &self,
        parent: BorrowedFd<'_>,
        name: &[u8],
        path: &[u8],
        inode: &Inode,
    ) -> Result<Option<(OwnedFd, Box<dyn BlockDevice>)>> {
        match inode.kind() {
            FileType::Regular => {
                let contents = self.options.open(self.fs, inode)?;
                self.make_room(parent, name)?;
                return Ok(Some((host::make_file(parent, name)?, contents)));
            }
            FileType::Directory => {
                let place = Place::inode(Structure::Directory, inode.number());
                return Err(place.malformed("has a name that says it is not a directory"));
            }
            FileType::Symlink => {
                let target = link_target(self.fs, inode)?;
                self.make_room(parent, name)?;
                host::make_symlink(&target, parent, name)?;
            }
            _ => {
                self.make_room(parent, name)?;
                host::make_special(&inode.node(), parent, name)?;
            }
        }
        let (xattrs, node, failed) = attributes(self.fs, inode, self.options.xattrs);
        let xattrs = xattrs.iter().map(|xattr| (&xattr.name[..], &xattr.value[..]));
        let missing = host::restore_at(parent, name, &node, xattrs, self.options.owners)?;
        for error in failed.into_iter().chain(missing) {
            self.fail(path.to_vec(), error, true);
        }
        self.count(|report| report.others += 1);
        Ok(None)
    }

    fn fill(
        &self,
        made: Option<(OwnedFd, Box<dyn BlockDevice>)>,
        parent: BorrowedFd<'_>,
        name: &[u8],
        path: &[u8],
        inode: &Inode,
        buffer: &mut [u8],
    ) -> Result<()> {
        let Some((file, contents)) = made else { return Ok(()) };
        if contents.size() >= LARGE {
            let mut large = self.large.lock().unwrap_or_else(PoisonError::into_inner);
            if large.len() < MOST_LARGE {
                large.push(Large { path: path.to_vec(), inode: inode.clone(), file, contents });
                return Ok(());
            }
        }
        let file = std::fs::File::from(file);
        let size = contents.size();
        let copied = self.copy(&*contents, &file, 0..size, buffer).and_then(|end| match end {
            // What was written reaches the end by itself, unless there is a hole.
            end if end < size => Ok(set_len(&file, size)?),
            _ => Ok(()),
        });
        if let Err(error) = copied {
            let _ = host::remove(parent, name);
            return Err(error);
        }
        self.finish_file(file.as_fd(), path, inode);
        Ok(())
    }

    /// Fills the large files of a level, each by all workers.
    fn fill_large(&self) -> Result<()> {
        let large = std::mem::take(&mut *self.large.lock().unwrap_or_else(PoisonError::into_inner));
        for Large { path, inode, file, contents } in large {
            let file = std::fs::File::from(file);
            let size = contents.size();
            let buffer = || Buffer::new(usize_of(CHUNK));
            let copied = set_len(&file, size).map_err(Error::from).and_then(|()| {
                self.work.pool.run(size.div_ceil(LARGE_PIECE), buffer, |buffer, piece| {
                    let start = piece * LARGE_PIECE;
                    self.copy(&*contents, &file, start..(start + LARGE_PIECE).min(size), buffer).map(|_| ())
                })
            });
            match copied {
                Ok(()) => self.finish_file(file.as_fd(), &path, &inode),
                Err(error) => {
                    let (folder, name) = split(&path);
                    let _ = open_folder(self.root, folder).and_then(|at| host::remove(at.as_fd(), name));
                    if error.is_interrupt() {
                        return Err(error);
                    }
                    self.fail(path, error, false);
                }
            }
        }
        Ok(())
    }

    /// Copies what is data in a range. Where the last of it ends.
    fn copy(
        &self,
        from: &dyn BlockDevice,
        to: &std::fs::File,
        range: std::ops::Range<u64>,
        buffer: &mut [u8],
    ) -> Result<u64> {
        let mut bytes = 0;
        let end = copy_data(from, range, buffer, Error::from, |data, at| -> Result<()> {
            to.write_all_at(data, at)?;
            self.work.events.advance(u64_of(data.len()))?;
            bytes += u64_of(data.len());
            Ok(())
        })?;
        self.count(|report| report.bytes += bytes);
        Ok(end)
    }

    fn finish_file(&self, file: BorrowedFd<'_>, path: &[u8], inode: &Inode) {
        self.restore(file, path, inode);
        self.count(|report| report.files += 1);
    }

    fn finish_folder(&self, folder: &Folder) {
        let path = folder.path();
        let opened = open_folder(self.root, &path).and_then(|at| Ok((at, self.fs.inode(folder.inode)?)));
        match opened {
            Ok((at, inode)) => {
                self.restore(at.as_fd(), &path, &inode);
                self.count(|report| report.directories += 1);
            }
            Err(error) => self.fail(path, error, false),
        }
    }

    fn restore(&self, file: BorrowedFd<'_>, path: &[u8], inode: &Inode) {
        for error in restore_file(self.fs, inode, file, self.options.owners, self.options.xattrs) {
            self.fail(path.to_vec(), error, true);
        }
    }

    fn fail(&self, path: Vec<u8>, error: Error, partial: bool) {
        self.count(|report| report.fail(path, error, partial));
    }

    fn count(&self, f: impl FnOnce(&mut ExtractReport)) {
        f(&mut self.report.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
