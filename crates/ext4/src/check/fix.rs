//! Rewriting checksums, and nothing else.

use std::sync::Arc;

use casemate_blockdev::{BlockDevice, u64_of};
use casemate_providers::Work;

use crate::check::findings::{Finding, Fix, MOST_FAULTS};
use crate::check::{CheckOptions, CheckReport, check};
use crate::error::{Error, Result};
use crate::format::csum::{Context, recipe};
use crate::read::fs::{Ext4, OpenOptions};
use crate::transaction::Mmp;

/// A structure below one whose checksum was rewritten shows its own fault in the next round: inode, tree,
/// blocks. Faults that a report has no room for take rounds of their own.
const MOST_ROUNDS: u64 = 8;

/// Rewrites every checksum that a check finds wrong, so that the structures are accepted as they are. Returns
/// what was rewritten, and what a last check still finds.
///
/// Nothing but checksums is written, and whatever damaged a structure is still in it.
///
/// # Errors
/// `Unsupported` when the journal must be replayed first, or the file system has features that a
/// writer must know; `ResourceBusy` when another machine uses it (multi-mount protection); and all errors of [`check`].
pub fn fix_checksums(
    device: Arc<dyn BlockDevice>,
    options: &CheckOptions,
    work: &Work<'_>,
) -> Result<(Vec<Finding>, CheckReport)> {
    let open = OpenOptions { replay_journal: false, ..options.open.clone() };
    let plain = CheckOptions { open, verity: options.verity.clone() };
    let mut rewritten = Vec::new();
    let mut report = check(device.clone(), &plain, work)?;
    // Refuses an image that is cut off.
    Ext4::with_superblock(device.clone(), report.fs.superblock().clone(), &plain.open)?;
    let mut mmp = None;
    let mut rounds = 0;
    // A block that two inodes share never suits both.
    while rounds < MOST_ROUNDS + report.checked.values().sum::<u64>() / u64_of(MOST_FAULTS)
        && report.fixable().next().is_some()
    {
        rounds += 1;
        let fs = report.fs.clone();
        fs.superblock().ro_compat.check_writable()?;
        if fs.superblock().needs_recovery() {
            let text = "the journal must be replayed before checksums are rewritten; \
                        mount the image once or run e2fsck";
            return Err(Error::unsupported(text.to_owned()));
        }
        if mmp.is_none() {
            // Its own block may be what has a wrong checksum.
            let open = OpenOptions { verify_checksums: false, ..plain.open.clone() };
            mmp = Mmp::start(&device, fs.superblock(), &open, work.events)?;
        }
        for (finding, fix) in report.fixes.iter().filter(|(_, fix)| fix.is_checksum()) {
            apply(&fs, fix)?;
            rewritten.push(finding.clone());
        }
        device.flush()?;
        report = check(device.clone(), &plain, work)?;
    }
    Ok((rewritten, report))
}

fn apply(fs: &Ext4, fix: &Fix) -> Result<()> {
    let checksums = fs.checksums();
    match *fix {
        Fix::InPlace { offset, len, subject, context } => {
            let mut bytes = vec![0; len];
            fs.device().read_at(&mut bytes, offset)?;
            if checksums.correct(subject, &context, &mut bytes).is_some() {
                fs.device().write_at(&bytes, offset)?;
            }
        }
        Fix::Bitmap { subject, group, value } => {
            let offset = fs.descriptor_offset(group);
            let mut bytes = vec![0; fs.layout().descriptor_len()];
            fs.device().read_at(&mut bytes, offset)?;
            let context = Context { group, ..Context::default() };
            checksums.write(recipe(subject), &mut bytes, value);
            checksums.store(recipe(checksums.descriptor_subject()), &context, &mut bytes);
            fs.device().write_at(&bytes, offset)?;
        }
        Fix::Usage { .. } => {}
    }
    Ok(())
}
