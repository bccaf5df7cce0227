//! Quota files of a new file system: what each owner has in it.

use std::collections::BTreeMap;

use casemate_blockdev::{u32_of, usize_of};

use crate::build::options::Features;
use crate::format::features::RoCompat;
use crate::format::quota::{
    self, BLOCK, BLOCKS, ENTRIES, FREE_ENTRY, ID, INODES, Kind, LEVELS, ROOT, SPACE, USED, entries, slot,
};
use crate::number::u16_of;
use crate::units::InodeNo;

/// Bytes and inodes of owners, by their numbers.
pub(crate) type Usage = BTreeMap<u32, (u64, u64)>;

/// A quota file that is to be made.
#[derive(Debug)]
pub(crate) struct Quota {
    pub kind: Kind,
    /// Its inode.
    pub inode: InodeNo,
    /// Bytes of the file.
    pub size: usize,
}

/// The inode of the quota file of projects.
const PROJECTS: InodeNo = InodeNo::LOST_AND_FOUND.plus(1);

/// The inode of the quota file of projects, if there will be one: as with mke2fs, right behind lost+found.
pub(crate) fn project_inode(features: &Features, kinds: Option<[bool; 3]>) -> Option<InodeNo> {
    let is_wanted = kinds_of(features, kinds).any(|kind| kind == Kind::Project);
    is_wanted.then_some(PROJECTS)
}

/// Whose usage is counted: as mke2fs has it, users and groups, and projects where there are any.
fn kinds_of(features: &Features, kinds: Option<[bool; 3]>) -> impl Iterator<Item = Kind> {
    let has_projects = features.ro_compat.has(RoCompat::PROJECT);
    let kinds = kinds.unwrap_or([true, true, has_projects]);
    let has_quota = features.ro_compat.has(RoCompat::QUOTA);
    Kind::ALL
        .into_iter()
        .zip(kinds)
        .filter_map(move |(kind, is_wanted)| (has_quota && is_wanted).then_some(kind))
}

/// The quota files of a file system, for the owners that there are of each kind.
pub(crate) fn plan(
    features: &Features,
    kinds: Option<[bool; 3]>,
    owners: impl Fn(Kind) -> Usage,
) -> Vec<Quota> {
    let kinds = kinds_of(features, kinds).map(|kind| {
        let inode = match kind {
            Kind::User => InodeNo::USER_QUOTA,
            Kind::Group => InodeNo::GROUP_QUOTA,
            Kind::Project => PROJECTS,
        };
        Quota { kind, inode, size: bytes(kind, &owners(kind)).len() }
    });
    kinds.collect()
}

/// A quota file's bytes, whose number depends on the owners alone.
pub(crate) fn bytes(kind: Kind, usage: &Usage) -> Vec<u8> {
    let mut file = vec![0; 2 * BLOCK];
    kind.begin(&mut file);
    // The block of entries that has room, and how many are in it.
    let mut open = None;
    for (id, (space, inodes)) in usage {
        let mut node = usize_of(ROOT);
        for level in 0..LEVELS - 1 {
            node = below(&mut file, node, *id, level);
        }
        let (block, used) = open.filter(|(_, used)| *used < ENTRIES).unwrap_or_else(|| (add(&mut file), 0));
        // There are fewer blocks than ids, and few entries.
        slot(*id, LEVELS - 1).set(&mut file[node * BLOCK..], u32_of(block));
        let bytes = &mut file[block * BLOCK..][..BLOCK];
        USED.set(bytes, u16_of(used + 1));
        let entry = &mut bytes[entries().nth(used).unwrap_or(0)..];
        ID.set(entry, *id);
        SPACE.add(entry, space.cast_signed());
        INODES.add(entry, inodes.cast_signed());
        quota::keep(entry);
        open = Some((block, used + 1));
    }
    let blocks = file.len() / BLOCK;
    BLOCKS.set(&mut file, u32_of(blocks));
    if let Some((block, used)) = open
        && used < ENTRIES
    {
        FREE_ENTRY.set(&mut file, u32_of(block));
    }
    file
}

/// The node below another one for an id, made if there is none.
fn below(file: &mut Vec<u8>, node: usize, id: u32, level: usize) -> usize {
    let slot = slot(id, level);
    match slot.get(&file[node * BLOCK..]) {
        0 => {
            let new = add(file);
            slot.set(&mut file[node * BLOCK..], u32_of(new));
            new
        }
        node => usize_of(node),
    }
}

/// A block of zeros at the end.
fn add(file: &mut Vec<u8>) -> usize {
    file.resize(file.len() + BLOCK, 0);
    file.len() / BLOCK - 1
}
