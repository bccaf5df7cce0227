//! A walk over all that is below a path of an image.

use casemate::Error;
use casemate::ext4::{Ext4, Inode, IntoNames, SeenDirectories};

use super::entry::join;

/// What a walk has come to.
pub enum Step<'a> {
    /// A file, or a directory before what is in it.
    Found(&'a [u8], &'a Inode),
    /// A directory after what is in it.
    Left(&'a [u8]),
    /// What can't be read, and is passed over.
    Failed(Error),
}

/// A directory whose names are being walked.
struct Level {
    path: Vec<u8>,
    /// What is still to come.
    rest: IntoNames,
}

/// Calls `see` with a path and, if it is a directory, with all that is below it, names in the order of their bytes. Of a
/// directory that is found `see` says whether to go into it; it is told how deep it is, the path itself being at 0.
///
/// # Errors
/// Those of `see`.
pub fn walk(
    fs: &Ext4,
    top: &[u8],
    inode: Inode,
    mut see: impl FnMut(Step<'_>, usize) -> Result<bool, Error>,
) -> Result<(), Error> {
    let mut seen = SeenDirectories::new();
    // With a stack of its own: an image may nest deeper than ours is.
    let mut levels: Vec<Level> = Vec::new();
    let mut now = Some((top.to_vec(), inode));
    loop {
        let depth = levels.len();
        if let Some((path, inode)) = now.take() {
            if see(Step::Found(&path, &inode), depth)? && inode.is_dir() {
                match seen.enter(fs, &path, &inode).and_then(|()| fs.names(&inode)) {
                    Ok(names) => levels.push(Level { path, rest: names.into_iter() }),
                    Err(error) => {
                        see(Step::Failed(error.at(String::from_utf8_lossy(&path))), depth)?;
                    }
                }
            }
            continue;
        }
        let Some(level) = levels.last_mut() else { return Ok(()) };
        match level.rest.next() {
            Some(entry) => {
                let path = join(&level.path, &entry.name);
                match fs.inode(entry.inode) {
                    Ok(inode) => now = Some((path, inode)),
                    Err(error) => {
                        see(Step::Failed(error.at(String::from_utf8_lossy(&path))), depth)?;
                    }
                }
            }
            None => {
                see(Step::Left(&level.path), depth - 1)?;
                levels.pop();
            }
        }
    }
}
