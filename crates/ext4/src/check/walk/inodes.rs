//! Inodes in use, and the blocks that they lead to: maps, directories, attributes, the file system's own files.

use std::ops::ControlFlow;

use casemate_blockdev::BlockDevice;
use casemate_providers::Work;

use crate::check::visit::{Item, Visitor};
use crate::check::walk::Budget;
use crate::check::walk::groups::GroupInodes;
use crate::error::{Error, Place, Result, Structure};
use crate::format::csum::Context;
use crate::format::extent;
use crate::format::inode::{GENERATION, Inode, InodeFlags, LINKS, MODE};
use crate::format::xattr::{LARGEST_VALUE, XattrEntries};
use crate::read::dir::BlockRole;
use crate::read::fs::Ext4;
use crate::read::map::{MapVisitor, Mapping};

/// Bytes of inode tables that are a piece of work.
const PIECE_BYTES: u32 = 1 << 18;

/// Blocks of a file are read up to so many bytes at once.
const RUN_BYTES: u64 = 1 << 20;

/// Visits the inodes of these groups and all that they lead to.
pub(crate) fn tables<V: Visitor>(
    fs: &Ext4,
    work: &Work<'_>,
    visitor: impl Fn() -> V + Sync,
    groups: &[GroupInodes],
    budget: &Budget,
) -> Result<()> {
    let per_piece = PIECE_BYTES / fs.layout().inode_size;
    let pieces: Vec<(&GroupInodes, u32)> = groups
        .iter()
        .flat_map(|group| (0..group.used).step_by(per_piece as usize).map(move |first| (group, first)))
        .collect();
    let walk = || Walk { fs, visitor: visitor(), budget, per_piece, table: Vec::new(), blocks: Vec::new() };
    work.pool.run(pieces.len() as u64, walk, |walk, piece| {
        let (group, first) = pieces[piece as usize];
        walk.piece(group, first)?;
        work.events.advance(walk.table.len() as u64)
    })
}

struct Walk<'a, V> {
    fs: &'a Ext4,
    visitor: V,
    budget: &'a Budget,
    /// Inodes of a piece of work.
    per_piece: u32,
    table: Vec<u8>,
    blocks: Vec<u8>,
}

impl<V: Visitor> Walk<'_, V> {
    fn piece(&mut self, group: &GroupInodes, first: u32) -> Result<()> {
        let layout = self.fs.layout();
        let size = layout.inode_size as usize;
        let count = (group.used - first).min(self.per_piece);
        let offset = layout.offset(group.table) + u64::from(first) * u64::from(layout.inode_size);
        let mut table = std::mem::take(&mut self.table);
        table.resize(count as usize * size, 0);
        self.fs.device().read_at(&mut table, offset)?;
        for (index, raw) in (first..).zip(table.chunks_exact(size)) {
            let in_use = group
                .bitmap
                .as_ref()
                .is_some_and(|bitmap| bitmap[index as usize / 8] >> (index % 8) & 1 == 1);
            if !in_use && LINKS.get(raw) == 0 || is_zero(raw) {
                continue;
            }
            let number = group.group * layout.inodes_per_group + index + 1;
            self.inode(number, raw, offset + u64::from(index - first) * size as u64)?;
        }
        self.table = table;
        Ok(())
    }

    fn inode(&mut self, number: u32, raw: &[u8], offset: u64) -> Result<()> {
        let place = Place::inode(Structure::Inode, number);
        let context = Context { inode: number, generation: GENERATION.get(raw), ..Context::default() };
        if !self.visitor.structure(&Item { place, offset, bytes: raw, context })? {
            return Ok(());
        }
        // Reserved inodes may be in use and nothing; inodes without a link are deleted or orphans.
        let superblock = self.fs.superblock();
        if MODE.get(raw) == 0 && number < superblock.first_inode || LINKS.get(raw) == 0 {
            return Ok(());
        }
        let inode = match Inode::from_bytes(number, raw) {
            Ok(inode) => inode,
            Err(error) => return self.visitor.damage(error),
        };
        self.xattrs(&inode)?;
        if inode.has(InodeFlags::EA_INODE) {
            self.value(&inode)?;
        }
        if inode.is_dir() {
            return self.directory(&inode);
        }
        if superblock.orphan_file == Some(number) {
            return self.orphan_file(&inode);
        }
        if superblock.quota_inodes.contains(&number) && self.visitor.wants(Structure::QuotaFile) {
            return self.quota_file(&inode);
        }
        // A tree of one level lies in the inode.
        let has_blocks = match inode.has(InodeFlags::EXTENTS) {
            true => !extent::is_leaf(inode.block_area()),
            false => self.visitor.wants(Structure::IndirectBlock),
        };
        if has_blocks {
            self.map(&inode, |_, _| Ok(()))?;
        }
        Ok(())
    }

    /// Walks an inode's map, visits its blocks, and calls `f` for each run.
    fn map(&mut self, inode: &Inode, f: impl FnMut(&mut Self, Mapping) -> Result<()>) -> Result<()> {
        struct Blocks<'a, 'b, V, F> {
            walk: &'a mut Walk<'b, V>,
            f: F,
        }
        impl<'b, V: Visitor, F> MapVisitor for Blocks<'_, 'b, V, F>
        where
            F: FnMut(&mut Walk<'b, V>, Mapping) -> Result<()>,
        {
            fn mapping(&mut self, mapping: Mapping) -> Result<ControlFlow<()>> {
                (self.f)(self.walk, mapping).map(ControlFlow::Continue)
            }

            fn broken(&mut self, error: Error) -> Result<()> {
                self.walk.visitor.damage(error)
            }

            fn map_block(&mut self, _block: u64) -> Result<()> {
                self.walk.budget.take(1)
            }

            fn node(
                &mut self,
                fs: &Ext4,
                inode: &Inode,
                place: Place,
                block: u64,
                bytes: &[u8],
            ) -> Result<bool> {
                if !self.walk.visitor.wants(place.structure) {
                    return Ok(true);
                }
                let (offset, context) = (fs.layout().offset(block), inode.context());
                self.walk.visitor.structure(&Item { place, offset, bytes, context })
            }
        }
        if is_skipped_map(inode) {
            return Ok(());
        }
        let fs = self.fs;
        match fs.visit_map(inode, 0, &mut Blocks { walk: self, f }) {
            Ok(_) => Ok(()),
            Err(error) => self.visitor.damage(error),
        }
    }

    fn directory(&mut self, dir: &Inode) -> Result<()> {
        if dir.has(InodeFlags::INLINE_DATA) {
            return Ok(());
        }
        let blocks = match self.fs.directory_blocks(dir) {
            Ok(blocks) => blocks,
            Err(error) => return self.visitor.damage(error),
        };
        let context = dir.context();
        self.runs(dir, blocks, |walk, logical, physical, bytes| {
            let structure = match walk.fs.block_role(dir, logical, bytes) {
                BlockRole::Leaf => Structure::DirectoryBlock,
                BlockRole::Node => Structure::HtreeNode,
            };
            walk.block(Place::inode(structure, dir.number()).at(physical), physical, bytes, context)
        })
    }

    /// The file that lists orphans.
    fn orphan_file(&mut self, file: &Inode) -> Result<()> {
        let blocks = file.size() / u64::from(self.fs.layout().block_size);
        let context = file.context();
        self.runs(file, blocks, |walk, _, block, bytes| {
            let place = Place::inode(Structure::OrphanBlock, file.number()).at(block);
            walk.block(place, block, bytes, Context { block, ..context })
        })
    }

    fn quota_file(&mut self, file: &Inode) -> Result<()> {
        let blocks = file.size().div_ceil(u64::from(self.fs.layout().block_size));
        let context = file.context();
        self.runs(file, blocks, |walk, _, block, bytes| {
            walk.block(Place::inode(Structure::QuotaFile, file.number()).at(block), block, bytes, context)
        })
    }

    fn block(&mut self, place: Place, block: u64, bytes: &[u8], context: Context) -> Result<()> {
        let offset = self.fs.layout().offset(block);
        self.visitor.structure(&Item { place, offset, bytes, context }).map(|_| ())
    }

    /// Calls `f` with each of the first `blocks` blocks of a file: number in the file, number on the device,
    /// bytes.
    fn runs(
        &mut self,
        inode: &Inode,
        blocks: u64,
        mut f: impl FnMut(&mut Self, u64, u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let block_size = u64::from(self.fs.layout().block_size);
        self.map(inode, |walk, run| {
            let mut buffer = std::mem::take(&mut walk.blocks);
            let end = run.end().min(blocks);
            let mut logical = run.logical;
            while logical < end && !run.unwritten {
                let count = (end - logical).min((RUN_BYTES / block_size).max(1));
                let first = run.physical + (logical - run.logical);
                walk.budget.take(count)?;
                buffer.resize((count * block_size) as usize, 0);
                walk.fs.device().read_at(&mut buffer, first * block_size)?;
                for (number, bytes) in (0..).zip(buffer.chunks_exact(block_size as usize)) {
                    f(walk, logical + number, first + number, bytes)?;
                }
                logical += count;
            }
            walk.blocks = buffer;
            Ok(())
        })
    }

    /// An inode's block of attributes, and whether all its attributes can be read.
    fn xattrs(&mut self, inode: &Inode) -> Result<()> {
        let place = Place::inode(Structure::Xattr, inode.number());
        self.entries(XattrEntries::from_inode(inode.xattr_area(), place))?;
        let block = inode.xattr_block();
        if block == 0 {
            return Ok(());
        }
        if let Err(error) = self.fs.check_blocks(block, 1, Place::inode(Structure::Inode, inode.number())) {
            return self.visitor.damage(error);
        }
        let bytes = self.fs.read_block(block)?;
        // Inodes share such blocks; a fault is the block's.
        let place = Place::of(Structure::XattrBlock).at(block);
        let context = Context { block, ..Context::default() };
        let offset = self.fs.layout().offset(block);
        if !self.visitor.structure(&Item { place, offset, bytes: &bytes, context })? {
            return Ok(());
        }
        match XattrEntries::from_block(&bytes, place) {
            Ok(entries) => self.entries(entries),
            Err(error) => self.visitor.damage(error),
        }
    }

    fn entries(&mut self, mut entries: XattrEntries<'_>) -> Result<()> {
        entries.try_for_each(|entry| entry.map(|_| ()).or_else(|error| self.visitor.damage(error)))
    }

    /// The value of an attribute, in an inode that holds one.
    fn value(&mut self, inode: &Inode) -> Result<()> {
        let contents = match self.fs.open_stored(inode) {
            Ok(contents) => contents.with_size(inode.size().min(LARGEST_VALUE.into())),
            Err(error) => return self.visitor.damage(error),
        };
        match self.budget.take(contents.size() / u64::from(self.fs.layout().block_size)) {
            Ok(()) => self.visitor.value(inode, &contents),
            Err(error) => self.visitor.damage(error),
        }
    }
}

/// Maps that lead to no metadata of their own: the file that reserves blocks for more descriptors maps those.
fn is_skipped_map(inode: &Inode) -> bool {
    const RESIZE_INODE: u32 = 7;
    inode.number() == RESIZE_INODE
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks_exact(16).all(|chunk| chunk == [0; 16])
}
