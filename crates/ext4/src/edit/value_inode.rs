//! Inodes that hold the value of an attribute (feature `ea_inode`).

use crate::edit::Writer;
use crate::edit::inode::InodeMut;
use crate::error::{Error, Place, Result, Structure};
use crate::format::inode::{FileType, InodeFlags, ROOT_INODE};

impl Writer {
    /// Puts a value into an inode of its own: its number, and the value's hash.
    pub(crate) fn make_value_inode(&mut self, owner: &mut InodeMut, value: &[u8]) -> Result<(u32, u32)> {
        // Whoever names it is said to have its clusters, as for quotas.
        self.count_clusters(owner, self.value_clusters(value.len() as u64))?;
        self.count_values(owner, 1)?;
        let number = self.space.allocate_inode(owner.number().max(ROOT_INODE), false)?;
        let mut inode = self.blank_inode(number, FileType::Regular);
        inode.set_permissions(0o600);
        inode.set_links(1);
        inode.set_flags(InodeFlags::EA_INODE.0);
        self.start_map(&mut inode);
        let hash = self.space.transaction().sums().update(None, value);
        inode.set_value(hash, 1);
        let mut padded = value.to_vec();
        padded.resize(value.len().next_multiple_of(self.block_size()), 0);
        let blocks = (padded.len() / self.block_size()) as u64;
        let mut runs = Vec::new();
        self.fill(&mut inode, 0, blocks, false, |run| runs.push(run))?;
        for run in runs {
            let from = run.logical as usize * self.block_size();
            let len = run.len as usize * self.block_size();
            self.space.transaction_mut().write_data(run.physical, &padded[from..from + len])?;
        }
        inode.set_size(value.len() as u64);
        self.create_inode(&inode)?;
        Ok((number, hash))
    }

    /// The hash that a value's inode keeps.
    pub(crate) fn value_hash(&self, number: u32) -> Result<u32> {
        Ok(self.inode_mut(number)?.value_hash())
    }

    /// Counts one user of a value's inode less, and frees it with the last one.
    pub(crate) fn release_value_inode(&mut self, owner: &mut InodeMut, number: u32, size: u32) -> Result<()> {
        self.count_clusters(owner, -self.value_clusters(u64::from(size)))?;
        self.count_values(owner, -1)?;
        let place = Place::inode(Structure::XattrInode, number);
        let mut inode = self.inode_mut(number)?;
        if !inode.has(InodeFlags::EA_INODE) {
            return Err(place.malformed("is not the value of an attribute"));
        }
        let users = inode.value_users();
        if users >> 32 != 0 {
            return Err(Error::unsupported("values of attributes with more than 2^32 users"));
        }
        let hash = inode.value_hash();
        inode.set_value(hash, users.saturating_sub(1));
        if users <= 1 { self.free_everything(&mut inode) } else { self.store_inode(&inode) }
    }

    fn value_clusters(&self, size: u64) -> i64 {
        size.div_ceil(self.ratio() * self.block_size() as u64).cast_signed()
    }
}
