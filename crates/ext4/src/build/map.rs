//! Maps of files whose blocks are known: trees of extents, or the block maps of ext2 and ext3.

use casemate_blockdev::{u32_of, u64_of, usize_of};

use crate::build::directory::store;
use crate::build::space::FileRun;
use crate::error::{Error, Result, invalid};
use crate::format::block_map::{self, DIRECT};
use crate::format::csum::{Checksums, Context, Subject};
use crate::format::extent::{self, Extent, ExtentIndex, LONGEST};
use crate::number::u16_of;
use crate::units::Block;

/// Entries of a tree's root.
const IN_ROOT: usize = 4;

/// The kind of maps that a file system has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    pub block_size: usize,
    pub has_extents: bool,
}

/// A map that is written: what the inode holds, and blocks with their bytes.
#[derive(Debug)]
pub(crate) struct Map {
    pub root: Vec<u8>,
    pub blocks: Vec<(Block, Vec<u8>)>,
}

impl Form {
    /// Refuses a file of more blocks than a map leads to.
    ///
    /// # Errors
    /// `FileTooLarge`.
    pub fn check(&self, blocks: u64) -> Result<()> {
        let most = match self.has_extents {
            true => u32::MAX.into(),
            false => block_map::most(3, u64_of(self.block_size)),
        };
        if blocks <= most.min(u32::MAX.into()) {
            return Ok(());
        }
        let text = format!("a file of {blocks} blocks; a map has room for {most}");
        Err(invalid(std::io::ErrorKind::FileTooLarge, text))
    }

    /// Blocks of a file's map besides what lies in the inode.
    pub fn blocks(&self, runs: &[FileRun]) -> u32 {
        let count = if self.has_extents {
            let mut below = runs.iter().map(|run| usize_of(run.len.div_ceil(LONGEST.into()))).sum::<usize>();
            let mut blocks = 0;
            while below > IN_ROOT {
                below = below.div_ceil(self.in_node());
                blocks += below;
            }
            u64_of(blocks)
        } else {
            let per_block = block_map::per_block(u64_of(self.block_size));
            zones(per_block)
                .map(|(level, zone)| {
                    let mut ranges = parts(runs, &zone);
                    let mut blocks = 0;
                    for _ in 0..level {
                        ranges = ranges
                            .iter()
                            .map(|(start, end)| (start / per_block, (end - 1) / per_block + 1))
                            .collect();
                        let mut end = 0;
                        for range in &mut ranges {
                            blocks += range.1 - range.0.max(end).min(range.1);
                            end = range.1;
                        }
                    }
                    blocks
                })
                .sum()
        };
        // A small part of a file's blocks.
        u32_of(count)
    }

    /// The map of a file, with blocks for it that were counted before.
    ///
    /// # Errors
    /// `Unsupported` for blocks that a map has no numbers for.
    pub fn map(
        &self,
        runs: &[FileRun],
        blocks: &[Block],
        sums: &Checksums,
        context: &Context,
    ) -> Result<Map> {
        if self.has_extents {
            return Ok(self.extents(runs, blocks, sums, context));
        }
        let of_map = blocks.iter().map(|block| *block + 1);
        let mut ends = runs.iter().map(|run| run.physical + run.len.into()).chain(of_map);
        if ends.any(|end| end.get() > 1 << 32) {
            return Err(Error::unsupported("more than 2^32 blocks without the feature extent"));
        }
        Ok(self.pointers(runs, blocks))
    }

    fn in_node(&self) -> usize {
        extent::capacity(self.block_size)
    }

    fn extents(&self, runs: &[FileRun], blocks: &[Block], sums: &Checksums, context: &Context) -> Map {
        let mut map = Map { root: Vec::new(), blocks: Vec::new() };
        // Bytes of entries, each with the first block that it is about.
        let mut below: Vec<(u32, [u8; 12])> = Vec::with_capacity(runs.len());
        for run in runs {
            let mut done = 0;
            while done < run.len {
                let len = u16_of(run.len - done).min(LONGEST);
                let (logical, physical) = (run.logical + done, run.physical + u64::from(done));
                let extent = Extent { logical, physical, len, unwritten: false };
                below.push((logical, extent.to_bytes()));
                done += u32::from(len);
            }
        }
        let mut depth = 0;
        let mut free = blocks.iter().copied();
        let bytes = |entries: &[(u32, [u8; 12])]| -> Vec<u8> {
            entries.iter().flat_map(|(_, entry)| *entry).collect()
        };
        while below.len() > IN_ROOT {
            let mut above = Vec::new();
            for entries in below.chunks(self.in_node()) {
                let mut node = extent::node_bytes(self.block_size, depth, &bytes(entries));
                store(sums, Subject::ExtentBlock, context, &mut node);
                // OK to unwrap: as many blocks were counted.
                let block = free.next().unwrap();
                let logical = entries[0].0;
                above.push((logical, ExtentIndex { logical, block }.to_bytes()));
                map.blocks.push((block, node));
            }
            below = above;
            depth += 1;
        }
        map.root = extent::root_bytes(depth, &bytes(&below));
        map
    }

    fn pointers(&self, runs: &[FileRun], blocks: &[Block]) -> Map {
        let mut map = Map { root: vec![0; 60], blocks: Vec::new() };
        let per_block = block_map::per_block(u64_of(self.block_size));
        let mut free = blocks.iter().copied();
        for run in runs {
            let direct = (usize_of(run.logical)..DIRECT).zip(run.physical.run(run.len.into()));
            for (at, block) in direct {
                // Here and below: checked to be less than 2^32.
                block_map::number(at).set(&mut map.root, u32_of(block.get()));
            }
        }
        for (level, zone) in zones(per_block) {
            let mut below: Vec<(u64, u32)> = Vec::new();
            for run in runs {
                let start = u64::from(run.logical).max(zone.start);
                let end = (u64::from(run.logical) + u64::from(run.len)).min(zone.end);
                below.extend((start..end).map(|at| {
                    (at - zone.start, u32_of((run.physical + (at - u64::from(run.logical))).get()))
                }));
            }
            if below.is_empty() {
                continue;
            }
            for _ in 0..level {
                let mut above = Vec::new();
                for entries in below.chunk_by(|a, b| a.0 / per_block == b.0 / per_block) {
                    let mut bytes = vec![0; self.block_size];
                    for (at, number) in entries {
                        block_map::number(usize_of(at % per_block)).set(&mut bytes, *number);
                    }
                    // OK to unwrap: as many blocks were counted.
                    let block = free.next().unwrap();
                    above.push((entries[0].0 / per_block, u32_of(block.get())));
                    map.blocks.push((block, bytes));
                }
                below = above;
            }
            block_map::number(DIRECT + level - 1).set(&mut map.root, below[0].1);
        }
        map
    }
}

/// Blocks of a file that lie behind one, two and three levels of blocks of numbers.
fn zones(per_block: u64) -> impl Iterator<Item = (usize, std::ops::Range<u64>)> {
    let first = u64_of(DIRECT);
    let ends = [first + per_block, first + per_block + per_block.pow(2), u64::MAX];
    let starts = [first, ends[0], ends[1]];
    (1..).zip(starts.into_iter().zip(ends).map(|(start, end)| start..end))
}

/// The parts of runs in a zone, counted from its start.
fn parts(runs: &[FileRun], zone: &std::ops::Range<u64>) -> Vec<(u64, u64)> {
    let part = |run: &FileRun| {
        let start = u64::from(run.logical).max(zone.start);
        let end = (u64::from(run.logical) + u64::from(run.len)).min(zone.end);
        (start < end).then(|| (start - zone.start, end - zone.start))
    };
    runs.iter().filter_map(part).collect()
}

#[cfg(test)]
mod tests {
    use casemate_primitives::Cpu;
    use casemate_primitives::crc32c::Crc32c;

    use super::*;
    use crate::format::superblock::Superblock;
    use crate::format::superblock::tests::sample;

    /// Numbers of 32 bits lead to no block behind them, be it one of the file or of its map.
    #[test]
    fn block_maps_end_with_32_bits() {
        let superblock = Superblock::from_bytes(&sample()).unwrap();
        let sums = Checksums::new(Crc32c::new(Cpu::portable()), &superblock).unwrap();
        let form = Form { block_size: 1024, has_extents: false };
        let map = |physical: u64, of_map: u64| {
            let runs = [FileRun { logical: 0, physical: Block::new(physical), len: 13 }];
            form.map(&runs, &[Block::new(of_map)], &sums, &Context::default())
        };
        let last = (1 << 32) - 1;
        assert_eq!(map(last - 12, 100).unwrap().blocks.len(), 1);
        assert_eq!(block_map::number(DIRECT).get(&map(100, last).unwrap().root), u32::MAX);
        assert!(map(last - 11, 100).is_err() && map(100, last + 1).is_err());
    }
}
