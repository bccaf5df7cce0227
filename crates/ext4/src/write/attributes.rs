//! Modes, owners and times.

use crate::acl;
use crate::error::{Place, Result, Structure};
use crate::inode::Time;
use crate::write::Writer;
use crate::write::inode::{InodeMut, Stamp};
use crate::xattr::ACL_ACCESS;

impl Writer {
    /// Changes a file's permission bits, and its ACL as they say.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn set_mode(&mut self, path: &[u8], mode: u16) -> Result<()> {
        let number = self.fs.resolve(path, true)?.number();
        self.operation(|writer| {
            let mut inode = writer.inode_mut(number)?;
            inode.set_mode(inode.mode() & 0xf000 | mode & 0o7777);
            if let Some(access) = writer.fs.xattr(&inode.reader()?, ACL_ACCESS, b"")? {
                let place = Place::inode(Structure::Xattr, number);
                let access = acl::change_mode(&access, mode)
                    .ok_or_else(|| place.malformed("an ACL that makes no sense"))?;
                writer.set_stored(&mut inode, vec![(ACL_ACCESS, access)])?;
            }
            inode.set_time(Stamp::Changed, writer.now());
            writer.store_inode(&inode)
        })
    }

    /// Changes a file's owner, group or both; a symbolic link's own if not `follow`.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn set_owner(&mut self, path: &[u8], uid: Option<u32>, gid: Option<u32>, follow: bool) -> Result<()> {
        self.change(path, follow, |inode| inode.set_owner(uid, gid))
    }

    /// Changes the times of last access and last change of the contents.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn set_times(&mut self, path: &[u8], accessed: Option<Time>, modified: Option<Time>) -> Result<()> {
        self.change(path, true, |inode| {
            for (stamp, time) in [(Stamp::Accessed, accessed), (Stamp::Modified, modified)] {
                if let Some(time) = time {
                    inode.set_time(stamp, time);
                }
            }
        })
    }

    /// The time that changes are noted with.
    pub fn time(&self) -> Time {
        self.now()
    }

    fn change(&mut self, path: &[u8], follow: bool, f: impl FnOnce(&mut InodeMut)) -> Result<()> {
        let number = self.fs.resolve(path, follow)?.number();
        self.operation(|writer| {
            let mut inode = writer.inode_mut(number)?;
            f(&mut inode);
            inode.set_time(Stamp::Changed, writer.now());
            writer.store_inode(&inode)
        })
    }
}
