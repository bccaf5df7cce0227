//! Findings of a check, collected from any thread.
//!
//! A [`Finding`] is data: its kind (a row of the table below: a name that stays, whether it is a fault or a note, a
//! sentence), the structure's place, and the problem, which holds what was found and what was expected where these are
//! numbers. Which faults there can be is [`FindingKind::all`]; docs/checks.md has the same list for people.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use crate::check::claims::Claims;
use crate::check::places::Part;
use crate::error::{Corrupt, Counted, Error, Place, Problem, Result, Structure};
use crate::format::csum::{Context, Subject};
use crate::format::quota;
use crate::units::{Block, GroupNo};

/// Faults that are kept; damage beyond that is only counted.
pub(crate) const MOST_FAULTS: usize = 25_000;

/// Whether a finding is damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Level {
    /// Damage.
    Fault,
    /// An oddity that harms nothing: the kernel and e2fsck live with it.
    Note,
}

macro_rules! findings {
    ($($kind:ident $name:literal $level:ident $doc:literal;)*) => {
        /// The kinds of findings.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum FindingKind {
            $(#[doc = $doc] $kind,)*
        }

        impl FindingKind {
            const ALL: &[FindingKind] = &[$(FindingKind::$kind,)*];

            /// The name, which stays.
            pub fn name(self) -> &'static str {
                match self {
                    $(FindingKind::$kind => $name,)*
                }
            }

            /// Whether such a finding is damage.
            pub fn level(self) -> Level {
                match self {
                    $(FindingKind::$kind => Level::$level,)*
                }
            }

            /// The meaning of such a finding, in a sentence.
            pub fn description(self) -> &'static str {
                match self {
                    $(FindingKind::$kind => $doc,)*
                }
            }
        }
    };
}

findings! {
    Checksum "checksum" Fault "The checksum of a structure does not fit its contents.";
    BackupChecksum "backup-checksum" Note "The checksum of a copy of the superblock or of a descriptor does not fit.";
    Malformed "malformed" Fault "A structure contradicts its format, so that what it leads to can't be found.";

    CutOff "cut-off" Fault "The image ends before its file system does: what lies behind was not checked.";
    SuperblockField "superblock-field" Fault "A superblock field has an invalid value.";
    Features "features" Fault "Features contradict each other, or what they announce.";
    OddFeatures "odd-features" Note "Features that make no sense together, and that everybody copes with.";
    ChecksumFeatures "checksum-features" Note "Features tell of two kinds of checksums of descriptors, of which one counts.";
    BackupDiffers "backup-differs" Note "A copy of the superblock is missing or another file system's.";
    FreeTotal "free-total" Note "The superblock's total of free blocks or inodes is not the sum of the groups.";
    MmpBlock "mmp-block" Note "The block of multi-mount protection is damaged.";
    MmpPlace "mmp-place" Fault "The block of multi-mount protection lies outside the file system.";

    GroupPlace "group-place" Fault "A group's bitmap or inode table lies where it can't.";
    GroupConflict "group-conflict" Fault "A group's bitmap or inode table lies on other metadata.";
    GroupFlags "group-flags" Fault "A group's flags, or its count of unused inodes, can't be.";
    FreeBlocks "free-blocks" Fault "A group's count of free blocks is not that of its bitmap.";
    FreeInodes "free-inodes" Fault "A group's count of free inodes is not that of its bitmap.";
    DirectoryCount "directory-count" Fault "A group's count of directories is wrong.";
    BlockBitmap "block-bitmap" Fault "A block bitmap says something else of a block than the files that are there.";
    InodeBitmap "inode-bitmap" Fault "An inode bitmap says something else of an inode than the inode.";
    BitmapPadding "bitmap-padding" Fault "Bits behind the last one of a bitmap are not set.";

    JournalInode "journal-inode" Fault "The journal's inode is not that of a journal.";
    JournalSuperblock "journal-superblock" Fault "The journal's superblock makes no sense.";
    JournalFeature "journal-feature" Fault "What the superblock says of a journal is not so.";
    JournalLog "journal-log" Fault "The log of the journal is damaged, or lies on another device, and not all of it can be replayed.";
    ResizeInode "resize-inode" Fault "The inode that reserves blocks for descriptors is not as it must be.";
    QuotaInode "quota-inode" Fault "The inode of a quota file is none.";
    QuotaFile "quota-file" Fault "A quota file is damaged.";
    QuotaUsage "quota-usage" Fault "A quota file counts other blocks or inodes than an owner has.";
    OrphanList "orphan-list" Fault "The list of orphans is damaged.";
    OrphanFile "orphan-file" Fault "The file of orphans is damaged.";
    OrphanMark "orphan-mark" Fault "The superblock says that there are orphans, and there are none.";
    Orphans "orphans" Note "Inodes that will be deleted or cut at the next mount.";

    RootInode "root-inode" Fault "The root is not a directory, or is deleted.";
    ReservedInode "reserved-inode" Fault "A reserved inode is used as what it is not.";
    BadBlocks "bad-blocks" Fault "The list of bad blocks is damaged.";
    LostOrphan "lost-orphan" Fault "An inode was in a list of orphans, and is in none.";
    DeletionTime "deletion-time" Fault "An inode in use has a time of deletion, or a deleted one has none.";
    InodeMode "inode-mode" Fault "An inode is of no kind of file.";
    InodeField "inode-field" Fault "A field of an inode that must be zero is not.";
    InodeFlag "inode-flag" Fault "A flag of an inode can't be set there, or is missing.";
    ExtraSize "extra-size" Fault "The size of an inode's extra fields can't be.";
    InodeSize "inode-size" Fault "An inode's size is not that of its blocks.";
    InodeBlocks "inode-blocks" Fault "An inode's count of blocks is wrong.";
    SpecialFile "special-file" Fault "A device, pipe or socket has what only files have.";
    Symlink "symlink" Fault "The target of a symbolic link is not where or what it must be.";
    InlineData "inline-data" Fault "Contents in an inode are not as its size says.";
    LargeFile "large-file" Fault "There are large files, and the feature is missing.";
    ValueInodes "value-inodes" Fault "Values of attributes lie in inodes of their own, and the feature is missing.";

    ExtentNode "extent-node" Fault "A node of an extent tree makes no sense.";
    ExtentOrder "extent-order" Fault "Extents overlap or are out of order.";
    ExtentRange "extent-range" Fault "An extent has no length, or lies outside the file system.";
    ExtentIndex "extent-index" Fault "An index of an extent tree does not begin where the node below does.";
    ExtentDepth "extent-depth" Note "An extent tree is deeper than it needs to be.";
    BlockNumber "block-number" Fault "A block map leads outside the file system, or to its metadata.";
    ClaimedTwice "claimed-twice" Fault "A block is claimed by two owners.";
    ClusterAlignment "cluster-alignment" Fault "A file's blocks lie in clusters other than they must.";

    Xattr "xattr" Fault "Extended attributes overlap, pass their end or have no proper names.";
    XattrHash "xattr-hash" Fault "The hash of an extended attribute is wrong.";
    XattrBlock "xattr-block" Fault "A block of extended attributes is none, or lies where it can't.";
    XattrReferences "xattr-references" Fault "A block of extended attributes counts other inodes than lead to it.";
    XattrInode "xattr-inode" Fault "The inode that holds an attribute's value does not.";
    Encryption "encryption" Fault "An encrypted inode has no valid context.";
    EncryptionPolicy "encryption-policy" Fault "An encrypted directory holds what has another policy.";
    EncryptedName "encrypted-name" Fault "A name in an encrypted directory is none when it is decrypted.";
    EncryptedLink "encrypted-link" Fault "The target of an encrypted symbolic link is none when it is decrypted.";
    KeyUseless "key-useless" Fault "No key that was given is that of a file, so nothing was checked with it.";
    VerityDescriptor "verity-descriptor" Fault "A file with fs-verity has no valid descriptor.";
    VerityTree "verity-tree" Fault "Blocks of a file's fs-verity tree do not match what lies above them.";
    VerityContents "verity-contents" Fault "Blocks of a file with fs-verity do not match its tree.";
    VeritySignature "verity-signature" Fault "A file with fs-verity is not signed by the certificate.";
    VerityLocked "verity-locked" Note "A file with fs-verity is encrypted, and its key was not given: it was not checked.";
    VerityMissing "verity-missing" Fault "A file has no fs-verity that could be verified, or none has, and the check demands it.";
    VerityNone "verity-none" Note "No file has fs-verity, so nothing was compared with hash trees.";

    DirectorySize "directory-size" Fault "A directory's size is not that of its blocks.";
    DirectoryHole "directory-hole" Fault "A directory lacks a block.";
    DirectoryRecord "directory-record" Fault "A record of a directory block passes its end or has a wrong length.";
    DirectoryTail "directory-tail" Fault "A directory block has no room for its checksum.";
    DotEntries "dot-entries" Fault "The first two names of a directory are not \".\" and \"..\".";
    EntryInode "entry-inode" Fault "A name leads to an inode that is not there, or not for names.";
    EntryKind "entry-kind" Fault "A name says another kind of file than its inode.";
    EntryName "entry-name" Fault "A name that none can be.";
    DuplicateName "duplicate-name" Fault "A name is twice in a directory.";
    DirectoryLink "directory-link" Fault "A second name leads to a directory.";
    HtreeRoot "htree-root" Fault "The root of a directory's hash tree makes no sense.";
    HtreeNode "htree-node" Fault "A node of a directory's hash tree makes no sense.";
    HtreeOrder "htree-order" Fault "Hashes of a directory's hash tree are not in order.";
    HtreeLeaf "htree-leaf" Fault "A directory's block is in its hash tree twice or not at all.";
    HtreeHash "htree-hash" Fault "A name lies in another leaf of a hash tree than its hash says.";

    Parent "parent" Fault "A directory names another parent than the one that it is in.";
    Unconnected "unconnected" Fault "A directory can't be reached from the root.";
    LinkCount "link-count" Fault "An inode counts other names than it has.";
    Unattached "unattached" Fault "An inode in use has no name.";
}

impl FindingKind {
    /// All of them.
    pub fn all() -> impl ExactSizeIterator<Item = FindingKind> {
        FindingKind::ALL.iter().copied()
    }
}

impl FindingKind {
    /// True if the fault makes unsure where structures lie. Then bytes that look like an inode may be a file's
    /// contents, and blocks that look free may be in use.
    /// looks free may be in use.
    pub(crate) fn hides_structures(self) -> bool {
        use FindingKind as K;
        matches!(self, K::RootInode | K::GroupPlace | K::GroupConflict | K::GroupFlags)
    }
}

/// Knowledge that a fault takes away: what could not be read, or is damaged, is neither in use nor free for certain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Doubts(u8);

impl Doubts {
    pub const NONE: Doubts = Doubts(0);
    /// Which blocks inodes have: blocks that nobody claims may be somebody's.
    pub const BLOCKS: Doubts = Doubts(1);
    /// Which inodes are in use, and of which kind.
    pub const INODES: Doubts = Doubts(2);
    /// Whether inodes without a name have one that could not be read.
    pub const NAMES: Doubts = Doubts(4);
    /// How many names inodes have, and which directory is in which.
    pub const LINKS: Doubts = Doubts(8);
    /// Contents of the superblock and the descriptors.
    pub const PLACES: Doubts = Doubts(16);
    pub const ALL: Doubts = Doubts(31);

    /// Whether one of `other` is among these.
    pub fn has(self, other: Doubts) -> bool {
        self.0 & other.0 != 0
    }
}

impl std::ops::BitOr for Doubts {
    type Output = Doubts;

    fn bitor(self, other: Doubts) -> Doubts {
        Doubts(self.0 | other.0)
    }
}

impl FindingKind {
    /// The doubts that such a fault causes, wherever it is found. All of an inode of unknown kind is unsure: its
    /// blocks, and the names in it, if it is a directory.
    /// names in it, if it is a directory.
    pub(crate) fn doubts(self) -> Doubts {
        use FindingKind as K;
        match self {
            K::Malformed | K::SuperblockField | K::Features | K::JournalFeature | K::JournalLog => {
                Doubts::ALL
            }
            K::CutOff | K::GroupPlace | K::GroupConflict | K::GroupFlags | K::RootInode => Doubts::ALL,
            K::InodeMode | K::InodeFlag | K::ExtraSize | K::SpecialFile | K::InlineData | K::Symlink => {
                Doubts::BLOCKS | Doubts::INODES | Doubts::NAMES | Doubts::LINKS
            }
            // Files of the file system itself have no names, and are those of files if nobody says what they are.
            K::ReservedInode | K::QuotaInode | K::OrphanFile => {
                Doubts::BLOCKS | Doubts::INODES | Doubts::NAMES
            }
            K::DirectorySize | K::DirectoryHole => Doubts::BLOCKS | Doubts::NAMES | Doubts::LINKS,
            K::EntryInode => Doubts::BLOCKS | Doubts::INODES | Doubts::LINKS,
            K::OrphanList => Doubts::BLOCKS | Doubts::INODES,
            K::JournalInode | K::ResizeInode | K::BadBlocks | K::ClaimedTwice | K::ClusterAlignment => {
                Doubts::BLOCKS
            }
            // A map that can't be followed says of which kind of inode it is.
            K::ExtentNode | K::ExtentOrder | K::ExtentRange | K::ExtentIndex | K::BlockNumber => {
                Doubts::BLOCKS
            }
            K::InodeField | K::Xattr | K::XattrBlock | K::XattrReferences | K::XattrInode => Doubts::BLOCKS,
            K::DirectoryRecord | K::DotEntries => Doubts::NAMES | Doubts::LINKS,
            K::HtreeRoot | K::HtreeNode | K::HtreeOrder | K::HtreeLeaf => Doubts::NAMES | Doubts::LINKS,
            K::DirectoryLink => Doubts::LINKS,
            K::Checksum
            | K::BackupChecksum
            | K::OddFeatures
            | K::ChecksumFeatures
            | K::BackupDiffers
            | K::FreeTotal
            | K::MmpBlock
            | K::MmpPlace
            | K::FreeBlocks
            | K::FreeInodes
            | K::DirectoryCount
            | K::BlockBitmap
            | K::InodeBitmap
            | K::BitmapPadding
            | K::JournalSuperblock
            | K::QuotaFile
            | K::QuotaUsage
            | K::OrphanMark
            | K::Orphans
            | K::LostOrphan
            | K::DeletionTime
            | K::InodeSize
            | K::InodeBlocks
            | K::LargeFile
            | K::ValueInodes
            | K::ExtentDepth
            | K::XattrHash
            | K::Encryption
            | K::EncryptionPolicy
            | K::EncryptedName
            | K::EncryptedLink
            | K::KeyUseless
            | K::VerityDescriptor
            | K::VerityTree
            | K::VerityContents
            | K::VeritySignature
            | K::VerityLocked
            | K::VerityMissing
            | K::VerityNone
            | K::DirectoryTail
            | K::EntryKind
            | K::EntryName
            | K::DuplicateName
            | K::HtreeHash
            | K::Parent
            | K::Unconnected
            | K::LinkCount
            | K::Unattached => Doubts::NONE,
        }
    }
}

/// One thing that a check found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    corrupt: Corrupt,
    kind: FindingKind,
    name: Option<Box<[u8]>>,
}

impl Finding {
    pub(crate) fn new(kind: FindingKind, place: Place, problem: Problem) -> Finding {
        Finding { kind, corrupt: Corrupt::new(place, problem), name: None }
    }

    pub(crate) fn into_error(self) -> Error {
        self.corrupt.into()
    }

    /// A finding about a name in a directory.
    #[must_use]
    pub(crate) fn named(self, name: &[u8]) -> Finding {
        Finding { name: Some(name.into()), ..self }
    }

    /// Which kind of finding.
    pub fn kind(&self) -> FindingKind {
        self.kind
    }

    /// The level: damage or an oddity.
    pub fn level(&self) -> Level {
        self.kind.level()
    }

    /// The structure, and where it lies.
    pub fn place(&self) -> Place {
        self.corrupt.place()
    }

    /// The problem of the structure.
    pub fn problem(&self) -> &Problem {
        self.corrupt.problem()
    }

    /// The name in the directory that it is about, as it is stored.
    pub fn name(&self) -> Option<&[u8]> {
        self.name.as_deref()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => {
                write!(f, "{}: \"{}\": {}", self.place(), name.escape_ascii(), self.problem())
            }
            None => self.corrupt.fmt(f),
        }
    }
}

/// How to make right what a finding is about, where the finding does not say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fix {
    /// The structure's bytes hold the checksum themselves.
    InPlace {
        /// Where it begins on the device.
        offset: u64,
        /// Its size.
        len: usize,
        /// Its recipe.
        subject: Subject,
        /// Context of the checksum: the parts of the recipe that lie outside the structure.
        context: Context,
    },
    /// The checksum stands in the group's descriptor, which has one itself.
    Bitmap {
        /// Which of the two.
        subject: Subject,
        /// The group.
        group: GroupNo,
        /// The new checksum.
        value: u32,
    },
    /// A quota file counts other bytes and inodes of an owner than it has: so many more.
    Usage { kind: quota::Kind, id: u32, space: i64, inodes: i64 },
}

impl Fix {
    pub fn is_checksum(&self) -> bool {
        !matches!(self, Fix::Usage { .. })
    }

    pub fn in_place(offset: u64, len: usize, subject: Subject, context: Context) -> Fix {
        Fix::InPlace { offset, len, subject, context }
    }
}

/// Files of a file system and fs-verity, as a check has counted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerityCount {
    /// Files that have fs-verity.
    pub files: u64,
    /// Files with fs-verity that meet the demand.
    pub verified: u64,
    /// Files without fs-verity.
    pub without: u64,
}

/// Findings and counts.
#[derive(Debug, Default)]
pub(crate) struct Findings(pub Mutex<Lists>);

#[derive(Debug, Default)]
pub(crate) struct Lists {
    pub found: BTreeMap<Finding, Option<Fix>>,
    pub faults_left_out: u64,
    pub checked: BTreeMap<Structure, u64>,
    pub verity: VerityCount,
    pub doubts: Doubts,
    pub claims: Option<Claims>,
    pub displaced: BTreeMap<(GroupNo, Part), Option<Block>>,
    pub lacks_tables: bool,
}

/// Counts of one worker, added to the findings now and then.
#[derive(Debug, Default)]
pub(crate) struct Counts(BTreeMap<Structure, u64>);

impl Counts {
    pub fn add(&mut self, structure: Structure, count: u64) {
        *self.0.entry(structure).or_default() += count;
    }
}

impl Findings {
    /// Notes a finding. The same one twice, as of a block that two inodes share, is one.
    pub fn add(&self, finding: Finding, fix: Option<Fix>) {
        let mut lists = self.lists();
        lists.doubts = lists.doubts | finding.kind().doubts();
        if lists.found.len() < MOST_FAULTS || finding.kind().hides_structures() {
            lists.found.insert(finding, fix);
        } else if finding.level() == Level::Fault && !lists.found.contains_key(&finding) {
            lists.faults_left_out += 1;
        }
    }

    /// Notes that something is unsure.
    pub fn doubt(&self, doubts: Doubts) {
        let mut lists = self.lists();
        lists.doubts = lists.doubts | doubts;
    }

    /// The doubts that the faults so far cause.
    pub fn doubts(&self) -> Doubts {
        self.lists().doubts
    }

    /// Notes what is wrong in words.
    pub fn say(&self, kind: FindingKind, place: Place, text: impl Into<std::borrow::Cow<'static, str>>) {
        self.add(Finding::new(kind, place, Problem::Malformed(text.into())), None);
    }

    /// Notes a number that is another than it should be.
    pub fn number(
        &self,
        kind: FindingKind,
        place: Place,
        what: impl Into<Counted>,
        found: u64,
        expected: u64,
    ) {
        self.add(Finding::new(kind, place, Problem::Number { what: what.into(), expected, found }), None);
    }

    /// Notes damage and lets other errors pass.
    pub fn damage(&self, error: Error) -> Result<()> {
        let Some(corrupt) = Corrupt::of(&error) else { return Err(error) };
        self.corrupt(corrupt, None);
        Ok(())
    }

    /// Notes what a verification said. Whether it was satisfied.
    pub fn note(&self, result: Result<()>, fix: Option<Fix>) -> bool {
        let Err(error) = result else { return true };
        // Verifications do no I/O.
        if let Some(corrupt) = Corrupt::of(&error) {
            self.corrupt(corrupt, fix);
        }
        false
    }

    fn corrupt(&self, corrupt: &Corrupt, fix: Option<Fix>) {
        let is_checksum = matches!(corrupt.problem(), Problem::Checksum { .. });
        let kind = match corrupt.place().structure {
            Structure::BackupSuperblock | Structure::BackupGroupDescriptor if is_checksum => {
                FindingKind::BackupChecksum
            }
            Structure::BackupSuperblock | Structure::BackupGroupDescriptor => FindingKind::BackupDiffers,
            _ if is_checksum => FindingKind::Checksum,
            _ => FindingKind::Malformed,
        };
        let finding = Finding { kind, corrupt: corrupt.clone(), name: None };
        self.add(finding, fix.filter(|_| is_checksum));
    }

    /// Notes that a group's structure is not where its descriptor says, and where it is, if that is known.
    pub fn displace(&self, group: GroupNo, part: Part, place: Option<Block>) {
        self.lists().displaced.insert((group, part), place);
    }

    /// Notes that a group's inode table could not be found.
    pub fn lack_tables(&self) {
        self.lists().lacks_tables = true;
    }

    /// Kinds of all findings so far, one for each.
    pub fn kinds(&self) -> Vec<FindingKind> {
        self.lists().found.keys().map(Finding::kind).collect()
    }

    /// Counts one structure as checked.
    pub fn count(&self, structure: Structure) {
        *self.lists().checked.entry(structure).or_default() += 1;
    }

    /// Adds to the counts of files with and without fs-verity.
    pub fn count_verity(&self, count: VerityCount) {
        let verity = &mut self.lists().verity;
        verity.files += count.files;
        verity.verified += count.verified;
        verity.without += count.without;
    }

    pub fn verity_count(&self) -> VerityCount {
        self.lists().verity
    }

    /// Keeps which blocks have owners, for whoever looks for free ones.
    pub fn keep_claims(&self, claims: Claims) {
        self.lists().claims = Some(claims);
    }

    /// Adds a worker's counts.
    pub fn add_counts(&self, counts: Counts) {
        let mut lists = self.lists();
        for (structure, count) in counts.0 {
            *lists.checked.entry(structure).or_default() += count;
        }
    }

    pub fn first_fault(&self) -> Option<Finding> {
        self.lists().found.keys().find(|finding| finding.level() == Level::Fault).cloned()
    }

    fn lists(&self) -> std::sync::MutexGuard<'_, Lists> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// The part of docs/checks.md between its headings and its end.
    fn table() -> String {
        let row = |kind: FindingKind| {
            let level = if kind.level() == Level::Fault { "fault" } else { "note" };
            format!("| `{}` | {level} | {} |\n", kind.name(), kind.description())
        };
        let rows: String = FindingKind::all().map(row).collect();
        format!("| name | level | meaning |\n| --- | --- | --- |\n{rows}")
    }

    #[test]
    fn the_document_lists_what_there_is() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/checks.md");
        let text = std::fs::read_to_string(path).unwrap();
        let found = text.find("| name | level |").map_or("", |at| &text[at..]);
        assert_eq!(found, table(), "docs/checks.md");
    }

    #[test]
    fn names_are_unique_and_in_kebab_case() {
        let names: std::collections::BTreeSet<_> = FindingKind::all().map(FindingKind::name).collect();
        assert_eq!(names.len(), FindingKind::all().len());
        for name in names {
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{name}");
        }
    }
}
