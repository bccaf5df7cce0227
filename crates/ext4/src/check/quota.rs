//! Quota files: their trees, and what they count against what owners have.

use std::collections::{HashMap, HashSet};

use casemate_blockdev::{BlockDevice, ErrorKind, u64_of};

use crate::check::findings::{Finding, FindingKind, Fix};
use crate::check::places::Group;
use crate::check::worker::Check;
use crate::error::{Corrupt, Place, Problem, Result, Structure};
use crate::format::quota::{
    self, BLOCK, BLOCKS, FREE_BLOCK, FREE_ENTRY, ID, INODES, Kind, LEVELS, ROOT, SPACE, entries, is_free,
};
use crate::format::raw_inode::RawInode;
use crate::read::file::FileReader;

pub(crate) fn check(check: &Check<'_>, groups: &[Group]) -> Result<()> {
    let usage = std::mem::take(&mut check.lists().usage);
    for ((kind, number), usage) in Kind::ALL.into_iter().zip(check.fs.superblock().quota_inodes).zip(usage) {
        let Some(number) = number else { continue };
        let place = Place::inode(Structure::QuotaFile, number);
        let Some(raw) = check.inode_bytes(groups, number)? else { continue };
        let inode = (RawInode { number, raw: &raw }).to_inode();
        let Ok(file) = inode.and_then(|inode| check.fs.open_stored(&inode)) else { continue };
        check.findings.count(Structure::QuotaFile);
        let read = || -> Result<HashMap<u32, (u64, u64)>> {
            let mut tree = Tree {
                file,
                seen: HashMap::new(),
                blocks: 0,
                place,
                found: HashMap::new(),
                twice: None,
                led: HashSet::new(),
            };
            tree.read(kind)?;
            // Where all counts are right nobody minds.
            if tree.twice.is_some_and(|(differs, _)| differs)
                || usage.iter().any(|(id, used)| tree.found.get(id) != Some(used))
            {
                tree.fits()?
            }
            Ok(tree.found)
        };
        match read() {
            Ok(found) => compare(check, kind, place, &found, &usage),
            Err(error) => match Corrupt::of(&error) {
                Some(corrupt) => {
                    check.findings.say(FindingKind::QuotaFile, place, corrupt.problem().to_string())
                }
                None if error.kind() == ErrorKind::Unsupported => {
                    check.findings.say(FindingKind::QuotaFile, place, error.to_string());
                }
                None => return Err(error),
            },
        }
    }
    Ok(())
}

fn compare(
    check: &Check<'_>,
    kind: Kind,
    place: Place,
    found: &HashMap<u32, (u64, u64)>,
    usage: &HashMap<u32, (u64, u64)>,
) {
    let none = (0, 0);
    for id in found.keys().chain(usage.keys().filter(|id| !found.contains_key(id))) {
        let (stored, used) = (found.get(id).unwrap_or(&none), usage.get(id).unwrap_or(&none));
        if stored != used {
            let text = format!(
                "{id} has {} bytes in {} inodes, and the quota file says {} bytes in {}",
                used.0, used.1, stored.0, stored.1
            );
            let finding = Finding::new(FindingKind::QuotaUsage, place, Problem::Malformed(text.into()));
            let more = |used: u64, stored: u64| used.wrapping_sub(stored).cast_signed();
            let (space, inodes) = (more(used.0, stored.0), more(used.1, stored.1));
            check.findings.add(finding, Some(Fix::Usage { kind, id: *id, space, inodes }));
        }
    }
}

struct Tree {
    file: FileReader,
    /// Blocks of the tree, and whether they are ones of entries; a node that is there twice would be a circle.
    seen: HashMap<u32, bool>,
    blocks: u32,
    place: Place,
    found: HashMap<u32, (u64, u64)>,
    /// An id with more than one entry, and before it whether these count otherwise.
    twice: Option<(bool, u32)>,
    /// Ids of which the tree leads to an entry.
    led: HashSet<u32>,
}

impl Tree {
    fn read(&mut self, kind: Kind) -> Result<()> {
        let header = self.block(0)?;
        kind.check(&header, self.place)?;
        self.blocks = BLOCKS.get(&header);
        let room = self.file.size().div_ceil(u64_of(BLOCK));
        let lists = [FREE_BLOCK, FREE_ENTRY].map(|field| field.get(&header));
        if u64::from(self.blocks) > room || lists.iter().any(|first| *first >= self.blocks && *first != 0) {
            let text = format!("says that it has {} blocks, and has {room}", self.blocks);
            return Err(self.place.malformed(text));
        }
        self.node(ROOT, 0, 0)
    }

    fn block(&self, number: u32) -> Result<[u8; BLOCK]> {
        let mut bytes = [0; BLOCK];
        let range = quota::range(number);
        if range.end > self.file.size() {
            return Err(self.place.malformed(format!("ends before block {number}")));
        }
        // Zeros would be read there, and nothing can be written.
        if self.file.next_data(range.start)?.is_none_or(|data| data.start > range.start) {
            return Err(self.place.malformed(format!("has a hole at block {number}")));
        }
        self.file.read_at(&mut bytes, range.start)?;
        Ok(bytes)
    }

    /// Refuses a tree that leads to other entries than there are: what is counted can't be corrected in it.
    fn fits(&self) -> Result<()> {
        if let Some((_, id)) = self.twice {
            return Err(self.place.malformed(format!("has a second entry of {id}")));
        }
        if let Some(id) = self.led.iter().find(|id| !self.found.contains_key(id)) {
            return Err(self.place.malformed(format!("lacks the entry of {id}, to which it leads")));
        }
        if let Some(id) = self.found.keys().find(|id| !self.led.contains(id)) {
            return Err(self.place.malformed(format!("does not lead to the entry of {id}")));
        }
        Ok(())
    }

    fn node(&mut self, number: u32, level: usize, id: u32) -> Result<()> {
        if number >= self.blocks {
            return Err(self.place.malformed(format!("names block {number} of {}", self.blocks)));
        }
        if level == LEVELS {
            self.led.insert(id);
        }
        let has_entries = level == LEVELS;
        if let Some(had_entries) = self.seen.insert(number, has_entries) {
            // Several ways lead to a block of entries, and none of them is one to a node.
            return match has_entries && had_entries {
                true => Ok(()),
                false => Err(self.place.malformed(format!("block {number} is in its tree twice"))),
            };
        }
        let bytes = self.block(number)?;
        if level == LEVELS {
            for at in entries().filter(|at| !is_free(&bytes[*at..])) {
                let sum = [SPACE, INODES].map(|counter| counter.value(&bytes[at..]));
                let (id, sum) = (ID.from(at).get(&bytes), (sum[0], sum[1]));
                if let Some(other) = self.found.insert(id, sum) {
                    self.twice = self.twice.max(Some((other != sum, id)));
                }
            }
            return Ok(());
        }
        for byte in 0..=255u8 {
            let below = quota::slot(u32::from_be_bytes([byte; 4]), level).get(&bytes);
            if below != 0 {
                let id = id | u32::from(byte) << (8 * (LEVELS - 1 - level));
                self.node(below, level + 1, id)?;
            }
        }
        Ok(())
    }
}
