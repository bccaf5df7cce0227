//! The inode that reserves blocks behind the descriptors: two levels of numbers that follow from the layout.

use casemate_blockdev::usize_of;

use crate::check::findings::FindingKind;
use crate::check::places::Group;
use crate::check::worker::Check;
use crate::error::{Place, Result, Structure};
use crate::format::block_map::{self, DOUBLE};
use crate::format::features::{Compat, Incompat};
use crate::format::inode::FileType;
use crate::format::raw_inode::RawInode;
use crate::units::{Block, InodeNo};

pub(crate) fn check(check: &Check<'_>, groups: &[Group]) -> Result<()> {
    let (fs, layout, superblock) = (check.fs, check.fs.layout(), check.fs.superblock());
    let place = Place::inode(Structure::Inode, InodeNo::RESIZE);
    let wrong = |text: String| check.findings.say(FindingKind::ResizeInode, place, text);
    let Some(raw) = check.inode_bytes(groups, InodeNo::RESIZE)? else { return Ok(()) };
    let inode = RawInode { number: InodeNo::RESIZE, raw: &raw };
    let numbers: Vec<u32> = block_map::numbers(inode.block_area()).collect();
    if !superblock.compat.has(Compat::RESIZE_INODE) {
        if numbers.iter().any(|number| *number != 0) {
            wrong("has blocks without the feature resize_inode".to_owned());
        }
        return Ok(());
    }
    if inode.xattr_block(superblock.incompat.has(Incompat::BITS64)).is_some() {
        wrong("has extended attributes".to_owned());
        return Ok(());
    }
    let double = Block::new(numbers[DOUBLE].into());
    let others = numbers.iter().enumerate().any(|(slot, number)| slot != DOUBLE && *number != 0);
    if others || inode.links() == 0 || inode.kind() != Some(FileType::Regular) || !layout.contains(double, 1)
    {
        wrong("is not a file with one tree of two levels".to_owned());
        return Ok(());
    }
    if !fs.is_present(double, 1) {
        return Ok(());
    }
    let top: Vec<u32> = block_map::numbers(&fs.read_block(double)?).collect();
    let reserved = u32::from(superblock.reserved_descriptor_blocks());
    let first = layout.descriptor_block(0) + u64::from(layout.descriptor_blocks());
    for index in 0..reserved {
        let block = first + u64::from(index);
        let slot = usize_of(layout.descriptor_blocks() + index) % top.len();
        if Block::new(top[slot].into()) != block || !layout.contains(block, 1) {
            let text = format!("its number {slot} is {}, where {block} is reserved", top[slot]);
            wrong(text);
            return Ok(());
        }
        if !fs.is_present(block, 1) {
            return Ok(());
        }
        let bytes = fs.read_block(block)?;
        let copies = layout
            .copy_groups()
            .map(|group| block + u64::from(group.get()) * u64::from(layout.blocks_per_group));
        if let Some((copy, found)) =
            copies.zip(block_map::numbers(&bytes)).find(|(copy, found)| *copy != Block::new((*found).into()))
        {
            wrong(format!("reserves block {found} instead of {copy}"));
            return Ok(());
        }
    }
    Ok(())
}
