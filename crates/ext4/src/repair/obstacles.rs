//! Obstacles to the repair of a finding: damage elsewhere that makes unsure whether it is damage at all.
//!
//! Metadata that can't be read, or is left damaged, is unknown: neither empty nor free. So bits of bitmaps are set wherever something
//! in use was found, and cleared only if no fault is left that makes unsure what inodes have. The same goes for counts: those
//! of what was not read stay what they are.

use std::collections::BTreeSet;

use crate::check::{CheckReport, Doubts, Finding, FindingKind, Part};
use crate::error::{Counted, Marked, Place, Problem, Structure};
use crate::format::features::Compat;
use crate::format::superblock::Superblock;
use crate::units::{GroupNo, InodeNo};

/// When in a repair a finding is mended; `None` for those that never are.
pub(super) fn rank(finding: &Finding) -> Option<u32> {
    use FindingKind as K;
    Some(match finding.kind() {
        // Everything else is looked for where descriptors say.
        K::GroupFlags => DESCRIPTORS,
        K::Checksum if finding.place().structure == Structure::GroupDescriptor => DESCRIPTORS,
        K::Checksum => 1,
        // An inode that is deleted for certain has no blocks.
        K::DeletionTime | K::LostOrphan => 2,
        K::BlockBitmap | K::InodeBitmap | K::BitmapPadding => 3,
        K::FreeBlocks | K::FreeInodes | K::DirectoryCount | K::InodeBlocks => 4,
        // Whatever takes blocks later counts from these.
        K::EntryKind | K::Parent | K::FreeTotal | K::ChecksumFeatures | K::OrphanMark => 5,
        K::HtreeRoot | K::HtreeNode | K::HtreeOrder | K::HtreeLeaf | K::HtreeHash => 6,
        K::Unconnected | K::Unattached => 7,
        K::LinkCount => 8,
        K::QuotaUsage | K::BackupChecksum | K::BackupDiffers => 9,
        _ => return None,
    })
}

/// The rank of group descriptors, and those of what frees or moves blocks.
pub(super) const DESCRIPTORS: u32 = 0;
const MOVES: std::ops::Range<u32> = 6..9;

/// The damage of a report that stands against mending the rest.
#[derive(Debug, Default)]
pub(super) struct Obstacles {
    pub doubts: Doubts,
    /// Structures lie where nobody knows: what else is not, or not even descriptors, which are taken for right by the root that
    /// is found where they say.
    is_lost: bool,
    has_no_root: bool,
    /// Blocks have two owners. Whatever frees or moves blocks could take those of somebody else.
    is_shared: bool,
    /// Inodes and blocks with damage that is left.
    inodes: BTreeSet<InodeNo>,
    blocks: BTreeSet<u64>,
    /// There are blocks in use that nobody has, and inodes that seem to have lost some.
    has_lost_blocks: bool,
    has_journal: bool,
}

impl Obstacles {
    /// The obstacles in a report. `stays` says of findings that could be mended that they will not be.
    pub fn of(report: &CheckReport, superblock: &Superblock, stays: impl Fn(&Finding) -> bool) -> Obstacles {
        let faults = || report.faults.iter();
        let mut obstacles = Obstacles {
            doubts: report.doubts(),
            is_lost: faults()
                .any(|finding| finding.kind().hides_structures() || rank(finding) == Some(DESCRIPTORS)),
            has_no_root: faults().any(|finding| finding.kind() == FindingKind::RootInode)
                || report.is_displaced(GroupNo::PRIMARY, Part::Table),
            is_shared: faults().any(|finding| finding.kind() == FindingKind::ClaimedTwice),
            has_journal: superblock.compat.has(Compat::HAS_JOURNAL),
            ..Obstacles::default()
        };
        obstacles.has_lost_blocks =
            faults().any(is_leak) && faults().any(|finding| obstacles.is_loss(finding));
        for place in faults().filter(|finding| rank(finding).is_none()).map(Finding::place) {
            obstacles.inodes.extend(place.inode);
            obstacles.blocks.extend(place.block);
        }
        // A checksum that stays wrong is the proof of damage: whatever else is written to the inode would make it fit.
        let unfit = faults()
            .filter(|finding| finding.kind() == FindingKind::Checksum && is_of_map(finding))
            .filter(|finding| stays(finding) || !obstacles.allow(finding))
            .filter_map(|finding| finding.place().inode)
            .collect::<Vec<_>>();
        obstacles.inodes.extend(unfit);
        obstacles
    }

    /// Whether a finding that can be mended can be now.
    pub fn allow(&self, finding: &Finding) -> bool {
        let Some(rank) = rank(finding) else { return false };
        let Place { inode, block, .. } = finding.place();
        // A checksum that does not fit is all that is wrong, or tells that more is than can be known.
        let is_checksum = finding.kind() == FindingKind::Checksum;
        let is_unsound = inode.is_some_and(|inode| self.is_unsound(inode))
            || is_checksum && block.is_some_and(|block| self.blocks.contains(&block));
        let must_wait =
            self.has_no_root || self.is_lost && rank > DESCRIPTORS || self.is_shared && MOVES.contains(&rank);
        let is_lost = self.has_lost_blocks && (is_leak(finding) || self.is_loss(finding));
        !(must_wait || is_unsound || is_lost || self.doubts.has(needs(finding)))
    }

    /// Whether an inode has damage that is left.
    pub fn is_unsound(&self, inode: InodeNo) -> bool {
        self.inodes.contains(&inode)
    }

    /// Whether a finding tells that an inode may have lost blocks: its checksum, or that of its map, says that something is
    /// another than it was, or it counts more than it has. The latter happens without damage where there is no journal.
    fn is_loss(&self, finding: &Finding) -> bool {
        match (finding.kind(), finding.problem()) {
            (FindingKind::Checksum, _) => is_of_map(finding),
            (FindingKind::InodeBlocks, Problem::Number { expected, found, .. }) => {
                self.has_journal && found > expected
            }
            _ => false,
        }
    }
}

/// Blocks that are marked as in use, and that nobody was found to have.
fn is_leak(finding: &Finding) -> bool {
    let is_used = matches!(finding.problem(), Problem::Marked { marked: Marked::Used, .. });
    finding.kind() == FindingKind::BlockBitmap && is_used
}

/// Whether a finding is about an inode, or blocks that say where an inode's others lie.
fn is_of_map(finding: &Finding) -> bool {
    matches!(finding.place().structure, Structure::Inode | Structure::ExtentBlock)
}

/// Doubts that keep a finding from being mended.
fn needs(finding: &Finding) -> Doubts {
    use FindingKind as K;
    match (finding.kind(), finding.problem()) {
        (K::Checksum, _) if is_of_map(finding) => Doubts::BLOCKS,
        (K::BlockBitmap, Problem::Marked { marked: Marked::Used, .. }) => Doubts::BLOCKS,
        (K::InodeBitmap, Problem::Marked { marked: Marked::Used, .. }) => Doubts::INODES,
        (K::InodeBlocks, Problem::Number { expected, found, .. }) if found > expected => Doubts::BLOCKS,
        // A sum of counts that may be wrong.
        (K::FreeTotal, Problem::Number { what: Counted::FreeInodes, .. }) => Doubts::INODES,
        (K::FreeTotal | K::FreeBlocks, _) => Doubts::BLOCKS,
        (K::FreeInodes | K::DirectoryCount, _) => Doubts::INODES,
        (K::DeletionTime | K::LostOrphan | K::Parent | K::LinkCount, _) => Doubts::NAMES | Doubts::LINKS,
        (K::Unconnected | K::Unattached, _) => Doubts::NAMES,
        (K::QuotaUsage, _) => Doubts::BLOCKS | Doubts::INODES,
        (K::BackupChecksum | K::BackupDiffers, _) => Doubts::PLACES,
        _ => Doubts::NONE,
    }
}
