//! Every checksum of ext4 and its journal, as one table.
//!
//! A [`Recipe`] says of one kind of structure what is covered, which register the CRC starts from, what goes
//! in before, and where the result is stored. [`Checksums`] applies the table: [`Checksums::verify`],
//! [`Checksums::store`].
//!
//! CRC-32C is the raw register, never inverted; CRC-16 is the reflected polynomial 0xA001 from !0.
//! Sources: Documentation/filesystems/ext4/checksums.rst and journal.rst; e2fsprogs lib/ext2fs/csum.c, for
//! facts.

use casemate_blockdev::u64_of;
use casemate_primitives::crc32c::Crc32c;

use crate::error::{Corrupt, Error, Place, Problem, Result};
use crate::format::crc16::crc16;
use crate::format::extent;
use crate::format::field;
use crate::format::htree;
use crate::format::inode::{self, Inode, OLD_INODE_SIZE};
use crate::format::superblock::Superblock;
use crate::number::low16;
use crate::units::{Block, GroupNo, InodeNo};

/// Bytes of an inode in most file systems.
const USUAL_INODE: usize = 256;

/// How the checksum of one kind of structure is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// The structure that it protects.
    pub subject: Subject,
    /// Which CRC.
    pub algorithm: Algorithm,
    /// The register before the first byte.
    pub seed: Seed,
    /// Bytes that go in before the structure.
    pub prefix: Prefix,
    /// Which bytes of the structure go in.
    pub covered: Covered,
    /// Where the result is stored.
    pub stored: Stored,
}

/// The structures with checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it; Structure has the explanations")]
pub enum Subject {
    Superblock,
    GroupDescriptor,
    /// The CRC-16 of the feature `uninit_bg`.
    OldGroupDescriptor,
    BlockBitmap,
    InodeBitmap,
    Inode,
    ExtentBlock,
    DirectoryBlock,
    HtreeNode,
    XattrBlock,
    XattrInode,
    MmpBlock,
    OrphanBlock,
    JournalSuperblock,
    /// Descriptor and revoke blocks of the journal.
    JournalList,
    JournalCommit,
    /// A block in the log, whose checksum is in its tag.
    JournalData,
}

/// The polynomial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// CRC-32C.
    Crc32c,
    /// CRC-16 with the reflected polynomial 0xA001.
    Crc16,
}

/// The register that a CRC starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seed {
    /// All ones.
    Ones,
    /// All ones, then the UUID; or what the superblock stores with `metadata_csum_seed`.
    FileSystem,
    /// All ones, then the journal's UUID.
    Journal,
}

/// Bytes that go in before the structure's own ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefix {
    /// Nothing.
    None,
    /// The group's number, 32 bits.
    Group,
    /// The inode's number and its generation, 32 bits each.
    Inode,
    /// The inode's number and generation, and the block's number in 64 bits.
    InodeAndBlock,
    /// The block's number, 64 bits.
    Block,
    /// The transaction's sequence number, 32 bits big-endian.
    Sequence,
}

/// Which bytes of a structure its checksum covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Covered {
    /// All that is given; the checksum lies elsewhere.
    All,
    /// All bytes before the checksum.
    BeforeChecksum,
    /// All bytes but the last so many.
    AllBut(usize),
    /// Everything, with the checksum taken as zero.
    ChecksumZeroed,
    /// Everything around the checksum.
    WithoutChecksum,
    /// The header and the entries in use of a hash tree node, then the tail with the checksum taken as zero.
    HtreeEntries,
}

/// Where a checksum is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// 32 bits at this offset.
    Le32(usize),
    /// The low 16 bits at this offset.
    Le16(usize),
    /// 32 bits so many bytes before the end.
    Le32FromEnd(usize),
    /// 32 bits big-endian at this offset.
    Be32(usize),
    /// 32 bits big-endian so many bytes before the end.
    Be32FromEnd(usize),
    /// In an inode: the low half at 0x7c, the high one at 0x82 if the extra fields reach that far.
    Inode,
    /// Behind as many extents as the block has room for.
    AfterExtents,
    /// In the tail of a hash tree node, behind as many entries as there is room for.
    HtreeTail,
    /// In the group's descriptor: the low half at the first offset, the high one at the second if it is
    /// that long.
    Descriptor(usize, usize),
    /// In another structure: an inode's access time, a journal tag.
    Elsewhere,
}

macro_rules! recipes {
    ($($subject:ident $algorithm:ident $seed:ident $prefix:ident ($covered:expr) ($stored:expr);)*) => {
        /// All recipes.
        pub const RECIPES: &[Recipe] = &[$(Recipe {
            subject: Subject::$subject,
            algorithm: Algorithm::$algorithm,
            seed: Seed::$seed,
            prefix: Prefix::$prefix,
            covered: $covered,
            stored: $stored,
        },)*];
    };
}

use Covered::{All, AllBut, BeforeChecksum, ChecksumZeroed, HtreeEntries, WithoutChecksum};
use Stored::{AfterExtents, Be32, Be32FromEnd, Descriptor, Elsewhere, HtreeTail, Le16, Le32, Le32FromEnd};

recipes! {
    // subject           algorithm seed    prefix        what is covered   where it is stored
    Superblock           Crc32c Ones       None          (BeforeChecksum)  (Le32(0x3fc));
    GroupDescriptor      Crc32c FileSystem Group         (ChecksumZeroed)  (Le16(0x1e));
    OldGroupDescriptor   Crc16  FileSystem Group         (WithoutChecksum) (Le16(0x1e));
    BlockBitmap          Crc32c FileSystem None          (All)             (Descriptor(0x18, 0x38));
    InodeBitmap          Crc32c FileSystem None          (All)             (Descriptor(0x1a, 0x3a));
    Inode                Crc32c FileSystem Inode         (ChecksumZeroed)  (Stored::Inode);
    ExtentBlock          Crc32c FileSystem Inode         (BeforeChecksum)  (AfterExtents);
    DirectoryBlock       Crc32c FileSystem Inode         (AllBut(12))      (Le32FromEnd(4));
    HtreeNode            Crc32c FileSystem Inode         (HtreeEntries)    (HtreeTail);
    XattrBlock           Crc32c FileSystem Block         (ChecksumZeroed)  (Le32(0x10));
    XattrInode           Crc32c FileSystem None          (All)             (Elsewhere);
    MmpBlock             Crc32c FileSystem None          (BeforeChecksum)  (Le32(0x3fc));
    OrphanBlock          Crc32c FileSystem InodeAndBlock (AllBut(8))       (Le32FromEnd(4));
    JournalSuperblock    Crc32c Ones       None          (ChecksumZeroed)  (Be32(0xfc));
    JournalList          Crc32c Journal    None          (ChecksumZeroed)  (Be32FromEnd(4));
    JournalCommit        Crc32c Journal    None          (ChecksumZeroed)  (Be32(0x10));
    JournalData          Crc32c Journal    Sequence      (All)             (Elsewhere);
}

/// Context of a structure: inputs of its checksum that lie outside it; see [`Prefix`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// The group's number.
    pub group: GroupNo,
    /// The inode, if it belongs to one.
    pub inode: Option<InodeNo>,
    /// The inode's generation.
    pub generation: u32,
    /// The block's number.
    pub block: Block,
    /// The transaction.
    pub sequence: u32,
}

impl Inode {
    /// The context of the checksums of the inode's blocks.
    pub(crate) fn context(&self) -> Context {
        Context { inode: Some(self.number()), generation: self.generation(), ..Context::default() }
    }
}

/// Which checksums a file system carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// None at all.
    None,
    /// CRC-16 of group descriptors (`uninit_bg`).
    Groups,
    /// CRC-32C of all metadata (`metadata_csum`).
    Metadata,
}

/// Computes, checks and stores the checksums of one file system.
#[derive(Clone, Copy)]
pub struct Checksums {
    crc32c: Crc32c,
    kind: Kind,
    seed: u32,
    journal_seed: u32,
    old_seed: u16,
}

impl Checksums {
    /// The checksums of the file system with this superblock.
    ///
    /// # Errors
    /// `Unsupported` when the superblock names an algorithm other than CRC-32C.
    pub fn new(crc32c: Crc32c, superblock: &Superblock) -> Result<Checksums> {
        let kind = if superblock.has_metadata_csum() {
            let number = superblock.checksum_type();
            if number != 1 {
                return Err(Error::unsupported(format!("metadata checksums of type {number}, not CRC-32C")));
            }
            Kind::Metadata
        } else if superblock.has_gdt_csum() {
            Kind::Groups
        } else {
            Kind::None
        };
        let seed = superblock.checksum_seed.unwrap_or_else(|| crc32c.update(!0, &superblock.uuid));
        Ok(Checksums { crc32c, kind, seed, journal_seed: 0, old_seed: crc16(!0, &superblock.uuid) })
    }

    /// The checksums, with those of the journal that has this UUID.
    pub fn with_journal(self, uuid: &[u8; 16]) -> Checksums {
        Checksums { journal_seed: self.crc32c.update(!0, uuid), ..self }
    }

    /// Whether every structure of the file system has the same checksum by these and by others.
    pub(crate) fn agree_with(&self, other: &Checksums) -> bool {
        self.kind == other.kind
            && match self.kind {
                Kind::None => true,
                Kind::Groups => self.old_seed == other.old_seed,
                Kind::Metadata => self.seed == other.seed,
            }
    }

    /// Which checksums there are.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The checksum that `bytes` should have, as wide as it is stored; `None` when the structure is too
    /// broken to have one.
    pub fn compute(&self, recipe: &Recipe, context: &Context, bytes: &[u8]) -> Option<u32> {
        if let (Subject::Inode, Ok(bytes)) = (recipe.subject, bytes.try_into()) {
            return Some(self.usual_inode(context, bytes) & recipe.stored.mask(bytes));
        }
        let stored = recipe.stored.range(bytes)?;
        let mut crc = Register::new(self, recipe);
        match recipe.prefix {
            Prefix::None => {}
            Prefix::Group => crc.update(&context.group.get().to_le_bytes()),
            Prefix::Block => crc.update(&context.block.get().to_le_bytes()),
            Prefix::Sequence => crc.update(&context.sequence.to_be_bytes()),
            Prefix::Inode | Prefix::InodeAndBlock => {
                crc.update(&InodeNo::stored(context.inode).to_le_bytes());
                crc.update(&context.generation.to_le_bytes());
                if recipe.prefix == Prefix::InodeAndBlock {
                    crc.update(&context.block.get().to_le_bytes());
                }
            }
        }
        match recipe.covered {
            Covered::All => crc.update(bytes),
            Covered::BeforeChecksum => crc.update(&bytes[..stored.start]),
            Covered::AllBut(tail) => crc.update(&bytes[..bytes.len().checked_sub(tail)?]),
            Covered::ChecksumZeroed | Covered::WithoutChecksum => {
                let zeroed = recipe.covered == Covered::ChecksumZeroed;
                crc.update(&bytes[..stored.start]);
                if zeroed {
                    crc.update(&[0; 4][..stored.len()]);
                }
                match recipe.stored.high_range(bytes) {
                    Some(high) if zeroed => {
                        crc.update(&bytes[stored.end..high.start]);
                        crc.update(&[0; 2]);
                        crc.update(&bytes[high.end..]);
                    }
                    _ => crc.update(&bytes[stored.end..]),
                }
            }
            Covered::HtreeEntries => {
                crc.update(&bytes[..htree::covered_end(bytes)?]);
                crc.update(&bytes[stored.start - 4..stored.start]);
                crc.update(&[0; 4]);
            }
        }
        Some(crc.value & recipe.stored.mask(bytes))
    }

    /// The CRC of an inode as most file systems have them, in one piece: that of six pieces takes twice as long, and no
    /// structure is met as often.
    fn usual_inode(&self, context: &Context, bytes: &[u8; USUAL_INODE]) -> u32 {
        let mut whole = [0; 8 + USUAL_INODE];
        whole[..4].copy_from_slice(&InodeNo::stored(context.inode).to_le_bytes());
        whole[4..8].copy_from_slice(&context.generation.to_le_bytes());
        whole[8..].copy_from_slice(bytes);
        let inode = &mut whole[8..];
        let (low, high) = (inode::CHECKSUM.0.0, Stored::Inode.high_range(bytes));
        inode[low..low + 2].fill(0);
        if let Some(high) = high {
            inode[high].fill(0);
        }
        self.crc32c.update(self.seed, &whole)
    }

    /// The checksum that is stored in `bytes`, or for recipes of the group's descriptor in that.
    pub fn stored(&self, recipe: &Recipe, bytes: &[u8]) -> Option<u32> {
        let range = recipe.stored.range(bytes)?;
        Some(match recipe.stored {
            Stored::Elsewhere => return None,
            Stored::Be32(_) | Stored::Be32FromEnd(_) => field::Be32(range.start).get(bytes),
            Stored::Le16(_) => field::Le16(range.start).get(bytes).into(),
            Stored::Inode | Stored::Descriptor(..) => {
                let high = recipe.stored.high_range(bytes);
                let high = high.map_or(0, |high| field::Le16(high.start).get(bytes));
                u32::from(field::Le16(range.start).get(bytes)) | u32::from(high) << 16
            }
            _ => field::Le32(range.start).get(bytes),
        })
    }

    /// Writes the checksum `value` to where the recipe stores it.
    pub fn write(&self, recipe: &Recipe, bytes: &mut [u8], value: u32) -> Option<()> {
        let range = recipe.stored.range(bytes)?;
        let little = value.to_le_bytes();
        match recipe.stored {
            Stored::Elsewhere => return None,
            Stored::Be32(_) | Stored::Be32FromEnd(_) => bytes[range].copy_from_slice(&value.to_be_bytes()),
            _ => {
                let len = range.len();
                if let Some(high) = recipe.stored.high_range(bytes) {
                    bytes[high].copy_from_slice(&little[2..]);
                }
                bytes[range].copy_from_slice(&little[..len]);
            }
        }
        Some(())
    }

    /// Computes the checksum of `bytes` and stores it in them.
    pub fn store(&self, recipe: &Recipe, context: &Context, bytes: &mut [u8]) -> Option<()> {
        let value = self.compute(recipe, context, bytes)?;
        self.write(recipe, bytes, value)
    }

    /// Stores the checksum of `bytes` in them, or zero where the file system has no such checksums.
    pub(crate) fn correct(&self, subject: Subject, context: &Context, bytes: &mut [u8]) -> Option<()> {
        match self.covers(subject) {
            true => self.store(recipe(subject), context, bytes),
            false => self.write(recipe(subject), bytes, 0),
        }
    }

    /// Whether `bytes` carry their checksum, or the file system has none of these. No words are made where they don't.
    pub(crate) fn fits(&self, subject: Subject, context: &Context, bytes: &[u8]) -> bool {
        let recipe = recipe(subject);
        let pair = self.compute(recipe, context, bytes).zip(self.stored(recipe, bytes));
        !self.covers(subject) || pair.is_some_and(|(expected, found)| expected == found)
    }

    /// Checks the checksum that `bytes` carry, if the file system has such checksums.
    ///
    /// # Errors
    /// `Corrupt` with both values, or when the structure has no room for a checksum.
    pub fn verify(&self, subject: Subject, context: &Context, bytes: &[u8], place: Place) -> Result<()> {
        if !self.covers(subject) {
            return Ok(());
        }
        let recipe = recipe(subject);
        let pair = self.compute(recipe, context, bytes).zip(self.stored(recipe, bytes));
        let Some((expected, found)) = pair else {
            return Err(place.malformed("has no room for its checksum"));
        };
        compare(expected, found, place)
    }

    /// Checks a bitmap against the checksum in its group's descriptor. `bitmap` is its part in use.
    ///
    /// # Errors
    /// `Corrupt` with both values.
    pub fn verify_bitmap(
        &self,
        subject: Subject,
        bitmap: &[u8],
        descriptor: &[u8],
        place: Place,
    ) -> Result<()> {
        if !self.covers(subject) {
            return Ok(());
        }
        let recipe = recipe(subject);
        let found = self.stored(recipe, descriptor).unwrap_or(0);
        let expected = self.crc32c.update(self.seed, bitmap) & recipe.stored.mask(descriptor);
        compare(expected, found, place)
    }

    /// Checks a value against a checksum that is stored elsewhere.
    ///
    /// # Errors
    /// `Corrupt` with both values.
    pub fn verify_value(
        &self,
        subject: Subject,
        context: &Context,
        bytes: &[u8],
        found: u32,
        place: Place,
    ) -> Result<()> {
        match self.compute(recipe(subject), context, bytes) {
            Some(expected) if self.covers(subject) => compare(expected, found, place),
            _ => Ok(()),
        }
    }

    /// Continues the CRC-32C of a long value that starts from the file system's seed.
    pub(crate) fn update(&self, crc: Option<u32>, bytes: &[u8]) -> u32 {
        self.crc32c.update(crc.unwrap_or(self.seed), bytes)
    }

    /// The checksum of a structure after its bytes from `at` on became `new`, from its checksum before: nothing
    /// else of the structure is read. `bytes` is the structure before the change; the region lies in what the
    /// checksum covers and holds no part of the checksum itself.
    pub(crate) fn splice(
        &self,
        recipe: &Recipe,
        bytes: &[u8],
        old: u32,
        at: usize,
        new: &[u8],
    ) -> Option<u32> {
        let stored = recipe.stored.range(bytes)?;
        let covered = match recipe.covered {
            Covered::All | Covered::ChecksumZeroed | Covered::WithoutChecksum => bytes.len(),
            Covered::BeforeChecksum => stored.start,
            Covered::AllBut(tail) => bytes.len().checked_sub(tail)?,
            Covered::HtreeEntries => htree::covered_end(bytes)? + htree::TAIL,
        };
        let region = bytes.get(at..at + new.len())?;
        match recipe.algorithm {
            Algorithm::Crc32c => {
                let mask = recipe.stored.mask(bytes);
                let sum = self.crc32c.splice(old, u64_of(covered), u64_of(at), region, new).ok()?;
                Some(sum & mask)
            }
            Algorithm::Crc16 => {
                // Linear, too: the change is the CRC of what differs, and of the zeros behind it.
                let differs = |i: usize| new.get(i - at).map_or(0, |new| bytes[i] ^ new);
                let covered = (at..bytes.len()).filter(|i| !stored.contains(i));
                let change = covered.fold(0, |crc, i| crc16(crc, &[differs(i)]));
                Some(old ^ u32::from(change))
            }
        }
    }

    /// The checksum of a structure that grew at its end by `growth` bytes, where all from somewhere on (`old_rest`)
    /// was replaced by `new_rest`, which is so much longer. Both are given in pieces.
    pub(crate) fn grown(&self, old: u32, old_rest: &[&[u8]], new_rest: &[&[u8]], growth: u64) -> u32 {
        let crc = |pieces: &[&[u8]]| pieces.iter().fold(0, |crc, piece| self.crc32c.update(crc, piece));
        self.crc32c.combine(old ^ crc(old_rest), crc(new_rest), growth)
    }

    /// The checksum of a bitmap of `bits` bits after a run of them was inverted.
    pub(crate) fn flipped(
        &self,
        old: u32,
        bits: u64,
        first: u64,
        count: u64,
        descriptor: &[u8],
    ) -> Option<u32> {
        // Both halves of a descriptor are split alike, so that either recipe gives the mask.
        let mask = recipe(Subject::BlockBitmap).stored.mask(descriptor);
        Some(self.crc32c.flip_range(old, bits, first, count).ok()? & mask)
    }

    /// Whether the file system carries this checksum.
    pub fn covers(&self, subject: Subject) -> bool {
        match subject {
            Subject::OldGroupDescriptor => self.kind == Kind::Groups,
            // The journal's features decide, and whoever asks knows them.
            Subject::JournalSuperblock
            | Subject::JournalList
            | Subject::JournalCommit
            | Subject::JournalData => true,
            // Values in inodes are hashed whatever the rest of the file system does.
            Subject::XattrInode => true,
            _ => self.kind == Kind::Metadata,
        }
    }

    /// The plain CRC-32C, for what is no structure of the file system.
    pub(crate) fn crc32c(&self) -> Crc32c {
        self.crc32c
    }

    /// The subject under which descriptors of this file system are checked.
    pub fn descriptor_subject(&self) -> Subject {
        if self.kind == Kind::Groups { Subject::OldGroupDescriptor } else { Subject::GroupDescriptor }
    }
}

impl std::fmt::Debug for Checksums {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Checksums").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// The recipe of a structure.
pub fn recipe(subject: Subject) -> &'static Recipe {
    #[expect(clippy::as_conversions, reason = "a discriminant")]
    let row = subject as usize;
    // OK to index: the rows stand in the order of the enum, which a test checks.
    &RECIPES[row]
}

pub(crate) fn compare(expected: u32, found: u32, place: Place) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    Err(Corrupt::new(place, Problem::Checksum { expected, found }).into())
}

struct Register<'a> {
    checksums: &'a Checksums,
    algorithm: Algorithm,
    value: u32,
}

impl<'a> Register<'a> {
    fn new(checksums: &'a Checksums, recipe: &Recipe) -> Register<'a> {
        let value = match (recipe.algorithm, recipe.seed) {
            (Algorithm::Crc16, _) => u32::from(checksums.old_seed),
            (Algorithm::Crc32c, Seed::Ones) => !0,
            (Algorithm::Crc32c, Seed::FileSystem) => checksums.seed,
            (Algorithm::Crc32c, Seed::Journal) => checksums.journal_seed,
        };
        Register { checksums, algorithm: recipe.algorithm, value }
    }

    fn update(&mut self, bytes: &[u8]) {
        self.value = match self.algorithm {
            Algorithm::Crc32c => self.checksums.crc32c.update(self.value, bytes),
            // The register never holds more than 16 bits.
            Algorithm::Crc16 => u32::from(crc16(low16(self.value), bytes)),
        };
    }
}

impl Stored {
    /// Where the checksum's low half or whole lies; `None` if `bytes` have no such place. Empty at the end
    /// when it lies elsewhere.
    pub(crate) fn range(self, bytes: &[u8]) -> Option<std::ops::Range<usize>> {
        let (start, len) = match self {
            Stored::Le32(at) | Stored::Be32(at) => (at, 4),
            Stored::Le16(at) | Stored::Descriptor(at, _) => (at, 2),
            Stored::Le32FromEnd(back) | Stored::Be32FromEnd(back) => (bytes.len().checked_sub(back)?, 4),
            Stored::Inode => (inode::CHECKSUM.0.0, 2),
            Stored::AfterExtents => (extent::checksum_at(bytes)?, 4),
            Stored::HtreeTail => (htree::checksum_at(bytes)?, 4),
            Stored::Elsewhere => (bytes.len(), 0),
        };
        (start + len <= bytes.len()).then_some(start..start + len)
    }

    /// Where the high half lies, if the checksum is split and the structure long enough.
    pub(crate) fn high_range(self, bytes: &[u8]) -> Option<std::ops::Range<usize>> {
        match self {
            Stored::Inode => {
                let high = inode::CHECKSUM.1;
                let has_high = bytes.len() > OLD_INODE_SIZE
                    && OLD_INODE_SIZE + usize::from(inode::EXTRA_SIZE.get(bytes)) >= high.end();
                has_high.then_some(high.0..high.end())
            }
            Stored::Descriptor(_, high) => (bytes.len() >= 64).then_some(high..high + 2),
            _ => None,
        }
    }

    /// The bits that are stored.
    pub(crate) fn mask(self, bytes: &[u8]) -> u32 {
        match self {
            Stored::Le16(_) => 0xffff,
            Stored::Inode | Stored::Descriptor(..) if self.high_range(bytes).is_none() => 0xffff,
            _ => !0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_its_subjects() {
        for (row, recipe) in RECIPES.iter().enumerate() {
            assert_eq!(recipe.subject as usize, row, "{:?}", recipe.subject);
        }
        assert_eq!(RECIPES.len(), Subject::JournalData as usize + 1);
    }
}
