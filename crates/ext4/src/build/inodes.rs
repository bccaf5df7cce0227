//! Inodes of a new file system: the tables of groups, with the maps of files.

use casemate_blockdev::{u32_of, u64_of, usize_of};

use crate::build::plan::Plan;
use crate::build::shapes::LONGEST_INLINE_TARGET;
use crate::build::space::FileRun;
use crate::build::tree::{Body, Entry};
use crate::build::writer::Writing;
use crate::error::Result;
use crate::format::block_map::{self, DIRECT};
use crate::format::csum::Subject;
use crate::format::features::RoCompat;
use crate::format::inode::{FileType, Inode, InodeFlags, Stamp, Time};
use crate::number::u16_of;

use crate::build::directory::store;
use crate::units::{Block, GroupNo, InodeNo};

impl Writing<'_> {
    /// The first inodes of a group's table, with the blocks of their maps.
    pub(super) fn inode_table(&self, group: GroupNo, inodes: u32) -> Result<()> {
        let Plan { geometry, groups, .. } = self.plan;
        let size = usize_of(geometry.inode_size);
        let mut table = vec![0; (usize_of(inodes) * size).next_multiple_of(self.block)];
        let first = InodeNo::FIRST.plus(group.get() * geometry.inodes_per_group);
        for (number, bytes) in first.run(inodes).zip(table.chunks_exact_mut(size)) {
            if let Some(inode) = self.inode(number)? {
                bytes.copy_from_slice(inode.as_bytes());
                store(&self.sums, Subject::Inode, &Self::context(number), bytes);
            }
        }
        self.device.write_at(&table, self.offset(groups.places[group.index()].inode_table))
    }

    /// An inode without its checksum; `None` for one that is reserved and not used.
    pub(super) fn inode(&self, number: InodeNo) -> Result<Option<Inode>> {
        let Plan { geometry, space, shapes, .. } = self.plan;
        if let Some(index) = self.plan.index(number) {
            return self.file(number, index).map(Some);
        }
        let special = |runs: &[FileRun], blocks: &[Block], size: u64| {
            let mut inode = self.blank(number, FileType::Regular, shapes.time);
            inode.set_permissions(0o600);
            inode.set_links(1);
            inode.set_size(size);
            self.set_map(&mut inode, runs, blocks, 0)?;
            Ok(Some(inode))
        };
        let mut quotas = shapes.quotas.iter().zip(&space.quotas);
        if let Some((quota, (runs, map))) = quotas.find(|(quota, _)| quota.inode == number) {
            let found = special(runs, map, u64_of(quota.size))?;
            return Ok(found.map(|mut inode| {
                inode.set_flags(inode.flags().0 | InodeFlags::IMMUTABLE.0);
                inode
            }));
        }
        match number {
            InodeNo::JOURNAL if geometry.journal_blocks > 0 => {
                special(&space.journal, &space.journal_map, self.bytes(geometry.journal_blocks))
            }
            _ if Some(number) == shapes.orphan_file => {
                special(&space.orphan_file, &space.orphan_map, self.bytes(geometry.orphan_blocks))
            }
            InodeNo::RESIZE => Ok(space.resize.map(|block| self.resize(block))),
            _ => Ok(None),
        }
    }

    /// The inode that keeps room for descriptors.
    fn resize(&self, double: Block) -> Inode {
        let Plan { geometry, layout, shapes, .. } = self.plan;
        let per_block = block_map::per_block(u64_of(self.block));
        let mut inode = self.blank(InodeNo::RESIZE, FileType::Regular, shapes.time);
        inode.set_permissions(0o600);
        inode.set_links(1);
        inode.set_size(self.bytes(block_map::most(2, u64_of(self.block))));
        // Blocks of numbers lie before block 2^32.
        block_map::number(DIRECT + 1).set(inode.block_area_mut(), u32_of(double.get()));
        let copies = 1 + u64_of(layout.copy_groups().count().min(usize_of(per_block)));
        let blocks = 1 + u64::from(geometry.reserved_descriptor_blocks) * copies;
        self.set_sectors(&mut inode, blocks);
        inode
    }

    /// An inode of a file of the tree.
    fn file(&self, number: InodeNo, index: usize) -> Result<Inode> {
        let Plan { tree, order, shapes, space, options, .. } = self.plan;
        let Entry { node, body, .. } = tree.entry(order[index]);
        let shape = &shapes.files[index];
        let time = options.time.map_or(node.modified, |latest| node.modified.min(latest));
        let mut inode = self.blank(number, node.kind, time);
        inode.set_permissions(node.mode);
        inode.set_owner(Some(node.uid), Some(node.gid));
        // Checked to be at most 65000.
        inode.set_links(u16_of(shape.links));
        if shape.encrypted.is_some() {
            inode.set_flags(InodeFlags::ENCRYPT.0);
        }
        if !shape.attributes.area.is_empty() {
            inode.xattr_area_mut().copy_from_slice(&shape.attributes.area);
        }
        if let Some(block) = shape.attributes.block {
            inode.set_xattr_block(Some(space.attribute_blocks[usize_of(block)]));
        }
        match body {
            Body::Directory(_) => {
                inode.set_size(self.bytes(shape.data.blocks()));
                if shape.arranged.as_ref().is_some_and(|arranged| arranged.is_indexed()) {
                    inode.set_flags(inode.flags().0 | InodeFlags::INDEX.0);
                }
            }
            Body::File(contents) => {
                inode.set_size(contents.size);
                if let Some(inline) = &shape.inline {
                    inode.block_area_mut()[..inline.len()].copy_from_slice(inline);
                    inode.set_flags(inode.flags().0 | InodeFlags::INLINE_DATA.0);
                    self.set_sectors(&mut inode, u64::from(shape.attributes.block.is_some()));
                    return Ok(inode);
                }
                if shape.sealed.is_some() {
                    inode.set_flags(inode.flags().0 | InodeFlags::VERITY.0);
                }
            }
            Body::Symlink(target) => {
                let target = shape.target(target);
                inode.set_size(u64_of(target.len()));
                if target.len() <= LONGEST_INLINE_TARGET {
                    inode.block_area_mut()[..target.len()].copy_from_slice(target);
                    self.set_sectors(&mut inode, u64::from(shape.attributes.block.is_some()));
                    return Ok(inode);
                }
            }
            Body::Node => {
                if matches!(node.kind, FileType::CharacterDevice | FileType::BlockDevice) {
                    inode.set_device(node.device.0, node.device.1)?;
                }
                self.set_sectors(&mut inode, u64::from(shape.attributes.block.is_some()));
                return Ok(inode);
            }
        }
        let (runs, blocks) = self.plan.place(index);
        self.set_map(&mut inode, runs, blocks, u64::from(shape.attributes.block.is_some()))?;
        Ok(inode)
    }

    fn blank(&self, number: InodeNo, kind: FileType, time: Time) -> Inode {
        let mut inode = Inode::new(number, kind, usize_of(self.plan.geometry.inode_size), 32);
        for stamp in [Stamp::Accessed, Stamp::Changed, Stamp::Modified, Stamp::Created] {
            inode.set_time(stamp, time);
        }
        inode
    }

    /// Gives an inode its map, whose blocks are written, and counts them with so many others.
    fn set_map(&self, inode: &mut Inode, runs: &[FileRun], blocks: &[Block], others: u64) -> Result<()> {
        let form = self.plan.shapes.map;
        let map = form.map(runs, blocks, &self.sums, &Self::context(inode.number()))?;
        inode.block_area_mut().copy_from_slice(&map.root);
        if form.has_extents {
            inode.set_flags(inode.flags().0 | InodeFlags::EXTENTS.0);
        }
        for (block, bytes) in map.blocks {
            self.device.write_at(&bytes, self.offset(block))?;
        }
        self.set_sectors(inode, self.clusters(runs, blocks) + others);
        Ok(())
    }

    /// Clusters of data and of a map.
    fn clusters(&self, runs: &[FileRun], blocks: &[Block]) -> u64 {
        let cluster = self.plan.geometry.cluster_blocks;
        runs.iter().map(|run| u64::from(run.len.div_ceil(cluster))).sum::<u64>() + u64_of(blocks.len())
    }

    /// Bytes that count for the owners of the file with this place in the order.
    pub(super) fn charged(&self, index: usize) -> u64 {
        let (runs, blocks) = self.plan.place(index);
        let has_block = self.plan.shapes.files[index].attributes.block.is_some();
        let clusters = self.clusters(runs, blocks) + u64::from(has_block);
        self.bytes(clusters * u64::from(self.plan.geometry.cluster_blocks))
    }

    /// Sets the allocated size of an inode, given in clusters.
    fn set_sectors(&self, inode: &mut Inode, clusters: u64) {
        let geometry = &self.plan.geometry;
        let sectors = self.bytes(clusters * u64::from(geometry.cluster_blocks)) / 512;
        let has_huge = geometry.features.ro_compat.has(RoCompat::HUGE_FILE);
        // What has fewer than 2^32 blocks of 4 KiB has room without that feature, too, or is refused by its map.
        inode.set_sectors(sectors, geometry.block_size, has_huge);
    }
}
