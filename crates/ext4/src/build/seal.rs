//! Files that get fs-verity: their trees and descriptors behind their contents.

use std::sync::Arc;

use casemate_blockdev::{BlockDevice, u64_of, usize_of};

use crate::build::space::FileRun;
use crate::error::Result;
use crate::read::encryption::EncryptedContents;

/// The boundary behind a file's end where its tree begins, in bytes.
pub(crate) const TREE_ALIGNMENT: u64 = 1 << 16;

/// Somebody who knows hash trees, and which files get one.
pub trait Seal: Send + Sync + std::fmt::Debug {
    /// Bytes of the tree of a file with these paths and so many bytes, and the most bytes of its descriptor with a signature;
    /// `None` for a file that gets none. The first path stands for the file.
    ///
    /// # Errors
    /// For sizes that no tree is for.
    fn room(&self, paths: &[Vec<u8>], size: u64) -> Result<Option<(u64, u64)>>;

    /// Makes a file's tree, which is written from byte 0 of `tree` on: the descriptor's bytes with the signature.
    ///
    /// # Errors
    /// Errors of reading, writing and signing.
    fn seal(&self, path: &[u8], contents: &dyn BlockDevice, tree: &dyn BlockDevice) -> Result<Vec<u8>>;
}

/// A file that gets a tree.
#[derive(Clone, Debug)]
pub(crate) struct Sealed {
    pub path: Vec<u8>,
    /// Blocks behind the contents, and the first of them.
    pub first: u32,
    pub blocks: u32,
}

/// Contents of a file from one block on, as a device. Holes are read as zeros.
pub(crate) struct Part<'a> {
    pub device: &'a dyn BlockDevice,
    /// Runs of the whole file.
    pub runs: &'a [FileRun],
    pub first: u32,
    pub block: u64,
    pub size: u64,
    /// Encryption of the file's contents.
    pub cipher: Option<Arc<dyn EncryptedContents>>,
}

impl Part<'_> {
    /// Where bytes lie, and how many of them lie there; `None` for those of a hole.
    fn place(&self, offset: u64, len: usize) -> (Option<u64>, usize) {
        let at = u64::from(self.first) * self.block + offset;
        // In the order of the file.
        let next = self.runs.partition_point(|run| self.end(run) <= at);
        let (place, end) = match self.runs.get(next) {
            Some(run) if u64::from(run.logical) * self.block <= at => {
                let into = at - u64::from(run.logical) * self.block;
                (Some(run.physical.offset(self.block) + into), self.end(run))
            }
            Some(run) => (None, u64::from(run.logical) * self.block),
            None => (None, u64::MAX),
        };
        (place, usize_of(end - at).min(len))
    }

    /// The byte of the file behind a run.
    fn end(&self, run: &FileRun) -> u64 {
        (u64::from(run.logical) + u64::from(run.len)) * self.block
    }
}

impl Part<'_> {
    /// Room for the blocks that have these bytes, and where they begin.
    fn whole_blocks(&self, offset: u64, len: usize) -> (u64, Vec<u8>) {
        let from = offset / self.block * self.block;
        let end = (offset + u64_of(len)).next_multiple_of(self.block);
        // A block more at either end.
        (from, vec![0; usize_of(end - from)])
    }

    /// Reads bytes, which are whole blocks if they are encrypted, and decrypts them.
    fn read_stored(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let (at, len) = self.place(offset + u64_of(done), buf.len() - done);
            let part = &mut buf[done..done + len];
            match (at, &self.cipher) {
                (None, _) => part.fill(0),
                (Some(at), None) => self.device.read_at(part, at)?,
                (Some(at), Some(cipher)) => {
                    self.device.read_at(part, at)?;
                    cipher.decrypt(u64::from(self.first) + (offset + u64_of(done)) / self.block, part)?;
                }
            }
            done += len;
        }
        Ok(())
    }

    fn write_stored(&self, buf: &[u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let (at, len) = self.place(offset + u64_of(done), buf.len() - done);
            let at = at.ok_or(std::io::ErrorKind::UnexpectedEof)?;
            self.device.write_at(&buf[done..done + len], at)?;
            done += len;
        }
        Ok(())
    }
}

impl BlockDevice for Part<'_> {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(self.device)
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        if self.cipher.is_none() {
            return self.read_stored(buf, offset);
        }
        let (from, mut bytes) = self.whole_blocks(offset, buf.len());
        self.read_stored(&mut bytes, from)?;
        buf.copy_from_slice(&bytes[usize_of(offset - from)..][..buf.len()]);
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let Some(cipher) = &self.cipher else { return self.write_stored(buf, offset) };
        let (from, mut bytes) = self.whole_blocks(offset, buf.len());
        if bytes.len() != buf.len() {
            self.read_at(&mut bytes, from)?;
        }
        bytes[usize_of(offset - from)..][..buf.len()].copy_from_slice(buf);
        cipher.encrypt(u64::from(self.first) + from / self.block, &mut bytes)?;
        self.write_stored(&bytes, from)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

/// The maker of fs-verity metadata; `None` if no file is sealed.
pub(crate) type Sealer = Option<Arc<dyn Seal>>;
