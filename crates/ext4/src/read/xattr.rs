//! Reading extended attributes: in the inode, in a block of their own, and values in inodes of their own.

use std::sync::Arc;

use casemate_blockdev::{BlockDevice, usize_of};

use crate::error::{Place, Result, Structure};
use crate::format::acl;
use crate::format::csum::{Context, Subject};
use crate::format::inode::{Inode, InodeFlags};
use crate::format::xattr::{
    ACL_ACCESS, ACL_DEFAULT, ENCRYPTION, INLINE_DATA, PREFIXES, SYSTEM, XattrEntries, XattrEntry,
};
use crate::read::fs::Ext4;
use crate::units::Block;

/// An extended attribute as programs see it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Xattr {
    /// The whole name, such as `user.comment`.
    pub name: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
}

/// All values of one inode together: 64 of the largest ones that the kernel lets programs set.
const LARGEST_SUM: u64 = 1 << 22;

impl Ext4 {
    /// The attributes of an inode that programs see, in the order of the disk, ACLs as the kernel shows them.
    ///
    /// # Errors
    /// `Corrupt` when they are damaged.
    pub fn xattrs(&self, inode: &Inode) -> Result<Vec<Xattr>> {
        let mut list = Vec::new();
        let mut sum = 0u64;
        self.for_each_xattr(inode, &mut |entry, place| {
            let Some((_, prefix)) = PREFIXES.iter().find(|(index, _)| *index == entry.index) else {
                return Ok(true);
            };
            if entry.index == SYSTEM && entry.name == INLINE_DATA {
                return Ok(true);
            }
            sum += u64::from(entry.value_size);
            if sum > LARGEST_SUM {
                return Err(place.malformed("attributes of more than 4 MiB"));
            }
            let value = self.xattr_value(inode, &entry, place)?;
            let value = if matches!(entry.index, ACL_ACCESS | ACL_DEFAULT) {
                acl::to_program(&value, place)?
            } else {
                value
            };
            list.push(Xattr { name: [prefix.as_bytes(), entry.name].concat(), value });
            Ok(true)
        })?;
        Ok(list)
    }

    /// The permission bits of an inode whose access ACL is left out: the group has none then that the ACL did not give it.
    ///
    /// # Errors
    /// `Corrupt` when the attributes are damaged.
    pub fn mode_without_acl(&self, inode: &Inode) -> Result<u16> {
        let mode = inode.mode() & 0o7777;
        if mode & 0o070 == 0 {
            return Ok(mode);
        }
        let Some(acl) = self.xattr(inode, ACL_ACCESS, b"")? else { return Ok(mode) };
        let place = Place::inode(Structure::Xattr, inode.number());
        Ok(casemate_trees::mode_without_acl(mode, &acl::to_program(&acl, place)?))
    }

    /// The stored value of the attribute with this prefix index and name.
    pub fn xattr(&self, inode: &Inode, index: u8, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut found = None;
        self.for_each_xattr(inode, &mut |entry, place| {
            if (entry.index, entry.name) != (index, name) {
                return Ok(true);
            }
            found = Some(self.xattr_value(inode, &entry, place)?);
            Ok(false)
        })?;
        Ok(found)
    }

    /// fscrypt's context of an encrypted inode.
    ///
    /// # Errors
    /// `Corrupt` when it has none.
    pub fn encryption_context(&self, inode: &Inode) -> Result<Vec<u8>> {
        let place = Place::inode(Structure::EncryptionContext, inode.number());
        self.xattr(inode, ENCRYPTION, b"c")?.ok_or_else(|| place.malformed("is missing"))
    }

    /// The contents of an inode with inline data: up to 60 bytes in the block area, the rest in an attribute.
    pub(crate) fn inline_data(&self, inode: &Inode) -> Result<Vec<u8>> {
        let mut data = inode.block_area().to_vec();
        data.extend(self.xattr(inode, SYSTEM, INLINE_DATA)?.unwrap_or_default());
        let place = Place::inode(Structure::InlineData, inode.number());
        match usize::try_from(inode.size()) {
            Ok(size) if size <= data.len() => data.truncate(size),
            _ => return Err(place.malformed(format!("{} bytes of {}", data.len(), inode.size()))),
        }
        Ok(data)
    }

    /// Calls `f` for each attribute, in the inode and then in the block, until it returns false.
    pub(crate) fn for_each_xattr(
        &self,
        inode: &Inode,
        f: &mut dyn FnMut(XattrEntry<'_>, Place) -> Result<bool>,
    ) -> Result<()> {
        let place = Place::inode(Structure::Xattr, inode.number());
        for entry in XattrEntries::from_inode(inode.xattr_area(), place) {
            if !f(entry?, place)? {
                return Ok(());
            }
        }
        let Some(block) = inode.xattr_block() else { return Ok(()) };
        let (bytes, place) = self.xattr_block(inode, block)?;
        for entry in XattrEntries::from_block(&bytes, place)? {
            if !f(entry?, place)? {
                return Ok(());
            }
        }
        Ok(())
    }

    fn xattr_block(&self, inode: &Inode, block: Block) -> Result<(Arc<[u8]>, Place)> {
        self.check_blocks(block, 1, Place::inode(Structure::Inode, inode.number()))?;
        let place = Place::inode(Structure::XattrBlock, inode.number()).at(block);
        let bytes = self.metadata_block(block)?;
        self.verify(Subject::XattrBlock, &Context { block, ..Context::default() }, &bytes, place)?;
        Ok((bytes, place))
    }

    fn xattr_value(&self, inode: &Inode, entry: &XattrEntry<'_>, place: Place) -> Result<Vec<u8>> {
        let Some(value_inode) = entry.value_inode else { return Ok(entry.value.to_vec()) };
        if u64::from(entry.value_size) > LARGEST_SUM {
            return Err(place.malformed(format!("a value of {} bytes", entry.value_size)));
        }
        let holder = self.inode(value_inode)?;
        let place = Place::inode(Structure::XattrInode, holder.number());
        if !holder.has(InodeFlags::EA_INODE) || holder.size() != u64::from(entry.value_size) {
            return Err(place.malformed("is not the value of the attribute that names it"));
        }
        let mut value = vec![0; usize_of(entry.value_size)];
        self.open_stored(&holder)?.read_at(&mut value, 0)?;
        if !is_lustre_value(&holder, inode) {
            let subject = Subject::XattrInode;
            self.checksums().verify_value(
                subject,
                &Context::default(),
                &value,
                holder.value_hash(),
                place,
            )?;
        }
        Ok(value)
    }
}

/// Whether a value's inode is of the kind that Lustre made before values were hashed: it points back to its
/// one owner by number (in the seconds of its modification time) and generation.
fn is_lustre_value(holder: &Inode, owner: &Inode) -> bool {
    let back = holder.modified().seconds & 0xffff_ffff;
    back == i64::from(owner.number().get()) && holder.generation() == owner.generation() && back != 0
}
