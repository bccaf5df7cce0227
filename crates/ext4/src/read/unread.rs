//! Parts of the inode tables that a search could not read, where files may be that it did not find.

use casemate_blockdev::{Events, u64_of, usize_of};

use crate::error::{Error, Place, Result, Structure};
use crate::format::csum::{Context, Kind, Subject};
use crate::format::group::INODE_UNINIT;
use crate::format::inode::{GENERATION, Inode, LINKS, MODE};
use crate::read::fs::Ext4;
use crate::units::{Block, GroupNo, InodeNo};

/// Errors that are kept.
const MOST_ERRORS: usize = 1000;

/// Errors of reading, of places where there may be files that were not found.
#[derive(Debug, Default)]
pub struct Unread {
    /// One for each group, and one for the journal.
    pub errors: Vec<Error>,
    /// Errors beyond those listed.
    pub left_out: u64,
}

impl Unread {
    /// Whether all was read.
    pub fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    pub(crate) fn add(&mut self, error: Error) {
        if self.errors.len() < MOST_ERRORS { self.errors.push(error) } else { self.left_out += 1 }
    }
}

/// Damage of the inode table of a group.
#[derive(Default)]
struct Damage {
    first: Option<Error>,
    blocks: u64,
    inodes: u64,
}

/// A block of an inode table.
pub(crate) struct TableBlock<'a> {
    pub block: Block,
    pub bytes: &'a [u8],
    group: GroupNo,
    /// The index in its group of the first inode.
    first: u32,
    slots: u32,
}

impl TableBlock<'_> {
    /// The inodes in it: their numbers and places. There are none of those that only the file system itself uses, but the
    /// root directory.
    pub fn slots(&self, fs: &Ext4) -> Vec<(InodeNo, u32)> {
        let first = self.group.get() * fs.layout().inodes_per_group + self.first;
        let numbers = (0..self.slots).filter_map(|slot| Some((InodeNo::at_index(first + slot)?, slot)));
        let first = fs.superblock().first_inode;
        numbers.filter(|(number, _)| number.get() >= first || *number == InodeNo::ROOT).collect()
    }
}

impl Ext4 {
    /// The inode in a slot of a block of an inode table; `None` for one that was never used, or was cleared.
    ///
    /// # Errors
    /// `Corrupt` if its checksum does not fit.
    pub(crate) fn inode_in_block(&self, number: InodeNo, slot: u32, bytes: &[u8]) -> Result<Option<Inode>> {
        let size = self.layout().inode_len();
        let raw = bytes.get(usize_of(slot) * size..).and_then(|rest| rest.get(..size));
        let Some(raw) = raw.filter(|raw| raw.iter().any(|byte| *byte != 0)) else { return Ok(None) };
        let context = Context { inode: Some(number), generation: GENERATION.get(raw), ..Context::default() };
        let place = Place::inode(Structure::Inode, number);
        self.verify(Subject::Inode, &context, raw, place)?;
        if MODE.get(raw) == 0 && LINKS.get(raw) == 0 {
            return Ok(None);
        }
        Inode::from_bytes(number, raw).map(Some)
    }

    /// Calls `visit` for each block of the inode tables that has inodes which were ever in use; it returns errors of inodes.
    /// Blocks that can't be read are noted in `unread`, once for each group. The listener hears of bytes of inode tables.
    ///
    /// # Errors
    /// `Interrupted`.
    pub(crate) fn for_each_table_block(
        &self,
        events: &dyn Events,
        unread: &mut Unread,
        mut visit: impl FnMut(TableBlock<'_>) -> Vec<Error>,
    ) -> Result<()> {
        let layout = *self.layout();
        let per_block = layout.block_size / layout.inode_size;
        let has_unused = self.checksums().kind() != Kind::None;
        for group in GroupNo::first(layout.groups) {
            let place = Place::group(Structure::GroupDescriptor, group);
            let read = self.with_descriptor(group, |found| {
                (found.inode_table(), found.flags() & INODE_UNINIT == 0, found.unused_inodes())
            });
            let read = read.and_then(|found| match found {
                (table, true, _) => {
                    self.check_blocks(table, layout.inode_table_blocks(), place).map(|()| found)
                }
                _ => Ok(found),
            });
            let (table, is_used, unused) = match read {
                Ok(found) => found,
                Err(error) => {
                    unread.add(error);
                    (Block::new(0), false, 0)
                }
            };
            let unused = if has_unused { unused.min(layout.inodes_per_group) } else { 0 };
            let blocks = if is_used { (layout.inodes_per_group - unused).div_ceil(per_block) } else { 0 };
            let mut damage = Damage::default();
            for index in 0..blocks {
                let block = table + u64::from(index);
                let first = index * per_block;
                let slots = per_block.min(layout.inodes_per_group - first);
                match self.read_block(block) {
                    Ok(bytes) => {
                        let errors = visit(TableBlock { block, bytes: &bytes, group, first, slots });
                        damage.inodes += u64_of(errors.len());
                        damage.first = damage.first.take().or_else(|| errors.into_iter().next());
                    }
                    Err(error) if error.is_interrupt() => return Err(error),
                    Err(error) => {
                        damage.blocks += 1;
                        damage.first.get_or_insert(error);
                    }
                }
            }
            if let Some(error) = damage.first {
                let what = match (damage.blocks, damage.inodes) {
                    (0, inodes) => format!("{inodes} inodes"),
                    (some, 0) => format!("{some} of {blocks} blocks"),
                    (some, inodes) => format!("{some} of {blocks} blocks and {inodes} inodes"),
                };
                unread.add(error.map_text(|text| {
                    format!("the inode table of group {group}: {what} can't be read, the first: {text}")
                }));
            }
            events.advance(layout.inode_table_blocks() * u64::from(layout.block_size))?;
        }
        Ok(())
    }
}
