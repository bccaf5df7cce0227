//! Where everything of a new file system goes.

use std::collections::HashMap;
use std::sync::Arc;

use casemate_blockdev::{u32_of, u64_of, usize_of};
use casemate_primitives::Cpu;
use casemate_primitives::crc32c::Crc32c;

use crate::build::amend::LOST_AND_FOUND;
use crate::build::contents::Contents;
use crate::build::encrypt::{Encrypt, Encrypter};
use crate::build::geometry::Geometry;
use crate::build::groups::Groups;
use crate::build::options::{BuildOptions, BuildSize, Features, NewUuid};
use crate::build::quota;
use crate::build::seal::{Seal, Sealer};
use crate::build::shapes::{Shapes, Wanted, inode_number, inodes};
use crate::build::space::{FileRun, Free};
use crate::build::tree::{Body, TOP, Tree};
use crate::error::{Error, Result, invalid};
use crate::format::features::{Compat, Incompat};
use crate::format::layout::Layout;
use crate::format::superblock::{NewSuperblock, Superblock};
use crate::number::u8_of;
use crate::units::{Block, GroupNo, InodeNo, Run};

/// Sizes that are tried until one fits.
const MOST_TRIES: usize = 1000;

/// A new file system that is ready to be written.
#[derive(Debug)]
pub struct Plan {
    pub(crate) options: BuildOptions,
    pub(crate) geometry: Geometry,
    pub(crate) superblock: Superblock,
    pub(crate) layout: Layout,
    pub(crate) groups: Groups,
    pub(crate) tree: Tree,
    /// Files of the tree in the order of their inodes, from the one behind the special ones on; the top and lost+found
    /// come first.
    pub(crate) order: Vec<u32>,
    /// The inode of each file of the tree.
    pub(crate) inodes: Vec<InodeNo>,
    /// Needs of the files, in `order`.
    pub(crate) shapes: Shapes,
    pub(crate) space: Space,
    pub(crate) sealer: Sealer,
    pub(crate) encrypter: Encrypter,
    /// The image's size in bytes.
    size: u64,
}

/// Blocks that were given to files.
#[derive(Debug, Default)]
pub(crate) struct Space {
    pub runs: Vec<FileRun>,
    pub map_blocks: Vec<Block>,
    /// Where each file's runs and blocks of its map end.
    pub ends: Vec<(usize, usize)>,
    pub attribute_blocks: Vec<Block>,
    pub journal: Vec<FileRun>,
    pub journal_map: Vec<Block>,
    pub orphan_file: Vec<FileRun>,
    pub orphan_map: Vec<Block>,
    /// Runs and map of each quota file.
    pub quotas: Vec<(Vec<FileRun>, Vec<Block>)>,
    /// The block of multi-mount protection.
    pub mmp: Option<Block>,
    /// The block that leads to the reserved blocks of descriptors.
    pub resize: Option<Block>,
    /// Everything that is in use: starts and ends, in order.
    pub used: Vec<Run>,
}

impl Plan {
    /// Decides where everything of a tree goes.
    ///
    /// # Errors
    /// `StorageFull` if the size is given and too small, with what is missing; `Argument` for options; what ext4 says of
    /// names, sizes and attributes.
    pub fn new(tree: Tree, options: &BuildOptions) -> Result<Plan> {
        Plan::protected(tree, options, None, None)
    }

    /// Plans a file system that has fs-verity on files and encryption of directories, as the callers choose.
    ///
    /// # Errors
    /// As [`Plan::new`]; what they say; `CrossesDevices` for a file with a name in an encrypted directory and one outside.
    pub fn protected(
        mut tree: Tree,
        options: &BuildOptions,
        sealer: Option<Arc<dyn Seal>>,
        encrypter: Option<Arc<dyn Encrypt>>,
    ) -> Result<Plan> {
        options.check()?;
        let mut options = options.clone();
        if sealer.is_some() {
            options.features.change("verity")?;
        }
        if encrypter.is_some() {
            options.features.change("encrypt")?;
            if matches!(options.uuid, Some(NewUuid::OfContents(_))) {
                let text = "names are encrypted before contents are read, and may depend on the UUID, which can't follow from contents then";
                return Err(Error::argument(text));
            }
        }
        let options = &options;
        tree.add_lost_and_found()?;
        let found = tree.lookup(LOST_AND_FOUND).filter(|found| tree.is_directory(*found));
        let found = found.ok_or_else(|| {
            let text = "lost+found in the tree is not a directory, which file systems have under that name";
            invalid(std::io::ErrorKind::NotADirectory, text)
        })?;
        let top = tree.entry_mut(TOP);
        if let Some((uid, gid)) = options.root_owner {
            (top.node.uid, top.node.gid) = (uid, gid);
        }
        if let Some(mode) = options.root_mode {
            top.set_mode(mode)?;
        }
        let mut order = tree.numbers();
        order.retain(|number| *number != found);
        order.insert(1, found);
        // Features that the size may rule out are those of the journal alone: without it there is no list of orphans.
        let mut tries = 0;
        let mut kept = None;
        let mut blocks = first_guess(&tree, &order, options);
        let paths = if sealer.is_some() { tree.all_paths() } else { HashMap::new() };
        let sealing = sealer.as_deref().map(|sealer| (sealer, &paths));
        loop {
            let wanted =
                Wanted { tree: &tree, order: &order, options, sealing, encrypter: encrypter.as_deref() };
            let plan = wanted.plan(blocks, &mut kept)?;
            tries += 1;
            match plan {
                Ok(parts) => {
                    let size = match options.size {
                        BuildSize::Bytes(size) => size,
                        BuildSize::Fitting { align, .. } => {
                            let bytes = parts.geometry.blocks * u64::from(options.block_size);
                            bytes.next_multiple_of(align.max(1))
                        }
                    };
                    let inodes = inodes(&tree, &order, parts.shapes.specials);
                    let Parts { geometry, superblock, layout, groups, shapes, space } = parts;
                    let options = options.clone();
                    return Ok(Plan {
                        options,
                        geometry,
                        superblock,
                        layout,
                        groups,
                        tree,
                        order,
                        inodes,
                        shapes,
                        space,
                        sealer,
                        encrypter,
                        size,
                    });
                }
                Err(more) if matches!(options.size, BuildSize::Bytes(_)) || tries == MOST_TRIES => {
                    let bytes = more * u64::from(options.block_size);
                    let text =
                        format!("no space left: about {bytes} bytes more are needed for what is to be in it");
                    return Err(std::io::Error::new(std::io::ErrorKind::StorageFull, text).into());
                }
                Err(more) => blocks = aligned(blocks + more, options),
            }
        }
    }

    /// The image's size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The numbers of the file system.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Bytes of contents that are copied, which the listener hears of.
    pub fn contents_size(&self) -> u64 {
        self.shapes
            .files
            .iter()
            .zip(&self.order)
            .map(|(shape, number)| match &self.tree.entry(*number).body {
                Body::File(_) => shape.data.blocks() * u64::from(self.geometry.block_size),
                _ => 0,
            })
            .sum()
    }

    /// Runs and blocks of the map of the file with this place in the order.
    pub(crate) fn place(&self, index: usize) -> (&[FileRun], &[Block]) {
        let (run, block) = index.checked_sub(1).map_or((0, 0), |before| self.space.ends[before]);
        let (run_end, block_end) = self.space.ends[index];
        (&self.space.runs[run..run_end], &self.space.map_blocks[block..block_end])
    }

    /// Files whose contents are copied and were read before, with their places in the order.
    pub(crate) fn read_before(&self) -> impl Iterator<Item = (usize, &Contents)> {
        self.order.iter().enumerate().filter_map(|(index, number)| match &self.tree.entry(*number).body {
            Body::File(contents) if self.shapes.files[index].inline.is_none() => {
                contents.reading.was_made().then_some((index, contents))
            }
            _ => None,
        })
    }

    /// The inode of the file with this place in the order.
    pub(crate) fn inode(&self, index: usize) -> InodeNo {
        inode_number(index, self.shapes.specials)
    }

    /// The place in the order of the file with this inode; `None` for special ones.
    pub(crate) fn index(&self, inode: InodeNo) -> Option<usize> {
        let first = InodeNo::LOST_AND_FOUND.plus(1 + self.shapes.specials);
        match inode {
            InodeNo::ROOT => Some(0),
            InodeNo::LOST_AND_FOUND => Some(1),
            _ => Some(usize_of(inode.index().checked_sub(first.index())?) + 2)
                .filter(|index| *index < self.order.len()),
        }
    }
}

/// A number of blocks that is never more than what is needed.
fn first_guess(tree: &Tree, order: &[u32], options: &BuildOptions) -> u64 {
    let block = u64::from(options.block_size);
    match options.size {
        BuildSize::Bytes(size) => size / block,
        BuildSize::Fitting { free, .. } => {
            let free = free.max(options.min_free);
            let contents = order.iter().map(|number| match &tree.entry(*number).body {
                Body::File(contents) => {
                    contents.ranges().map(|range| (range.end - range.start) / block).sum()
                }
                Body::Directory(_) => 1,
                _ => 0u64,
            });
            // Each file has an inode, whatever else it has.
            let tables = u64_of(order.len()) * u64::from(options.inode_size) / block;
            aligned(contents.sum::<u64>() + tables.max(64) + free / block, options)
        }
    }
}

fn aligned(blocks: u64, options: &BuildOptions) -> u64 {
    let block = u64::from(options.block_size);
    match options.size {
        BuildSize::Fitting { align, .. } if align > block => (blocks * block).next_multiple_of(align) / block,
        _ => blocks,
    }
}

struct Parts {
    geometry: Geometry,
    superblock: Superblock,
    layout: Layout,
    groups: Groups,
    shapes: Shapes,
    space: Space,
}

impl Wanted<'_> {
    /// The parts of a plan; or how many blocks are missing, at least. Shapes are kept from one attempt to the next: they do
    /// not depend on the size, but by the features that it rules out.
    fn plan(
        &self,
        blocks: u64,
        kept: &mut Option<(Features, Shapes)>,
    ) -> Result<std::result::Result<Parts, u64>> {
        let is_fitting = matches!(self.options.size, BuildSize::Fitting { .. });
        // One more for the list of orphans, which may turn out not to be there.
        let inodes = u64::from(InodeNo::LOST_AND_FOUND.get()) + u64_of(self.order.len()) - 1;
        let has_projects = quota::project_inode(&self.options.features, self.options.quota_types).is_some();
        let inodes = inodes + u64::from(has_projects);
        let geometry = match Geometry::fitted(self.options, blocks, inodes)? {
            Ok(geometry) => geometry,
            Err(small) if is_fitting => return Ok(Err(small.next.saturating_sub(blocks).max(1))),
            Err(small) => return Err(small.error),
        };
        if is_fitting && geometry.blocks < blocks {
            // A part of a group that is too small to be one: all of it, or none.
            return Ok(Err(geometry.least_with_more_groups().saturating_sub(blocks).max(1)));
        }
        let (superblock, layout) = self.superblock(&geometry)?;
        let groups = Groups::new(&geometry, &layout, self.options.packed_meta_blocks)?;
        let shapes = match kept.take() {
            Some((features, shapes)) if features == geometry.features => shapes,
            _ => self.shapes(&geometry)?,
        };
        let (space, free) = self.space(&geometry, &layout, &groups, &shapes);
        let in_groups = groups.taken.ranges().last().map_or(Block::default(), Run::end);
        let missing = free.end().max(in_groups).checked_since(layout.end()).unwrap_or(0);
        let wanted = match self.options.size {
            BuildSize::Fitting { free, .. } => free,
            BuildSize::Bytes(_) => 0,
        };
        let wanted = wanted.max(self.options.min_free).div_ceil(self.options.block_size.into());
        let left = free.left(layout.end()).saturating_sub(geometry.reserved_blocks);
        Ok(match missing.max(wanted.saturating_sub(left)) {
            0 => Ok(Parts { geometry, superblock, layout, groups, shapes, space }),
            more => {
                *kept = Some((geometry.features, shapes));
                Err(more)
            }
        })
    }

    /// The UUID, unless it follows from contents.
    pub fn uuid(&self) -> Option<[u8; 16]> {
        match &self.options.uuid {
            None => Some([0; 16]),
            Some(NewUuid::Given(uuid)) => Some(*uuid),
            Some(NewUuid::OfContents(_)) => None,
        }
    }

    fn superblock(&self, geometry: &Geometry) -> Result<(Superblock, Layout)> {
        let options = self.options;
        let time = self.time();
        let features = geometry.features;
        let has_flex = features.incompat.has(Incompat::FLEX_BG);
        let has_folding = features.incompat.has(Incompat::CASEFOLD);
        let bytes = NewSuperblock {
            compat: features.compat,
            incompat: features.incompat,
            ro_compat: features.ro_compat,
            inodes: geometry.inodes(),
            blocks: geometry.blocks,
            blocks_reserved: geometry.reserved_blocks,
            first_data_block: geometry.first_data_block,
            block_size: geometry.block_size,
            cluster_size: geometry.block_size * geometry.cluster_blocks,
            blocks_per_group: geometry.blocks_per_group,
            inodes_per_group: geometry.inodes_per_group,
            inode_size: geometry.inode_size,
            descriptor_size: geometry.descriptor_size,
            reserved_descriptor_blocks: geometry.reserved_descriptor_blocks,
            log_groups_per_flex: if has_flex { u8_of(geometry.groups_per_flex.ilog2()) } else { 0 },
            first_meta_bg: 0,
            backup_groups: geometry.backup_groups,
            uuid: self.uuid().unwrap_or_default(),
            // The UUID may follow from contents, which are read later: a seed of one's own is what the feature is for.
            checksum_seed: Crc32c::new(Cpu::portable()).update(!0, &options.hash_seed.unwrap_or_default()),
            label: &options.label,
            last_mounted: &options.last_mounted,
            hash: self.hash(),
            made: time.seconds,
            on_errors: options.on_errors,
            mount_options: options.mount_options,
            stride: options.stride,
            stripe_width: options.stripe_width,
            extra_fields: if geometry.inode_size > 128 { 32 } else { 0 },
            encoding: if has_folding { options.encoding } else { (0, 0) },
        };
        let superblock = Superblock::from_bytes(&bytes.to_bytes())?;
        let layout = Layout::new(&superblock)?;
        Ok((superblock, layout))
    }

    /// Gives everything its blocks.
    fn space(&self, geometry: &Geometry, layout: &Layout, groups: &Groups, shapes: &Shapes) -> (Space, Free) {
        // With 1 KiB blocks and bigalloc the superblock lies behind the first block.
        let first = layout.group_start(GroupNo::PRIMARY).max(layout.superblock_block());
        let mut free = Free::new(&groups.taken, first, geometry.cluster_blocks.into());
        let mut space = Space::default();
        let map_blocks = |free: &mut Free, runs: &[FileRun], blocks: &mut Vec<Block>| {
            for _ in 0..shapes.map.blocks(runs) {
                free.take(0, 1, |run| blocks.push(run.physical));
            }
        };
        if geometry.journal_blocks > 0 {
            free.take_whole(geometry.journal_blocks, layout.end(), |run| space.journal.push(run));
            map_blocks(&mut free, &space.journal, &mut space.journal_map);
        }
        if geometry.features.compat.has(Compat::RESIZE_INODE) {
            free.take(0, 1, |run| space.resize = Some(run.physical));
        }
        if shapes.orphan_file.is_some() {
            free.take_whole(geometry.orphan_blocks, layout.end(), |run| space.orphan_file.push(run));
            map_blocks(&mut free, &space.orphan_file, &mut space.orphan_map);
        }
        for quota in &shapes.quotas {
            let mut runs = Vec::new();
            // A file of owners that are in memory.
            let blocks = u32_of(quota.size.div_ceil(shapes.map.block_size));
            free.take_whole(blocks, layout.end(), |run| runs.push(run));
            let mut map = Vec::new();
            map_blocks(&mut free, &runs, &mut map);
            space.quotas.push((runs, map));
        }
        if geometry.features.incompat.has(Incompat::MMP) {
            free.take(0, 1, |run| space.mmp = Some(run.physical));
        }
        let blocks = shapes.attributes.blocks.len();
        for _ in 0..blocks {
            free.take(0, 1, |run| space.attribute_blocks.push(run.physical));
        }
        // Directories first, so that they lie together.
        let mut places: Vec<(Vec<FileRun>, Vec<Block>)> = Vec::new();
        for shape in shapes.files.iter().filter(|shape| shape.arranged.is_some()) {
            let (mut runs, mut blocks) = (Vec::new(), Vec::new());
            shape.data.each(|first, len| free.take(first, len, |run| push(&mut runs, run)));
            map_blocks(&mut free, &runs, &mut blocks);
            places.push((runs, blocks));
        }
        let mut directories = places.into_iter();
        for shape in &shapes.files {
            let start = space.runs.len();
            // OK to unwrap: as many as there are directories.
            if shape.arranged.is_some() {
                let (runs, blocks) = directories.next().unwrap();
                space.runs.extend(runs);
                space.map_blocks.extend(blocks);
            } else {
                let mut runs = Vec::new();
                shape.data.each(|first, len| free.take(first, len, |run| push(&mut runs, run)));
                space.runs.extend(&runs);
                map_blocks(&mut free, &space.runs[start..], &mut space.map_blocks);
            }
            space.ends.push((space.runs.len(), space.map_blocks.len()));
        }
        space.used = free.used(&groups.taken);
        (space, free)
    }
}

/// Adds a run, to the last one if it goes on there.
fn push(runs: &mut Vec<FileRun>, run: FileRun) {
    if let Some(last) = runs.last_mut()
        && last.logical + last.len == run.logical
        && last.physical + u64::from(last.len) == run.physical
    {
        last.len += run.len;
        return;
    }
    runs.push(run);
}
