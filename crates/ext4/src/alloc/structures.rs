//! Bitmaps and inode tables of all groups, and the block of multi-mount protection. With flex_bg those of a group lie in another
//! one, which may not know.

use std::sync::Arc;

use crate::alloc::Allocator;
use crate::error::Result;
use crate::format::group::{Descriptor, GroupDescriptor};
use crate::read::fs::Ext4;
use crate::units::{Block, GroupNo, Run, merge};

/// Blocks of bitmaps and inode tables, as far as they lie in the file system, in order.
#[derive(Clone, Debug)]
pub(crate) struct Structures(Arc<[Run]>);

/// Structures of one group after the other. Those of one kind mostly lie side by side.
#[derive(Debug, Default)]
pub(crate) struct Collector([Vec<Run>; 3]);

impl Collector {
    /// Adds a group's structure of a kind, which lies in the file system.
    #[inline]
    pub fn add(&mut self, kind: usize, first: Block, len: u64) {
        let Some(runs) = self.0.get_mut(kind) else { return };
        match runs.last_mut().filter(|last| last.end() == first) {
            Some(last) => last.len += len,
            None => runs.push(Run { first, len }),
        }
    }

    pub fn finish(self, fs: &Ext4) -> Structures {
        let mmp = fs.superblock().mmp_block.filter(|block| fs.layout().contains(*block, 1));
        let mut runs = self.0.concat();
        runs.extend(mmp.map(|first| Run { first, len: 1 }));
        merge(&mut runs);
        Structures(runs.into())
    }
}

impl Structures {
    /// The parts of a run that are blocks of these.
    pub fn shared(&self, run: Run) -> impl Iterator<Item = Run> {
        let at = self.0.partition_point(|own| own.end() <= run.first);
        self.0[at..].iter().map_while(move |own| own.shared(run))
    }
}

impl Allocator {
    /// Bitmaps and tables of all groups, which are looked up once: every block that is taken is compared with them.
    pub(super) fn structures(&mut self) -> Result<Structures> {
        if let Some(found) = &self.structures {
            return Ok(found.clone());
        }
        let layout = *self.fs.layout();
        let mut collector = Collector::default();
        for index in 0..layout.descriptor_blocks() {
            let block = layout.descriptor_block(index);
            let first = layout.first_described(index);
            let mut collect = |bytes: &[u8]| -> Result<()> {
                let groups = first.until(GroupNo::new(layout.groups));
                for (_, raw) in groups.zip(bytes.chunks_exact(layout.descriptor_len())) {
                    let found = own(GroupDescriptor::from_bytes(raw)?, layout.inode_table_blocks());
                    for (kind, (first, len)) in found.into_iter().enumerate() {
                        if layout.contains(first, len) {
                            collector.add(kind, first, len);
                        }
                    }
                }
                Ok(())
            };
            match self.transaction.held(block, &mut collect) {
                Some(result) => result?,
                // Not through the cache: it would keep them all.
                None => collect(&self.fs.read_block(block)?)?,
            }
        }
        Ok(self.structures.insert(collector.finish(&self.fs)).clone())
    }

    /// Takes over where structures lie, from whoever has looked at all descriptors.
    pub fn know_structures(&mut self, structures: Structures) {
        self.structures = Some(structures);
    }

    /// Looks structures up anew from now on: they may lie elsewhere.
    pub(super) fn forget_structures(&mut self) {
        self.structures = None;
    }

    /// As [`forget_structures`](Allocator::forget_structures), if a group's are other ones than before.
    pub(super) fn note_places(&mut self, old: &Descriptor, new: &Descriptor) {
        if own(old.fields(), 0) != own(new.fields(), 0) {
            self.forget_structures();
            self.has_moved = true;
        }
    }
}

/// Structures of a group by its descriptor: first blocks and lengths.
pub(super) fn own(descriptor: GroupDescriptor<'_>, table_len: u64) -> [(Block, u64); 3] {
    [(descriptor.block_bitmap(), 1), (descriptor.inode_bitmap(), 1), (descriptor.inode_table(), table_len)]
}
