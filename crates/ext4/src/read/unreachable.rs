//! Inodes in use that no name reaches: the root directory is damaged, or another one.

use std::collections::HashSet;
use std::ops::ControlFlow;

use casemate_blockdev::Events;

use crate::error::Result;
use crate::format::group::INODE_UNINIT;
use crate::format::inode::{Inode, InodeFlags};
use crate::read::fs::Ext4;
use crate::read::seen::SeenDirectories;
use crate::units::{GroupNo, InodeNo};

/// Inodes without names that were found.
#[derive(Clone, Debug, Default)]
pub struct Unreachable {
    /// Inodes in use that no directory names which can be read; what lies below them is not among them.
    pub tops: Vec<Inode>,
    /// Inodes that were left out, as there are too many.
    pub left_out: u64,
}

/// Inodes without names that are told.
const MOST_TOPS: usize = 1 << 20;

impl Ext4 {
    /// Inodes in use that no name reaches from the root directory. Of a tree that is cut off only the top is told. A directory
    /// that can't be read has no names.
    ///
    /// # Errors
    /// `Interrupted`. What is damaged is passed over.
    pub fn unreachable_inodes(&self, events: &dyn Events) -> Result<Unreachable> {
        let mut found = Unreachable::default();
        let mut reached: HashSet<InodeNo> = HashSet::new();
        let mut seen = SeenDirectories::new();
        // The file system's own files have no names.
        let superblock = self.superblock();
        reached.extend(superblock.journal_inode.into_iter().chain(superblock.orphan_file));
        reached.extend(superblock.quota_inodes.into_iter().flatten());
        reached.insert(InodeNo::ROOT);
        self.reach(InodeNo::ROOT, &mut reached, &mut seen);
        // Directories in the order of their numbers, each with all that is below: what is below one comes off the list of tops.
        let mut tops: Vec<InodeNo> = Vec::new();
        for group in GroupNo::first(self.layout().groups) {
            let descriptor = self
                .with_descriptor(group, |found| (found.flags() & INODE_UNINIT == 0, found.unused_inodes()));
            events.advance(self.layout().inode_table_blocks() * u64::from(self.layout().block_size))?;
            let Ok((true, unused)) = descriptor else { continue };
            let has_unused = self.checksums().kind() != crate::format::csum::Kind::None;
            let per_group = self.layout().inodes_per_group;
            let count = if has_unused { per_group - unused.min(per_group) } else { per_group };
            for index in 0..count {
                let Some(number) = InodeNo::at_index(group.get() * per_group + index) else { continue };
                if number.get() < superblock.first_inode || reached.contains(&number) {
                    continue;
                }
                let Ok(inode) = self.inode(number) else { continue };
                if inode.deleted() != 0 || inode.has(InodeFlags::EA_INODE) {
                    continue;
                }
                if tops.len() == MOST_TOPS {
                    found.left_out += 1;
                    continue;
                }
                tops.push(number);
                if inode.is_dir() {
                    self.reach(number, &mut reached, &mut seen);
                }
            }
        }
        let tops = tops.into_iter().filter(|number| !reached.contains(number));
        found.tops = tops.filter_map(|number| self.inode(number).ok()).collect();
        Ok(found)
    }

    /// Notes all that is below a directory, without itself.
    fn reach(&self, top: InodeNo, reached: &mut HashSet<InodeNo>, seen: &mut SeenDirectories) {
        let mut waiting = vec![top];
        while let Some(number) = waiting.pop() {
            let Ok(dir) = self.inode(number) else { continue };
            if !dir.is_dir() || seen.enter(self, b"", &dir).is_err() {
                continue;
            }
            let _ = self.for_each_raw_entry(&dir, &mut |entry| {
                if !matches!(entry.name, b"." | b"..") && reached.insert(entry.inode) {
                    waiting.push(entry.inode);
                }
                Ok(ControlFlow::Continue(()))
            });
        }
    }
}
