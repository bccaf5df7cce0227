//! Copying a tree into a tar stream: members in the order of a walk, contents of small files read ahead in
//! parallel.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use casemate_blockdev::{BlockDevice, Buffer, u64_of, usize_of};
use casemate_providers::Work;
use casemate_trees::tar::{Member, TarWriter};
use casemate_trees::{Choice, Link, Node, join};

use crate::error::{Error, Result};
use crate::format::inode::{FileType, Inode};
use crate::read::extract::{
    CHUNK, Entered, ExtractOptions, ExtractReport, FirstName, Folder, attributes, children, link_target,
    may_have_links,
};
use crate::read::fs::Ext4;
use crate::read::names::IntoNames;
use crate::read::seen::SeenDirectories;
use crate::units::InodeNo;

/// Files up to this size are read ahead whole.
const SMALL: u64 = 1 << 20;

/// Small files that are in memory at once: at most this many, and this many bytes.
const BATCH: usize = 1024;
const BATCH_BYTES: u64 = 24 << 20;

/// Copies what is below `top` into a tar stream in the pax format, sparse members as GNU tar has them (1.0).
/// Names are in the order of their bytes, so that the same tree gives the same stream.
///
/// A file that can't be read is left out and in the report; sockets are, for tar has no such members.
///
/// # Errors
/// When writing fails or the copy was interrupted, or when a file can't be read after its header is written.
pub fn extract_to_tar(
    fs: &Ext4,
    top: &Inode,
    out: &mut dyn Write,
    options: &ExtractOptions<'_>,
    work: &Work<'_>,
) -> Result<ExtractReport> {
    let mut stream = Stream {
        fs,
        options,
        work,
        out: TarWriter::new(out),
        report: ExtractReport::default(),
        ways: Vec::new(),
        links: HashMap::new(),
        lost: HashSet::new(),
        batch: Vec::new(),
        batch_bytes: 0,
    };
    stream.tree(top)?;
    stream.flush()?;
    stream.out.finish()?;
    Ok(stream.report)
}

struct Stream<'a> {
    fs: &'a Ext4,
    options: &'a ExtractOptions<'a>,
    work: &'a Work<'a>,
    out: TarWriter<'a>,
    report: ExtractReport,
    /// Directories above the place that are only on the way to something that is wanted, and are not written yet.
    ways: Vec<Item>,
    /// The first name of each inode that may have several.
    links: HashMap<InodeNo, FirstName>,
    /// Inodes that could not be read.
    lost: HashSet<InodeNo>,
    batch: Vec<Item>,
    batch_bytes: u64,
}

/// A directory whose names are being copied.
struct Level {
    path: Vec<u8>,
    folder: Arc<Folder>,
    /// Names that are still to come.
    rest: IntoNames,
}

struct Item {
    path: Vec<u8>,
    inode: Inode,
    link: Option<Link>,
}

impl Item {
    /// Whether a directory's path, which ends in a slash, is one above another.
    fn is_above(&self, path: &[u8]) -> bool {
        self.path == b"./" || path.starts_with(&self.path)
    }
}

/// A small file's contents, or its pieces of data where it has holes.
struct Loaded {
    size: u64,
    pieces: Vec<(u64, Vec<u8>)>,
}

impl Stream<'_> {
    fn tree(&mut self, top: &Inode) -> Result<()> {
        let mut seen = SeenDirectories::new();
        let mut levels = Vec::new();
        levels.extend(self.directory(
            &mut seen,
            Vec::new(),
            Folder::top(Entered { inode: top.number(), wanted: self.options.wants_top() }),
            top.clone(),
        )?);
        while let Some(Level { path, folder, rest }) = levels.last_mut() {
            let Some(entry) = rest.next() else {
                levels.pop();
                continue;
            };
            let inode = match self.fs.inode(entry.inode) {
                Ok(inode) => inode,
                Err(error) => {
                    self.fail(join(path, &entry.name), error, false);
                    continue;
                }
            };
            let choice = self.options.choice(path, &entry.name, inode.is_dir(), folder.wanted);
            let path = join(path, &entry.name);
            if choice == Choice::LeftOut {
                continue;
            }
            if inode.is_dir() {
                let folder = folder
                    .below(&entry.name, Entered { inode: entry.inode, wanted: choice == Choice::Wanted });
                levels.extend(self.directory(&mut seen, path, folder, inode)?);
            } else {
                self.write_ways(&path)?;
                self.add((folder.clone(), entry.name.into()), path, inode)?;
            }
        }
        Ok(())
    }

    /// Writes the directories above a path that were only on the way so far.
    fn write_ways(&mut self, path: &[u8]) -> Result<()> {
        for way in std::mem::take(&mut self.ways) {
            if way.is_above(path) {
                self.push(way)?;
            }
        }
        Ok(())
    }

    /// Adds a directory. What is below it, if that can be read.
    fn directory(
        &mut self,
        seen: &mut SeenDirectories,
        path: Vec<u8>,
        folder: Arc<Folder>,
        inode: Inode,
    ) -> Result<Option<Level>> {
        let list = seen.enter(self.fs, &path, &inode).and_then(|()| {
            children(self.fs, &inode, |name, error| self.report.fail(join(&path, name), error, false))
        });
        let list = match list {
            Ok(list) => list,
            Err(error) => {
                self.fail(path, error, false);
                return Ok(None);
            }
        };
        let member = if path.is_empty() { b"./".to_vec() } else { [&path[..], b"/"].concat() };
        let item = Item { path: member, inode, link: None };
        if folder.wanted {
            self.write_ways(&path)?;
            self.push(item)?;
        } else {
            self.ways.retain(|way| way.is_above(&item.path));
            self.ways.push(item);
        }
        Ok(Some(Level { path, folder, rest: list.into_iter() }))
    }

    fn add(&mut self, name: FirstName, path: Vec<u8>, inode: Inode) -> Result<()> {
        // Each name of one, for there is no member that the others could be links to.
        if inode.kind() == FileType::Socket {
            self.fail(path, Error::unsupported("sockets have no place in a tar stream"), false);
            return Ok(());
        }
        if may_have_links(&inode) {
            if let Some((folder, name)) = self.links.get(&inode.number()) {
                let link = Some(Link::Hard(folder.path_of(name)));
                return self.push(Item { path, inode, link });
            }
            self.links.insert(inode.number(), name);
        }
        let link = match inode.kind() {
            FileType::Symlink => match link_target(self.fs, &inode) {
                Ok(target) => Some(Link::Symbolic(target)),
                Err(error) => return self.skip(path, inode.number(), error),
            },
            _ => None,
        };
        self.push(Item { path, inode, link })
    }

    fn push(&mut self, item: Item) -> Result<()> {
        let has_contents = item.inode.kind() == FileType::Regular && item.link.is_none();
        self.batch_bytes += if has_contents { item.inode.size().min(SMALL) } else { 0 };
        self.batch.push(item);
        if self.batch.len() >= BATCH || self.batch_bytes >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    /// Reads the batch's small files in parallel, then writes all of the batch in order.
    fn flush(&mut self) -> Result<()> {
        self.batch_bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        let loaded: Vec<Mutex<Option<Result<Loaded>>>> = batch.iter().map(|_| Mutex::default()).collect();
        let (fs, options) = (self.fs, self.options);
        self.work.pool.run(
            u64_of(batch.len()),
            || (),
            |(), number| {
                let item = &batch[usize_of(number)];
                if item.inode.kind() == FileType::Regular && item.link.is_none() && item.inode.size() <= SMALL
                {
                    let result = load(fs, options, &item.inode);
                    *loaded[usize_of(number)].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
                }
                Ok::<_, Error>(())
            },
        )?;
        for (item, loaded) in batch.into_iter().zip(loaded) {
            self.write(item, loaded.into_inner().unwrap_or_else(PoisonError::into_inner))?;
        }
        Ok(())
    }

    fn write(&mut self, item: Item, loaded: Option<Result<Loaded>>) -> Result<()> {
        let is_file = item.inode.kind() == FileType::Regular && item.link.is_none();
        if matches!(item.link, Some(Link::Hard(_))) && self.lost.contains(&item.inode.number()) {
            let text = "another name of a file that could not be read".to_owned();
            self.fail(item.path, Error::unsupported(text), false);
            return Ok(());
        }
        // A hard link's member says the mode again, and its attributes not.
        let (xattrs, node, failed) = match (&item.link, self.options.xattrs) {
            (Some(Link::Hard(_)), true) => (Vec::new(), item.inode.node(), None),
            (_, are_wanted) => attributes(self.fs, &item.inode, are_wanted),
        };
        let node = if self.options.owners { node } else { Node { uid: 0, gid: 0, ..node } };
        let mut member = Member::new(item.path, node, item.link);
        xattrs.into_iter().for_each(|xattr| member.add_xattr(&xattr.name, xattr.value));
        failed.into_iter().for_each(|error| self.fail(member.path.clone(), error, true));
        if !matches!(member.link, Some(Link::Hard(_))) {
            match self.options.contents.records(self.fs, &item.inode) {
                Ok(records) => member.records.extend(records),
                Err(error) => self.fail(member.path.clone(), error, true),
            }
        }
        if !is_file {
            self.out.add(&member)?;
            if item.inode.is_dir() {
                self.report.directories += 1
            } else {
                self.report.others += 1
            }
            return Ok(());
        }
        let path = member.path.clone();
        let written = match loaded {
            Some(Ok(loaded)) => self.small(member, loaded),
            Some(Err(error)) => return self.skip(path, item.inode.number(), error),
            None => match self.options.open(self.fs, &item.inode) {
                Ok(contents) => self.large(member, &*contents),
                Err(error) => return self.skip(path, item.inode.number(), error),
            },
        };
        self.report.files += 1;
        written
    }

    fn small(&mut self, mut member: Member, loaded: Loaded) -> Result<()> {
        let ranges: Vec<_> =
            loaded.pieces.iter().map(|(start, bytes)| *start..start + u64_of(bytes.len())).collect();
        member.size = loaded.size;
        self.out.add_file(&member, &ranges)?;
        for (_, bytes) in &loaded.pieces {
            self.out.write(bytes)?;
            self.report.bytes += u64_of(bytes.len());
            self.work.events.advance(u64_of(bytes.len()))?;
        }
        Ok(())
    }

    /// Copies a file in chunks that all workers read together.
    fn large(&mut self, mut member: Member, contents: &dyn BlockDevice) -> Result<()> {
        let ranges = data_ranges(contents)?;
        member.size = contents.size();
        self.out.add_file(&member, &ranges)?;
        let chunks = ranges.iter().flat_map(|range| {
            let starts = (range.start..range.end).step_by(usize_of(CHUNK));
            starts.map(|start| start..(start + CHUNK).min(range.end))
        });
        let mut chunks = chunks.peekable();
        let slots: Vec<Mutex<Buffer>> = (0..4 * self.work.pool.threads()).map(|_| Mutex::default()).collect();
        while chunks.peek().is_some() {
            let round: Vec<_> = chunks.by_ref().take(slots.len()).collect();
            self.work.pool.run(
                u64_of(round.len()),
                || (),
                |(), number| {
                    let range = &round[usize_of(number)];
                    let mut buffer = slots[usize_of(number)].lock().unwrap_or_else(PoisonError::into_inner);
                    buffer.resize(usize_of(range.end - range.start));
                    contents.read_at(&mut buffer, range.start)
                },
            )?;
            for (_, slot) in round.iter().zip(&slots) {
                let buffer = slot.lock().unwrap_or_else(PoisonError::into_inner);
                self.out.write(&buffer)?;
                self.report.bytes += u64_of(buffer.len());
                self.work.events.advance(u64_of(buffer.len()))?;
            }
        }
        Ok(())
    }

    /// Leaves a file out. Other names of it can't refer to it then.
    fn skip(&mut self, path: Vec<u8>, inode: InodeNo, error: Error) -> Result<()> {
        self.lost.insert(inode);
        self.fail(path, error, false);
        Ok(())
    }

    fn fail(&mut self, path: Vec<u8>, error: Error, partial: bool) {
        self.report.fail(path, error, partial);
    }
}

fn load(fs: &Ext4, options: &ExtractOptions<'_>, inode: &Inode) -> Result<Loaded> {
    let contents = options.open(fs, inode)?;
    let size = contents.size();
    let pieces = data_ranges(&*contents)?
        .into_iter()
        .map(|range| {
            let mut bytes = vec![0; usize_of(range.end - range.start)];
            contents.read_at(&mut bytes, range.start)?;
            Ok((range.start, bytes))
        })
        .collect::<Result<_>>()?;
    Ok(Loaded { size, pieces })
}

fn data_ranges(contents: &dyn BlockDevice) -> Result<Vec<std::ops::Range<u64>>> {
    let mut ranges = Vec::new();
    let mut at = 0;
    while let Some(range) = contents.next_data(at)? {
        at = range.end;
        ranges.push(range);
    }
    Ok(ranges)
}
