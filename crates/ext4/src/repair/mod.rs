//! Damage mended: what follows from the rest of the file system, such as counts, bitmaps, checksums, copies and indexes; and
//! if everything is to be mended ([`Depth::All`]), what must be decided, too, such as which of two owners keeps a block. The
//! decisions are a table ([`rules`]).
//!
//! Rounds of a check and of what it finds go on until nothing is left that can be mended, on blocks in memory; they are
//! committed as all changes are: at once if the log has room for them, else in parts, each of which leaves the
//! file system sounder than it was. A round mends what others depend on first ([`rank`]), and nothing where other
//! damage makes unsure whether it is wrong ([`Obstacles`]): that waits for the next one. Each round is a check of the whole file
//! system, so counts that follow from what was mended in the same round are counted once more here, not in a round of
//! their own: most repairs are two checks.

mod altered;
mod copies;
mod decide;
mod directory;
mod inode;
mod map;
mod obstacles;
mod own;
mod places;
mod root;
mod rules;
mod undo;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use casemate_blockdev::{BlockDevice, ErrorKind, Events, NoEvents};
use casemate_primitives::crc32c::Crc32c;
use casemate_providers::Work;

use crate::alloc::Allocator;
use crate::check::{
    CheckOptions, CheckReport, Doubts, Finding, FindingKind, Fix, check, descriptor_copies, fitting,
    restored, tells_unused,
};
use crate::edit::create::is_not_found;
use crate::edit::dir::{NewName, name::Name};
use crate::edit::file_map::Cut;
use crate::edit::files::Files;
use crate::edit::inode::write;
use crate::edit::inodes::Inodes;
use crate::edit::quota_file::{QuotaFile, Usage};
use crate::edit::random::Random;
use crate::edit::too_large::TooLarge;
use crate::edit::{Body, NewNode, WriteOptions, Writer, fast_commit};
use crate::error::{Corrupt, Counted, Marked, Problem, Result, Structure};
use crate::format::csum::{Subject, recipe};
use crate::format::features::RoCompat;
use crate::format::group::{Bitmap, GroupDescriptor};
use crate::format::inode::{FileType, Inode, InodeFlags, Time};
use crate::format::superblock::SUPERBLOCK_OFFSET;
use crate::read::fs::{Ext4, OpenOptions, read_superblock};
use crate::read::journal::Journal;
pub use crate::repair::altered::{Alteration, Altered};
use crate::repair::copies::Owners;
use crate::repair::directory::Unsound;
use crate::repair::obstacles::{Obstacles, rank};
use crate::repair::rules::{Rule, rule};
use crate::repair::undo::Undoable;
use crate::transaction::patch::Patching;
use crate::transaction::recovery_file::RecoveryFile;
use crate::transaction::{self, LogOptions, Mmp, Transaction};
use crate::units::{Block, GroupNo, InodeNo};

/// Rounds that a repair takes at most: for what lies below structures that were mended, and what such damage made unsure.
const MOST_ROUNDS: u32 = 10;

/// Rounds where everything is mended: each rule may uncover what the rules before it hid.
const MOST_ROUNDS_OF_ALL: u32 = 60;

const LOST_AND_FOUND: &[u8] = b"lost+found";

/// Result of a repair.
#[derive(Debug)]
pub struct RepairReport {
    /// Faults that were fixed, in that order.
    pub mended: Vec<Finding>,
    /// Result of the check after the repair.
    pub report: CheckReport,
    /// Files whose contents were changed, or may be others': in the order of their inodes.
    pub altered: Vec<Altered>,
    /// Faults that are left and could be fixed, if other damage did not make the right contents unsure.
    pub withheld: Vec<Finding>,
}

/// How much of the damage is mended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Depth {
    /// Faults whose right state follows from the rest of the file system.
    #[default]
    Safe,
    /// All faults, by the rules of docs/checks.md where something must be decided.
    All,
}

/// How to repair a file system.
pub struct RepairOptions<'a> {
    /// How to read and check it.
    pub check: CheckOptions,
    /// How much is mended.
    pub depth: Depth,
    /// A new file for blocks as they were before: `e2undo` of e2fsprogs puts them back.
    pub undo: Option<PathBuf>,
    /// As [`WriteOptions::seed`].
    pub seed: Option<u64>,
    /// The time to note as that of changes; the clock's if `None`.
    pub time: Option<Time>,
    /// Where transactions are kept if the journal can't be used, or there is none.
    pub recovery: Option<RecoveryFile>,
    /// The listener, which is told of waits.
    pub events: &'a dyn Events,
}

impl Default for RepairOptions<'_> {
    fn default() -> Self {
        RepairOptions {
            check: CheckOptions::default(),
            depth: Depth::Safe,
            undo: None,
            seed: None,
            time: None,
            recovery: None,
            events: &NoEvents,
        }
    }
}

/// Asks whether findings of a kind are to be mended. Each kind is asked for once.
pub type Approve<'a> = dyn FnMut(FindingKind, &[Finding]) -> Result<bool> + 'a;

/// Mends what can be mended of the file system on `device`, after its journal was replayed. A damaged superblock is made again
/// of a sound copy first, or of the one that the options name.
///
/// # Errors
/// Errors of [`Writer::open`], but for damage that is found; errors of `approve`.
pub fn repair(
    device: Arc<dyn BlockDevice>,
    mut options: RepairOptions<'_>,
    approve: &mut Approve<'_>,
    work: &Work<'_>,
) -> Result<RepairReport> {
    let mut answers: BTreeMap<FindingKind, bool> = BTreeMap::new();
    let mut approve = |kind: FindingKind, findings: &[Finding]| -> Result<bool> {
        if let Some(answer) = answers.get(&kind) {
            return Ok(*answer);
        }
        let answer = approve(kind, findings)?;
        answers.insert(kind, answer);
        Ok(answer)
    };
    let Some(undo) = options.undo.take() else { return mend_all(&device, &options, &mut approve, work) };
    let crc = Crc32c::new(options.check.open.providers.cpu());
    let undoable = Arc::new(Undoable::new(device, &undo, crc)?);
    let device: Arc<dyn BlockDevice> = undoable.clone();
    let report = mend_all(&device, &options, &mut approve, work);
    let finished = undoable.finish(report.is_ok());
    let report = report?;
    finished.map(|()| report)
}

/// Times that the file system is opened again because its places or features changed.
const MOST_OPENED: u32 = 8;

fn mend_all(
    device: &Arc<dyn BlockDevice>,
    options: &RepairOptions<'_>,
    approve: &mut Approve<'_>,
    work: &Work<'_>,
) -> Result<RepairReport> {
    let RepairOptions { check, depth, undo: _, seed, time, recovery, events } = options;
    let mut mended = Vec::new();
    let mut altered = Vec::new();
    for opened in 1.. {
        let options = RepairOptions {
            check: check.clone(),
            depth: *depth,
            undo: None,
            seed: *seed,
            time: *time,
            recovery: recovery.clone(),
            events: *events,
        };
        let (mut report, is_other) = mend(Arc::clone(device), options, opened < MOST_OPENED, approve, work)?;
        mended.append(&mut report.mended);
        altered.append(&mut report.altered);
        if !is_other {
            mended.retain(|finding| !report.report.faults.contains(finding));
            altered.sort_unstable();
            altered.dedup();
            return Ok(RepairReport { mended, altered, ..report });
        }
    }
    unreachable!("the loop ends with its last round")
}

/// Mends until nothing is left, or the file system must be opened again to go on: whether that is so.
fn mend(
    device: Arc<dyn BlockDevice>,
    options: RepairOptions<'_>,
    may_open: bool,
    approve: &mut Approve<'_>,
    work: &Work<'_>,
) -> Result<(RepairReport, bool)> {
    let RepairOptions { check: CheckOptions { open, verity }, depth, undo: _, seed, time, recovery, events } =
        options;
    let mut mended = Vec::new();
    let wrong = match restored(&device, &open)? {
        None if depth == Depth::All => fitting(&device, &open)?,
        restored => restored,
    };
    let superblock = match wrong {
        None => read_superblock(&*device, SUPERBLOCK_OFFSET)?,
        Some((finding, superblock)) => {
            if !approve(finding.kind(), std::slice::from_ref(&finding))? {
                return Err(finding.into_error());
            }
            mended.push(finding);
            superblock
        }
    };
    let open = OpenOptions { superblock: None, ..open };
    let plain = OpenOptions { verify_checksums: false, replay_journal: false, ..open.clone() };
    superblock.ro_compat.check_writable()?;
    // Refuses an image that is cut off.
    Ext4::with_superblock(Arc::clone(&device), superblock.clone(), &plain)?;
    let mmp = Mmp::start(&device, &superblock, &plain, events)?;
    if !mended.is_empty() {
        device.write_at(&superblock.as_bytes()[..], SUPERBLOCK_OFFSET)?;
        device.flush()?;
    }
    transaction::recover(&device, &open, recovery.as_ref(), |commits| {
        fast_commit::fold_in(&device, &open, commits)
    })?;
    let log = LogOptions {
        recovery: recovery.clone(),
        patching: Patching::Recompute,
        spare_journal: has_broken_journal(&device, &plain)?,
        ..LogOptions::default()
    };
    let (fs, transaction) = Transaction::open(Arc::clone(&device), &plain, log, mmp)?;
    let files = Files::new(Inodes::new(Allocator::new(fs, transaction), Random::new(seed), time));
    let unreplayed = OpenOptions { replay_journal: false, ..open.clone() };
    let options = CheckOptions { open: unreplayed, verity };
    let mut repair = Repair {
        files,
        answers: BTreeMap::new(),
        left: BTreeSet::new(),
        decided: BTreeSet::new(),
        rebuilt: BTreeSet::new(),
        mended,
        altered: Vec::new(),
        obstacles: Obstacles::default(),
        miscounted: BTreeSet::new(),
        recounted: BTreeSet::new(),
        mislinked: BTreeSet::new(),
        renamed: BTreeSet::new(),
        recovery: recovery.clone(),
        depth,
        owners: Owners::default(),
        is_other: false,
        may_open,
        placed: BTreeSet::new(),
        is_stuck: false,
        unsound: Unsound::default(),
        renewed: BTreeSet::new(),
    };
    let mut report = repair.rounds(&options, approve, work)?;
    if repair.is_other {
        repair.files.commit()?;
        let (mended, altered) = (repair.mended, repair.altered);
        return Ok((RepairReport { mended, report, altered, withheld: Vec::new() }, true));
    }
    if report.faults.is_empty() && (superblock.has_errors() || !superblock.is_clean()) {
        repair.files.inodes().transaction().edit_superblock(|superblock| {
            superblock.set_sound();
            Ok(())
        })?;
    }
    repair.files.commit()?;
    let (mut mended, altered) = (repair.mended, repair.altered);
    drop(repair.files);
    let orphans = report.notes.iter().find(|finding| finding.kind() == FindingKind::Orphans);
    if let Some(orphans) = orphans.filter(|_| report.faults.is_empty()) {
        let orphans = orphans.clone();
        if approve(FindingKind::Orphans, std::slice::from_ref(&orphans))? {
            let writing = WriteOptions { open, seed, time, recovery, events, ..WriteOptions::default() };
            drop(Writer::open(Arc::clone(&device), writing)?);
            mended.push(orphans);
            if depth == Depth::All && may_open {
                // What went with them may have been counted.
                return Ok((RepairReport { mended, report, altered, withheld: Vec::new() }, true));
            }
            report = check(Arc::clone(&device), &options, work)?;
        }
    }
    // Until the commit it went on to tell of some, such as the journal's checksum.
    if mended.iter().any(|finding| report.faults.contains(finding)) {
        report = check(device, &options, work)?;
    }
    // What is found again was not.
    mended.retain(|finding| !report.faults.contains(finding));
    let obstacles = Obstacles::of(&report, &superblock, |_| false);
    let can_be_mended = |finding: &&Finding| rank(finding).is_some() && !obstacles.allow(finding);
    let withheld = report.faults.iter().filter(can_be_mended).cloned().collect();
    Ok((RepairReport { mended, report, altered, withheld }, false))
}

/// Whether the journal is damaged, so that nothing can be written through it. It holds nothing: else it was replayed, or that
/// failed.
///
/// # Errors
/// `Unsupported` for a journal with features that nobody here knows: it may be sound, and hold what only others can tell.
fn has_broken_journal(device: &Arc<dyn BlockDevice>, plain: &OpenOptions) -> Result<bool> {
    let superblock = read_superblock(&**device, SUPERBLOCK_OFFSET)?;
    let fs = Ext4::with_superblock(Arc::clone(device), superblock, plain)?;
    match Journal::open(&fs) {
        Ok(_) => Ok(false),
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(true),
        Err(error) => Err(error),
    }
}

struct Repair {
    files: Files,
    answers: BTreeMap<FindingKind, bool>,
    /// Faults that could not be fixed after all.
    left: BTreeSet<Finding>,
    /// Findings that a rule was applied to.
    decided: BTreeSet<(Rule, Finding)>,
    /// Directories whose blocks were made anew.
    rebuilt: BTreeSet<InodeNo>,
    mended: Vec<Finding>,
    altered: Vec<Altered>,
    /// Damage that stands against fixes, and groups whose free blocks or inodes are counted wrongly, before this round.
    obstacles: Obstacles,
    miscounted: BTreeSet<(FindingKind, GroupNo)>,
    /// Groups of which other blocks or inodes are said to be free than before this round.
    recounted: BTreeSet<(FindingKind, GroupNo)>,
    /// Inodes that counted other names than they had before this round, and those that got names or lost some in it.
    mislinked: BTreeSet<InodeNo>,
    renamed: BTreeSet<InodeNo>,
    /// Where changes go if the journal can't be trusted.
    recovery: Option<RecoveryFile>,
    depth: Depth,
    /// Owners of blocks that are claimed twice, in this round.
    owners: Owners,
    /// Whether places or features changed, by which the file system was opened.
    is_other: bool,
    /// True if it may be opened again.
    may_open: bool,
    /// Groups whose structures were given other places.
    placed: BTreeSet<GroupNo>,
    /// True where a group's structure has no place that it can be given: nothing that depends on it is decided.
    is_stuck: bool,
    /// Directories and names with faults, in this round.
    unsound: Unsound,
    /// Inodes that rules have renewed in this round.
    renewed: BTreeSet<(Rule, InodeNo)>,
}

impl Repair {
    /// Goes on until a check finds nothing that can be mended. What it finds then.
    fn rounds(
        &mut self,
        options: &CheckOptions,
        approve: &mut Approve<'_>,
        work: &Work<'_>,
    ) -> Result<CheckReport> {
        let mut rounds = 0;
        loop {
            let now = self.files.now();
            self.space().commit_counts(now)?;
            let report = check(Arc::clone(self.files.fs().device()), options, work)?;
            self.look(&report)?;
            let next = self.next(&report, approve)?;
            rounds += 1;
            if next.is_empty() && self.depth == Depth::All && rounds <= MOST_ROUNDS_OF_ALL {
                match self.decide(&report, approve)? {
                    true if !self.is_other => continue,
                    _ => return Ok(report),
                }
            }
            let most = if self.depth == Depth::All { MOST_ROUNDS_OF_ALL } else { MOST_ROUNDS };
            if next.is_empty() || rounds > most {
                return Ok(report);
            }
            let fixes: BTreeMap<&Finding, Fix> =
                report.fixes().iter().map(|(finding, fix)| (finding, *fix)).collect();
            self.recounted.clear();
            self.renamed.clear();
            for finding in next {
                // Later ones follow from earlier ones, never the other way round.
                if self.files.space().transaction().is_large() {
                    self.files.commit()?;
                }
                self.try_to_mend(finding, fixes.get(finding).copied())?;
            }
            self.keep_totals(&report)?;
            if self.files.space().transaction().is_large() {
                self.files.commit()?;
            }
        }
    }

    /// Sets the superblock's totals to the sums that they were before groups were counted anew.
    fn keep_totals(&mut self, report: &CheckReport) -> Result<()> {
        for (which, kind, counted) in [
            (Bitmap::Blocks, FindingKind::FreeBlocks, Counted::FreeBlocks),
            (Bitmap::Inodes, FindingKind::FreeInodes, Counted::FreeInodes),
        ] {
            let is_other = self.recounted.iter().any(|(other, _)| *other == kind);
            let was_wrong = report.faults.iter().chain(&report.notes).any(|finding| {
                finding.kind() == FindingKind::FreeTotal
                    && matches!(finding.problem(), Problem::Number { what, .. } if *what == counted)
            });
            if is_other && !was_wrong {
                self.space().correct_total(which)?;
            }
        }
        Ok(())
    }

    /// The findings that are to be mended, in the order in which they are.
    fn next<'a>(&mut self, report: &'a CheckReport, approve: &mut Approve<'_>) -> Result<Vec<&'a Finding>> {
        let mut kinds: BTreeMap<(u32, FindingKind), Vec<&Finding>> = BTreeMap::new();
        for finding in report.faults.iter().chain(&report.notes) {
            let Some(rank) = rank(finding) else { continue };
            if self.obstacles.allow(finding) && !self.left.contains(finding) {
                kinds.entry((rank, finding.kind())).or_default().push(finding);
            }
        }
        let mut next = Vec::new();
        for ((_, kind), findings) in kinds {
            if self.is_approved(kind, &findings, approve)? {
                next.extend(findings);
            }
        }
        Ok(next)
    }

    /// Whether findings of a kind are to be mended. Each kind is asked for once.
    fn is_approved(
        &mut self,
        kind: FindingKind,
        findings: &[&Finding],
        approve: &mut Approve<'_>,
    ) -> Result<bool> {
        if let Some(answer) = self.answers.get(&kind) {
            return Ok(*answer);
        }
        let list: Vec<Finding> = findings.iter().map(|finding| (*finding).clone()).collect();
        let answer = approve(kind, &list)?;
        self.answers.insert(kind, answer);
        Ok(answer)
    }

    /// Looks at what stands against mending.
    fn look(&mut self, report: &CheckReport) -> Result<()> {
        let stays = |finding: &Finding| {
            self.left.contains(finding) || self.answers.get(&finding.kind()) == Some(&false)
        };
        self.obstacles = Obstacles::of(report, self.files.fs().superblock(), stays);
        self.miscounted = report
            .faults
            .iter()
            .filter(|finding| matches!(finding.kind(), FindingKind::FreeBlocks | FindingKind::FreeInodes))
            .filter_map(|finding| Some((finding.kind(), finding.place().group?)))
            .collect();
        let is_mislinked = |finding: &&Finding| finding.kind() == FindingKind::LinkCount;
        self.mislinked =
            report.faults.iter().filter(is_mislinked).filter_map(|finding| finding.place().inode).collect();
        let journal = self.files.fs().superblock().journal_inode;
        if !journal.is_some_and(|journal| self.obstacles.is_unsound(journal)) {
            return Ok(());
        }
        // What is written to its blocks could be written to those of somebody else.
        self.files.inodes().transaction().leave_journal(self.recovery.clone())
    }

    fn try_to_mend(&mut self, finding: &Finding, fix: Option<Fix>) -> Result<()> {
        let is_other = finding.place().inode.is_some_and(|inode| self.renamed.contains(&inode));
        if finding.kind() == FindingKind::LinkCount && is_other {
            // Names were counted before.
            return Ok(());
        }
        self.attempt(finding, |repair| repair.mend(finding, fix))?;
        // Of some a check goes on to tell until they are committed.
        self.left.insert(finding.clone());
        Ok(())
    }

    /// Mends a finding as a step of its own, which is taken back if that is not possible.
    fn attempt(&mut self, finding: &Finding, mend: impl FnOnce(&mut Repair) -> Result<bool>) -> Result<()> {
        let mark = self.files.begin();
        let altered = self.altered.len();
        let result = mend(self).and_then(|done| self.files.end().map(|()| done));
        match result {
            Ok(true) => {
                self.mended.push(finding.clone());
            }
            Ok(false) => {
                self.altered.truncate(altered);
                self.files.roll_back(mark);
            }
            // What it leads to is damaged as well, has no room, or can't be changed here.
            Err(error)
                if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported)
                    || Corrupt::of(&error).is_some()
                    || TooLarge::is(&error)
                    || error.io_kind() == Some(std::io::ErrorKind::StorageFull)
                    || is_not_found(&error) =>
            {
                self.altered.truncate(altered);
                self.files.roll_back(mark);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Mends one finding. False if it is one that is left alone.
    fn mend(&mut self, finding: &Finding, fix: Option<Fix>) -> Result<bool> {
        use FindingKind as K;
        let place = finding.place();
        match (finding.kind(), finding.problem()) {
            (K::GroupFlags, _) => {
                let Some(group) = place.group else { return Ok(false) };
                self.space().doubt_unused(group)?;
            }
            (K::Checksum, _) if place.structure == Structure::GroupDescriptor => {
                return fix.zip(place.group).map_or(Ok(false), |(fix, group)| self.descriptor(group, fix));
            }
            (K::Checksum, _) => return fix.map_or(Ok(false), |fix| self.checksum(fix)),
            (K::BlockBitmap | K::InodeBitmap, Problem::Marked { first, last, marked }) => {
                let Some((which, group)) = bitmap(place.structure).zip(place.group) else { return Ok(false) };
                // They are what they are said not to be.
                let used = *marked == Marked::Free;
                self.space().set_run(which, group, *first, *last, used)?;
                self.count(which, group, last - first + 1, used)?;
            }
            (K::BitmapPadding, _) => {
                let Some((which, group)) = bitmap(place.structure).zip(place.group) else { return Ok(false) };
                self.space().set_padding(which, group)?;
            }
            (K::FreeBlocks | K::FreeInodes | K::DirectoryCount, Problem::Number { expected, .. }) => {
                let (Some(group), Ok(mut value)) = (place.group, u32::try_from(*expected)) else {
                    return Ok(false);
                };
                if self.recounted.contains(&(finding.kind(), group)) {
                    let is_blocks = finding.kind() == K::FreeBlocks;
                    let which = if is_blocks { Bitmap::Blocks } else { Bitmap::Inodes };
                    value = self.files.space().free_in(which, group)?;
                } else if finding.kind() != K::DirectoryCount {
                    self.recounted.insert((finding.kind(), group));
                }
                self.space().edit_descriptor(group, |descriptor| match finding.kind() {
                    K::FreeBlocks => descriptor.set_free_clusters(value),
                    K::FreeInodes => descriptor.set_free_inodes(value),
                    _ => descriptor.set_used_directories(value),
                })?;
            }
            (K::FreeTotal, Problem::Number { what: Counted::FreeBlocks, .. }) => {
                self.space().correct_total(Bitmap::Blocks)?;
            }
            (K::FreeTotal, Problem::Number { what: Counted::FreeInodes, .. }) => {
                self.space().correct_total(Bitmap::Inodes)?;
            }
            (K::LinkCount, Problem::Number { expected, .. }) => {
                let Ok(links) = u16::try_from(*expected) else { return Ok(false) };
                return self.edit_inode(finding, |inode| {
                    inode.set_links(links);
                    true
                });
            }
            (K::InodeBlocks, Problem::Number { expected, .. }) => {
                let block_size = self.files.fs().layout().block_size;
                let huge_file = self.files.fs().superblock().ro_compat.has(RoCompat::HUGE_FILE);
                return self.edit_inode(finding, |inode| inode.set_sectors(*expected, block_size, huge_file));
            }
            (K::DeletionTime | K::LostOrphan, _) => {
                // OK to truncate: times of deletion have 32 bits.
                let now = self.files.now().seconds.max(1) as u32;
                return self.edit_inode(finding, |inode| {
                    inode.set_deleted(if inode.links() > 0 { 0 } else { now });
                    true
                });
            }
            (K::EntryKind, _) => return self.entry_kind(finding),
            (K::Parent, Problem::Number { expected, .. }) => {
                let parent = u32::try_from(*expected).ok().and_then(InodeNo::new);
                let (Some(number), Some(parent)) = (place.inode, parent) else {
                    return Ok(false);
                };
                self.set_parent(number, parent)?;
            }
            (K::HtreeRoot | K::HtreeNode | K::HtreeOrder | K::HtreeLeaf | K::HtreeHash, _) => {
                return self.rebuild_index(finding);
            }
            (K::Unconnected | K::Unattached, _) => return self.attach(finding),
            (K::QuotaUsage, _) => return self.usage(finding, fix),
            (K::BackupChecksum | K::BackupDiffers, _) => {
                let Some(group) = place.group else { return Ok(false) };
                match place.structure {
                    Structure::BackupSuperblock => self.space().copy_superblock(group)?,
                    _ => self.space().copy_descriptors(group)?,
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Keeps a group's count of free blocks or inodes right that was right before some were found in use, or free: it may be
    /// that no other can be known.
    fn count(&mut self, which: Bitmap, group: GroupNo, count: u64, used: bool) -> Result<()> {
        let (kind, each) = match which {
            Bitmap::Blocks => (FindingKind::FreeBlocks, self.files.fs().layout().cluster_blocks),
            Bitmap::Inodes => (FindingKind::FreeInodes, 1),
        };
        self.recounted.insert((kind, group));
        if self.miscounted.contains(&(kind, group)) {
            return Ok(());
        }
        let count = u32::try_from(count.div_ceil(each.into())).unwrap_or(u32::MAX);
        let now = |free: u32| if used { free.saturating_sub(count) } else { free.saturating_add(count) };
        self.space().edit_descriptor(group, |descriptor| match which {
            Bitmap::Blocks => descriptor.set_free_clusters(now(descriptor.fields().free_clusters())),
            Bitmap::Inodes => descriptor.set_free_inodes(now(descriptor.fields().free_inodes())),
        })
    }

    fn space(&mut self) -> &mut Allocator {
        self.files.inodes().space_mut()
    }

    /// Makes a descriptor with a wrong checksum valid again: with the places that a sound copy names, and without
    /// inodes that were never used. Without such a copy, its places are taken for right where the root is found by them.
    fn descriptor(&mut self, group: GroupNo, fix: Fix) -> Result<bool> {
        let fs = self.files.fs();
        let layout = *fs.layout();
        let copy = descriptor_copies(fs, group)?.into_iter().next();
        if copy.is_none() && group != GroupNo::PRIMARY {
            return Ok(false);
        }
        let raw = fs.with_raw_descriptor(group, <[u8]>::to_vec)?;
        let tells_unused = tells_unused(&layout, group, GroupDescriptor::from_bytes(&raw)?, false);
        if let Some(copy) = copy {
            let copy = GroupDescriptor::from_bytes(&copy)?;
            let (blocks, inodes, table) = (copy.block_bitmap(), copy.inode_bitmap(), copy.inode_table());
            self.space().edit_descriptor(group, |own| own.set_places(blocks, inodes, table))?;
        }
        if !tells_unused {
            self.space().doubt_unused(group)?;
        }
        self.checksum(fix)
    }

    fn checksum(&mut self, fix: Fix) -> Result<bool> {
        match fix {
            // Every commit writes it.
            Fix::InPlace { subject: Subject::JournalSuperblock, .. } => {
                self.files.inodes().transaction().edit_superblock(|_| Ok(()))?;
            }
            Fix::InPlace { offset, len, subject, context } => {
                let size = self.space().block_size() as u64;
                let (block, base) = (Block::of_byte(offset, size), (offset % size) as usize);
                let transaction = self.files.inodes().transaction();
                let mut bytes =
                    transaction.with(block, |bytes| bytes.get(base..base + len).map(<[u8]>::to_vec))?;
                let sums = *transaction.sums();
                let Some(bytes) = bytes.as_mut() else { return Ok(false) };
                if sums.store(recipe(subject), &context, bytes).is_none() {
                    return Ok(false);
                }
                transaction.update(block, |edit| edit.write(base, bytes))?;
            }
            Fix::Bitmap { subject, group, value } => {
                let which = if subject == Subject::BlockBitmap { Bitmap::Blocks } else { Bitmap::Inodes };
                let sums = *self.files.inodes().transaction().sums();
                self.space()
                    .edit_descriptor(group, |descriptor| descriptor.set_bitmap_sum(&sums, which, value))?;
            }
            Fix::Usage { .. } => return Ok(false),
        }
        Ok(true)
    }

    /// Changes an inode's fields, if `f` says that it did.
    fn edit_inode(&mut self, finding: &Finding, f: impl FnOnce(&mut Inode) -> bool) -> Result<bool> {
        let Some(number) = finding.place().inode else { return Ok(false) };
        let mut inode = self.files.inodes().get_unlinked(number)?;
        Ok(f(&mut inode) && write(self.space(), &inode).map(|()| true)?)
    }

    /// Sets the kind in a name's record to that of its inode.
    fn entry_kind(&mut self, finding: &Finding) -> Result<bool> {
        let place = finding.place();
        let (Some(number), Some(block), Some(name)) = (place.inode, place.block, finding.name()) else {
            return Ok(false);
        };
        let mut dir = self.files.inodes().get_unlinked(number)?;
        if dir.has(InodeFlags::INLINE_DATA) {
            return Ok(false);
        }
        let found =
            self.files.directory(&mut dir).find_in_block(Block::new(block), &Name::exact(name, None))?;
        let Some(found) = found else { return Ok(false) };
        if self.obstacles.is_unsound(found.inode) {
            // The name may know better.
            return Ok(false);
        }
        let kind = self.files.inodes().get_unlinked(found.inode)?.kind();
        self.files.directory(&mut dir).retarget(&found, found.inode, kind)?;
        Ok(true)
    }

    /// Sets the parent of a directory. Returns the one that it had before.
    fn set_parent(&mut self, number: InodeNo, parent: InodeNo) -> Result<Option<InodeNo>> {
        let mut dir = self.files.inodes().get_unlinked(number)?;
        let before = self.files.directory(&mut dir).find(b"..")?.map(|up| up.inode);
        self.files.directory(&mut dir).set_parent(parent)?;
        write(self.space(), &dir)?;
        // Both were counted before: this name was one of the former's.
        self.renamed.extend(before.into_iter().chain([parent]));
        Ok(before)
    }

    /// Takes the name away that a directory lent another one by saying that it is in that, if it was counted there.
    fn drop_parent(&mut self, number: InodeNo) -> Result<()> {
        if self.mislinked.contains(&number) || self.obstacles.is_unsound(number) {
            return Ok(());
        }
        // What leads nowhere is a fault of its own.
        let Ok(mut dir) = self.files.inodes().get_unlinked(number) else { return Ok(()) };
        if dir.is_dir() {
            self.files.drop_subdirectory(&mut dir);
            write(self.space(), &dir)?;
        }
        Ok(())
    }

    /// Makes a directory's blocks anew from its names, with an index if it is large enough for one.
    fn rebuild_index(&mut self, finding: &Finding) -> Result<bool> {
        let Some(number) = finding.place().inode else { return Ok(false) };
        if self.rebuilt.contains(&number) {
            return Ok(true);
        }
        let mut dir = self.files.inodes().get_unlinked(number)?;
        if !dir.is_dir() || dir.has(InodeFlags::INLINE_DATA) {
            return Ok(false);
        }
        let mut names = Vec::new();
        for (name, inode, _) in self.files.names_in(number)?.into_iter().rev() {
            names.push((name, inode, self.files.inodes().get_unlinked(inode)?.kind()));
        }
        let up = self.files.directory(&mut dir).find(b"..")?;
        let Some(parent) = up.map(|up| up.inode) else { return Ok(false) };
        if self.files.inodes().map(&mut dir).cut(0)? != Cut::Done {
            return Err(TooLarge::error());
        }
        self.files.forget_directory(number);
        dir.set_flags(dir.flags().0 & !InodeFlags::INDEX.0);
        dir.set_size(0);
        self.files.inodes().map(&mut dir).start();
        self.files.directory(&mut dir).first_leaf(parent)?;
        for (name, inode, kind) in &names {
            self.files.directory(&mut dir).insert_stored(&NewName { name, inode: *inode, kind: *kind })?;
        }
        if self.files.space().transaction().is_full() {
            return Err(TooLarge::error());
        }
        self.files.inodes().store(&dir)?;
        self.rebuilt.insert(number);
        Ok(true)
    }

    /// Gives an inode that is in no directory a name in lost+found: its number.
    fn attach(&mut self, finding: &Finding) -> Result<bool> {
        let Some(number) = finding.place().inode else { return Ok(false) };
        let mut inode = self.files.inodes().get_unlinked(number)?;
        let is_lost = match finding.kind() {
            FindingKind::Unconnected => inode.is_dir() && *finding.problem() != Problem::Loop,
            _ => match inode.kind() {
                FileType::Directory => false,
                FileType::Regular => !inode.has(InodeFlags::EA_INODE),
                _ => true,
            },
        };
        if !is_lost {
            return Ok(false);
        }
        let home = self.lost_and_found()?;
        if self.obstacles.is_unsound(home) {
            return Ok(false);
        }
        // A new name would take the place of one of these.
        let mut directory = self.files.inodes().get_unlinked(home)?;
        for name in [&b"."[..], b".."] {
            if self.files.directory(&mut directory).find(name)?.is_none() {
                return Ok(false);
            }
        }
        self.renamed.extend([number, home]);
        if inode.is_dir() {
            let before = self.set_parent(number, home)?;
            if let Some(before) = before.filter(|before| *before != number && *before != home) {
                self.drop_parent(before)?;
            }
            let mut home = self.files.inodes().get_unlinked(home)?;
            self.files.add_subdirectory(&mut home)?;
            write(self.space(), &home)?;
        } else if inode.links() == 0 || !self.obstacles.doubts.has(Doubts::LINKS) {
            // Else names that lead elsewhere may be its own.
            inode.set_links(1);
            write(self.space(), &inode)?;
        }
        let mut home = self.files.inodes().get_unlinked(home)?;
        let name = format!("#{number}");
        self.files.directory(&mut home).insert(name.as_bytes(), number, inode.kind())?;
        self.files.inodes().store(&home)?;
        Ok(true)
    }

    /// The directory for what has no name, which is made if there is none. Where all is mended it takes the place of what is no
    /// directory, or is one that needs a key.
    fn lost_and_found(&mut self) -> Result<InodeNo> {
        let mut root = self.files.fs().root()?;
        let name = Name::exact(LOST_AND_FOUND, None);
        let found = self.files.directory(&mut root).find_stored(&name)?;
        if let Some(found) = found {
            let is_usable = self.depth == Depth::Safe
                || (self.files.inodes().get_unlinked(found.inode))
                    .is_ok_and(|home| home.is_dir() && !home.has(InodeFlags::ENCRYPT));
            if is_usable {
                return Ok(found.inode);
            }
            self.files.directory(&mut root).remove(&found)?;
            write(self.space(), &root)?;
            self.renamed.insert(found.inode);
        }
        self.renamed.insert(InodeNo::ROOT);
        let node = NewNode::new(0o700);
        Ok(self.files.create_in(InodeNo::ROOT, LOST_AND_FOUND, &node, Body::Directory)?.number())
    }

    /// Sets an owner's usage in a quota file.
    fn usage(&mut self, finding: &Finding, fix: Option<Fix>) -> Result<bool> {
        let (Some(file), Some(Fix::Usage { kind, id, space, inodes })) = (finding.place().inode, fix) else {
            return Ok(false);
        };
        let now = self.files.now();
        let mut file = QuotaFile::new(self.space(), file, now);
        let place = file.entry(kind, id)?;
        if !file.change(place, Usage { space, inodes })? {
            file.remove(id)?;
        }
        Ok(true)
    }
}

/// The bitmap that a structure is.
fn bitmap(structure: Structure) -> Option<Bitmap> {
    match structure {
        Structure::BlockBitmap => Some(Bitmap::Blocks),
        Structure::InodeBitmap => Some(Bitmap::Inodes),
        _ => None,
    }
}
