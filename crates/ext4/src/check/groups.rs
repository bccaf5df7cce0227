//! Descriptors and bitmaps of all groups.

use casemate_providers::Work;

use crate::check::findings::{Counts, Findings, Fix};
use crate::check::inodes::{self, Budget};
use crate::error::{Error, Place, Result, Structure};
use crate::format::csum::{Context, Kind};
use crate::format::group::{BLOCK_UNINIT, Bitmap, GroupDescriptor, INODE_UNINIT};
use crate::read::fs::Ext4;

/// What the check of a group's inodes needs from its descriptor and bitmap.
#[derive(Clone, Debug)]
pub(crate) struct GroupInodes {
    pub group: u32,
    /// The first block of the inode table.
    pub table: u64,
    /// How many inodes from the table's start on were ever used.
    pub used: u32,
    /// Which of them are in use, if the bitmap can be believed.
    pub bitmap: Option<Vec<u8>>,
}

/// Checks the copies of all descriptors.
pub(crate) fn check_descriptor_copies(fs: &Ext4, work: &Work<'_>, findings: &Findings) -> Result<()> {
    let layout = fs.layout();
    let subject = fs.checksums().descriptor_subject();
    work.pool.run(
        u64::from(layout.descriptor_blocks()),
        || (),
        |(), index| {
            // OK to truncate: there are fewer blocks than groups.
            let index = index as u32;
            let first = index * layout.descriptors_per_block();
            for (at, block) in layout.descriptor_copies(index) {
                let place = Place::group(Structure::BackupGroupDescriptor, at);
                if let Err(error) = fs.check_blocks(block, 1, place) {
                    findings.damage(error)?;
                    continue;
                }
                let bytes = fs.read_block(block)?;
                for (group, raw) in
                    (first..layout.groups).zip(bytes.chunks_exact(layout.descriptor_size as usize))
                {
                    let context = Context { group, ..Context::default() };
                    let place = Place::group(Structure::BackupGroupDescriptor, group).at(block);
                    let offset =
                        layout.offset(block) + u64::from(group - first) * u64::from(layout.descriptor_size);
                    let fix = Fix::in_place(offset, raw.len(), subject, context);
                    findings.verify(fs, subject, &context, raw, place, Some(fix));
                }
            }
            Ok(())
        },
    )
}

/// Checks all groups: descriptors, bitmaps, and from the inodes on everything that inodes lead to.
pub(crate) fn check_groups(fs: &Ext4, work: &Work<'_>, findings: &Findings) -> Result<()> {
    // First descriptors and bitmaps, which are few; then the tables in pieces that all workers share.
    let groups = u64::from(fs.layout().groups);
    let metadata = fs.checksums().kind() == Kind::Metadata;
    let budget = Budget::new(fs.layout().blocks);
    for start in (0..groups).step_by(GROUPS_AT_ONCE) {
        let count = (groups - start).min(GROUPS_AT_ONCE as u64);
        let found = std::sync::Mutex::new(Vec::new());
        work.pool.run(
            count,
            || (),
            |(), number| {
                // OK to truncate: group numbers fit.
                let group = check_group(fs, (start + number) as u32, findings)?;
                if let (Some(group), true) = (group, metadata) {
                    found.lock().expect("no worker panicked").push(group);
                }
                Ok::<_, Error>(())
            },
        )?;
        let found = found.into_inner().expect("no worker panicked");
        inodes::check_tables(fs, &found, &budget, work, findings)?;
    }
    Ok(())
}

/// Groups whose bitmaps are in memory at once: 64 MiB of them with the largest blocks.
const GROUPS_AT_ONCE: usize = 1024;

fn check_group(fs: &Ext4, group: u32, findings: &Findings) -> Result<Option<GroupInodes>> {
    let mut counts = Counts::default();
    // What is counted are checksums.
    let kind = fs.checksums().kind();
    if kind != Kind::None {
        counts.add(Structure::GroupDescriptor, 1);
    }
    let mut count = |bitmap| {
        if kind == Kind::Metadata {
            counts.add(bitmap, 1);
        }
    };
    let raw = fs.with_raw_descriptor(group, <[u8]>::to_vec)?;
    let place = Place::group(Structure::GroupDescriptor, group);
    let context = Context { group, ..Context::default() };
    let subject = fs.checksums().descriptor_subject();
    let fix = Fix::in_place(fs.descriptor_offset(group), raw.len(), subject, context);
    let sound = findings.note(fs.checksums().verify(subject, &context, &raw, place), Some(fix));
    let descriptor = GroupDescriptor::from_bytes(&raw)?;
    let layout = fs.layout();
    let flags = descriptor.flags();
    let mut bitmap = None;
    if sound {
        if flags & BLOCK_UNINIT == 0 {
            let bits = (layout.clusters_per_group, layout.clusters_in(group));
            count(Structure::BlockBitmap);
            check_bitmap(fs, group, Bitmap::Blocks, descriptor, bits, findings)?;
        }
        if flags & INODE_UNINIT == 0 {
            let bits = (layout.inodes_per_group, layout.inodes_per_group);
            count(Structure::InodeBitmap);
            bitmap = check_bitmap(fs, group, Bitmap::Inodes, descriptor, bits, findings)?;
        }
    }
    findings.add(counts);
    let table = match sound {
        true => Some(descriptor.inode_table()),
        false => confirmed_table(fs, group, descriptor.inode_table())?,
    };
    let Some(table) = table.filter(|_| flags & INODE_UNINIT == 0) else { return Ok(None) };
    if let Err(error) = fs.check_blocks(table, layout.inode_table_blocks(), place) {
        findings.damage(error)?;
        return Ok(None);
    }
    let used = layout.inodes_per_group.saturating_sub(descriptor.unused_inodes());
    Ok(Some(GroupInodes { group, table, used, bitmap }))
}

/// Checks a bitmap and returns its bytes if they can be believed: they have a checksum. The numbers are those of bits in
/// any group, which the checksum covers, and in this one; all behind these must be set, so that nobody takes what is not
/// there.
fn check_bitmap(
    fs: &Ext4,
    group: u32,
    which: Bitmap,
    descriptor: GroupDescriptor<'_>,
    (covered, used): (u32, u32),
    findings: &Findings,
) -> Result<Option<Vec<u8>>> {
    let block = which.block(descriptor);
    if let Err(error) = fs.check_blocks(block, 1, Place::group(Structure::GroupDescriptor, group)) {
        return findings.damage(error).map(|()| None);
    }
    let mut bytes = fs.read_block(block)?;
    let place = Place::group(which.structure(), group).at(block);
    let summed = &bytes[..covered as usize / 8];
    let result = fs.checksums().verify_bitmap(which.subject(), summed, descriptor.as_bytes(), place);
    let value = fs.checksums().update(None, summed);
    if !findings.note(result, Some(Fix::Bitmap { subject: which.subject(), group, value })) {
        return Ok(None);
    }
    let padding = used as usize;
    // Within the byte where it begins, then byte by byte.
    let is_set = match bytes[padding / 8..].split_first() {
        Some((first, rest)) => !first >> (padding % 8) == 0 && rest.iter().all(|byte| *byte == 0xff),
        None => true,
    };
    if !is_set {
        findings.damage(place.malformed(format!("not all bits behind the group's {used} are set")))?;
    }
    bytes.truncate(covered as usize / 8);
    Ok((fs.checksums().kind() == Kind::Metadata).then_some(bytes))
}

/// Where the inode table of a group with a damaged descriptor lies, if a sound copy of the descriptor says
/// the same or there is no copy.
fn confirmed_table(fs: &Ext4, group: u32, table: u64) -> Result<Option<u64>> {
    let layout = fs.layout();
    let per_block = layout.descriptors_per_block();
    let at = (group % per_block) as usize * layout.descriptor_size as usize;
    let subject = fs.checksums().descriptor_subject();
    for (_, block) in layout.descriptor_copies(group / per_block) {
        if !layout.contains(block, 1) {
            continue;
        }
        let bytes = fs.read_block(block)?;
        let raw = &bytes[at..at + layout.descriptor_size as usize];
        let context = Context { group, ..Context::default() };
        let place = Place::group(Structure::BackupGroupDescriptor, group);
        if fs.checksums().verify(subject, &context, raw, place).is_ok() {
            return Ok(Some(GroupDescriptor::from_bytes(raw)?.inode_table()));
        }
    }
    Ok(Some(table))
}
