//! Inodes in use, and the blocks that they lead to: extents, directories, attributes, the orphan file.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use casemate_blockdev::BlockDevice;
use casemate_providers::Work;

use crate::check::findings::{Counts, Findings, Fix};
use crate::check::groups::GroupInodes;
use crate::error::{Corrupt, Error, Place, Problem, Result, Structure};
use crate::format::csum::{Context, Subject};
use crate::format::extent;
use crate::format::inode::{GENERATION, Inode, InodeFlags, LINKS, MODE};
use crate::format::orphan;
use crate::format::xattr::{LARGEST_VALUE, XattrEntries};
use crate::read::dir::BlockRole;
use crate::read::fs::Ext4;
use crate::read::map::{MapVisitor, Mapping};

/// Inodes of a piece of work: a quarter of a megabyte of the usual ones.
const PIECE: u32 = 1024;

/// Directory blocks are read up to so many bytes at once.
const RUN_BYTES: u64 = 1 << 20;

/// The blocks that all inodes together may still lead to. Each block belongs to one inode, so honest ones never
/// need more than there are; hostile ones would keep a check busy for days.
pub(crate) struct Budget(AtomicU64);

impl Budget {
    pub fn new(blocks: u64) -> Budget {
        Budget(AtomicU64::new(blocks))
    }

    fn take(&self, blocks: u64) -> Result<()> {
        let left = |left: u64| left.checked_sub(blocks);
        match self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left) {
            Ok(_) => Ok(()),
            // The same words whichever inode it was: one fault, however many workers meet it.
            Err(_) => Err(Place::of(Structure::Inode).malformed(
                "all inodes together lead to more blocks than the file system has; the rest is not checked",
            )),
        }
    }
}

/// Checks the inodes of these groups and all that they lead to.
pub(crate) fn check_tables(
    fs: &Ext4,
    groups: &[GroupInodes],
    budget: &Budget,
    work: &Work<'_>,
    findings: &Findings,
) -> Result<()> {
    let pieces: Vec<(&GroupInodes, u32)> = groups
        .iter()
        .flat_map(|group| (0..group.used).step_by(PIECE as usize).map(move |first| (group, first)))
        .collect();
    let checker =
        || Checker { fs, findings, budget, table: Vec::new(), blocks: Vec::new(), counts: Counts::default() };
    work.pool.run(pieces.len() as u64, checker, |checker, piece| {
        let (group, first) = pieces[piece as usize];
        checker.piece(group, first)?;
        findings.add(std::mem::take(&mut checker.counts));
        work.events.advance(checker.table.len() as u64)
    })
}

struct Checker<'a> {
    fs: &'a Ext4,
    findings: &'a Findings,
    budget: &'a Budget,
    table: Vec<u8>,
    blocks: Vec<u8>,
    counts: Counts,
}

impl Checker<'_> {
    fn piece(&mut self, group: &GroupInodes, first: u32) -> Result<()> {
        let layout = self.fs.layout();
        let size = layout.inode_size as usize;
        let count = (group.used - first).min(PIECE);
        let offset = layout.offset(group.table) + u64::from(first) * u64::from(layout.inode_size);
        let mut table = std::mem::take(&mut self.table);
        table.resize(count as usize * size, 0);
        self.fs.device().read_at(&mut table, offset)?;
        for (index, raw) in (first..).zip(table.chunks_exact(size)) {
            let in_use = group
                .bitmap
                .as_ref()
                .is_some_and(|bitmap| bitmap[index as usize / 8] >> (index % 8) & 1 == 1);
            let links = LINKS.get(raw);
            if !in_use && links == 0 || is_zero(raw) {
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
        self.counts.add(Structure::Inode, 1);
        let fix = Fix::in_place(offset, raw.len(), Subject::Inode, context);
        if !self.findings.note(self.fs.checksums().verify(Subject::Inode, &context, raw, place), Some(fix)) {
            return Ok(());
        }
        // Reserved inodes may be in use and nothing; inodes without a link are deleted or orphans.
        if MODE.get(raw) == 0 && number < self.fs.superblock().first_inode || LINKS.get(raw) == 0 {
            return Ok(());
        }
        let inode = match Inode::from_bytes(number, raw) {
            Ok(inode) => inode,
            Err(error) => return self.findings.damage(error),
        };
        self.xattrs(&inode)?;
        if inode.has(InodeFlags::EA_INODE) {
            self.xattr_inode(&inode)?;
        }
        if inode.is_dir() {
            return self.directory(&inode);
        }
        if self.fs.superblock().orphan_file == Some(number) {
            return self.orphan_file(&inode);
        }
        // Old maps have no checksums, and a tree of one level lies in the inode.
        if inode.has(InodeFlags::EXTENTS) && !extent::is_leaf(inode.block_area()) {
            self.map(&inode, |_, _| Ok(()))?;
        }
        Ok(())
    }

    /// Walks an inode's map, checks its blocks, and calls `f` for each run.
    fn map(&mut self, inode: &Inode, mut f: impl FnMut(&mut Self, Mapping) -> Result<()>) -> Result<()> {
        struct Visitor<'a, 'b, F> {
            checker: &'a mut Checker<'b>,
            inode: &'a Inode,
            f: &'a mut F,
        }
        impl<'b, F: FnMut(&mut Checker<'b>, Mapping) -> Result<()>> MapVisitor for Visitor<'_, 'b, F> {
            fn mapping(&mut self, mapping: Mapping) -> Result<ControlFlow<()>> {
                (self.f)(self.checker, mapping).map(ControlFlow::Continue)
            }

            fn broken(&mut self, error: Error) -> Result<()> {
                self.checker.broken_map(self.inode, error)
            }

            fn map_block(&mut self, _block: u64) -> Result<()> {
                if self.inode.has(InodeFlags::EXTENTS) {
                    self.checker.counts.add(Structure::ExtentBlock, 1);
                }
                self.checker.budget.take(1)
            }
        }
        if is_skipped_map(inode) {
            return Ok(());
        }
        let fs = self.fs;
        let result = fs.visit_map(inode, 0, &mut Visitor { checker: self, inode, f: &mut f });
        match result {
            Ok(_) => Ok(()),
            Err(error) => self.findings.damage(error),
        }
    }

    fn broken_map(&self, inode: &Inode, error: Error) -> Result<()> {
        let Some(corrupt) = Corrupt::of(&error) else { return Err(error) };
        let place = corrupt.place();
        let fix = match (corrupt.problem(), place.block) {
            (Problem::Checksum { .. }, Some(block)) if place.structure == Structure::ExtentBlock => {
                Some(self.block_fix(block, Subject::ExtentBlock, inode.context()))
            }
            _ => None,
        };
        self.findings.fault(corrupt.clone(), fix);
        Ok(())
    }

    fn block_fix(&self, block: u64, subject: Subject, context: Context) -> Fix {
        let layout = self.fs.layout();
        Fix::in_place(layout.offset(block), layout.block_size as usize, subject, context)
    }

    /// Checks all blocks of a directory.
    fn directory(&mut self, dir: &Inode) -> Result<()> {
        if dir.has(InodeFlags::INLINE_DATA) {
            return Ok(());
        }
        let blocks = match self.fs.directory_blocks(dir) {
            Ok(blocks) => blocks,
            Err(error) => return self.findings.damage(error),
        };
        let context = dir.context();
        self.runs(dir, blocks, |checker, logical, physical, bytes| {
            let role = checker.fs.block_role(dir, logical, bytes);
            let (subject, structure) = match role {
                BlockRole::Leaf => (Subject::DirectoryBlock, Structure::DirectoryBlock),
                BlockRole::Node => (Subject::HtreeNode, Structure::HtreeNode),
            };
            let place = Place::inode(structure, dir.number()).at(physical);
            checker.counts.add(structure, 1);
            let fix = checker.block_fix(physical, subject, context);
            let result = checker.fs.verify_directory_block(role, &context, bytes, place);
            checker.findings.note(result, Some(fix));
            Ok(())
        })
    }

    /// Checks the blocks of the file that lists orphans.
    fn orphan_file(&mut self, file: &Inode) -> Result<()> {
        let blocks = file.size() / u64::from(self.fs.layout().block_size);
        let context = file.context();
        self.runs(file, blocks, |checker, _, block, bytes| {
            let place = Place::inode(Structure::OrphanBlock, file.number()).at(block);
            checker.counts.add(Structure::OrphanBlock, 1);
            if let Err(error) = orphan::check(bytes, place) {
                return checker.findings.damage(error);
            }
            let context = Context { block, ..context };
            let fix = checker.block_fix(block, Subject::OrphanBlock, context);
            let result = checker.fs.checksums().verify(Subject::OrphanBlock, &context, bytes, place);
            checker.findings.note(result, Some(fix));
            Ok(())
        })
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
        self.map(inode, |checker, run| {
            let mut buffer = std::mem::take(&mut checker.blocks);
            let end = run.end().min(blocks);
            let mut logical = run.logical;
            while logical < end && !run.unwritten {
                let count = (end - logical).min((RUN_BYTES / block_size).max(1));
                let first = run.physical + (logical - run.logical);
                checker.budget.take(count)?;
                buffer.resize((count * block_size) as usize, 0);
                checker.fs.device().read_at(&mut buffer, first * block_size)?;
                for (number, bytes) in (0..).zip(buffer.chunks_exact(block_size as usize)) {
                    f(checker, logical + number, first + number, bytes)?;
                }
                logical += count;
            }
            checker.blocks = buffer;
            Ok(())
        })
    }

    /// Checks an inode's block of attributes, and that all its attributes can be read.
    fn xattrs(&mut self, inode: &Inode) -> Result<()> {
        let place = Place::inode(Structure::Xattr, inode.number());
        for entry in XattrEntries::from_inode(inode.xattr_area(), place) {
            if let Err(error) = entry {
                self.findings.damage(error)?;
            }
        }
        let block = inode.xattr_block();
        if block == 0 {
            return Ok(());
        }
        if let Err(error) = self.fs.check_blocks(block, 1, Place::inode(Structure::Inode, inode.number())) {
            return self.findings.damage(error);
        }
        let bytes = self.fs.read_block(block)?;
        // Inodes share such blocks; a fault is the block's.
        let place = Place::of(Structure::XattrBlock).at(block);
        let context = Context { block, ..Context::default() };
        self.counts.add(Structure::XattrBlock, 1);
        let fix = self.block_fix(block, Subject::XattrBlock, context);
        let result = self.fs.checksums().verify(Subject::XattrBlock, &context, &bytes, place);
        if !self.findings.note(result, Some(fix)) {
            return Ok(());
        }
        match XattrEntries::from_block(&bytes, place) {
            Ok(entries) => entries.filter_map(Result::err).try_for_each(|error| self.findings.damage(error)),
            Err(error) => self.findings.damage(error),
        }
    }

    /// Checks the hash of an attribute's value that has its own inode.
    fn xattr_inode(&mut self, inode: &Inode) -> Result<()> {
        let place = Place::inode(Structure::XattrInode, inode.number());
        self.counts.add(Structure::XattrInode, 1);
        let file = match self.fs.open_stored(inode) {
            Ok(file) => file,
            Err(error) => return self.findings.damage(error),
        };
        let value_size = inode.size().min(LARGEST_VALUE.into());
        if let Err(error) = self.budget.take(value_size / u64::from(self.fs.layout().block_size)) {
            return self.findings.damage(error);
        }
        let mut crc = None;
        let mut buffer = vec![0; 1 << 16];
        let mut at = 0;
        while at < value_size {
            let len = (value_size - at).min(buffer.len() as u64) as usize;
            file.read_at(&mut buffer[..len], at)?;
            crc = Some(self.fs.checksums().update(crc, &buffer[..len]));
            at += len as u64;
        }
        let (expected, found) = (self.fs.checksums().update(crc, &[]), inode.value_hash());
        if expected != found && !self.has_lustre_owner(inode) {
            self.findings.fault(Corrupt::new(place, Problem::Checksum { expected, found }), None);
        }
        Ok(())
    }

    /// Whether the inode is a value of the old kind, which points back to its owner and has no hash.
    fn has_lustre_owner(&self, inode: &Inode) -> bool {
        u32::try_from(inode.modified().seconds)
            .ok()
            .and_then(|owner| self.fs.inode(owner).ok())
            .is_some_and(|owner| owner.generation() == inode.generation() && !owner.has(InodeFlags::EA_INODE))
    }
}

/// Maps that lead to no checksums: the file that reserves blocks for more descriptors maps those.
fn is_skipped_map(inode: &Inode) -> bool {
    const RESIZE_INODE: u32 = 7;
    inode.number() == RESIZE_INODE
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks_exact(16).all(|chunk| chunk == [0; 16])
}
