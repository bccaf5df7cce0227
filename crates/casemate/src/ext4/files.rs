//! All files below a directory with their contents, batch by batch.

use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use casemate_ext4::{DirEntry, FileType, InodeNo, SeenDirectories};
use casemate_providers::Work;
use casemate_trees::Trail;

use super::bulk::{Buffers, Handful, Planned, of_one};
use super::file_system::MOST_READ;
use super::{FileSystem, Inode};
use crate::Error;

/// Bytes of files that are handed out at once: the last one may pass them. Of 2 to 8 MiB each is as good (70 to 80 ms for 60,000
/// files from Python, two threads, Zen 5): with more, contents leave the cache before they are used (94 ms with 32 MiB).
const BATCH: u64 = 4 << 20;

/// Names that are handed out at once.
const MOST_NAMES: usize = 1 << 14;

/// A directory that [`Files`] goes through, with its inode.
pub type Folder = Trail<InodeNo>;

/// A name that [`Files`] has found: that of a regular file, or of a directory that could not be read.
#[derive(Clone, Debug)]
pub struct Found {
    /// The directory that has the name.
    pub folder: Arc<Folder>,
    /// The name; empty for the directory where the walk began.
    pub name: Vec<u8>,
    /// The inode of the name.
    pub inode: InodeNo,
}

impl Found {
    /// The path from where the walk began.
    pub fn path(&self) -> Vec<u8> {
        let mut path = self.folder.path();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(&self.name);
        path
    }
}

/// Files that were found, how each is read, and directories that could not be.
#[derive(Default)]
struct Batch {
    found: Vec<Found>,
    planned: Vec<Planned>,
    failed: Vec<(usize, Error)>,
}

/// Goes through directories, each once, as [`SeenDirectories`] has it.
struct Walk {
    fs: FileSystem,
    seen: SeenDirectories,
    waiting: Vec<Arc<Folder>>,
    /// Names of a directory that are still to be read.
    names: Option<(Arc<Folder>, std::vec::IntoIter<DirEntry>)>,
}

/// All regular files below a directory with their contents, batch by batch; links are not followed.
///
/// Files come in the order in which their directories have them, those of a directory before those of the ones in it. While a
/// batch is read it is found out what the next one is. Memory is bounded: a batch has some MiB, or one file more.
pub struct Files {
    walk: Walk,
    /// Batch that was found while the one before was read.
    ahead: Option<Batch>,
    buffers: Buffers,
}

impl FileSystem {
    /// All files below a directory, for who reads all of them: small ones that lie side by side come with one read of the device,
    /// and all threads read.
    ///
    /// # Errors
    /// `Io` with `NotADirectory`.
    pub fn files(&self, top: &Inode) -> Result<Files, Error> {
        if !top.is_dir() {
            let text = format!("inode {} is not a directory", top.number());
            return Err(Error::path(ErrorKind::NotADirectory, text).at(self.name()));
        }
        let top = Folder::top(top.number());
        let (fs, seen) = (self.clone(), SeenDirectories::new());
        let walk = Walk { fs, seen, waiting: vec![top], names: None };
        Ok(Files { walk, ahead: None, buffers: Buffers::default() })
    }
}

impl Files {
    /// Reads the next files, and says whether there were any. Their contents, or what kept each from being read, come on the
    /// thread that called, in handfuls and in any order, each with its place in the list of what was found; a directory that
    /// can't be read is in it too.
    ///
    /// # Errors
    /// Errors of `results`, or of the listener, which end the work.
    pub fn read(
        &mut self,
        work: &Work<'_>,
        mut results: impl FnMut(&[Found], Handful<'_>) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        let batch = self.ahead.take().map_or_else(|| self.walk.batch(work), Ok)?;
        let Batch { found, planned, failed } = batch;
        if found.is_empty() {
            return Ok(false);
        }
        results(&found, failed.into_iter().map(|(index, error)| (index, Err(error))).collect())?;
        let fs = self.walk.fs.clone();
        let next = Mutex::new((&mut self.walk, None));
        let next = || next.lock().unwrap_or_else(PoisonError::into_inner);
        let walk = || {
            let (walk, ahead) = &mut *next();
            *ahead = Some(walk.batch(work)?);
            Ok(())
        };
        fs.read_planned(planned, work, &self.buffers, &walk, |handful| results(&found, handful))?;
        self.ahead = next().1.take();
        Ok(true)
    }
}

impl Walk {
    /// The next files.
    fn batch(&mut self, work: &Work<'_>) -> Result<Batch, Error> {
        let mut batch = Batch::default();
        let mut bytes = 0;
        while bytes < BATCH && batch.found.len() < MOST_NAMES {
            let Some((folder, names)) = &mut self.names else {
                match self.waiting.pop() {
                    None => break,
                    Some(folder) => self.enter(&folder, &mut batch)?,
                }
                work.events.advance(0)?;
                continue;
            };
            let Some(DirEntry { inode, name, .. }) = names.next() else {
                self.names = None;
                continue;
            };
            let planned = self.fs.plan(batch.found.len(), inode)?;
            // What is too large is not read.
            bytes += if planned.size > MOST_READ { 0 } else { planned.size };
            batch.planned.push(planned);
            batch.found.push(Found { folder: folder.clone(), name, inode });
        }
        Ok(batch)
    }

    /// Reads the names of a directory, as far as they can be read.
    fn enter(&mut self, folder: &Arc<Folder>, batch: &mut Batch) -> Result<(), Error> {
        let (mut files, first) = (Vec::new(), self.waiting.len());
        let mut names = |inode: &Inode| {
            let fs = self.fs.inodes();
            self.seen.enter(fs, &folder.path(), inode)?;
            fs.for_each_entry(inode, |entry| {
                if matches!(&*entry.name, b"." | b"..") {
                    return Ok(ControlFlow::Continue(()));
                }
                let kind = || fs.inode(entry.inode).ok().map(|inode| inode.kind());
                match entry.kind.or_else(kind) {
                    Some(FileType::Directory) => {
                        self.waiting.push(folder.below(&entry.name, entry.inode));
                    }
                    // One whose inode can't be read is told as a file.
                    Some(FileType::Regular) | None => files.push(entry),
                    Some(_) => {}
                }
                Ok(ControlFlow::Continue(()))
            })
        };
        let number = ***folder;
        let inode = self.fs.inode(number);
        let read = inode.and_then(|inode| names(&inode).map_err(|error| self.fs.about(number, error)));
        self.waiting[first..].reverse();
        self.names = Some((folder.clone(), files.into_iter()));
        if let Err(error) = of_one(read)? {
            let above = folder.above().unwrap_or(folder);
            batch.failed.push((batch.found.len(), error));
            batch.found.push(Found { folder: above.clone(), name: folder.name().to_vec(), inode: number });
        }
        Ok(())
    }
}
