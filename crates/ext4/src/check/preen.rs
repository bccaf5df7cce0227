//! Faults that e2fsck mends with `-p`, when a system starts and nobody can be asked. It stops at all others.

use std::collections::BTreeSet;

use crate::check::{CheckReport, Finding, FindingKind, Level};
use crate::error::{Problem, Structure};
use crate::units::InodeNo;

impl Finding {
    /// True for faults that interrupted changes leave, and that `e2fsck -p` fixes without asking: counts, bitmaps, checksums.
    /// Their right state follows from the rest of the file system.
    pub fn is_routine(&self) -> bool {
        use FindingKind as K;
        match self.kind() {
            K::Checksum => {
                let routine = [
                    Structure::GroupDescriptor,
                    Structure::BlockBitmap,
                    Structure::InodeBitmap,
                    Structure::Inode,
                    Structure::DirectoryBlock,
                    Structure::HtreeNode,
                ];
                routine.contains(&self.place().structure)
            }
            K::FreeBlocks | K::FreeInodes | K::DirectoryCount | K::FreeTotal => true,
            K::BlockBitmap | K::InodeBitmap | K::BitmapPadding => true,
            K::LinkCount | K::InodeBlocks | K::DeletionTime | K::OrphanMark | K::QuotaUsage => true,
            _ => self.level() == Level::Note,
        }
    }
}

/// Choice of `e2fsck -p` among the findings of a check.
#[derive(Clone, Debug, Default)]
pub struct Preen {
    /// Directories that get another hash tree: what does not fit the old one goes with it.
    indexed: BTreeSet<InodeNo>,
}

impl Preen {
    /// The choice for what a check found.
    pub fn of(report: &CheckReport) -> Preen {
        use FindingKind as K;
        let is_of_tree = |finding: &&Finding| matches!(finding.kind(), K::HtreeRoot | K::HtreeOrder);
        let trees = report.faults.iter().filter(is_of_tree);
        Preen { indexed: trees.filter_map(|finding| finding.place().inode).collect() }
    }

    /// Whether a finding is mended: routine, or a name that leads to a deleted inode, a size that is not that of the blocks, the
    /// hash tree of a directory.
    pub fn mends(&self, finding: &Finding) -> bool {
        use FindingKind as K;
        match finding.kind() {
            K::EntryInode => matches!(finding.problem(), Problem::Unused(_)),
            K::InodeSize => true,
            K::DirectorySize => matches!(finding.problem(), Problem::Number { .. }),
            K::HtreeRoot | K::HtreeOrder => true,
            K::HtreeLeaf | K::HtreeHash => {
                finding.place().inode.is_some_and(|inode| self.indexed.contains(&inode))
            }
            _ => finding.is_routine(),
        }
    }
}
