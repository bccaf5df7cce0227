//! What keeps a walk over a tree of directories finite, whatever the image says.

use std::collections::HashSet;

use crate::error::{Error, Place, Result, Structure};
use crate::fs::Ext4;
use crate::inode::{Inode, InodeFlags};

/// The longest path that is walked: longer ones no program can name.
const LONGEST_PATH: usize = 4096;

/// The directories that a walk has seen.
///
/// Each directory belongs to one parent, so a second sight is damage, and maybe a circle. So are more blocks of
/// directories than the file system has: they would share blocks, and hold names without end.
#[derive(Debug)]
pub struct SeenDirectories {
    numbers: HashSet<u32>,
    blocks_left: u64,
}

impl SeenDirectories {
    /// None yet.
    pub fn new(fs: &Ext4) -> SeenDirectories {
        SeenDirectories { numbers: HashSet::new(), blocks_left: fs.layout().blocks }
    }

    /// Notes that a walk is about to read `dir`, which lies at `path`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when no sound image could have led here, [`Error::Unsupported`] for paths of more than
    /// 4096 bytes.
    pub fn enter(&mut self, fs: &Ext4, path: &[u8], dir: &Inode) -> Result<()> {
        let place = Place::inode(Structure::Directory, dir.number());
        if path.len() > LONGEST_PATH {
            return Err(Error::Unsupported(format!("paths of more than {LONGEST_PATH} bytes")));
        }
        if !self.numbers.insert(dir.number()) {
            return Err(place.malformed("is there under two names"));
        }
        let blocks = if dir.has(InodeFlags::INLINE_DATA) { 0 } else { fs.directory_blocks(dir)? };
        match self.blocks_left.checked_sub(blocks) {
            Some(left) => self.blocks_left = left,
            None => return Err(place.malformed("has blocks that other directories have, too")),
        }
        Ok(())
    }
}
