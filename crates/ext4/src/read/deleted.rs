//! Files that were deleted, as far as something of them is left.
//!
//! Linux clears the map of a file with extents when it deletes it, and its size. The journal may have copies of the inode from
//! before, and of the blocks of its map ([`History`]). Other tools, and ext2, leave the map in the inode. Names are those that
//! records of directories, or their copies in the journal, still have.
//!
//! Nothing says that a block still has the file's contents: the block may have been used again, and freed again. What can be told is
//! whether it is in use now, whether a file that was deleted later had it, too, and whether the journal has a copy that shows it in
//! other use since ([`Reuse`]).

use std::ops::ControlFlow;
use std::sync::Arc;

use casemate_blockdev::{Events, usize_of};

use crate::error::{Error, Place, Result, Structure};
use crate::format::csum::Subject;
use crate::format::group::BLOCK_UNINIT;
use crate::format::inode::{FileType, Inode, InodeFlags};
use crate::read::file::FileReader;
use crate::read::fs::Ext4;
use crate::read::journal::{History, Moment, NOW};
use crate::read::map::is_fast_symlink;
use crate::read::old_names::{Identity, Life, Names};
use crate::read::reuse::{Held, Reuse, is_same_map};
use crate::read::runs::BlockRuns;
use crate::read::unread::{TableBlock, Unread};
use crate::units::{Block, GroupNo, InodeNo, Run};

/// Deleted files that are told.
const MOST_FILES: usize = 200_000;
/// Runs of blocks that are looked at, of all files together.
const MOST_RUNS: u64 = 1 << 24;

/// A file that was deleted.
#[derive(Clone, Debug)]
pub struct DeletedFile {
    /// Its inode: as it was before, or as it is if nothing is left of that.
    pub inode: Inode,
    /// Where the inode is from.
    pub source: DeletedSource,
    /// When it was deleted, in seconds since 1970, if its inode still says so.
    pub deleted: Option<u32>,
    /// Paths that it had, the last one first, or the only one that it may have had. A part that is not known is `#` and a
    /// number.
    pub paths: Vec<Vec<u8>>,
    /// Paths that it may have had, or another file of the same inode number.
    pub possible_paths: Vec<Vec<u8>>,
    /// Permissions of the directories that each of the paths goes through, from the one in the root directory on down: 0700
    /// where they are not known.
    pub ways: Vec<Vec<u16>>,
    /// State of its blocks.
    pub blocks: DeletedBlocks,
    /// When it had the inode number.
    pub(crate) life: Life,
    fs: Ext4,
    history: Arc<History>,
}

/// Where the inode of a deleted file is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletedSource {
    /// The inode itself, whose map is still there.
    Inode,
    /// A copy in the journal, of this transaction.
    Journal(u32),
    /// The inode itself, and its map is gone.
    MapGone,
}

/// Blocks that a deleted file had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeletedBlocks {
    /// All of them.
    pub all: u64,
    /// Blocks that something else uses now.
    pub in_use: u64,
    /// Blocks of groups whose bitmap is damaged: nothing tells whether they are free.
    pub unknown: u64,
    /// Blocks that something else had since: a file that was deleted later, or what the journal's copies show.
    pub shared: u64,
    /// Whether the map can be read.
    pub is_map_whole: bool,
    /// Whether the journal misses transactions since it had the map: something may have had the blocks in them.
    pub has_gap: bool,
}

/// Deleted files that were found.
#[derive(Debug, Default)]
pub struct Deleted {
    /// The files, those that were deleted last first.
    pub files: Vec<DeletedFile>,
    /// Files and copies that were left out, as there are too many.
    pub left_out: u64,
    /// Errors of what could not be read: there may be more.
    pub unread: Unread,
}

impl DeletedFile {
    /// Whether all that can be told speaks for contents that are whole: the map is, its blocks are free, and nothing is known to
    /// have had them since.
    pub fn is_likely_whole(&self) -> bool {
        self.source != DeletedSource::MapGone
            && self.blocks.is_map_whole
            && self.blocks.in_use == 0
            && self.blocks.unknown == 0
            && self.blocks.shared == 0
            && !self.blocks.has_gap
    }

    /// Opens the contents of a regular file.
    ///
    /// # Errors
    /// Errors of [`Ext4::open_file`].
    pub fn open(&self) -> Result<FileReader> {
        self.view().open_file(&self.inode)
    }

    /// The target of a symbolic link, and nothing that only stands for it.
    ///
    /// # Errors
    /// Errors of [`Ext4::require_key`] and [`Ext4::symlink_target`].
    pub fn symlink_target(&self) -> Result<Vec<u8>> {
        let view = self.view();
        view.require_key(&self.inode)?;
        view.symlink_target(&self.inode)
    }

    /// The permission bits of a file that is copied without its ACL, and without those that lend rights.
    pub fn mode_without_acl(&self) -> u16 {
        mode_without_acl(&self.view(), &self.inode)
    }

    /// The file system in which the inode's map is read.
    pub fn view(&self) -> Ext4 {
        match self.source {
            DeletedSource::Journal(transaction) => self.history.as_of(&self.fs, transaction),
            DeletedSource::Inode | DeletedSource::MapGone => self.fs.clone(),
        }
    }
}

impl Ext4 {
    /// Files that were deleted, and what can be told of them. A journal that can't be read has no copies. A directory that
    /// can't be read has no names.
    ///
    /// # Errors
    /// `Interrupted`. What is damaged is passed over, and is in [`Deleted::unread`].
    pub fn deleted_files(&self, events: &dyn Events) -> Result<Deleted> {
        let mut unread = Unread::default();
        let mut history = History::read(self).unwrap_or_else(History::unread);
        if let Some(error) = history.unread.take() {
            unread.add(error.map_text(|text| format!("copies in the journal: {text}")));
        }
        let history = Arc::new(history);
        let mut search = Search {
            fs: self,
            history: &history,
            files: Vec::new(),
            directories: Vec::new(),
            held: Held::default(),
            left_out: 0,
        };
        self.for_each_table_block(events, &mut unread, |block| search.block(&block))?;
        let Search { mut files, directories, held, mut left_out, .. } = search;
        left_out += held.left_out;
        files.sort_by_key(|file| {
            let transaction = match file.source {
                DeletedSource::Journal(transaction) => transaction,
                _ => 0,
            };
            std::cmp::Reverse((file.deleted, transaction, file.inode.number()))
        });
        let names = Names::collect(self, &history, &files, &directories);
        let mut usage = BlockUsage { fs: self, group: None, bitmap: Usage::Free };
        let mut reuse = Reuse::new(self, &history, held);
        let (mut taken, mut runs_left) = (BlockRuns::default(), MOST_RUNS);
        for (number, file) in files.iter_mut().enumerate() {
            (file.paths, file.ways) = names.paths(number).into_iter().unzip();
            file.possible_paths = names.possible_paths(number);
            file.blocks = blocks_of(file, &mut usage, &mut taken, &mut reuse, &mut runs_left);
        }
        Ok(Deleted { files, left_out: left_out + history.left_out, unread })
    }
}

struct Search<'a> {
    fs: &'a Ext4,
    history: &'a Arc<History>,
    files: Vec<DeletedFile>,
    /// Directories that are in use, and since when.
    directories: Vec<(InodeNo, Life)>,
    /// Blocks that inodes had.
    held: Held,
    left_out: u64,
}

impl Search<'_> {
    /// Looks at the inodes of a block of a table, and at their copies in the journal. Returns errors of inodes.
    fn block(&mut self, block: &TableBlock<'_>) -> Vec<Error> {
        let mut errors = Vec::new();
        let numbers = block.slots(self.fs).into_iter();
        let mut slots: Vec<Slot> =
            numbers.map(|(number, slot)| self.slot(number, slot, block.bytes, &mut errors)).collect();
        for transaction in self.history.transactions(block.block) {
            let Some(bytes) = self.history.read_block(self.fs, block.block, transaction) else { continue };
            for slot in &mut slots {
                self.older(slot, transaction, &bytes);
            }
        }
        for mut slot in slots {
            self.end_life(&mut slot, None);
            // Its own life, if the newest copy is not of it.
            let newest = slot.newest;
            let is_other = |inode: &Inode| newest.is_none_or(|(known, _)| !known.is_of(inode));
            let Some(inode) = slot.deleted.filter(is_other) else { continue };
            let time = Some(inode.deleted()).filter(|time| *time != 0);
            let source = if has_map(&inode) { DeletedSource::Inode } else { DeletedSource::MapGone };
            let after = newest.map(|(_, last)| last);
            let life = Life { shown: None, after, before: Some(slot.dead_since) };
            self.keep(inode, source, time, life);
        }
        errors
    }

    /// An inode as it is now.
    fn slot(&mut self, number: InodeNo, slot: u32, bytes: &[u8], errors: &mut Vec<Error>) -> Slot {
        let now = self.fs.inode_in_block(number, slot, bytes).unwrap_or_else(|error| {
            errors.push(error);
            None
        });
        let current = now.as_ref().filter(|inode| is_alive(inode)).map(|inode| Current {
            identity: Identity::new(inode),
            life: Life { shown: Some((NOW, NOW)), after: None, before: None },
            owner: if inode.is_dir() { Owner::Directory } else { Owner::None },
        });
        let newest = current.as_ref().map(|current| (current.identity, NOW));
        let mapped = now.clone().filter(is_alive);
        let deleted = now.filter(|inode| !is_alive(inode));
        Slot { number, slot, deleted, current, newest, mapped, dead_since: NOW, oldest: NOW }
    }

    /// Looks at the inode as a transaction had it.
    fn older(&mut self, slot: &mut Slot, transaction: u32, bytes: &[u8]) {
        // Before the table was there, the block was another one's.
        let Ok(found) = self.fs.inode_in_block(slot.number, slot.slot, bytes) else { return };
        let moment = Moment::from(transaction);
        let before = std::mem::replace(&mut slot.oldest, moment);
        let identity = found.as_ref().map(Identity::new);
        let Some(inode) = found.filter(is_alive) else {
            let is_same = identity == slot.deleted.as_ref().map(Identity::new);
            if slot.newest.is_none() && is_same {
                slot.dead_since = moment;
            }
            self.end_life(slot, Some(moment));
            return;
        };
        if !slot.mapped.as_ref().is_some_and(|mapped| is_same_map(mapped, &inode)) {
            self.held.note(self.fs, self.history, &inode, transaction);
            slot.mapped = Some(inode.clone());
        }
        let identity = Identity::new(&inode);
        if let Some(current) = slot.current.as_mut().filter(|current| current.identity == identity) {
            current.life.shown = current.life.shown.map(|(_, last)| (moment, last));
            return;
        }
        self.end_life(slot, Some(moment));
        // Only the file that had the number last can be the one that the inode still tells of.
        let time = slot.deleted.as_ref().filter(|now| slot.newest.is_none() && identity.is_of(now));
        let time = time.map(Inode::deleted).filter(|time| *time != 0);
        slot.newest.get_or_insert((identity, moment));
        let life = Life { shown: Some((moment, moment)), after: None, before: Some(before) };
        let owner = self.keep(inode, DeletedSource::Journal(transaction), time, life);
        slot.current = Some(Current { identity, life, owner });
    }

    /// Ends the life that copies tell of, as an older one is not of it.
    fn end_life(&mut self, slot: &mut Slot, after: Option<Moment>) {
        let Some(Current { mut life, owner, .. }) = slot.current.take() else { return };
        life.after = after;
        match owner {
            Owner::File(at) => self.files[at].life = life,
            Owner::Directory => self.directories.push((slot.number, life)),
            Owner::None => {}
        }
    }

    fn keep(&mut self, inode: Inode, source: DeletedSource, deleted: Option<u32>, life: Life) -> Owner {
        if self.files.len() == MOST_FILES {
            self.left_out += 1;
            return Owner::None;
        }
        let (fs, history) = (self.fs.clone(), Arc::clone(self.history));
        self.files.push(DeletedFile {
            inode,
            source,
            deleted,
            paths: Vec::new(),
            possible_paths: Vec::new(),
            ways: Vec::new(),
            blocks: DeletedBlocks::default(),
            life,
            fs,
            history,
        });
        Owner::File(self.files.len() - 1)
    }
}

/// A place in an inode table.
struct Slot {
    number: InodeNo,
    /// The place in its block.
    slot: u32,
    /// The inode, if it was deleted.
    deleted: Option<Inode>,
    /// The file whose copies are met, newer ones first.
    current: Option<Current>,
    /// The last file that is known to have had the number, and until when.
    newest: Option<(Identity, Moment)>,
    /// The inode with the map that was noted last, or with the one that it has now.
    mapped: Option<Inode>,
    /// The first moment at which `deleted` was.
    dead_since: Moment,
    /// The oldest moment that was looked at.
    oldest: Moment,
}

/// A file whose copies are met.
struct Current {
    identity: Identity,
    life: Life,
    owner: Owner,
}

/// The place that a life is noted in.
enum Owner {
    /// A deleted file.
    File(usize),
    /// A directory in use.
    Directory,
    None,
}

/// Whether an inode has names, or is a root of something.
pub(crate) fn is_alive(inode: &Inode) -> bool {
    inode.links() > 0 && inode.deleted() == 0
}

/// Whether an inode's contents can still be found by it.
fn has_map(inode: &Inode) -> bool {
    let area = inode.block_area();
    match inode.kind() {
        _ if inode.size() == 0 => false,
        FileType::Symlink if is_fast_symlink(inode) => area[0] != 0,
        _ if inode.has(InodeFlags::INLINE_DATA) => true,
        // The number of entries in the root of a tree.
        _ if inode.has(InodeFlags::EXTENTS) => area[2..4] != [0, 0],
        FileType::Regular | FileType::Directory | FileType::Symlink => area.iter().any(|byte| *byte != 0),
        _ => true,
    }
}

/// Which blocks are in use. The bitmap of one group is kept.
struct BlockUsage<'a> {
    fs: &'a Ext4,
    group: Option<GroupNo>,
    bitmap: Usage,
}

/// Use of a group's blocks.
enum Usage {
    /// Nothing is in use.
    Free,
    /// The bitmap is lost, or its checksum is wrong: its bits mean nothing.
    Unknown,
    /// A bit for each cluster.
    Bits(Vec<u8>),
}

impl BlockUsage<'_> {
    /// Adds how many of these blocks are in use, and of how many that is not known.
    fn count(&mut self, start: Block, len: u64, blocks: &mut DeletedBlocks) {
        let layout = *self.fs.layout();
        for block in start.run(len) {
            let Some((group, within)) = layout.group_of(block) else {
                blocks.in_use += 1;
                continue;
            };
            if self.group != Some(group) {
                (self.group, self.bitmap) = (Some(group), self.load(group));
            }
            let bit = within / u64::from(layout.cluster_blocks);
            match &self.bitmap {
                Usage::Free => {}
                Usage::Unknown => blocks.unknown += 1,
                Usage::Bits(bits) => {
                    let byte = bits.get(usize_of(bit / 8)).copied().unwrap_or(0xff);
                    blocks.in_use += u64::from(byte >> (bit % 8) & 1);
                }
            }
        }
    }

    fn load(&self, group: GroupNo) -> Usage {
        let found =
            self.fs.with_descriptor(group, |found| (found.block_bitmap(), found.flags() & BLOCK_UNINIT != 0));
        match found {
            Ok((_, true)) => Usage::Free,
            Ok((block, false)) if self.fs.layout().contains(block, 1) => {
                self.bits(group, block).map_or(Usage::Unknown, Usage::Bits)
            }
            _ => Usage::Unknown,
        }
    }

    /// A bitmap whose checksum is right, where there are checksums.
    fn bits(&self, group: GroupNo, block: Block) -> Result<Vec<u8>> {
        let bytes = self.fs.read_block(block)?;
        let summed = bytes.get(..usize_of(self.fs.layout().clusters_per_group) / 8).unwrap_or(&bytes);
        let place = Place::group(Structure::BlockBitmap, group).at(block);
        let sums = self.fs.checksums();
        if sums.covers(Subject::BlockBitmap) {
            self.fs.with_raw_descriptor(group, |raw| {
                sums.verify_bitmap(Subject::BlockBitmap, summed, raw, place)
            })??;
        }
        Ok(bytes)
    }
}

/// State of a file's blocks. `taken` has those of files that were deleted later, and `reuse` what had them since.
fn blocks_of(
    file: &DeletedFile,
    usage: &mut BlockUsage<'_>,
    taken: &mut BlockRuns,
    reuse: &mut Reuse<'_>,
    runs_left: &mut u64,
) -> DeletedBlocks {
    let mut blocks = DeletedBlocks { is_map_whole: true, ..DeletedBlocks::default() };
    if file.source == DeletedSource::MapGone {
        blocks.is_map_whole = false;
        return blocks;
    }
    if let DeletedSource::Journal(transaction) = file.source {
        blocks.has_gap = reuse.has_gap_behind(transaction);
    }
    let most = usage.fs.layout().blocks;
    let gone = file.life.before.unwrap_or(NOW);
    let since = match file.source {
        DeletedSource::Journal(transaction) => Moment::from(transaction),
        _ => gone,
    };
    let walked = file.view().mappings(&file.inode, 0, |run| {
        // A file has no more blocks than there are: more are the same ones again.
        if *runs_left == 0 || blocks.all + run.len > most {
            blocks.is_map_whole = false;
            return Ok(ControlFlow::Break(()));
        }
        *runs_left -= 1;
        blocks.all += run.len;
        usage.count(run.physical, run.len, &mut blocks);
        blocks.shared += match taken.insert(run.physical, run.len) {
            true => reuse.count(Run { first: run.physical, len: run.len }, since, gone),
            false => run.len,
        };
        Ok(ControlFlow::Continue(()))
    });
    blocks.is_map_whole &= walked.is_ok();
    blocks
}

/// Permission bits without the ACL's mask. Of damaged attributes nobody knows what they gave the group.
pub(crate) fn mode_without_acl(fs: &Ext4, inode: &Inode) -> u16 {
    fs.mode_without_acl(inode).unwrap_or(inode.mode() & !0o070) & 0o777
}
