//! Inodes that are made and written, without regard to quotas.

use casemate_blockdev::{u64_of, usize_of};

use crate::alloc::Allocator;
use crate::error::{Error, Place, Result, Structure};
use crate::format::csum::{Context, Subject};
use crate::format::features::RoCompat;
use crate::format::inode::{FileType, Inode, Stamp, Time};
use crate::format::raw_inode::RawInode;
use crate::read::fs::Ext4;
use crate::transaction::patch::Part;
use crate::units::{Block, InodeNo};

/// An inode that is in use by nothing yet, made at this time. It belongs to nobody.
pub(crate) fn blank(fs: &Ext4, number: InodeNo, kind: FileType, generation: u32, time: Time) -> Inode {
    let size = fs.layout().inode_len();
    let mut inode = Inode::new(number, kind, size, fs.superblock().extra_fields().into());
    inode.set_generation(generation);
    for stamp in [Stamp::Accessed, Stamp::Changed, Stamp::Modified, Stamp::Created] {
        inode.set_time(stamp, time);
    }
    inode
}

/// Writes an inode that was read before: what differs, and its checksum patched.
pub(crate) fn write(space: &mut Allocator, inode: &Inode) -> Result<()> {
    let (block, part) = part(space, inode)?;
    space.transaction_mut().rewrite(block, &part, &mut inode.as_bytes().to_vec())
}

/// Writes an inode that was just taken: all of it is new, its checksum too.
pub(crate) fn write_new(space: &mut Allocator, inode: &Inode) -> Result<()> {
    let (block, part) = part(space, inode)?;
    space.transaction_mut().insert(block, &part, inode.as_bytes().to_vec())
}

/// Empties the slot of an inode of the file system's own, as one that was never used.
pub(crate) fn clear(space: &mut Allocator, inode: &Inode) -> Result<()> {
    let (block, part) = part(space, inode)?;
    space.transaction_mut().update(block, |edit| edit.write(part.base, &vec![0; part.len]))
}

/// Adds to, or takes from, the space that an inode is said to have, in clusters.
pub(crate) fn count_clusters(fs: &Ext4, inode: &mut Inode, change: i64) -> Result<()> {
    let place = Place::inode(Structure::Inode, inode.number());
    let layout = fs.layout();
    let unit = i64::from(layout.cluster_blocks) * i64::from(layout.block_size / 512);
    let sectors = inode.sectors(layout.block_size).checked_add_signed(change * unit);
    let Some(sectors) = sectors else { return Err(place.malformed("its count of blocks is too low")) };
    let huge_file = fs.superblock().ro_compat.has(RoCompat::HUGE_FILE);
    match inode.set_sectors(sectors, layout.block_size, huge_file) {
        true => Ok(()),
        false => Err(Error::unsupported("files of 2 TiB without the feature huge_file")),
    }
}

/// Writes an inode's bytes, whatever they say, with their checksum.
pub(crate) fn write_raw(space: &mut Allocator, number: InodeNo, raw: &[u8]) -> Result<()> {
    let context = RawInode { number, raw }.context();
    let (block, part) = place(space, number, context, raw.len())?;
    space.transaction_mut().insert(block, &part, raw.to_vec())
}

/// An inode's bytes, whatever they say.
pub(crate) fn read_raw(space: &Allocator, number: InodeNo) -> Result<Vec<u8>> {
    let len = space.fs().layout().inode_len();
    let (block, part) = place(space, number, Context::default(), len)?;
    space.transaction().with(block, |bytes| bytes[part.base..part.base + part.len].to_vec())
}

/// The block that an inode lies in, and where in it.
fn part(space: &Allocator, inode: &Inode) -> Result<(Block, Part)> {
    place(space, inode.number(), inode.context(), inode.as_bytes().len())
}

fn place(space: &Allocator, number: InodeNo, context: Context, len: usize) -> Result<(Block, Part)> {
    let place = Place::inode(Structure::Inode, number);
    let Some((group, index)) = space.fs().layout().inode_position(number) else {
        return Err(place.malformed("there is no inode with this number"));
    };
    let at = usize_of(index) * len;
    let block = space.inode_table(group)? + u64_of(at / space.block_size());
    space.fs().check_blocks(block, 1, Place::group(Structure::GroupDescriptor, group))?;
    let base = at % space.block_size();
    Ok((block, Part { subject: Subject::Inode, context, base, len }))
}
