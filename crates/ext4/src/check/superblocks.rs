//! The superblock that a check goes by: the primary one, or a copy.

use std::sync::Arc;

use casemate_blockdev::{BlockDevice, u64_of};
use casemate_primitives::crc32c::Crc32c;

use crate::check::findings::{Finding, FindingKind, Findings, Fix};
use crate::error::{Corrupt, Error, Place, Problem, Result, Structure};
use crate::format::csum::{Checksums, Context, Subject, recipe};
use crate::format::features::Incompat;
use crate::format::layout::Layout;
use crate::format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock, SuperblockMut, guess};
use crate::read::fs::{Ext4, OpenOptions, read_copy};
use crate::read::journal::Journal;
use crate::read::primary::read_primary;
use crate::read::primary::read_superblock;
use crate::units::{GroupNo, InodeNo};

/// Copies that are compared with a damaged primary superblock.
const MOST_COMPARED: usize = 8;

/// Opens the file system for a check: by its primary superblock, or where that is damaged by a sound copy; or by the copy that
/// the options name.
pub(crate) fn open(device: Arc<dyn BlockDevice>, options: &OpenOptions, findings: &Findings) -> Result<Ext4> {
    if let Some(block) = options.superblock {
        let copy = read_copy(&*device, block)?;
        findings.count(Structure::BackupSuperblock);
        findings.note(verify(&copy, options, Place::of(Structure::BackupSuperblock).at(block)), None);
        // The descriptors are the primary ones: those of copies are only as new as the file system's size.
        return Ext4::with_superblock(device, copy, &OpenOptions { superblock: None, ..options.clone() });
    }
    let primary = read_superblock(&*device, SUPERBLOCK_OFFSET);
    let sound = match &primary {
        Ok(superblock) => {
            findings.count(Structure::Superblock);
            let sound = verify_primary(superblock, options);
            if sound.is_ok() {
                superblock.incompat.check_readable()?;
            }
            sound
        }
        Err(error) => Corrupt::of(error).map_or(Ok(()), |corrupt| Err(corrupt.clone().into())),
    };
    let wrong = |error: &Error| {
        findings.say(FindingKind::SuperblockField, Place::of(Structure::Superblock), error.to_string());
    };
    let primary = match (primary, sound) {
        (Ok(superblock), Ok(())) => {
            let found = Ext4::with_superblock(Arc::clone(&device), superblock.clone(), options);
            // Numbers that make no sense together: a copy may know better.
            let Err(error) = found else { return found };
            let other = |copy: &Superblock| !same_file_system(&superblock, copy);
            let Some(copy) = find_copy(&*device, options, None).filter(other) else {
                return as_far_as_it_goes(device, superblock, options, findings);
            };
            wrong(&error);
            return as_far_as_it_goes(device, copy, options, findings);
        }
        (primary, sound) => {
            if let Err(error) = &primary
                && Corrupt::of(error).is_none()
            {
                wrong(error);
            }
            if let Err(error) = &sound
                && Corrupt::of(error).is_none()
            {
                wrong(error);
            }
            if let Some((superblock, _)) = by_copies(&device, options)? {
                // Nobody signs what others depend on.
                let is_fixable = primary.as_ref().is_ok_and(|primary| {
                    same_file_system(primary, &superblock) && has_same_features(primary, &superblock)
                });
                findings.note(sound, is_fixable.then(fix));
                return as_far_as_it_goes(device, superblock, options, findings);
            }
            let is_better = |copy: &Superblock| match &primary {
                Ok(primary) if primary.incompat.check_readable().is_ok() => {
                    !same_file_system(primary, copy) && !opens(&device, options, primary)
                }
                _ => true,
            };
            let copy = find_copy(&*device, options, primary.as_ref().ok()).filter(is_better);
            let Some(copy) = copy else {
                // A superblock with a wrong checksum still says where things are.
                let superblock = primary?;
                superblock.incompat.check_readable()?;
                findings.note(sound, Some(fix()));
                return as_far_as_it_goes(device, superblock, options, findings);
            };
            findings.note(sound, None);
            copy
        }
    };
    as_far_as_it_goes(device, primary, options, findings)
}

/// The file system that a superblock describes; of one on an image that ends before it does, what is there.
fn as_far_as_it_goes(
    device: Arc<dyn BlockDevice>,
    superblock: Superblock,
    options: &OpenOptions,
    findings: &Findings,
) -> Result<Ext4> {
    let cut_short = OpenOptions { cut_short: true, ..options.clone() };
    let fs = Ext4::with_superblock(Arc::clone(&device), superblock.clone(), &cut_short)?;
    if fs.missing_bytes() == 0 {
        return Ok(fs);
    }
    let (size, missing) = (device.size(), fs.missing_bytes());
    let text = format!("the image ends at byte {size}, and {missing} bytes of the file system are missing");
    findings.say(FindingKind::CutOff, Place::of(Structure::Superblock), text);
    Ext4::with_superblock(Arc::new(CutOff(device)), superblock, &cut_short)
}

/// A device whose end is missing: reading there is a fault of the file system, not of the device.
struct CutOff(Arc<dyn BlockDevice>);

impl BlockDevice for CutOff {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&*self.0)
    }

    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        match offset.checked_add(u64_of(buf.len())).is_some_and(|end| end <= self.0.size()) {
            true => self.0.read_at(buf, offset),
            false => {
                Err(Place::of(Structure::Superblock).malformed("some of it lies behind the image's end"))
            }
        }
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.0.write_at(buf, offset)
    }

    fn flush(&self) -> Result<()> {
        self.0.flush()
    }
}

/// The block of a sound copy of the superblock, if the primary one is damaged.
pub fn copy_to_read_by(device: &dyn BlockDevice, options: &OpenOptions) -> Option<u64> {
    let primary = read_primary(device, Crc32c::new(options.providers.cpu())).ok();
    let place = Place::of(Structure::Superblock);
    if primary.as_ref().is_some_and(|primary| verify(primary, options, place).is_ok()) {
        return None;
    }
    let copy = find_copy(device, options, primary.as_ref())?;
    let offset = Layout::new(&copy).ok()?.superblock_offset(copy.group())?;
    Some(offset / u64::from(copy.block_size))
}

/// The primary superblock as a sound copy has it, where it is damaged beyond its checksum, or another copy is to be taken; and
/// what is wrong with it.
pub(crate) fn restored(
    device: &Arc<dyn BlockDevice>,
    options: &OpenOptions,
) -> Result<Option<(Finding, Superblock)>> {
    let primary = read_superblock(&**device, SUPERBLOCK_OFFSET);
    let place = Place::of(Structure::Superblock);
    let sound = primary.as_ref().ok().filter(|primary| verify_primary(primary, options).is_ok());
    let damaged =
        |text: String| Finding::new(FindingKind::SuperblockField, place, Problem::Malformed(text.into()));
    let (copy, text) = match options.superblock {
        Some(block) => (Some(read_copy(&**device, block)?), format!("the copy in block {block} is taken")),
        None => {
            if sound.is_some_and(|primary| opens(device, options, primary)) {
                return Ok(None);
            }
            if let (None, Some((superblock, group))) = (sound, by_copies(device, options)?) {
                if primary.is_ok_and(|primary| is_same_but_sum(&primary, &superblock)) {
                    return Ok(None);
                }
                let text = match group {
                    GroupNo::PRIMARY => "is damaged; its checksum tells what it was".to_owned(),
                    group => format!("is damaged; group {group} has a copy"),
                };
                return Ok(Some((damaged(text), seal(options, superblock.as_bytes())?)));
            }
            if primary.as_ref().is_ok_and(|primary| opens(device, options, primary)) {
                // At most its checksum.
                return Ok(None);
            }
            let copy = find_copy(&**device, options, primary.as_ref().ok());
            let group = copy.as_ref().map_or(0, |copy| copy.group);
            (copy, format!("is damaged; group {group} has a copy"))
        }
    };
    let Some(copy) = copy else { return Ok(None) };
    let plain = OpenOptions { superblock: None, ..options.clone() };
    let fs = Ext4::with_superblock(Arc::clone(device), copy.clone(), &plain)?;
    let journal = Journal::open(&fs).ok().flatten();
    let is_unfinished = journal.is_some_and(|journal| journal.superblock().start != 0);
    let mut raw = *copy.as_bytes();
    let mut edit = SuperblockMut { raw: &mut raw };
    edit.set_group(GroupNo::PRIMARY);
    // A journal is emptied when a file system is left in order. Of one on another device the damaged superblock tells.
    let is_elsewhere = matches!(copy.named_journal(), (None, true));
    edit.set_needs_recovery(is_unfinished || is_elsewhere && is_told_to_recover(&**device)?);
    if fs.checksums().covers(Subject::Superblock) {
        fs.checksums().store(recipe(Subject::Superblock), &Context::default(), &mut raw);
    }
    Ok(Some((damaged(text), Superblock::from_bytes(&raw)?)))
}

/// The primary superblock with a wrong checksum as it was, and the group whose copy tells that. Its checksum proves what is right;
/// without that, what does not change in use is as the copy has it that is most like it. `None` if nothing fits it, or it is torn.
fn by_copies(device: &Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Option<(Superblock, GroupNo)>> {
    let crc = Crc32c::new(options.providers.cpu());
    if device.size() < SUPERBLOCK_OFFSET + u64_of(SUPERBLOCK_SIZE) {
        return Ok(None);
    }
    let mut raw = [0; SUPERBLOCK_SIZE];
    device.read_at(&mut raw, SUPERBLOCK_OFFSET)?;
    if read_primary(&**device, crc).is_ok_and(|found| has_right_sum(&found, options)) {
        return Ok(None);
    }
    let primary = Superblock::from_bytes(&raw).ok();
    let mut found: Vec<Superblock> =
        copies(&**device, options, primary.as_ref()).take(MOST_COMPARED).collect();
    let is_other = |copy: &Superblock| copy.uuid != guess::uuid(&raw);
    found.retain(|copy| match &primary {
        Some(primary) => !guess::is_resized(primary, copy),
        None => Superblock::has_magic(&raw) || !is_other(copy),
    });
    found.sort_by_cached_key(|copy| (is_other(copy), guess::distance(&raw, copy.as_bytes())));
    let of_copies = found.iter().flat_map(|copy| {
        guess::by_copy(&raw, copy.as_bytes()).into_iter().map(|guess| (guess, copy.group()))
    });
    let of_bits = guess::flipped(&raw).map(|guess| (guess, GroupNo::PRIMARY));
    for (guess, group) in of_copies.chain(of_bits) {
        if let Ok(superblock) = Superblock::from_bytes(&guess)
            && has_right_sum(&superblock, options)
            && opens(device, options, &superblock)
        {
            return Ok(Some((superblock, group)));
        }
    }
    let likeliest = found.iter().find_map(|copy| {
        let guess = guess::by_copy(&raw, copy.as_bytes()).into_iter().next()?;
        let superblock = Superblock::from_bytes(&guess).ok().filter(|it| opens(device, options, it))?;
        let is_own = !is_other(copy) || primary.is_some() && has_root(device, options, &superblock);
        is_own.then_some((superblock, copy.group()))
    });
    Ok(likeliest)
}

/// Whether what is left of the primary superblock says that a journal must be replayed.
fn is_told_to_recover(device: &dyn BlockDevice) -> Result<bool> {
    let mut raw = [0; SUPERBLOCK_SIZE];
    device.read_at(&mut raw, SUPERBLOCK_OFFSET)?;
    Ok(Superblock::has_magic(&raw) && guess::is_told_to_recover(&raw))
}

/// Whether a file system can be opened by a superblock.
fn opens(device: &Arc<dyn BlockDevice>, options: &OpenOptions, superblock: &Superblock) -> bool {
    let plain = OpenOptions { superblock: None, ..options.clone() };
    Ext4::with_superblock(Arc::clone(device), superblock.clone(), &plain).is_ok()
}

/// Whether the checksum of a root that a superblock leads to fits: it is none of another file system.
fn has_root(device: &Arc<dyn BlockDevice>, options: &OpenOptions, superblock: &Superblock) -> bool {
    let verified = OpenOptions { superblock: None, verify_checksums: true, ..options.clone() };
    Ext4::with_superblock(Arc::clone(device), superblock.clone(), &verified)
        .is_ok_and(|fs| fs.checksums().covers(Subject::Inode) && fs.inode(InodeNo::ROOT).is_ok())
}

/// Whether two superblocks tell of the same features and inodes of the file system itself, whatever a journal holds.
fn has_same_features(a: &Superblock, b: &Superblock) -> bool {
    let incompat = |s: &Superblock| s.incompat.0 & !Incompat::RECOVER.0;
    (a.compat, incompat(a), a.orphan_file, a.quota_inodes)
        == (b.compat, incompat(b), b.orphan_file, b.quota_inodes)
}

/// Whether two superblocks are alike but for their checksums.
fn is_same_but_sum(a: &Superblock, b: &Superblock) -> bool {
    a.as_bytes()[..guess::CHECKSUM_AT] == b.as_bytes()[..guess::CHECKSUM_AT]
}

/// Whether a superblock has a checksum, and that is right.
fn has_right_sum(superblock: &Superblock, options: &OpenOptions) -> bool {
    let sums = Checksums::new(Crc32c::new(options.providers.cpu()), superblock);
    sums.is_ok_and(|sums| {
        sums.covers(Subject::Superblock)
            && sums.fits(Subject::Superblock, &Context::default(), &superblock.as_bytes()[..])
    })
}

/// The superblock of these bytes, with the right checksum.
pub(crate) fn seal(options: &OpenOptions, raw: &[u8; SUPERBLOCK_SIZE]) -> Result<Superblock> {
    let superblock = Superblock::from_bytes(raw)?;
    let sums = Checksums::new(Crc32c::new(options.providers.cpu()), &superblock)?;
    if !sums.covers(Subject::Superblock) {
        return Ok(superblock);
    }
    let mut raw = *raw;
    sums.store(recipe(Subject::Superblock), &Context::default(), &mut raw);
    Superblock::from_bytes(&raw)
}

fn fix() -> Fix {
    Fix::in_place(SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Subject::Superblock, Context::default())
}

/// Verifies the primary superblock's checksum. Where it is said to have none, none may fit it.
fn verify_primary(superblock: &Superblock, options: &OpenOptions) -> Result<()> {
    let place = Place::of(Structure::Superblock);
    verify(superblock, options, place)?;
    let summed = guess::with_checksum(superblock.as_bytes());
    match summed.and_then(|raw| Superblock::from_bytes(&raw).ok()) {
        Some(other) if has_right_sum(&other, options) => {
            Err(place.malformed("lost the feature metadata_csum"))
        }
        _ => Ok(()),
    }
}

fn verify(superblock: &Superblock, options: &OpenOptions, place: Place) -> Result<()> {
    let checksums = Checksums::new(Crc32c::new(options.providers.cpu()), superblock)?;
    checksums.verify(Subject::Superblock, &Context::default(), &superblock.as_bytes()[..], place)
}

/// Whether two superblocks agree on all that other checksums and places depend on.
fn same_file_system(a: &Superblock, b: &Superblock) -> bool {
    let facts = |s: &Superblock| {
        (
            (s.uuid, s.checksum_seed, s.blocks, s.block_size, s.cluster_size, s.blocks_per_group),
            (s.inodes, s.inodes_per_group, s.inode_size, s.descriptor_size, s.first_data_block),
            (s.ro_compat, s.first_meta_bg, s.backup_groups, s.journal_inode),
        )
    };
    facts(a) == facts(b)
}

/// The first copy of the superblock that is sound.
fn find_copy(
    device: &dyn BlockDevice,
    options: &OpenOptions,
    primary: Option<&Superblock>,
) -> Option<Superblock> {
    copies(device, options, primary).next()
}

/// Copies of the superblock that are sound, where the primary one or the usual layouts place them.
pub(crate) fn copies(
    device: &dyn BlockDevice,
    options: &OpenOptions,
    primary: Option<&Superblock>,
) -> impl Iterator<Item = Superblock> {
    let mut places = Vec::new();
    if let Some(layout) = primary.and_then(|primary| Layout::new(primary).ok()) {
        places.extend(layout.copy_groups().take(16).filter_map(|group| layout.superblock_offset(group)));
    }
    // Groups are as large as their bitmaps allow, or were made smaller.
    for smaller in 0..=5 {
        for block_size in (10..=16).map(|log| 1u64 << log) {
            for group in [1, 3, 5, 7, 9] {
                let block = u64::from(block_size == 1024) + group * ((8 * block_size) >> smaller);
                places.push(block * block_size);
            }
        }
    }
    places.into_iter().filter_map(move |offset| {
        let copy = read_superblock(device, offset).ok()?;
        let is_copy = copy.group != 0 && copy.incompat.check_readable().is_ok();
        let place = Place::of(Structure::BackupSuperblock);
        let offsets = Layout::new(&copy).ok()?.superblock_offset(copy.group());
        (is_copy && offsets == Some(offset) && verify(&copy, options, place).is_ok()).then_some(copy)
    })
}
