//! Guesses at a superblock some of whose numbers are wrong: what they can be, by the others, by a copy, and by what lies on the
//! disk. None is more than a guess: whoever asks compares where each of them leads.

use std::ops::Range;

use super::*;
use crate::format::layout::Layout;

/// Where the group of a copy stands, and the checksum.
const GROUP_AT: Range<usize> = 0x5a..0x5c;
pub(crate) const CHECKSUM_AT: usize = 0x3fc;

/// Bytes that change while a file system is used, and that copies don't follow: counts, times, state, the list of orphans,
/// errors that were noted, the checksum.
const OWN: [Range<usize>; 13] = [
    0xc..0x14,
    0x2c..0x36,
    0x3a..0x3c,
    0x40..0x44,
    GROUP_AT,
    0x88..0xc8,
    0xe8..0xec,
    0x158..0x15c,
    0x178..0x180,
    0x194..0x200,
    0x248..0x24c,
    0x274..0x27c,
    0x3fc..0x400,
];

/// The copy of the journal's map, with its kind: copies have it as it was when the journal was made.
const OWN_MAP: [Range<usize>; 2] = [0xfd..0xfe, 0x10c..0x150];

/// The sets of features.
const FEATURES: [Le32; 3] = [COMPAT, INCOMPAT, RO_COMPAT];

/// Features that say how a file system was left, and nothing of what it is: copies don't follow.
const STATE: [u32; 3] = [0, Incompat::RECOVER.0, RoCompat::ORPHAN_PRESENT.0];

/// Features that only add something, and that a mounted file system may get by itself: those of copies are its own, too, and
/// it may have more.
const ADDED: [u32; 3] = [
    Compat::EXT_ATTR.0,
    0,
    RoCompat::LARGE_FILE.0 | RoCompat::DIR_NLINK.0 | RoCompat::HUGE_FILE.0 | RoCompat::EXTRA_ISIZE.0,
];

/// Groups that mke2fs lets keep their metadata together, as a power of two.
const USUAL_FLEX: u8 = 4;

/// The inode that mke2fs gives the file of orphans.
const USUAL_ORPHAN_FILE: u32 = OLD_FIRST_INODE + 1;

/// Bytes of extra fields in inodes of 256 bytes.
const USUAL_EXTRA: u16 = 32;

/// Facts outside of the superblock that its numbers can be guessed by.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hints {
    /// Bytes of the device.
    pub size: u64,
    /// Blocks that the inode for resizing reserves.
    pub reserved: Option<u16>,
    /// True if the root has a tree of extents.
    pub has_extents: bool,
    /// True if the root's names say which kind of file they lead to.
    pub has_types: bool,
    /// True if there is a file of 2 GiB and more.
    pub has_large: bool,
}

/// A guess: the bytes of a superblock, with the old checksum, and what is guessed.
pub(crate) type Guess = (&'static str, [u8; SUPERBLOCK_SIZE]);

/// A change of a superblock's bytes.
type Change<'a> = &'a dyn Fn(&mut [u8]);

/// Superblocks by a copy: with its features alone, with its sizes and places, and with all of these. Counts and times stay.
pub(crate) fn of_copy(raw: &[u8; SUPERBLOCK_SIZE], copy: &[u8; SUPERBLOCK_SIZE]) -> [Guess; 3] {
    let mut all = *copy;
    for own in OWN {
        all[own.clone()].copy_from_slice(&raw[own]);
    }
    // One that was overwritten leads nowhere.
    if JOURNAL_COPY_KIND.get(raw) == 1 {
        for own in OWN_MAP {
            all[own.clone()].copy_from_slice(&raw[own]);
        }
    }
    let (mut numbers, mut features) = (all, *raw);
    for (field, (state, added)) in FEATURES.into_iter().zip(STATE.into_iter().zip(ADDED)) {
        let bits = field.get(copy) & !state | field.get(raw) & (state | added);
        field.set(&mut numbers, field.get(raw));
        field.set(&mut features, bits);
        field.set(&mut all, bits);
    }
    GROUP.set(&mut all, 0);
    GROUP.set(&mut numbers, 0);
    [("features", features), ("sizes and places", numbers), ("sizes, places and features", all)]
}

/// Superblocks that a damaged one may have been, by a copy: with all that copies follow, and with single pieces of it. The first
/// has what the kernel sets in the primary superblock alone, too: it is the likeliest where no checksum tells.
pub(crate) fn by_copy(
    raw: &[u8; SUPERBLOCK_SIZE],
    copy: &[u8; SUPERBLOCK_SIZE],
) -> Vec<[u8; SUPERBLOCK_SIZE]> {
    let [.., (_, mut whole)] = of_copy(raw, copy);
    let mut exact = whole;
    for (field, state) in FEATURES.into_iter().zip(STATE) {
        field.set(&mut exact, field.get(copy) & !state | field.get(raw) & state);
    }
    for other in [&mut whole, &mut exact] {
        set_alone(raw, other);
        // A mark of what is not there is damage itself.
        let [compat, incompat, ro_compat] = FEATURES.map(|field| field.get(other));
        if !Compat(compat).has(Compat::HAS_JOURNAL) {
            INCOMPAT.set(other, incompat & !Incompat::RECOVER.0);
        }
        if !Compat(compat).has(Compat::ORPHAN_FILE) {
            RO_COMPAT.set(other, ro_compat & !RoCompat::ORPHAN_PRESENT.0);
        }
    }
    let mut found = vec![whole, exact];
    for mut other in [whole, exact] {
        for map in OWN_MAP {
            other[map.clone()].copy_from_slice(&copy[map]);
        }
        found.push(other);
    }
    // A copy that is older differs in more than what was damaged.
    let differs = |at: &usize| raw[*at] != exact[*at];
    let mut at = 0;
    while let Some(first) = (at..SUPERBLOCK_SIZE).find(differs) {
        let len = (first..SUPERBLOCK_SIZE).take_while(differs).count();
        let mut other = *raw;
        other[first..first + len].copy_from_slice(&exact[first..first + len]);
        found.push(other);
        at = first + len;
    }
    found
}

/// Keeps what the kernel sets in the primary superblock alone, where it had nothing before: a salt of passphrases, how names are
/// hashed, and the number that the device of a journal has by now.
fn set_alone(raw: &[u8; SUPERBLOCK_SIZE], other: &mut [u8; SUPERBLOCK_SIZE]) {
    if *ENCRYPTION_SALT.get(other) == [0; 16] {
        *ENCRYPTION_SALT.get_mut(other) = *ENCRYPTION_SALT.get(raw);
    }
    let flags = FLAGS.get(other);
    if flags & (SIGNED_HASH | UNSIGNED_HASH) == 0 {
        FLAGS.set(other, flags | FLAGS.get(raw) & (SIGNED_HASH | UNSIGNED_HASH));
    }
    if JOURNAL_DEVICE.get(other) != 0 && JOURNAL_DEVICE.get(raw) != 0 {
        JOURNAL_DEVICE.set(other, JOURNAL_DEVICE.get(raw));
    }
}

/// Superblocks with each bit flipped, one at a time.
pub(crate) fn flipped(raw: &[u8; SUPERBLOCK_SIZE]) -> impl Iterator<Item = [u8; SUPERBLOCK_SIZE]> {
    let bits = (0..SUPERBLOCK_SIZE).flat_map(|at| (0..8).map(move |bit| (at, bit)));
    bits.map(|(at, bit)| {
        let mut other = *raw;
        other[at] ^= 1 << bit;
        other
    })
}

/// A superblock that has the feature of checksums; `None` if it has it as it is.
pub(crate) fn with_checksum(raw: &[u8; SUPERBLOCK_SIZE]) -> Option<[u8; SUPERBLOCK_SIZE]> {
    let mut other = *raw;
    REVISION.set(&mut other, REVISION.get(raw).max(1));
    RO_COMPAT.set(&mut other, RO_COMPAT.get(raw) | RoCompat::METADATA_CSUM.0);
    (other != *raw).then_some(other)
}

/// The UUID in a superblock's bytes, whatever else is in them.
pub(crate) fn uuid(raw: &[u8; SUPERBLOCK_SIZE]) -> [u8; 16] {
    *UUID.get(raw)
}

/// Whether a superblock's bytes say that a journal must be replayed, whatever else is in them.
pub(crate) fn is_told_to_recover(raw: &[u8; SUPERBLOCK_SIZE]) -> bool {
    Incompat(INCOMPAT.get(raw)).has(Incompat::RECOVER)
}

/// How many bytes of two superblocks differ, of those that copies follow.
pub(crate) fn distance(raw: &[u8; SUPERBLOCK_SIZE], copy: &[u8; SUPERBLOCK_SIZE]) -> usize {
    let is_own = |at: usize| OWN.iter().chain(&OWN_MAP).any(|own| own.contains(&at));
    (0..SUPERBLOCK_SIZE).filter(|at| raw[*at] != copy[*at] && !is_own(*at)).count()
}

/// Whether a superblock tells of a size in all its numbers, and a copy of another one: it was resized since.
pub(crate) fn is_resized(primary: &Superblock, copy: &Superblock) -> bool {
    primary.blocks != copy.blocks && primary.inodes != copy.inodes && Layout::new(primary).is_ok()
}

/// Guesses at single numbers.
pub(crate) fn single(raw: &[u8; SUPERBLOCK_SIZE], hints: Hints) -> Vec<Guess> {
    let mut guesses = Vec::new();
    let mut guess = |what, change: Change<'_>| {
        let mut other = *raw;
        change(&mut other);
        if other != *raw {
            guesses.push((what, other));
        }
    };
    let bigalloc = RoCompat(RO_COMPAT.get(raw)).has(RoCompat::BIGALLOC);
    let bits64 = Incompat(INCOMPAT.get(raw)).has(Incompat::BITS64);
    let log_block = LOG_BLOCK_SIZE.get(raw);
    let first = u32::from(log_block == 0 && !bigalloc);
    guess("s_rev_level", &|raw| {
        if REVISION.get(raw) == 0 && [COMPAT, INCOMPAT, RO_COMPAT].iter().any(|field| field.get(raw) != 0) {
            REVISION.set(raw, 1);
        }
    });
    feature_guesses(raw, hints, &mut guess);
    guess("s_first_data_block", &|raw| FIRST_DATA_BLOCK.set(raw, first));
    if !bigalloc {
        guess("s_log_cluster_size", &|raw| LOG_CLUSTER_SIZE.set(raw, log_block));
        guess("s_clusters_per_group", &|raw| CLUSTERS_PER_GROUP.set(raw, BLOCKS_PER_GROUP.get(raw)));
        guess("s_blocks_per_group", &|raw| BLOCKS_PER_GROUP.set(raw, CLUSTERS_PER_GROUP.get(raw)));
    }
    let has_flex = Incompat(INCOMPAT.get(raw)).has(Incompat::FLEX_BG);
    guess("s_log_groups_per_flex", &|raw| {
        LOG_GROUPS_PER_FLEX.set(raw, if has_flex { USUAL_FLEX } else { 0 })
    });
    let reserved = match Compat(COMPAT.get(raw)).has(Compat::RESIZE_INODE) {
        true => hints.reserved,
        false => Some(0),
    };
    if let Some(reserved) = reserved {
        guess("s_reserved_gdt_blocks", &|raw| RESERVED_DESCRIPTOR_BLOCKS.set(raw, reserved));
    }
    if Compat(COMPAT.get(raw)).has(Compat::HAS_JOURNAL) {
        guess("s_journal_inum", &|raw| JOURNAL_INODE.set(raw, InodeNo::JOURNAL.get()));
        guess("s_journal_uuid and s_journal_dev", &|raw| {
            JOURNAL_UUID.get_mut(raw).fill(0);
            JOURNAL_DEVICE.set(raw, 0);
        });
    }
    if !Compat(COMPAT.get(raw)).has(Compat::ORPHAN_FILE) {
        guess("s_orphan_file_inum", &|raw| ORPHAN_FILE.set(raw, 0));
    } else {
        guess("s_orphan_file_inum", &|raw| ORPHAN_FILE.set(raw, USUAL_ORPHAN_FILE));
    }
    if RoCompat(RO_COMPAT.get(raw)).has(RoCompat::QUOTA) {
        for (field, usual) in QUOTA_INODES.into_iter().zip([InodeNo::USER_QUOTA, InodeNo::GROUP_QUOTA]) {
            guess("the inode of a quota file", &|raw| field.set(raw, usual.get()));
        }
    } else {
        guess("the inodes of quota files", &|raw| QUOTA_INODES.iter().for_each(|field| field.set(raw, 0)));
    }
    if !RoCompat(RO_COMPAT.get(raw)).has(RoCompat::PROJECT) {
        let [.., projects] = QUOTA_INODES;
        guess("s_prj_quota_inum", &|raw| projects.set(raw, 0));
    }
    guess("s_first_ino", &|raw| FIRST_INODE.set(raw, OLD_FIRST_INODE));
    for size in [256, 128] {
        guess("s_inode_size", &|raw| INODE_SIZE.set(raw, size));
    }
    guess("s_desc_size", &|raw| DESCRIPTOR_SIZE.set(raw, if bits64 { 64 } else { 0 }));
    guess("s_min_extra_isize", &|raw| LEAST_EXTRA_FIELDS.set(raw, USUAL_EXTRA));
    guess("s_want_extra_isize", &|raw| EXTRA_FIELDS.set(raw, USUAL_EXTRA));
    guess("s_blocks_count_hi", &|raw| BLOCKS.1.set(raw, 0));
    guess("s_checksum_type", &|raw| CHECKSUM_TYPE.set(raw, 1));
    guess("s_creator_os", &|raw| CREATOR.set(raw, 0));
    // Groups by two of their three counts.
    let data = BLOCKS.get_if(bits64, raw).saturating_sub(first.into());
    let groups = data.div_ceil(u64::from(BLOCKS_PER_GROUP.get(raw)).max(1));
    let (inodes, each) = (INODES.get(raw), INODES_PER_GROUP.get(raw));
    if let Ok(all) = u32::try_from(groups.saturating_mul(each.into())) {
        guess("s_inodes_count", &|raw| INODES.set(raw, all));
    }
    if let Some(Ok(part)) = u64::from(inodes).checked_div(groups).map(u32::try_from) {
        guess("s_inodes_per_group", &|raw| INODES_PER_GROUP.set(raw, part));
    }
    let size = 8u32.checked_shl(log_block.saturating_add(10)).unwrap_or(0);
    if !bigalloc {
        guess("s_blocks_per_group and s_clusters_per_group", &|raw| {
            BLOCKS_PER_GROUP.set(raw, size);
            CLUSTERS_PER_GROUP.set(raw, size);
        });
    }
    // Never fewer blocks than fit the inodes: an image may have been cut off.
    let held = hints.size.checked_shr(log_block.saturating_add(10)).unwrap_or(0);
    let of = |blocks: u64| {
        blocks.saturating_sub(first.into()).div_ceil(u64::from(BLOCKS_PER_GROUP.get(raw)).max(1))
            * u64::from(each)
    };
    if of(BLOCKS.get_if(bits64, raw)) != u64::from(inodes) && of(held) == u64::from(inodes) {
        guess("s_blocks_count", &|raw| BLOCKS.set_if(bits64, raw, held));
    }
    guesses
}

/// Guesses at single features.
fn feature_guesses(
    raw: &[u8; SUPERBLOCK_SIZE],
    hints: Hints,
    guess: &mut impl FnMut(&'static str, Change<'_>),
) {
    let set = |field: Le32, bits: u32| move |raw: &mut [u8]| field.set(raw, field.get(raw) | bits);
    let clear = |field: Le32, bits: u32| move |raw: &mut [u8]| field.set(raw, field.get(raw) & !bits);
    let has_equal = LOG_CLUSTER_SIZE.get(raw) == LOG_BLOCK_SIZE.get(raw)
        && CLUSTERS_PER_GROUP.get(raw) == BLOCKS_PER_GROUP.get(raw);
    if has_equal {
        guess("the feature bigalloc", &clear(RO_COMPAT, RoCompat::BIGALLOC.0));
    }
    if hints.has_types {
        guess("the feature filetype", &set(INCOMPAT, Incompat::FILETYPE.0));
    }
    if hints.has_extents {
        guess("the feature extent", &set(INCOMPAT, Incompat::EXTENTS.0));
    }
    if hints.has_large {
        guess("the feature large_file", &set(RO_COMPAT, RoCompat::LARGE_FILE.0));
    }
    if JOURNAL_INODE.get(raw) == InodeNo::JOURNAL.get() {
        guess("the feature has_journal", &set(COMPAT, Compat::HAS_JOURNAL.0));
    } else if !Compat(COMPAT.get(raw)).has(Compat::HAS_JOURNAL) {
        guess("the feature needs_recovery", &clear(INCOMPAT, Incompat::RECOVER.0));
    }
}
