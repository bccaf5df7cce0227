//! Directories made of the records in them that make sense.

use std::collections::{BTreeMap, BTreeSet};

use casemate_blockdev::usize_of;

use crate::check::{Finding, FindingKind};
use crate::edit::dir::NewName;
use crate::edit::dir::name::Name;
use crate::edit::inode::{read_raw, write};
use crate::edit::too_large::TooLarge;
use crate::error::Result;
use crate::format::csum::Subject;
use crate::format::dir;
use crate::format::dirhash::DirHash;
use crate::format::features::Incompat;
use crate::format::inline;
use crate::format::inode::{FileType, Inode, InodeFlags};
use crate::format::raw_inode::RawInode;
use crate::format::xattr;
use crate::read::casefold::fold;
use crate::repair::Repair;
use crate::units::{Block, InodeNo};

/// The longest name.
const LONGEST_NAME: usize = 255;

/// The flag of a file system whose names without regard to case must be UTF-8.
const STRICT: u16 = 1;

/// Bytes of the shortest record.
const SHORTEST: usize = 12;

/// A record of a directory that makes sense by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Salvaged {
    pub inode: InodeNo,
    pub name: Vec<u8>,
    pub hash: Option<DirHash>,
}

/// Format of the records of a directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Format {
    /// Whether hashes follow names.
    pub with_hash: bool,
    /// Whether names may hold any byte.
    pub is_encrypted: bool,
    /// The highest inode number.
    pub inodes: u32,
}

/// The records of a block, or of a part of an inode, up to `end`. Where a name is longer than its record, the record's length
/// counts if records follow there: that name is lost, and none behind it. Behind a record whose length can't be, they go on
/// where all up to the end make sense.
pub(super) fn salvage(bytes: &[u8], end: usize, format: Format) -> Vec<Salvaged> {
    let mut found = Vec::new();
    let mut at = 0;
    while at + dir::NAME <= end {
        let rest = &bytes[at..end];
        let len = dir::length(dir::LENGTH.get(rest), bytes.len());
        let record = salvaged(rest, format);
        let is_free = dir::INODE.get(rest) == 0;
        let need = record.as_ref().map_or(dir::NAME, |(_, need)| *need);
        let can_be = len >= SHORTEST && len.is_multiple_of(4) && len <= rest.len();
        let is_sound = can_be && len >= need && (is_free || record.is_some());
        let is_dot = record.as_ref().is_some_and(|(record, _)| record.name == b".");
        if at == 0 && (is_dot || !is_sound) && is_parent(rest.get(SHORTEST..), format) {
            // Nothing but ".." follows "." at once, whatever its lengths say.
            found.extend(record.filter(|_| is_dot).map(|(record, _)| record));
            at += SHORTEST;
            continue;
        }
        if is_sound {
            found.extend(record.map(|(record, _)| record));
            at += len;
            continue;
        }
        let is_next = |next: usize| is_chain(&bytes[..end], next, bytes.len(), format);
        if can_be && (at + len == end || is_next(at + len)) {
            at += len;
            continue;
        }
        // The length may be what is wrong, and the name right.
        let record = record.filter(|(record, _)| format.has_sense(&record.name));
        let from = record.as_ref().map_or(SHORTEST, |(_, need)| *need);
        match (at + from..end).step_by(4).find(|next| is_next(*next)) {
            Some(next) => {
                found.extend(record.map(|(record, _)| record));
                at = next;
            }
            None if can_be => at += len,
            None => {
                found.extend(record.map(|(record, _)| record));
                break;
            }
        }
    }
    found
}

impl Format {
    /// Whether these bytes can be a name.
    fn has_sense(self, name: &[u8]) -> bool {
        self.is_encrypted || !name.iter().any(|byte| matches!(byte, 0 | b'/'))
    }
}

/// Whether a record of the name ".." begins here.
fn is_parent(rest: Option<&[u8]>, format: Format) -> bool {
    rest.and_then(|rest| salvaged(rest, format)).is_some_and(|(record, _)| record.name == b"..")
}

/// The record in use at the start of `rest`, whatever its length says, and how many bytes it needs.
fn salvaged(rest: &[u8], format: Format) -> Option<(Salvaged, usize)> {
    if rest.len() < dir::NAME {
        return None;
    }
    let inode = InodeNo::new(dir::INODE.get(rest)).filter(|inode| inode.get() <= format.inodes)?;
    let name_len = usize::from(dir::NAME_LENGTH.get(rest));
    let name = rest.get(dir::NAME..dir::NAME + name_len).filter(|name| !name.is_empty())?;
    let is_dot = matches!(name, b"." | b"..");
    let hash = match format.with_hash && !is_dot {
        true => Some(dir::hash_at(rest.get(dir::NAME + name_len.next_multiple_of(4)..)?.get(..8)?)),
        false => None,
    };
    Some((Salvaged { inode, name: name.to_vec(), hash }, dir::record_len(name, hash)))
}

/// Whether sound records lead from `at` to the end, one of them in use.
fn is_chain(bytes: &[u8], mut at: usize, block: usize, format: Format) -> bool {
    let mut has_name = false;
    while at + SHORTEST <= bytes.len() {
        let rest = &bytes[at..];
        let len = dir::length(dir::LENGTH.get(rest), block);
        if len < SHORTEST || !len.is_multiple_of(4) || len > rest.len() {
            return false;
        }
        if dir::INODE.get(rest) != 0 {
            let Some((record, need)) = salvaged(rest, format) else { return false };
            if need > len || !format.has_sense(&record.name) {
                return false;
            }
            has_name = true;
        }
        at += len;
    }
    at == bytes.len() && has_name
}

/// Directories with findings about their structure, and names that are to go, by directory.
#[derive(Debug, Default)]
pub(super) struct Unsound {
    /// Blocks with findings that are no inode's, and the inodes that have these blocks of attributes, once they are asked for.
    pub blocks: BTreeSet<Block>,
    pub users: Option<BTreeMap<Block, Vec<InodeNo>>>,
    structures: BTreeSet<InodeNo>,
    names: BTreeSet<(InodeNo, Vec<u8>)>,
    kinds: BTreeSet<(InodeNo, FindingKind)>,
}

impl Unsound {
    /// Whether an inode has a finding of a kind.
    pub fn has(&self, inode: InodeNo, kind: FindingKind) -> bool {
        self.kinds.contains(&(inode, kind))
    }

    pub fn of(findings: &[&Finding]) -> Unsound {
        use FindingKind as K;
        let mut unsound = Unsound::default();
        for finding in findings {
            let Some(inode) = finding.place().inode else {
                unsound.blocks.extend(finding.place().block.map(Block::new));
                continue;
            };
            unsound.kinds.insert((inode, finding.kind()));
            match (finding.kind(), finding.name()) {
                (K::DirectoryLink | K::EncryptionPolicy | K::EntryInode, Some(name)) => {
                    unsound.names.insert((inode, name.to_vec()));
                }
                (K::EntryInode | K::EntryName | K::DuplicateName, _) => {}
                _ => {
                    unsound.structures.insert(inode);
                }
            }
        }
        unsound
    }
}

/// Names of a directory that are kept, as they come.
struct Kept {
    seen: BTreeSet<Vec<u8>>,
    /// The next number to try behind a name.
    numbers: BTreeMap<Vec<u8>, u32>,
    /// Names that have no room where they were.
    waiting: Vec<Salvaged>,
    is_folded: bool,
    is_encrypted: bool,
    /// Whether names must be UTF-8.
    is_strict: bool,
}

impl Kept {
    fn key(&self, name: &[u8]) -> Vec<u8> {
        let folded = if self.is_folded && !self.is_encrypted { fold(name) } else { None };
        folded.map_or_else(|| name.to_vec(), String::into_bytes)
    }

    /// The name to keep a record under; `None` if it goes.
    fn name_for(&mut self, name: &[u8]) -> Option<Vec<u8>> {
        let mut name = name.to_vec();
        if !self.is_encrypted {
            for byte in name.iter_mut().filter(|byte| matches!(**byte, 0 | b'/')) {
                *byte = b'.';
            }
        }
        if self.is_strict && fold(&name).is_none() {
            name.iter_mut().filter(|byte| !byte.is_ascii()).for_each(|byte| *byte = b'.');
        }
        if self.seen.insert(self.key(&name)) {
            return Some(name);
        }
        if self.is_encrypted {
            // Without the key there is no other name.
            return None;
        }
        // The same name again goes on where the one before it ended.
        let next = self.numbers.remove(&name).unwrap_or(0);
        let found = (next..).find_map(|number| {
            let suffix = format!("~{number}");
            let mut other = name.clone();
            other.truncate(LONGEST_NAME - suffix.len());
            other.extend_from_slice(suffix.as_bytes());
            self.seen.insert(self.key(&other)).then_some((number, other))
        });
        found.map(|(number, other)| {
            self.numbers.insert(name, number + 1);
            other
        })
    }
}

impl Repair {
    /// Makes a directory's blocks of the records that make sense.
    pub(super) fn renew_directory(&mut self, finding: &Finding) -> Result<bool> {
        let Some(number) = finding.place().inode else { return Ok(false) };
        let mut dir = self.files.inodes().get_unlinked(number)?;
        if !dir.is_dir() {
            return Ok(false);
        }
        self.files.forget_directory(number);
        let format = self.record_format(&dir);
        let mut kept = Kept {
            seen: BTreeSet::new(),
            numbers: BTreeMap::new(),
            waiting: Vec::new(),
            is_folded: dir.has(InodeFlags::CASEFOLD),
            is_encrypted: dir.has(InodeFlags::ENCRYPT),
            is_strict: dir.has(InodeFlags::CASEFOLD)
                && !dir.has(InodeFlags::ENCRYPT)
                && self.files.fs().superblock().encoding.1 & STRICT != 0,
        };
        if dir.has(InodeFlags::INLINE_DATA) {
            return self.spread_directory(dir, kept);
        }
        let block_size = self.space().block_size();
        let raw = read_raw(self.files.space(), number)?;
        let runs = self.walk(RawInode { number, raw: &raw })?.runs;
        let was_indexed = self.files.fs().is_indexed(&dir);
        let is_indexed = was_indexed && !self.unsound.structures.contains(&number);
        let tail = self.files.directory(&mut dir).tail_size();
        let context = dir.context();
        for run in &runs {
            for step in 0..run.len {
                let (logical, block) = (run.logical + step, run.physical + step);
                let bytes = self.files.fs().read_block(block)?;
                let is_first = logical == 0;
                // Nodes of the index begin with a free record as long as they are.
                let is_node = dir::INODE.get(&bytes) == 0
                    && dir::length(dir::LENGTH.get(&bytes), block_size) == block_size
                    && was_indexed;
                if is_indexed && (is_first || is_node) {
                    continue;
                }
                let end = if dir::has_tail(&bytes) { block_size - dir::TAIL } else { block_size };
                let found = salvage(&bytes, end, format);
                let mut records = Vec::new();
                let mut room = block_size - tail;
                let mut is_same = !is_node;
                if is_first {
                    let parent = self.parent_of(&dir, &found);
                    let own = [(number, &b"."[..]), (parent, b"..")];
                    for (inode, name) in own {
                        let name = Name::exact(name, None);
                        let new = NewName { name: &name, inode, kind: FileType::Directory };
                        let bytes = self.files.directory(&mut dir).record_bytes(&new);
                        room -= bytes.len();
                        records.push(bytes);
                    }
                    let is_own = |at: usize, inode: InodeNo, name: &[u8]| {
                        found.get(at).is_some_and(|record| record.inode == inode && record.name == name)
                    };
                    is_same &= is_own(0, number, b".") && is_own(1, parent, b"..") && !was_indexed;
                    is_same &= dir::length(dir::LENGTH.get(&bytes), block_size) == SHORTEST;
                    // Both names are followed by a zero.
                    is_same &= bytes[dir::NAME + 1] == 0 && bytes[SHORTEST + dir::NAME + 2] == 0;
                }
                for (at, record) in found.into_iter().enumerate() {
                    if matches!(&record.name[..], b"." | b"..") {
                        is_same &= is_first && at < 2;
                        continue;
                    }
                    let Some(new) = self.keep(&dir, &mut kept, &record)? else {
                        is_same = false;
                        continue;
                    };
                    is_same &= new.name == record.name;
                    let bytes = self.record(&mut dir, &new)?;
                    match room.checked_sub(bytes.len()) {
                        Some(left) => {
                            room = left;
                            records.push(bytes);
                        }
                        None => {
                            is_same = false;
                            kept.waiting.push(new);
                        }
                    }
                }
                let is_whole = is_sound(&bytes, end, format) && (tail == 0 || dir::has_tail(&bytes));
                if is_same && is_whole {
                    continue;
                }
                let packed = self.files.directory(&mut dir).pack(&records);
                self.files.inodes().transaction().create_structure(
                    Subject::DirectoryBlock,
                    context,
                    block,
                    packed,
                );
                if self.files.space().transaction().is_full() {
                    return Err(TooLarge::error());
                }
            }
        }
        if was_indexed && !is_indexed {
            self.unindexed.insert(number);
            dir.set_flags(dir.flags().0 & !InodeFlags::INDEX.0);
        }
        if runs.is_empty() {
            dir.set_size(0);
            self.files.inodes().map(&mut dir).start();
            self.files.directory(&mut dir).make_first_leaf(InodeNo::ROOT, Vec::new())?;
        }
        // Blocks were changed past what is known of them.
        self.files.forget_directory(number);
        for record in kept.waiting {
            self.insert_salvaged(&mut dir, &record)?;
        }
        write(self.space(), &dir)?;
        Ok(true)
    }

    /// Makes a directory in its inode one of blocks.
    fn spread_directory(&mut self, mut dir: Inode, mut kept: Kept) -> Result<bool> {
        let format = self.record_format(&dir);
        let (parent, first) = inline::split(dir.block_area());
        let mut found = salvage(first, first.len(), format);
        if let Some(base) = xattr::in_inode(dir.xattr_area()) {
            xattr::raw_entries(base, 0, |entry| {
                if (entry.index, entry.name) == (xattr::SYSTEM, xattr::INLINE_DATA)
                    && let Some(rest) = base.get(entry.value_offset..)
                    && let Some(rest) = rest.get(..usize_of(entry.value_size))
                {
                    found.extend(salvage(rest, rest.len(), format));
                }
            });
        }
        let parent = parent.filter(|parent| self.is_directory(*parent)).unwrap_or(InodeNo::ROOT);
        // Other attributes stay, if they can be read.
        let mark = self.files.inodes().attributes(&mut dir).remove_inline();
        if mark.is_err() {
            xattr::write_area(dir.xattr_area_mut(), &[]);
        }
        dir.set_flags(dir.flags().0 & !(InodeFlags::INLINE_DATA.0 | InodeFlags::INDEX.0));
        dir.set_size(0);
        self.files.inodes().map(&mut dir).start();
        self.files.directory(&mut dir).make_first_leaf(parent, Vec::new())?;
        for record in found {
            if matches!(&record.name[..], b"." | b"..") {
                continue;
            }
            if let Some(new) = self.keep(&dir, &mut kept, &record)? {
                self.insert_salvaged(&mut dir, &new)?;
            }
        }
        write(self.space(), &dir)?;
        Ok(true)
    }

    fn record_format(&self, dir: &Inode) -> Format {
        let inodes = self.files.fs().layout().inodes;
        Format { with_hash: dir.has_hashes(), is_encrypted: dir.has(InodeFlags::ENCRYPT), inodes }
    }

    fn insert_salvaged(&mut self, dir: &mut Inode, record: &Salvaged) -> Result<()> {
        let kind = self.files.inodes().get_unlinked(record.inode)?.kind();
        let name = Name::exact(&record.name, record.hash);
        self.files.directory(dir).insert_stored(&NewName { name: &name, inode: record.inode, kind })
    }

    fn record(&mut self, dir: &mut Inode, record: &Salvaged) -> Result<Vec<u8>> {
        let kind = self.files.inodes().get_unlinked(record.inode)?.kind();
        let name = Name::exact(&record.name, record.hash);
        Ok(self.files.directory(dir).record_bytes(&NewName { name: &name, inode: record.inode, kind }))
    }

    /// The record as it is kept; `None` if it leads nowhere, or a directory has another name already.
    fn keep(&mut self, dir: &Inode, kept: &mut Kept, record: &Salvaged) -> Result<Option<Salvaged>> {
        let Salvaged { inode, name, hash } = record;
        let is_unwanted = self.unsound.names.contains(&(dir.number(), name.clone()));
        let is_own = *inode == dir.number() || *inode == InodeNo::ROOT;
        let is_short = kept.is_encrypted && name.len() < 16;
        if is_unwanted || is_own || is_short || self.files.fs().superblock().is_internal(*inode) {
            return Ok(None);
        }
        let raw = read_raw(self.files.space(), *inode)?;
        let found = RawInode { number: *inode, raw: &raw };
        if found.kind().is_none() || found.links() == 0 || self.is_named(*inode) {
            return Ok(None);
        }
        Ok(kept.name_for(name).map(|name| Salvaged { inode: *inode, name, hash: *hash }))
    }

    /// Whether the superblock names an inode as one of the file system's own.
    fn is_named(&self, inode: InodeNo) -> bool {
        let superblock = self.files.fs().superblock();
        superblock.orphan_file == Some(inode)
            || superblock.journal_inode == Some(inode)
            || superblock.quota_inodes.contains(&Some(inode))
    }

    fn is_directory(&mut self, inode: InodeNo) -> bool {
        let Ok(raw) = read_raw(self.files.space(), inode) else { return false };
        let found = RawInode { number: inode, raw: &raw };
        found.kind() == Some(FileType::Directory) && found.links() > 0
    }

    /// The parent that a directory's first block names, or the root.
    fn parent_of(&mut self, dir: &Inode, found: &[Salvaged]) -> InodeNo {
        if dir.number() == InodeNo::ROOT {
            return InodeNo::ROOT;
        }
        let up = found.iter().find(|record| record.name == b"..").map(|record| record.inode);
        up.filter(|up| self.is_directory(*up)).unwrap_or(InodeNo::ROOT)
    }

    /// Takes the name away by which a directory is within itself.
    pub(super) fn unloop(&mut self, finding: &Finding) -> Result<bool> {
        let Some(number) = finding.place().inode else { return Ok(false) };
        let mut dir = self.files.inodes().get_unlinked(number)?;
        let Some(up) = self.files.directory(&mut dir).find(b"..")? else { return Ok(false) };
        let mut parent = self.files.inodes().get_unlinked(up.inode)?;
        let names = self.files.names_in(up.inode)?;
        let Some((name, ..)) = names.into_iter().find(|(_, inode, _)| *inode == number) else {
            return Ok(false);
        };
        let Some(found) = self.files.directory(&mut parent).find_stored(&name)? else { return Ok(false) };
        self.files.directory(&mut parent).remove(&found)?;
        write(self.space(), &parent)?;
        Ok(true)
    }

    /// Frees an inode with a value that no attribute has.
    pub(super) fn free_value(&mut self, finding: &Finding) -> Result<bool> {
        let Some(number) = finding.place().inode else { return Ok(false) };
        let superblock = self.files.fs().superblock();
        if !superblock.incompat.has(Incompat::EA_INODE) && superblock.is_reserved(number) {
            return Ok(false);
        }
        self.clear_inode(number)
    }
}

/// Whether all records up to the end make sense.
fn is_sound(bytes: &[u8], end: usize, format: Format) -> bool {
    let mut at = 0;
    while at + SHORTEST <= end {
        let rest = &bytes[at..end];
        let len = dir::length(dir::LENGTH.get(rest), bytes.len());
        let need = match dir::INODE.get(rest) {
            0 => SHORTEST,
            _ => match salvaged(rest, format) {
                Some((_, need)) => need,
                None => return false,
            },
        };
        if len < need || !len.is_multiple_of(4) || len > rest.len() {
            return false;
        }
        at += len;
    }
    at == end
}
