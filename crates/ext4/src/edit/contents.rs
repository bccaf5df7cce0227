//! Contents of regular files.

use std::io::ErrorKind;

use crate::edit::Writer;
use crate::edit::file_map::Cut;
use crate::edit::inode::InodeMut;
use crate::error::{Error, Result, invalid};
use crate::format::features::RoCompat;
use crate::format::inode::{FileType, InodeFlags};
use crate::read::encryption::EncryptedContents;
use crate::read::map::Mapping;

/// Bytes of zeros that are written at once.
const CHUNK: usize = 1 << 20;

impl Writer {
    /// Allocates all of a file's first `size` bytes, which read as zeros where nothing was, and makes it that
    /// long if it was shorter. A file without extents can't say that blocks were never written: zeros are
    /// written then.
    ///
    /// # Errors
    /// `NotFound`; `StorageFull`, and nothing is allocated then.
    pub fn allocate_file(&mut self, path: &[u8], size: u64) -> Result<()> {
        let number = self.changeable(path, true)?;
        self.allocate_range(number, 0, size)
    }

    /// The same for the bytes `from..to` of the file with this inode.
    ///
    /// # Errors
    /// `StorageFull`, and nothing is allocated then.
    pub fn allocate_range(&mut self, number: u32, from: u64, to: u64) -> Result<()> {
        let block = self.block_size() as u64;
        let (mut at, end) = (from / block, if to > from { to.div_ceil(block) } else { 0 });
        let mut is_listed = false;
        self.operation(|writer| {
            let mut inode = writer.changeable_file(number)?;
            writer.drop_capabilities(&mut inode)?;
            writer.spread_inline_file(&mut inode)?;
            writer.check_size(&inode, to)?;
            at = writer.fill_with_zeros(&mut inode, at, end)?;
            if at < end {
                writer.require_free(&inode, at, end)?;
                is_listed = !inode.has(InodeFlags::EXTENTS);
                if is_listed {
                    writer.list_orphan(&mut inode)?;
                }
                return writer.store_inode(&inode);
            }
            writer.grow(&mut inode, to)
        })?;
        if at >= end {
            return Ok(());
        }
        self.in_steps(number, is_listed, |writer| {
            let mut inode = writer.inode_mut(number)?;
            at = writer.fill_with_zeros(&mut inode, at, end)?;
            if at < end {
                writer.store_inode(&inode)?;
                return Ok(false);
            }
            if is_listed {
                writer.unlist_orphan(&mut inode)?;
            }
            writer.grow(&mut inode, to)?;
            Ok(true)
        })
    }

    /// Ends what gave blocks to a file, which is to have this size if it was shorter.
    fn grow(&mut self, inode: &mut InodeMut, size: u64) -> Result<()> {
        if size > inode.size() {
            self.set_file_size(inode, size)?;
        }
        self.touch(inode);
        self.store_inode(inode)
    }

    /// Gives blocks that read as zeros to holes, as far as the transaction has room: the block that it came to.
    fn fill_with_zeros(&mut self, inode: &mut InodeMut, from: u64, to: u64) -> Result<u64> {
        let unwritten = inode.has(InodeFlags::EXTENTS);
        let mut runs = Vec::new();
        let reached = self.fill_some(inode, from, to, unwritten, |run| runs.push(run))?;
        if !unwritten {
            let cipher = self.cipher(inode)?;
            for run in runs {
                self.zero_run(&run, cipher.as_deref())?;
            }
        }
        Ok(reached)
    }

    /// Makes a file longer, with a hole, or shorter.
    ///
    /// # Errors
    /// `NotFound`; `PermissionDenied` for immutable and append-only files.
    pub fn truncate(&mut self, path: &[u8], size: u64) -> Result<()> {
        let number = self.changeable(path, true)?;
        while !self.truncate_inode(number, size)? {}
        Ok(())
    }

    /// The same for an inode; false if it must be done once more.
    fn truncate_inode(&mut self, number: u32, mut size: u64) -> Result<bool> {
        let wanted = size;
        self.operation(|writer| {
            let mut inode = writer.changeable_file(number)?;
            writer.drop_capabilities(&mut inode)?;
            if size != inode.size() {
                if inode.has(InodeFlags::INLINE_DATA) {
                    if writer.resize_inline(&mut inode, size)? {
                        writer.touch(&mut inode);
                        return writer.store_inode(&inode);
                    }
                    writer.spread_inline_file(&mut inode)?;
                }
                writer.check_size(&inode, size)?;
                let block = writer.block_size() as u64;
                let old = inode.size();
                let cut = writer.cut(&mut inode, size.div_ceil(block))?;
                // What lay behind the end must not come back when the file grows again.
                let end = size.min(old);
                if end % block != 0 {
                    writer.zero_from(&inode, end)?;
                }
                if cut == Cut::Begun && size == 0 && inode.has(InodeFlags::EXTENTS) {
                    // Some e2fsck damages a waiting inode (1.47.0) when it cuts a tree of levels to nothing.
                    size = block;
                }
                writer.set_file_size(&mut inode, size)?;
                writer.touch(&mut inode);
                if cut == Cut::Begun {
                    return writer.finish_later(&mut inode);
                }
            } else {
                writer.touch(&mut inode);
            }
            writer.store_inode(&inode)
        })?;
        Ok(size == wanted)
    }

    /// Writes zeros to blocks of a file.
    fn zero_run(&mut self, run: &Mapping, cipher: Option<&dyn EncryptedContents>) -> Result<()> {
        let block = self.block_size() as u64;
        let mut buffer = Vec::new();
        let (mut from, end) = (run.logical * block, run.end() * block);
        let mut to = run.physical;
        while from < end {
            // OK to truncate: at most a chunk.
            buffer.resize((end - from).min(CHUNK as u64) as usize, 0);
            if let Some(cipher) = cipher {
                buffer.fill(0);
                cipher.encrypt(from / block, &mut buffer)?;
            }
            self.space.transaction_mut().write_data(to, &buffer)?;
            from += buffer.len() as u64;
            to += buffer.len() as u64 / block;
        }
        Ok(())
    }

    /// Zeroes a file from byte `from` to the end of that block, if it has that block.
    pub(crate) fn zero_from(&mut self, inode: &InodeMut, from: u64) -> Result<()> {
        let block = self.block_size() as u64;
        let run = self.run_from(inode, from / block)?;
        let Some(run) = run.filter(|run| run.logical <= from / block && !run.unwritten) else {
            return Ok(());
        };
        let number = run.physical + (from / block - run.logical);
        let mut bytes = vec![0; self.block_size()];
        self.space.transaction().read_at(&mut bytes, self.space.fs().layout().offset(number))?;
        let cipher = self.cipher(inode)?;
        if let Some(cipher) = &cipher {
            cipher.decrypt(from / block, &mut bytes)?;
        }
        let tail = &mut bytes[(from % block) as usize..];
        if tail.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        tail.fill(0);
        if let Some(cipher) = &cipher {
            cipher.encrypt(from / block, &mut bytes)?;
        }
        // With the transaction, so that the file has its old contents or its new ones.
        self.space.transaction_mut().update(number, |edit| edit.write(0, &bytes))?;
        Ok(())
    }

    /// A regular file whose contents may be changed.
    fn changeable_file(&self, number: u32) -> Result<InodeMut> {
        let inode = self.inode_mut(number)?;
        if inode.kind() != FileType::Regular {
            return Err(invalid(ErrorKind::InvalidInput, format!("inode {number} is no regular file")));
        }
        if inode.has(InodeFlags::VERITY) {
            return Err(Error::unsupported("changing the contents of fs-verity files"));
        }
        self.cipher(&inode)?;
        Ok(inode)
    }

    pub(crate) fn set_file_size(&mut self, inode: &mut InodeMut, size: u64) -> Result<()> {
        inode.set_size(size);
        if size > i32::MAX as u64 && !self.space.fs().superblock().ro_compat.has(RoCompat::LARGE_FILE) {
            self.space.transaction_mut().add_feature(0x64, RoCompat::LARGE_FILE.0)?;
        }
        Ok(())
    }

    pub(crate) fn check_size(&self, inode: &InodeMut, size: u64) -> Result<()> {
        let block = self.block_size() as u64;
        let largest = block * self.most_blocks(inode) - block;
        if size > largest {
            let text = format!("the file can have at most {largest} bytes");
            return Err(invalid(ErrorKind::FileTooLarge, text));
        }
        Ok(())
    }
}
