//! The second pass: every block of every directory, its names, and what these lead to.

use std::collections::HashMap;
use std::sync::Arc;

use casemate_blockdev::{BlockDevice, Buffer, u64_of, usize_of};
use casemate_providers::Work;

use crate::check::blocks::Walked;
use crate::check::facts::Fact;
use crate::check::findings::{Doubts, Finding, FindingKind};
use crate::check::htree::{Leaf, Tree};
use crate::check::names::{self, Names, mixed};
use crate::check::places::Group;
use crate::check::worker::{Check, Directory, Purpose, Worker};
use crate::error::{Place, Problem, Result, Structure};
use crate::format::csum::{Context, Subject};
use crate::format::dir::{self, has_tail};
use crate::format::dirhash::DirHash;
use crate::format::inline;
use crate::format::inode::{FileType, InodeFlags};
use crate::format::raw_inode::RawInode;
use crate::format::xattr;
use crate::read::casefold::fold;
use crate::read::encryption::{EncryptedNames, StoredName};
use crate::read::mapping::Mapping;
use crate::read::runs::BlockRuns;
use crate::units::{Block, InodeNo};

/// Bytes of a directory that are read at once, and names of one that are told of.
const RUN_BYTES: u64 = 1 << 20;
const MOST_SUSPECTS: usize = 1000;

/// Names are stored encrypted in whole blocks of the cipher.
const LEAST_ENCRYPTED: usize = 16;

/// The flag of a file system whose casefolded names must be UTF-8.
const STRICT: u16 = 1;

/// Parents that directories name: the directory, and the inode behind its "..", unless that is 0.
pub(crate) type Parents = Vec<(InodeNo, Option<InodeNo>)>;

/// Goes through all directories.
pub(crate) fn all(check: &Check<'_>, groups: &[Group], work: &Work<'_>) -> Result<Parents> {
    let mut directories = std::mem::take(&mut check.lists().directories);
    // In the order of the disk.
    directories.sort_unstable_by_key(|directory| (directory.first, directory.number));
    // Small ones in handfuls.
    const AT_ONCE: usize = 16;
    let state = || Reader {
        worker: Worker::new(check, groups, Purpose::Check),
        buffer: Buffer::default(),
        names: Names::default(),
        parents: Vec::new(),
    };
    let (readers, result) =
        work.pool.gather(u64_of(directories.len().div_ceil(AT_ONCE)), state, |reader, piece| {
            let first = usize_of(piece) * AT_ONCE;
            for directory in &directories[first..directories.len().min(first + AT_ONCE)] {
                reader.directory(directory)?;
            }
            work.events.advance(0)
        });
    let mut parents = Parents::new();
    for mut reader in readers {
        reader.worker.finish();
        parents.append(&mut reader.parents);
    }
    result.map(|()| parents)
}

/// Callback for each block of a directory: block of the directory, block of the device, bytes.
type OnBlock<'f, R> = dyn FnMut(&mut R, u64, Block, &[u8]) -> Result<()> + 'f;

/// One thread of the pass.
struct Reader<'a, 'b> {
    worker: Worker<'a, 'b>,
    buffer: Buffer,
    names: Names,
    parents: Parents,
}

/// A directory that is being read.
struct Open<'a> {
    directory: &'a Directory,
    /// Its policy, if it is encrypted and has one.
    policy: Option<u32>,
    is_encrypted: bool,
    /// Decryption of its names, if its key is there.
    names: Option<Arc<dyn EncryptedNames>>,
    is_casefolded: bool,
    /// Names are followed by hashes.
    has_hashes: bool,
    tree: Option<Tree>,
    /// Names whose hashes were there before: to be compared themselves.
    suspects: Vec<u64>,
    /// Names that were left for further turns.
    turns: u64,
    /// Records so far, up to the first two.
    position: u32,
}

impl Reader<'_, '_> {
    fn directory(&mut self, directory: &Directory) -> Result<()> {
        let flags = InodeFlags(directory.flags);
        let number = directory.number;
        let policy = self.policy(number);
        let block_size = u64::from(self.worker.check.fs.layout().block_size);
        let bytes = u64::from(directory.blocks) * block_size;
        let mut open = Open {
            directory,
            policy,
            is_encrypted: flags.has(InodeFlags::ENCRYPT),
            names: if flags.has(InodeFlags::ENCRYPT) { self.decryption(number)? } else { None },
            is_casefolded: flags.has(InodeFlags::CASEFOLD),
            has_hashes: flags.has(InodeFlags::ENCRYPT) && flags.has(InodeFlags::CASEFOLD),
            tree: None,
            suspects: Vec::new(),
            turns: (bytes / 24).div_ceil(names::MOST).max(1),
            position: 0,
        };
        self.names.clear();
        if flags.has(InodeFlags::INLINE_DATA) {
            return self.inline(&mut open);
        }
        let runs = self.runs(directory)?;
        if flags.has(InodeFlags::INDEX) && self.worker.check.has.index {
            open.tree = self.worker.tree(directory, &runs)?;
        }
        let mut next = 0;
        let mut has_hole = false;
        let mut at = 0;
        while at < runs.len() {
            let run = runs[at];
            has_hole |= run.logical > next;
            next = next.max(run.end());
            self.read(run, &mut |reader, logical, block, bytes| {
                reader.block(&mut open, logical, block, bytes)
            })?;
            at += 1;
        }
        let place = Place::inode(Structure::Directory, number);
        // With large_dir, e2fsck lets it. Nobody reads on behind it, and the kernel calls it damage.
        if has_hole {
            self.worker.say(FindingKind::DirectoryHole, place, "lacks a block before its last one");
        }
        if let Some(tree) = &open.tree {
            tree.finish(&self.worker, place);
        }
        self.duplicates(&mut open, &runs, place)
    }

    /// The number of an encrypted inode's policy, if it has one that makes sense.
    fn policy(&self, inode: InodeNo) -> Option<u32> {
        let record = self.worker.check.facts.record(inode)?;
        let is_encrypted = record.fact().has(Fact::ENCRYPTED) && !record.fact().has(Fact::VALUE);
        Some(record.policy()).filter(|policy| is_encrypted && *policy != 0)
    }

    /// Decryption of the names of a directory, if its key is there.
    fn decryption(&self, number: InodeNo) -> Result<Option<Arc<dyn EncryptedNames>>> {
        let check = self.worker.check;
        if check.fs.encryption().is_none() {
            return Ok(None);
        }
        let Some(raw) = check.inode_bytes(self.worker.groups, number)? else { return Ok(None) };
        let Ok(inode) = (RawInode { number, raw: &raw }).to_inode() else { return Ok(None) };
        let unlocked = check.fs.unlocked(&inode);
        Ok(unlocked.and_then(|(encrypted, encryption)| encryption.names(&encrypted).ok()))
    }

    /// Where a directory's blocks lie.
    fn runs(&mut self, directory: &Directory) -> Result<Vec<Mapping>> {
        if let Some(physical) = directory.first {
            return Ok(vec![Mapping {
                logical: 0,
                physical,
                len: directory.blocks.into(),
                unwritten: false,
            }]);
        }
        let (check, groups) = (self.worker.check, self.worker.groups);
        let Some(raw) = check.inode_bytes(groups, directory.number)? else { return Ok(Vec::new()) };
        let mut walked = Walked::default();
        self.worker.purpose = Purpose::Collect;
        let inode = RawInode { number: directory.number, raw: &raw };
        let result = self.worker.map(inode, FileType::Directory, &mut walked);
        self.worker.purpose = Purpose::Check;
        result?;
        let mut runs = std::mem::take(&mut self.worker.runs);
        let mut seen = BlockRuns::default();
        for run in &mut runs {
            if !run.unwritten && !seen.insert(run.physical, run.len) {
                // That it has blocks twice is told with the owners of blocks. Its names are those of one of them.
                run.unwritten = true;
                if !seen.has(run.physical, run.len) {
                    check.findings.doubt(Doubts::NAMES | Doubts::LINKS);
                }
            }
        }
        Ok(runs)
    }

    /// Reads a run of blocks, and calls `f` with each: number in the directory, number on the device, bytes.
    fn read(&mut self, run: Mapping, f: &mut OnBlock<'_, Self>) -> Result<()> {
        let check = self.worker.check;
        let block_size = u64::from(check.fs.layout().block_size);
        let mut done = 0;
        while done < run.len && !run.unwritten {
            let count = (run.len - done).min((RUN_BYTES / block_size).max(1));
            if !check.may_read(count) {
                return Ok(());
            }
            let first = run.physical + done;
            if !check.fs.is_present(first, count) {
                return Ok(());
            }
            let mut buffer = std::mem::take(&mut self.buffer);
            buffer.resize(usize_of(count * block_size));
            check.fs.device().read_at(&mut buffer, first.offset(block_size))?;
            for (number, bytes) in (0..).zip(buffer.chunks_exact(usize_of(block_size))) {
                f(self, run.logical + done + number, first + number, bytes)?;
            }
            self.buffer = buffer;
            done += count;
        }
        Ok(())
    }

    fn block(&mut self, open: &mut Open<'_>, logical: u64, block: Block, bytes: &[u8]) -> Result<()> {
        let check = self.worker.check;
        let number = open.directory.number;
        let leaf = match &mut open.tree {
            None => Leaf::Any,
            Some(tree) => tree.leaf(logical),
        };
        let context =
            Context { inode: Some(number), generation: open.directory.generation, ..Context::default() };
        let offset = check.fs.layout().offset(block);
        if let Leaf::Node = leaf {
            let place = Place::inode(Structure::HtreeNode, number).at(block);
            if check.has.checksums {
                self.worker.verify(place, offset, bytes, Subject::HtreeNode, context);
            }
            if logical > 0 {
                return Ok(());
            }
            open.position = 0;
            self.records(open, bytes, bytes.len(), place, Leaf::Any);
            return Ok(());
        }
        let place = Place::inode(Structure::DirectoryBlock, number).at(block);
        let mut end = bytes.len();
        if check.has.checksums {
            if has_tail(bytes) {
                end -= dir::TAIL;
                self.worker.verify(place, offset, bytes, Subject::DirectoryBlock, context);
            } else {
                self.worker.say(FindingKind::DirectoryTail, place, "has no tail with a checksum");
            }
        }
        if open.tree.is_some() {
            self.names.clear();
        }
        open.position = if logical == 0 { 0 } else { 2 };
        self.records(open, bytes, end, place, leaf);
        if logical == 0 && open.position < 2 {
            self.worker.say(FindingKind::DotEntries, place, "has no \"..\"");
        }
        Ok(())
    }

    /// The records of a block, or of a part of an inode that has some.
    fn records(&mut self, open: &mut Open<'_>, bytes: &[u8], end: usize, place: Place, leaf: Leaf) {
        let mut at = 0;
        while at < end {
            let rest = &bytes[at..];
            let len =
                if rest.len() < dir::NAME { 0 } else { dir::length(dir::LENGTH.get(rest), bytes.len()) };
            let is_cut = len < dir::NAME || len % 4 != 0 || at + len > end;
            let name_len = if is_cut { 0 } else { usize::from(dir::NAME_LENGTH.get(rest)) };
            let (inode, kind) = match is_cut {
                true => (None, 0),
                false => (InodeNo::new(dir::INODE.get(rest)), dir::KIND.get(rest)),
            };
            let with_hash = open.has_hashes && open.position > 1 && inode.is_some();
            let need = dir::NAME + name_len.next_multiple_of(4) + if with_hash { 8 } else { 0 };
            if is_cut || len < 12 || need > len {
                let text = format!("the record at byte {at} has {len} bytes");
                self.worker.say(FindingKind::DirectoryRecord, place, text);
                open.position = open.position.max(2);
                return;
            }
            let name = &rest[dir::NAME..dir::NAME + name_len];
            match inode {
                _ if open.position < 2 => self.dot(open, inode, kind, &rest[..len], name, place),
                Some(inode) => {
                    let stored = with_hash.then(|| dir::hash_at(&rest[need - 8..]));
                    self.entry(open, inode, kind, name, stored, place, &leaf);
                }
                None => {}
            }
            open.position += 1;
            at += len;
        }
    }

    fn wrong(&self, kind: FindingKind, place: Place, name: &[u8], text: String) {
        let problem = Problem::Malformed(text.into());
        self.worker.check.findings.add(Finding::new(kind, place, problem).named(name), None);
    }

    /// One of the first two records: "." and "..".
    fn dot(
        &mut self,
        open: &Open<'_>,
        inode: Option<InodeNo>,
        kind: u8,
        record: &[u8],
        name: &[u8],
        place: Place,
    ) {
        let expected: &[u8] = if open.position == 0 { b"." } else { b".." };
        let number = open.directory.number;
        let what = if open.position == 0 { "first" } else { "second" };
        let Some(inode) = inode.filter(|_| name == expected) else {
            let text = format!("the {what} name is \"{}\"", name.escape_ascii());
            self.worker.say(FindingKind::DotEntries, place, text);
            return;
        };
        if record.get(dir::NAME + name.len()) != Some(&0) {
            self.worker.say(FindingKind::DotEntries, place, format!("no NUL follows the {what} name"));
        }
        if open.position == 0 && inode != number {
            let (found, expected) = (inode.get().into(), number.get().into());
            self.worker.number(FindingKind::DotEntries, place, "inode of \".\"", found, expected);
        }
        self.parent(open, inode);
        self.link(inode, kind, name, place);
    }

    /// Notes the inode that ".." leads to.
    fn parent(&mut self, open: &Open<'_>, inode: InodeNo) {
        if open.position == 1 {
            self.parents.push((open.directory.number, Some(inode)));
        }
    }

    /// Counts a name, if the inode can have one. What is known of the inode.
    #[inline]
    fn link(&self, inode: InodeNo, kind: u8, name: &[u8], place: Place) -> Option<Fact> {
        let check = self.worker.check;
        if check.fs.superblock().is_internal(inode) || inode.get() > check.fs.layout().inodes {
            self.wrong(FindingKind::EntryInode, place, name, format!("leads to inode {inode}"));
            return None;
        }
        let record = check.facts.record(inode);
        let fact = record.map_or(Fact(0), |record| record.fact());
        if !fact.has(Fact::USED) {
            let position = check.fs.layout().inode_position(inode);
            let table = position.and_then(|(group, _)| self.worker.groups[group.index()].table);
            if table.is_none() && check.fs.missing_bytes() > 0 {
                // Its table lies behind the end of the image.
                return None;
            }
            let finding = Finding::new(FindingKind::EntryInode, place, Problem::Unused(inode));
            check.findings.add(finding.named(name), None);
            // If it was a directory, what it holds has names in it.
            check.findings.doubt(Doubts::NAMES);
            self.worker.never_used(inode, "inodes that were never used have names");
            return None;
        }
        if fact.has(Fact::INTERNAL) {
            self.wrong(
                FindingKind::EntryInode,
                place,
                name,
                format!("inode {inode} is the file system's own"),
            );
        }
        let expected = if check.has.types { fact.kind() } else { 0 };
        // A name may say nothing; without a kind of its own, the inode is found damaged.
        if kind != expected && kind != 0 && fact.kind() != 0 {
            self.wrong(
                FindingKind::EntryKind,
                place,
                name,
                format!("says kind {kind}, inode {inode} has {expected}"),
            );
        }
        if let Some(record) = record {
            record.add_name();
        }
        Some(fact)
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of a record")]
    #[inline]
    fn entry(
        &mut self,
        open: &mut Open<'_>,
        inode: InodeNo,
        kind: u8,
        name: &[u8],
        stored: Option<DirHash>,
        place: Place,
        leaf: &Leaf,
    ) {
        let check = self.worker.check;
        let number = open.directory.number;
        let (mut hash, is_bad) = mixed(name);
        if matches!(name, b"." | b"..") {
            self.wrong(FindingKind::DotEntries, place, name, "is there again".to_owned());
        }
        if inode == number || inode == InodeNo::ROOT {
            self.wrong(FindingKind::DirectoryLink, place, name, format!("leads to inode {inode}"));
        }
        let Some(fact) = self.link(inode, kind, name, place) else { return };
        if name.is_empty() || !open.is_encrypted && is_bad {
            self.wrong(FindingKind::EntryName, place, name, "is empty, or has a slash or a NUL".to_owned());
        }
        let mut folded = None;
        if open.is_encrypted {
            self.encrypted(open, inode, name, stored, fact, place);
        } else if open.is_casefolded {
            folded = fold(name);
            match &folded {
                Some(folded) => hash = mixed(folded.as_bytes()).0,
                None if check.fs.superblock().encoding.1 & STRICT != 0 => {
                    self.wrong(FindingKind::EntryName, place, name, "is not valid UTF-8".to_owned());
                }
                None => {}
            }
        }
        if let (Leaf::Range(range), Some(tree)) = (leaf, &open.tree) {
            let folded = folded.as_ref().map_or(name, |folded| folded.as_bytes());
            if let Some(hash) = tree.hash(folded, stored).filter(|hash| !range.contains(hash)) {
                let (first, last) = (range.start(), range.end());
                let text = format!(
                    "its hash {hash:#010x} is not in {first:#010x} to {last:#010x}, which its block is for"
                );
                self.wrong(FindingKind::HtreeHash, place, name, text);
            }
        }
        if fact.kind() == dir::byte_of(FileType::Directory)
            && inode != number
            && inode != InodeNo::ROOT
            && !check.facts.record(inode).is_none_or(|record| record.set_parent(number))
        {
            let other = InodeNo::stored(check.facts.parent(inode));
            let text = format!("directory {inode} is in directory {other}, too");
            self.wrong(FindingKind::DirectoryLink, place, name, text);
        }
        let is_now = open.turns == 1 || hash % open.turns == 0;
        if is_now && !self.names.insert(hash) && open.suspects.len() < MOST_SUSPECTS {
            open.suspects.push(hash);
        }
    }

    /// A name in an encrypted directory.
    fn encrypted(
        &self,
        open: &Open<'_>,
        inode: InodeNo,
        name: &[u8],
        hash: Option<DirHash>,
        fact: Fact,
        place: Place,
    ) {
        if name.len() < LEAST_ENCRYPTED {
            self.wrong(FindingKind::EntryName, place, name, "is too short to be encrypted".to_owned());
        } else if let Some(text) = open.names.as_deref().and_then(|names| wrong_name(names, name, hash)) {
            self.wrong(FindingKind::EncryptedName, place, name, text.to_owned());
        }
        let kinds = [FileType::Regular, FileType::Directory, FileType::Symlink].map(dir::byte_of);
        let Some(policy) = open.policy.filter(|_| kinds.contains(&fact.kind())) else { return };
        if !fact.has(Fact::ENCRYPTED) {
            self.wrong(FindingKind::EncryptionPolicy, place, name, format!("inode {inode} is not encrypted"));
            return;
        }
        if self.policy(inode).is_some_and(|other| other != policy) {
            self.wrong(
                FindingKind::EncryptionPolicy,
                place,
                name,
                format!("inode {inode} has another policy"),
            );
        }
    }

    /// A directory in its inode: a parent, and two parts with records.
    fn inline(&mut self, open: &mut Open<'_>) -> Result<()> {
        let (check, groups) = (self.worker.check, self.worker.groups);
        let number = open.directory.number;
        let Some(raw) = check.inode_bytes(groups, number)? else { return Ok(()) };
        let inode = RawInode { number, raw: &raw };
        let place = Place::inode(Structure::InlineData, number);
        let (parent, first) = inline::split(inode.block_area());
        let kind = if check.has.types { dir::byte_of(FileType::Directory) } else { 0 };
        self.link(number, kind, b".", place);
        self.parents.push((number, parent));
        match parent {
            Some(parent) => _ = self.link(parent, kind, b"..", place),
            None => self.wrong(FindingKind::EntryInode, place, b"..", "leads to inode 0".to_owned()),
        }
        open.position = 2;
        self.records(open, first, first.len(), place, Leaf::Any);
        if let Some(base) = xattr::in_inode(inode.xattr_area()) {
            let mut rest = None;
            xattr::raw_entries(base, 0, |entry| {
                if (entry.index, entry.name) == (xattr::SYSTEM, xattr::INLINE_DATA) {
                    rest = base
                        .get(entry.value_offset..)
                        .and_then(|value| value.get(..usize_of(entry.value_size)));
                }
            });
            if let Some(rest) = rest {
                self.records(open, rest, rest.len(), place, Leaf::Any);
            }
        }
        for hash in std::mem::take(&mut open.suspects) {
            let text = format!("a name is twice in the directory (hash {hash:#x})");
            self.worker.say(FindingKind::DuplicateName, place, text);
        }
        Ok(())
    }

    /// Compares names whose hashes were equal, and looks for such names among those that were left out.
    fn duplicates(&mut self, open: &mut Open<'_>, runs: &[Mapping], place: Place) -> Result<()> {
        let (turns, is_casefolded, has_tree) =
            (open.turns, open.is_casefolded && !open.is_encrypted, open.tree.is_some());
        let hash_of = |name: &[u8]| {
            let folded = if is_casefolded { fold(name) } else { None };
            mixed(folded.as_ref().map_or(name, |folded| folded.as_bytes())).0
        };
        if !has_tree {
            for turn in 1..turns {
                self.names.clear();
                self.each_name(runs, &mut |reader, name| {
                    let hash = hash_of(name);
                    if hash % turns == turn
                        && !reader.names.insert(hash)
                        && open.suspects.len() < MOST_SUSPECTS
                    {
                        open.suspects.push(hash);
                    }
                })?;
            }
        }
        if open.suspects.is_empty() {
            return Ok(());
        }
        let mut seen: HashMap<Vec<u8>, u32> = HashMap::new();
        let suspects: std::collections::HashSet<u64> = open.suspects.drain(..).collect();
        self.each_name(runs, &mut |_, name| {
            if suspects.contains(&hash_of(name)) && seen.len() < 2 * MOST_SUSPECTS {
                let folded = if is_casefolded { fold(name).map(String::into_bytes) } else { None };
                *seen.entry(folded.unwrap_or_else(|| name.to_vec())).or_default() += 1;
            }
        })?;
        for (name, count) in seen.into_iter().filter(|(_, count)| *count > 1) {
            self.wrong(FindingKind::DuplicateName, place, &name, format!("is there {count} times"));
        }
        Ok(())
    }

    /// Calls `f` with every name in a directory's blocks once more.
    fn each_name(&mut self, runs: &[Mapping], f: &mut dyn FnMut(&mut Self, &[u8])) -> Result<()> {
        for run in runs {
            self.read(*run, &mut |reader, _, _, bytes| {
                let mut at = 0;
                while at + 12 <= bytes.len() {
                    let rest = &bytes[at..];
                    let len = dir::length(dir::LENGTH.get(rest), bytes.len());
                    if len < 12 || len > rest.len() {
                        break;
                    }
                    let name = rest.get(dir::NAME..dir::NAME + usize::from(dir::NAME_LENGTH.get(rest)));
                    if let Some(name) =
                        name.filter(|name| dir::INODE.get(rest) != 0 && !matches!(*name, b"." | b".."))
                    {
                        f(reader, name);
                    }
                    at += len;
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// The fault of a name when it is decrypted. The stored form follows from the name, so that names which differ as
/// they are stored differ when they are decrypted, too.
fn wrong_name(names: &dyn EncryptedNames, bytes: &[u8], hash: Option<DirHash>) -> Option<&'static str> {
    let Ok(name) = names.decode(StoredName { bytes, hash }) else { return Some("can't be decrypted") };
    if matches!(&name[..], b"" | b"." | b"..") || name.contains(&b'/') {
        return Some("is empty, a dot or two, or has a slash when it is decrypted");
    }
    if names.encode(&name).is_none_or(|again| again != bytes) {
        return Some("is not padded as its policy says when it is decrypted");
    }
    match (hash, names.hash(&name)) {
        (Some(stored), Some(right)) if stored != right => Some("has the hash of another name"),
        _ => None,
    }
}
