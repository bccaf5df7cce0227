//! Blocks of metadata that belong to inodes, and the superblock's counts.

use casemate_blockdev::BlockDevice;

use crate::edit::inode::InodeMut;
use crate::edit::{Counts, Writer};
use crate::error::{Place, Result, Structure};
use crate::format::bytes::{join, le32};
use crate::format::csum::{Context, Subject};
use crate::format::features::Incompat;
use crate::format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use crate::transaction::patch::Part;

impl Writer {
    /// A whole block of the file system as one structure.
    pub(crate) fn whole(&self, subject: Subject, context: Context) -> Part {
        Part { subject, context, base: 0, len: self.block_size() }
    }

    /// Changes bytes of a block that is one structure, and patches its checksum.
    pub(crate) fn patch(
        &mut self,
        subject: Subject,
        context: Context,
        block: u64,
        at: usize,
        new: &[u8],
    ) -> Result<()> {
        let part = self.whole(subject, context);
        self.cache.update(block, |edit| self.patcher.patch(edit, &part, at, new))?;
        Ok(())
    }

    /// Puts a new block in place, with its checksum.
    pub(crate) fn create_block(
        &mut self,
        subject: Subject,
        context: Context,
        block: u64,
        mut bytes: Vec<u8>,
    ) {
        self.patcher.seal(&self.whole(subject, context), &mut bytes);
        self.hints.last_records.remove(&block);
        self.cache.create(block, bytes.into());
    }

    /// A block's bytes, through the cache, which keeps it from now on. It is checked when it comes in.
    pub(crate) fn load(
        &self,
        block: u64,
        place: Place,
        check: impl FnOnce(&[u8]) -> Result<()>,
    ) -> Result<()> {
        if self.cache.holds(block) {
            return Ok(());
        }
        self.fs.check_blocks(block, 1, place)?;
        let mut bytes = vec![0; self.block_size()];
        self.cache.read_at(&mut bytes, self.fs.layout().offset(block))?;
        check(&bytes)?;
        self.cache.with(block, |_| ())?;
        Ok(())
    }

    /// What the checksums of an inode's blocks start from.
    pub(crate) fn context_of(&self, inode: &InodeMut) -> Context {
        Context { inode: inode.number(), generation: inode.generation(), ..Context::default() }
    }

    /// Counts what is free by the groups: the kernel writes the sums only when it closes a file system.
    pub(crate) fn recount(&mut self) -> Result<()> {
        let (mut clusters, mut inodes) = (0, 0);
        for group in 0..self.fs.layout().groups {
            let descriptor = self.descriptor(group)?;
            clusters += i64::from(descriptor.fields().free_clusters());
            inodes += i64::from(descriptor.fields().free_inodes());
        }
        let superblock = self.fs.superblock();
        let said = (superblock.blocks_free / self.ratio()).cast_signed();
        self.free = Counts {
            clusters: clusters.saturating_sub(said),
            inodes: inodes - i64::from(superblock.inodes_free),
        };
        Ok(())
    }

    /// Writes the counts that changed since the last commit to the superblock.
    pub(crate) fn commit_counts(&mut self) -> Result<()> {
        let Counts { clusters, inodes } = std::mem::take(&mut self.free);
        let change = clusters * self.ratio().cast_signed();
        self.base.clusters += clusters;
        self.base.inodes += inodes;
        if self.cache.dirty_count() == 0 && change == 0 && inodes == 0 {
            return Ok(());
        }
        let now = self.now().seconds;
        let is_wide = self.fs.superblock().incompat.has(Incompat::BITS64);
        let place = Place::of(Structure::Superblock);
        self.edit_superblock(|raw| {
            let blocks = join(le32(raw, 0xc), if is_wide { le32(raw, 0x158) } else { 0 });
            let blocks = blocks.checked_add_signed(change);
            let inodes = i64::from(le32(raw, 0x10)) + inodes;
            let pair = blocks.zip(u32::try_from(inodes).ok());
            let Some((blocks, inodes)) = pair else {
                return Err(place.malformed("its free counts are lower than those of the groups"));
            };
            raw[0xc..0x10].copy_from_slice(&blocks.to_le_bytes()[..4]);
            if is_wide {
                raw[0x158..0x15c].copy_from_slice(&blocks.to_le_bytes()[4..]);
            }
            raw[0x10..0x14].copy_from_slice(&inodes.to_le_bytes());
            // s_wtime with its high byte.
            raw[0x30..0x34].copy_from_slice(&now.to_le_bytes()[..4]);
            raw[0x274] = now.to_le_bytes()[4];
            Ok(())
        })
    }

    /// Sets a feature in the word at `at` of the superblock.
    pub(crate) fn add_feature(&mut self, at: usize, feature: u32) -> Result<()> {
        self.edit_superblock(|raw| {
            if le32(raw, 0x4c) == 0 {
                // The first revision knows no features; what it takes for granted, the next one says.
                for (at, value) in [(0x4c, 1u32), (0x54, 11), (0x58, 128), (0x5c, 0), (0x60, 0), (0x64, 0)] {
                    raw[at..at + 4].copy_from_slice(&value.to_le_bytes());
                }
            }
            let features = le32(raw, at) | feature;
            raw[at..at + 4].copy_from_slice(&features.to_le_bytes());
            Ok(())
        })
    }

    /// Changes fields of the superblock.
    pub(crate) fn edit_superblock(&mut self, f: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()> {
        let size = self.block_size() as u64;
        let (block, base) = (SUPERBLOCK_OFFSET / size, (SUPERBLOCK_OFFSET % size) as usize);
        let range = base..base + SUPERBLOCK_SIZE;
        let mut raw = self.cache.with(block, |bytes| bytes[range].to_vec())?;
        f(&mut raw)?;
        let context = Context::default();
        let part = Part { subject: Subject::Superblock, context, base, len: SUPERBLOCK_SIZE };
        self.cache.update(block, |edit| {
            self.patcher.rewrite(edit, &part, &mut raw);
            // It is part of every transaction, changed or not: what marks the image as being changed goes with it.
            edit.write(base, &[]);
        })?;
        Ok(())
    }
}
