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
mod evident;
mod feature;
mod index;
mod inode;
mod lost_and_found;
mod map;
mod obstacles;
mod own;
mod places;
mod quota;
mod root;
mod rounds;
mod rules;
mod taken;
mod undo;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use casemate_blockdev::{BlockDevice, ErrorKind, Events, NoEvents};
use casemate_primitives::crc32c::Crc32c;
use casemate_providers::Work;

use crate::alloc::Allocator;
use crate::check::{CheckOptions, CheckReport, Finding, FindingKind, Tables, check, fitting, restored};
use crate::edit::files::Files;
use crate::edit::inodes::Inodes;
use crate::edit::random::Random;
use crate::edit::{WriteOptions, Writer, fast_commit};
use crate::error::{Corrupt, Error, Problem, Result};
use crate::format::group::Bitmap;
use crate::format::inode::Time;
use crate::format::superblock::SUPERBLOCK_OFFSET;
use crate::read::fs::{Ext4, OpenOptions};
use crate::read::journal::Journal;
use crate::read::primary::read_superblock;
pub use crate::repair::altered::{Alteration, Altered};
use crate::repair::copies::Owners;
use crate::repair::directory::Unsound;
use crate::repair::obstacles::{Obstacles, rank};
use crate::repair::rules::{Rule, rule};
use crate::repair::taken::Taken;
pub use crate::repair::undo::UndoFile;
use crate::repair::undo::{UNCHANGED, Undoable};
use crate::transaction::patch::Patching;
use crate::transaction::recovery_file::{Interrupted, RecoveryFile};
use crate::transaction::{self, Doubt, LogOptions, Mmp, Transaction};
use crate::units::{GroupNo, InodeNo, Run};

/// Rounds that a repair takes at most: for what lies below structures that were mended, and what such damage made unsure.
const MOST_ROUNDS: u32 = 10;

/// Rounds where everything is mended: each rule may uncover what the rules before it hid.
const MOST_ROUNDS_OF_ALL: u32 = 60;

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
    pub undo: Option<UndoFile>,
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
    complete(&device, &options)?;
    let crc = Crc32c::new(options.check.open.providers.cpu());
    let undoable = Arc::new(Undoable::new(device, &undo, crc)?);
    let device: Arc<dyn BlockDevice> = undoable.clone();
    let report = mend_all(&device, &options, &mut approve, work);
    let finished = undoable.finish();
    let error = match (report, finished.error) {
        (Ok(report), None) => return Ok(report),
        (Err(error), _) | (Ok(_), Some(error)) => error,
    };
    let path = undo.path.display();
    let state = match (finished.is_changed, finished.is_whole) {
        (true, true) => {
            format!("the image was changed before that, and e2undo puts back what it was from {path}")
        }
        (true, false) => format!(
            "the image was changed before that; {path} is not marked as whole, so that e2undo puts back what it was with -f alone"
        ),
        (false, true) => UNCHANGED.to_owned(),
        (false, false) => format!("the image was not changed; remove {path}, which holds nothing"),
    };
    Err(error.map_text(|error| format!("{error}; {state}")))
}

/// Completes a change that is kept in a recovery file, which then goes. That is no part of what can be undone: without the
/// recovery file, nobody could complete the half of it that would be put back.
fn complete(device: &Arc<dyn BlockDevice>, options: &RepairOptions<'_>) -> Result<()> {
    let open = &options.check.open;
    let Some(file) = options.recovery.as_ref().filter(|file| file.path().exists()) else { return Ok(()) };
    if restored(device, open)?.is_some() {
        // Without its superblock the file system is none that the file can be of.
        return Ok(());
    }
    let superblock = read_superblock(&**device, SUPERBLOCK_OFFSET)?;
    superblock.ro_compat.check_writable()?;
    let plain = OpenOptions { verify_checksums: false, replay_journal: false, ..open.clone() };
    let _mmp = Mmp::start(device, &superblock, &plain, options.events)?;
    let path = file.path().display();
    match transaction::complete(device, open, options.recovery.as_ref())? {
        Interrupted::Completed => {
            let text = format!(
                "completed a change that was interrupted, from {path}; the undo file begins behind that"
            );
            options.events.note(&text);
        }
        Interrupted::SetAside => {
            options.events.note(&format!(
                "{path} may keep a change of another image: it was renamed, to its name and a number"
            ));
        }
        Interrupted::Nothing | Interrupted::Dropped => {}
    }
    Ok(())
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
        let is_left = !report.mended.is_empty() && !report.report.faults.is_empty();
        mended.append(&mut report.mended);
        altered.append(&mut report.altered);
        // What could not be mended at first may be by what was mended behind it.
        let goes_on = is_other || *depth == Depth::All && is_left && opened < MOST_OPENED;
        if !goes_on {
            let left = listed(&report.report);
            mended.retain(|finding| !left.contains(finding));
            drop(left);
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
    let mut decide = |doubt: Doubt, error: Error| match Corrupt::of(&error).filter(|_| depth == Depth::All) {
        None => Err(error),
        Some(corrupt) => {
            let kind = match doubt {
                Doubt::Untold => FindingKind::JournalFeature,
                Doubt::Damaged => FindingKind::JournalLog,
            };
            let problem = Problem::Malformed(corrupt.problem().to_string().into());
            let finding = Finding::new(kind, corrupt.place(), problem);
            if !approve(kind, std::slice::from_ref(&finding))? {
                return Err(error);
            }
            mended.push(finding);
            Ok(())
        }
    };
    transaction::recover(&device, &open, recovery.as_ref(), &mut decide, |commits| {
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
        unindexed: BTreeSet::new(),
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
        taken: Taken::default(),
        tables: Tables::default(),
        begun: Vec::new(),
        metadata: OnceCell::new(),
        claimed: Vec::new(),
        claimants: BTreeSet::new(),
        copied: BTreeSet::new(),
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
    let is_left = |report: &CheckReport| {
        let left = listed(report);
        mended.iter().any(|finding| left.contains(finding))
    };
    if is_left(&report) {
        report = check(device, &options, work)?;
    }
    // What is found again was not.
    let left = listed(&report);
    mended.retain(|finding| !left.contains(finding));
    drop(left);
    let obstacles = Obstacles::of(&report, &superblock, |_| false);
    let can_be_mended = |finding: &&Finding| rank(finding).is_some() && !obstacles.allow(finding);
    let withheld = report.faults.iter().filter(can_be_mended).cloned().collect();
    Ok((RepairReport { mended, report, altered, withheld }, false))
}

/// The faults of a report, to look them up.
fn listed(report: &CheckReport) -> BTreeSet<&Finding> {
    report.faults.iter().collect()
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
    /// Directories whose blocks were made anew, and those that lost their indexes.
    rebuilt: BTreeSet<InodeNo>,
    unindexed: BTreeSet<InodeNo>,
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
    /// Blocks of groups' structures, and runs that were looked at as tables, while places are looked for; bitmaps that are
    /// begun anew.
    taken: Taken,
    tables: Tables,
    begun: Vec<(GroupNo, Bitmap)>,
    /// Blocks of the file system's own structures, since the last look.
    metadata: OnceCell<Arc<[Run]>>,
    /// Blocks that have two owners, and inodes that are some of these, since the last look.
    claimed: Vec<Run>,
    claimants: BTreeSet<InodeNo>,
    /// Blocks of descriptors that were copied in this round.
    copied: BTreeSet<u32>,
    /// True where a group's structure has no place that it can be given: nothing that depends on it is decided.
    is_stuck: bool,
    /// Directories and names with faults, in this round.
    unsound: Unsound,
    /// Inodes that rules have renewed in this round.
    renewed: BTreeSet<(Rule, InodeNo)>,
}

impl Repair {
    fn space(&mut self) -> &mut Allocator {
        self.files.inodes().space_mut()
    }
}
