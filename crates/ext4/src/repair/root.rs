//! The root directory, made of what is left of it.

use crate::edit::inode::{blank, read_raw, write, write_new};
use crate::error::Result;
use crate::format::inode::{FileType, MODE};
use crate::format::raw_inode::RawInode;
use crate::repair::Repair;
use crate::repair::directory::{Format, salvage};
use crate::units::InodeNo;

/// Mode of a root directory that is made anew.
const ROOT_MODE: u16 = 0o755;

impl Repair {
    /// Makes the root a directory again: with its blocks, if these are those of a directory, else an empty one. What has no
    /// name then gets one in lost+found.
    pub(super) fn renew_root(&mut self) -> Result<bool> {
        let number = InodeNo::ROOT;
        let mut raw = read_raw(self.files.space(), number)?;
        self.files.forget_directory(number);
        if self.is_like_directory(RawInode { number, raw: &raw })? {
            MODE.set(&mut raw, FileType::Directory.mode_bits() | ROOT_MODE);
            if let Ok(mut root) = (RawInode { number, raw: &raw }).to_inode() {
                root.set_deleted(0);
                root.set_links(root.links().max(2));
                write_new(self.space(), &root)?;
                return Ok(true);
            }
        }
        let now = self.files.now();
        let mut root = blank(self.files.fs(), number, FileType::Directory, 0, now);
        root.set_permissions(ROOT_MODE);
        root.set_links(2);
        write_new(self.space(), &root)?;
        self.files.inodes().map(&mut root).start();
        self.files.directory(&mut root).make_first_leaf(number, Vec::new())?;
        write(self.space(), &root)?;
        Ok(true)
    }

    /// Whether the first block of an inode is that of a directory which names this inode, whatever its mode says.
    pub(super) fn is_like_directory(&self, inode: RawInode<'_>) -> Result<bool> {
        let fs = self.files.fs();
        let found = self.walk(inode)?;
        let Some(first) = found.runs.first().filter(|run| run.logical == 0) else { return Ok(false) };
        if !fs.is_present(first.physical, 1) {
            return Ok(false);
        }
        let bytes = fs.read_block(first.physical)?;
        let format = Format { with_hash: false, is_encrypted: false, inodes: fs.layout().inodes };
        let records = salvage(&bytes, bytes.len(), format);
        let is = |at: usize, name: &[u8]| records.get(at).filter(|record| record.name == name);
        Ok(is(0, b".").is_some_and(|dot| dot.inode == inode.number) && is(1, b"..").is_some())
    }
}
