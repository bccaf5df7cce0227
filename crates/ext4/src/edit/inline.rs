//! Contents and names that lie in the inode itself: what fits in the place of its map, and an attribute behind.
//!
//! Source: Documentation/filesystems/ext4/inlinedata.rst.

use std::ops::ControlFlow;

use crate::edit::Writer;
use crate::edit::dir::{Found, NewName, stored_record_length};
use crate::edit::inode::InodeMut;
use crate::edit::name::Name;
use crate::error::Result;
use crate::format::bytes::le32;
use crate::format::features::Incompat;
use crate::format::inode::InodeFlags;

/// Bytes in the place of the map; in a directory the first four are its parent's number.
const HEAD: usize = 60;
const PARENT: usize = 4;

impl Writer {
    /// Whether something new is to lie in its inode if it fits: never what is encrypted.
    fn may_be_inline(&self, inode: &InodeMut) -> bool {
        self.space.fs().superblock().incompat.has(Incompat::INLINE_DATA) && !inode.has(InodeFlags::ENCRYPT)
    }

    /// Whether the contents of a new file or link are to lie in its inode. Without contents it has an empty map.
    pub(crate) fn fits_inline(&self, inode: &InodeMut, size: u64) -> Result<bool> {
        Ok(size > 0 && self.may_be_inline(inode) && size <= self.inline_room(inode)? as u64)
    }

    /// Changes the size of contents that lie in the inode; false if they have no room there.
    pub(crate) fn resize_inline(&mut self, inode: &mut InodeMut, size: u64) -> Result<bool> {
        let room = self.inline_room(inode)?;
        let Some(size) = usize::try_from(size).ok().filter(|size| *size > 0 && *size <= room) else {
            return Ok(false);
        };
        let mut bytes = self.space.fs().inline_data(inode)?;
        bytes.resize(size, 0);
        self.store_inline(inode, &bytes)?;
        Ok(true)
    }

    /// Puts contents that fit into an inode that has no blocks.
    pub(crate) fn store_inline(&mut self, inode: &mut InodeMut, bytes: &[u8]) -> Result<()> {
        inode.set_flags(inode.flags().0 & !InodeFlags::EXTENTS.0 | InodeFlags::INLINE_DATA.0);
        let (head, rest) = bytes.split_at(bytes.len().min(HEAD));
        inode.block_area_mut().fill(0);
        inode.block_area_mut()[..head.len()].copy_from_slice(head);
        inode.set_size(bytes.len() as u64);
        self.set_inline_attribute(inode, rest)
    }

    /// Moves contents that lie in the inode to a block.
    pub(crate) fn spread_inline_file(&mut self, inode: &mut InodeMut) -> Result<()> {
        if !inode.has(InodeFlags::INLINE_DATA) {
            return Ok(());
        }
        let mut bytes = self.space.fs().inline_data(inode)?;
        self.drop_inline_data(inode)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let mut place = 0;
        let blocks = bytes.len().div_ceil(self.block_size()) as u64;
        bytes.resize(blocks as usize * self.block_size(), 0);
        self.fill(inode, 0, blocks, false, |run| place = run.physical)?;
        self.space.transaction_mut().write_data(place, &bytes)?;
        Ok(())
    }

    /// Lets the names of a new directory lie in its inode, if they may.
    pub(crate) fn start_inline_directory(&mut self, dir: &mut InodeMut, parent: u32) -> Result<bool> {
        if !self.may_be_inline(dir) || self.inline_room(dir)? < HEAD {
            return Ok(false);
        }
        self.store_names(dir, parent, &[])
    }

    /// Finds a name as it is stored in a directory whose names lie in its inode.
    pub(crate) fn find_inline(&self, dir: &InodeMut, name: &Name) -> Result<Option<Found>> {
        let (mut position, mut found) = (0, None);
        self.space.fs().for_each_raw_entry(dir, &mut |entry| {
            if name.is(entry.name, entry.hash) {
                found = Some(Found::in_inode(entry.inode, position));
                return Ok(ControlFlow::Break(()));
            }
            position += 1;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }

    /// Puts a name into a directory whose names lie in its inode; false if it has no room for one more.
    pub(crate) fn insert_inline(&mut self, dir: &mut InodeMut, new: &NewName<'_>) -> Result<bool> {
        let (parent, mut records) = self.inline_records(dir)?;
        records.push(self.record_bytes(new));
        self.store_names(dir, parent, &records)
    }

    /// Removes the name that [`find_inline`](Writer::find_inline) found at this position.
    pub(crate) fn remove_inline(&mut self, dir: &mut InodeMut, position: usize) -> Result<()> {
        let (parent, mut records) = self.inline_records(dir)?;
        // "." and ".." come first, and are no records.
        records.remove(position - 2);
        self.store_names(dir, parent, &records).map(|_| ())
    }

    /// Moves the names of a directory that lie in its inode to a block.
    pub(crate) fn spread_inline_directory(&mut self, dir: &mut InodeMut) -> Result<()> {
        let (parent, records) = self.inline_records(dir)?;
        self.drop_inline_data(dir)?;
        dir.set_size(0);
        self.make_first_leaf(dir, parent, records)
    }

    /// A directory's parent, and its records without those of "." and "..", each as long as it needs.
    fn inline_records(&self, dir: &InodeMut) -> Result<(u32, Vec<Vec<u8>>)> {
        let mut records = Vec::new();
        self.space.fs().for_each_raw_entry(dir, &mut |entry| {
            if !matches!(entry.name, b"." | b"..") {
                let kind = match entry.kind {
                    Some(kind) => kind,
                    None => self.space.fs().inode(entry.inode)?.kind(),
                };
                let name = Name::exact(entry.name, entry.hash);
                records.push(self.record_bytes(&NewName { name: &name, inode: entry.inode, kind }));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok((le32(dir.block_area(), 0), records))
    }

    /// Writes all names of a directory to its inode; false if they have no room there.
    fn store_names(&mut self, dir: &mut InodeMut, parent: u32, records: &[Vec<u8>]) -> Result<bool> {
        let (mut head, mut rest) = (Vec::new(), Vec::new());
        // A record lies in one of the two places; the last one in each reaches to its end.
        let (mut last_in_head, mut used) = (0, 0);
        for record in records {
            if used + record.len() <= HEAD - PARENT {
                last_in_head = used;
                used += record.len();
                head.extend_from_slice(record);
            } else {
                rest.extend_from_slice(record);
            }
        }
        if HEAD + rest.len() > self.inline_room(dir)? {
            return Ok(false);
        }
        head.resize(HEAD - PARENT, 0);
        let len = stored_record_length(HEAD - PARENT - last_in_head, self.block_size());
        head[last_in_head + 4..last_in_head + 6].copy_from_slice(&len);
        self.store_inline(dir, &[&parent.to_le_bytes()[..], &head, &rest].concat())?;
        Ok(true)
    }

    /// Empties an inode with inline data, which has a map from then on.
    fn drop_inline_data(&mut self, inode: &mut InodeMut) -> Result<()> {
        self.remove_inline_attribute(inode)?;
        inode.set_flags(inode.flags().0 & !InodeFlags::INLINE_DATA.0);
        self.start_map(inode);
        Ok(())
    }
}
