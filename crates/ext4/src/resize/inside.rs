//! A last look at what is to be committed with another end.

use crate::edit::files::Files;
use crate::error::{Place, Result, Structure};
use crate::format::group::GroupDescriptor;
use crate::format::layout::Layout;
use crate::format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use crate::units::GroupNo;

/// Refuses a state in which a descriptor or the superblock names a block that is not one of the file system: whatever chose
/// the end, contents behind it would be lost.
pub(super) fn require_inside(files: &Files) -> Result<()> {
    let transaction = files.space().transaction();
    let mut raw = [0; SUPERBLOCK_SIZE];
    transaction.read_at(&mut raw, SUPERBLOCK_OFFSET)?;
    let superblock = Superblock::from_bytes(&raw)?;
    let layout = Layout::new(&superblock)?;
    if let Some(block) = superblock.mmp_block.filter(|block| !layout.contains(*block, 1)) {
        let text = format!("the block of multi-mount protection, {block}, would lie outside the file system");
        return Err(Place::of(Structure::Superblock).malformed(text));
    }
    let mut bytes = vec![0; layout.block_len()];
    for index in 0..layout.descriptor_blocks() {
        transaction.read_at(&mut bytes, layout.offset(layout.descriptor_block(index)))?;
        let groups = layout.first_described(index).until(GroupNo::new(layout.groups));
        for (group, raw) in groups.zip(bytes.chunks_exact(layout.descriptor_len())) {
            let descriptor = GroupDescriptor::from_bytes(raw)?;
            for (what, first, len) in [
                ("block bitmap", descriptor.block_bitmap(), 1),
                ("inode bitmap", descriptor.inode_bitmap(), 1),
                ("inode table", descriptor.inode_table(), layout.inode_table_blocks()),
            ] {
                if !layout.contains(first, len) {
                    let text = format!("the {what} at block {first} would lie outside the file system");
                    return Err(Place::group(Structure::GroupDescriptor, group).malformed(text));
                }
            }
        }
    }
    Ok(())
}
