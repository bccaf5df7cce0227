//! Copying trees out of an image: into a folder, or into a tar stream.

mod folder;
mod tar;

use std::fmt;

use casemate_blockdev::BlockDevice;

use crate::error::{Error, Place, Result, Structure};
use crate::format::inode::{FileType, Inode};
use crate::read::dir::DirEntry;
use crate::read::fs::Ext4;

pub use casemate_trees::tar::Record;
pub use folder::extract_to_folder;
pub use tar::extract_to_tar;

/// How trees are copied out.
pub struct ExtractOptions<'a> {
    /// Whether owners are restored; only root can in a folder.
    pub owners: bool,
    /// Whether extended attributes are restored.
    pub xattrs: bool,
    /// Who opens the contents of files.
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

/// What was copied, and what was not.
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
    /// What could not be copied or restored, in no certain order.
    pub failures: Vec<Failure>,
    /// Failures beyond those listed: a list has an end, damage may have none.
    pub failures_left_out: u64,
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

/// Failures that are kept in a report.
const MOST_FAILURES: usize = 10_000;

impl ExtractReport {
    fn fail(&mut self, path: Vec<u8>, error: Error, partial: bool) {
        if self.failures.len() < MOST_FAILURES {
            self.failures.push(Failure { path, error, partial });
        } else {
            self.failures_left_out += 1;
        }
    }
}

/// A directory's names in the order of their bytes. Inodes are read when their turn comes: many names may stand
/// for one large inode.
///
/// A name that is there several times is left out and told to `fail`: whoever unpacks a link, and then a folder of the
/// same name, could be led anywhere.
fn children(fs: &Ext4, dir: &Inode, mut fail: impl FnMut(&[u8], Error)) -> Result<Vec<DirEntry>> {
    // Names that stand for others are no copy of the directory.
    fs.require_key(dir)?;
    let mut entries = fs.read_dir(dir)?;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let place = Place::inode(Structure::Directory, dir.number());
    let mut unique = Vec::new();
    for same in entries.chunk_by(|a, b| a.name == b.name) {
        unique.resize(unique.len() + same.len(), same.len() == 1);
        if same.len() > 1 {
            fail(&same[0].name, place.malformed(format!("has this name {} times", same.len())));
        }
    }
    let mut unique = unique.into_iter();
    entries.retain(|_| unique.next() == Some(true));
    Ok(entries)
}

/// The target of a symbolic link, and nothing that only stands for it.
fn link_target(fs: &Ext4, inode: &Inode) -> Result<Vec<u8>> {
    fs.require_key(inode)?;
    fs.symlink_target(inode)
}

/// Whether a file can have names elsewhere in the tree.
fn may_have_links(inode: &Inode) -> bool {
    inode.links() > 1 && inode.kind() != FileType::Directory
}
