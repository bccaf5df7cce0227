//! Random changes of the metadata of a sound image, with the checksums made right again or not.
//!
//! A [`Mutation`] follows from the image and the seed of a generator alone, so a seed brings a case back.

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use casemate_blockdev::MemoryDevice;
use casemate_ext4::csum::{Checksums, Context, Subject, recipe};
use casemate_ext4::{
    Block, Ext4, ExtentNode, FileType, GroupDescriptor, GroupNo, Inode, InodeFlags, InodeNo,
    JournalSuperblock, OpenOptions, Place, Structure,
};
use casemate_testkit::Rng;

/// The place of what is sound.
const NOWHERE: Place = Place { structure: Structure::Inode, block: None, group: None, inode: None };

/// A sound image, and where its structures lie.
pub struct Image {
    pub bytes: Vec<u8>,
    checksums: Checksums,
    /// Structures by their kind. Each kind is changed as often as every other.
    parts: BTreeMap<&'static str, Vec<Part>>,
    /// Numbers that mean something somewhere: blocks of structures, inodes, counts.
    values: Vec<u64>,
}

/// A structure.
struct Part {
    /// Name of the structure, with its number.
    name: String,
    offset: usize,
    len: usize,
    sum: Sum,
    /// Where its fields lie; elsewhere are the bytes that mean less.
    fields: Vec<usize>,
}

/// Where a structure's checksum stands.
#[derive(Clone, Copy)]
enum Sum {
    None,
    /// In the structure.
    Own(Subject, Context),
    /// In the descriptor at this byte, which has one itself: that of the bitmap's first so many bytes.
    Bitmap {
        subject: Subject,
        descriptor: usize,
        group: GroupNo,
        covered: usize,
    },
}

/// Changes of an image.
#[derive(Default)]
pub struct Mutation {
    /// Bytes by the places that they go to, which do not overlap.
    pub writes: BTreeMap<usize, Vec<u8>>,
    /// Changes, in words.
    pub what: Vec<String>,
}

impl Image {
    pub fn new(bytes: Vec<u8>) -> Image {
        let device = Arc::new(MemoryDevice::new(bytes.clone()));
        let options = OpenOptions { replay_journal: false, ..OpenOptions::default() };
        let fs = Ext4::open(device, &options).unwrap();
        let mut find = Find {
            fs: &fs,
            bytes: &bytes,
            parts: BTreeMap::new(),
            seen: HashSet::new(),
            journal: None,
            free_inodes: 0,
        };
        find.all();
        let (parts, journal) = (find.parts, find.journal);
        let layout = fs.layout();
        let mut values = vec![0, 1, 2, layout.blocks, layout.blocks - 1, u64::from(layout.inodes)];
        let blocks = parts.values().flatten().map(|part| part.offset as u64 / u64::from(layout.block_size));
        values.extend(blocks);
        values.extend([0x7f, 0xff, 0x7fff, 0x8000, 0x8001, 0xffff, 1 << 31, u64::from(u32::MAX), u64::MAX]);
        values.extend([u64::from(layout.block_size), 12, 65536, u64::from(layout.inodes) + 1, 60, 61]);
        let checksums = match journal {
            Some(uuid) => fs.checksums().with_journal(&uuid),
            None => *fs.checksums(),
        };
        Image { bytes, checksums, parts, values }
    }

    /// Leaves structures of a kind as they are.
    pub fn leave(&mut self, kind: &str) {
        self.parts.remove(kind);
    }

    /// Some fields of one to three structures changed, and their checksums made right.
    pub fn mutation(&self, rng: &mut Rng) -> Mutation {
        self.mutation_with(rng, |_| true)
    }

    /// A mutation where `mend` decides for each structure if its checksum is made right.
    pub fn mutation_with(&self, rng: &mut Rng, mend: impl Fn(&mut Rng) -> bool) -> Mutation {
        let mut mutation = Mutation::default();
        for _ in 0..=rng.below(3) {
            let part = self.part(rng);
            let mut bytes = mutation.current(self, part.offset, part.len);
            let other = self.part(rng);
            if rng.below(8) == 0 && other.len == part.len {
                bytes.copy_from_slice(&self.bytes[other.offset..other.offset + other.len]);
                mutation.what.push(format!("{} becomes {}", part.name, other.name));
            }
            for _ in 0..=rng.below(4) {
                mutation.what.extend(self.change(&mut bytes, part, rng));
            }
            if mend(rng) {
                self.mend(&mut mutation, part, &mut bytes);
            } else {
                mutation.what.push("and its checksum is left".to_owned());
            }
            mutation.writes.insert(part.offset, bytes);
        }
        mutation
    }

    fn part(&self, rng: &mut Rng) -> &Part {
        let kinds = self.parts.len() as u64;
        let kind = self.parts.values().nth(rng.below(kinds) as usize).unwrap();
        &kind[rng.below(kind.len() as u64) as usize]
    }

    fn mend(&self, mutation: &mut Mutation, part: &Part, bytes: &mut [u8]) {
        match part.sum {
            Sum::None => {}
            Sum::Own(subject, context) => {
                let _ = self.checksums.store(recipe(subject), &context, bytes);
            }
            Sum::Bitmap { subject, descriptor, group, covered } => {
                let len = self.descriptor_len();
                let mut raw = mutation.current(self, descriptor, len);
                // The same checksum as that of an attribute's value, whose bytes hold no checksum either.
                let plain = recipe(Subject::XattrInode);
                let sum = self.checksums.compute(plain, &Context::default(), &bytes[..covered]);
                let _ = self.checksums.write(recipe(subject), &mut raw, sum.unwrap());
                let context = Context { group, ..Context::default() };
                let _ = self.checksums.store(recipe(self.checksums.descriptor_subject()), &context, &mut raw);
                mutation.writes.insert(descriptor, raw);
            }
        }
    }

    fn descriptor_len(&self) -> usize {
        self.parts["descriptor"][0].len
    }

    /// Changes a field. What was done, in words.
    fn change(&self, bytes: &mut [u8], part: &Part, rng: &mut Rng) -> Option<String> {
        let width = 1 << rng.below(4);
        let at = match (rng.below(4), &part.fields[..]) {
            (0, _) | (_, []) => rng.below(bytes.len() as u64) as usize,
            (_, fields) => fields[rng.below(fields.len() as u64) as usize],
        };
        let field = bytes.get_mut(at..at + width)?;
        let mut number = [0; 8];
        number[..width].copy_from_slice(field);
        let old = u64::from_le_bytes(number);
        let new = match rng.below(8) {
            0 => rng.next_u64(),
            1 => old.wrapping_add(1),
            2 => old.wrapping_sub(1),
            3 => old ^ 1 << rng.below(8 * width as u64),
            4 => self.values[rng.below(self.values.len() as u64) as usize].swap_bytes() >> (64 - 8 * width),
            _ => self.values[rng.below(self.values.len() as u64) as usize],
        };
        let new = new & u64::MAX >> (64 - 8 * width);
        field.copy_from_slice(&new.to_le_bytes()[..width]);
        (old != new).then(|| format!("{} +{at:#x}: {old:#x} becomes {new:#x} ({width})", part.name))
    }
}

impl Mutation {
    /// The bytes of a structure as they are with the changes so far.
    fn current(&self, image: &Image, offset: usize, len: usize) -> Vec<u8> {
        let changed = self.writes.get(&offset).filter(|bytes| bytes.len() == len);
        changed.cloned().unwrap_or_else(|| image.bytes[offset..offset + len].to_vec())
    }
}

/// Finds the structures of an image.
struct Find<'a> {
    fs: &'a Ext4,
    bytes: &'a [u8],
    parts: BTreeMap<&'static str, Vec<Part>>,
    seen: HashSet<usize>,
    /// The journal's UUID.
    journal: Option<[u8; 16]>,
    free_inodes: u32,
}

impl Find<'_> {
    fn all(&mut self) {
        let layout = *self.fs.layout();
        let superblock = self.fs.superblock();
        let own = |subject| Sum::Own(subject, Context::default());
        let sum = own(Subject::Superblock);
        self.part("superblock", "", 1024, 1024, sum, (0..0x280).step_by(2));
        for group in layout.all_groups() {
            if let Some(offset) = layout.superblock_offset(group) {
                self.part("superblock copy", group, offset as usize, 1024, sum, 0..0x180);
            }
            self.group(group);
        }
        if let Some(block) = superblock.mmp_block {
            let at = layout.offset(block) as usize;
            self.part("MMP block", "", at, 1024, own(Subject::MmpBlock), 0..16);
        }
        if let Some(Ok(inode)) = superblock.journal_inode.map(|journal| self.fs.inode(journal)) {
            self.journal(&inode);
        }
    }

    fn group(&mut self, group: GroupNo) {
        let layout = *self.fs.layout();
        let (index, position) = layout.descriptor_position(group);
        let block = layout.descriptor_block(index);
        let size = layout.descriptor_size as usize;
        let at = layout.offset(block) as usize + position as usize * size;
        let sum = Sum::Own(self.fs.checksums().descriptor_subject(), Context { group, ..Context::default() });
        self.part("descriptor", group, at, size, sum, (0..size).step_by(2));
        let descriptor = GroupDescriptor::from_bytes(&self.bytes[at..at + size]).unwrap();
        let bitmaps = [
            ("block bitmap", Subject::BlockBitmap, 2, descriptor.block_bitmap(), layout.clusters_per_group),
            ("inode bitmap", Subject::InodeBitmap, 1, descriptor.inode_bitmap(), layout.inodes_per_group),
        ];
        for (kind, subject, uninit, block, bits) in bitmaps {
            if descriptor.flags() & uninit == 0 {
                let covered = bits as usize / 8;
                let sum = match self.fs.checksums().covers(subject) {
                    true => Sum::Bitmap { subject, descriptor: at, group, covered },
                    false => Sum::None,
                };
                let offset = layout.offset(block) as usize;
                self.part(kind, group, offset, layout.block_size as usize, sum, 0..covered.min(64));
            }
        }
        for index in 0..layout.inodes_per_group {
            let number = layout.inode_at(group, index).unwrap();
            let table = layout.offset(descriptor.inode_table()) as usize;
            let at = table + index as usize * layout.inode_size as usize;
            match self.fs.inode(number) {
                Ok(inode) => self.inode(&inode, at),
                Err(_) if self.free_inodes < 4 => {
                    self.free_inodes += 1;
                    let sum = Sum::Own(Subject::Inode, Context { inode: Some(number), ..Context::default() });
                    let len = layout.inode_size as usize;
                    self.part("free inode", number, at, len, sum, [0, 4, 0x14, 0x1a, 0x20].into_iter());
                }
                Err(_) => {}
            }
        }
    }

    fn part(
        &mut self,
        kind: &'static str,
        number: impl ToString,
        offset: usize,
        len: usize,
        sum: Sum,
        fields: impl Iterator<Item = usize>,
    ) {
        let sum = match sum {
            Sum::Own(subject, _) if !self.fs.checksums().covers(subject) => Sum::None,
            other => other,
        };
        if self.seen.insert(offset) {
            let name = format!("{kind} {}", number.to_string());
            let part = Part { name: name.trim_end().to_owned(), offset, len, sum, fields: fields.collect() };
            self.parts.entry(kind).or_default().push(part);
        }
    }

    fn inode(&mut self, inode: &Inode, offset: usize) {
        let layout = *self.fs.layout();
        let number = inode.number();
        let context = Context { inode: Some(number), generation: inode.generation(), ..Context::default() };
        let len = layout.inode_size as usize;
        // The generation seeds other checksums, and is left alone but for the change of any byte.
        let fields = (0..0x64).step_by(2).chain((0x68..len.min(0xf0)).step_by(2));
        let kind = match inode.kind() {
            _ if self.fs.superblock().is_reserved(number) && number != InodeNo::ROOT => "reserved inode",
            FileType::Directory => "directory's inode",
            FileType::Regular => "file's inode",
            FileType::Symlink => "link's inode",
            _ => "special inode",
        };
        self.part(kind, number, offset, len, Sum::Own(Subject::Inode, context), fields);
        if let Some(block) = inode.xattr_block() {
            let sum = Sum::Own(Subject::XattrBlock, Context { block, ..Context::default() });
            self.block("xattr block", block, sum, (0..96).step_by(2));
        }
        if inode.has(InodeFlags::EXTENTS) {
            let blocks = indexes(inode.block_area());
            blocks.into_iter().for_each(|block| self.extents(block, context));
        }
        let mut blocks = Vec::new();
        let result = self.fs.mappings(inode, 0, |run| {
            blocks.extend(run.physical.run(run.len).take(64));
            Ok(ControlFlow::Continue(()))
        });
        assert!(result.is_ok());
        if inode.is_dir() {
            for block in blocks {
                self.directory_block(block, context);
            }
        } else if inode.kind() == FileType::Symlink {
            for block in blocks {
                self.block("link's block", block, Sum::None, 0..64);
            }
        } else if self.fs.superblock().orphan_file == Some(number) {
            for block in blocks {
                let size = layout.block_size as usize;
                let sum = Sum::Own(Subject::OrphanBlock, Context { block, ..context });
                self.block("orphan block", block, sum, [0, 4, size - 8, size - 4].into_iter());
            }
        } else if matches!(number.get(), 3 | 4) {
            for block in blocks {
                self.block("quota block", block, Sum::None, (0..128).step_by(2));
            }
        }
        let has_map = matches!(inode.kind(), FileType::Regular | FileType::Directory)
            && !inode.has(InodeFlags::EXTENTS)
            && !inode.has(InodeFlags::INLINE_DATA);
        if has_map {
            // Blocks of block numbers, which have no checksums.
            let area = inode.block_area();
            for (slot, depth) in [(12, 1), (13, 2), (14, 3)] {
                self.numbers(number_at(area, slot), depth);
            }
        }
    }

    /// A block of block numbers, and some of those below it.
    fn numbers(&mut self, block: Block, depth: u32) {
        if block == Block::default() {
            return;
        }
        self.block("indirect block", block, Sum::None, (0..64).step_by(4));
        if depth > 1 {
            let at = self.fs.layout().offset(block) as usize;
            let raw = &self.bytes[at..at + self.fs.layout().block_size as usize];
            let below: Vec<Block> = (0..8).map(|slot| number_at(raw, slot)).collect();
            below.into_iter().for_each(|block| self.numbers(block, depth - 1));
        }
    }

    /// A structure that is a block.
    fn block(&mut self, kind: &'static str, block: Block, sum: Sum, fields: impl Iterator<Item = usize>) {
        let layout = self.fs.layout();
        let (at, len) = (layout.offset(block) as usize, layout.block_size as usize);
        self.part(kind, block, at, len, sum, fields);
    }

    fn extents(&mut self, block: Block, context: Context) {
        let at = self.fs.layout().offset(block) as usize;
        let len = self.fs.layout().block_size as usize;
        let sum = Sum::Own(Subject::ExtentBlock, context);
        self.block("extent block", block, sum, (0..12 * 9).step_by(2));
        let below = indexes(&self.bytes[at..at + len]);
        below.into_iter().for_each(|block| self.extents(block, context));
    }

    fn directory_block(&mut self, block: Block, context: Context) {
        let at = self.fs.layout().offset(block) as usize;
        let len = self.fs.layout().block_size as usize;
        let bytes = &self.bytes[at..at + len];
        // What it is shows in which checksum fits.
        let fits = |subject| self.fs.checksums().verify(subject, &context, bytes, NOWHERE).is_ok();
        let (is_node, is_leaf) = (fits(Subject::HtreeNode), fits(Subject::DirectoryBlock));
        let mut fields = Vec::new();
        let mut record = 0;
        while record + 8 <= len {
            fields.extend([0, 4, 6, 7, 8].map(|field| record + field));
            record += usize::from(u16::from_le_bytes([bytes[record + 4], bytes[record + 5]])).max(8);
        }
        if is_node {
            fields.extend((8..72).step_by(2));
        }
        let (kind, subject) = match is_node && !is_leaf {
            true => ("htree node", Subject::HtreeNode),
            false => ("directory block", Subject::DirectoryBlock),
        };
        self.block(kind, block, Sum::Own(subject, context), fields.into_iter());
    }

    fn journal(&mut self, inode: &Inode) {
        let layout = *self.fs.layout();
        let mut blocks = Vec::new();
        let result = self.fs.mappings(inode, 0, |run| {
            blocks.extend(run.physical.run(run.len));
            Ok(ControlFlow::Continue(()))
        });
        assert!(result.is_ok());
        let size = layout.block_size as usize;
        let at = layout.offset(blocks[0]) as usize;
        let superblock = JournalSuperblock::from_bytes(&self.bytes[at..at + size]).unwrap();
        self.journal = Some(superblock.uuid);
        let with = |subject: Subject| match superblock.has_checksums() {
            true => Sum::Own(subject, Context::default()),
            false => Sum::None,
        };
        let fields = (0..0x60).step_by(2);
        self.part("journal superblock", "", at, 1024, with(Subject::JournalSuperblock), fields);
        for block in &blocks[1..] {
            let at = layout.offset(*block) as usize;
            let (magic, kind) = (&self.bytes[at..at + 4], self.bytes[at + 7]);
            let subject = match kind {
                1 | 5 => Subject::JournalList,
                2 => Subject::JournalCommit,
                _ => continue,
            };
            if magic == [0xc0, 0x3b, 0x39, 0x98] {
                self.block("journal block", *block, with(subject), (0..80).step_by(2));
            }
        }
    }
}

/// A number of a block of block numbers.
fn number_at(raw: &[u8], slot: usize) -> Block {
    Block::new(u32::from_le_bytes(raw[4 * slot..4 * slot + 4].try_into().unwrap()).into())
}

/// The blocks below a node of an extent tree.
fn indexes(node: &[u8]) -> Vec<Block> {
    match ExtentNode::from_bytes(node, NOWHERE) {
        Ok(node) if node.depth() > 0 => node.indexes().map(|index| index.block).collect(),
        _ => Vec::new(),
    }
}
