//! Copying trees out of an image: into a folder, or into a tar stream.

mod folder;
mod tar;

use std::fmt;
use std::sync::Arc;

use casemate_blockdev::{BlockDevice, FileId};
use casemate_trees::{Choice, Node, Selection, Trail, join};

use crate::error::{Error, Place, Result, Structure};
use crate::format::inode::{FileType, Inode};
use crate::read::fs::Ext4;
use crate::read::names::{Name, Names};
use crate::read::xattr::Xattr;
use crate::units::InodeNo;

pub use casemate_trees::tar::Record;
pub use folder::{extract_to_folder, restore_file};
pub use tar::extract_to_tar;

/// How trees are copied out.
pub struct ExtractOptions<'a> {
    /// Whether owners are restored; only root can in a folder.
    pub owners: bool,
    /// Whether extended attributes are restored.
    pub xattrs: bool,
    /// Whether what is there already under the name of a file, a folder aside, gives way to it; without, it stays, and the
    /// file is a failure.
    pub overwrite: bool,
    /// Files of the host that are never replaced: those that the image is read from.
    pub kept: &'a [FileId],
    /// Selection of the files to copy; all if `None`.
    pub selection: Option<&'a Selection>,
    /// Reader of the contents of files.
    pub contents: &'a dyn Contents,
}

/// Opens the contents of regular files; where to put checks between an image and what is taken out of it.
pub trait Contents: Sync {
    /// The contents of `inode`. What can't be vouched for must fail when it is read, or here.
    ///
    /// # Errors
    /// Why this file can't be copied.
    fn open(&self, fs: &Ext4, inode: &Inode) -> Result<Box<dyn BlockDevice>>;

    /// Records of the pax format that `inode`'s member of a tar stream gets beside its own.
    ///
    /// # Errors
    /// Why there are none; the file is copied nevertheless.
    fn records(&self, _fs: &Ext4, _inode: &Inode) -> Result<Vec<Record>> {
        Ok(Vec::new())
    }
}

/// Contents as [`Ext4::open_file`] has them.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlainContents;

impl Contents for PlainContents {
    fn open(&self, fs: &Ext4, inode: &Inode) -> Result<Box<dyn BlockDevice>> {
        Ok(Box::new(fs.open_file(inode)?))
    }
}

impl ExtractOptions<'_> {
    /// The choice for a name in a folder; `within` is true if the folder is wanted.
    fn choice(&self, folder: &[u8], name: &[u8], is_dir: bool, within: bool) -> Choice {
        match self.selection {
            Some(selection) => selection.choice(&join(folder, name), is_dir, within),
            None => Choice::Wanted,
        }
    }

    /// The contents of a file, all of which must be there.
    fn open(&self, fs: &Ext4, inode: &Inode) -> Result<Box<dyn BlockDevice>> {
        fs.require_present(inode)?;
        self.contents.open(fs, inode)
    }

    /// Whether the top directory is wanted, not only what patterns find in it.
    fn wants_top(&self) -> bool {
        self.selection.is_none_or(|selection| selection.include.is_empty())
    }
}

/// Counts of copied files, and failures.
#[derive(Debug, Default)]
pub struct ExtractReport {
    /// Regular files.
    pub files: u64,
    /// Directories, the top one among them.
    pub directories: u64,
    /// Everything else: links, device nodes.
    pub others: u64,
    /// Bytes of file contents, holes not counted.
    pub bytes: u64,
    /// Files that could not be copied or restored, in no certain order.
    pub failures: Vec<Failure>,
    /// Failures beyond those listed: a list has an end, damage may have none.
    pub failures_left_out: u64,
    /// Bytes of the failures' paths.
    failure_bytes: usize,
}

/// Something that could not be copied, or not wholly.
#[derive(Debug)]
pub struct Failure {
    /// The path in the image.
    pub path: Vec<u8>,
    /// Why.
    pub error: Error,
    /// Whether the file is there, and only this or that attribute of it is missing.
    pub partial: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}: {}", String::from_utf8_lossy(&self.path), self.error)
    }
}

/// Bytes that are read and written at once.
const CHUNK: u64 = 1 << 20;

/// Failures that are kept in a report, and bytes of their paths.
const MOST_FAILURES: usize = 10_000;
const MOST_FAILURE_BYTES: usize = 4 << 20;

impl ExtractReport {
    fn fail(&mut self, path: Vec<u8>, error: Error, partial: bool) {
        if self.failures.len() < MOST_FAILURES && self.failure_bytes < MOST_FAILURE_BYTES {
            self.failure_bytes += path.len();
            self.failures.push(Failure { path, error, partial });
        } else {
            self.failures_left_out += 1;
        }
    }
}

/// A directory of the tree.
type Folder = Trail<Entered>;

#[derive(Debug)]
struct Entered {
    inode: InodeNo,
    /// Whether the directory is wanted, or only what is found in it: then it is made when that is.
    wanted: bool,
}

/// A name in a directory, for when it is needed again.
type FirstName = (Arc<Folder>, Box<[u8]>);

/// A directory's names, where those that stand for others are no copy of the directory.
fn children(fs: &Ext4, dir: &Inode, fail: impl FnMut(&[u8], Error)) -> Result<Names> {
    fs.require_key(dir)?;
    accepted_names(fs, dir, fail)
}

/// A directory's names in the order of their bytes. Inodes are read when their turn comes: many names may stand
/// for one large inode.
///
/// A name that is there several times is left out and told to `fail`: whoever unpacks a link, and then a folder of the
/// same name, could be led anywhere.
pub(crate) fn accepted_names(fs: &Ext4, dir: &Inode, mut fail: impl FnMut(&[u8], Error)) -> Result<Names> {
    let mut names = fs.names(dir)?;
    let place = Place::inode(Structure::Directory, dir.number());
    names.drop_repeated(|name, times| fail(name, place.malformed(format!("has this name {times} times"))));
    Ok(names)
}

/// The target of a symbolic link, and nothing that only stands for it.
fn link_target(fs: &Ext4, inode: &Inode) -> Result<Vec<u8>> {
    fs.require_key(inode)?;
    fs.symlink_target(inode)
}

/// Attributes that a file outside gets, if they are wanted, and the rest that it has beside its contents. Without its ACL, also where that can't
/// be read, the group has no bits that the ACL did not give it.
fn attributes(fs: &Ext4, inode: &Inode, are_wanted: bool) -> (Vec<Xattr>, Node, Option<Error>) {
    let node = inode.node();
    let limited = |mode| Node { mode, ..node };
    if inode.kind() == FileType::Symlink && !are_wanted {
        return (Vec::new(), node, None);
    }
    let without = || fs.mode_without_acl(inode);
    let found = match are_wanted {
        true => fs.xattrs(inode).map(|list| (list, node)),
        false => without().map(|mode| (Vec::new(), limited(mode))),
    };
    match found {
        Ok((list, node)) => (list, node, None),
        Err(error) => (Vec::new(), limited(without().unwrap_or(node.mode & !0o070)), Some(error)),
    }
}

/// Whether an inode is what its name says: nothing that another name calls a file is gone through.
pub(crate) fn is_of_its_kind(name: &Name<'_>, inode: &Inode) -> bool {
    !inode.is_dir() || name.kind.is_none_or(|kind| kind == FileType::Directory)
}

/// Whether a file can have names elsewhere in the tree.
fn may_have_links(inode: &Inode) -> bool {
    inode.links() > 1 && inode.kind() != FileType::Directory
}
