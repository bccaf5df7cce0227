//! The list of bad blocks: the map of an inode that has no kind. Its blocks can't be moved, and behind the end they are
//! nobody's.

use casemate_blockdev::u64_of;

use crate::edit::files::Files;
use crate::edit::inode::{read_raw, write_raw};
use crate::edit::reseal::Blocks;
use crate::error::Result;
use crate::format::features::RoCompat;
use crate::format::inode::{FileType, Inode, InodeFlags, MODE};
use crate::read::mapping::Mapping;
use crate::units::{Block, InodeNo};

/// The list as a file whose contents are the bad blocks. `None` if there are none.
fn list(files: &Files) -> Result<Option<(Inode, Blocks)>> {
    let mut raw = read_raw(files.space(), InodeNo::BAD_BLOCKS)?;
    MODE.set(&mut raw, FileType::Regular.mode_bits());
    let inode = Inode::from_bytes(InodeNo::BAD_BLOCKS, &raw)?;
    // A tree that was never begun is empty, whatever the flags.
    if inode.has(InodeFlags::INLINE_DATA) || inode.block_area().iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    let mut blocks = Blocks::default();
    let _ = files.fs().visit_map(&inode, 0, &mut blocks)?;
    Ok(Some((inode, blocks)).filter(|(_, blocks)| !blocks.runs.is_empty()))
}

/// Sets what follows from how many blocks there are. Nobody else counts them.
fn count(files: &Files, inode: &mut Inode) -> Result<()> {
    let layout = files.fs().layout();
    let mut blocks = Blocks::default();
    let _ = files.fs().visit_map(inode, 0, &mut blocks)?;
    let bad = blocks.runs.last().map_or(0, Mapping::end);
    let sectors = (bad + u64_of(blocks.of_map.len())) * u64::from(layout.block_size / 512);
    let huge_file = files.fs().superblock().ro_compat.has(RoCompat::HUGE_FILE);
    inode.set_size(bad * u64::from(layout.block_size));
    // OK to ignore: without the feature there are fewer blocks than 2 TiB have.
    let _ = inode.set_sectors(sectors, layout.block_size, huge_file);
    Ok(())
}

fn store(files: &mut Files, inode: &mut Inode) -> Result<()> {
    count(files, inode)?;
    let mut raw = inode.as_bytes().to_vec();
    MODE.set(&mut raw, 0);
    write_raw(files.inodes().space_mut(), inode.number(), &raw)
}

/// Makes the list one that can be cut: in the order of its blocks, and with a map that lies before the end. All blocks stay in
/// it for as long as the file system has them.
pub(super) fn sort(files: &mut Files, end: Block) -> Result<()> {
    let Some((mut inode, mut blocks)) = list(files)? else { return Ok(()) };
    let is_sorted = blocks.runs.is_sorted_by_key(|run| run.physical);
    if is_sorted && blocks.of_map.iter().all(|block| *block < end) {
        return Ok(());
    }
    count(files, &mut inode)?;
    blocks.runs.sort_by_key(|run| run.physical);
    while files.inodes().map(&mut inode).take_last(0)?.is_some() {}
    let mut logical = 0;
    for run in blocks.runs {
        files.inodes().map(&mut inode).insert(Mapping { logical, ..run })?;
        logical += run.len;
    }
    store(files, &mut inode)
}

/// Takes the blocks behind the end off a list that is in order.
pub(super) fn cut(files: &mut Files, end: Block) -> Result<()> {
    let Some((mut inode, blocks)) = list(files)? else { return Ok(()) };
    let first_behind = blocks.runs.iter().find_map(|run| {
        let kept = end.checked_since(run.physical).unwrap_or(0);
        (kept < run.len).then_some(run.logical + kept)
    });
    let Some(first_behind) = first_behind else { return Ok(()) };
    count(files, &mut inode)?;
    while let Some(run) = files.inodes().map(&mut inode).take_last(first_behind)? {
        files.inodes().space_mut().free_blocks(run.physical, run.len)?;
    }
    store(files, &mut inode)
}
