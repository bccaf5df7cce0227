//! What users, groups and projects use, counted along with every change of an inode.
//!
//! With the feature quota hidden files hold for each of them how many bytes and inodes it has. An inode counts for its
//! three owners from when it is stored first until it is freed. Differences are collected while an operation runs and
//! added to the files at its end, so that both go into the same transaction. Limits bind users of a mounted file
//! system; as for root, nothing is refused here because of them.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::edit::Writer;
use crate::edit::inode::InodeMut;
use crate::edit::quota_file::{EntryPlace, Kind};
use crate::error::Result;
use crate::format::features::RoCompat;
use crate::format::inode::{InodeFlags, ROOT_INODE};
use crate::read::fs::Ext4;
use crate::read::xattr::XattrEntries;

/// The quota files of a file system, and what is to be added to them.
#[derive(Debug, Default)]
pub(crate) struct Quota {
    /// Their inodes, by kind; 0 where there is none.
    files: [u32; 3],
    pending: BTreeMap<(Kind, u32), Usage>,
    /// Where entries were found. Forgotten whenever something is taken back.
    places: HashMap<(Kind, u32), EntryPlace>,
    /// Inodes without any name that still count.
    unlinked: HashSet<u32>,
}

/// Bytes and inodes, or how many more or less of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub space: i64,
    pub inodes: i64,
}

impl Usage {
    fn plus(self, other: Usage) -> Usage {
        Usage {
            space: self.space.saturating_add(other.space),
            inodes: self.inodes.saturating_add(other.inodes),
        }
    }

    fn negative(self) -> Usage {
        Usage { space: -self.space, inodes: -self.inodes }
    }
}

impl Quota {
    /// That of a file system, if it has the feature.
    pub fn of(fs: &Ext4) -> Quota {
        let superblock = fs.superblock();
        let files = if superblock.ro_compat.has(RoCompat::QUOTA) { superblock.quota_inodes } else { [0; 3] };
        Quota { files, ..Quota::default() }
    }

    /// Forgets what an operation that failed did.
    pub fn roll_back(&mut self) {
        self.pending.clear();
        self.places.clear();
    }

    fn is_active(&self) -> bool {
        self.files != [0; 3]
    }

    fn add(&mut self, owners: [u32; 3], change: Usage) {
        for (kind, owner) in Kind::ALL.into_iter().zip(owners) {
            if self.files[kind as usize] != 0 {
                let sum = self.pending.entry((kind, owner)).or_default();
                *sum = sum.plus(change);
            }
        }
    }
}

impl Writer {
    /// Counts the difference that storing an inode makes; `freed` says that nothing of it will be left.
    pub(crate) fn count_stored(&mut self, inode: &InodeMut, freed: bool) -> Result<()> {
        if !self.quota.is_active() || !self.counts(inode) {
            return Ok(());
        }
        let number = inode.number();
        let unlinked = self.quota.unlinked.contains(&number);
        let old = self.unlinked_inode_mut(number)?;
        let moved = old.owners() != inode.owners();
        // Values of attributes in inodes of their own count for whoever has the attribute.
        let values = if moved { self.value_inodes(&old)? } else { 0 };
        if old.links() > 0 || unlinked {
            let usage = Usage { inodes: 1 + values, ..self.space(&old) };
            self.quota.add(old.owners(), usage.negative());
        }
        if !freed && (inode.links() > 0 || unlinked) {
            let usage = Usage { inodes: 1 + values, ..self.space(inode) };
            self.quota.add(inode.owners(), usage);
        }
        if freed {
            self.quota.unlinked.remove(&number);
        }
        Ok(())
    }

    /// Counts an inode that was just taken.
    pub(crate) fn count_created(&mut self, inode: &InodeMut) {
        let is_used = inode.links() > 0 || self.quota.unlinked.contains(&inode.number());
        if self.quota.is_active() && self.counts(inode) && is_used {
            let usage = Usage { inodes: 1, ..self.space(inode) };
            self.quota.add(inode.owners(), usage);
        }
    }

    /// Lets an inode count though it has lost its last name: it is freed later.
    pub(crate) fn count_unlinked(&mut self, number: u32) {
        self.quota.unlinked.insert(number);
    }

    /// Counts inodes that values of an inode's attributes lie in, for the owners that it is stored with.
    pub(crate) fn count_values(&mut self, owner: &InodeMut, change: i64) -> Result<()> {
        if self.quota.is_active() && self.counts(owner) {
            let owners = self.unlinked_inode_mut(owner.number())?.owners();
            self.quota.add(owners, Usage { space: 0, inodes: change });
        }
        Ok(())
    }

    /// Adds what was counted to the files. The last part of each operation.
    pub(crate) fn settle_quota(&mut self) -> Result<()> {
        for ((kind, id), change) in std::mem::take(&mut self.quota.pending) {
            if change == Usage::default() {
                continue;
            }
            let file = self.quota.files[kind as usize];
            let place = match self.quota.places.get(&(kind, id)) {
                Some(place) => *place,
                None => self.quota_entry(file, kind, id)?,
            };
            if self.change_quota(file, place, change)? {
                self.quota.places.insert((kind, id), place);
            } else {
                self.remove_quota_entry(file, id)?;
                self.quota.places.remove(&(kind, id));
            }
        }
        Ok(())
    }

    /// Whether an inode counts for anybody: the file system's own and those of values do not.
    fn counts(&self, inode: &InodeMut) -> bool {
        let number = inode.number();
        (number == ROOT_INODE || number >= self.space.fs().superblock().first_inode)
            && !self.quota.files.contains(&number)
            && !inode.has(InodeFlags::EA_INODE)
    }

    fn space(&self, inode: &InodeMut) -> Usage {
        let bytes = inode.sectors(self.space.fs().layout().block_size).saturating_mul(512);
        // No file has more than 2^60 bytes; one that claims it is damaged.
        Usage { space: bytes.min(1 << 60).cast_signed(), inodes: 0 }
    }

    /// How many values of an inode's attributes lie in inodes.
    fn value_inodes(&self, inode: &InodeMut) -> Result<i64> {
        let place = crate::Place::inode(crate::Structure::Xattr, inode.number());
        let mut count = 0;
        for entry in XattrEntries::from_inode(inode.xattr_area(), place) {
            count += i64::from(entry?.value_inode != 0);
        }
        if inode.xattr_block() != 0 {
            self.load_attributes(inode, inode.xattr_block())?;
            let bytes = self.space.transaction().with(inode.xattr_block(), <[u8]>::to_vec)?;
            for entry in XattrEntries::from_block(&bytes, place)? {
                count += i64::from(entry?.value_inode != 0);
            }
        }
        Ok(count)
    }
}
