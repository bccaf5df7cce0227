//! Names that lie in the directory's inode itself.

use std::ops::ControlFlow;

use crate::edit::contents::inline::may_be_inline;
use crate::edit::dir::name::Name;
use crate::edit::dir::{Directory, Found, NewName};
use crate::edit::xattr::inline_room;
use crate::error::{Place, Result, Structure};
use crate::format::dir;
use crate::format::inline::{self, FIRST_RECORDS, HEAD};
use crate::units::InodeNo;

impl Directory<'_> {
    /// Begins the names of a new directory in its inode, if they may lie there.
    pub fn start_inline_directory(&mut self, parent: InodeNo) -> Result<bool> {
        if !may_be_inline(self.fs(), self.dir) || inline_room(self.inodes.space(), self.dir)? < HEAD {
            return Ok(false);
        }
        self.store_names(parent, &[])
    }

    /// Finds a name as it is stored in a directory whose names lie in its inode.
    pub fn find_inline(&self, name: &Name) -> Result<Option<Found>> {
        let (mut position, mut found) = (0, None);
        self.fs().for_each_raw_entry(self.dir, &mut |entry| {
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
    pub fn insert_inline(&mut self, new: &NewName<'_>) -> Result<bool> {
        let (parent, mut records) = self.inline_records()?;
        records.push(self.record_bytes(new));
        self.store_names(parent, &records)
    }

    /// Removes the name that [`find_inline`](Directory::find_inline) found at this position.
    pub fn remove_inline(&mut self, position: usize) -> Result<()> {
        let (parent, mut records) = self.inline_records()?;
        // "." and ".." come first, and are no records.
        records.remove(position - 2);
        self.store_names(parent, &records).map(|_| ())
    }

    /// Moves the names of a directory that lie in its inode to a block.
    pub fn spread_inline_directory(&mut self) -> Result<()> {
        let (parent, records) = self.inline_records()?;
        self.inodes.contents(self.dir).drop_inline_data()?;
        self.dir.set_size(0);
        self.make_first_leaf(parent, records)
    }

    /// A directory's parent, and its records without those of "." and "..", each as long as it needs.
    fn inline_records(&self) -> Result<(InodeNo, Vec<Vec<u8>>)> {
        let mut records = Vec::new();
        self.fs().for_each_raw_entry(self.dir, &mut |entry| {
            if !matches!(entry.name, b"." | b"..") {
                let kind = match entry.kind {
                    Some(kind) => kind,
                    None => self.fs().inode(entry.inode)?.kind(),
                };
                let name = Name::exact(entry.name, entry.hash);
                records.push(self.record_bytes(&NewName { name: &name, inode: entry.inode, kind }));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let (parent, _) = inline::split(self.dir.block_area());
        let place = Place::inode(Structure::InlineData, self.dir.number());
        Ok((parent.ok_or_else(|| place.malformed("the parent is inode 0"))?, records))
    }

    /// Writes all names of a directory to its inode; false if they have no room there.
    fn store_names(&mut self, parent: InodeNo, records: &[Vec<u8>]) -> Result<bool> {
        let (mut head, mut rest) = (Vec::new(), Vec::new());
        // A record lies in one of the two places; the last one in each reaches to its end.
        let (mut last_in_head, mut used) = (0, 0);
        for record in records {
            if used + record.len() <= FIRST_RECORDS {
                last_in_head = used;
                used += record.len();
                head.extend_from_slice(record);
            } else {
                rest.extend_from_slice(record);
            }
        }
        if HEAD + rest.len() > inline_room(self.inodes.space(), self.dir)? {
            return Ok(false);
        }
        head.resize(FIRST_RECORDS, 0);
        let len = FIRST_RECORDS - last_in_head;
        dir::set_length(&mut head[last_in_head..], len);
        self.inodes.contents(self.dir).store_inline(&inline::directory_bytes(Some(parent), &head, &rest))?;
        Ok(true)
    }
}
