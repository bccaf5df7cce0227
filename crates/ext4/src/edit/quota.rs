//! Usage of users, groups and projects, counted along with every change of an inode.
//!
//! With the feature quota hidden files hold for each of them how many bytes and inodes it has. An inode counts for its
//! three owners from when it is stored first until it is freed. Differences are collected while an operation runs and
//! added to the files at its end, so that both go into the same transaction. Limits bind users of a mounted file
//! system; as for root, nothing is refused here because of them.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::alloc::Allocator;
use crate::edit::quota_file::{EntryPlace, QuotaFile, Usage};
use crate::edit::xattr::block::load_block;
use crate::error::{Place, Result, Structure};
use crate::format::features::RoCompat;
use crate::format::inode::{Inode, InodeFlags, Time};
use crate::format::quota::Kind;
use crate::format::xattr::XattrEntries;
use crate::read::fs::Ext4;
use crate::units::InodeNo;

/// The quota files of a file system, and what is to be added to them.
#[derive(Debug, Default)]
pub(crate) struct Quota {
    /// Their inodes, by kind.
    files: [Option<InodeNo>; 3],
    pending: BTreeMap<(Kind, u32), Usage>,
    /// Where entries were found. Forgotten whenever something is taken back.
    places: HashMap<(Kind, u32), EntryPlace>,
    /// Inodes without any name that still count.
    unlinked: HashSet<InodeNo>,
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
        let files =
            if superblock.ro_compat.has(RoCompat::QUOTA) { superblock.quota_inodes } else { [None; 3] };
        Quota { files, ..Quota::default() }
    }

    /// Forgets what an operation that failed did.
    pub fn roll_back(&mut self) {
        self.pending.clear();
        self.places.clear();
    }

    fn is_active(&self) -> bool {
        self.files != [None; 3]
    }

    fn add(&mut self, owners: [u32; 3], change: Usage) {
        for (kind, owner) in Kind::ALL.into_iter().zip(owners) {
            if self.files[kind.index()].is_some() {
                let sum = self.pending.entry((kind, owner)).or_default();
                *sum = sum.plus(change);
            }
        }
    }

    /// Counts the difference that storing an inode makes; `freed` says that nothing of it will be left.
    pub fn count_stored(&mut self, space: &Allocator, inode: &Inode, freed: bool) -> Result<()> {
        if !self.is_active() || !self.counts(space, inode) {
            return Ok(());
        }
        let number = inode.number();
        let unlinked = self.unlinked.contains(&number);
        let old = space.fs().any_inode(number)?;
        let moved = old.owners() != inode.owners();
        // Values of attributes in inodes of their own count for whoever has the attribute.
        let values = if moved { value_inodes(space, &old)? } else { 0 };
        if old.links() > 0 || unlinked {
            let usage = Usage { inodes: 1 + values, ..usage(space, &old) };
            self.add(old.owners(), usage.negative());
        }
        if !freed && (inode.links() > 0 || unlinked) {
            let usage = Usage { inodes: 1 + values, ..usage(space, inode) };
            self.add(inode.owners(), usage);
        }
        if freed {
            self.unlinked.remove(&number);
        }
        Ok(())
    }

    /// Counts an inode that was just taken.
    pub fn count_created(&mut self, space: &Allocator, inode: &Inode) {
        let is_used = inode.links() > 0 || self.unlinked.contains(&inode.number());
        if self.is_active() && self.counts(space, inode) && is_used {
            let usage = Usage { inodes: 1, ..usage(space, inode) };
            self.add(inode.owners(), usage);
        }
    }

    /// Counts an inode though it has lost its last name: it is freed later.
    pub fn count_unlinked(&mut self, number: InodeNo) {
        self.unlinked.insert(number);
    }

    /// Counts inodes that values of an inode's attributes lie in, for the owners that it is stored with.
    pub fn count_values(&mut self, space: &Allocator, owner: &Inode, change: i64) -> Result<()> {
        if self.is_active() && self.counts(space, owner) {
            let owners = space.fs().any_inode(owner.number())?.owners();
            self.add(owners, Usage { space: 0, inodes: change });
        }
        Ok(())
    }

    /// Adds what was counted to the files. The last part of each operation.
    pub fn settle(&mut self, space: &mut Allocator, now: Time) -> Result<()> {
        for ((kind, id), change) in std::mem::take(&mut self.pending) {
            if change == Usage::default() {
                continue;
            }
            let Some(file) = self.files[kind.index()] else { continue };
            let place = match self.places.get(&(kind, id)) {
                Some(place) => *place,
                None => QuotaFile::new(space, file, now).entry(kind, id)?,
            };
            if QuotaFile::new(space, file, now).change(place, change)? {
                self.places.insert((kind, id), place);
            } else {
                QuotaFile::new(space, file, now).remove(id)?;
                self.places.remove(&(kind, id));
            }
        }
        Ok(())
    }

    /// Whether an inode counts for anybody: the file system's own and those of values do not.
    fn counts(&self, space: &Allocator, inode: &Inode) -> bool {
        let number = inode.number();
        !space.fs().superblock().is_internal(number)
            && !self.files.contains(&Some(number))
            && !inode.has(InodeFlags::EA_INODE)
    }
}

fn usage(space: &Allocator, inode: &Inode) -> Usage {
    let bytes = inode.sectors(space.fs().layout().block_size).saturating_mul(512);
    // No file has more than 2^60 bytes; one that claims it is damaged.
    Usage { space: bytes.min(1 << 60).cast_signed(), inodes: 0 }
}

/// How many values of an inode's attributes lie in inodes.
fn value_inodes(space: &Allocator, inode: &Inode) -> Result<i64> {
    let place = Place::inode(Structure::Xattr, inode.number());
    let mut count = 0;
    for entry in XattrEntries::from_inode(inode.xattr_area(), place) {
        count += i64::from(entry?.value_inode.is_some());
    }
    if let Some(block) = inode.xattr_block() {
        load_block(space, inode, block)?;
        let bytes = space.transaction().with(block, <[u8]>::to_vec)?;
        for entry in XattrEntries::from_block(&bytes, place)? {
            count += i64::from(entry?.value_inode.is_some());
        }
    }
    Ok(count)
}
