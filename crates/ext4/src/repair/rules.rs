//! The rule for each kind of finding whose right state must be decided. docs/checks.md has them in words.

use crate::check::{Doubts, Finding, FindingKind};
use crate::error::{Marked, Problem, Structure};
use crate::repair::obstacles::rank;
use crate::units::InodeNo;

/// A way to mend, in the order in which they are applied: each takes for granted that what the ones before it mend is sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rule {
    /// A bitmap or an inode table that lies where it can't is looked for where a copy of its descriptor says, or is begun anew.
    Place,
    /// Blocks and inodes that something was found to have are marked as in use: nothing new is put there.
    Mark,
    /// A map that reaches over blocks of others behind its file's end is cut there.
    Cut,
    /// Features and fields of the superblock are made those of what is there.
    Feature,
    /// A root directory is made of what is left of it.
    Root,
    /// An inode of the file system itself is made what it is for, or emptied.
    Own,
    /// Fields of an inode are set to what goes with its kind, and its map is made of the parts that can be followed.
    Inode,
    /// Each owner of a block but the first gets a copy.
    Copy,
    /// A directory's blocks are made of the records that make sense.
    Directory,
    /// A directory within itself loses the name there.
    Unloop,
    /// An inode that only attributes could have and none has is freed.
    Free,
    /// Counts and bitmaps that could not be known before are those of what is there now.
    Settle,
}

impl Rule {
    /// Whether no other rule goes by the same look at the file system, before it or after it.
    pub fn is_alone(self) -> bool {
        matches!(self, Rule::Place | Rule::Cut | Rule::Root | Rule::Copy | Rule::Settle)
    }

    /// Whether a rule can be applied by the look at the file system by which these were. What is marked changes nothing else.
    pub fn goes_behind(self, applied: &[Rule]) -> bool {
        applied.iter().all(|before| *before == Rule::Mark || !before.is_alone() && !self.is_alone())
    }

    /// Doubts about what was changed before that keep the rule from being applied to findings of a kind by the same look.
    pub fn needs(self, kind: FindingKind) -> Doubts {
        use FindingKind as K;
        match (self, kind) {
            // These say what other inodes are, and where names lead.
            (_, K::EntryInode | K::DirectoryLink | K::EncryptionPolicy | K::Malformed) => Doubts::INODES,
            (Rule::Unloop, _) => Doubts::NAMES | Doubts::LINKS,
            (Rule::Free, _) => Doubts::ALL,
            _ => Doubts::NONE,
        }
    }
}

/// The rule for a finding; `None` if nothing is done about it.
pub(super) fn rule(finding: &Finding) -> Option<Rule> {
    use FindingKind as K;
    let place = finding.place();
    Some(match (finding.kind(), finding.problem()) {
        (K::BlockBitmap | K::InodeBitmap, Problem::Marked { marked: Marked::Free, .. }) => Rule::Mark,
        (K::FreeBlocks | K::FreeInodes | K::FreeTotal | K::BitmapPadding, _) => Rule::Mark,
        (K::GroupPlace | K::GroupConflict, _) => Rule::Place,
        (K::LargeFile | K::ValueInodes | K::JournalFeature | K::Features, _) => Rule::Feature,
        (K::RootInode, _) => Rule::Root,
        (K::ReservedInode | K::BadBlocks | K::ResizeInode | K::OrphanList | K::OrphanFile, _) => Rule::Own,
        (K::JournalInode | K::JournalSuperblock | K::QuotaInode | K::QuotaFile, _) => Rule::Own,
        (K::Checksum, _) if place.structure == Structure::JournalSuperblock => Rule::Own,
        (K::InodeBlocks, _) if place.inode.is_some_and(may_have_no_kind) => Rule::Own,
        (K::InodeMode | K::InodeField | K::InodeFlag | K::ExtraSize | K::SpecialFile, _) => Rule::Inode,
        (K::InlineData | K::Symlink | K::InodeSize | K::DirectorySize | K::DirectoryHole, _) => Rule::Inode,
        (K::ExtentNode | K::ExtentOrder | K::ExtentRange | K::ExtentIndex | K::BlockNumber, _) => Rule::Inode,
        (K::ClusterAlignment | K::Encryption, _) => Rule::Inode,
        (K::Xattr | K::XattrBlock | K::XattrHash | K::XattrReferences | K::XattrInode, _) => Rule::Inode,
        (K::Checksum, _) if place.structure == Structure::XattrInode => Rule::Inode,
        (K::Malformed, _) if place.structure == Structure::Inode && place.inode.is_some() => Rule::Inode,
        (K::ClaimedTwice, _) => Rule::Copy,
        (K::DirectoryRecord | K::DirectoryTail | K::DotEntries, _) => Rule::Directory,
        (K::EntryInode | K::EntryName | K::DuplicateName | K::DirectoryLink, _) => Rule::Directory,
        (K::HtreeRoot | K::HtreeNode | K::HtreeOrder | K::HtreeLeaf | K::HtreeHash, _) => Rule::Directory,
        (K::EncryptionPolicy, _) => Rule::Directory,
        (K::Malformed, _) if place.inode.is_some() => Rule::Directory,
        (K::Unconnected, Problem::Loop) => Rule::Unloop,
        (K::Unattached, _) if place.structure == Structure::XattrInode => Rule::Free,
        _ if rank(finding).is_some() => Rule::Settle,
        _ => return None,
    })
}

/// Whether an inode is the file system's own, and may be of no kind: nothing is set in one by itself.
fn may_have_no_kind(number: InodeNo) -> bool {
    number.is_of_no_file() || number == InodeNo::BOOT_LOADER
}
