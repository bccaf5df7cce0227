//! State that all passes share, and the state of one thread of a pass.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use casemate_blockdev::{BlockDevice, Buffer, u32_of, usize_of};

use crate::check::claims::Claims;
use crate::check::facts::Facts;
use crate::check::findings::{Counts, Doubts, Finding, FindingKind, Findings, Fix};
use crate::check::places::Group;
use crate::error::{Counted, Place, Problem, Result, Structure};
use crate::format::csum::{Context, Kind, Subject};
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::superblock::Superblock;
use crate::read::fs::Ext4;
use crate::read::mapping::Mapping;
use crate::units::{Block, Cluster, InodeNo, Run, merge};

/// Runs of blocks that are claimed twice and are kept to name their owners; beyond that, some owners stay unnamed.
const MOST_SHARED: usize = 4096;

/// Blocks that a thread may claim without asking.
const MOST_SPARE: u64 = 1 << 14;

/// A check in progress.
pub(crate) struct Check<'a> {
    pub fs: &'a Ext4,
    pub findings: &'a Findings,
    pub claims: Claims,
    pub facts: Facts,
    /// Blocks of the file system's own structures outside of files, in order.
    pub metadata: Vec<Run>,
    /// Inodes that wait to be deleted or cut.
    pub orphans: HashSet<InodeNo>,
    /// Times of deletion that are inodes' numbers: those of orphans that a list has lost.
    pub lost_orphans: RangeInclusive<u32>,
    /// Inodes that the superblock names, and what for.
    pub named: BTreeMap<InodeNo, Named>,
    /// The features that are asked for with every inode.
    pub has: Has,
    /// Whether there is a file of 2 GiB or more.
    pub has_large_file: AtomicBool,
    /// Whether an attribute's value lies in an inode of its own.
    pub has_value_inode: AtomicBool,
    shared: Mutex<BTreeMap<Block, Block>>,
    /// Blocks that maps may still claim, and blocks that may still be read because of maps. Each block has one owner, so
    /// honest images never need more than there are; hostile ones would keep a check busy for days.
    claimable: AtomicU64,
    readable: AtomicU64,
    pub lists: Mutex<Lists>,
}

/// Purpose of an inode that the superblock names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    Journal,
    /// The quota file of users, groups or projects.
    Quota(usize),
    Orphans,
}

/// Features, as they are asked for with every inode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Has {
    pub checksums: bool,
    pub extents: bool,
    pub inline_data: bool,
    pub huge_file: bool,
    pub bits64: bool,
    pub large_dir: bool,
    pub xattrs: bool,
    pub index: bool,
    pub types: bool,
    pub quota: bool,
    pub hurd: bool,
    pub shared_blocks: bool,
}

/// Lists that threads of one pass fill, and later passes read.
#[derive(Default)]
pub(crate) struct Lists {
    pub directories: Vec<Directory>,
    /// Blocks of attributes: the number of users that they say, and that they have.
    pub xattr_blocks: HashMap<Block, XattrUse>,
    /// Inodes that hold values, and how many attributes they say have it; those of an old kind don't.
    pub values: Vec<(InodeNo, Option<u64>)>,
    /// Policies of encrypted inodes, by what stands for them: numbers from 1 on.
    pub policies: HashMap<u64, u32>,
    pub usage: Usage,
}

/// Bytes and inodes of users, groups and projects.
pub(crate) type Usage = [HashMap<u32, (u64, u64)>; 3];

/// Owners that a thread counts for before it hands that over: not each thread keeps all of them.
const MOST_OWNERS: usize = 1 << 12;

/// Policies that are told apart. Honest file systems have few.
const MOST_POLICIES: usize = 1 << 16;

/// A block of attributes that inodes share.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct XattrUse {
    pub stored: u32,
    pub found: u32,
}

/// A directory, as the second pass needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Directory {
    pub number: InodeNo,
    pub generation: u32,
    pub flags: u32,
    /// Blocks up to the last one that it has.
    pub blocks: u32,
    /// Where they lie, if one behind the other.
    pub first: Option<Block>,
}

impl<'a> Check<'a> {
    pub fn new(fs: &'a Ext4, findings: &'a Findings) -> Check<'a> {
        let superblock = fs.superblock();
        let (compat, incompat, ro_compat) = (superblock.compat, superblock.incompat, superblock.ro_compat);
        let has = Has {
            checksums: fs.checksums().kind() == Kind::Metadata,
            extents: incompat.has(Incompat::EXTENTS),
            inline_data: incompat.has(Incompat::INLINE_DATA),
            huge_file: ro_compat.has(RoCompat::HUGE_FILE),
            bits64: incompat.has(Incompat::BITS64),
            large_dir: incompat.has(Incompat::LARGEDIR),
            xattrs: compat.has(Compat::EXT_ATTR),
            index: compat.has(Compat::DIR_INDEX),
            types: incompat.has(Incompat::FILETYPE),
            quota: ro_compat.has(RoCompat::QUOTA),
            hurd: superblock.is_hurd(),
            shared_blocks: ro_compat.has(RoCompat::SHARED_BLOCKS),
        };
        let mut named = BTreeMap::new();
        for (kind, number) in superblock.quota_inodes.into_iter().enumerate() {
            if let Some(number) = number.filter(|_| has.quota) {
                named.insert(number, Named::Quota(kind));
            }
        }
        if let Some(number) = superblock.orphan_file {
            named.insert(number, Named::Orphans);
        }
        if let Some(number) = superblock.journal_inode {
            named.insert(number, Named::Journal);
        }
        let layout = fs.layout();
        Check {
            fs,
            findings,
            claims: Claims::new(layout),
            facts: Facts::new(layout),
            metadata: Vec::new(),
            orphans: HashSet::new(),
            lost_orphans: lost_orphans(superblock),
            named,
            has,
            has_large_file: AtomicBool::new(false),
            has_value_inode: AtomicBool::new(false),
            shared: Mutex::default(),
            claimable: AtomicU64::new(layout.blocks.saturating_mul(4)),
            readable: AtomicU64::new(layout.blocks.saturating_mul(4)),
            lists: Mutex::default(),
        }
    }

    /// Claims blocks for an owner; whoever has some of them already shares them.
    fn claim(&self, block: Block, len: u64) {
        self.claims.claim(block, len, |run| {
            if !self.has.shared_blocks {
                self.share(run);
            }
        });
    }

    fn share(&self, run: Run) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let before = shared.range(..=run.first).next_back().map(|(first, end)| (*first, *end));
        match before {
            Some((first, end)) if end >= run.first => {
                shared.insert(first, end.max(run.end()));
            }
            _ if shared.len() < MOST_SHARED => {
                shared.insert(run.first, run.end());
            }
            _ => {}
        }
    }

    /// Runs of blocks that are claimed twice.
    pub fn shared(&self) -> Vec<Run> {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let mut runs = shared.iter().map(|(first, end)| Run::between(*first, *end)).collect();
        merge(&mut runs);
        runs
    }

    /// Allows blocks to be read once more, for a pass of its own.
    pub fn renew(&self) {
        for left in [&self.claimable, &self.readable] {
            left.store(self.fs.layout().blocks.saturating_mul(4), Ordering::Relaxed);
        }
    }

    pub fn may_read(&self, blocks: u64) -> bool {
        self.take(&self.readable, blocks)
    }

    fn take(&self, from: &AtomicU64, blocks: u64) -> bool {
        if has_left(from, blocks) {
            return true;
        }
        // The same words whichever inode it was: one fault, however many threads meet it.
        self.findings.doubt(Doubts::ALL);
        let text =
            "all inodes together lead to more blocks than the file system has; the rest is not checked";
        self.findings.say(FindingKind::ClaimedTwice, Place::of(Structure::Inode), text);
        false
    }

    /// Whether a block lies among the file system's own structures.
    pub fn is_metadata(&self, block: Block) -> bool {
        self.first_metadata(Run { first: block, len: 1 }).is_some()
    }

    /// The first block of a run that does.
    pub fn first_metadata(&self, run: Run) -> Option<Block> {
        let at = self.metadata.partition_point(|own| own.end() <= run.first);
        Some(self.metadata.get(at)?.shared(run)?.first)
    }

    pub fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a policy; 0 for one of more than are told apart.
    pub fn policy(&self, policy: u64) -> u32 {
        let mut lists = self.lists();
        let next = u32_of(lists.policies.len()) + 1;
        match lists.policies.get(&policy) {
            Some(number) => *number,
            None if lists.policies.len() < MOST_POLICIES => *lists.policies.entry(policy).or_insert(next),
            None => 0,
        }
    }

    /// The bytes of an inode; `None` if its table is not where it can be.
    pub fn inode_bytes(&self, groups: &[Group], number: InodeNo) -> Result<Option<Vec<u8>>> {
        let layout = self.fs.layout();
        let Some((group, index)) = layout.inode_position(number) else { return Ok(None) };
        let Some(table) = groups.get(group.index()).and_then(|group| group.table) else { return Ok(None) };
        let size = layout.inode_size;
        let mut raw = vec![0; usize_of(size)];
        self.fs.device().read_at(&mut raw, layout.offset(table) + u64::from(index) * u64::from(size))?;
        Ok(Some(raw))
    }
}

/// Deletion times that are read as inode numbers: as a time, they would be of a clock that was badly wrong.
fn lost_orphans(superblock: &Superblock) -> RangeInclusive<u32> {
    let inodes = i64::from(superblock.inodes);
    let [made, mounted, written] = superblock.times();
    let is_wrong = made != 0 && made < inodes || mounted != 0 && mounted < inodes || written < inodes;
    // OK to subtract: there are inodes.
    if is_wrong { RangeInclusive::new(1, 0) } else { 1..=superblock.inodes - 1 }
}

/// Takes blocks from those that are left, if there are so many.
fn has_left(from: &AtomicU64, blocks: u64) -> bool {
    let left = |left: u64| left.checked_sub(blocks);
    from.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok()
}

/// Purpose for which a thread walks through the blocks of inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Checks everything, and claims blocks.
    Check,
    /// Only collects runs of blocks.
    Collect,
    /// Only looks for owners of blocks that are claimed twice.
    Owners,
}

/// One thread of a pass, which collects until [`Worker::finish`].
pub(crate) struct Worker<'a, 'b> {
    pub check: &'a Check<'b>,
    pub groups: &'a [Group],
    pub purpose: Purpose,
    pub counts: Counts,
    /// A piece of a table, blocks, and runs of blocks, kept for their memory.
    pub table: Buffer,
    pub runs: Vec<Mapping>,
    /// Clusters at the ends of runs in the list of bad blocks, which may share them.
    pub bad_clusters: HashSet<Cluster>,
    pub regions: Vec<(usize, usize)>,
    pub lists: Lists,
    /// Runs of blocks whose owners are sought.
    pub sought: &'a [Run],
    pub inodes: u64,
    /// Blocks that this thread may claim, of those that all may.
    claimable: u64,
}

impl<'a, 'b> Worker<'a, 'b> {
    pub fn new(check: &'a Check<'b>, groups: &'a [Group], purpose: Purpose) -> Worker<'a, 'b> {
        Worker {
            check,
            groups,
            purpose,
            counts: Counts::default(),
            table: Buffer::default(),
            runs: Vec::new(),
            bad_clusters: HashSet::new(),
            regions: Vec::new(),
            lists: Lists::default(),
            sought: &[],
            inodes: 0,
            claimable: 0,
        }
    }

    pub fn say(&self, kind: FindingKind, place: Place, text: impl Into<Cow<'static, str>>) {
        if self.purpose == Purpose::Check {
            self.check.findings.say(kind, place, text);
        }
    }

    pub fn number(
        &self,
        kind: FindingKind,
        place: Place,
        what: impl Into<Counted>,
        found: u64,
        expected: u64,
    ) {
        if self.purpose == Purpose::Check {
            self.check.findings.number(kind, place, what, found, expected);
        }
    }

    /// Doubts a group's word that inodes were never used, if something leads to one of these: it may be in use after all.
    pub fn never_used(&self, inode: InodeNo, text: &'static str) {
        let Some((group, index)) = self.check.fs.layout().inode_position(inode) else { return };
        if self.groups.get(group.index()).is_some_and(|group| index >= group.used) {
            self.say(FindingKind::GroupFlags, Place::group(Structure::GroupDescriptor, group), text);
        }
    }

    /// Checks a structure's checksum, and counts that.
    pub fn verify(
        &mut self,
        place: Place,
        offset: u64,
        bytes: &[u8],
        subject: Subject,
        context: Context,
    ) -> bool {
        let sums = self.check.fs.checksums();
        if self.purpose != Purpose::Check || !sums.covers(subject) {
            return true;
        }
        match place.structure {
            Structure::Inode => self.inodes += 1,
            other => self.counts.add(other, 1),
        }
        let result = sums.verify(subject, &context, bytes, place);
        let fix = Fix::in_place(offset, bytes.len(), subject, context);
        self.check.findings.note(result, Some(fix))
    }

    /// Whether there are blocks left to claim. This thread takes some more than it needs at the moment, so that threads
    /// seldom meet over them: all of them together never more than there are blocks.
    fn may_claim(&mut self, len: u64) -> bool {
        if let Some(left) = self.claimable.checked_sub(len) {
            self.claimable = left;
            return true;
        }
        let spare = (self.check.fs.layout().blocks >> 8).min(MOST_SPARE);
        let wanted = len - self.claimable;
        let has_spare = has_left(&self.check.claimable, wanted.saturating_add(spare));
        let may = has_spare || self.check.take(&self.check.claimable, wanted);
        self.claimable = if has_spare { spare } else { 0 };
        may
    }

    /// Claims blocks, or says that they are shared, whichever this thread is for.
    pub fn own(&mut self, inode: InodeNo, block: Block, len: u64) {
        match self.purpose {
            Purpose::Check => {
                if self.may_claim(len) {
                    self.check.claim(block, len);
                }
            }
            Purpose::Collect => {}
            Purpose::Owners => {
                let own = Run::between(block, block.saturating_add(len));
                let at = self.sought.partition_point(|run| run.end() <= block);
                for shared in self.sought[at..].iter().map_while(|run| run.shared(own)) {
                    let run = Problem::Run {
                        first: shared.first.get(),
                        last: shared.end().before().get(),
                        what: "of the image, claimed by other files, too",
                    };
                    let place = Place::inode(Structure::Inode, inode);
                    self.check.findings.add(Finding::new(FindingKind::ClaimedTwice, place, run), None);
                }
            }
        }
    }

    /// Hands over what was counted for owners, if these are many.
    pub fn settle_usage(&mut self) {
        if self.lists.usage.iter().any(|usage| usage.len() > MOST_OWNERS) {
            let usage = std::mem::take(&mut self.lists.usage);
            self.check.lists().charge(usage);
        }
    }

    /// Hands over what this thread has counted and collected.
    pub fn finish(mut self) {
        if self.inodes > 0 {
            self.counts.add(Structure::Inode, self.inodes);
        }
        self.check.findings.add_counts(self.counts);
        let mut all = self.check.lists();
        let Lists { directories, xattr_blocks: _, values, policies: _, usage } = self.lists;
        all.directories.extend(directories);
        all.values.extend(values);
        all.charge(usage);
    }
}

impl Lists {
    /// Adds what owners have.
    fn charge(&mut self, usage: Usage) {
        for (all, own) in self.usage.iter_mut().zip(usage) {
            for (id, (blocks, inodes)) in own {
                let sum = all.entry(id).or_default();
                *sum = (sum.0.saturating_add(blocks), sum.1.saturating_add(inodes));
            }
        }
    }
}
