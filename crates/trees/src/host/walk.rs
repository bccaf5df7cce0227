//! The order in which a tree is copied.

use std::collections::VecDeque;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use casemate_blockdev::os::OsStrExt;

use super::{Folder, Name, NameKind};
use crate::Result;
use crate::system::HostType;

/// Names that are read together: of 8 to 64 about the best, when copied from memory to memory.
const NAMES: usize = 16;

/// The way through a tree of the host: all that is in a folder, then what is in its folders, one after the other.
#[derive(Debug)]
pub struct Walk {
    /// Folders whose turn comes, the next one last.
    open: Vec<(PathBuf, usize)>,
    /// The folder that it is in, and what is left of it.
    now: Option<(Arc<Folder>, VecDeque<Name>)>,
    /// Folders that have a number.
    folders: usize,
    /// Parts that it gave out.
    parts: u64,
}

/// Some names of a folder, which are read together.
#[derive(Debug)]
pub struct Part {
    pub(super) folder: Arc<Folder>,
    pub(super) names: Vec<Name>,
    /// Whether they are the folder's last ones.
    pub(super) ends: bool,
}

impl Walk {
    /// The way through all that is in the folder at this path, which has the number 0.
    pub fn within(path: PathBuf) -> Walk {
        Walk { open: vec![(path, 0)], now: None, folders: 1, parts: 0 }
    }

    /// The way to the file of this name and kind in a folder, which has the number 0, and through it.
    ///
    /// # Errors
    /// `InvalidInput` for a name with a NUL.
    pub fn to(folder: Folder, name: &Path, kind: std::fs::FileType) -> Result<Walk> {
        let name = CString::new(name.as_os_str().as_bytes()).map_err(std::io::Error::from)?;
        let mut walk = Walk { open: Vec::new(), now: None, folders: 1, parts: 0 };
        let path = folder.join(&name);
        let name = walk.name(name, host_type(kind));
        if let NameKind::Folder(number) = name.kind {
            walk.open.push((path, number));
        }
        walk.now = Some((Arc::new(folder), VecDeque::from([name])));
        Ok(walk)
    }

    /// The number of parts that were given out.
    pub fn parts(&self) -> u64 {
        self.parts
    }

    fn enter(&mut self, path: PathBuf, number: usize) -> Result<(Arc<Folder>, VecDeque<Name>)> {
        let folder = Folder::open(&path, number)?;
        let names = folder.list()?;
        let names: VecDeque<_> = names.into_iter().map(|(name, kind)| self.name(name, kind)).collect();
        let below = names.iter().rev().filter_map(|name| match name.kind {
            NameKind::Folder(number) => Some((folder.join(&name.name), number)),
            _ => None,
        });
        self.open.extend(below);
        Ok((Arc::new(folder), names))
    }

    fn name(&mut self, name: CString, kind: HostType) -> Name {
        let kind = match kind {
            HostType::RegularFile => NameKind::File,
            HostType::Directory => {
                self.folders += 1;
                NameKind::Folder(self.folders - 1)
            }
            _ => NameKind::Other,
        };
        Name { name, kind }
    }
}

impl Iterator for Walk {
    type Item = Result<Part>;

    /// The next part, or the error of a folder that can't be read, after which nothing comes.
    fn next(&mut self) -> Option<Result<Part>> {
        if self.now.is_none() {
            let (path, number) = self.open.pop()?;
            match self.enter(path, number) {
                Ok(now) => self.now = Some(now),
                Err(error) => {
                    self.open.clear();
                    self.parts += 1;
                    return Some(Err(error));
                }
            }
        }
        let (folder, left) = self.now.as_mut()?;
        let names = left.drain(..left.len().min(NAMES)).collect();
        let part = Part { folder: folder.clone(), names, ends: left.is_empty() };
        self.parts += 1;
        if part.ends {
            self.now = None;
        }
        Some(Ok(part))
    }
}

/// As far as a name's kind depends on it.
fn host_type(kind: std::fs::FileType) -> HostType {
    match () {
        () if kind.is_dir() => HostType::Directory,
        () if kind.is_file() => HostType::RegularFile,
        () => HostType::Unknown,
    }
}
