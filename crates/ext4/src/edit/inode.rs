//! Inodes that are taken and stored.

use crate::edit::Writer;
use crate::error::{Place, Result, Structure};
use crate::format::csum::Subject;
use crate::format::features::RoCompat;
use crate::format::inode::{FileType, Inode};
use crate::transaction::patch::Part;

pub(crate) use crate::format::inode::{Inode as InodeMut, Stamp};

impl Writer {
    /// The inode with this number, to change it.
    pub(crate) fn inode_mut(&self, number: u32) -> Result<InodeMut> {
        self.space.fs().inode(number)
    }

    /// The same for one that may have no name left.
    pub(crate) fn unlinked_inode_mut(&self, number: u32) -> Result<InodeMut> {
        self.space.fs().any_inode(number)
    }

    /// An inode that is in use by nothing yet, with the times of now. It belongs to nobody.
    pub(crate) fn blank_inode(&mut self, number: u32, kind: FileType) -> InodeMut {
        let size = self.space.fs().layout().inode_size as usize;
        let mut inode = Inode::new(number, kind, size, self.space.fs().superblock().extra_fields().into());
        inode.set_generation(self.random.next());
        let now = self.now();
        for stamp in [Stamp::Accessed, Stamp::Changed, Stamp::Modified, Stamp::Created] {
            inode.set_time(stamp, now);
        }
        inode
    }

    /// Stores an inode that was read before: what differs, and its checksum patched.
    pub(crate) fn store_inode(&mut self, inode: &InodeMut) -> Result<()> {
        self.count_stored(inode, false)?;
        self.rewrite_inode(inode)
    }

    /// The same for an inode that is freed now.
    pub(crate) fn store_freed(&mut self, inode: &InodeMut) -> Result<()> {
        self.count_stored(inode, true)?;
        self.rewrite_inode(inode)
    }

    fn rewrite_inode(&mut self, inode: &InodeMut) -> Result<()> {
        let (block, part) = self.inode_part(inode)?;
        self.space.transaction_mut().rewrite(block, &part, &mut inode.as_bytes().to_vec())
    }

    /// Stores an inode that was just taken: all of it is new, its checksum too.
    pub(crate) fn create_inode(&mut self, inode: &InodeMut) -> Result<()> {
        self.count_created(inode);
        let (block, part) = self.inode_part(inode)?;
        self.space.transaction_mut().insert(block, &part, inode.as_bytes().to_vec())
    }

    /// Adds to, or takes from, the space that an inode is said to have, in clusters.
    pub(crate) fn count_clusters(&self, inode: &mut InodeMut, change: i64) -> Result<()> {
        let place = Place::inode(Structure::Inode, inode.number());
        let block_size = self.space.fs().layout().block_size;
        let unit = (self.ratio() * u64::from(block_size / 512)).cast_signed();
        let sectors = inode.sectors(block_size).checked_add_signed(change * unit);
        let Some(sectors) = sectors else { return Err(place.malformed("its count of blocks is too low")) };
        let huge_file = self.space.fs().superblock().ro_compat.has(RoCompat::HUGE_FILE);
        match inode.set_sectors(sectors, block_size, huge_file) {
            true => Ok(()),
            false => Err(crate::Error::unsupported("files of 2 TiB without the feature huge_file")),
        }
    }

    /// The block that an inode lies in, and where in it.
    fn inode_part(&self, inode: &InodeMut) -> Result<(u64, Part)> {
        let place = Place::inode(Structure::Inode, inode.number());
        let Some((group, index)) = self.space.fs().layout().inode_position(inode.number()) else {
            return Err(place.malformed("there is no inode with this number"));
        };
        let size = inode.as_bytes().len();
        let at = index as usize * size;
        let block = self.space.inode_table(group)? + (at / self.block_size()) as u64;
        self.space.fs().check_blocks(block, 1, Place::group(Structure::GroupDescriptor, group))?;
        let context = inode.context();
        Ok((block, Part { subject: Subject::Inode, context, base: at % self.block_size(), len: size }))
    }
}

/// The root of an empty extent tree.
pub(crate) fn empty_extents() -> [u8; 60] {
    let mut area = [0; 60];
    area[..5].copy_from_slice(&[0x0a, 0xf3, 0, 0, 4]);
    area
}
