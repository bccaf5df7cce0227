//! Checking every metadata checksum of an image, and what stands behind the bits in use of bitmaps.
//!
//! [`walk`] leads to every structure, and [`checksums`] is the [`Visitor`](visit::Visitor) that checks them. What lies
//! below a damaged structure is not looked at, so that one damage is one fault. Names and contents are not checked: this
//! is no replacement for e2fsck.

mod checksums;
mod findings;
mod fix;
mod superblocks;
mod visit;
mod walk;

use std::collections::BTreeMap;
use std::sync::Arc;

use casemate_blockdev::BlockDevice;
use casemate_providers::Work;

use crate::error::{Problem, Result, Structure};
use crate::format::csum::Kind;
use crate::read::fs::{Ext4, OpenOptions};
use crate::read::journal;

use checksums::Checker;
pub use findings::{Finding, FindingKind, Level};
use findings::{Findings, Fix};
pub use fix::fix_checksums;
pub use superblocks::copy_to_read_by;

/// What a check found.
#[derive(Debug)]
pub struct CheckReport {
    /// What is wrong, in the order of structures and places.
    pub faults: Vec<Finding>,
    /// What is odd and no damage.
    pub notes: Vec<Finding>,
    /// Faults beyond those listed: a list has an end, damage may have none.
    pub faults_left_out: u64,
    /// How many structures of each kind were checked.
    pub checked: BTreeMap<Structure, u64>,
    /// Which checksums the file system carries.
    pub kind: Kind,
    /// The journal's transactions that were laid over the image before it was checked.
    pub replayed: u32,
    fixes: Vec<(Finding, Fix)>,
    /// What was checked: fixes need its seed and layout, whichever superblock gave them.
    fs: Ext4,
}

impl CheckReport {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.faults.is_empty()
    }

    /// The findings that rewriting a checksum would make go away.
    pub fn fixable(&self) -> impl Iterator<Item = &Finding> {
        self.fixes.iter().map(|(finding, _)| finding)
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
    walk::walk(&fs, work, || Checker::new(&fs, &findings))?;
    Ok(findings.into_report(fs, replayed))
}

/// How many bytes a check of this file system will report as progress.
pub fn check_size(fs: &Ext4) -> u64 {
    let layout = fs.layout();
    u64::from(layout.groups) * u64::from(layout.inodes_per_group) * u64::from(layout.inode_size)
}

/// Checks the journal's superblock, and lays its transactions over the file system if they count.
fn with_journal(fs: Ext4, options: &OpenOptions, findings: &Findings) -> Result<(Ext4, u32)> {
    let sound = walk::journal(&fs, &mut Checker::new(&fs, findings))?;
    if !sound || !options.replay_journal {
        return Ok((fs, 0));
    }
    match journal::recover(&fs, fs.superblock().needs_recovery()) {
        Ok(None) => Ok((fs, 0)),
        Ok(Some(_)) => {
            let fs = fs.recovered(options)?;
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
