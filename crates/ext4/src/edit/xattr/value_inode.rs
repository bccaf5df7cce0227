//! Inodes that hold the value of an attribute (feature `ea_inode`).

use casemate_blockdev::u64_of;

use crate::alloc::Allocator;
use crate::edit::inode::count_clusters;
use crate::edit::xattr::Attributes;
use crate::error::{Error, Place, Result, Structure};
use crate::format::inode::{FileType, InodeFlags};
use crate::units::InodeNo;

impl Attributes<'_> {
    /// Puts a value into an inode of its own: its number, and the value's hash.
    pub(super) fn make_value_inode(&mut self, value: &[u8]) -> Result<(InodeNo, u32)> {
        // Whoever names it is said to have its clusters, as for quotas.
        let clusters = value_clusters(self.space(), u64_of(value.len()));
        count_clusters(self.inodes.fs(), self.inode, clusters)?;
        self.inodes.count_values(self.inode, 1)?;
        let number = self.inodes.space_mut().allocate_inode(self.inode.number().max(InodeNo::ROOT), false)?;
        let mut inode = self.inodes.blank(number, FileType::Regular);
        inode.set_permissions(0o600);
        inode.set_links(1);
        inode.set_flags(InodeFlags::EA_INODE.0);
        self.inodes.map(&mut inode).start();
        let hash = self.space().transaction().sums().update(None, value);
        inode.set_value(hash, 1);
        let block = self.space().block_size();
        let mut padded = value.to_vec();
        padded.resize(value.len().next_multiple_of(block), 0);
        let blocks = u64_of(padded.len() / block);
        let mut runs = Vec::new();
        self.inodes.map(&mut inode).fill(0, blocks, false, |run| runs.push(run))?;
        for run in runs {
            self.inodes.transaction().write_data(run.physical, &padded[run.bytes_from(0, block)])?;
        }
        inode.set_size(u64_of(value.len()));
        self.inodes.create(&inode)?;
        Ok((number, hash))
    }

    /// Counts one user of a value's inode less, and frees it with the last one.
    pub(super) fn release_value_inode(&mut self, number: InodeNo, size: u32) -> Result<()> {
        let clusters = -value_clusters(self.space(), u64::from(size));
        count_clusters(self.inodes.fs(), self.inode, clusters)?;
        self.inodes.count_values(self.inode, -1)?;
        let place = Place::inode(Structure::XattrInode, number);
        let mut inode = self.inodes.get(number)?;
        if !inode.has(InodeFlags::EA_INODE) {
            return Err(place.malformed("is not the value of an attribute"));
        }
        let users = inode.value_users();
        if users >> 32 != 0 {
            return Err(Error::unsupported("values of attributes with more than 2^32 users"));
        }
        let hash = inode.value_hash();
        inode.set_value(hash, users.saturating_sub(1));
        if users <= 1 { self.inodes.release(&mut inode) } else { self.inodes.store(&inode) }
    }
}

fn value_clusters(space: &Allocator, size: u64) -> i64 {
    size.div_ceil(space.ratio() * space.block_bytes()).cast_signed()
}
