//! Names of files that were deleted, and which of the files that had an inode number one after the other had which.
//!
//! A record of a directory names an inode's number, not a file. The journal's copies say when: a copy of a directory's block
//! shows the names of one moment, and a copy of a block of inodes shows which file had the number then. Both stay true until the
//! next copy, as long as no transaction is missing between. A name is a file's own if at one moment both are known. Where nothing
//! proves a name, one that no other file had, and that is the only one, is taken.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::error::{Place, Structure};
use crate::format::csum::Subject;
use crate::format::dir::{Entries, removed};
use crate::format::inode::{FileType, Inode, Time};
use crate::read::deleted::{DeletedFile, is_alive, mode_without_acl};
use crate::read::dir::BlockRole;
use crate::read::fs::Ext4;
use crate::read::journal::{History, Moment, NOW};
use crate::read::seen::SeenDirectories;
use crate::units::{Block, InodeNo};

/// Names of an inode number that are kept.
const MOST_NAMES: usize = 64;
/// Names that are kept, of all numbers together.
const MOST_ALL_NAMES: usize = 1 << 21;
/// Spans of a name that are kept.
const MOST_SPANS: usize = 32;
/// Directories that a path goes through.
const MOST_PARENTS: usize = 512;
/// The permissions of a directory of which none are known, and of one to which the way is not known.
const PRIVATE: u16 = 0o700;

/// All that tells files apart which had the same inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    generation: u32,
    created: Option<Time>,
    kind: FileType,
}

impl Identity {
    pub fn new(inode: &Inode) -> Identity {
        Identity { generation: inode.generation(), created: inode.created(), kind: inode.kind() }
    }

    /// Whether an inode is the same file's.
    pub fn is_of(&self, inode: &Inode) -> bool {
        *self == Identity::new(inode)
    }
}

/// The time for which a file had its inode number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    /// The first and the last copy that shows it.
    pub shown: Option<(Moment, Moment)>,
    /// The last moment before, at which the number was free, or another file's.
    pub after: Option<Moment>,
    /// The first moment behind, at which it was free, or another file's.
    pub before: Option<Moment>,
}

impl Life {
    /// Tells if the file may have been there at this moment.
    fn may_have(&self, moment: Moment) -> bool {
        self.after.is_none_or(|after| moment > after) && self.before.is_none_or(|before| moment < before)
    }
}

/// A time for which a directory had a name.
#[derive(Clone, Copy, Debug)]
struct Span {
    /// The first and the last copy that has it, and all between.
    first: Moment,
    last: Moment,
    /// The last moment at which it is known to have been there.
    end: Moment,
}

/// A directory, in use or deleted: its number alone does not tell which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Directory {
    Used(InodeNo),
    /// One of the deleted files.
    Deleted(usize),
}

/// A name that an inode number had.
struct Record {
    directory: Directory,
    name: Vec<u8>,
    spans: Vec<Span>,
    /// The newest moment at which something was left of it.
    left: Option<Moment>,
}

/// Names of an inode number.
#[derive(Default)]
struct Records {
    list: Vec<Record>,
    /// Whether there are more.
    is_cut: bool,
}

/// Names of one file: places in the records of its number.
#[derive(Default)]
struct Found {
    own: Vec<usize>,
    possible: Vec<usize>,
}

/// Names that inodes had, or directories have.
pub(crate) struct Names<'a> {
    files: Vec<(InodeNo, Life)>,
    history: &'a History,
    of: HashMap<InodeNo, Records>,
    count: usize,
    /// Names of each file.
    found: Vec<Found>,
    /// Directories in use: the one above, and the name in there.
    parents: HashMap<InodeNo, (InodeNo, Vec<u8>)>,
    /// Permissions of directories, in use or deleted; where several had a number, those that all of them had.
    modes: HashMap<InodeNo, u16>,
}

/// A directory whose blocks have copies.
struct Copied<'a> {
    /// The file system in which its map is read.
    view: &'a Ext4,
    inode: &'a Inode,
    directory: Directory,
    life: Life,
}

impl<'a> Names<'a> {
    pub fn collect(
        fs: &Ext4,
        history: &'a Arc<History>,
        files: &[DeletedFile],
        directories: &[(InodeNo, Life)],
    ) -> Names<'a> {
        let wanted: HashSet<InodeNo> = files.iter().map(|file| file.inode.number()).collect();
        let mut names = Names {
            files: files.iter().map(|file| (file.inode.number(), file.life)).collect(),
            history,
            of: HashMap::new(),
            count: 0,
            found: Vec::new(),
            parents: HashMap::new(),
            modes: HashMap::new(),
        };
        for file in files.iter().filter(|file| file.inode.is_dir()) {
            names.add_mode(file.inode.number(), file.mode_without_acl());
        }
        // Blocks that several directories have would be read without end.
        let mut seen = SeenDirectories::new();
        for (number, life) in directories {
            let Ok(dir) = fs.inode(*number) else { continue };
            names.add_mode(*number, mode_without_acl(fs, &dir));
            if seen.enter(fs, b"", &dir).is_err() {
                continue;
            }
            let _ = fs.for_each_entry(&dir, |entry| {
                let is_dir = entry.kind.is_none_or(|kind| kind == FileType::Directory);
                if is_dir && !matches!(&*entry.name, b"." | b"..") && entry.inode != InodeNo::ROOT {
                    names.parents.entry(entry.inode).or_insert((*number, entry.name));
                }
                Ok(ControlFlow::Continue(()))
            });
            let directory = Directory::Used(*number);
            names.of_removed(fs, &dir, directory, &wanted);
            names.of_copies(fs, history, &Copied { view: fs, inode: &dir, directory, life: *life }, &wanted);
        }
        // Of directories that were deleted themselves, all entries are wanted.
        let mut seen = SeenDirectories::new();
        for (at, file) in files.iter().enumerate().filter(|(_, file)| file.inode.is_dir()) {
            let view = file.view();
            if seen.enter(&view, b"", &file.inode).is_err() {
                continue;
            }
            let directory = Directory::Deleted(at);
            let last = file.life.shown.map_or(NOW, |(_, last)| last);
            let _ = view.for_each_entry(&file.inode, |entry| {
                if !matches!(&*entry.name, b"." | b"..") && wanted.contains(&entry.inode) {
                    // Copies have it with its time; a block without any may have been changed since.
                    names.add_left(entry.inode, directory, entry.name, last);
                }
                Ok(ControlFlow::Continue(()))
            });
            names.of_removed(&view, &file.inode, directory, &wanted);
            let copied = Copied { view: &view, inode: &file.inode, directory, life: file.life };
            names.of_copies(fs, history, &copied, &wanted);
        }
        names.find();
        names
    }

    /// Takes the names that were removed, and are still to be seen.
    fn of_removed(&mut self, view: &Ext4, dir: &Inode, directory: Directory, wanted: &HashSet<InodeNo>) {
        let _ = view.for_each_removed_entry(dir, |entry| {
            if wanted.contains(&entry.inode) {
                self.add_left(entry.inode, directory, entry.name, NOW);
            }
            Ok(ControlFlow::Continue(()))
        });
    }

    /// Takes the names that copies of a directory's blocks have.
    fn of_copies(
        &mut self,
        fs: &Ext4,
        history: &Arc<History>,
        copied: &Copied<'_>,
        wanted: &HashSet<InodeNo>,
    ) {
        let (view, dir) = (copied.view, copied.inode);
        let Ok(decode) = view.name_decoder(dir) else { return };
        let format = view.entry_format(dir);
        let Ok(blocks) = view.directory_blocks(dir) else { return };
        let is_summed = fs.verifies() && fs.checksums().covers(Subject::DirectoryBlock);
        let _ = view.mappings(dir, 0, |run| {
            for logical in run.logical..run.end().min(blocks) {
                let block = run.physical + (logical - run.logical);
                let mut next = copied.life.before.unwrap_or(NOW);
                for transaction in history.transactions(block) {
                    let moment = Moment::from(transaction);
                    let until = std::mem::replace(&mut next, moment);
                    if !copied.life.may_have(moment) {
                        next = until.min(moment);
                        continue;
                    }
                    let Some(bytes) = history.read_block(fs, block, transaction) else { continue };
                    if fs.block_role(dir, logical, &bytes) == BlockRole::Node {
                        continue;
                    }
                    let place = Place::inode(Structure::DirectoryBlock, dir.number()).at(block);
                    // The block may have been another one's then.
                    let is_own = match is_summed {
                        true => {
                            fs.verify_directory_block(BlockRole::Leaf, &dir.context(), &bytes, place).is_ok()
                        }
                        false => was_block_of(fs, history, transaction, dir, (logical, block)),
                    };
                    if !is_own {
                        continue;
                    }
                    let known = Moment::from(history.known_until(transaction));
                    let end = known.min(until.saturating_sub(1)).max(moment);
                    let span = Span { first: moment, last: moment, end };
                    for entry in Entries::new(&bytes, format, place).map_while(Result::ok) {
                        if matches!(entry.name, b"." | b"..") || !wanted.contains(&entry.inode) {
                            continue;
                        }
                        if let Ok(name) = decode(&entry) {
                            self.add_span(entry.inode, copied.directory, name, span);
                        }
                    }
                    for entry in removed(&bytes, format, place) {
                        if !wanted.contains(&entry.inode) {
                            continue;
                        }
                        if let Ok(name) = decode(&entry) {
                            self.add_left(entry.inode, copied.directory, name, moment);
                        }
                    }
                }
            }
            Ok(ControlFlow::Continue(()))
        });
    }

    fn add_mode(&mut self, directory: InodeNo, mode: u16) {
        self.modes.entry(directory).and_modify(|known| *known &= mode).or_insert(mode);
    }

    fn record(&mut self, inode: InodeNo, directory: Directory, name: Vec<u8>) -> Option<&mut Record> {
        let records = self.of.entry(inode).or_default();
        let known = records.list.iter().position(|other| other.directory == directory && other.name == name);
        let at = match known {
            Some(at) => at,
            None if records.list.len() >= MOST_NAMES || self.count >= MOST_ALL_NAMES => {
                records.is_cut = true;
                return None;
            }
            None => {
                self.count += 1;
                records.list.push(Record { directory, name, spans: Vec::new(), left: None });
                records.list.len() - 1
            }
        };
        records.list.get_mut(at)
    }

    fn add_left(&mut self, inode: InodeNo, directory: Directory, name: Vec<u8>, moment: Moment) {
        if let Some(record) = self.record(inode, directory, name) {
            record.left = record.left.max(Some(moment));
        }
    }

    /// Adds a time of a name; those of a block come newest first.
    fn add_span(&mut self, inode: InodeNo, directory: Directory, name: Vec<u8>, span: Span) {
        let Some(record) = self.record(inode, directory, name) else { return };
        // Up to the next copy, which has it, too.
        let is_joined = |later: &&mut Span| span.first < later.first && span.end + 1 >= later.first;
        let has_room = record.spans.len() < MOST_SPANS;
        match record.spans.last_mut().filter(is_joined) {
            Some(later) => later.first = span.first,
            None if has_room => record.spans.push(span),
            None => record.left = record.left.max(Some(span.last)),
        }
    }

    /// Finds which file had which names.
    fn find(&mut self) {
        let all: Vec<Found> = self.files.iter().map(|(number, life)| self.names_of(*number, life)).collect();
        let own: HashSet<(InodeNo, usize)> = self
            .files
            .iter()
            .zip(&all)
            .flat_map(|((number, _), found)| found.own.iter().map(|at| (*number, *at)))
            .collect();
        let settled = self.files.iter().zip(all).map(|((number, _), mut found)| {
            let is_cut = self.of.get(number).is_some_and(|records| records.is_cut);
            if !found.own.is_empty() {
                // All that remains of another's name says nothing.
                found.possible.retain(|at| !own.contains(&(*number, *at)));
            } else if let ([only], false) = (&found.possible[..], is_cut)
                && !own.contains(&(*number, *only))
            {
                found.own = std::mem::take(&mut found.possible);
            }
            found
        });
        self.found = settled.collect();
    }

    /// The names that a file had, the last one first, and those that it may have had.
    fn names_of(&self, number: InodeNo, life: &Life) -> Found {
        let Some(records) = self.of.get(&number) else { return Found::default() };
        let mut own: Vec<(Moment, usize)> = Vec::new();
        let mut possible = Vec::new();
        for (at, record) in records.list.iter().enumerate() {
            let proofs = record.spans.iter().filter(|span| self.is_proof(life, span));
            let is_possible = || {
                let is_left = record.left.is_some_and(|left| life.after.is_none_or(|after| left > after));
                is_left || record.spans.iter().any(|span| self.is_possible(life, span))
            };
            match proofs.map(|span| span.last).max() {
                Some(last) => own.push((last, at)),
                None if is_possible() => possible.push(at),
                None => {}
            }
        }
        own.sort_by_key(|(last, at)| (std::cmp::Reverse(*last), *at));
        Found { own: own.into_iter().map(|(_, at)| at).collect(), possible }
    }

    /// The last moment up to which nothing can have changed without a copy.
    fn known_until(&self, moment: Moment) -> Moment {
        u32::try_from(moment).map_or(moment, |transaction| self.history.known_until(transaction).into())
    }

    /// Whether there is a moment at which the name is known to have been there, and the inode to have been this file.
    fn is_proof(&self, life: &Life, span: &Span) -> bool {
        let Some((first, last)) = life.shown else { return false };
        let before = life.before.unwrap_or(NOW);
        let end = self.known_until(last).min(before.saturating_sub(1)).max(last);
        life.after.is_none_or(|after| span.last > after) && span.first <= end && first <= span.end
    }

    /// Whether the file may have been there when the name was.
    fn is_possible(&self, life: &Life, span: &Span) -> bool {
        let is_other = life.after.is_some_and(|after| {
            // Until the first copy of this file, the number was what the one before had made it.
            let first = life.shown.map_or(life.before, |(first, _)| Some(first)).unwrap_or(NOW);
            span.last <= after || span.end < first && self.known_until(after) >= span.last
        });
        !is_other && life.before.is_none_or(|before| span.first < before)
    }

    /// The paths that a file had, the last one first. With each, the permissions of the directories that it goes through.
    pub fn paths(&self, file: usize) -> Vec<(Vec<u8>, Vec<u16>)> {
        self.found.get(file).map_or_else(Vec::new, |found| self.all(file, &found.own))
    }

    /// The paths that a file, or another of its number, may have had.
    pub fn possible_paths(&self, file: usize) -> Vec<Vec<u8>> {
        let found = self.found.get(file).map_or_else(Vec::new, |found| self.all(file, &found.possible));
        found.into_iter().map(|(path, _)| path).collect()
    }

    fn all(&self, file: usize, places: &[usize]) -> Vec<(Vec<u8>, Vec<u16>)> {
        let records = self.files.get(file).and_then(|(number, _)| self.of.get(number));
        let records = records.map_or(&[][..], |records| &records.list);
        let records = places.iter().filter_map(|at| records.get(*at));
        records.map(|record| self.path(record.directory, &record.name)).collect()
    }

    /// The directory above, and the name in there.
    fn above(&self, directory: Directory) -> Option<(Directory, &[u8])> {
        match directory {
            Directory::Used(number) => {
                self.parents.get(&number).map(|(above, name)| (Directory::Used(*above), &name[..]))
            }
            Directory::Deleted(file) => {
                let (number, _) = self.files.get(file)?;
                let record = self.of.get(number)?.list.get(*self.found.get(file)?.own.first()?)?;
                Some((record.directory, &record.name))
            }
        }
    }

    fn path(&self, mut directory: Directory, name: &[u8]) -> (Vec<u8>, Vec<u16>) {
        let mut parts = vec![name.to_vec()];
        let mut way = Vec::new();
        while directory != Directory::Used(InodeNo::ROOT) {
            let number = match directory {
                Directory::Used(number) => Some(number),
                Directory::Deleted(file) => self.files.get(file).map(|(number, _)| *number),
            };
            // Without an end, it is a circle.
            match self.above(directory).filter(|_| parts.len() < MOST_PARENTS) {
                Some((above, name)) => {
                    parts.push(name.to_vec());
                    way.push(number.and_then(|number| self.modes.get(&number).copied()).unwrap_or(PRIVATE));
                    directory = above;
                }
                None => {
                    parts.push(number.map_or_else(Vec::new, |number| format!("#{number}").into_bytes()));
                    way.push(PRIVATE);
                    break;
                }
            }
        }
        let mut path = Vec::new();
        for part in parts.iter().rev() {
            path.push(b'/');
            path.extend(part);
        }
        way.reverse();
        (path, way)
    }
}

/// Whether a transaction left a directory with this block of its own.
fn was_block_of(
    fs: &Ext4,
    history: &Arc<History>,
    transaction: u32,
    dir: &Inode,
    (logical, block): (u64, Block),
) -> bool {
    let view = history.as_of(fs, transaction);
    let Ok(then) = view.inode(dir.number()) else { return false };
    if !is_alive(&then) || !Identity::new(dir).is_of(&then) {
        return false;
    }
    let mut is_own = false;
    let walked = view.mappings(&then, logical, |run| {
        is_own = run.logical <= logical && run.physical + (logical - run.logical) == block;
        Ok(ControlFlow::Break(()))
    });
    walked.is_ok() && is_own
}
