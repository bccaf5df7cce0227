//! Inodes of groups that go, put into others: with another number, which names and checksums follow.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use casemate_blockdev::{u32_of, u64_of};

use crate::edit::dir::NewName;
use crate::edit::dir::name::Name;
use crate::edit::files::Files;
use crate::edit::inode::{write, write_new};
use crate::edit::reseal::{Blocks, seal_blocks_of};
use crate::error::{Error, Place, Result, Structure};
use crate::format::bitmap;
use crate::format::csum::{Context, Kind, Subject};
use crate::format::dir::{self, Records};
use crate::format::features::Compat;
use crate::format::group::INODE_UNINIT;
use crate::format::inline;
use crate::format::inode::{Inode, InodeFlags, MODE};
use crate::read::dir::BlockRole;
use crate::read::fs::Ext4;
use crate::units::{GroupNo, InodeNo};

/// Moves all inodes of the groups from one on. How many there were.
pub(super) fn renumber(files: &mut Files, first_group: u32) -> Result<u64> {
    let mut old = Vec::new();
    each_inode(files, first_group, |number| {
        old.push(number);
        Ok(())
    })?;
    let mut directories = Vec::new();
    let fs = files.fs().clone();
    each_inode(files, 0, |number| {
        if fs.any_inode(number)?.is_dir() {
            directories.push(number);
        }
        Ok(())
    })?;
    let mut moved = BTreeMap::new();
    for number in old {
        let new = move_inode(files, number)?;
        moved.insert(number, new);
    }
    for number in directories {
        let number = moved.get(&number).copied().unwrap_or(number);
        let dir = files.get_unlinked(number)?;
        match dir.has(InodeFlags::INLINE_DATA) {
            true => rename_inline(files, dir, &moved)?,
            false => rename(files, &dir, &moved)?,
        }
    }
    Ok(u64_of(moved.len()))
}

/// Gives an inode another number, which nothing names yet.
fn move_inode(files: &mut Files, number: InodeNo) -> Result<InodeNo> {
    let fs = files.fs().clone();
    let inode = fs.any_inode(number)?;
    let refuse =
        |what: &str| Err(Error::unsupported(format!("inode {number} lies behind the new end: {what}")));
    if is_named(&fs, number) {
        return refuse("the superblock names it");
    }
    if inode.has(InodeFlags::EA_INODE) {
        return refuse("it holds the value of an attribute (feature ea_inode)");
    }
    if inode.has(InodeFlags::ENCRYPT) && fs.superblock().compat.has(Compat::STABLE_INODES) {
        return refuse("it is encrypted, and may not change its number (feature stable_inodes)");
    }
    let space = files.inodes().space_mut();
    let new = space.allocate_inode(InodeNo::ROOT, inode.is_dir())?;
    let context = Context { inode: Some(new), ..inode.context() };
    let sums = *fs.checksums();
    seal_blocks_of(space, &sums, &inode, context)?;
    write_new(space, &Inode::from_bytes(new, inode.as_bytes())?)?;
    let now = files.now();
    let mut gone = inode.clone();
    gone.set_links(0);
    gone.set_size(0);
    gone.set_deleted_at(now);
    let space = files.inodes().space_mut();
    write(space, &gone)?;
    space.free_inode(number, inode.is_dir())?;
    Ok(new)
}

/// Sets new numbers in the records of a directory's blocks.
fn rename(files: &mut Files, dir: &Inode, moved: &BTreeMap<InodeNo, InodeNo>) -> Result<()> {
    let fs = files.fs().clone();
    let end = fs.directory_blocks(dir)?;
    let mut blocks = Blocks::default();
    let _ = fs.visit_map(dir, 0, &mut blocks)?;
    let has_tail = fs.checksums().covers(Subject::DirectoryBlock);
    let tail = if has_tail { dir::TAIL } else { 0 };
    let format = fs.entry_format(dir);
    for run in blocks.runs {
        for logical in run.logical..run.end().min(end) {
            let block = run.physical + (logical - run.logical);
            let (bytes, role) = fs.directory_block(dir, logical, block)?;
            let subject = match role {
                BlockRole::Leaf => Subject::DirectoryBlock,
                BlockRole::Node => Subject::HtreeNode,
            };
            let place = Place::inode(Structure::DirectoryBlock, dir.number()).at(block);
            let tail = if role == BlockRole::Leaf { tail } else { 0 };
            for record in Records::new(&bytes, tail, format, place) {
                let record = record?;
                let Some(new) = record.inode.and_then(|inode| moved.get(&inode)) else { continue };
                let at = dir::INODE.from(record.at).at();
                let transaction = files.inodes().transaction();
                transaction.patch(subject, dir.context(), block, at, &new.get().to_le_bytes())?;
            }
        }
    }
    Ok(())
}

/// Sets new numbers in the records of a directory that lies in its inode.
fn rename_inline(files: &mut Files, mut dir: Inode, moved: &BTreeMap<InodeNo, InodeNo>) -> Result<()> {
    let (parent, _) = inline::split(dir.block_area());
    let new_parent = parent.and_then(|parent| moved.get(&parent));
    if let Some(parent) = new_parent {
        inline::set_parent(dir.block_area_mut(), *parent);
    }
    let mut names = Vec::new();
    files.fs().for_each_raw_entry(&dir, &mut |entry| {
        if !matches!(entry.name, b"." | b"..")
            && let Some(new) = moved.get(&entry.inode)
        {
            names.push((Name::exact(entry.name, entry.hash), *new));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    if new_parent.is_none() && names.is_empty() {
        return Ok(());
    }
    for (name, inode) in &names {
        let kind = files.get_unlinked(*inode)?.kind();
        let mut directory = files.directory(&mut dir);
        let found = directory.find_stored(name)?;
        let place = Place::inode(Structure::InlineData, dir.number());
        let found = found.ok_or_else(|| place.malformed("has lost a name"))?;
        let mut directory = files.directory(&mut dir);
        directory.remove(&found)?;
        directory.insert_stored(&NewName { name, inode: *inode, kind })?;
    }
    files.inodes().store(&dir)
}

/// Whether the superblock names an inode.
pub(super) fn is_named(fs: &Ext4, number: InodeNo) -> bool {
    let superblock = fs.superblock();
    superblock.is_internal(number)
        || superblock.quota_inodes.contains(&Some(number))
        || [superblock.journal_inode, superblock.orphan_file].contains(&Some(number))
}

/// Calls `visit` with each inode in use of the groups from one on.
pub(super) fn each_inode(
    files: &Files,
    first_group: u32,
    mut visit: impl FnMut(InodeNo) -> Result<()>,
) -> Result<()> {
    let fs = files.fs();
    let layout = *fs.layout();
    let has_flags = fs.checksums().kind() != Kind::None;
    for group in GroupNo::new(first_group).until(GroupNo::new(layout.groups)) {
        let (flags, block, table) = fs.with_descriptor(group, |descriptor| {
            (descriptor.flags(), descriptor.inode_bitmap(), descriptor.inode_table())
        })?;
        if has_flags && flags & INODE_UNINIT != 0 {
            continue;
        }
        let place = Place::group(Structure::GroupDescriptor, group);
        fs.check_blocks(block, 1, place)?;
        fs.check_blocks(table, layout.inode_table_blocks(), place)?;
        let mut bytes = vec![0; layout.block_len()];
        fs.device().read_at(&mut bytes, layout.offset(block))?;
        let mut at = 0;
        while let Some(bit) = bitmap::next(&bytes, at, layout.inodes_per_group.into(), true) {
            at = bit + 1;
            let Some(number) = layout.inode_at(group, u32_of(bit)) else { break };
            let mut mode = [0; 2];
            let offset = layout.offset(table) + bit * u64::from(layout.inode_size);
            fs.device().read_at(&mut mode, offset + u64_of(MODE.at()))?;
            // Some of the file system's own are of no kind, and have nothing.
            if mode != [0; 2] {
                visit(number)?;
            }
        }
    }
    Ok(())
}
