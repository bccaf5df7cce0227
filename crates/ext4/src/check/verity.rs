//! Files with fs-verity: what lies behind their ends, and their contents against it. What that means somebody else knows.

use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};

use casemate_blockdev::{Pool, u32_of};
use casemate_providers::Work;

use crate::check::facts::Fact;
use crate::check::findings::{Finding, FindingKind, Level, VerityCount};
use crate::check::places::Group;
use crate::check::worker::Check;
use crate::error::{Corrupt, Error, Place, Problem, Result, Structure};
use crate::format::dir::byte_of;
use crate::format::inode::{FileType, Inode};
use crate::format::raw_inode::RawInode;
use crate::read::fs::Ext4;
use crate::units::InodeNo;

/// A file from here on is checked by all threads, smaller ones are shared out among them.
const LARGE: u64 = 1 << 24;

/// Large files that are remembered; more are checked where they are found.
const MOST_LARGE: usize = 1 << 16;

/// Inodes that are a piece of work.
const PIECE: u32 = 1 << 10;

/// The demand of a check on files, beside that what they have of fs-verity is sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum VerityDemand {
    /// None: contents are not read.
    Nothing,
    /// Files that have fs-verity match it. A note tells if there is none.
    Match,
    /// Files that have fs-verity match it, and are not signed by others. One file at least has it, and none of them is left out.
    Some,
    /// Every file has fs-verity and matches it.
    Every,
}

/// Verification of fs-verity files, implemented by a caller that knows its formats.
pub trait VerityFiles: Send + Sync {
    /// The demand on files.
    fn demand(&self) -> VerityDemand;

    /// Checks a file that has fs-verity, on the threads of `work`, and calls `say` for whatever is wrong. Returns whether the
    /// file is verified: everything that is demanded could be looked at, and is right.
    ///
    /// # Errors
    /// `Corrupt` for what lies behind the file's end and is none, beside what keeps the check from being done.
    fn check(
        &self,
        fs: &Ext4,
        inode: &Inode,
        work: &Work<'_>,
        say: &mut (dyn FnMut(FindingKind, Problem) + Send),
    ) -> Result<bool>;
}

/// Goes through all files with fs-verity, and counts those without. The listener hears of bytes of their contents.
pub(crate) fn all(
    check: &Check<'_>,
    groups: &[Group],
    verity: &dyn VerityFiles,
    work: &Work<'_>,
) -> Result<()> {
    check.renew();
    let large = Mutex::new(Vec::new());
    let alone = Work {
        providers: work.providers.clone(),
        pool: Pool::new(NonZeroUsize::new(1)),
        events: work.events,
    };
    let demand = verity.demand();
    let pieces = check.fs.layout().inodes.div_ceil(PIECE);
    work.pool.run(pieces.into(), Vec::new, |numbers: &mut Vec<InodeNo>, piece| {
        numbers.clear();
        let Some(first) = InodeNo::at_index(u32_of(piece) * PIECE) else { return Ok(()) };
        check.facts.each(first, PIECE, |number, fact, _| {
            let is_file = fact.kind() == byte_of(FileType::Regular)
                && !fact.has(Fact::INTERNAL | Fact::VALUE | Fact::ORPHAN);
            if fact.has(Fact::VERITY) {
                numbers.push(number);
            } else if is_file {
                check.findings.count_verity(VerityCount { without: 1, ..VerityCount::default() });
                if demand == VerityDemand::Every {
                    missing(check, Some(number), "has no fs-verity");
                }
            }
        });
        for number in numbers {
            let Some(inode) = read(check, groups, *number)? else { continue };
            let is_left = inode.size() >= LARGE && {
                let mut large = large.lock().unwrap_or_else(PoisonError::into_inner);
                let has_room = large.len() < MOST_LARGE;
                has_room.then(|| large.push(*number)).is_some()
            };
            if !is_left {
                file(check, verity, &inode, &alone)?;
            }
        }
        Ok::<_, Error>(())
    })?;
    for number in large.into_inner().unwrap_or_else(PoisonError::into_inner) {
        if let Some(inode) = read(check, groups, number)? {
            file(check, verity, &inode, work)?;
        }
    }
    let found = check.findings.verity_count();
    match demand {
        VerityDemand::Match if found.files == 0 => {
            let place = Place::of(Structure::VerityMetadata);
            check.findings.say(FindingKind::VerityNone, place, "no file has fs-verity");
        }
        VerityDemand::Some if found.files == 0 => missing(check, None, "no file has fs-verity"),
        VerityDemand::Every if found.files + found.without == 0 => missing(check, None, "there is no file"),
        _ => {}
    }
    Ok(())
}

/// Notes that a file, or the file system, lacks what is demanded.
fn missing(check: &Check<'_>, number: Option<InodeNo>, text: &'static str) {
    let place = Place { inode: number, ..Place::of(Structure::VerityMetadata) };
    check.findings.say(FindingKind::VerityMissing, place, text);
}

fn read(check: &Check<'_>, groups: &[Group], number: InodeNo) -> Result<Option<Inode>> {
    let Some(raw) = check.inode_bytes(groups, number)? else { return Ok(None) };
    let inode = (RawInode { number, raw: &raw }).to_inode().ok();
    Ok(inode.filter(|inode| inode.kind() == FileType::Regular))
}

fn file(check: &Check<'_>, verity: &dyn VerityFiles, inode: &Inode, work: &Work<'_>) -> Result<()> {
    let mut has_fault = false;
    let is_verified = is_verified(check, verity, inode, work, &mut has_fault)?;
    check.findings.count_verity(VerityCount { files: 1, verified: is_verified.into(), without: 0 });
    if !is_verified && !has_fault && verity.demand() >= VerityDemand::Some {
        missing(check, Some(inode.number()), "could not be verified");
    }
    Ok(())
}

/// Whether a file is as it is demanded; what is wrong is noted.
fn is_verified(
    check: &Check<'_>,
    verity: &dyn VerityFiles,
    inode: &Inode,
    work: &Work<'_>,
    has_fault: &mut bool,
) -> Result<bool> {
    let block_size = check.fs.layout().block_size;
    if !check.may_read(inode.sectors(block_size) / u64::from(block_size / 512)) {
        return Ok(false);
    }
    check.findings.count(Structure::VerityMetadata);
    let place = Place::inode(Structure::VerityMetadata, inode.number());
    let mut say = |kind: FindingKind, problem| {
        *has_fault |= kind.level() == Level::Fault;
        check.findings.add(Finding::new(kind, place, problem), None);
    };
    match verity.check(check.fs, inode, work, &mut say) {
        Err(error) => match Corrupt::of(&error) {
            Some(corrupt) if corrupt.place().structure == Structure::VerityMetadata => {
                say(FindingKind::VerityDescriptor, corrupt.problem().clone());
                Ok(false)
            }
            // A map that can't be followed was found before.
            Some(_) => Ok(false),
            None => Err(error),
        },
        result => result,
    }
}
