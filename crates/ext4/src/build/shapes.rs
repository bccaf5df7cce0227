//! Needs of the files of a new file system, whatever its size.

use std::collections::HashMap;

use casemate_blockdev::{BlockDevice, u32_of, u64_of, usize_of};
use casemate_primitives::Cpu;
use casemate_primitives::crc32c::Crc32c;

use crate::build::attributes::{AttributeBlocks, Placed};
use crate::build::contents::Contents;
use crate::build::directory::{self, Arranged};
use crate::build::encrypt::{self, Encrypt, Encrypted};
use crate::build::geometry::Geometry;
use crate::build::inline;
use crate::build::map;
use crate::build::options::{BuildOptions, Features};
use crate::build::quota::{self, Quota, Usage};
use crate::build::seal::{Seal, Sealed, TREE_ALIGNMENT};
use crate::build::tree::{Body, TOP, Tree};
use crate::error::{Error, Result, invalid};
use crate::format::dirhash::NameHasher;
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::inode::{FileType, Inode, Time};
use crate::format::quota::Kind;
use crate::format::superblock::HashDefaults;
use crate::format::xattr::Attribute;
use crate::read::encryption::EncryptedInode;
use crate::units::InodeNo;

const LOST_AND_FOUND_SIZE: usize = 16384;

/// Names of a file, and of a directory with those of its directories, without the feature `dir_nlink`.
const MOST_LINKS: u32 = 65000;

/// Targets of symbolic links that have room in the inode.
pub(crate) const LONGEST_INLINE_TARGET: usize = 59;

/// Needs of all files of a tree, whatever the size of the file system.
#[derive(Debug)]
pub(crate) struct Shapes {
    pub files: Vec<Shape>,
    pub attributes: AttributeBlocks,
    pub directory: directory::Form,
    pub map: map::Form,
    /// The file that lists orphans, if there is one.
    pub orphan_file: Option<InodeNo>,
    pub quotas: Vec<Quota>,
    /// Inodes of such files between lost+found and the tree's.
    pub specials: u32,
    /// The last inode in use.
    pub last_inode: InodeNo,
    pub time: Time,
}

/// Needs of one file.
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
    /// Metadata of fs-verity behind the contents.
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

    pub fn each(&self, mut f: impl FnMut(u32, u32)) {
        match self {
            Data::None => {}
            Data::Whole(len) => f(0, *len),
            Data::Runs(runs) => runs.iter().for_each(|(first, len)| f(*first, *len)),
        }
    }
}

/// The inode of each file of a tree, by its number there. Numbers of files that were removed have the root's.
pub(super) fn inodes(tree: &Tree, order: &[u32], specials: u32) -> Vec<InodeNo> {
    let mut inodes = vec![InodeNo::ROOT; tree.capacity()];
    for (index, number) in order.iter().enumerate() {
        inodes[usize_of(*number)] = inode_number(index, specials);
    }
    inodes
}

/// The inode of the file with this place in the order.
pub(super) fn inode_number(index: usize, specials: u32) -> InodeNo {
    match index {
        0 => InodeNo::ROOT,
        1 => InodeNo::LOST_AND_FOUND,
        // The numbers of inodes were checked.
        _ => InodeNo::LOST_AND_FOUND.plus(u32_of(index) - 1 + specials),
    }
}

/// All paths of each file of the tree.
pub(super) type Paths = HashMap<u32, Vec<Vec<u8>>>;

/// Input of the planning: the tree, and the makers of fs-verity metadata and ciphertext.
pub(super) struct Wanted<'a> {
    pub tree: &'a Tree,
    pub order: &'a [u32],
    pub options: &'a BuildOptions,
    /// The maker of fs-verity metadata, and the path of each file.
    pub sealing: Option<(&'a dyn Seal, &'a Paths)>,
    pub encrypter: Option<&'a dyn Encrypt>,
}

impl Wanted<'_> {
    pub fn hash(&self) -> HashDefaults {
        let mut seed = [0; 4];
        for (word, bytes) in
            seed.iter_mut().zip(self.options.hash_seed.unwrap_or_default().as_chunks::<4>().0)
        {
            *word = u32::from_le_bytes(*bytes);
        }
        HashDefaults { version: self.options.hash_version, seed, unsigned: self.options.unsigned_hash }
    }

    /// The time that everything is made at.
    pub fn time(&self) -> Time {
        let newest = || self.order.iter().map(|number| self.tree.entry(*number).node.modified).max();
        self.options.time.or_else(newest).unwrap_or_default().max(Time::default())
    }

    /// Computes the needs of each file.
    ///
    /// # Errors
    /// Fails for names, links, sizes and attributes that ext4 can't have.
    pub fn shapes(&self, geometry: &Geometry) -> Result<Shapes> {
        let features = geometry.features;
        let block_size = usize_of(geometry.block_size);
        let hash = self.hash();
        let hasher = NameHasher::new(hash.version, &hash)
            .ok_or_else(|| Error::argument("the hash of names is one of 0 to 5"))?;
        let project_quota = quota::project_inode(&features, self.options.quota_types);
        let orphan_file = features.compat.has(Compat::ORPHAN_FILE);
        let orphan_file = orphan_file.then_some(project_quota.unwrap_or(InodeNo::LOST_AND_FOUND).plus(1));
        let specials = u32::from(orphan_file.is_some()) + u32::from(project_quota.is_some());
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
            last_inode: inode_number(self.order.len() - 1, specials)
                .max(InodeNo::LOST_AND_FOUND.plus(specials)),
            time: self.time(),
        };
        let room = Inode::new(InodeNo::FIRST, FileType::Regular, usize_of(geometry.inode_size), 32);
        let room = room.xattr_area().len();
        let mut links = vec![0u32; self.tree.capacity()];
        let mut parents: HashMap<u32, u32> = HashMap::from([(TOP, TOP)]);
        for number in self.order {
            let Body::Directory(names) = &self.tree.entry(*number).body else { continue };
            for below in names.values() {
                links[usize_of(*below)] += 1;
                if self.tree.is_directory(*below) {
                    links[usize_of(*number)] += 1;
                    parents.insert(*below, *number);
                }
            }
        }
        let mut encrypted = self.encrypted(geometry, specials)?;
        for number in self.order {
            let mut shaped = || -> Result<Shape> {
                let entry = self.tree.entry(*number);
                let mut shape = Shape { links: links[usize_of(*number)], ..Shape::default() };
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
                        // An index has fewer blocks than 2^28.
                        shape.data = Data::Whole(u32_of(blocks));
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
                        shapes.map.check(contents.size.div_ceil(u64_of(block_size)))?;
                        shape.data = data(contents, u64_of(block_size), geometry.cluster_blocks);
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
                Ok(shape)
            };
            let shape = shaped().map_err(|error| self.named(*number, error))?;
            shapes.files.push(shape);
        }
        Ok(shapes)
    }

    /// An error with the path of the file that it is about.
    fn named(&self, number: u32, error: Error) -> Error {
        let path = self.tree.paths().remove(&number).unwrap_or_default();
        error.within(format_args!("/{}", String::from_utf8_lossy(&path)))
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
            number: inodes[usize_of(number)],
            kind: self.tree.entry(number).node.kind,
            casefolded: false,
            context: context.to_vec(),
            uuid: self.uuid().unwrap_or_default(),
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
            && sealer.room(paths.get(&number).map_or(&[], |paths| &paths[..]), contents.size)?.is_some()
        {
            return Ok(None);
        }
        // There is room for them in an inode.
        let mut bytes = vec![0; usize_of(contents.size)];
        contents.open()?.read_at(&mut bytes, 0)?;
        if !contents.reading.agrees(Crc32c::new(Cpu::portable()).update(0, &bytes)) {
            return Err(contents.changed());
        }
        Ok(Some(inline::divided(bytes)))
    }

    /// Makes room behind a file's contents for its tree, if it gets one.
    fn seal(&self, number: u32, size: u64, geometry: &Geometry, shape: &mut Shape) -> Result<()> {
        let Some((sealer, paths)) = self.sealing else { return Ok(()) };
        let paths = paths.get(&number).map_or(&[][..], Vec::as_slice);
        let Some((tree, descriptor)) = sealer.room(paths, size)? else { return Ok(()) };
        let block = u64::from(geometry.block_size);
        if !TREE_ALIGNMENT.is_multiple_of(block * u64::from(geometry.cluster_blocks)) {
            return Err(Error::unsupported("fs-verity with clusters above 64 KiB"));
        }
        let start = size.next_multiple_of(TREE_ALIGNMENT) / block;
        // Behind the descriptor is its length, in four bytes.
        let blocks = tree.div_ceil(block) + (descriptor + 4).div_ceil(block);
        let (Ok(first), Ok(blocks), Ok(_)) =
            (start.try_into(), blocks.try_into(), u32::try_from(start + blocks))
        else {
            let text = "a file and its tree have more than 2^32 blocks";
            return Err(invalid(std::io::ErrorKind::FileTooLarge, text));
        };
        let mut runs = Vec::new();
        shape.data.each(|first, len| runs.push((first, len)));
        runs.push((first, blocks));
        shape.data = Data::Runs(runs);
        let path = paths.first().cloned().unwrap_or_default();
        shape.sealed = Some(Box::new(Sealed { path, first, blocks }));
        Ok(())
    }
}

/// The blocks of contents that are no holes, in whole clusters.
fn data(contents: &Contents, block: u64, cluster: u32) -> Data {
    let size = contents.size.div_ceil(block);
    // A map has room for fewer than 2^32 blocks, which was checked.
    if contents.ranges.is_none() {
        return if size == 0 { Data::None } else { Data::Whole(u32_of(size)) };
    }
    let cluster = u64::from(cluster);
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for range in contents.ranges() {
        let start = range.start / block / cluster * cluster;
        let end = range.end.div_ceil(block).next_multiple_of(cluster).min(size);
        let start = runs.last().map_or(start, |(first, len)| start.max(u64::from(first + len)));
        match runs.last_mut() {
            Some((first, len)) if u64::from(*first + *len) == start => {
                *len += u32_of(end.saturating_sub(start))
            }
            _ if start < end => runs.push((u32_of(start), u32_of(end - start))),
            _ => {}
        }
    }
    Data::Runs(runs)
}
