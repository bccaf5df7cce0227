//! Checking every metadata checksum of an image, and what stands behind the bits in use of bitmaps.
//!
//! Structures are found the way the file system finds them: groups from the superblock, inodes from their
//! tables, blocks from inodes. What lies below a damaged structure is not looked at, so that one damage is one
//! fault. Names and contents are not checked: this is no replacement for e2fsck.

mod findings;
mod fix;
mod groups;
mod inodes;
mod superblocks;

use std::collections::BTreeMap;
use std::sync::Arc;

use casemate_blockdev::BlockDevice;
use casemate_providers::Work;

use crate::error::{Corrupt, Place, Result, Structure};
use crate::format::csum::{Context, Kind, Subject};
use crate::format::journal_superblock::{JOURNAL_SUPERBLOCK_SIZE, JournalSuperblock};
use crate::format::mmp::{MMP_SIZE, MmpBlock};
use crate::format::superblock::SUPERBLOCK_OFFSET;
use crate::read::fs::{Ext4, OpenOptions};
use crate::read::journal::{self, Journal};

use findings::{Findings, Fix};
pub use fix::fix_checksums;

/// What a check found.
#[derive(Debug)]
pub struct CheckReport {
    /// What is wrong, in the order of structures and places.
    pub faults: Vec<Corrupt>,
    /// Faults beyond those listed: a list has an end, damage may have none.
    pub faults_left_out: u64,
    /// How many structures of each kind were checked.
    pub checked: BTreeMap<Structure, u64>,
    /// Which checksums the file system carries.
    pub kind: Kind,
    /// The journal's transactions that were laid over the image before it was checked.
    pub replayed: u32,
    fixes: Vec<(Corrupt, Option<Fix>)>,
    /// What was checked: fixes need its seed and layout, whichever superblock gave them.
    fs: Ext4,
}

impl CheckReport {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.faults.is_empty()
    }

    /// The faults that rewriting a checksum would make go away.
    pub fn fixable(&self) -> impl Iterator<Item = &Corrupt> {
        self.fixes.iter().filter(|(_, fix)| fix.is_some()).map(|(corrupt, _)| corrupt)
    }
}

/// Checks every metadata checksum of the file system on `device`, and the ends of its bitmaps, on all threads.
///
/// A journal that must be replayed is laid over the image in memory first. The listener hears of bytes of inode
/// tables; see [`check_size`].
///
/// # Errors
/// Whatever keeps the check from being done: no usable superblock at all, features that nobody here knows,
/// I/O. Damage is no error but in the report.
pub fn check(device: Arc<dyn BlockDevice>, options: &OpenOptions, work: &Work<'_>) -> Result<CheckReport> {
    let findings = Findings::default();
    let fs = superblocks::open(device, options, &findings)?;
    let (fs, replayed) = with_journal(fs, options, &findings)?;
    if fs.checksums().kind() != Kind::None {
        superblocks::check_copies(&fs, &findings)?;
        groups::check_descriptor_copies(&fs, work, &findings)?;
    }
    groups::check_groups(&fs, work, &findings)?;
    if fs.checksums().kind() == Kind::Metadata {
        check_mmp(&fs, &findings)?;
    }
    Ok(findings.into_report(fs, replayed))
}

/// How many bytes a check of this file system will report as progress.
pub fn check_size(fs: &Ext4) -> u64 {
    let layout = fs.layout();
    u64::from(layout.groups) * u64::from(layout.inodes_per_group) * u64::from(layout.inode_size)
}

/// Checks the journal's superblock, and lays its transactions over the file system if they count.
fn with_journal(fs: Ext4, options: &OpenOptions, findings: &Findings) -> Result<(Ext4, u32)> {
    let sound = match Journal::locate(&fs) {
        Ok(None) => return Ok((fs, 0)),
        Ok(Some((runs, first))) => {
            // OK to index: a journal that was located has a first run.
            let offset = fs.layout().offset(runs[0].physical);
            check_journal_superblock(&fs, &first[..JOURNAL_SUPERBLOCK_SIZE], offset, findings)?
        }
        // The inode will be found damaged again when its table is checked.
        Err(error) if Corrupt::of(&error).is_some_and(|it| it.place().structure == Structure::Inode) => false,
        Err(error) => findings.damage(error).map(|()| false)?,
    };
    if !sound || !options.replay_journal {
        return Ok((fs, 0));
    }
    match journal::recover(&fs) {
        Ok(None) => Ok((fs, 0)),
        Ok(Some(_)) => {
            let fs = fs.recovered(options)?;
            if let Some(cut) = &fs.recovery().cut {
                findings.fault(cut.clone(), None);
            }
            let replayed = fs.recovery().transactions;
            Ok((fs, replayed))
        }
        Err(error) => findings.damage(error).map(|()| (fs, 0)),
    }
}

fn check_journal_superblock(fs: &Ext4, raw: &[u8], offset: u64, findings: &Findings) -> Result<bool> {
    let place = Place::of(Structure::JournalSuperblock);
    let superblock = match JournalSuperblock::from_bytes(raw) {
        Ok(superblock) => superblock,
        Err(error) => return findings.damage(error).map(|()| false),
    };
    if !superblock.has_checksums() {
        return Ok(true);
    }
    let fix = Fix::in_place(offset, raw.len(), Subject::JournalSuperblock, Context::default());
    Ok(findings.verify(fs, Subject::JournalSuperblock, &Context::default(), raw, place, Some(fix)))
}

/// Checks the block of multi-mount protection.
fn check_mmp(fs: &Ext4, findings: &Findings) -> Result<()> {
    let Some(block) = fs.superblock().mmp_block else { return Ok(()) };
    let place = Place::of(Structure::MmpBlock).at(block);
    if let Err(error) = fs.check_blocks(block, 1, Place::of(Structure::Superblock)) {
        return findings.damage(error);
    }
    let bytes = fs.read_block(block)?;
    if let Err(error) = MmpBlock::from_bytes(&bytes, place) {
        return findings.damage(error);
    }
    let context = Context::default();
    let fix = Fix::in_place(fs.layout().offset(block), MMP_SIZE, Subject::MmpBlock, context);
    findings.verify(fs, Subject::MmpBlock, &context, &bytes[..MMP_SIZE], place, Some(fix));
    Ok(())
}

/// The byte that the primary superblock lies at, for fixes.
const PRIMARY: u64 = SUPERBLOCK_OFFSET;
