//! Features that come to a file system that is there, and go.

use crate::edit::files::Files;
use crate::error::{Error, Result};
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::superblock::{Superblock, SuperblockMut};
use crate::tune::journal;

/// Features that come and go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureChange {
    list: Vec<(Feature, bool)>,
}

/// A feature of one of the three sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Feature {
    Compat(Compat),
    Incompat(Incompat),
    RoCompat(RoCompat),
}

use Feature::{Compat as C, Incompat as I, RoCompat as R};

/// Features that may come: files that are there stay as they are.
const ADDED: &[Feature] = &[
    C(Compat::HAS_JOURNAL),
    C(Compat::EXT_ATTR),
    C(Compat::DIR_INDEX),
    C(Compat::STABLE_INODES),
    I(Incompat::EA_INODE),
    I(Incompat::CSUM_SEED),
    I(Incompat::LARGEDIR),
    I(Incompat::ENCRYPT),
    I(Incompat::CASEFOLD),
    R(RoCompat::LARGE_FILE),
    R(RoCompat::HUGE_FILE),
    R(RoCompat::DIR_NLINK),
    R(RoCompat::EXTRA_ISIZE),
    R(RoCompat::VERITY),
];

/// Features that may go.
const REMOVED: &[Feature] = &[C(Compat::HAS_JOURNAL), C(Compat::ORPHAN_FILE), I(Incompat::CSUM_SEED)];

/// Features that need others: the first without the second makes no sense.
const NEEDS: &[(Feature, Feature)] = &[
    (I(Incompat::CSUM_SEED), R(RoCompat::METADATA_CSUM)),
    (R(RoCompat::VERITY), I(Incompat::EXTENTS)),
    (C(Compat::ORPHAN_FILE), C(Compat::HAS_JOURNAL)),
    (C(Compat::FAST_COMMIT), C(Compat::HAS_JOURNAL)),
];

/// The encoding that casefolded directories have, and its flags: UTF-8 of Unicode 12.1, names that are none allowed.
const ENCODING: (u16, u16) = (1, 0);

impl FeatureChange {
    /// Adds changes: names of features with commas or spaces, those with `^` in front go.
    ///
    /// # Errors
    /// `Argument` for names that no feature has.
    pub fn change(&mut self, list: &str) -> Result<()> {
        for word in list.split([',', ' ']).filter(|word| !word.is_empty()) {
            let (name, comes) = word.strip_prefix('^').map_or((word, true), |name| (name, false));
            let feature = Feature::named(name)
                .ok_or_else(|| Error::argument(format!("'{name}' is not a feature of ext4")))?;
            self.list.push((feature, comes));
        }
        Ok(())
    }

    /// Changes for a file system with this superblock.
    pub(super) fn of(&self, superblock: &Superblock) -> Result<Change> {
        let mut change = Change { set: Vec::new(), cleared: Vec::new(), superblock: superblock.clone() };
        for (feature, comes) in &self.list {
            let (own, other) = match comes {
                true => (&mut change.set, &mut change.cleared),
                false => (&mut change.cleared, &mut change.set),
            };
            other.retain(|old| old != feature);
            if feature.is_in(superblock) != *comes && !own.contains(feature) {
                own.push(*feature);
            }
        }
        for (list, may, what) in
            [(&change.set, ADDED, "added to"), (&change.cleared, REMOVED, "removed from")]
        {
            if let Some(feature) = list.iter().find(|feature| !may.contains(feature)) {
                let text = format!("the feature {feature} can't be {what} an existing file system");
                return Err(Error::unsupported(text));
            }
        }
        for (feature, needed) in NEEDS {
            if change.will_have(*feature) && !change.will_have(*needed) {
                return Err(Error::unsupported(format!("the feature {feature} needs {needed}")));
            }
        }
        if change.set.contains(&R(RoCompat::EXTRA_ISIZE)) && superblock.inode_size <= 128 {
            return Err(Error::unsupported("the feature extra_isize needs inodes of 256 bytes"));
        }
        if change.cleared.contains(&C(Compat::ORPHAN_FILE)) && superblock.ro_compat.has(RoCompat::QUOTA) {
            let text = "the feature orphan_file can't leave a file system with the feature quota";
            return Err(Error::unsupported(text));
        }
        Ok(change)
    }
}

/// The changes of a file system's features.
pub(super) struct Change {
    set: Vec<Feature>,
    cleared: Vec<Feature>,
    superblock: Superblock,
}

impl Change {
    fn will_have(&self, feature: Feature) -> bool {
        self.set.contains(&feature) || feature.is_in(&self.superblock) && !self.cleared.contains(&feature)
    }

    /// Whether the journal goes.
    pub fn removes_journal(&self) -> bool {
        self.cleared.contains(&C(Compat::HAS_JOURNAL))
    }

    /// Makes files that features need, and frees those of features that go.
    pub fn bring_files(&self, files: &mut Files, journal_size: Option<u64>) -> Result<()> {
        if self.cleared.contains(&C(Compat::ORPHAN_FILE)) {
            journal::remove_orphan_file(files)?;
        }
        if self.removes_journal() {
            journal::remove(files)?;
        }
        if self.set.contains(&C(Compat::HAS_JOURNAL)) {
            journal::create(files, journal_size)?;
        } else if journal_size.is_some() {
            return Err(Error::argument("there is a journal already; remove the feature has_journal first"));
        }
        Ok(())
    }

    /// Sets features in a superblock, and what they name there. `seed` is that of the UUID before.
    pub fn apply(&self, superblock: &mut SuperblockMut<'_>, seed: u32) {
        for feature in &self.set {
            match *feature {
                I(Incompat::CSUM_SEED) => superblock.set_checksum_seed(Some(seed)),
                // The journal was made, and named, before.
                C(Compat::HAS_JOURNAL) => superblock.add_compat(Compat::HAS_JOURNAL),
                C(feature) => superblock.add_compat(feature),
                I(feature) => superblock.add_incompat(feature),
                R(feature) => superblock.add_ro_compat(feature),
            }
            match *feature {
                I(Incompat::ENCRYPT) => superblock.set_encryption_modes(),
                I(Incompat::CASEFOLD) => superblock.set_encoding(ENCODING),
                _ => {}
            }
        }
        for feature in &self.cleared {
            match *feature {
                I(Incompat::CSUM_SEED) => superblock.set_checksum_seed(None),
                C(Compat::HAS_JOURNAL) => superblock.clear_journal(),
                C(feature) => superblock.remove_compat(feature),
                I(feature) => superblock.remove_incompat(feature),
                R(feature) => superblock.remove_ro_compat(feature),
            }
        }
    }
}

impl Feature {
    fn named(name: &str) -> Option<Feature> {
        let compat = Compat::named(name).map(C);
        let incompat =
            || Incompat::named(name).or(EXTENTS.contains(&name).then_some(Incompat::EXTENTS)).map(I);
        compat.or_else(incompat).or_else(|| RoCompat::named(name).map(R))
    }

    fn is_in(self, superblock: &Superblock) -> bool {
        match self {
            C(feature) => superblock.compat.has(feature),
            I(feature) => superblock.incompat.has(feature),
            R(feature) => superblock.ro_compat.has(feature),
        }
    }
}

/// Names that e2fsprogs takes for the feature extent.
const EXTENTS: [&str; 1] = ["extents"];

impl std::fmt::Display for Feature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            C(feature) => feature.fmt(f),
            I(feature) => feature.fmt(f),
            R(feature) => feature.fmt(f),
        }
    }
}
