//! The superblock that fits what lies on the disk: where the primary one contradicts the descriptors, the journal or the inode
//! for resizing, guesses at its numbers and its copies are compared by where they lead.

use std::sync::Arc;

use casemate_blockdev::{BlockDevice, u64_of, usize_of};

use crate::check::findings::{Finding, FindingKind, Findings};
use crate::check::likeness::{Likeness, first_block, likeness};
use crate::check::superblocks::{copies, seal};
use crate::check::worker::Check;
use crate::check::{groups, journal, orphans, resize, superblock};
use crate::error::{Place, Problem, Result, Structure};
use crate::format::block_map::{self, DOUBLE};
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::inode::{FileType, InodeFlags};
use crate::format::raw_inode::RawInode;
use crate::format::superblock::guess::{self, Guess, Hints};
use crate::format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use crate::read::fs::{Ext4, OpenOptions};
use crate::units::{Block, GroupNo, InodeNo};

/// Numbers that are mended one after the other at most.
const MOST_GUESSED: u32 = 3;

/// Copies that are compared at most.
const MOST_COPIES: usize = 3;

/// Another superblock that fits better than the primary one, with what is wrong with that; `None` if none does.
///
/// # Errors
/// Errors of reading the device.
pub(crate) fn fitting(
    device: &Arc<dyn BlockDevice>,
    options: &OpenOptions,
) -> Result<Option<(Finding, Superblock)>> {
    if device.size() < SUPERBLOCK_OFFSET + u64_of(SUPERBLOCK_SIZE) {
        return Ok(None);
    }
    let mut raw = [0; SUPERBLOCK_SIZE];
    device.read_at(&mut raw, SUPERBLOCK_OFFSET)?;
    if !Superblock::has_magic(&raw) {
        return Ok(None);
    }
    let mut least = misfit(device, options, &raw)?;
    let mut wrong: Vec<String> = Vec::new();
    for _ in 0..MOST_GUESSED {
        if least == Some(0) {
            break;
        }
        let mut best: Option<(u64, Guess)> = None;
        for (what, guess) in guesses(device, options, &raw)? {
            let Some(misfit) = misfit(device, options, &guess)? else { continue };
            let is_less = least.is_none_or(|least| misfit < least);
            if is_less && best.is_none_or(|(least, _)| misfit < least) {
                best = Some((misfit, (what, guess)));
            }
        }
        let Some((misfit, (what, guess))) = best else { break };
        (least, raw) = (Some(misfit), guess);
        wrong.push(what.to_owned());
    }
    if wrong.is_empty() {
        return Ok(None);
    }
    let superblock = seal(options, &raw)?;
    let text = format!("does not fit the rest of the file system in {}", wrong.join(", and in "));
    let problem = Problem::Malformed(text.into());
    Ok(Some((
        Finding::new(FindingKind::SuperblockField, Place::of(Structure::Superblock), problem),
        superblock,
    )))
}

fn guesses(
    device: &Arc<dyn BlockDevice>,
    options: &OpenOptions,
    raw: &[u8; SUPERBLOCK_SIZE],
) -> Result<Vec<Guess>> {
    let primary = Superblock::from_bytes(raw).ok();
    let mut hints = Hints { size: device.size(), ..Hints::default() };
    if let Some(fs) = primary.as_ref().and_then(|primary| open(device, options, primary)) {
        hints = facts(&fs, hints)?;
    }
    // Of guesses that fit as well the first is taken. What a copy has as a whole is more than a guess; beyond its features it
    // may be older.
    let (mut guesses, mut others) = (Vec::new(), Vec::new());
    for copy in copies(&**device, options, primary.as_ref()).take(MOST_COPIES) {
        let [features, numbers, all] = guess::of_copy(raw, copy.as_bytes());
        guesses.push(features);
        others.extend([numbers, all]);
    }
    guesses.extend(guess::single(raw, hints));
    guesses.extend(others);
    Ok(guesses)
}

fn open(device: &Arc<dyn BlockDevice>, options: &OpenOptions, superblock: &Superblock) -> Option<Ext4> {
    let plain =
        OpenOptions { superblock: None, verify_checksums: false, replay_journal: false, ..options.clone() };
    Ext4::with_superblock(Arc::clone(device), superblock.clone(), &plain).ok()
}

/// How badly a superblock fits what it leads to: 0 if nothing contradicts it, `None` if it leads nowhere.
fn misfit(
    device: &Arc<dyn BlockDevice>,
    options: &OpenOptions,
    raw: &[u8; SUPERBLOCK_SIZE],
) -> Result<Option<u64>> {
    let Ok(superblock) = Superblock::from_bytes(raw) else { return Ok(None) };
    let Some(fs) = open(device, options, &superblock) else { return Ok(None) };
    let findings = Findings::default();
    let mut check = Check::new(&fs, &findings);
    superblock::check(&fs, &findings);
    let groups = groups::load(&mut check)?;
    journal::check(&fs, &findings)?;
    resize::check(&check, &groups)?;
    orphans::collect(&mut check, &groups)?;
    let is_root = holds_root(&fs, groups.first().and_then(|group| group.table))?;
    // Where inodes for files begin is nowhere else, and lost+found is the first of them.
    let first = check.inode_bytes(&groups, InodeNo::LOST_AND_FOUND)?;
    let is_reserved = superblock.is_reserved(InodeNo::LOST_AND_FOUND)
        && first.is_some_and(|raw| RawInode { number: InodeNo::LOST_AND_FOUND, raw: &raw }.mode() != 0);
    let mut forgotten = 0;
    if superblock.ro_compat.has(RoCompat::QUOTA) {
        let named = superblock.quota_inodes.into_iter().zip([InodeNo::USER_QUOTA, InodeNo::GROUP_QUOTA]);
        for (_, own) in named.filter(|(named, own)| *named != Some(*own)) {
            let raw = check.inode_bytes(&groups, own)?;
            let is_file =
                raw.is_some_and(|raw| RawInode { number: own, raw: &raw }.kind() == Some(FileType::Regular));
            forgotten += u64::from(is_file);
        }
    }
    let (mut kinds, mut files) = (findings.kinds(), Vec::new());
    // One wrong map makes many blocks of one file wrong.
    kinds.retain(|kind| {
        let is_again = files.contains(kind);
        files.extend(Some(*kind).filter(|kind| is_of_one_file(*kind)));
        !is_again
    });
    let mut misfit: u64 = kinds.into_iter().map(weight).sum();
    misfit += if is_root { 0 } else { ROOT_LOST };
    let facts = facts(&fs, Hints::default())?;
    let lacks = |is_there: bool, has: bool| u64::from(is_there && !has) * weight(FindingKind::Features);
    misfit += lacks(facts.has_types, superblock.incompat.has(Incompat::FILETYPE));
    misfit += lacks(facts.has_extents, superblock.incompat.has(Incompat::EXTENTS));
    misfit += lacks(facts.has_large, superblock.ro_compat.has(RoCompat::LARGE_FILE));
    misfit += lacks(superblock.quota_inodes[2].is_some(), superblock.ro_compat.has(RoCompat::PROJECT));
    misfit += lacks(superblock.named_orphan_file().is_some(), superblock.orphan_file.is_some());
    let (named, elsewhere) = superblock.named_journal();
    misfit += u64::from(superblock.compat.has(Compat::HAS_JOURNAL) && named.is_none() && !elsewhere)
        * JOURNAL_NOWHERE;
    misfit += forgotten * weight(FindingKind::QuotaInode);
    misfit += if is_reserved { FILES_RESERVED } else { 0 };
    Ok(Some(misfit))
}

/// Weights of a root that is none: more than of anything else, because nothing is reached without it; of inodes of files that are said
/// to be reserved; and of a journal that is nowhere: less than of one that is not said to hold something.
const ROOT_LOST: u64 = 1 << 40;
const JOURNAL_NOWHERE: u64 = 10;
const FILES_RESERVED: u64 = 100;

/// Whether findings of a kind are all about one file of the file system's own.
fn is_of_one_file(kind: FindingKind) -> bool {
    use FindingKind as K;
    matches!(kind, K::OrphanFile | K::JournalInode | K::JournalSuperblock | K::ResizeInode)
}

/// Weight of a finding against the superblock: places of whole structures count more than fields, and these more than
/// checksums and oddities.
fn weight(kind: FindingKind) -> u64 {
    use FindingKind as K;
    match kind {
        K::GroupPlace | K::GroupConflict => 200,
        K::ResizeInode => 500,
        K::SuperblockField | K::Features | K::QuotaInode => 50,
        K::OrphanFile | K::JournalFeature => 50,
        // A journal that holds what the superblock does not tell of is one, at least.
        K::JournalInode | K::JournalSuperblock => 60,
        K::OddFeatures | K::ChecksumFeatures => 30,
        K::Checksum | K::Malformed => 5,
        _ => 1,
    }
}

/// Whether an inode table of the first group begins with the inodes of a root.
fn holds_root(fs: &Ext4, table: Option<Block>) -> Result<bool> {
    match table {
        Some(table) => Ok(likeness(fs, GroupNo::PRIMARY, table)? == Likeness::Sure),
        None => Ok(false),
    }
}

/// Facts that other numbers can be guessed by, as far as inodes can be read.
fn facts(fs: &Ext4, mut hints: Hints) -> Result<Hints> {
    hints.reserved = reserved_blocks(fs)?;
    if let Ok(resize) = fs.any_inode(InodeNo::RESIZE) {
        hints.has_large = resize.kind() == FileType::Regular && resize.size() >= LARGE && resize.links() > 0;
    }
    let Ok(root) = fs.any_inode(InodeNo::ROOT) else { return Ok(hints) };
    hints.has_extents = root.is_dir() && root.has(InodeFlags::EXTENTS);
    if let Some(block) = first_block(fs, &root) {
        // The kind stands where the upper half of the length of names is without the feature.
        hints.has_types =
            block.starts_with(&DOT) && block[DOT.len()] == DIRECTORY && block[DOT.len() + 1] == b'.';
    }
    Ok(hints)
}

/// A record of the root that names itself, up to the kind of file: number, length of 12, length of the name.
const DOT: [u8; 7] = [2, 0, 0, 0, 12, 0, 1];

/// The kind of a directory in a record.
const DIRECTORY: u8 = 2;

/// A file from here on needs the feature `large_file`.
const LARGE: u64 = 1 << 31;

/// Blocks that the inode for resizing reserves, if it can be followed: its numbers are those behind the descriptors.
fn reserved_blocks(fs: &Ext4) -> Result<Option<u16>> {
    let layout = fs.layout();
    let Ok(inode) = fs.any_inode(InodeNo::RESIZE) else { return Ok(None) };
    let top = Block::new(block_map::number(DOUBLE).get(inode.block_area()).into());
    if !layout.contains(top, 1) || !fs.is_present(top, 1) {
        return Ok(None);
    }
    let numbers: Vec<u32> = block_map::numbers(&fs.read_block(top)?).collect();
    let first = layout.descriptor_block(0) + u64::from(layout.descriptor_blocks());
    let slot = |index: u64| usize_of(u64::from(layout.descriptor_blocks()) + index) % numbers.len();
    let is_own = |index: &u64| Block::new(numbers[slot(*index)].into()) == first + *index;
    let count = (0..u64_of(numbers.len())).take_while(is_own).count();
    // Others beside them are signs that this block is damaged itself.
    let is_whole = count > 0 && numbers.iter().filter(|number| **number != 0).count() == count;
    Ok(u16::try_from(count).ok().filter(|_| is_whole))
}
