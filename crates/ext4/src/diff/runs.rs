//! A file's blocks as runs of bytes, read in parts: a map may have millions.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use crate::error::Result;
use crate::format::inode::Inode;
use crate::read::fs::Ext4;

/// Runs that are kept in memory.
const KEPT: usize = 1 << 12;

/// A run of a file that has blocks which were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ByteRun {
    /// First byte in the file.
    pub start: u64,
    /// The byte behind the last one.
    pub end: u64,
    /// First byte on the device.
    pub physical: u64,
}

impl ByteRun {
    /// The byte of the device that a byte of the file lies at.
    pub fn place(&self, at: u64) -> u64 {
        self.physical + (at - self.start)
    }
}

/// Runs of a file in their order.
pub(super) struct Runs<'a> {
    fs: &'a Ext4,
    inode: &'a Inode,
    kept: VecDeque<ByteRun>,
    /// The first block whose run was not read yet; `None` behind the last one.
    next: Option<u64>,
}

impl<'a> Runs<'a> {
    pub fn new(fs: &'a Ext4, inode: &'a Inode) -> Runs<'a> {
        Runs { fs, inode, kept: VecDeque::new(), next: Some(0) }
    }

    /// The run that has a byte of the file, or the next one behind. Bytes are asked for in their order.
    ///
    /// # Errors
    /// `Corrupt` when the map is damaged.
    pub fn at_or_after(&mut self, at: u64) -> Result<Option<ByteRun>> {
        loop {
            while self.kept.front().is_some_and(|run| run.end <= at) {
                self.kept.pop_front();
            }
            if let Some(run) = self.kept.front() {
                return Ok(Some(*run));
            }
            let Some(from) = self.next else { return Ok(None) };
            self.read(from)?;
        }
    }

    fn read(&mut self, from: u64) -> Result<()> {
        let layout = *self.fs.layout();
        let block_size = u64::from(layout.block_size);
        let (kept, mut next) = (&mut self.kept, None);
        self.fs.mappings(self.inode, from, |run| {
            if kept.len() == KEPT {
                next = Some(run.logical.max(from));
                return Ok(ControlFlow::Break(()));
            }
            let skip = from.saturating_sub(run.logical);
            if !run.unwritten && skip < run.len {
                kept.push_back(ByteRun {
                    start: (run.logical + skip).saturating_mul(block_size),
                    end: run.end().saturating_mul(block_size),
                    physical: layout.offset(run.physical + skip),
                });
            }
            Ok(ControlFlow::Continue(()))
        })?;
        self.next = next;
        Ok(())
    }
}
