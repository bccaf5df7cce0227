//! Where everything of a new file system goes.

use std::collections::HashMap;
use std::sync::Arc;

use casemate_blockdev::BlockDevice;
use casemate_primitives::Cpu;
use casemate_primitives::crc32c::Crc32c;

use crate::build::amend::LOST_AND_FOUND;
use crate::build::attributes::{AttributeBlocks, Placed};
use crate::build::directory::{self, Arranged};
use crate::build::encrypt::{self, Encrypt, Encrypted, Encrypter};
use crate::build::geometry::{FIRST_INODE, Geometry};
use crate::build::groups::Groups;
use crate::build::inline;
use crate::build::map;
use crate::build::options::{BuildOptions, BuildSize, Features};
use crate::build::quota::{self, Quota, Usage};
use crate::build::seal::{Seal, Sealed, Sealer, TREE_ALIGNMENT};
use crate::build::space::{Free, Run};
use crate::build::tree::{Body, TOP, Tree};
use crate::error::{Error, Result, invalid};
use crate::format::dirhash::NameHasher;
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::inode::{FileType, Inode, ROOT_INODE, Time};
use crate::format::layout::Layout;
use crate::format::quota::Kind;
use crate::format::superblock::{HashDefaults, NewSuperblock, Superblock};
use crate::format::xattr::Attribute;
use crate::read::encryption::EncryptedInode;

/// The inodes that grow the descriptors, and hold the journal.
pub(crate) const RESIZE_INODE: u32 = 7;
pub(crate) const JOURNAL_INODE: u32 = 8;

const LOST_AND_FOUND_SIZE: usize = 16384;

/// Names of a file, and of a directory with those of its directories, without the feature `dir_nlink`.
const MOST_LINKS: u32 = 65000;

/// Targets of symbolic links that have room in the inode.
pub(crate) const LONGEST_INLINE_TARGET: usize = 59;

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
    pub(crate) inodes: Vec<u32>,
    /// What files need, in `order`.
    pub(crate) shapes: Shapes,
    pub(crate) space: Space,
    pub(crate) sealer: Sealer,
    pub(crate) encrypter: Encrypter,
    /// The image's size in bytes.
    size: u64,
}

/// What the files of a tree need, whatever the size of the file system.
#[derive(Debug)]
pub(crate) struct Shapes {
    pub files: Vec<Shape>,
    pub attributes: AttributeBlocks,
    pub directory: directory::Form,
    pub map: map::Form,
    /// The file that lists orphans, if there is one.
    pub orphan_file: Option<u32>,
    pub quotas: Vec<Quota>,
    /// Inodes of such files between lost+found and the tree's.
    pub specials: u32,
    /// The last inode in use.
    pub last_inode: u32,
    pub time: Time,
}

/// What a file needs.
#[derive(Debug, Default)]
pub(crate) struct Shape {
    /// Names, and for directories those of their directories, as the inode counts them.
    pub links: u32,
    pub attributes: Placed,
    /// Of a directory, in which blocks its names go.
    pub arranged: Option<Box<Arranged>>,
    /// Of a directory, where it lies.
    pub parent: u32,
    /// Blocks that are data: first and number.
    pub data: Data,
    /// What is behind the contents.
    pub sealed: Option<Box<Sealed>>,
    pub encrypted: Option<Box<Encrypted>>,
    /// Contents that lie in the inode, as far as they do in the place of its map.
    pub inline: Option<Box<[u8]>>,
}

/// Blocks of a file that are no holes.
#[derive(Debug, Default)]
pub(crate) enum Data {
    #[default]
    None,
    /// So many from the first one on.
    Whole(u32),
    /// First and number of each run.
    Runs(Vec<(u32, u32)>),
}

/// Blocks that were given to files.
#[derive(Debug, Default)]
pub(crate) struct Space {
    pub runs: Vec<Run>,
    pub map_blocks: Vec<u64>,
    /// Where each file's runs and blocks of its map end.
    pub ends: Vec<(usize, usize)>,
    pub attribute_blocks: Vec<u64>,
    pub journal: Vec<Run>,
    pub journal_map: Vec<u64>,
    pub orphan_file: Vec<Run>,
    pub orphan_map: Vec<u64>,
    /// Runs and map of each quota file.
    pub quotas: Vec<(Vec<Run>, Vec<u64>)>,
    /// The block of multi-mount protection.
    pub mmp: Option<u64>,
    /// The block that leads to the reserved blocks of descriptors.
    pub resize: Option<u64>,
    /// Everything that is in use: starts and ends, in order.
    pub used: Vec<(u64, u64)>,
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

    /// The same with fs-verity on files, and encryption of directories, that others choose.
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
        }
        let options = &options;
        tree.add_lost_and_found()?;
        let found = tree.lookup(LOST_AND_FOUND).filter(|found| tree.is_directory(*found));
        let found = found.ok_or_else(|| {
            let text = "lost+found in the tree is no directory, which file systems have under that name";
            invalid(std::io::ErrorKind::NotADirectory, text)
        })?;
        let top = &mut tree.entry_mut(TOP).node;
        if let Some((uid, gid)) = options.root_owner {
            (top.uid, top.gid) = (uid, gid);
        }
        top.mode = options.root_mode.unwrap_or(top.mode);
        let mut order = tree.numbers();
        order.retain(|number| *number != found);
        order.insert(1, found);
        // Features that the size may rule out are those of the journal alone: without it there is no list of orphans.
        let mut tries = 0;
        let mut kept = None;
        let mut blocks = first_guess(&tree, &order, options);
        let paths = if sealer.is_some() { tree.paths() } else { HashMap::new() };
        let sealing = sealer.as_deref().map(|sealer| (sealer, &paths));
        loop {
            let attempt =
                Attempt { tree: &tree, order: &order, options, sealing, encrypter: encrypter.as_deref() };
            let plan = attempt.plan(blocks, &mut kept)?;
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
    pub(crate) fn place(&self, index: usize) -> (&[Run], &[u64]) {
        let (run, block) = index.checked_sub(1).map_or((0, 0), |before| self.space.ends[before]);
        let (run_end, block_end) = self.space.ends[index];
        (&self.space.runs[run..run_end], &self.space.map_blocks[block..block_end])
    }

    /// The inode of the file with this place in the order.
    pub(crate) fn inode(&self, index: usize) -> u32 {
        inode_number(index, self.shapes.specials)
    }

    /// The place in the order of the file with this inode; `None` for special ones.
    pub(crate) fn index(&self, inode: u32) -> Option<usize> {
        let first = FIRST_INODE + 1 + self.shapes.specials;
        match inode {
            ROOT_INODE => Some(0),
            FIRST_INODE => Some(1),
            _ => Some((inode.checked_sub(first)? + 2) as usize).filter(|index| *index < self.order.len()),
        }
    }
}

/// The inode of each file of a tree.
fn inodes(tree: &Tree, order: &[u32], specials: u32) -> Vec<u32> {
    let mut inodes = vec![0; tree.capacity()];
    for (index, number) in order.iter().enumerate() {
        inodes[*number as usize] = inode_number(index, specials);
    }
    inodes
}

fn inode_number(index: usize, specials: u32) -> u32 {
    match index {
        0 => ROOT_INODE,
        1 => FIRST_INODE,
        // OK to truncate: the numbers of inodes were checked.
        _ => FIRST_INODE + index as u32 - 1 + specials,
    }
}

impl Shape {
    /// The target of a link as it is stored.
    pub fn target<'a>(&'a self, target: &'a [u8]) -> &'a [u8] {
        self.encrypted.as_ref().map_or(target, |encrypted| &encrypted.target)
    }
}

impl Data {
    pub fn blocks(&self) -> u64 {
        match self {
            Data::None => 0,
            Data::Whole(len) => u64::from(*len),
            Data::Runs(runs) => runs.iter().map(|(_, len)| u64::from(*len)).sum(),
        }
    }

    fn each(&self, mut f: impl FnMut(u32, u32)) {
        match self {
            Data::None => {}
            Data::Whole(len) => f(0, *len),
            Data::Runs(runs) => runs.iter().for_each(|(first, len)| f(*first, *len)),
        }
    }
}

/// A number of blocks that is never more than what is needed.
fn first_guess(tree: &Tree, order: &[u32], options: &BuildOptions) -> u64 {
    let block = u64::from(options.block_size);
    match options.size {
        BuildSize::Bytes(size) => size / block,
        BuildSize::Fitting { free, .. } => {
            let contents = order.iter().map(|number| match &tree.entry(*number).body {
                Body::File(contents) => {
                    contents.ranges().map(|range| (range.end - range.start) / block).sum()
                }
                Body::Directory(_) => 1,
                _ => 0u64,
            });
            // Each file has an inode, whatever else it has.
            let tables = order.len() as u64 * u64::from(options.inode_size) / block;
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

/// Paths of files of the tree.
type Paths = HashMap<u32, Vec<u8>>;

/// One try with a number of blocks.
struct Attempt<'a> {
    tree: &'a Tree,
    order: &'a [u32],
    options: &'a BuildOptions,
    /// Who seals files, and the path of each.
    sealing: Option<(&'a dyn Seal, &'a Paths)>,
    encrypter: Option<&'a dyn Encrypt>,
}

struct Parts {
    geometry: Geometry,
    superblock: Superblock,
    layout: Layout,
    groups: Groups,
    shapes: Shapes,
    space: Space,
}

impl Attempt<'_> {
    /// The parts of a plan; or how many blocks are missing, at least. Shapes are kept from one attempt to the next: they do
    /// not depend on the size, but by the features that it rules out.
    fn plan(
        &self,
        blocks: u64,
        kept: &mut Option<(Features, Shapes)>,
    ) -> Result<std::result::Result<Parts, u64>> {
        let is_fitting = matches!(self.options.size, BuildSize::Fitting { .. });
        // One more for the list of orphans, which may turn out not to be there.
        let inodes = FIRST_INODE as u64 + self.order.len() as u64 - 1;
        let has_projects = quota::project_inode(&self.options.features, self.options.quota_types).is_some();
        let inodes = inodes + u64::from(has_projects);
        let geometry = match Geometry::new(self.options, blocks, inodes) {
            Err(error) if is_fitting && error.io_kind() == Some(std::io::ErrorKind::StorageFull) => {
                return Ok(Err(16));
            }
            result => result?,
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
        let in_groups = groups.taken.ranges().last().map_or(0, |(_, end)| end);
        let missing = free.end().max(in_groups).saturating_sub(geometry.blocks);
        let wanted = match self.options.size {
            BuildSize::Fitting { free, .. } => free,
            BuildSize::Bytes(_) => 0,
        };
        let wanted = wanted.max(self.options.min_free).div_ceil(self.options.block_size.into());
        let left = free.left(geometry.blocks).saturating_sub(geometry.reserved_blocks);
        Ok(match missing.max(wanted.saturating_sub(left)) {
            0 => Ok(Parts { geometry, superblock, layout, groups, shapes, space }),
            more => {
                *kept = Some((geometry.features, shapes));
                Err(more)
            }
        })
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
            // OK to truncate: the logarithm of a u32.
            log_groups_per_flex: if has_flex { geometry.groups_per_flex.ilog2() as u8 } else { 0 },
            first_meta_bg: 0,
            backup_groups: geometry.backup_groups,
            uuid: options.uuid,
            checksum_seed: Crc32c::new(Cpu::portable()).update(!0, &options.uuid),
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

    fn hash(&self) -> HashDefaults {
        let mut seed = [0; 4];
        for (word, bytes) in seed.iter_mut().zip(self.options.hash_seed.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        HashDefaults { version: self.options.hash_version, seed, unsigned: self.options.unsigned_hash }
    }

    /// The time that everything is made at.
    fn time(&self) -> Time {
        let newest = || self.order.iter().map(|number| self.tree.entry(*number).node.modified).max();
        self.options.time.or_else(newest).unwrap_or_default().max(Time::default())
    }

    fn shapes(&self, geometry: &Geometry) -> Result<Shapes> {
        let features = geometry.features;
        let block_size = geometry.block_size as usize;
        let hash = self.hash();
        let hasher = NameHasher::new(hash.version, &hash)
            .ok_or_else(|| Error::argument("the hash of names is one of 0 to 5"))?;
        let project_quota = quota::project_inode(&features, self.options.quota_types);
        let orphan_file = features.compat.has(Compat::ORPHAN_FILE);
        let orphan_file = orphan_file.then_some(project_quota.unwrap_or(FIRST_INODE) + 1);
        // OK to truncate: two.
        let specials = orphan_file.iter().chain(&project_quota).count() as u32;
        let mut shapes = Shapes {
            files: Vec::with_capacity(self.order.len()),
            attributes: AttributeBlocks::default(),
            directory: directory::Form {
                block_size,
                has_sums: features.ro_compat.has(RoCompat::METADATA_CSUM),
                has_kinds: features.incompat.has(Incompat::FILETYPE),
                hash: features.compat.has(Compat::DIR_INDEX).then_some((hasher, hash.version)),
                is_large: features.incompat.has(Incompat::LARGEDIR),
            },
            map: map::Form { block_size, has_extents: features.incompat.has(Incompat::EXTENTS) },
            orphan_file,
            quotas: quota::plan(&features, self.options.quota_types, |kind| self.owners(kind)),
            specials,
            last_inode: inode_number(self.order.len() - 1, specials).max(FIRST_INODE + specials),
            time: self.time(),
        };
        let room = Inode::new(1, FileType::Regular, geometry.inode_size as usize, 32).xattr_area().len();
        let mut links = vec![0u32; self.tree.capacity()];
        let mut parents: HashMap<u32, u32> = HashMap::from([(TOP, TOP)]);
        for number in self.order {
            let Body::Directory(names) = &self.tree.entry(*number).body else { continue };
            for below in names.values() {
                links[*below as usize] += 1;
                if self.tree.is_directory(*below) {
                    links[*number as usize] += 1;
                    parents.insert(*below, *number);
                }
            }
        }
        let mut encrypted = self.encrypted(geometry, specials)?;
        for number in self.order {
            let entry = self.tree.entry(*number);
            let mut shape = Shape { links: links[*number as usize], ..Shape::default() };
            shape.encrypted = encrypted.remove(number);
            let inline = match &shape.encrypted {
                None => self.inline(*number, &features, room)?,
                Some(_) => None,
            };
            let (inline, rest) = inline.unzip();
            let first = shape.encrypted.as_ref().map(|encrypted| encrypted.attribute()).or(rest);
            shape.attributes = shapes.attributes.place(first, &entry.xattrs, room, block_size)?;
            shape.inline = inline;
            match &entry.body {
                Body::Directory(names) => {
                    let arranged = match &shape.encrypted {
                        Some(stored) => {
                            shapes.directory.arrange(stored.names.iter().map(|(name, _)| &name[..]))?
                        }
                        None => shapes.directory.arrange(names.keys().map(|name| &**name))?,
                    };
                    let mut blocks = arranged.blocks();
                    if shapes.files.len() == 1 && !arranged.is_indexed() {
                        blocks = blocks.max((LOST_AND_FOUND_SIZE / block_size).clamp(2, 12));
                    }
                    // OK to truncate: an index has fewer blocks than 2^28.
                    shape.data = Data::Whole(blocks as u32);
                    shape.arranged = Some(Box::new(arranged));
                    shape.parent = parents[number];
                    // "." is a name, and ".." of the top another one.
                    shape.links += if *number == TOP { 2 } else { 1 };
                    let is_many = shape.links >= MOST_LINKS;
                    if is_many && !features.ro_compat.has(RoCompat::DIR_NLINK) {
                        let text = "a directory of 65000 directories, which need the feature dir_nlink";
                        return Err(Error::unsupported(text));
                    }
                    shape.links = if is_many { 1 } else { shape.links };
                }
                Body::File(_) if shape.inline.is_some() => {}
                Body::File(contents) => {
                    shapes.map.check(contents.size.div_ceil(block_size as u64))?;
                    shape.data = data(contents, block_size as u64, geometry.cluster_blocks);
                    self.seal(*number, contents.size, geometry, &mut shape)?;
                }
                Body::Symlink(target) if target.is_empty() || target.len() >= block_size.min(4096) => {
                    let text = format!("a symbolic link to a target of {} bytes", target.len());
                    return Err(invalid(std::io::ErrorKind::InvalidFilename, text));
                }
                Body::Symlink(target) if shape.target(target).len() > LONGEST_INLINE_TARGET => {
                    shape.data = Data::Whole(1);
                }
                Body::Symlink(_) | Body::Node => {}
            }
            if shape.links > MOST_LINKS {
                let text = format!("a file with {} names; ext4 takes {MOST_LINKS}", shape.links);
                return Err(Error::unsupported(text));
            }
            shapes.files.push(shape);
        }
        Ok(shapes)
    }

    /// Owners of files, of whom nothing is known but that they have some.
    fn owners(&self, kind: Kind) -> Usage {
        let ids = self.order.iter().map(|number| self.tree.entry(*number).owner(kind));
        ids.map(|id| (id, (0, 0))).collect()
    }

    /// Files that are encrypted, by their numbers in the tree.
    fn encrypted(&self, geometry: &Geometry, specials: u32) -> Result<HashMap<u32, Box<Encrypted>>> {
        let Some(encrypter) = self.encrypter else { return Ok(HashMap::new()) };
        let inodes = inodes(self.tree, self.order, specials);
        let describe = |number: u32, context: &[u8]| EncryptedInode {
            number: inodes[number as usize],
            kind: self.tree.entry(number).node.kind,
            casefolded: false,
            context: context.to_vec(),
            uuid: self.options.uuid,
            block_size: geometry.block_size,
        };
        let contexts = encrypt::contexts(encrypter, self.tree, self.order, &inodes, describe)?;
        let files = contexts.into_iter().map(|(number, context)| {
            let inode = describe(number, &context);
            let encrypted = Encrypted::new(encrypter, inode, &self.tree.entry(number).body)?;
            Ok((number, Box::new(encrypted)))
        });
        files.collect()
    }

    /// Contents that have room in the inode: those in the place of its map, and the attribute with the rest.
    fn inline(
        &self,
        number: u32,
        features: &Features,
        room: usize,
    ) -> Result<Option<(Box<[u8]>, Attribute)>> {
        let Body::File(contents) = &self.tree.entry(number).body else { return Ok(None) };
        if !features.incompat.has(Incompat::INLINE_DATA) || contents.size > inline::most(room) {
            return Ok(None);
        }
        if let Some((sealer, paths)) = self.sealing
            && sealer.room(paths.get(&number).map_or(&[], |path| &path[..]), contents.size)?.is_some()
        {
            return Ok(None);
        }
        // OK to truncate: there is room for them in an inode.
        let mut bytes = vec![0; contents.size as usize];
        contents.open()?.read_at(&mut bytes, 0)?;
        Ok(Some(inline::divided(bytes)))
    }

    /// Makes room behind a file's contents for its tree, if it gets one.
    fn seal(&self, number: u32, size: u64, geometry: &Geometry, shape: &mut Shape) -> Result<()> {
        let Some((sealer, paths)) = self.sealing else { return Ok(()) };
        let path = paths.get(&number).cloned().unwrap_or_default();
        let Some((tree, descriptor)) = sealer.room(&path, size)? else { return Ok(()) };
        let block = u64::from(geometry.block_size);
        if !TREE_ALIGNMENT.is_multiple_of(block * u64::from(geometry.cluster_blocks)) {
            return Err(Error::unsupported("fs-verity with clusters above 64 KiB"));
        }
        let start = size.next_multiple_of(TREE_ALIGNMENT) / block;
        // Behind the descriptor is its length, in four bytes.
        let blocks = tree.div_ceil(block) + (descriptor + 4).div_ceil(block);
        if u32::try_from(start + blocks).is_err() {
            let text = "a file and its tree have more than 2^32 blocks";
            return Err(invalid(std::io::ErrorKind::FileTooLarge, text));
        }
        // OK to truncate: checked just now.
        let (first, blocks) = (start as u32, blocks as u32);
        let mut runs = Vec::new();
        shape.data.each(|first, len| runs.push((first, len)));
        runs.push((first, blocks));
        shape.data = Data::Runs(runs);
        shape.sealed = Some(Box::new(Sealed { path, first, blocks }));
        Ok(())
    }

    /// Gives everything its blocks.
    fn space(&self, geometry: &Geometry, layout: &Layout, groups: &Groups, shapes: &Shapes) -> (Space, Free) {
        // With 1 KiB blocks and bigalloc the superblock lies behind the first block.
        let first = u64::from(geometry.first_data_block).max(layout.superblock_block());
        let mut free = Free::new(&groups.taken, first, geometry.cluster_blocks.into());
        let mut space = Space::default();
        let map_blocks = |free: &mut Free, runs: &[Run], blocks: &mut Vec<u64>| {
            for _ in 0..shapes.map.blocks(runs) {
                free.take(0, 1, |run| blocks.push(run.physical));
            }
        };
        if geometry.journal_blocks > 0 {
            free.take_whole(geometry.journal_blocks, geometry.blocks, |run| space.journal.push(run));
            map_blocks(&mut free, &space.journal, &mut space.journal_map);
        }
        if geometry.features.compat.has(Compat::RESIZE_INODE) {
            free.take(0, 1, |run| space.resize = Some(run.physical));
        }
        if shapes.orphan_file.is_some() {
            free.take_whole(geometry.orphan_blocks, geometry.blocks, |run| space.orphan_file.push(run));
            map_blocks(&mut free, &space.orphan_file, &mut space.orphan_map);
        }
        for quota in &shapes.quotas {
            let mut runs = Vec::new();
            // OK to truncate: a file of owners that are in memory.
            let blocks = quota.size.div_ceil(shapes.map.block_size) as u32;
            free.take_whole(blocks, geometry.blocks, |run| runs.push(run));
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
        let mut places: Vec<(Vec<Run>, Vec<u64>)> = Vec::new();
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
fn push(runs: &mut Vec<Run>, run: Run) {
    if let Some(last) = runs.last_mut()
        && last.logical + last.len == run.logical
        && last.physical + u64::from(last.len) == run.physical
    {
        last.len += run.len;
        return;
    }
    runs.push(run);
}

/// The blocks of contents that are no holes, in whole clusters.
fn data(contents: &crate::build::contents::Contents, block: u64, cluster: u32) -> Data {
    let size = contents.size.div_ceil(block);
    // OK to truncate, here and below: a map has room for fewer than 2^32 blocks, which was checked.
    if contents.ranges.is_none() {
        return if size == 0 { Data::None } else { Data::Whole(size as u32) };
    }
    let cluster = u64::from(cluster);
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for range in contents.ranges() {
        let start = range.start / block / cluster * cluster;
        let end = range.end.div_ceil(block).next_multiple_of(cluster).min(size);
        let start = runs.last().map_or(start, |(first, len)| start.max(u64::from(first + len)));
        match runs.last_mut() {
            Some((first, len)) if u64::from(*first + *len) == start => {
                *len += end.saturating_sub(start) as u32
            }
            _ if start < end => runs.push((start as u32, (end - start) as u32)),
            _ => {}
        }
    }
    Data::Runs(runs)
}
