//! The contents of a file, as a device of their own.

use std::io;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use casemate_blockdev::{BlockDevice, u64_of, usize_of};

use crate::error::{Error, Result};
use crate::format::inode::{FileType, Inode, InodeFlags};
use crate::read::encryption::{EncryptedContents, no_keys};
use crate::read::fs::Ext4;
use crate::read::mapping::{Mapping, map_place};

/// Runs of a file that are kept in memory; files in more pieces look theirs up for each read.
const KEPT_RUNS: usize = 1 << 16;

/// A file open for reading, by any number of threads.
///
/// Holes and unwritten extents read as zeros, and [`next_data`](BlockDevice::next_data) skips them.
#[derive(Clone)]
pub struct FileReader {
    fs: Ext4,
    inode: Arc<Inode>,
    size: u64,
    source: Source,
    decrypt: Option<Arc<dyn EncryptedContents>>,
}

#[derive(Clone)]
enum Source {
    /// Contents that lie in the inode.
    Inline(Arc<[u8]>),
    /// All runs of blocks.
    Runs(Arc<[Mapping]>),
    /// Too many runs to keep.
    Tree,
}

impl Ext4 {
    /// Opens a regular file.
    ///
    /// # Errors
    /// `Io` when it is something else; `Corrupt` when its map or its inline data is damaged;
    /// for encrypted files whatever the key is missing for.
    pub fn open_file(&self, inode: &Inode) -> Result<FileReader> {
        if inode.kind() != FileType::Regular {
            let (kind, text) = match inode.kind() {
                FileType::Directory => (io::ErrorKind::IsADirectory, "is a directory".to_owned()),
                other => (io::ErrorKind::InvalidInput, format!("is a {}, no regular file", other.name())),
            };
            return Err(Error::path(kind, format!("inode {} {text}", inode.number())));
        }
        let decrypt = match (self.encrypted(inode)?, self.encryption()) {
            (None, _) => None,
            // Ciphertext is whole data units, which an inode has no room for.
            (Some(_), _) if inode.has(InodeFlags::INLINE_DATA) => {
                return Err(map_place(inode).malformed("is encrypted and has inline data"));
            }
            (Some(encrypted), Some(encryption)) => Some(encryption.contents(&encrypted)?),
            (Some(_), None) => return Err(no_keys(inode)),
        };
        self.open_contents(inode, decrypt)
    }

    /// Opens whatever an inode has as contents, as the bytes that are stored.
    pub(crate) fn open_stored(&self, inode: &Inode) -> Result<FileReader> {
        self.open_contents(inode, None)
    }

    fn open_contents(
        &self,
        inode: &Inode,
        decrypt: Option<Arc<dyn EncryptedContents>>,
    ) -> Result<FileReader> {
        let largest = u64::from(self.layout().block_size) << 32;
        if inode.size() > largest {
            return Err(map_place(inode).malformed(format!("a size of {} bytes", inode.size())));
        }
        let source = if inode.has(InodeFlags::INLINE_DATA) {
            Source::Inline(self.inline_data(inode)?.into())
        } else {
            let mut runs = Vec::new();
            self.mappings(inode, 0, |run| {
                runs.push(run);
                Ok(if runs.len() > KEPT_RUNS { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
            if runs.len() > KEPT_RUNS { Source::Tree } else { Source::Runs(runs.into()) }
        };
        let inode = Arc::new(inode.clone());
        Ok(FileReader { fs: self.clone(), size: inode.size(), inode, source, decrypt })
    }
}

impl FileReader {
    /// The file with another size: allocated blocks behind the end become readable.
    pub fn with_size(self, size: u64) -> FileReader {
        FileReader { size, ..self }
    }

    /// The byte behind the last block that is allocated.
    pub fn allocated_end(&self) -> Result<u64> {
        let block_size = u64::from(self.fs.layout().block_size);
        let mut end = 0;
        match &self.source {
            Source::Inline(data) => return Ok(u64_of(data.len())),
            Source::Runs(runs) => end = runs.last().map_or(0, Mapping::end),
            Source::Tree => self.fs.mappings(&self.inode, 0, |run| {
                end = run.end();
                Ok(ControlFlow::Continue(()))
            })?,
        }
        Ok(end * block_size)
    }

    /// The inode.
    pub fn inode(&self) -> &Inode {
        &self.inode
    }

    /// The runs that hold blocks `from .. to` of the file, in order; stops early if `visit` breaks.
    fn runs(
        &self,
        from: u64,
        to: u64,
        mut visit: impl FnMut(Mapping) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        match &self.source {
            Source::Inline(_) => Ok(()),
            Source::Runs(runs) => {
                let first = runs.partition_point(|run| run.end() <= from);
                for run in runs[first..].iter().take_while(|run| run.logical < to) {
                    if visit(*run)?.is_break() {
                        break;
                    }
                }
                Ok(())
            }
            Source::Tree => self.fs.mappings(&self.inode, from, |run| {
                if run.logical >= to { Ok(ControlFlow::Break(())) } else { visit(run) }
            }),
        }
    }

    /// Reads whole blocks of the file from `first` on as they are stored, holes as zeros, and decrypts them.
    fn read_blocks(&self, first: u64, buf: &mut [u8]) -> Result<()> {
        let block_size = self.fs.layout().block_len();
        let end = first + u64_of(buf.len() / block_size);
        let mut filled = first;
        self.runs(first, end, |run| {
            let from = run.logical.max(first);
            let to = run.end().min(end);
            let slot = |block: u64| usize_of(block - first) * block_size;
            buf[slot(filled)..slot(from)].fill(0);
            let part = &mut buf[slot(from)..slot(to)];
            if run.unwritten {
                part.fill(0);
            } else {
                let place = self.fs.layout().offset(run.physical + (from - run.logical));
                self.fs.device().read_at(part, place)?;
                if let Some(cipher) = &self.decrypt {
                    cipher.decrypt(from, part)?;
                }
            }
            filled = to;
            Ok(ControlFlow::Continue(()))
        })?;
        let start = usize_of(filled - first) * block_size;
        buf[start..].fill(0);
        Ok(())
    }

    /// Reads bytes as they are stored, holes as zeros.
    fn read_stored(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let layout = self.fs.layout();
        let block_size = u64::from(layout.block_size);
        let end = offset + u64_of(buf.len());
        let slot = |at: u64| usize_of(at - offset);
        let mut filled = offset;
        self.runs(offset / block_size, end.div_ceil(block_size), |run| {
            let begin = run.logical * block_size;
            let from = begin.max(offset);
            let to = (run.end() * block_size).min(end);
            buf[slot(filled)..slot(from)].fill(0);
            let part = &mut buf[slot(from)..slot(to)];
            if run.unwritten {
                part.fill(0);
            } else {
                self.fs.device().read_at(part, layout.offset(run.physical) + (from - begin))?;
            }
            filled = to;
            Ok(ControlFlow::Continue(()))
        })?;
        buf[slot(filled)..].fill(0);
        Ok(())
    }

    fn read(&self, mut buf: &mut [u8], mut offset: u64) -> Result<()> {
        let block_size = self.fs.layout().block_len();
        if let Source::Inline(data) = &self.source {
            let start = usize::try_from(offset).unwrap_or(usize::MAX).min(data.len());
            let len = buf.len().min(data.len() - start);
            buf[..len].copy_from_slice(&data[start..start + len]);
            buf[len..].fill(0);
            return Ok(());
        }
        if self.decrypt.is_none() {
            return self.read_stored(buf, offset);
        }
        // Only whole blocks can be decrypted.
        let mut bounce = Vec::new();
        while !buf.is_empty() {
            let block = offset / u64_of(block_size);
            let within = usize_of(offset % u64_of(block_size));
            if within == 0 && buf.len() >= block_size {
                let len = buf.len() - buf.len() % block_size;
                let (whole, rest) = buf.split_at_mut(len);
                self.read_blocks(block, whole)?;
                offset += u64_of(len);
                buf = rest;
            } else {
                bounce.resize(block_size, 0);
                self.read_blocks(block, &mut bounce)?;
                let len = buf.len().min(block_size - within);
                let (part, rest) = buf.split_at_mut(len);
                part.copy_from_slice(&bounce[within..within + len]);
                offset += u64_of(len);
                buf = rest;
            }
        }
        Ok(())
    }
}

impl BlockDevice for FileReader {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(self.fs.device())
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        if offset.checked_add(u64_of(buf.len())).is_none_or(|end| end > self.size) {
            let text = format!("read of {} bytes at {offset} passes the end of the file", buf.len());
            return Err(Error::path(io::ErrorKind::UnexpectedEof, text));
        }
        self.read(buf, offset)
    }

    fn write_at(&self, _buf: &[u8], _offset: u64) -> Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>> {
        if offset >= self.size {
            return Ok(None);
        }
        if let Source::Inline(_) = &self.source {
            return Ok(Some(offset..self.size));
        }
        let block_size = u64::from(self.fs.layout().block_size);
        let mut found: Option<Range<u64>> = None;
        // Nothing of a file lies behind 2^32 blocks.
        self.runs(offset / block_size, 1 << 32, |run| {
            if run.unwritten {
                return Ok(ControlFlow::Continue(()));
            }
            match &mut found {
                // Runs that touch in the file are one range of data.
                Some(range) if range.end == run.logical => range.end = run.end(),
                Some(_) => return Ok(ControlFlow::Break(())),
                None => found = Some(run.logical..run.end()),
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found.and_then(|range| {
            let start = (range.start * block_size).max(offset);
            let end = (range.end * block_size).min(self.size);
            (start < end).then_some(start..end)
        }))
    }
}
