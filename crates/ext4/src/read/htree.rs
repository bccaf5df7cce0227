//! Finding names by the hash trees of directories.

use std::ops::ControlFlow;
use std::sync::Arc;

use casemate_blockdev::ErrorKind;

use crate::error::{Place, Result, Structure};
use crate::format::dir::Entries;
use crate::format::dirhash::NameHasher;
use crate::format::features::Compat;
use crate::format::htree::{HtreeNode, HtreeRoot};
use crate::format::inode::{Inode, InodeFlags};
use crate::read::casefold::fold;
use crate::read::dir::BlockRole;
use crate::read::fs::Ext4;
use crate::units::InodeNo;

impl Ext4 {
    /// How the names of a directory are hashed where it is, or could be, indexed. `None` where the hash needs
    /// a key or there is none.
    pub(crate) fn name_hasher(&self, dir: &Inode) -> Result<Option<NameHasher>> {
        let defaults = &self.superblock().hash;
        if self.is_indexed(dir) {
            let (block, place) = self.htree_block(dir, 0)?;
            return Ok(NameHasher::new(HtreeRoot::from_bytes(&block, place)?.version, defaults));
        }
        // The kernel reads a directory of one block in the order of hashes, too.
        let small = dir.has(InodeFlags::INLINE_DATA) || self.directory_blocks(dir)? == 1;
        let indexable = self.superblock().compat.has(Compat::DIR_INDEX) && small;
        Ok(indexable.then(|| NameHasher::new(defaults.version, defaults)).flatten())
    }

    /// Finds a name, as it is stored, in an indexed directory by its hash. `None` if the tree does not have it.
    ///
    /// # Errors
    /// `Corrupt` when the tree is damaged on the way, or its hash needs a key.
    pub fn lookup_indexed(&self, dir: &Inode, name: &[u8]) -> Result<Option<InodeNo>> {
        let (block, place) = self.htree_block(dir, 0)?;
        let root = HtreeRoot::from_bytes(&block, place)?;
        let Some(hasher) = NameHasher::new(root.version, &self.superblock().hash) else {
            return Err(place.malformed(format!("hash version {}", root.version)));
        };
        let budget = self.directory_blocks(dir)?;
        let folded = if dir.has(InodeFlags::CASEFOLD) { fold(name) } else { None };
        let hash = hasher.hash(folded.as_ref().map_or(name, String::as_bytes)).major;
        let mut search = Search { fs: self, dir, name, folded, hash, budget };
        search.node(&block, place, root.levels)
    }

    /// The bytes that a directory has for a name, where only these can be it.
    fn stored_name(&self, dir: &Inode, name: &[u8]) -> Result<Option<Vec<u8>>> {
        // Names that differ in case are encrypted to others.
        if dir.has_hashes() || matches!(name, b"." | b"..") {
            return Ok(None);
        }
        match (self.encrypted(dir)?, self.encryption()) {
            (None, _) => Ok(Some(name.to_vec())),
            (Some(encrypted), Some(encryption)) => Ok(encryption.names(&encrypted)?.encode(name)),
            (Some(_), None) => Ok(None),
        }
    }

    /// A node of the tree, its checksum checked.
    fn htree_block(&self, dir: &Inode, logical: u64) -> Result<(Arc<[u8]>, Place)> {
        let (block, role, place) = self.any_block(dir, logical)?;
        match role {
            BlockRole::Node => Ok((block, place)),
            BlockRole::Leaf => Err(place.malformed("is not a node of a hash tree")),
        }
    }

    fn any_block(&self, dir: &Inode, logical: u64) -> Result<(Arc<[u8]>, BlockRole, Place)> {
        let place = Place::inode(Structure::HtreeNode, dir.number());
        let mapping = self.mapping_at(dir, logical)?.filter(|mapping| !mapping.unwritten);
        let Some(mapping) = mapping else {
            return Err(place.malformed(format!("block {logical} of the directory is a hole")));
        };
        let (block, role) = self.directory_block(dir, logical, mapping.physical)?;
        let structure = match role {
            BlockRole::Leaf => Structure::DirectoryBlock,
            BlockRole::Node => Structure::HtreeNode,
        };
        Ok((block, role, Place { structure, ..place }.at(mapping.physical)))
    }
}

struct Search<'a> {
    fs: &'a Ext4,
    dir: &'a Inode,
    name: &'a [u8],
    /// The folded name, which names share that differ in case alone, where they are equal.
    folded: Option<String>,
    hash: u32,
    /// Blocks that may still be read: no honest tree leads to more than the directory has.
    budget: u64,
}

impl Search<'_> {
    fn node(&mut self, block: &[u8], place: Place, levels: u8) -> Result<Option<InodeNo>> {
        let entries: Vec<_> = HtreeNode::from_bytes(block, place)?.entries().collect();
        let behind = entries.partition_point(|entry| entry.hash <= self.hash);
        // The last entry whose hash is not above ours, and those behind it that continue with our hash.
        // OK to subtract: the first entry's hash is 0.
        let same = self.hash | 1;
        let continued = entries[behind..].iter().take_while(|entry| entry.hash == same);
        for entry in std::iter::once(&entries[behind - 1]).chain(continued) {
            let found = self.child(u64::from(entry.block), place, levels)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn child(&mut self, logical: u64, parent: Place, levels: u8) -> Result<Option<InodeNo>> {
        self.budget = match self.budget.checked_sub(1) {
            Some(budget) => budget,
            None => return Err(parent.malformed("the tree has more blocks than the directory")),
        };
        let (block, role, place) = self.fs.any_block(self.dir, logical)?;
        match (levels, role) {
            (0, BlockRole::Leaf) => self.leaf(&block, place),
            (1.., BlockRole::Node) => self.node(&block, place, levels - 1),
            _ => Err(place.malformed("lies on the wrong level of the hash tree")),
        }
    }

    fn leaf(&self, block: &[u8], place: Place) -> Result<Option<InodeNo>> {
        let mut found = None;
        for entry in Entries::new(block, self.fs.entry_format(self.dir), place) {
            let entry = entry?;
            if entry.name == self.name {
                return Ok(Some(entry.inode));
            }
            if found.is_none() && self.folded.is_some() && fold(entry.name) == self.folded {
                found = Some(entry.inode);
            }
        }
        Ok(found)
    }
}

impl Ext4 {
    /// The inode of a name in a directory, "." and ".." included.
    ///
    /// In a casefolded directory a name that differs in case alone is found when no other one fits.
    ///
    /// # Errors
    /// `Corrupt` when the directory is damaged where it had to be read.
    pub fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Option<InodeNo>> {
        let stored = self.stored_name(dir, name)?;
        if let Some(stored) = stored.as_deref().filter(|_| self.is_indexed(dir)) {
            match self.lookup_indexed(dir, stored) {
                // A damaged tree is no reason not to find what the leaves have, as for the kernel.
                Err(error) if error.kind() == ErrorKind::Corrupt => {}
                // Some kernels folded otherwise, and put such names elsewhere.
                Ok(None) if dir.has(InodeFlags::CASEFOLD) && !name.is_ascii() => {}
                result => return result,
            }
        }
        let wanted = if dir.has(InodeFlags::CASEFOLD) { fold(name) } else { None };
        let (mut found, mut folded) = (None, None);
        if let (Some(stored), None) = (stored, &wanted) {
            return self.find_raw(dir, &stored);
        }
        self.for_each_entry(dir, |entry| {
            if entry.name == name {
                found = Some(entry.inode);
                return Ok(ControlFlow::Break(()));
            }
            if folded.is_none() && wanted.is_some() && fold(&entry.name) == wanted {
                folded = Some(entry.inode);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found.or(folded))
    }
}
