//! Choices of a build that would have made two file systems more alike.

use casemate_blockdev::Advice;

use super::{DiffOptions, DiffSide};
use crate::format::bytes::uuid_text;
use crate::format::superblock::Superblock;
use crate::format::value::FieldValue;

/// Differences that choices of a build decide, as far as they were found.
#[derive(Debug, Default)]
pub(super) struct Choices {
    has_times: bool,
    has_owners: bool,
}

impl Choices {
    /// Notes a field of the superblock.
    pub fn superblock(&mut self, values: &[FieldValue; 2]) {
        self.has_times |= matches!(values, [FieldValue::Time(_), _]);
    }

    /// Notes an attribute of a file.
    pub fn file(&mut self, name: &str, values: &[FieldValue; 2]) {
        self.has_times |= matches!(values, [FieldValue::Time(_), _]);
        self.has_owners |= ["owner", "owning group"].contains(&name);
    }

    /// Advice for the two builds: the causes first, then what may follow from them.
    pub fn advice(&self, sides: [&DiffSide; 2], options: DiffOptions) -> Vec<Advice> {
        let [a, b] = sides.map(|side| side.fs.superblock());
        let mut advice = Vec::new();
        if self.has_times {
            advice.push(Advice::BuildTime);
        }
        if self.has_owners {
            advice.push(Advice::BuildOwner);
        }
        let mut add = |is_other: bool, of: Advice| {
            if is_other && !options.files_only {
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
        add(a.uuid != b.uuid, Advice::BuildUuid(uuid_text(&a.uuid)));
        let seed = seed(a);
        add(a.hash.seed != b.hash.seed, Advice::BuildHashSeed(uuid_text(&seed)));
        advice
    }
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
