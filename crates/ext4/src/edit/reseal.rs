//! Checksums of structures that stay where they are, computed anew because what they begin with is another: the seed of
//! the file system, or an inode's number.

use std::ops::ControlFlow;

use crate::alloc::Allocator;
use crate::error::{Place, Result, Structure};
use crate::format::csum::{Checksums, Context, Subject, recipe};
use crate::format::inode::{Inode, InodeFlags};
use crate::format::orphan;
use crate::read::dir::BlockRole;
use crate::read::mapping::{MapVisitor, Mapping};
use crate::transaction::patch::{Part, Patcher, Patching};
use crate::units::Block;

/// Computes the checksum of a structure in a block, and stores it if it is another.
pub(crate) fn seal(space: &mut Allocator, sums: &Checksums, block: Block, part: &Part) -> Result<()> {
    if !sums.covers(part.subject) {
        return Ok(());
    }
    let patcher = Patcher { sums: *sums, patching: Patching::Recompute };
    let recipe = recipe(part.subject);
    space.transaction_mut().update(block, |edit| {
        let bytes = &edit.bytes()[part.base..part.base + part.len];
        let sum = sums.compute(recipe, &part.context, bytes);
        if let Some(sum) = sum.filter(|sum| sums.stored(recipe, bytes) != Some(*sum)) {
            patcher.write_sum(edit, part, sum);
        }
    })
}

/// Computes the checksum of a block that is one structure, and stores it if it is another.
pub(crate) fn seal_block(
    space: &mut Allocator,
    sums: &Checksums,
    subject: Subject,
    context: Context,
    block: Block,
) -> Result<()> {
    let part = space.transaction().whole(subject, context);
    seal(space, sums, block, &part)
}

/// Seals all blocks whose checksums begin with an inode's number: those of its tree of extents, of a directory, and of the
/// file of orphans. `context` is what they begin with from now on; `inode` is still as it was.
///
/// # Errors
/// `Corrupt` for a block that is not what it should be by its checksum until now: it may be a block of somebody's data, to
/// which a wrong map leads.
pub(crate) fn seal_blocks_of(
    space: &mut Allocator,
    sums: &Checksums,
    inode: &Inode,
    context: Context,
) -> Result<()> {
    let fs = space.fs().clone();
    let mut blocks = Blocks::default();
    let _ = fs.visit_map(inode, 0, &mut blocks)?;
    let (number, old) = (inode.number(), inode.context());
    if inode.is_dir() && !inode.has(InodeFlags::INLINE_DATA) {
        let end = fs.directory_blocks(inode)?;
        for run in &blocks.runs {
            for logical in run.logical..run.end().min(end) {
                let block = run.physical + (logical - run.logical);
                let (bytes, role) = fs.directory_block(inode, logical, block)?;
                let (subject, structure) = match role {
                    BlockRole::Leaf => (Subject::DirectoryBlock, Structure::DirectoryBlock),
                    BlockRole::Node => (Subject::HtreeNode, Structure::HtreeNode),
                };
                let place = Place::inode(structure, number).at(block);
                fs.verify_directory_block(role, &old, &bytes, place)?;
                seal_block(space, sums, subject, context, block)?;
            }
        }
    }
    if fs.superblock().orphan_file == Some(number) {
        for block in blocks.runs.iter().flat_map(|run| run.physical.run(run.len)) {
            let place = Place::inode(Structure::OrphanBlock, number).at(block);
            let bytes = space.transaction().with(block, <[u8]>::to_vec)?;
            orphan::check(&bytes, place)?;
            fs.checksums().verify(Subject::OrphanBlock, &Context { block, ..old }, &bytes, place)?;
            seal_block(space, sums, Subject::OrphanBlock, Context { block, ..context }, block)?;
        }
    }
    if inode.has(InodeFlags::EXTENTS) {
        for block in &blocks.of_map {
            let place = Place::inode(Structure::ExtentBlock, number).at(*block);
            let bytes = space.transaction().with(*block, <[u8]>::to_vec)?;
            fs.checksums().verify(Subject::ExtentBlock, &old, &bytes, place)?;
            seal_block(space, sums, Subject::ExtentBlock, context, *block)?;
        }
    }
    Ok(())
}

/// The blocks of a file, and those of its map.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    pub runs: Vec<Mapping>,
    pub of_map: Vec<Block>,
}

impl MapVisitor for Blocks {
    fn mapping(&mut self, mapping: Mapping) -> Result<ControlFlow<()>> {
        self.runs.push(mapping);
        Ok(ControlFlow::Continue(()))
    }

    fn map_block(&mut self, block: Block) -> Result<()> {
        self.of_map.push(block);
        Ok(())
    }
}
