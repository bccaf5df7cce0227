//! From a path to an inode.

use std::io::ErrorKind;

use crate::error::{Error, Result};
use crate::format::inode::{FileType, Inode};
use crate::read::fs::Ext4;

/// Symbolic links that a path may lead through, as in the kernel.
const MOST_LINKS: u32 = 40;

/// Bytes of a name at most.
pub(crate) const LONGEST_NAME: usize = 255;

impl Ext4 {
    /// The inode that a path leads to, symbolic links on the way included, and one at its end if `follow`.
    ///
    /// The path starts at the root of the file system whether it begins with a slash or not; so do absolute
    /// targets of links. ".." above the root stays there. What a slash is behind is a directory, or a link to one.
    ///
    /// # Errors
    /// `Io` with `NotFound`, `NotADirectory` or `InvalidFilename`, or when links lead in a circle.
    pub fn resolve(&self, path: &[u8], follow: bool) -> Result<Inode> {
        self.resolve_from(self.root()?, path, follow)
    }

    /// The inode that a path leads to from a directory. Absolute targets of links begin at the root.
    ///
    /// # Errors
    /// Errors of [`Ext4::resolve`].
    pub fn resolve_from(&self, directory: Inode, path: &[u8], follow: bool) -> Result<Inode> {
        let shown = || String::from_utf8_lossy(path).into_owned();
        let mut links = MOST_LINKS;
        let mut inode = directory;
        // What is left of the path, last part first.
        let mut parts = parts(path);
        while let Some(part) = parts.pop() {
            if !inode.is_dir() {
                return Err(Error::path(ErrorKind::NotADirectory, format!("{}: not a directory", shown())));
            }
            if part == b"." {
                continue;
            }
            if part.len() > LONGEST_NAME {
                let text = format!("{}: a name has 1 to {LONGEST_NAME} bytes", shown());
                return Err(Error::path(ErrorKind::InvalidFilename, text));
            }
            let Some(number) = self.lookup(&inode, &part)? else {
                return Err(Error::path(ErrorKind::NotFound, format!("{}: no such file", shown())));
            };
            let next = self.inode(number)?;
            if next.kind() != FileType::Symlink || parts.is_empty() && !follow {
                inode = next;
                continue;
            }
            links = match links.checked_sub(1) {
                Some(links) => links,
                None => {
                    return Err(Error::link_loop(format!("{}: too many symbolic links", shown())));
                }
            };
            let target = self.symlink_target(&next)?;
            if target.first() == Some(&b'/') {
                inode = self.root()?;
            }
            parts.extend(self::parts(&target));
        }
        Ok(inode)
    }
}

/// The parts of a path, last one first, without what means nothing. A slash at the end becomes a ".", which only a
/// directory has.
fn parts(path: &[u8]) -> Vec<Vec<u8>> {
    let mut parts = path.rsplit(|byte| *byte == b'/');
    let last = parts.next().filter(|last| !last.is_empty()).unwrap_or(b".");
    let above = parts.filter(|part| !matches!(*part, b"" | b"."));
    std::iter::once(last).chain(above).map(<[u8]>::to_vec).collect()
}
