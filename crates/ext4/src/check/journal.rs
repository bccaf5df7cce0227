//! The journal: its inode, its superblock, and what the file system's superblock says of it.

use casemate_blockdev::ErrorKind;

use crate::check::findings::{FindingKind, Findings, Fix};
use crate::error::{Corrupt, Error, Place, Problem, Result, Structure};
use crate::format::csum::{Context, Subject};
use crate::format::features::Compat;
use crate::format::inode::InodeFlags;
use crate::format::journal_superblock::{JOURNAL_SUPERBLOCK_SIZE, JournalSuperblock};
use crate::read::fs::Ext4;
use crate::read::journal::Journal;
use crate::units::InodeNo;

/// Blocks that a journal has at least.
const LEAST_BLOCKS: u64 = 1024;

/// Checks the journal. Whether there is one that can be believed.
pub(crate) fn check(fs: &Ext4, findings: &Findings) -> Result<bool> {
    let superblock = fs.superblock();
    let place = Place::of(Structure::Superblock);
    let (named, elsewhere) = superblock.named_journal();
    if !superblock.compat.has(Compat::HAS_JOURNAL) {
        if superblock.needs_recovery() {
            findings.say(FindingKind::JournalFeature, place, "a journal must be replayed, and there is none");
        } else if named.is_none() && elsewhere && superblock.journal_uuid() == [0; 16] {
            let text = "a journal on another device without the feature has_journal";
            findings.say(FindingKind::OddFeatures, place, text);
        } else if named.is_some() || elsewhere {
            findings.say(
                FindingKind::JournalFeature,
                place,
                "a journal is named, and the feature is missing",
            );
        }
        return Ok(false);
    }
    let Some(named) = named else {
        if !elsewhere {
            findings.say(FindingKind::JournalFeature, place, "there is a journal, and nothing says where");
        }
        return Ok(false);
    };
    if elsewhere {
        let text = "the journal is named as one of the file system, and as one on another device";
        findings.say(FindingKind::JournalFeature, place, text);
    }
    let (runs, first) = match Journal::locate(fs) {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(false),
        Err(_) if is_missing(fs, named) => return Ok(false),
        Err(error) => {
            let corrupt = Corrupt::of(&error).cloned().ok_or(error)?;
            // A wrong checksum is found again when the inode's table is checked.
            if !matches!(corrupt.problem(), Problem::Checksum { .. }) {
                findings.say(FindingKind::JournalInode, corrupt.place(), corrupt.problem().to_string());
            }
            return Ok(false);
        }
    };
    let inode_place = Place::inode(Structure::Inode, named);
    let blocks: u64 = runs.iter().map(|run| run.len).sum();
    if blocks < LEAST_BLOCKS {
        findings.say(FindingKind::JournalInode, inode_place, format!("a journal of {blocks} blocks"));
    }
    if let Ok(inode) = fs.any_inode(named) {
        if inode.has(InodeFlags::ENCRYPT) {
            findings.say(FindingKind::JournalInode, inode_place, "the journal is encrypted");
        }
        if !inode.size().is_multiple_of(fs.layout().block_size.into()) {
            let text = format!("the journal has {} bytes", inode.size());
            findings.say(FindingKind::JournalInode, inode_place, text);
        }
    }
    let place = Place::of(Structure::JournalSuperblock);
    let journal = match JournalSuperblock::from_bytes(&first) {
        Ok(journal) => journal,
        Err(error) => return damage(error, place, findings),
    };
    if journal.ro_compat != 0 {
        let text = format!("features {:#x} are not known", journal.ro_compat);
        findings.say(FindingKind::JournalSuperblock, place, text);
    }
    let room = u64::from(journal.blocks).saturating_sub(journal.fast_commit_blocks.into());
    if journal.has_fast_commits() && room < LEAST_BLOCKS {
        let text = format!("{room} of its {} blocks are left beside fast commits", journal.blocks);
        findings.say(FindingKind::JournalSuperblock, place, text);
    }
    if journal.users > 1 {
        findings.number(
            FindingKind::JournalSuperblock,
            place,
            "file systems with this journal",
            journal.users.into(),
            1,
        );
    }
    if journal.has_checksums() {
        findings.count(Structure::JournalSuperblock);
        let (bytes, context) = (&first[..JOURNAL_SUPERBLOCK_SIZE], Context::default());
        // OK to index: a journal that was located has a first run.
        let offset = fs.layout().offset(runs[0].physical);
        let fix = Fix::in_place(offset, bytes.len(), Subject::JournalSuperblock, context);
        let result = fs.checksums().verify(Subject::JournalSuperblock, &context, bytes, place);
        if !findings.note(result, Some(fix)) {
            return Ok(false);
        }
    }
    if let Err(error) = Journal::open(fs) {
        return damage(error, place, findings);
    }
    if journal.start != 0 && !superblock.needs_recovery() {
        let text = "there is something to replay, and the superblock does not say so";
        findings.say(FindingKind::JournalFeature, place, text);
    }
    Ok(true)
}

/// Checks what the journal says of the state of the file system, and nothing of its place.
pub(crate) fn beside(fs: &Ext4, is_sound: bool, findings: &Findings) -> Result<()> {
    let superblock = fs.superblock();
    let (named, elsewhere) = superblock.named_journal();
    if superblock.needs_recovery() && named.is_none() && elsewhere {
        let text = "must be replayed and lies on another device: what it holds was not checked";
        findings.say(FindingKind::JournalLog, Place::of(Structure::JournalSuperblock), text);
    }
    let journal = if is_sound { Journal::open(fs)? } else { None };
    if let Some(error) = journal.map(|journal| journal.superblock().error).filter(|error| *error != 0) {
        let text = format!("the kernel noted error {}, and stopped writing", error.cast_signed());
        findings.say(FindingKind::JournalSuperblock, Place::of(Structure::JournalSuperblock), text);
    }
    Ok(())
}

/// Whether an inode, or some of what it leads to, lies behind the end of an image that is cut off.
fn is_missing(fs: &Ext4, number: InodeNo) -> bool {
    let is_there = |inode| fs.require_present(&inode).is_ok();
    fs.missing_bytes() > 0 && !fs.any_inode(number).is_ok_and(is_there)
}

/// Notes what makes the journal's superblock unusable; unknown features do, too.
fn damage(error: Error, place: Place, findings: &Findings) -> Result<bool> {
    let text = match (Corrupt::of(&error), error.kind()) {
        (Some(corrupt), _) => corrupt.problem().to_string(),
        (None, ErrorKind::Unsupported) => error.to_string(),
        _ => return Err(error),
    };
    findings.say(FindingKind::JournalSuperblock, place, text);
    Ok(false)
}
