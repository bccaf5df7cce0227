//! Reading directories. One with a hash tree is read like any other: the tree's own blocks look like blocks with one
//! empty record.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::error::{Error, Place, Result, Structure};
use crate::format::csum::{Context, Subject};
use crate::format::dir::{Entries, EntryFormat, RawEntry, find, has_tail, removed};
use crate::format::features::{Compat, Incompat};
use crate::format::htree;
use crate::format::inline;
use crate::format::inode::{FileType, Inode, InodeFlags};
use crate::read::encryption::StoredName;
use crate::read::fs::Ext4;
use crate::read::runs::BlockRuns;
use crate::units::{Block, InodeNo};

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The inode that the name stands for.
    pub inode: InodeNo,
    /// Its kind, where entries tell (feature `filetype`).
    pub kind: Option<FileType>,
    /// The name, decrypted if the directory is encrypted and somebody can.
    pub name: Vec<u8>,
}

/// Role of a block of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockRole {
    /// Records of names.
    Leaf,
    /// The hash tree's root, which holds "." and "..", or one of its inner nodes.
    Node,
}

/// A part of a directory that has records.
struct Part<'a> {
    bytes: &'a [u8],
    role: BlockRole,
    place: Place,
}

impl Ext4 {
    /// The names in a directory without "." and "..", in the order of the disk.
    ///
    /// # Errors
    /// `Corrupt` when a block is damaged.
    pub fn read_dir(&self, dir: &Inode) -> Result<Vec<DirEntry>> {
        let mut list = Vec::new();
        self.for_each_entry(dir, |entry| {
            if !matches!(&*entry.name, b"." | b"..") {
                list.push(entry);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(list)
    }

    /// Calls `visit` for each name in a directory, "." and ".." among them, until it breaks.
    ///
    /// # Errors
    /// `Corrupt` when a block is damaged, and what `visit` returns.
    pub fn for_each_entry(
        &self,
        dir: &Inode,
        mut visit: impl FnMut(DirEntry) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let decode = self.name_decoder(dir)?;
        self.for_each_raw_entry(dir, &mut |entry| {
            let name = decode(&entry)?;
            visit(DirEntry { inode: entry.inode, kind: entry.kind, name })
        })
    }

    /// Calls `visit` for each name that was removed from a directory and whose record is still there, until it breaks. Linux
    /// erases records since version 5.13; their inodes may be other files' by now.
    ///
    /// # Errors
    /// `Corrupt` when a block is damaged, and what `visit` returns.
    pub fn for_each_removed_entry(
        &self,
        dir: &Inode,
        mut visit: impl FnMut(DirEntry) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let decode = self.name_decoder(dir)?;
        let format = self.entry_format(dir);
        self.for_each_part(dir, &mut |part| {
            if part.role == BlockRole::Node {
                return Ok(ControlFlow::Continue(()));
            }
            for entry in removed(part.bytes, format, part.place) {
                // What is no name was never one.
                let Ok(name) = decode(&entry) else { continue };
                if visit(DirEntry { inode: entry.inode, kind: entry.kind, name })?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    /// The decoder from stored names to names.
    pub(crate) fn name_decoder(
        &self,
        dir: &Inode,
    ) -> Result<impl Fn(&RawEntry<'_>) -> Result<Vec<u8>> + use<>> {
        let place = Place::inode(Structure::Directory, dir.number());
        let names = match (self.encrypted(dir)?, self.encryption()) {
            (Some(encrypted), Some(encryption)) => Some(encryption.names(&encrypted)?),
            _ => None,
        };
        let raw_names = names.is_none() && dir.has(InodeFlags::ENCRYPT);
        let hasher = if names.is_some() { self.name_hasher(dir)? } else { None };
        Ok(move |entry: &RawEntry<'_>| {
            let mut name = entry.name.to_vec();
            if !matches!(entry.name, b"." | b"..") {
                if let Some(names) = &names {
                    let hash = entry.hash.or_else(|| Some(hasher.as_ref()?.hash(entry.name)));
                    name = names.decode(StoredName { bytes: entry.name, hash })?;
                }
                // Ciphertext that nobody can read may hold any byte.
                if !raw_names && (name.is_empty() || name.contains(&b'/') || name.contains(&0)) {
                    return Err(place.malformed("a name with a slash or a NUL"));
                }
            }
            Ok(name)
        })
    }

    /// Calls `visit` for each record in use, until it breaks.
    pub(crate) fn for_each_raw_entry(
        &self,
        dir: &Inode,
        visit: &mut dyn FnMut(RawEntry<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let format = self.entry_format(dir);
        if dir.has(InodeFlags::INLINE_DATA) && self.inline_parents(dir, format, visit)?.is_break() {
            return Ok(());
        }
        self.for_each_part(dir, &mut |part| {
            for entry in Entries::new(part.bytes, format, part.place) {
                if visit(entry?)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    /// The inode of a name as it is stored, by all records that there are.
    pub(crate) fn find_raw(&self, dir: &Inode, name: &[u8]) -> Result<Option<InodeNo>> {
        let format = self.entry_format(dir);
        let mut found = None;
        if dir.has(InodeFlags::INLINE_DATA) {
            let _ = self.inline_parents(dir, format, &mut |entry| {
                found = (entry.name == name).then_some(entry.inode);
                Ok(if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
        }
        if found.is_none() {
            self.for_each_part(dir, &mut |part| {
                found = find(part.bytes, format, part.place, name)?;
                Ok(if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
        }
        Ok(found)
    }

    /// Calls `visit` for each part of a directory that has records: its blocks, with what they are, or both parts of what
    /// lies in the inode.
    fn for_each_part(
        &self,
        dir: &Inode,
        visit: &mut dyn FnMut(Part<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let place = Place::inode(Structure::Directory, dir.number());
        if !dir.is_dir() {
            let text = format!("inode {} is a {}, no directory", dir.number(), dir.kind().name());
            return Err(Error::path(std::io::ErrorKind::NotADirectory, text));
        }
        if dir.has(InodeFlags::INLINE_DATA) {
            let place = Place::inode(Structure::InlineData, dir.number());
            let data = self.inline_data(dir)?;
            let (head, rest) =
                data.split_first_chunk().ok_or_else(|| place.malformed("fewer than 60 bytes"))?;
            let part = |bytes| Part { bytes, role: BlockRole::Leaf, place };
            if visit(part(inline::split(head).1))?.is_continue() {
                let _ = visit(part(rest))?;
            }
            return Ok(());
        }
        let blocks = self.directory_blocks(dir)?;
        let mut next = 0;
        // Without this, a block could stand for any number of names.
        let mut used = BlockRuns::default();
        self.mappings(dir, 0, |run| {
            if run.logical >= blocks {
                return Ok(ControlFlow::Break(()));
            }
            if run.logical != next || run.unwritten {
                return Err(place.malformed(format!("a hole at block {next}")));
            }
            next = run.end().min(blocks);
            if !used.insert(run.physical, next - run.logical) {
                return Err(place.malformed(format!("has blocks twice, such as {}", run.physical)));
            }
            for logical in run.logical..next {
                let physical = run.physical + (logical - run.logical);
                let (bytes, role) = self.directory_block(dir, logical, physical)?;
                let place = Place::inode(Structure::DirectoryBlock, dir.number()).at(physical);
                // An inner node has no names, whatever its first bytes say.
                let bytes = if role == BlockRole::Node && logical > 0 { &[] } else { &bytes[..] };
                if visit(Part { bytes, role, place })?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    /// A block of a directory, its checksum checked, and what it is.
    pub(crate) fn directory_block(
        &self,
        dir: &Inode,
        logical: u64,
        physical: Block,
    ) -> Result<(Arc<[u8]>, BlockRole)> {
        let bytes = self.metadata_block(physical)?;
        let role = self.block_role(dir, logical, &bytes);
        let context = dir.context();
        let structure = match role {
            BlockRole::Leaf => Structure::DirectoryBlock,
            BlockRole::Node => Structure::HtreeNode,
        };
        let place = Place::inode(structure, dir.number()).at(physical);
        if self.verifies() {
            self.verify_directory_block(role, &context, &bytes, place)?;
        }
        Ok((bytes, role))
    }

    /// Checks the checksum of a directory block, and that a leaf has the tail that holds it.
    pub(crate) fn verify_directory_block(
        &self,
        role: BlockRole,
        context: &Context,
        bytes: &[u8],
        place: Place,
    ) -> Result<()> {
        let subject = match role {
            BlockRole::Leaf => Subject::DirectoryBlock,
            BlockRole::Node => Subject::HtreeNode,
        };
        if role == BlockRole::Leaf && self.checksums().covers(subject) && !has_tail(bytes) {
            return Err(place.malformed("has no tail with a checksum"));
        }
        self.checksums().verify(subject, context, bytes, place)
    }

    /// The role of a block of a directory, from its first bytes.
    pub(crate) fn block_role(&self, dir: &Inode, logical: u64, bytes: &[u8]) -> BlockRole {
        if !self.is_indexed(dir) {
            return BlockRole::Leaf;
        }
        let has_tail = self.checksums().covers(Subject::HtreeNode);
        match logical == 0 || htree::is_taken_for_inner(bytes, has_tail) {
            true => BlockRole::Node,
            false => BlockRole::Leaf,
        }
    }

    /// Whether a directory has a hash tree.
    pub fn is_indexed(&self, dir: &Inode) -> bool {
        dir.has(InodeFlags::INDEX)
            && !dir.has(InodeFlags::INLINE_DATA)
            && self.superblock().compat.has(Compat::DIR_INDEX)
    }

    /// The format of a directory's records.
    pub(crate) fn entry_format(&self, dir: &Inode) -> EntryFormat {
        EntryFormat {
            with_type: self.superblock().incompat.has(Incompat::FILETYPE),
            with_hash: dir.has_hashes(),
            inodes: self.layout().inodes,
        }
    }

    /// How many blocks a directory has.
    pub(crate) fn directory_blocks(&self, dir: &Inode) -> Result<u64> {
        let block_size = u64::from(self.layout().block_size);
        let place = Place::inode(Structure::Directory, dir.number());
        // Without large_dir the high half of a directory's size was something else.
        let large = self.superblock().incompat.has(Incompat::LARGEDIR);
        let size = if large { dir.size() } else { dir.size() & 0xffff_ffff };
        if size % block_size != 0 || size / block_size > self.layout().blocks {
            return Err(place.malformed(format!("a size of {size} bytes")));
        }
        Ok(size / block_size)
    }

    /// The first two records of a directory that lies in its inode, which only has the parent's number.
    fn inline_parents(
        &self,
        dir: &Inode,
        format: EntryFormat,
        visit: &mut dyn FnMut(RawEntry<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<ControlFlow<()>> {
        let place = Place::inode(Structure::InlineData, dir.number());
        let data = self.inline_data(dir)?;
        let head = data.first_chunk().ok_or_else(|| place.malformed("fewer than 60 bytes"))?;
        let (parent, _) = inline::split(head);
        let Some(parent) = parent.filter(|parent| parent.get() <= format.inodes) else {
            return Err(place.malformed(format!("the parent is inode {}", InodeNo::stored(parent))));
        };
        let kind = format.with_type.then_some(FileType::Directory);
        for (inode, name) in [(dir.number(), &b"."[..]), (parent, b"..")] {
            if visit(RawEntry { inode, kind, name, hash: None, offset: 0 })?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}
