//! The journal, and the file that lists orphans, as they come and go.

use casemate_blockdev::{u64_of, usize_of};

use crate::build::journal_blocks;
use crate::edit::file_map::Cut;
use crate::edit::files::Files;
use crate::edit::inode::{blank, clear, write_new};
use crate::edit::reseal::Blocks;
use crate::edit::too_large::TooLarge;
use crate::error::{Error, Place, Result, Structure};
use crate::format::inode::FileType;
use crate::format::journal_superblock;
use crate::format::orphan;
use crate::units::InodeNo;

/// Bytes of zeros that are written at once.
const CHUNK: usize = 1 << 20;

/// Makes a journal of so many bytes, or of the usual size, in an inode of its own.
pub(super) fn create(files: &mut Files, bytes: Option<u64>) -> Result<()> {
    let layout = *files.fs().layout();
    let blocks = journal_blocks(bytes, layout.blocks, layout.block_size)?;
    if blocks == 0 {
        return Err(Error::unsupported("the file system is too small for a journal"));
    }
    let now = files.now();
    let mut inode = blank(files.fs(), InodeNo::JOURNAL, FileType::Regular, 0, now);
    inode.set_permissions(0o600);
    inode.set_links(1);
    let mut runs = Vec::new();
    let mut map = files.inodes().map(&mut inode);
    map.start();
    map.view().require_free(0, blocks.into())?;
    map.fill(0, blocks.into(), false, |run| runs.push(run))?;
    map.set_size(u64::from(blocks) * u64::from(layout.block_size))?;
    let zeros = vec![0; CHUNK];
    let transaction = files.inodes().transaction();
    for run in &runs {
        let first = if run.logical == 0 {
            transaction.create(run.physical, journal_superblock::new_bytes(layout.block_len(), blocks, 0));
            1
        } else {
            0
        };
        let step = u64_of(CHUNK) / u64::from(layout.block_size);
        let mut at = first;
        while at < run.len {
            let count = step.min(run.len - at);
            let len = usize_of(count * u64::from(layout.block_size));
            transaction.write_data(run.physical + at, &zeros[..len])?;
            at += count;
        }
    }
    // Of the file system's own inodes no slot is another's.
    write_new(files.inodes().space_mut(), &inode)?;
    let (map, size) = (*inode.block_area(), inode.size());
    files.inodes().transaction().edit_superblock(|superblock| {
        superblock.set_journal(InodeNo::JOURNAL, &map, size);
        superblock.add_overhead_clusters(i64::from(blocks.div_ceil(layout.cluster_blocks)));
        Ok(())
    })
}

/// Frees the journal's blocks, and empties its inode. The superblock still names it.
pub(super) fn remove(files: &mut Files) -> Result<()> {
    let Some(number) = files.fs().superblock().journal_inode else {
        return Err(Error::unsupported("a journal on another device can't be removed"));
    };
    let mut inode = files.get_unlinked(number)?;
    let layout = *files.fs().layout();
    let clusters = inode.size().div_ceil(u64::from(layout.block_size) * u64::from(layout.cluster_blocks));
    if files.inodes().map(&mut inode).cut(0)? != Cut::Done {
        return Err(TooLarge::error());
    }
    files.inodes().transaction().edit_superblock(|superblock| {
        superblock.add_overhead_clusters(i64::try_from(clusters).map_or(i64::MIN, |clusters| -clusters));
        Ok(())
    })?;
    if !files.fs().superblock().is_reserved(number) {
        return files.inodes().release(&mut inode);
    }
    clear(files.inodes().space_mut(), &inode)
}

/// Frees the file that lists orphans. It lists none: who opens a file system for changes deletes what waits for that.
///
/// # Errors
/// `Corrupt` for a block that is none of such a file: its map leads to blocks of others, which must not be freed.
pub(super) fn remove_orphan_file(files: &mut Files) -> Result<()> {
    if let Some(number) = files.fs().superblock().orphan_file {
        let mut inode = files.get_unlinked(number)?;
        let mut blocks = Blocks::default();
        let _ = files.fs().visit_map(&inode, 0, &mut blocks)?;
        for block in blocks.runs.iter().flat_map(|run| run.physical.run(run.len)) {
            let place = Place::inode(Structure::OrphanBlock, number).at(block);
            files.inodes().transaction().with(block, |bytes| orphan::check(bytes, place))??;
        }
        files.inodes().release(&mut inode)?;
    }
    files.inodes().transaction().edit_superblock(|superblock| {
        superblock.set_orphan_file(None);
        Ok(())
    })
}
