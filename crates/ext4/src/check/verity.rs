//! Files with fs-verity: what lies behind their ends, and their contents against it. What that means somebody else knows.

use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};

use casemate_blockdev::Pool;
use casemate_providers::Work;

use crate::check::facts::Fact;
use crate::check::findings::{Finding, FindingKind};
use crate::check::groups::Group;
use crate::check::worker::Check;
use crate::error::{Corrupt, Error, Place, Problem, Result, Structure};
use crate::format::inode::{FileType, Inode};
use crate::format::raw_inode::RawInode;
use crate::read::fs::Ext4;

/// A file from here on is checked by all threads, smaller ones are shared out among them.
const LARGE: u64 = 1 << 24;

/// Large files that are remembered; more are checked where they are found.
const MOST_LARGE: usize = 1 << 16;

/// Inodes that are a piece of work.
const PIECE: u32 = 1 << 10;

/// Whoever knows the formats of fs-verity.
pub trait VerityFiles: Send + Sync {
    /// Checks a file that has fs-verity, on the threads of `work`, and calls `say` for whatever is wrong.
    ///
    /// # Errors
    /// `Corrupt` for what lies behind the file's end and is none, beside what keeps the check from being done.
    fn check(
        &self,
        fs: &Ext4,
        inode: &Inode,
        work: &Work<'_>,
        say: &mut (dyn FnMut(FindingKind, Problem) + Send),
    ) -> Result<()>;
}

/// Goes through all files with fs-verity. The listener hears of bytes of their contents.
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
    let pieces = check.fs.layout().inodes.div_ceil(PIECE);
    work.pool.run(pieces.into(), Vec::new, |numbers: &mut Vec<u32>, piece| {
        numbers.clear();
        // OK to truncate: numbers of inodes.
        check.facts.each(piece as u32 * PIECE + 1, PIECE, |number, fact, _| {
            if fact.has(Fact::VERITY) {
                numbers.push(number);
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
    Ok(())
}

fn read(check: &Check<'_>, groups: &[Group], number: u32) -> Result<Option<Inode>> {
    let Some(raw) = check.inode_bytes(groups, number)? else { return Ok(None) };
    let inode = (RawInode { number, raw: &raw }).to_inode().ok();
    Ok(inode.filter(|inode| inode.kind() == FileType::Regular))
}

fn file(check: &Check<'_>, verity: &dyn VerityFiles, inode: &Inode, work: &Work<'_>) -> Result<()> {
    let block_size = check.fs.layout().block_size;
    if !check.may_read(inode.sectors(block_size) / u64::from(block_size / 512)) {
        return Ok(());
    }
    check.findings.count(Structure::VerityMetadata);
    let place = Place::inode(Structure::VerityMetadata, inode.number());
    let mut say = |kind, problem| check.findings.add(Finding::new(kind, place, problem), None);
    match verity.check(check.fs, inode, work, &mut say) {
        Ok(()) => Ok(()),
        Err(error) => match Corrupt::of(&error) {
            Some(corrupt) if corrupt.place().structure == Structure::VerityMetadata => {
                say(FindingKind::VerityDescriptor, corrupt.problem().clone());
                Ok(())
            }
            // A map that can't be followed was found before.
            Some(_) => Ok(()),
            None => Err(error),
        },
    }
}
