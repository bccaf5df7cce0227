//! A walk over all that is below a path of an image.

use std::ffi::OsString;

use casemate::Error;
use casemate::blockdev::os::{OsStrExt, OsStringExt};
use casemate::ext4::{FileSystem, Inode, IntoNames, SeenDirectories};

use super::entry::join;

/// Step of a walk.
pub enum Step<'a> {
    /// A file, or a directory before what is in it.
    Found(&'a [u8], &'a Inode),
    /// A directory that was gone into, after what is in it; also one that could not be read.
    Left(&'a [u8]),
    /// A path that can't be read, and is passed over.
    Failed(Error),
}

/// A directory whose names are being walked.
struct Level {
    path: Vec<u8>,
    /// Names that are still to be walked.
    rest: IntoNames,
}

/// Calls `see` with each path, the root directory if there is none, and with all that is below it, names in the order of
/// their bytes. Of a directory that is found `see` says whether to go into it; it is told how deep it is, the path itself
/// being at 0. Links are not followed.
///
/// # Errors
/// Errors of `see`.
pub fn walk(
    fs: &FileSystem,
    paths: &[OsString],
    mut see: impl FnMut(Step<'_>, usize) -> Result<bool, Error>,
) -> Result<(), Error> {
    let default = [OsString::from("/")];
    for path in if paths.is_empty() { &default } else { paths } {
        match fs.symlink_metadata(path) {
            Ok(inode) => walk_one(fs, path.as_bytes(), inode, &mut see)?,
            Err(error) => {
                see(Step::Failed(error), 0)?;
            }
        }
    }
    Ok(())
}

fn walk_one(
    fs: &FileSystem,
    top: &[u8],
    inode: Inode,
    see: &mut impl FnMut(Step<'_>, usize) -> Result<bool, Error>,
) -> Result<(), Error> {
    let failed = |path: &[u8], error| Step::Failed(fs.error(OsString::from_vec(path.to_vec()), error));
    let mut seen = SeenDirectories::new();
    // With a stack of its own: an image may nest deeper than ours is.
    let mut levels: Vec<Level> = Vec::new();
    let mut now = Some((top.to_vec(), inode));
    loop {
        let depth = levels.len();
        if let Some((path, inode)) = now.take() {
            if see(Step::Found(&path, &inode), depth)? && inode.is_dir() {
                match seen.enter(fs.inodes(), &path, &inode).and_then(|()| fs.inodes().names(&inode)) {
                    Ok(names) => {
                        if let Err(error) = names.check_dots(&inode) {
                            see(failed(&path, error), depth)?;
                        }
                        levels.push(Level { path, rest: names.into_iter() });
                    }
                    Err(error) => {
                        see(failed(&path, error), depth)?;
                        see(Step::Left(&path), depth)?;
                    }
                }
            }
            continue;
        }
        let Some(level) = levels.last_mut() else { return Ok(()) };
        match level.rest.next() {
            Some(entry) => {
                let path = join(&level.path, &entry.name);
                match fs.inodes().inode(entry.inode) {
                    Ok(inode) => now = Some((path, inode)),
                    Err(error) => {
                        see(failed(&path, error), depth)?;
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
