//! The journal (jbd2): where it lies, and what must be taken from it before the rest makes sense.
//!
//! Source: Documentation/filesystems/ext4/journal.rst. Integers are big-endian.

mod fast_commit;
mod history;
mod overlay;
pub(crate) mod recovery;
mod replay;

use std::ops::ControlFlow;

use crate::error::{Place, Result, Structure};
use crate::format::csum::{Checksums, Context, Subject};
use crate::format::features::Compat;
use crate::format::inode::{FileType, Inode, InodeFlags};
use crate::format::journal_superblock::{self, JOURNAL_SUPERBLOCK_SIZE, JournalSuperblock};
use crate::read::fs::Ext4;
use crate::read::mapping::Mapping;
use crate::read::runs::BlockRuns;
use crate::units::{Block, InodeNo};

pub(crate) use fast_commit::FastCommits;
pub(crate) use history::{History, Moment, NOW};
pub(crate) use overlay::{Copy, Overlay};

pub use recovery::Recovery;
pub(crate) use replay::{is_untold, recover, remains};

/// First bytes of a map that is a tree of extents.
const EXTENT_MAGIC: [u8; 2] = [0x0a, 0xf3];

/// A journal inside the file system.
#[derive(Debug)]
pub struct Journal {
    fs: Ext4,
    superblock: JournalSuperblock,
    checksums: Checksums,
    runs: Vec<Mapping>,
}

impl Journal {
    /// The journal of `fs`; `None` if it has none, or has it on another device.
    ///
    /// # Errors
    /// `Corrupt` when its inode or superblock is damaged, `Unsupported` for features that
    /// nobody here knows.
    pub(crate) fn open(fs: &Ext4) -> Result<Option<Journal>> {
        let Some((runs, raw)) = Journal::locate(fs)? else { return Ok(None) };
        Journal::new(fs, runs, &raw, fs.verifies()).map(Some)
    }

    /// The journal of a damaged file system: by the inode that is named, or else by the one that journals usually have, or by
    /// the copy of its map in the superblock. `None` if none leads to a sound one.
    pub(crate) fn salvage(fs: &Ext4) -> Option<Journal> {
        let journal = |found: Option<(Vec<Mapping>, Vec<u8>)>| {
            let (runs, raw) = found?;
            Journal::new(fs, runs, &journal_superblock::as_it_was(&raw), true).ok()
        };
        let by_copy = || {
            let (map, size) = fs.superblock().journal_copy()?;
            let mut inode = Inode::new(InodeNo::JOURNAL, FileType::Regular, fs.layout().inode_len(), 0);
            inode.set_size(size);
            inode.set_links(1);
            if map.starts_with(&EXTENT_MAGIC) {
                inode.set_flags(InodeFlags::EXTENTS.0);
            }
            inode.block_area_mut().copy_from_slice(map);
            Journal::of_inode(fs, &inode).ok()
        };
        journal(Journal::locate(fs).ok().flatten())
            .or_else(|| journal(Journal::usual(fs)))
            .or_else(|| journal(by_copy()))
    }

    /// Whether the inode that journals usually have leads to one, and what the superblock names does not.
    pub(crate) fn is_misnamed(fs: &Ext4) -> bool {
        let is_one = |found: Option<(Vec<Mapping>, Vec<u8>)>| {
            let first = found.map(|(_, raw)| journal_superblock::as_it_was(&raw));
            first.is_some_and(|raw| JournalSuperblock::from_bytes(&raw).is_ok())
        };
        fs.superblock().journal_inode != Some(InodeNo::JOURNAL)
            && !is_one(Journal::locate(fs).ok().flatten())
            && is_one(Journal::usual(fs))
    }

    /// Where the inode leads that journals usually have. A file system whose journal lies on another device has none there.
    fn usual(fs: &Ext4) -> Option<(Vec<Mapping>, Vec<u8>)> {
        let superblock = fs.superblock();
        let (named, elsewhere) = superblock.named_journal();
        let is_elsewhere = named.is_none() && elsewhere;
        if !superblock.compat.has(Compat::HAS_JOURNAL) || is_elsewhere {
            return None;
        }
        Journal::of_inode(fs, &fs.inode(InodeNo::JOURNAL).ok()?).ok()
    }

    fn new(fs: &Ext4, runs: Vec<Mapping>, raw: &[u8], verify: bool) -> Result<Journal> {
        let superblock = JournalSuperblock::from_bytes(raw)?;
        let place = Place::of(Structure::JournalSuperblock);
        if superblock.has_checksums() && verify {
            let bytes = &raw[..JOURNAL_SUPERBLOCK_SIZE];
            fs.checksums().verify(Subject::JournalSuperblock, &Context::default(), bytes, place)?;
        }
        let length: u64 = runs.iter().map(|run| run.len).sum();
        if superblock.block_size != fs.layout().block_size || u64::from(superblock.blocks) > length {
            return Err(place.malformed("its sizes are not those of the file that it lies in"));
        }
        let checksums = fs.checksums().with_journal(&superblock.uuid);
        Ok(Journal { fs: fs.clone(), superblock, checksums, runs })
    }

    /// Where the journal lies, and its first block.
    pub(crate) fn locate(fs: &Ext4) -> Result<Option<(Vec<Mapping>, Vec<u8>)>> {
        let Some(number) = fs.superblock().journal_inode else { return Ok(None) };
        Journal::of_inode(fs, &fs.inode(number)?).map(Some)
    }

    fn of_inode(fs: &Ext4, inode: &Inode) -> Result<(Vec<Mapping>, Vec<u8>)> {
        let place = Place::inode(Structure::Inode, inode.number());
        if inode.kind() != FileType::Regular || inode.links() == 0 {
            return Err(place.malformed("is not that of a journal"));
        }
        let blocks = inode.size() / u64::from(fs.layout().block_size);
        let mut runs: Vec<Mapping> = Vec::new();
        let mut used = BlockRuns::default();
        let mut next = 0;
        fs.mappings(inode, 0, |run| {
            if run.logical >= blocks {
                return Ok(ControlFlow::Break(()));
            }
            if run.logical != next || run.unwritten {
                return Err(place.malformed(format!("the journal has a hole at block {next}")));
            }
            if !used.insert(run.physical, run.len) {
                return Err(place.malformed("the journal has blocks twice"));
            }
            next = run.end();
            runs.push(run);
            Ok(ControlFlow::Continue(()))
        })?;
        if blocks == 0 || next < blocks {
            return Err(place.malformed("the journal is cut short"));
        }
        // The last run may pass the end.
        if let Some(last) = runs.last_mut() {
            last.len -= next - blocks;
        }
        let first = fs.read_block(runs[0].physical)?;
        Ok((runs, first))
    }

    /// Its superblock.
    pub(crate) fn superblock(&self) -> &JournalSuperblock {
        &self.superblock
    }

    /// The checksums of its blocks.
    pub(crate) fn checksums(&self) -> &Checksums {
        &self.checksums
    }

    /// Where a block of the journal lies in the file system.
    pub(crate) fn physical(&self, number: u32) -> Result<Block> {
        let block = u64::from(number);
        // OK to index: the partition point is the run that ends behind `block`, if there is one.
        let at = self.runs.partition_point(|run| run.end() <= block);
        match self.runs.get(at) {
            Some(run) => Ok(run.physical + (block - run.logical)),
            None => {
                Err(Place::of(Structure::JournalBlock).at_log(number).malformed("lies behind the journal"))
            }
        }
    }

    fn read(&self, block: u32) -> Result<Vec<u8>> {
        self.fs.read_block(self.physical(block)?)
    }
}
