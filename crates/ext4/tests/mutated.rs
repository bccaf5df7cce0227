//! Whole images with a few fields changed and the checksums made right again, so that the damage gets past them:
//! opened, checked, walked, read and copied out. Whatever they say, nothing may panic, read without end or take
//! memory without bound.
//!
//! The work is done in children of this test with a limit on their memory, one for each image. A case is an image
//! and a seed: `CASEMATE_MUTATED="IMAGE FIRST COUNT" cargo test -p casemate-ext4 --test mutated -- --ignored`
//! repeats some.

mod common;

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use casemate_blockdev::{BlockDevice, FileDevice, MemoryDevice, Overlay};
use casemate_ext4::csum::{Checksums, Context, Subject, recipe};
use casemate_ext4::{
    Contents, DirEntry, Error, Ext4, ExtentNode, ExtractOptions, FileType, GroupDescriptor, Inode,
    InodeFlags, JournalSuperblock, OpenOptions, Place, Result, SeenDirectories, Structure, check,
    extract_to_folder, extract_to_tar,
};
use casemate_providers::Work;
use casemate_testkit::{Rng, block_map, find_program, fixture, run, slow_tests, tempdir, tool};

/// The place of what is sound.
const NOWHERE: Place = Place { structure: Structure::Inode, block: None, group: None, inode: None };

const VARIABLE: &str = "CASEMATE_MUTATED";

/// Images made here, for what the fixtures lack.
const MADE: [(&str, &str); 7] = [
    ("ext2", "-t ext2 -b 1024"),
    ("plain", "-t ext4 -b 1024 -O ^metadata_csum,^64bit,^has_journal"),
    ("large-values", "-t ext4 -b 1024 -O ea_inode,^has_journal"),
    ("meta-bg", "-t ext4 -b 1024 -g 1024 -O ^resize_inode,meta_bg,orphan_file"),
    (
        "casefold",
        "-t ext4 -b 1024 -O casefold,sparse_super2 -E encoding_flags=strict,hash_seed=00112233-4455-6677-8899-aabbccddeeff",
    ),
    ("large-inodes", "-t ext4 -b 4096 -I 4096 -O inline_data,^has_journal"),
    ("fast-commit", "-t ext4 -b 1024 -O fast_commit"),
];

#[test]
fn mutated_images_do_no_harm() {
    let folder = tempdir().unwrap();
    let mut images = fixtures();
    if let Some(mke2fs) = find_program("mke2fs") {
        let tree = folder.path().join("tree");
        make_tree(&tree);
        images.extend(
            MADE.map(|(name, options)| make_image(&mke2fs, options, &tree, &folder.path().join(name))),
        );
    } else {
        casemate_testkit::skip("no mke2fs");
    }
    let cases = if slow_tests() { 2_000 } else { 60 };
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(image) = images.get(next.fetch_add(1, Ordering::Relaxed)) {
                    child(image, cases);
                }
            });
        }
    });
}

/// Runs some cases of an image in a process of their own.
fn child(image: &Path, cases: u64) {
    let output = limited("child_of_the_other_test", &format!("{} 0 {cases}", image.display()));
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().rev().find(|line| line.starts_with("case ")).unwrap_or("no case at all");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}, {last}: {}\n{stderr}", image.display(), output.status);
    assert_eq!(text.lines().filter(|line| line.starts_with("case ")).count() as u64, cases);
}

/// Runs a test of this file in a process of its own, with a limit on its memory.
fn limited(test: &str, work: &str) -> Output {
    // KiB of address space; the largest image takes 16 MiB.
    let limit = "ulimit -v 800000; exec timeout 3600 \"$0\" --ignored --exact \"$1\" --nocapture";
    Command::new("sh")
        .args(["-c", limit])
        .arg(std::env::current_exe().unwrap())
        .arg(test)
        .env(VARIABLE, work)
        .output()
        .unwrap()
}

/// What stands for much more than there is of it: blocks that a directory, the journal or many directories have
/// several times. Memory is taken for distinct blocks that are there, at most some ten times as much.
#[test]
fn a_block_counts_once() {
    let (Some(mke2fs), Some(debugfs)) = (tool("mke2fs"), tool("debugfs")) else { return };
    let folder = tempdir().unwrap();
    let image = folder.path().join("image");
    for (bomb, expected) in [
        (Bomb::Directory, "directory: has blocks twice"),
        (Bomb::Directories, "has blocks that it or another directory has already"),
        (Bomb::Journal, "the journal has blocks twice"),
    ] {
        bomb.make(&mke2fs, &debugfs, &image);
        let output = limited("child_with_a_bomb", &image.display().to_string());
        let (text, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{bomb:?}: {}: {text}{stderr}", output.status);
        assert!(text.contains(expected), "{bomb:?}: {text}");
    }
}

#[derive(Clone, Copy, Debug)]
enum Bomb {
    /// 60000 blocks of a directory are one.
    Directory,
    /// 60 directories have the same 1036 blocks.
    Directories,
    /// 200000 blocks of the journal are one full of revoke records.
    Journal,
}

impl Bomb {
    /// Makes an image of 256 MiB, nearly all of it holes. Old block maps need no more than a few blocks of numbers.
    fn make(self, mke2fs: &Path, debugfs: &Path, image: &Path) {
        // Where nothing else lies.
        const FREE: u32 = 40_000;
        let _ = std::fs::remove_file(image);
        let kind = if matches!(self, Bomb::Journal) { "ext3" } else { "ext2" };
        let mut command = Command::new(mke2fs);
        command.args(["-q", "-F", "-t", kind, "-b", "4096", "-N", "1024", "-O", "^resize_inode,^dir_index"]);
        run(command.arg(image).arg("256M"));
        let file = File::options().read(true).write(true).open(image).unwrap();
        let write =
            |block: u32, bytes: &[u8]| file.write_all_at(bytes, u64::from(block) * block_map::SIZE).unwrap();
        let contents = if let Bomb::Journal = self { revocations() } else { same_names() };
        let distinct = if let Bomb::Directories = self { 11 + 1024 } else { 1 };
        (0..distinct).for_each(|number| write(FREE + number, &contents));
        // The blocks that are counted from 1: those in the inode, those of the first level, those of the second.
        let at = |number: u32| FREE + (number - 1) % distinct;
        let blocks = match self {
            Bomb::Directory => 60_000,
            Bomb::Directories => distinct + 1,
            Bomb::Journal => 200_000,
        };
        let names: Vec<String> = match self {
            Bomb::Directory => vec!["d".to_owned()],
            Bomb::Directories => (0..60).map(|number| format!("d{number}")).collect(),
            Bomb::Journal => return block_map::journal(debugfs, image, blocks, at, FREE + distinct),
        };
        let commands = image.with_extension("commands");
        std::fs::write(&commands, names.iter().map(|name| format!("mkdir {name}\n")).collect::<String>())
            .unwrap();
        run(Command::new(debugfs).arg("-w").arg("-f").arg(&commands).arg(image));
        block_map::give(debugfs, image, &names, blocks, at, FREE + distinct);
    }
}

/// A directory block of 341 names, all of them "a".
fn same_names() -> Vec<u8> {
    let record = [11, 0, 0, 0, 12, 0, 1, 1, b'a', 0, 0, 0];
    let mut block = record.repeat(341);
    let last = block.len() - record.len();
    block[last + 4] = 16;
    block.resize(4096, 0);
    block
}

/// A block of the journal's transaction 1 that revokes 1020 blocks.
fn revocations() -> Vec<u8> {
    let words = [0xc03b_3998, 5, 1, 4096].into_iter().chain(1..=1020);
    words.flat_map(u32::to_be_bytes).collect()
}

#[test]
#[ignore = "the other test runs it, with a limit of memory"]
fn child_with_a_bomb() {
    let path = std::env::var(VARIABLE).expect(VARIABLE);
    let device = Arc::new(FileDevice::open(path).unwrap());
    let fs = match Ext4::open(device, &OpenOptions::default()) {
        Ok(fs) => fs,
        Err(error) => return println!("{error}"),
    };
    let root = fs.root().unwrap();
    if let Ok(dir) = fs.resolve(b"d", false) {
        println!("{}", fs.read_dir(&dir).unwrap_err());
    }
    walk(&fs, root.clone());
    let contents = Limited { left: AtomicU64::new(64 << 20) };
    let extract = ExtractOptions {
        owners: false,
        xattrs: true,
        overwrite: false,
        selection: None,
        contents: &contents,
    };
    let folder = tempdir().unwrap();
    let report =
        extract_to_folder(&fs, &root, &folder.path().join("out"), &extract, &Work::default()).unwrap();
    let tar = extract_to_tar(&fs, &root, &mut io::sink(), &extract, &Work::default()).unwrap();
    for failure in report.failures.iter().chain(&tar.failures) {
        println!("{failure}");
    }
}

#[test]
#[ignore = "the other test runs it, with a limit of memory"]
fn child_of_the_other_test() {
    let work = std::env::var(VARIABLE).expect(VARIABLE);
    let words: Vec<&str> = work.split(' ').collect();
    let [path, first, count] = words[..] else { panic!("{VARIABLE}: {work}") };
    let image = Image::new(fixture(path));
    let first: u64 = first.parse().unwrap();
    let folder = tempdir().unwrap();
    for seed in first..first + count.parse::<u64>().unwrap() {
        // A panic's or a killed process's case is the last one printed.
        println!("case {seed}");
        let mut rng = Rng::new(seed);
        let device = Arc::new(Counting { inner: image.mutated(&mut rng), read: AtomicU64::new(0) });
        exercise(&device, &mut rng, &folder.path().join("out"));
        let (read, most) = (device.read.load(Ordering::Relaxed), 64 * device.size() + (256 << 20));
        assert!(read < most, "case {seed} read {read} bytes");
    }
}

/// A device that counts what is read.
struct Counting {
    inner: Overlay<Arc<MemoryDevice>>,
    read: AtomicU64,
}

impl BlockDevice for Counting {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&self.inner)
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> casemate_blockdev::Result<()> {
        self.read.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.inner.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> casemate_blockdev::Result<()> {
        self.inner.write_at(buf, offset)
    }

    fn flush(&self) -> casemate_blockdev::Result<()> {
        Ok(())
    }
}

/// Does everything with an image that can be done.
fn exercise(device: &Arc<Counting>, rng: &mut Rng, folder: &Path) {
    let options = OpenOptions {
        verify_checksums: rng.below(4) > 0,
        replay_journal: rng.below(8) > 0,
        ..OpenOptions::default()
    };
    let _ = check(device.clone(), &options, &Work::default());
    let Ok(fs) = Ext4::open(device.clone(), &options) else { return };
    if let Ok(root) = fs.root() {
        walk(&fs, root);
    }
    for number in (0..40).chain([u32::MAX]) {
        if let Ok(inode) = fs.inode(number) {
            let _ = read_file(&fs, &inode);
        }
    }
    let contents = Limited { left: AtomicU64::new(64 << 20) };
    let extract = ExtractOptions {
        owners: false,
        xattrs: true,
        overwrite: false,
        selection: None,
        contents: &contents,
    };
    let Ok(root) = fs.root() else { return };
    let _ = extract_to_tar(&fs, &root, &mut io::sink(), &extract, &Work::default());
    if rng.below(8) == 0 {
        contents.left.store(16 << 20, Ordering::Relaxed);
        let _ = extract_to_folder(&fs, &root, folder, &extract, &Work::default());
        let _ = std::fs::remove_dir_all(folder);
    }
}

/// Contents up to a sum: what a hostile image can claim to hold has no end, and writing it all is what it asks for.
struct Limited {
    left: AtomicU64,
}

impl Contents for Limited {
    fn open(&self, fs: &Ext4, inode: &Inode) -> Result<Box<dyn BlockDevice>> {
        let file = fs.open_file(inode)?;
        let (size, mut at, mut data) = (file.size(), 0, 0);
        while let Some(range) = file.next_data(at)? {
            data += range.end - range.start;
            at = range.end;
        }
        assert!(data <= size);
        let left = |left: u64| left.checked_sub(data + 4096);
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left) {
            Ok(_) => Ok(Box::new(file)),
            Err(_) => Err(Error::unsupported("too much")),
        }
    }
}

fn walk(fs: &Ext4, root: Inode) {
    let mut seen = SeenDirectories::new();
    let mut stack = vec![(Vec::new(), root)];
    while let Some((path, dir)) = stack.pop() {
        if seen.enter(fs, &path, &dir).is_err() {
            continue;
        }
        let entries: Vec<DirEntry> = fs.read_dir(&dir).unwrap_or_default();
        for entry in entries.iter().take(4) {
            let _ = fs.lookup(&dir, &entry.name);
            let _ = fs.lookup_indexed(&dir, &entry.name);
            let _ = fs.resolve(&[&path[..], &entry.name].concat(), true);
        }
        let _ = fs.lookup(&dir, b"not there");
        for entry in entries {
            let Ok(inode) = fs.inode(entry.inode) else { continue };
            if inode.is_dir() {
                let path = [&path[..], &entry.name, b"/"].concat();
                stack.push((path, inode));
            } else {
                let _ = read_file(fs, &inode);
            }
        }
    }
}

fn read_file(fs: &Ext4, inode: &Inode) -> Result<()> {
    let _ = (inode.accessed(), inode.created(), inode.device(), inode.sectors(fs.layout().block_size));
    let _ = (fs.xattrs(inode), fs.encrypted(inode), fs.symlink_target(inode), fs.verity(inode));
    let file = fs.open_file(inode)?;
    let mut buffer = vec![0; 1 << 16];
    for at in [0, 1000, file.size() / 2, file.size().saturating_sub(5000)] {
        let len = file.size().saturating_sub(at).min(buffer.len() as u64);
        file.read_at(&mut buffer[..len as usize], at)?;
    }
    Ok(())
}

/// A sound image, and where its structures lie.
struct Image {
    device: Arc<MemoryDevice>,
    bytes: Vec<u8>,
    checksums: Checksums,
    parts: Vec<Part>,
    /// Numbers that mean something somewhere: blocks of structures, inodes, counts.
    values: Vec<u64>,
}

/// A structure.
struct Part {
    offset: usize,
    len: usize,
    /// What its checksum is, if it has one.
    checksum: Option<(Subject, Context)>,
    /// Where its fields lie; elsewhere are the bytes that mean less.
    fields: Vec<usize>,
}

impl Image {
    fn new(bytes: Vec<u8>) -> Image {
        let device = Arc::new(MemoryDevice::new(bytes.clone()));
        let options = OpenOptions { replay_journal: false, ..OpenOptions::default() };
        let fs = Ext4::open(device.clone(), &options).unwrap();
        let mut find =
            Find { fs: &fs, bytes: &bytes, parts: Vec::new(), seen: HashSet::new(), journal: None };
        find.all();
        let (parts, journal) = (find.parts, find.journal);
        let layout = fs.layout();
        let mut values = vec![0, 1, 2, layout.blocks, layout.blocks - 1, u64::from(layout.inodes)];
        values.extend(parts.iter().map(|part| part.offset as u64 / u64::from(layout.block_size)));
        values.extend([0x7f, 0xff, 0x7fff, 0x8000, 0x8001, 0xffff, 1 << 31, u64::from(u32::MAX), u64::MAX]);
        values.extend([u64::from(layout.block_size), 12, 65536, u64::from(layout.inodes) + 1, 60, 61]);
        let checksums = match journal {
            Some(uuid) => fs.checksums().with_journal(&uuid),
            None => *fs.checksums(),
        };
        Image { device, bytes, checksums, parts, values }
    }

    /// The image with some fields of some structures changed.
    fn mutated(&self, rng: &mut Rng) -> Overlay<Arc<MemoryDevice>> {
        let device = Overlay::new(self.device.clone());
        for _ in 0..=rng.below(3) {
            let part = &self.parts[rng.below(self.parts.len() as u64) as usize];
            let mut bytes = vec![0; part.len];
            device.read_at(&mut bytes, part.offset as u64).unwrap();
            let other = &self.parts[rng.below(self.parts.len() as u64) as usize];
            if rng.below(8) == 0 && other.len == part.len {
                bytes.copy_from_slice(&self.bytes[other.offset..other.offset + other.len]);
            }
            for _ in 0..=rng.below(4) {
                self.change(&mut bytes, part, rng);
            }
            if let Some((subject, context)) = &part.checksum {
                let _ = self.checksums.store(recipe(*subject), context, &mut bytes);
            }
            device.write_at(&bytes, part.offset as u64).unwrap();
        }
        device
    }

    fn change(&self, bytes: &mut [u8], part: &Part, rng: &mut Rng) {
        let width = 1 << rng.below(4);
        let at = match (rng.below(4), &part.fields[..]) {
            (0, _) | (_, []) => rng.below(bytes.len() as u64) as usize,
            (_, fields) => fields[rng.below(fields.len() as u64) as usize],
        };
        let Some(field) = bytes.get_mut(at..at + width) else { return };
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
        field.copy_from_slice(&new.to_le_bytes()[..width]);
    }
}

/// Finds the structures of an image.
struct Find<'a> {
    fs: &'a Ext4,
    bytes: &'a [u8],
    parts: Vec<Part>,
    seen: HashSet<usize>,
    /// The journal's UUID.
    journal: Option<[u8; 16]>,
}

impl Find<'_> {
    fn all(&mut self) {
        let layout = *self.fs.layout();
        let superblock = self.fs.superblock();
        // More than once, for it decides about all others.
        for _ in 0..20 {
            self.seen.clear();
            self.part(1024, 1024, Some(Subject::Superblock), Context::default(), (0..0x280).step_by(2));
        }
        for group in 0..layout.groups {
            if let Some(offset) = layout.superblock_offset(group) {
                self.part(offset as usize, 1024, Some(Subject::Superblock), Context::default(), 0..0x180);
            }
            let block = layout.descriptor_block(group / layout.descriptors_per_block());
            let size = layout.descriptor_size as usize;
            let at = layout.offset(block) as usize + (group % layout.descriptors_per_block()) as usize * size;
            let subject = self.fs.checksums().descriptor_subject();
            self.part(at, size, Some(subject), Context { group, ..Context::default() }, (0..size).step_by(2));
            let table = GroupDescriptor::from_bytes(&self.bytes[at..at + size]).unwrap().inode_table();
            for index in 0..layout.inodes_per_group {
                let number = group * layout.inodes_per_group + index + 1;
                let at = (layout.offset(table) + u64::from(index) * u64::from(layout.inode_size)) as usize;
                if let Ok(inode) = self.fs.inode(number) {
                    self.inode(&inode, at);
                }
            }
        }
        if let Some(block) = superblock.mmp_block {
            self.part(
                layout.offset(block) as usize,
                1024,
                Some(Subject::MmpBlock),
                Context::default(),
                0..16,
            );
        }
        if let Ok(inode) = self.fs.inode(superblock.journal_inode) {
            self.journal(&inode);
        }
    }

    fn part(
        &mut self,
        offset: usize,
        len: usize,
        subject: Option<Subject>,
        context: Context,
        fields: impl Iterator<Item = usize>,
    ) {
        let checksums = self.fs.checksums();
        let checksum = subject.filter(|subject| checksums.covers(*subject)).map(|subject| (subject, context));
        if self.seen.insert(offset) {
            self.parts.push(Part { offset, len, checksum, fields: fields.collect() });
        }
    }

    fn inode(&mut self, inode: &Inode, offset: usize) {
        let layout = *self.fs.layout();
        let number = inode.number();
        let context = Context { inode: number, generation: inode.generation(), ..Context::default() };
        let len = layout.inode_size as usize;
        // The generation seeds other checksums, and is left alone but for the change of any byte.
        let fields = (0..0x64).step_by(2).chain((0x68..len.min(0xf0)).step_by(2));
        self.part(offset, len, Some(Subject::Inode), context, fields);
        let block = inode.xattr_block();
        if block != 0 {
            let at = layout.offset(block) as usize;
            let context = Context { block, ..Context::default() };
            self.part(at, layout.block_size as usize, Some(Subject::XattrBlock), context, (0..96).step_by(2));
        }
        if inode.has(InodeFlags::EXTENTS) {
            let blocks = indexes(inode.block_area());
            blocks.into_iter().for_each(|block| self.extents(block, context));
        }
        let mut blocks = Vec::new();
        let result = self.fs.mappings(inode, 0, |run| {
            blocks.extend(run.physical..run.physical + run.len);
            Ok(std::ops::ControlFlow::Continue(()))
        });
        assert!(result.is_ok());
        if inode.is_dir() {
            for block in blocks {
                self.directory_block(block, context);
            }
        } else if self.fs.superblock().orphan_file == Some(number) {
            for block in blocks {
                let at = layout.offset(block) as usize;
                let context = Context { block, ..context };
                let size = layout.block_size as usize;
                self.part(
                    at,
                    size,
                    Some(Subject::OrphanBlock),
                    context,
                    [0, 4, size - 8, size - 4].into_iter(),
                );
            }
        } else if !inode.has(InodeFlags::EXTENTS) && inode.kind() == FileType::Regular {
            // Blocks of block numbers, which have no checksums.
            let area = inode.block_area();
            for slot in 12..15 {
                let block = u32::from_le_bytes(area[4 * slot..4 * slot + 4].try_into().unwrap());
                if block != 0 && !inode.has(InodeFlags::INLINE_DATA) {
                    let at = layout.offset(u64::from(block)) as usize;
                    self.part(at, layout.block_size as usize, None, Context::default(), (0..64).step_by(4));
                }
            }
        }
    }

    fn extents(&mut self, block: u64, context: Context) {
        let at = self.fs.layout().offset(block) as usize;
        let len = self.fs.layout().block_size as usize;
        self.part(at, len, Some(Subject::ExtentBlock), context, (0..12 * 9).step_by(2));
        let below = indexes(&self.bytes[at..at + len]);
        below.into_iter().for_each(|block| self.extents(block, context));
    }

    fn directory_block(&mut self, block: u64, context: Context) {
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
        let subject = if is_node && !is_leaf { Subject::HtreeNode } else { Subject::DirectoryBlock };
        self.part(at, len, Some(subject), context, fields.into_iter());
    }

    fn journal(&mut self, inode: &Inode) {
        let layout = *self.fs.layout();
        let mut blocks = Vec::new();
        let result = self.fs.mappings(inode, 0, |run| {
            blocks.extend(run.physical..run.physical + run.len);
            Ok(std::ops::ControlFlow::Continue(()))
        });
        assert!(result.is_ok());
        let size = layout.block_size as usize;
        let at = layout.offset(blocks[0]) as usize;
        let superblock = JournalSuperblock::from_bytes(&self.bytes[at..at + size]).unwrap();
        self.journal = Some(superblock.uuid);
        let with = |subject: Subject| superblock.has_checksums().then_some(subject);
        let subject = with(Subject::JournalSuperblock);
        for _ in 0..4 {
            self.seen.remove(&at);
            self.part(at, 1024, subject, Context::default(), (0..0x60).step_by(2));
        }
        for block in &blocks[1..] {
            let at = layout.offset(*block) as usize;
            let (magic, kind) = (&self.bytes[at..at + 4], self.bytes[at + 7]);
            let subject = match kind {
                1 | 5 => Subject::JournalList,
                2 => Subject::JournalCommit,
                _ => continue,
            };
            if magic == [0xc0, 0x3b, 0x39, 0x98] {
                self.part(at, size, with(subject), Context::default(), (0..80).step_by(2));
            }
        }
    }
}

/// The blocks below a node of an extent tree.
fn indexes(node: &[u8]) -> Vec<u64> {
    match ExtentNode::from_bytes(node, NOWHERE) {
        Ok(node) if node.depth() > 0 => node.indexes().map(|index| index.block).collect(),
        _ => Vec::new(),
    }
}

fn fixtures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut images = Vec::new();
    for folder in [folder.clone(), folder.join("verity")] {
        let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        images.extend(paths.filter(|path| path.to_string_lossy().ends_with(".img.xz")));
    }
    images.sort();
    images
}

/// A small tree of what images store in different ways.
fn make_tree(tree: &Path) {
    let many = tree.join("folder/many");
    std::fs::create_dir_all(&many).unwrap();
    for i in 0..60 {
        std::fs::write(many.join(format!("Name-{i}-{}", "x".repeat(i))), vec![1; i * 40]).unwrap();
    }
    let pieces = std::fs::File::create(tree.join("pieces")).unwrap();
    for i in 0..400 {
        std::os::unix::fs::FileExt::write_all_at(&pieces, &[7; 1024], 2048 * i).unwrap();
    }
    std::os::unix::fs::symlink("folder/many", tree.join("short")).unwrap();
    std::os::unix::fs::symlink("folder/".repeat(20), tree.join("long")).unwrap();
    std::fs::hard_link(tree.join("pieces"), tree.join("folder/hard")).unwrap();
    for (name, len) in [("user.small", 5), ("user.large", 700), ("user.other", 200)] {
        // Where the host's file system has no attributes, neither has the image.
        let _ =
            rustix::fs::setxattr(tree.join("pieces"), name, &vec![5; len], rustix::fs::XattrFlags::empty());
    }
}

fn make_image(mke2fs: &Path, options: &str, tree: &Path, image: &Path) -> PathBuf {
    let mut command = Command::new(mke2fs);
    // What would differ from run to run is given.
    command
        .args(["-q", "-F", "-N", "256", "-U", "00112233-4455-6677-8899-aabbccddeeff"])
        .args(["-E", "hash_seed=00112233-4455-6677-8899-aabbccddeeff,root_owner=0:0"])
        .env("E2FSPROGS_FAKE_TIME", "1700000000")
        .args(options.split(' '))
        .arg("-d")
        .arg(tree);
    run(command.arg(image).arg("6M"));
    image.to_path_buf()
}
