//! Choices of a build that would have made two file systems more alike.

use casemate_blockdev::Advice;

use super::difference::Difference;
use crate::format::bytes::uuid_text;
use crate::format::superblock::Superblock;
use crate::format::value::FieldValue;

/// Differences that choices of a build decide, as far as they were found.
#[derive(Debug, Default)]
pub(super) struct Choices {
    /// Times other than those of changes of inodes.
    has_times: bool,
    /// Times at which inodes and the superblock were changed, which follow from other differences of files.
    has_changes: bool,
    has_owners: bool,
    /// Names, contents and attributes other than times and owners.
    has_files: bool,
}

impl Choices {
    /// Notes a difference.
    pub fn note(&mut self, difference: &Difference) {
        match difference {
            Difference::Superblock { field: "last written" | "last mounted", .. } => self.has_changes = true,
            Difference::Superblock { values: [FieldValue::Time(_), _], .. } => self.has_times = true,
            Difference::File { field: "changed", values: [Some(FieldValue::Time(_)), _], .. } => {
                self.has_changes = true;
            }
            Difference::File { values: [Some(FieldValue::Time(_)), _], .. } => self.has_times = true,
            Difference::File { field: "owner" | "owning group", .. } => self.has_owners = true,
            Difference::File { .. }
            | Difference::Only { .. }
            | Difference::Xattr { .. }
            | Difference::Contents { .. } => self.has_files = true,
            _ => {}
        }
    }

    /// Advice for the two builds: the causes first, then what may follow from them.
    pub fn advice(&self, [a, b]: [&Superblock; 2], files_only: bool) -> Vec<Advice> {
        let mut advice = Vec::new();
        // A UUID that was made of the files and the choices follows from them, as does the hash seed then.
        let is_derived = [a, b].iter().all(|superblock| is_derived(&superblock.uuid)) && a.uuid != b.uuid;
        if self.has_files && is_derived && !files_only {
            advice.push(Advice::BuildFiles);
        }
        if self.has_times || self.has_changes && !self.has_files {
            advice.push(Advice::BuildTime);
        }
        if self.has_owners {
            advice.push(Advice::BuildOwner);
        }
        let mut add = |is_other: bool, of: Advice| {
            if is_other && !files_only {
                advice.push(of);
            }
        };
        add(a.block_size != b.block_size, Advice::BuildBlockSize(a.block_size.into()));
        let size = a.blocks.saturating_mul(a.block_size.into());
        add(size != b.blocks.saturating_mul(b.block_size.into()), Advice::BuildSize(size));
        add(a.inode_size != b.inode_size, Advice::BuildInodeSize(a.inode_size.into()));
        add(a.inodes != b.inodes, Advice::BuildInodes(a.inodes.into()));
        let features = features([a, b]);
        add(!features.is_empty(), Advice::BuildFeatures(features));
        add(a.label() != b.label(), Advice::BuildLabel(a.label()));
        if is_derived && !advice.is_empty() {
            return advice;
        }
        let mut add = |is_other: bool, of: Advice| {
            if is_other && !files_only {
                advice.push(of);
            }
        };
        add(a.uuid != b.uuid, Advice::BuildUuid(uuid_text(&a.uuid)));
        let seed = seed(a);
        add(a.hash.seed != b.hash.seed, Advice::BuildHashSeed(uuid_text(&seed)));
        advice
    }
}

/// Whether a UUID is marked as one that was computed (version 8 of RFC 9562).
fn is_derived(uuid: &[u8; 16]) -> bool {
    uuid[6] >> 4 == 8
}

/// The hash seed as bytes of a UUID.
fn seed(superblock: &Superblock) -> [u8; 16] {
    let mut seed = [0; 16];
    for (part, number) in seed.chunks_exact_mut(4).zip(superblock.hash.seed) {
        part.copy_from_slice(&number.to_le_bytes());
    }
    seed
}

/// Features that the first file system has and the second one not, and with a `^` those that it has not.
fn features(superblocks: [&Superblock; 2]) -> String {
    let names = superblocks.map(|superblock| {
        let text = format!("{} {} {}", superblock.compat, superblock.incompat, superblock.ro_compat);
        // Marks of a state, which nobody chooses.
        let is_state = |name: &&str| matches!(*name, "needs_recovery" | "orphan_present");
        text.split_whitespace().filter(|name| !is_state(name)).map(str::to_owned).collect::<Vec<_>>()
    });
    let [a, b] = &names;
    let added = a.iter().filter(|name| !b.contains(name)).cloned();
    let removed = b.iter().filter(|name| !a.contains(name)).map(|name| format!("^{name}"));
    added.chain(removed).collect::<Vec<_>>().join(",")
}
