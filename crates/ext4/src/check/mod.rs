//! Checking a file system: everything that `e2fsck -fn` finds, and some more.
//!
//! Five passes, each on all threads: every inode and its blocks ([`inodes`]), every directory and its names
//! ([`directories`]), the tree of directories and the counts of names ([`connectivity`]), bitmaps and counts of groups
//! ([`counts`]). Between them is what is known of each block, a bit ([`claims`]), and of each inode, sixteen bytes
//! ([`facts`]). Checksums are checked on the way. A pass goes on after damage; what could not be followed keeps the passes
//! behind it from saying that something is missing.

mod blocks;
mod claims;
mod connectivity;
mod counts;
mod directories;
mod facts;
mod findings;
mod fitting;
mod fix;
mod groups;
mod htree;
mod inodes;
mod journal;
mod likeness;
mod names;
mod orphans;
mod places;
mod preen;
mod quota;
mod resize;
mod superblock;
mod superblocks;
mod verity;
mod worker;
mod xattrs;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use casemate_blockdev::BlockDevice;
use casemate_providers::Work;

use crate::error::{Place, Problem, Result, Structure};
use crate::format::csum::{Context, Kind, Subject};
use crate::format::features::{Incompat, RoCompat};
use crate::format::mmp::{MMP_SIZE, MmpBlock};
use crate::open::recovered;
use crate::read::fs::{Ext4, OpenOptions};
use crate::read::journal as replay;
use crate::units::{Block, GroupNo, Run};

use claims::Claims;
pub(crate) use findings::{Doubts, Fix};
pub use findings::{Finding, FindingKind, Level, VerityCount};
use findings::{Findings, MOST_FAULTS};
pub(crate) use fitting::fitting;
pub use fix::fix_checksums;
pub(crate) use groups::{metadata, range, require_unused, tells_unused};
pub(crate) use likeness::{Tables, descriptor_copies};
pub(crate) use places::{Part, Places, fixed_blocks, places};
pub use preen::Preen;
pub(crate) use superblock::require_sound;
pub use superblocks::copy_to_read_by;
pub(crate) use superblocks::restored;
pub use verity::{VerityDemand, VerityFiles};
use worker::{Check, Purpose, Worker};

/// The result of a check.
#[derive(Debug)]
pub struct CheckReport {
    /// Damage, in the order of structures and places.
    pub faults: Vec<Finding>,
    /// Oddities that are no damage.
    pub notes: Vec<Finding>,
    /// Faults beyond those listed: a list has an end, damage may have none.
    pub faults_left_out: u64,
    /// How many structures of each kind were checked.
    pub checked: BTreeMap<Structure, u64>,
    /// Files with and without fs-verity.
    pub verity: VerityCount,
    /// Which checksums the file system carries.
    pub kind: Kind,
    /// The journal's transactions that were laid over the image before it was checked.
    pub replayed: u32,
    fixes: Vec<(Finding, Fix)>,
    doubts: Doubts,
    displaced: BTreeMap<(GroupNo, Part), Option<Block>>,
    lacks_tables: bool,
    /// Blocks that were found to have an owner; `None` if the check broke off.
    claims: Option<Claims>,
    /// The file system that was checked: fixes need its seed and layout, whichever superblock gave them.
    fs: Ext4,
}

impl CheckReport {
    /// The report on what was found.
    fn new(findings: Findings, fs: Ext4, replayed: u32) -> CheckReport {
        let lists = findings.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        let of = |level| lists.found.keys().filter(|finding| finding.level() == level).cloned().collect();
        CheckReport {
            faults: of(Level::Fault),
            notes: of(Level::Note),
            faults_left_out: lists.faults_left_out,
            checked: lists.checked,
            verity: lists.verity,
            kind: fs.checksums().kind(),
            replayed,
            doubts: lists.doubts,
            claims: lists.claims,
            displaced: lists.displaced,
            lacks_tables: lists.lacks_tables,
            fixes: lists.found.into_iter().filter_map(|(finding, fix)| Some((finding, fix?))).collect(),
            fs,
        }
    }

    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.faults.is_empty()
    }

    /// Notes that the keys that the check was given are those of no file.
    pub fn miss_keys(&mut self) {
        let text = "no key that was given is that of a file";
        let place = Place::of(Structure::EncryptionContext);
        self.faults.push(Finding::new(FindingKind::KeyUseless, place, Problem::Malformed(text.into())));
    }

    /// How to make findings right, where they do not say so themselves.
    pub(crate) fn fixes(&self) -> &[(Finding, Fix)] {
        &self.fixes
    }

    /// The doubts that the faults cause about the rest.
    pub(crate) fn doubts(&self) -> Doubts {
        self.doubts
    }

    /// Whether a group's structure is not where its descriptor says, however well it could be there.
    pub(crate) fn is_displaced(&self, group: GroupNo, part: Part) -> bool {
        self.displaced.contains_key(&(group, part))
    }

    /// Where a structure is that is not where its descriptor says, if that is known.
    pub(crate) fn found_place(&self, group: GroupNo, part: Part) -> Option<Block> {
        self.displaced.get(&(group, part)).copied().flatten()
    }

    /// Whether a group's inode table is nowhere: not all owners of blocks are known.
    pub(crate) fn lacks_tables(&self) -> bool {
        self.lacks_tables
    }

    /// The last block of a run that was found to have an owner, or may have one.
    pub(crate) fn last_claimed(&self, run: Run) -> Option<Block> {
        match &self.claims {
            Some(claims) => claims.last(run.first, run.len),
            None => Some(run.end().before()),
        }
    }

    /// Which of the 64 blocks from one on have owners, or may have one, as a bitmap has them.
    pub(crate) fn claimed_bits(&self, block: Block) -> u64 {
        self.claims.as_ref().map_or(!0, |claims| claims.bits(block))
    }

    /// Whether there may be more than is listed: lists have an end.
    pub(crate) fn is_full(&self) -> bool {
        self.faults_left_out > 0 || self.faults.len() + self.notes.len() >= MOST_FAULTS
    }

    /// The findings that rewriting a checksum would make go away.
    pub fn fixable(&self) -> impl Iterator<Item = &Finding> {
        self.fixes.iter().filter(|(_, fix)| fix.is_checksum()).map(|(finding, _)| finding)
    }
}

/// How to check a file system.
#[derive(Clone, Default)]
pub struct CheckOptions {
    /// How to read it.
    pub open: OpenOptions,
    /// The formats of fs-verity, for files that have it. Without, these are looked at as files only.
    pub verity: Option<Arc<dyn VerityFiles>>,
}

/// Checks the file system on `device`, on all threads.
///
/// A journal that must be replayed is laid over the image in memory first. The listener hears of bytes of inode
/// tables; see [`check_size`].
///
/// # Errors
/// Fails without a usable superblock, for features that are not known here, and for I/O. Damage is in the report.
pub fn check(device: Arc<dyn BlockDevice>, options: &CheckOptions, work: &Work<'_>) -> Result<CheckReport> {
    let findings = Findings::default();
    let fs = superblocks::open(device, &options.open, &findings)?;
    let cut_short = fs.missing_bytes() > 0;
    let open = &OpenOptions { superblock: None, cut_short, ..options.open.clone() };
    let (fs, replayed) = with_journal(fs, open, &findings)?;
    match passes(&fs, options.verity.as_deref(), &findings, work) {
        // What the passes behind need is not there.
        Err(error) if fs.missing_bytes() > 0 => findings.damage(error)?,
        done => done?,
    }
    Ok(CheckReport::new(findings, fs, replayed))
}

fn passes(fs: &Ext4, verity: Option<&dyn VerityFiles>, findings: &Findings, work: &Work<'_>) -> Result<()> {
    superblock::check(fs, findings);
    superblock::totals(fs, findings)?;
    let mut check = Check::new(fs, findings);
    groups::copies(&check, work)?;
    let groups = groups::load(&mut check)?;
    if groups.iter().any(|group| group.table.is_none()) {
        findings.lack_tables();
    }
    mmp(&check)?;
    resize::check(&check, &groups)?;
    orphans::collect(&mut check, &groups)?;
    inodes::tables(&check, &groups, work, Purpose::Check, &[])?;
    orphans::unexpected(&check);
    let shared = check.shared();
    if !shared.is_empty() {
        check.renew();
        groups::displaced(&check, &groups, &shared)?;
        for run in &shared {
            if let Some(block) = check.first_metadata(*run) {
                let text = "metadata of the file system lies where a file has a block";
                findings.say(
                    FindingKind::ClaimedTwice,
                    Place::of(Structure::GroupDescriptor).at(block),
                    text,
                );
            }
        }
        inodes::tables(&check, &groups, work, Purpose::Owners, &shared)?;
    }
    check.renew();
    let parents = directories::all(&check, &groups, work)?;
    connectivity::directories(&check, parents);
    connectivity::links(&check);
    counts::all(&check, &groups, work)?;
    if let Some(verity) = verity {
        verity::all(&check, &groups, verity, work)?;
    }
    let unsure = findings.doubts();
    if check.has.quota && !unsure.has(Doubts::BLOCKS) && !unsure.has(Doubts::INODES) {
        quota::check(&check, &groups)?;
    }
    if check.has_large_file.load(Ordering::Relaxed) && !fs.superblock().ro_compat.has(RoCompat::LARGE_FILE) {
        let text = "there are files of 2 GiB and more without the feature large_file";
        findings.say(FindingKind::LargeFile, Place::of(Structure::Superblock), text);
    }
    if check.has_value_inode.load(Ordering::Relaxed) && !fs.superblock().incompat.has(Incompat::EA_INODE) {
        let text = "values of attributes lie in inodes of their own without the feature ea_inode";
        findings.say(FindingKind::ValueInodes, Place::of(Structure::Superblock), text);
    }
    findings.keep_claims(check.claims);
    Ok(())
}

/// The block of multi-mount protection.
fn mmp(check: &Check<'_>) -> Result<()> {
    let fs = check.fs;
    let Some(block) = fs.superblock().mmp_block else { return Ok(()) };
    let place = Place::of(Structure::MmpBlock).at(block);
    if !fs.layout().contains(block, 1) {
        check.findings.say(FindingKind::MmpPlace, place, "lies outside the file system");
        return Ok(());
    }
    if !fs.is_present(block, 1) {
        return Ok(());
    }
    let mut bytes = [0; MMP_SIZE];
    let offset = fs.layout().offset(block);
    fs.device().read_at(&mut bytes, offset)?;
    if MmpBlock::from_bytes(&bytes, place).is_err() {
        check.findings.say(FindingKind::MmpBlock, place, "no magic number 0x4d4d50");
    } else {
        let mut worker = Worker::new(check, &[], Purpose::Check);
        worker.verify(place, offset, &bytes, Subject::MmpBlock, Context::default());
        worker.finish();
    }
    Ok(())
}

/// How many bytes a check of this file system will report as progress.
pub fn check_size(fs: &Ext4) -> u64 {
    let layout = fs.layout();
    u64::from(layout.groups) * u64::from(layout.inodes_per_group) * u64::from(layout.inode_size)
}

/// Checks the journal's superblock, and lays its transactions over the file system if they count.
fn with_journal(fs: Ext4, options: &OpenOptions, findings: &Findings) -> Result<(Ext4, u32)> {
    let sound = journal::check(&fs, findings)?;
    journal::beside(&fs, sound, findings)?;
    if !sound || !options.replay_journal {
        return Ok((fs, 0));
    }
    match replay::recover(&fs, fs.superblock().needs_recovery()) {
        Ok(None) => Ok((fs, 0)),
        Ok(Some(_)) => {
            let fs = recovered(fs, options)?;
            if let Some(cut) = &fs.recovery().cut {
                let problem = Problem::Malformed(cut.problem().to_string().into());
                findings.add(Finding::new(FindingKind::JournalLog, cut.place(), problem), None);
            }
            let replayed = fs.recovery().transactions;
            Ok((fs, replayed))
        }
        Err(error) => findings.damage(error).map(|()| (fs, 0)),
    }
}
