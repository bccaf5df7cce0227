//! Contents of regular files.

pub(super) mod inline;
mod write;

use casemate_blockdev::{u64_of, usize_of};

use crate::edit::encrypted::cipher;
use crate::edit::file_map::FileMap;
use crate::edit::inodes::Inodes;
use crate::error::Result;
use crate::format::inode::{Inode, InodeFlags};
use crate::read::encryption::EncryptedContents;
use crate::read::mapping::Mapping;

/// Bytes of zeros that are written at once.
const CHUNK: usize = 1 << 20;

/// A file's contents, to change. The caller stores the inode.
pub(crate) struct Contents<'t> {
    inodes: &'t mut Inodes,
    inode: &'t mut Inode,
}

impl<'t> Contents<'t> {
    pub fn new(inodes: &'t mut Inodes, inode: &'t mut Inode) -> Contents<'t> {
        Contents { inodes, inode }
    }

    fn map(&mut self) -> FileMap<'_> {
        self.inodes.map(self.inode)
    }

    /// Gives blocks that read as zeros to holes, as far as the transaction has room: the block that it came to.
    pub fn fill_with_zeros(&mut self, from: u64, to: u64) -> Result<u64> {
        let unwritten = self.inode.has(InodeFlags::EXTENTS);
        let mut runs = Vec::new();
        let reached = self.map().fill_some(from, to, unwritten, |run| runs.push(run))?;
        if !unwritten {
            let cipher = cipher(self.inodes.fs(), self.inode)?;
            for run in runs {
                self.zero_run(&run, cipher.as_deref())?;
            }
        }
        Ok(reached)
    }

    /// Writes zeros to blocks of a file.
    fn zero_run(&mut self, run: &Mapping, cipher: Option<&dyn EncryptedContents>) -> Result<()> {
        let block = self.inodes.space().block_bytes();
        let mut buffer = Vec::new();
        let (mut from, end) = (run.logical * block, run.end() * block);
        let mut to = run.physical;
        while from < end {
            // At most a chunk.
            buffer.resize(usize_of(end - from).min(CHUNK), 0);
            if let Some(cipher) = cipher {
                buffer.fill(0);
                cipher.encrypt(from / block, &mut buffer)?;
            }
            self.inodes.transaction().write_data(to, &buffer)?;
            from += u64_of(buffer.len());
            to += u64_of(buffer.len()) / block;
        }
        Ok(())
    }

    /// Zeroes a file from byte `from` to the end of that block, if it has that block.
    pub fn zero_from(&mut self, from: u64) -> Result<()> {
        let block = self.inodes.space().block_bytes();
        self.zero_within(from, (from / block + 1) * block)
    }

    /// Zeroes the bytes `from..to`, which lie in one block, if the file has that block.
    pub fn zero_within(&mut self, from: u64, to: u64) -> Result<()> {
        let block = self.inodes.space().block_bytes();
        let run = self.inodes.view(self.inode).run_from(from / block)?;
        let Some(run) = run.filter(|run| run.logical <= from / block && !run.unwritten) else {
            return Ok(());
        };
        let number = run.physical + (from / block - run.logical);
        let mut bytes = vec![0; self.inodes.space().block_size()];
        self.inodes.space().transaction().read_at(&mut bytes, self.inodes.fs().layout().offset(number))?;
        let cipher = cipher(self.inodes.fs(), self.inode)?;
        if let Some(cipher) = &cipher {
            cipher.decrypt(from / block, &mut bytes)?;
        }
        let start = usize_of(from % block);
        let tail = &mut bytes[start..start + usize_of(to - from)];
        if tail.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        tail.fill(0);
        if let Some(cipher) = &cipher {
            cipher.encrypt(from / block, &mut bytes)?;
        }
        // With the transaction, so that the file has its old contents or its new ones.
        self.inodes.transaction().update(number, |edit| edit.write(0, &bytes))?;
        Ok(())
    }
}
