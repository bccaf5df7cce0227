//! Contents of two files, compared where they can differ: in blocks that lie elsewhere, or whose bytes differ.

use std::ops::Range;

use casemate_blockdev::{BlockDevice, u64_of, usize_of};

use super::Diff;
use super::difference::{Difference, Side};
use super::runs::Runs;
use crate::error::Result;
use crate::format::inode::{Inode, InodeFlags};
use crate::format::value::first_difference;
use crate::read::file::FileReader;
use crate::read::fs::Ext4;

/// Bytes that are read at a time.
const PART: u64 = 256 << 10;

impl Diff<'_> {
    /// Compares the contents of two regular files, as far as both go: another size is a line of its own.
    pub fn contents(&mut self, path: &[u8], inodes: [&Inode; 2]) -> Result<()> {
        let mut files = Vec::new();
        for side in Side::BOTH {
            match open(&self.sides[side.index()].fs, inodes[side.index()]) {
                Ok(file) => files.push(file),
                Err(error) => return self.skip(side, path, error),
            }
        }
        let [a, b] = &files[..] else { return Ok(()) };
        let mut found = Found { block_size: self.sides[0].fs.layout().block_size.into(), ..Found::default() };
        let has_other_places =
            inodes.iter().any(|inode| inode.has(InodeFlags::INLINE_DATA) || inode.has(InodeFlags::ENCRYPT));
        let compared = match has_other_places {
            true => self.by_bytes([a, b], 0..a.size().min(b.size()), &mut found),
            false => self.by_runs([a, b], inodes, &mut found),
        };
        if let Err((side, error)) = compared {
            self.skip(side, path, error)?;
        }
        match found.first {
            Some(first) => {
                self.tell(Difference::Contents { path: path.to_vec(), first, blocks: found.blocks })
            }
            None => Ok(()),
        }
    }

    /// Goes through the blocks of both files, and reads those that are not known to be equal.
    fn by_runs(
        &self,
        files: [&FileReader; 2],
        inodes: [&Inode; 2],
        found: &mut Found,
    ) -> Result<(), (Side, crate::Error)> {
        let end = files[0].size().min(files[1].size());
        let fs = [&self.sides[0].fs, &self.sides[1].fs];
        let mut runs = [Runs::new(fs[0], inodes[0]), Runs::new(fs[1], inodes[1])];
        let mut at = 0;
        while at < end {
            let mut next = [None, None];
            for side in Side::BOTH {
                next[side.index()] = runs[side.index()].at_or_after(at).map_err(|error| (side, error))?;
            }
            let Some(start) = next.iter().flatten().map(|run| run.start.max(at)).min() else { break };
            // Up to where one of them begins or ends.
            let ends = next.iter().flatten().map(|run| if run.start > start { run.start } else { run.end });
            let stop = ends.min().unwrap_or(end).min(end);
            if start >= end {
                break;
            }
            let places = next.map(|run| run.filter(|run| run.start <= start).map(|run| run.place(start)));
            let is_same = match places {
                [Some(a), Some(b)] if a == b && self.is_direct => {
                    self.compared.is_same(&(a..a.saturating_add(stop - start)))
                }
                _ => false,
            };
            if !is_same {
                self.by_bytes(files, start..stop, found)?;
            }
            at = stop;
        }
        Ok(())
    }

    /// Reads a range of both files, but for what is a hole in both.
    fn by_bytes(
        &self,
        files: [&FileReader; 2],
        range: Range<u64>,
        found: &mut Found,
    ) -> Result<(), (Side, crate::Error)> {
        let mut at = range.start;
        let mut buffers = [Vec::new(), Vec::new()];
        while at < range.end {
            self.work.events.advance(0).map_err(|error| (Side::A, error))?;
            let mut starts = [None, None];
            for side in Side::BOTH {
                let data = files[side.index()].next_data(at).map_err(|error| (side, error))?;
                starts[side.index()] = data.map(|data| data.start.max(at));
            }
            let Some(start) = starts.into_iter().flatten().min().filter(|start| *start < range.end) else {
                break;
            };
            let len = PART.min(range.end - start);
            for side in Side::BOTH {
                let buffer = &mut buffers[side.index()];
                buffer.resize(usize_of(len), 0);
                files[side.index()].read_at(buffer, start).map_err(|error| (side, error))?;
            }
            found.part(start, &buffers[0], &buffers[1]);
            at = start + len;
        }
        Ok(())
    }
}

/// Differences of two files that were found so far.
#[derive(Default)]
struct Found {
    block_size: u64,
    first: Option<u64>,
    blocks: u64,
    /// The block that was counted last.
    last: Option<u64>,
}

impl Found {
    /// Compares bytes of the two that begin at byte `start` of both.
    fn part(&mut self, start: u64, a: &[u8], b: &[u8]) {
        if a == b {
            return;
        }
        let mut at = 0;
        while at < a.len() {
            let block = (start + u64_of(at)) / self.block_size;
            let end = usize_of(((block + 1) * self.block_size - start).min(u64_of(a.len())));
            if let Some(first) = first_difference(&a[at..end], &b[at..end]) {
                self.first.get_or_insert(start + u64_of(at) + first);
                if self.last != Some(block) {
                    (self.last, self.blocks) = (Some(block), self.blocks + 1);
                }
            }
            at = end;
        }
    }
}

/// A file's contents, decrypted if somebody can, else as they are stored.
fn open(fs: &Ext4, inode: &Inode) -> Result<FileReader> {
    if inode.has(InodeFlags::ENCRYPT) && fs.require_key(inode).is_err() {
        return fs.open_stored(inode);
    }
    fs.open_file(inode)
}
