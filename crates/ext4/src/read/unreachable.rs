//! Inodes in use that no name reaches from the root directory: it is damaged, or another one.

use std::collections::HashSet;

use casemate_blockdev::Events;

use crate::error::Result;
use crate::format::inode::{Inode, InodeFlags};
use crate::read::extract::{accepted_names, is_of_its_kind};
use crate::read::fs::Ext4;
use crate::read::seen::SeenDirectories;
use crate::read::unread::Unread;
use crate::units::InodeNo;

/// Inodes without names that were found.
#[derive(Debug, Default)]
pub struct Unreachable {
    /// Inodes in use that a copy of the whole tree leaves out; what lies below them is not among them.
    pub tops: Vec<Inode>,
    /// Inodes that were left out, as there are too many.
    pub left_out: u64,
    /// Errors of what could not be read: there may be more.
    pub unread: Unread,
}

/// Inodes without names that are told.
const MOST_TOPS: usize = 1 << 20;

impl Ext4 {
    /// Inodes in use that no name reaches from the root directory by which [`extract_to_folder`](crate::extract_to_folder)
    /// goes. Of a tree that is cut off only the top is told. A directory that can't be read, or has a name that no file can
    /// have, has no names; a name that is there twice leads nowhere.
    ///
    /// # Errors
    /// `Interrupted`. What is damaged is passed over, and is in [`Unreachable::unread`].
    pub fn unreachable_inodes(&self, events: &dyn Events) -> Result<Unreachable> {
        let mut walk =
            Walk { fs: self, reached: HashSet::new(), entered: HashSet::new(), seen: SeenDirectories::new() };
        // The file system's own files have no names.
        let superblock = self.superblock();
        walk.reached.extend(superblock.journal_inode.into_iter().chain(superblock.orphan_file));
        walk.reached.extend(superblock.quota_inodes.into_iter().flatten());
        walk.reached.insert(InodeNo::ROOT);
        walk.below(InodeNo::ROOT);
        // Directories in the order of their numbers, each with all that is below: what is below one comes off the list of tops.
        let mut tops: Vec<InodeNo> = Vec::new();
        let (mut left_out, mut unread) = (0, Unread::default());
        self.for_each_table_block(events, &mut unread, |block| {
            let mut errors = Vec::new();
            for (number, slot) in block.slots(self) {
                if walk.reached.contains(&number) {
                    continue;
                }
                let inode = match self.inode_in_block(number, slot, block.bytes) {
                    Ok(Some(inode)) => inode,
                    Ok(None) => continue,
                    Err(error) => {
                        errors.push(error);
                        continue;
                    }
                };
                if inode.links() == 0 || inode.deleted() != 0 || inode.has(InodeFlags::EA_INODE) {
                    continue;
                }
                if tops.len() == MOST_TOPS {
                    left_out += 1;
                    continue;
                }
                tops.push(number);
                if inode.is_dir() {
                    walk.below(number);
                }
            }
            errors
        })?;
        let tops = tops.into_iter().filter(|number| !walk.reached.contains(number));
        let tops = tops.filter_map(|number| self.inode(number).ok()).collect();
        Ok(Unreachable { tops, left_out, unread })
    }
}

/// A walk by the names that a copy goes by.
struct Walk<'a> {
    fs: &'a Ext4,
    reached: HashSet<InodeNo>,
    /// Directories that the walk went on from.
    entered: HashSet<InodeNo>,
    seen: SeenDirectories,
}

impl Walk<'_> {
    /// Notes all that is below a directory, without itself, also where a name below leads back to it.
    fn below(&mut self, top: InodeNo) {
        // Directories that are to be read, and the lengths of their paths.
        let mut waiting = vec![(top, 0)];
        if !self.fs.inode(top).is_ok_and(|dir| self.seen.enter_at(self.fs, 0, &dir).is_ok()) {
            return;
        }
        self.entered.insert(top);
        while let Some((number, path_len)) = waiting.pop() {
            let Ok(dir) = self.fs.inode(number) else { continue };
            let Ok(names) = accepted_names(self.fs, &dir, |_, _| {}) else { continue };
            for name in names.iter() {
                if name.inode == top || self.reached.contains(&name.inode) {
                    continue;
                }
                let Ok(inode) = self.fs.inode(name.inode) else { continue };
                if !is_of_its_kind(&name, &inode) {
                    continue;
                }
                // All below those is noted already.
                if inode.is_dir() && !self.entered.contains(&name.inode) {
                    let path_len = path_len + 1 + name.bytes.len();
                    // What is not gone into was not reached: it is copied by itself.
                    if self.seen.enter_at(self.fs, path_len, &inode).is_err() {
                        continue;
                    }
                    waiting.push((name.inode, path_len));
                }
                self.reached.insert(name.inode);
            }
        }
    }
}
