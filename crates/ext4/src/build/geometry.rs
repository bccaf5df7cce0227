//! The numbers of a new file system: how many groups, inodes and descriptors it has. Pure arithmetic.
//!
//! mke2fs computes these numbers from the same options, so its output (`mke2fs -n`, dumpe2fs) can be compared.

use casemate_blockdev::u32_of;

use crate::build::options::{BuildOptions, Features};
use crate::error::{Error, Result};
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::layout::Copies;
use crate::number::percent_of;
use crate::units::{GroupNo, InodeNo};

/// Blocks that a group has room for besides its own metadata; a last one with fewer is left out.
const LEAST_IN_GROUP: u64 = 50;

/// Blocks from one number to the next that is tried, where too few are left for the groups' own.
const STEP: u64 = 16;

/// Blocks of a journal by the blocks of the file system.
const JOURNAL_SIZES: [(u64, u32); 8] = [
    (2048, 0),
    (32768, 1024),
    (262_144, 4096),
    (524_288, 8192),
    (4 << 20, 16384),
    (8 << 20, 32768),
    (16 << 20, 65536),
    (32 << 20, 131_072),
];
const LARGEST_JOURNAL: u32 = 262_144;

/// Blocks that a journal has, whoever asks for one.
const JOURNAL_LIMITS: std::ops::RangeInclusive<u64> = 1024..=10_240_000;

/// Refusal of a number of blocks, where a larger one may do.
#[derive(Debug)]
pub(crate) struct TooSmall {
    /// The next number of blocks that is worth a try.
    pub next: u64,
    /// The refusal, for whoever has no more blocks.
    pub error: Error,
}

/// Numbers, or the refusal of too few blocks.
pub(crate) type Fitted<T> = std::result::Result<T, TooSmall>;

/// Numbers of a file system.
#[derive(Clone, Debug)]
pub struct Geometry {
    /// Features, without those that the numbers rule out.
    pub features: Features,
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks of a cluster.
    pub cluster_blocks: u32,
    /// Blocks of the file system.
    pub blocks: u64,
    /// The first block of the first group.
    pub first_data_block: u32,
    /// Blocks of a group.
    pub blocks_per_group: u32,
    /// Groups.
    pub groups: u32,
    /// Groups whose metadata lie together, with the feature flex_bg.
    pub groups_per_flex: u32,
    /// Inodes of a group.
    pub inodes_per_group: u32,
    /// Bytes of an inode.
    pub inode_size: u32,
    /// Bytes of a group's descriptor.
    pub descriptor_size: u32,
    /// Blocks of all descriptors.
    pub descriptor_blocks: u32,
    /// Blocks behind them, for more descriptors.
    pub reserved_descriptor_blocks: u32,
    /// Blocks that are root's.
    pub reserved_blocks: u64,
    /// Blocks of the journal, those for fast commits among them.
    pub journal_blocks: u32,
    /// Of these, those for fast commits.
    pub fast_commit_blocks: u32,
    /// Blocks of the file that lists orphans.
    pub orphan_blocks: u32,
    /// The groups with copies under the feature sparse_super2.
    pub backup_groups: [GroupNo; 2],
}

impl Geometry {
    /// The numbers of a file system of at most `blocks` blocks, in which at least `inodes` inodes are used.
    ///
    /// # Errors
    /// `Argument` for options that contradict each other, or that leave no room for `inodes`; `StorageFull` for too few
    /// blocks.
    pub fn new(options: &BuildOptions, blocks: u64, inodes: u64) -> Result<Geometry> {
        Geometry::fitted(options, blocks, inodes)?.map_err(|small| small.error)
    }

    /// The numbers of [`Geometry::new`]; of too few blocks it says which number to try next.
    ///
    /// # Errors
    /// Errors of [`Geometry::new`] that no larger number of blocks mends.
    pub(crate) fn fitted(options: &BuildOptions, blocks: u64, inodes: u64) -> Result<Fitted<Geometry>> {
        options.check()?;
        if let Some(most) = options.resize.filter(|most| *most <= blocks) {
            let text = format!("extended option resize={most}: the file system has {blocks} blocks already");
            return Err(Error::argument(text));
        }
        let features = options.features.settled()?;
        let has_bigalloc = features.ro_compat.has(RoCompat::BIGALLOC);
        let bits64 = features.incompat.has(Incompat::BITS64);
        let block_size = options.block_size;
        let cluster_blocks = options.cluster_size() / block_size;
        let first_data_block = u32::from(block_size == 1024 && !has_bigalloc);
        let most_per_group = (8 * block_size).min(if has_bigalloc { 8 * block_size } else { 65528 });
        let per_group = options.blocks_per_group.unwrap_or(most_per_group).min(most_per_group);
        let blocks_per_group = per_group
            .checked_mul(cluster_blocks)
            .ok_or_else(|| Error::argument("clusters and groups of them that have more than 2^32 blocks"))?;
        let most_blocks: u64 = if bits64 { 1 << 48 } else { u32::MAX.into() };
        if blocks > most_blocks {
            let text = format!("{blocks} blocks need the feature 64bit");
            return Err(Error::argument(text));
        }
        let bytes = u128::from(blocks) * u128::from(block_size);
        let of_ratio = || u32_of(bytes / u128::from(options.inode_ratio));
        let wanted = u64::from(options.inodes.unwrap_or_else(of_ratio));
        if options.inodes.is_some() && wanted < inodes {
            let text = format!("{wanted} inodes, and {inodes} are needed");
            return Err(Error::argument(text));
        }
        let mut geometry = Geometry {
            features,
            block_size,
            cluster_blocks,
            blocks,
            first_data_block,
            blocks_per_group,
            groups: 0,
            groups_per_flex: options.groups_per_flex,
            inodes_per_group: 0,
            inode_size: options.inode_size,
            descriptor_size: if bits64 { 64 } else { 32 },
            descriptor_blocks: 0,
            reserved_descriptor_blocks: 0,
            reserved_blocks: 0,
            journal_blocks: 0,
            fast_commit_blocks: 0,
            orphan_blocks: 0,
            backup_groups: [GroupNo::PRIMARY; 2],
        };
        // Rounding may leave fewer than were wanted.
        let mut asked = wanted.max(inodes).max(u64::from(InodeNo::LOST_AND_FOUND.get()) + 1);
        loop {
            let mut divided = geometry.clone();
            if let Err(small) = divided.divide(options, asked)? {
                // Tables that take all bytes of which inodes follow leave no room, however many bytes there are.
                let is_ratio = options.inodes.is_none() && wanted > inodes;
                return match is_ratio && u64::from(options.inode_size) >= options.inode_ratio {
                    true => Err(small.error),
                    false => Ok(Err(small)),
                };
            }
            let missing = inodes.saturating_sub(divided.inodes().into());
            if missing == 0 {
                geometry = divided;
                break;
            }
            asked += missing.next_multiple_of(8 * u64::from(divided.groups));
        }
        geometry.reserved_blocks = percent_of(options.reserved_percent, geometry.blocks);
        geometry.set_journal(options)?;
        geometry.set_orphan_file(options);
        Ok(Ok(geometry))
    }

    /// Inodes of the file system.
    pub fn inodes(&self) -> u32 {
        self.inodes_per_group * self.groups
    }

    /// Blocks of a group's inode table.
    pub fn inode_table_blocks(&self) -> u32 {
        // A bitmap's inodes of at most a block each.
        let bytes = u64::from(self.inodes_per_group) * u64::from(self.inode_size);
        u32_of(bytes.div_ceil(self.block_size.into()))
    }

    /// The blocks of the copies of the superblock.
    pub fn backups(&self) -> impl Iterator<Item = u64> {
        let copies = self.copies();
        let block = |group: GroupNo| {
            u64::from(self.first_data_block) + u64::from(group.get()) * u64::from(self.blocks_per_group)
        };
        GroupNo::first(self.groups).skip(1).filter(move |group| copies.has(*group)).map(block)
    }

    /// The groups with copies of the superblock.
    pub(crate) fn copies(&self) -> Copies {
        Copies::of(self.features.compat, self.features.ro_compat, self.backup_groups)
    }

    /// The blocks that the file system must have for its last group to be one, if what is asked for is less.
    pub(crate) fn least_with_more_groups(&self) -> u64 {
        let mut next = self.clone();
        next.groups += 1;
        u64::from(self.first_data_block)
            + u64::from(self.groups) * u64::from(self.blocks_per_group)
            + next.overhead_of_last()
            + LEAST_IN_GROUP
    }

    /// Divides the blocks into groups with so many inodes in all.
    fn divide(&mut self, options: &BuildOptions, inodes: u64) -> Result<Fitted<()>> {
        let asked = self.blocks;
        let too_small = |least: u64| {
            let text = format!(
                "a size of {asked} blocks is too small: this file system needs at least {least} blocks"
            );
            let error = std::io::Error::new(std::io::ErrorKind::StorageFull, text).into();
            // In whole steps, over those that lie below the least.
            let steps = (least.saturating_sub(asked) / STEP).max(1);
            TooSmall { next: asked + steps * STEP, error }
        };
        if self.blocks <= u64::from(self.first_data_block) + 8 {
            return Ok(Err(too_small(u64::from(self.first_data_block) + 9)));
        }
        loop {
            let data_blocks = self.blocks - u64::from(self.first_data_block);
            let groups = data_blocks.div_ceil(self.blocks_per_group.into());
            self.groups = u32::try_from(groups).map_err(|_| Error::argument("more than 2^32 groups"))?;
            self.descriptor_blocks = self.groups.div_ceil(self.block_size / self.descriptor_size);
            self.set_backups(options);
            let per_group = inodes.div_ceil(groups);
            if per_group > u64::from(8 * self.block_size) {
                let shrinks = self.cluster_blocks == 1 && options.blocks_per_group.is_none();
                if shrinks && self.blocks_per_group > 256 {
                    self.blocks_per_group -= 8;
                    self.blocks = asked;
                    continue;
                }
                let next = match shrinks {
                    true => self.least_with_tables(inodes).max(asked + STEP),
                    false => self.least_with_room(options, inodes).max(asked + 1),
                };
                return self.too_many_inodes(options, inodes, next);
            }
            self.set_inodes(per_group);
            self.reserve_descriptors(options);
            let rest = data_blocks % u64::from(self.blocks_per_group);
            let overhead = self.overhead_of_last();
            if self.groups == 1 && rest > 0 && rest < overhead {
                return Ok(Err(too_small(overhead + u64::from(self.first_data_block))));
            }
            if self.groups == 1 || rest == 0 || rest >= overhead + LEAST_IN_GROUP {
                let tables = u64::from(self.groups) * u64::from(self.inode_table_blocks());
                if tables <= self.blocks {
                    return Ok(Ok(()));
                }
                let mut small = too_small(tables + 1);
                if self.blocks < asked {
                    // A last group was left out: all of it may do.
                    small.next = self.least_with_more_groups().max(asked + 1);
                }
                return Ok(Err(small));
            }
            self.blocks -= rest;
        }
    }

    /// Refuses more inodes than the groups have room for; for good if they follow from the blocks, and the `next` number of
    /// these has no room for its own.
    fn too_many_inodes(&self, options: &BuildOptions, inodes: u64, next: u64) -> Result<Fitted<()>> {
        let noun = if self.groups == 1 { "group has" } else { "groups have" };
        let text = format!("{inodes} inodes: more than {} {noun} room for", self.groups);
        let error = Error::argument(text);
        let groups = (next - u64::from(self.first_data_block)).div_ceil(self.blocks_per_group.into());
        let of_ratio = u128::from(next) * u128::from(self.block_size) / u128::from(options.inode_ratio);
        // A full group's are too many then, and a last one that is only begun makes up for fewer the more there are.
        let room = u128::from(groups) * u128::from(8 * self.block_size);
        if options.inodes.is_none() && of_ratio > room {
            Err(error)
        } else {
            Ok(Err(TooSmall { next, error }))
        }
    }

    /// Blocks of the tables of so many inodes, behind the blocks before the first group.
    fn least_with_tables(&self, inodes: u64) -> u64 {
        let tables = inodes.saturating_mul(self.inode_size.into()) / u64::from(self.block_size);
        u64::from(self.first_data_block) + tables
    }

    /// The blocks that groups have that have room for so many inodes, and are more than there are.
    fn least_with_room(&self, options: &BuildOptions, inodes: u64) -> u64 {
        let mut next = self.clone();
        let groups = inodes.div_ceil(u64::from(8 * self.block_size)).max(u64::from(self.groups) + 1);
        next.groups = u32_of(groups);
        next.set_inodes(inodes.div_ceil(groups));
        next.descriptor_blocks = next.groups.div_ceil(self.block_size / self.descriptor_size);
        next.set_backups(options);
        let before = u64::from(self.first_data_block) + (groups - 1) * u64::from(self.blocks_per_group);
        next.blocks = before + u64::from(self.blocks_per_group);
        next.reserve_descriptors(options);
        before + next.overhead_of_last() + LEAST_IN_GROUP
    }

    /// Fills whole blocks of inode tables, in eights.
    fn set_inodes(&mut self, per_group: u64) {
        let in_block = self.block_size / self.inode_size;
        let most = (8 * self.block_size).min(65536 - in_block.min(65528));
        let mut count = u32_of(per_group).min(most);
        loop {
            let filled = (count.div_ceil(in_block) * in_block).max(8) & !7;
            self.inodes_per_group = filled;
            if u64::from(filled) * u64::from(self.groups) <= u64::from(u32::MAX) {
                return;
            }
            count -= 1;
        }
    }

    fn set_backups(&mut self, options: &BuildOptions) {
        if self.features.compat.has(Compat::SPARSE_SUPER2) {
            let last = self.groups - 1;
            let groups = match (options.backup_superblocks, last) {
                (0, _) | (_, 0) => [0, 0],
                (1, _) => [1, 0],
                (_, 1) => [1, 0],
                (_, last) => [1, last],
            };
            self.backup_groups = groups.map(GroupNo::new);
        }
    }

    /// Reserves blocks for the descriptors of the file system after it has grown.
    fn reserve_descriptors(&mut self, options: &BuildOptions) {
        self.reserved_descriptor_blocks = 0;
        if !self.features.compat.has(Compat::RESIZE_INODE) {
            return;
        }
        let target = options.resize.unwrap_or(self.blocks.saturating_mul(1024)).min(u32::MAX.into());
        let per_block = u64::from(self.block_size / self.descriptor_size);
        let groups =
            target.saturating_sub(self.first_data_block.into()).div_ceil(self.blocks_per_group.into());
        let blocks = groups.div_ceil(per_block).saturating_sub(self.descriptor_blocks.into());
        self.reserved_descriptor_blocks = u32_of(blocks).min(self.block_size / 4);
        let all = self.reserved_descriptor_blocks + self.descriptor_blocks;
        if u64::from(all) > u64::from(self.blocks_per_group) * 3 / 4 {
            self.features.compat.0 &= !Compat::RESIZE_INODE.0;
            self.features.incompat.0 |= Incompat::META_BG.0;
            self.reserved_descriptor_blocks = 0;
        }
    }

    /// Blocks of metadata that the last group has of its own.
    fn overhead_of_last(&self) -> u64 {
        let own = 2 + self.inode_table_blocks();
        let copies = match self.copies().has(GroupNo::new(self.groups - 1)) {
            true => 1 + self.descriptor_blocks + self.reserved_descriptor_blocks,
            false => 0,
        };
        u64::from(own) + u64::from(copies)
    }

    fn set_journal(&mut self, options: &BuildOptions) -> Result<()> {
        if !self.features.compat.has(Compat::HAS_JOURNAL) {
            return Ok(());
        }
        let mut blocks = journal_blocks(options.journal_size, self.blocks, self.block_size)?;
        if blocks == 0 {
            self.features.compat.0 &=
                !(Compat::HAS_JOURNAL.0 | Compat::ORPHAN_FILE.0 | Compat::FAST_COMMIT.0);
            return Ok(());
        }
        if self.features.compat.has(Compat::FAST_COMMIT) {
            self.fast_commit_blocks = match options.fast_commit_size {
                Some(bytes) => u32_of(bytes / u64::from(self.block_size)).clamp(1, blocks / 2),
                None => blocks / 64,
            };
            blocks += self.fast_commit_blocks;
        }
        self.journal_blocks = blocks;
        Ok(())
    }

    fn set_orphan_file(&mut self, options: &BuildOptions) {
        if !self.features.compat.has(Compat::ORPHAN_FILE) {
            return;
        }
        let blocks = match options.orphan_file_size {
            Some(bytes) => (bytes / u64::from(self.block_size)).max(1),
            None if self.blocks < 128 << 10 => 32,
            None if self.blocks < 2 << 20 => self.blocks / 4096,
            None => 512,
        };
        self.orphan_blocks = u32_of(blocks.min(1 << 20)).next_multiple_of(self.cluster_blocks);
    }
}

/// Blocks of a journal of so many bytes, or else of the usual size in a file system of so many blocks; 0 if that is too
/// small for one.
///
/// # Errors
/// `Argument` for a size that no journal has.
pub(crate) fn journal_blocks(bytes: Option<u64>, blocks: u64, block_size: u32) -> Result<u32> {
    let Some(bytes) = bytes else {
        let row = JOURNAL_SIZES.iter().find(|(below, _)| blocks < *below);
        return Ok(row.map_or(LARGEST_JOURNAL, |(_, blocks)| *blocks));
    };
    let blocks = bytes / u64::from(block_size);
    let (least, most) = (JOURNAL_LIMITS.start(), JOURNAL_LIMITS.end());
    let limited = JOURNAL_LIMITS.contains(&blocks).then_some(u32_of(blocks));
    limited.ok_or_else(|| {
        Error::argument(format!(
            "a journal of {bytes} bytes has {blocks} blocks of {block_size}: it needs {least} to {most} blocks, so {} bytes or more",
            least * u64::from(block_size)
        ))
    })
}
