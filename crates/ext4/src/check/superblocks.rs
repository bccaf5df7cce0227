//! The superblock that a check goes by: the primary one, or a copy.

use std::sync::Arc;

use casemate_blockdev::{BlockDevice, u64_of};
use casemate_primitives::crc32c::Crc32c;

use crate::check::findings::{Finding, FindingKind, Findings, Fix};
use crate::error::{Corrupt, Error, Place, Problem, Result, Structure};
use crate::format::csum::{Checksums, Context, Subject, recipe};
use crate::format::layout::Layout;
use crate::format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock, SuperblockMut, guess};
use crate::read::fs::{Ext4, OpenOptions, read_copy, read_superblock};
use crate::read::journal::Journal;
use crate::read::primary::read_primary;
use crate::units::GroupNo;

/// Copies that must agree on features that the primary superblock lost.
const MOST_AGREEING: usize = 3;

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
            let sound = verify(superblock, options, Place::of(Structure::Superblock));
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
            let copy = find_copy(&*device, options, primary.as_ref().ok());
            let Some(copy) = copy else {
                // Nothing better: a superblock with a wrong checksum still says where things are.
                let superblock = primary?;
                superblock.incompat.check_readable()?;
                findings.note(sound, Some(fix()));
                return as_far_as_it_goes(device, superblock, options, findings);
            };
            let fixable = primary.as_ref().is_ok_and(|primary| same_file_system(primary, &copy));
            findings.note(sound, fixable.then(fix));
            (primary, copy)
        }
    };
    let (primary, copy) = primary;
    // What the copies don't follow: whether the journal must be replayed.
    let copy = match primary {
        Ok(primary) if same_file_system(&primary, &copy) && primary.incompat.check_readable().is_ok() => {
            primary
        }
        _ => copy,
    };
    as_far_as_it_goes(device, copy, options, findings)
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
    let sound = primary.as_ref().ok().filter(|primary| verify(primary, options, place).is_ok());
    let opens = |superblock: &Superblock| {
        let plain = OpenOptions { superblock: None, ..options.clone() };
        Ext4::with_superblock(Arc::clone(device), superblock.clone(), &plain)
    };
    let (copy, text) = match options.superblock {
        Some(block) => (Some(read_copy(&**device, block)?), format!("the copy in block {block} is taken")),
        None => {
            if sound.is_some_and(|primary| opens(primary).is_ok()) {
                return Ok(None);
            }
            let copy = find_copy(&**device, options, primary.as_ref().ok());
            let group = copy.as_ref().map_or(0, |copy| copy.group);
            (copy, format!("is damaged; group {group} has a copy"))
        }
    };
    let Some(copy) = copy else { return Ok(None) };
    let is_same = |primary: &Superblock| same_file_system(primary, &copy) && opens(primary).is_ok();
    if let Ok(primary) = &primary
        && is_same(primary)
    {
        // At most its checksum, what copies don't follow, and features that it lost.
        let agreeing: Vec<Superblock> = copies(&**device, options, Some(primary))
            .filter(|copy| same_file_system(primary, copy))
            .take(MOST_AGREEING)
            .collect();
        let added = guess::with_added(primary.as_bytes(), agreeing.iter());
        let Some(raw) = added.filter(|_| sound.is_none()) else { return Ok(None) };
        let text = "lacks features that all its copies have";
        let finding = Finding::new(FindingKind::SuperblockField, place, Problem::Malformed(text.into()));
        return Ok(Some((finding, seal(options, &raw)?)));
    }
    let fs = opens(&copy)?;
    let journal = Journal::open(&fs).ok().flatten();
    let is_unfinished = journal.is_some_and(|journal| journal.superblock().start != 0);
    let mut raw = *copy.as_bytes();
    let mut edit = SuperblockMut { raw: &mut raw };
    edit.set_group(GroupNo::PRIMARY);
    // A journal is emptied when a file system is left in order.
    edit.set_needs_recovery(is_unfinished);
    if fs.checksums().covers(Subject::Superblock) {
        fs.checksums().store(recipe(Subject::Superblock), &Context::default(), &mut raw);
    }
    let finding = Finding::new(FindingKind::SuperblockField, place, Problem::Malformed(text.into()));
    Ok(Some((finding, Superblock::from_bytes(&raw)?)))
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
