//! Inodes that wait to be deleted or cut: the list that begins in the superblock, and the file of orphans.

use std::collections::HashSet;

use crate::check::facts::Fact;
use crate::check::findings::{FindingKind, Fix};
use crate::check::places::Group;
use crate::check::worker::Check;
use crate::error::{Corrupt, Place, Result, Structure};
use crate::format::csum::{Context, Subject, compare, recipe};
use crate::format::features::{Compat, RoCompat};
use crate::format::inode::{FileType, InodeFlags};
use crate::format::orphan;
use crate::format::raw_inode::RawInode;
use crate::format::superblock::last_orphan;
use crate::units::InodeNo;

/// Collects all orphans, and notes how many there are.
pub(crate) fn collect(check: &mut Check<'_>, groups: &[Group]) -> Result<()> {
    let mut orphans = HashSet::new();
    let superblock = Place::of(Structure::Superblock);
    let mut at = last_orphan(check.fs.superblock().as_bytes());
    while let Some(number) = at {
        let next = next(check, groups, number)?;
        let text = match next {
            None => format!("the list of orphans leads to inode {number}, which can't be one"),
            Some(_) if !orphans.insert(number) => {
                format!("the list of orphans leads to inode {number} twice")
            }
            Some(next) => {
                at = next;
                continue;
            }
        };
        check.findings.say(FindingKind::OrphanList, superblock, text);
        break;
    }
    match check.fs.superblock().orphan_file {
        Some(file) => from_file(check, groups, file, &mut orphans)?,
        None if check.fs.superblock().compat.has(Compat::ORPHAN_FILE) => {
            check.findings.say(FindingKind::OrphanFile, superblock, "names no inode of the file of orphans");
        }
        None => {}
    }
    if !orphans.is_empty() {
        let text = format!("{} inodes will be deleted or cut at the next mount", orphans.len());
        check.findings.say(FindingKind::Orphans, superblock, text);
    }
    check.orphans = orphans;
    Ok(())
}

/// Files of orphans and quotas that the superblock names without the features, and that are something.
pub(crate) fn unexpected(check: &Check<'_>) {
    let superblock = check.fs.superblock();
    let is_used = |number: InodeNo| {
        let fact = check.facts.get(number);
        fact.has(Fact::USED) && !fact.has(Fact::INTERNAL)
    };
    let quota = superblock.quota_inodes.into_iter().flatten().filter(|_| !check.has.quota);
    for number in quota.filter(|number| is_used(*number)) {
        let text = format!("inode {number} is named as a quota file without the feature");
        check.findings.say(FindingKind::QuotaInode, Place::of(Structure::Superblock), text);
    }
    let named = superblock.named_orphan_file().filter(|number| is_used(*number));
    if let (None, Some(number)) = (superblock.orphan_file, named) {
        let text = format!("inode {number} is named as the file of orphans without the feature");
        check.findings.say(FindingKind::OrphanFile, Place::of(Structure::Superblock), text);
    }
}

/// The orphan behind an inode in the list, which may be none, if the inode can be an orphan.
fn next(check: &Check<'_>, groups: &[Group], number: InodeNo) -> Result<Option<Option<InodeNo>>> {
    if check.fs.superblock().is_reserved(number) {
        return Ok(None);
    }
    let raw = check.inode_bytes(groups, number)?;
    let inode = raw.as_deref().map(|raw| RawInode { number, raw });
    Ok(inode.filter(|inode| inode.kind().is_some()).map(RawInode::next_orphan))
}

fn from_file(
    check: &Check<'_>,
    groups: &[Group],
    number: InodeNo,
    orphans: &mut HashSet<InodeNo>,
) -> Result<()> {
    let (fs, findings) = (check.fs, check.findings);
    let place = Place::inode(Structure::Inode, number);
    let wrong = |text: String| findings.say(FindingKind::OrphanFile, place, text);
    let Some(raw) = check.inode_bytes(groups, number)? else {
        wrong("can't be found".to_owned());
        return Ok(());
    };
    let Ok(file) = (RawInode { number, raw: &raw }).to_inode() else {
        wrong("is not a file".to_owned());
        return Ok(());
    };
    let block_size = u64::from(fs.layout().block_size);
    if file.kind() != FileType::Regular
        || file.has(InodeFlags::INLINE_DATA)
        || file.size() % block_size != 0
        || file.size() / block_size > fs.layout().blocks
    {
        wrong(format!("is not a file of orphans: {}, {} bytes", file.kind().name(), file.size()));
        return Ok(());
    }
    let (mut next, mut waiting, mut is_read) = (0, 0, true);
    let blocks = file.size() / block_size;
    let mut runs = Vec::new();
    let result = fs.mappings(&file, 0, |run| {
        runs.push(run);
        Ok(std::ops::ControlFlow::Continue(()))
    });
    if let Err(error) = result {
        // The map is found damaged when its inode is checked.
        return if Corrupt::of(&error).is_some() { Ok(()) } else { Err(error) };
    }
    for run in runs {
        for logical in run.logical..run.end().min(blocks) {
            if logical != next || run.unwritten {
                break;
            }
            next += 1;
            let block = run.physical + (logical - run.logical);
            if !fs.is_present(block, 1) {
                is_read = false;
                continue;
            }
            let place = Place::inode(Structure::OrphanBlock, number).at(block);
            let bytes = fs.read_block(block)?;
            if orphan::check(&bytes, place).is_err() {
                findings.say(FindingKind::OrphanFile, place, "no magic number 0xb10ca04");
                is_read = false;
                continue;
            }
            let context = Context { block, ..file.context() };
            let fix = Fix::in_place(fs.layout().offset(block), bytes.len(), Subject::OrphanBlock, context);
            let result = if check.has.checksums {
                findings.count(Structure::OrphanBlock);
                fs.checksums().verify(Subject::OrphanBlock, &context, &bytes, place)
            } else {
                // Left from a time with checksums: e2fsck takes it for an orphan.
                let found = fs.checksums().stored(recipe(Subject::OrphanBlock), &bytes);
                compare(0, found.unwrap_or(0), place)
            };
            findings.note(result, Some(fix));
            for orphan in orphan::numbers(bytes.len()).filter_map(|field| InodeNo::new(field.get(&bytes))) {
                waiting += 1;
                if self::next(check, groups, orphan)?.is_none() {
                    findings.say(
                        FindingKind::OrphanFile,
                        place,
                        format!("names inode {orphan}, which can't be one"),
                    );
                } else if !orphans.insert(orphan) {
                    findings.say(
                        FindingKind::OrphanFile,
                        place,
                        format!("names inode {orphan}, which was named before"),
                    );
                }
            }
        }
    }
    if next < blocks {
        wrong(format!("lacks block {next}"));
    }
    let is_present = fs.superblock().ro_compat.has(RoCompat::ORPHAN_PRESENT);
    if waiting > 0 && !is_present {
        wrong(format!("holds {waiting} orphans, and the superblock says that there are none"));
    }
    // The kernel sets the mark as long as a file system is mounted.
    if waiting == 0 && is_present && is_read && next == blocks && !fs.superblock().needs_recovery() {
        let superblock = Place::of(Structure::Superblock);
        findings.say(FindingKind::OrphanMark, superblock, "orphan_present without orphans in their file");
    }
    Ok(())
}
