//! Checks of the superblock alone: numbers in their ranges, and features that go together.

use casemate_blockdev::usize_of;

use crate::check::findings::{FindingKind, Findings};
use crate::error::{Counted, Place, Result, Structure};
use crate::format::features::{Compat, Incompat, RoCompat, unknown};
use crate::format::group::GroupDescriptor;
use crate::format::inode::OLD_INODE_SIZE;
use crate::format::superblock::Superblock;
use crate::read::fs::Ext4;
use crate::units::{GroupNo, InodeNo};

/// The reserved inodes that quota files may have: of users and of groups.
const OWN_QUOTA: [InodeNo; 2] = [InodeNo::USER_QUOTA, InodeNo::GROUP_QUOTA];

/// The greatest logarithm of groups that keep their metadata together, and the largest descriptor in bytes.
const MOST_FLEX: u8 = 31;
const MOST_DESCRIPTOR: u16 = 1024;

/// The encoding of names without regard to case that everybody knows: UTF-8 of Unicode 12.1.
const UTF8: u16 = 1;

pub(crate) fn check(fs: &Ext4, findings: &Findings) {
    numbers(fs, findings);
    features(fs.superblock(), findings);
}

/// Refuses a file system whose superblock has faults: for what writes it over its copies, the last ones that may be sound.
pub(crate) fn require_sound(fs: &Ext4) -> Result<()> {
    let findings = Findings::default();
    check(fs, &findings);
    match findings.first_fault() {
        Some(finding) => {
            let text = |text: &str| format!("the file system is damaged; repair it first: {text}");
            Err(finding.into_error().map_text(text))
        }
        None => Ok(()),
    }
}

fn place() -> Place {
    Place::of(Structure::Superblock)
}

fn numbers(fs: &Ext4, findings: &Findings) {
    let superblock = fs.superblock();
    let layout = fs.layout();
    let wrong = |text: String| findings.say(FindingKind::SuperblockField, place(), text);
    if superblock.blocks_reserved > superblock.blocks / 2 {
        wrong(format!("{} of {} blocks are reserved", superblock.blocks_reserved, superblock.blocks));
    }
    let reserved = superblock.reserved_descriptor_blocks();
    if u32::from(reserved) > superblock.block_size / 4 {
        wrong(format!("{reserved} blocks are reserved for descriptors"));
    }
    if !superblock.ro_compat.has(RoCompat::BIGALLOC) && superblock.has_fragments() {
        wrong("clusters are not blocks without the feature bigalloc".to_owned());
    }
    if superblock.blocks_per_group < 8 {
        wrong(format!("{} blocks per group", superblock.blocks_per_group));
    }
    if superblock.inodes_per_group < superblock.block_size / superblock.inode_size {
        wrong(format!("{} inodes per group fill no block", superblock.inodes_per_group));
    }
    if superblock.revision() > 0 {
        if superblock.first_inode < 11 || superblock.first_inode > superblock.inodes {
            wrong(format!("the first inode for files is {}", superblock.first_inode));
        }
        let room = usize_of(superblock.inode_size) - OLD_INODE_SIZE;
        for (what, size) in
            [("least", superblock.least_extra_fields()), ("wanted", superblock.extra_fields())]
        {
            if room > 0 && (usize::from(size) > room || size % 4 != 0) {
                wrong(format!("the {what} size of extra fields is {size}"));
            }
        }
    }
    let has_meta = superblock.incompat.has(Incompat::META_BG);
    if has_meta && superblock.first_meta_bg > layout.descriptor_blocks() {
        wrong(format!("the first block of descriptors that is spread is {}", superblock.first_meta_bg));
    }
    if superblock.log_groups_per_flex() > MOST_FLEX {
        wrong(format!("2^{} groups keep their metadata together", superblock.log_groups_per_flex()));
    }
    let size = superblock.stored_descriptor_size();
    if size > MOST_DESCRIPTOR || size != 0 && !size.is_power_of_two() {
        wrong(format!("descriptors of {size} bytes"));
    }
    for (kind, number) in superblock.quota_inodes.into_iter().enumerate() {
        let Some(number) = number else { continue };
        let is_own = OWN_QUOTA.get(kind) == Some(&number);
        let is_usual = !superblock.is_reserved(number) && number.get() <= superblock.inodes;
        if !(is_own || is_usual) {
            let found = number.get().into();
            findings.number(FindingKind::QuotaInode, place(), "the inode of a quota file", found, 0);
        }
    }
}

fn features(superblock: &Superblock, findings: &Findings) {
    let Superblock { compat, incompat, ro_compat, .. } = superblock;
    let odd = [
        (
            incompat.has(Incompat::CSUM_SEED) && !ro_compat.has(RoCompat::METADATA_CSUM),
            "metadata_csum_seed without metadata_csum",
        ),
        (incompat.has(Incompat::BITS64) && !incompat.has(Incompat::EXTENTS), "64bit without extent"),
        (
            superblock.revision() == 0 && superblock.stored_features() != [0; 3],
            "the first revision, which has no features, with some",
        ),
        (
            !ro_compat.has(RoCompat::QUOTA) && superblock.quota_inodes != [None; 3],
            "a quota file without quota",
        ),
    ];
    for (_, text) in odd.into_iter().filter(|(is, _)| *is) {
        findings.say(FindingKind::OddFeatures, place(), text);
    }
    if ro_compat.has(RoCompat::METADATA_CSUM) && ro_compat.has(RoCompat::GDT_CSUM) {
        findings.say(FindingKind::ChecksumFeatures, place(), "metadata_csum with uninit_bg");
    }
    let resize = compat.has(Compat::RESIZE_INODE);
    if resize && incompat.has(Incompat::META_BG) {
        let text = "resize_inode with meta_bg, which reserves no blocks for descriptors";
        findings.say(FindingKind::Features, place(), text);
    }
    let reserved = superblock.reserved_descriptor_blocks();
    if !resize && reserved != 0 {
        let text = format!("{reserved} blocks are reserved for descriptors without the feature resize_inode");
        findings.say(FindingKind::Features, place(), text);
    }
    if incompat.has(Incompat::CASEFOLD) && superblock.encoding.0 != UTF8 {
        let text =
            format!("names without regard to case have the unknown encoding {}", superblock.encoding.0);
        findings.say(FindingKind::Features, place(), text);
    }
    let unknown = unknown(*compat, *ro_compat);
    if unknown != 0 {
        let text = format!("features {unknown:#x} are not known, and what they are for is not checked");
        findings.say(FindingKind::Features, place(), text);
    }
    if compat.has(Compat::ORPHAN_FILE) && !compat.has(Compat::HAS_JOURNAL) {
        findings.say(FindingKind::Features, place(), "orphan_file without has_journal");
    }
    if ro_compat.has(RoCompat::ORPHAN_PRESENT) && !compat.has(Compat::ORPHAN_FILE) {
        findings.say(FindingKind::Features, place(), "orphan_present without orphan_file");
    }
}

/// Compares the superblock's totals with the sums of the groups' counts. The kernel keeps the totals lazily.
pub(crate) fn totals(fs: &Ext4, findings: &Findings) -> Result<()> {
    let (mut clusters, mut inodes) = (0u64, 0u64);
    for group in GroupNo::first(fs.layout().groups) {
        let free = fs.with_raw_descriptor(group, |raw| {
            GroupDescriptor::from_bytes(raw).map(|found| (found.free_clusters(), found.free_inodes()))
        })??;
        clusters += u64::from(free.0);
        inodes += u64::from(free.1);
    }
    let superblock = fs.superblock();
    let blocks = clusters.saturating_mul(fs.layout().cluster_blocks.into());
    let totals = [
        (Counted::FreeBlocks, superblock.blocks_free, blocks),
        (Counted::FreeInodes, superblock.inodes_free.into(), inodes),
    ];
    for (what, found, expected) in totals.into_iter().filter(|(_, found, expected)| found != expected) {
        findings.number(FindingKind::FreeTotal, place(), what, found, expected);
    }
    Ok(())
}
