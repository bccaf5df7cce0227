//! Directories that a walk has seen, which keep it finite whatever the image holds.

use std::collections::HashSet;
use std::ops::ControlFlow;

use casemate_blockdev::ErrorKind;

use crate::error::{Error, Place, Result, Structure};
use crate::format::inode::{Inode, InodeFlags};
use crate::read::fs::Ext4;
use crate::read::runs::BlockRuns;
use crate::units::InodeNo;

/// The longest path that is walked: longer ones no program can name.
const LONGEST_PATH: usize = 4096;

/// The directories that a walk has seen.
///
/// Each directory belongs to one parent, so a second sight is damage, and maybe a circle. So are blocks that several
/// directories have: a few would hold names without end.
#[derive(Debug, Default)]
pub struct SeenDirectories {
    numbers: HashSet<InodeNo>,
    blocks: BlockRuns,
}

impl SeenDirectories {
    /// None yet.
    pub fn new() -> SeenDirectories {
        SeenDirectories::default()
    }

    /// Notes that a walk is about to read `dir`, which lies at `path`.
    ///
    /// # Errors
    /// `Corrupt` when no sound image could have led here, `Unsupported` for paths of more than
    /// 4096 bytes.
    pub fn enter(&mut self, fs: &Ext4, path: &[u8], dir: &Inode) -> Result<()> {
        self.enter_at(fs, path.len(), dir)
    }

    /// Notes that a walk is about to read `dir`, whose path has this length.
    ///
    /// # Errors
    /// As [`SeenDirectories::enter`].
    pub(crate) fn enter_at(&mut self, fs: &Ext4, path_len: usize, dir: &Inode) -> Result<()> {
        let place = Place::inode(Structure::Directory, dir.number());
        if path_len > LONGEST_PATH {
            return Err(Error::unsupported(format!("paths of more than {LONGEST_PATH} bytes")));
        }
        if !self.numbers.insert(dir.number()) {
            return Err(place.malformed("is there under two names"));
        }
        if dir.has(InodeFlags::INLINE_DATA) {
            return Ok(());
        }
        let blocks = fs.directory_blocks(dir)?;
        let mut is_shared = false;
        let walked = fs.mappings(dir, 0, |run| {
            if run.logical >= blocks {
                return Ok(ControlFlow::Break(()));
            }
            is_shared = !self.blocks.insert(run.physical, run.end().min(blocks) - run.logical);
            Ok(if is_shared { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        });
        match walked {
            Ok(()) if is_shared => {
                Err(place.malformed("has blocks that it or another directory has already"))
            }
            // Whoever reads the directory hears of a damaged map, after what can be read.
            Err(error) if error.kind() == ErrorKind::Corrupt => Ok(()),
            other => other,
        }
    }
}
