//! Symbolic links: short targets in the inode, longer ones in a block.

use casemate_blockdev::{BlockDevice, usize_of};

use crate::error::{Error, Place, Result, Structure};
use crate::format::inode::{FileType, Inode};
use crate::read::fs::Ext4;
use crate::read::map::is_fast_symlink;

impl Ext4 {
    /// The target of a symbolic link, decrypted if it is encrypted and somebody can.
    ///
    /// # Errors
    /// `Io` when the inode is something else; `Corrupt` when its target is damaged.
    pub fn symlink_target(&self, inode: &Inode) -> Result<Vec<u8>> {
        if inode.kind() != FileType::Symlink {
            let text = format!("inode {} is not a symbolic link", inode.number());
            return Err(Error::path(std::io::ErrorKind::InvalidInput, text));
        }
        let place = Place::inode(Structure::Symlink, inode.number());
        let size = inode.size();
        if size == 0 || size > u64::from(self.layout().block_size) {
            return Err(place.malformed(format!("a target of {size} bytes")));
        }
        let len = usize_of(size);
        let stored = if is_fast_symlink(inode) {
            inode.block_area()[..len].to_vec()
        } else {
            let mut target = vec![0; len];
            self.open_stored(inode)?.read_at(&mut target, 0)?;
            target
        };
        match (self.encrypted(inode)?, self.encryption()) {
            (Some(encrypted), Some(encryption)) => encryption.symlink(&encrypted, &stored),
            (Some(_), None) => Ok(stored),
            _ if stored.contains(&0) => Err(place.malformed("a target with a NUL")),
            _ => Ok(stored),
        }
    }
}
