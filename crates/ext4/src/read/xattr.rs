//! Extended attributes: in the inode, in a block of their own, and values in inodes of their own.
//!
//! Source: Documentation/filesystems/ext4/attributes.rst.

use casemate_blockdev::BlockDevice;

use crate::error::{Place, Result, Structure};
use crate::format::acl;
use crate::format::bytes::{le16, le32};
use crate::format::csum::{Context, Subject};
use crate::format::inode::{Inode, InodeFlags};
use crate::read::fs::Ext4;

/// An extended attribute as programs see it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Xattr {
    /// The whole name, such as `user.comment`.
    pub name: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
}

/// An attribute's entry, as it is stored.
#[derive(Clone, Copy, Debug)]
pub struct XattrEntry<'a> {
    /// Which prefix the name has.
    pub index: u8,
    /// The name behind the prefix.
    pub name: &'a [u8],
    /// The value, unless it lies in an inode of its own.
    pub value: &'a [u8],
    /// The inode that holds the value, or 0.
    pub value_inode: u32,
    /// Bytes of the value.
    pub value_size: u32,
}

/// Entries, and the bytes that their values lie in.
#[derive(Clone, Copy, Debug)]
pub struct XattrEntries<'a> {
    /// What values' offsets count from.
    base: &'a [u8],
    at: usize,
    place: Place,
}

pub(crate) const MAGIC: u32 = 0xea02_0000;

/// The largest value, as the kernel has it (`EXT4_XATTR_SIZE_MAX`).
pub(crate) const LARGEST_VALUE: u32 = 1 << 24;

/// All values of one inode together: four times the largest one.
const LARGEST_SUM: u64 = 1 << 26;

/// The prefix index of attributes that ext4 keeps for itself: inline data.
pub(crate) const SYSTEM: u8 = 7;

/// The prefix index of fscrypt's context, which programs don't see.
pub(crate) const ENCRYPTION: u8 = 9;

/// The prefix indexes of ACLs: whole names.
pub(crate) const ACL_ACCESS: u8 = 2;
pub(crate) const ACL_DEFAULT: u8 = 3;

/// The prefix index of attributes that belong to whoever may write the file.
pub(crate) const USER: u8 = 1;

/// The prefix index of attributes that the kernel's security modules and capabilities have.
pub(crate) const SECURITY: u8 = 6;

pub(crate) const PREFIXES: [(u8, &str); 7] = [
    (USER, "user."),
    (ACL_ACCESS, "system.posix_acl_access"),
    (ACL_DEFAULT, "system.posix_acl_default"),
    (4, "trusted."),
    (SECURITY, "security."),
    (SYSTEM, "system."),
    (8, "system.richacl"),
];

impl<'a> XattrEntries<'a> {
    /// The attributes behind an inode's fields; none where the magic number is missing.
    pub fn from_inode(area: &'a [u8], place: Place) -> XattrEntries<'a> {
        let base = match area.get(..4) {
            Some(magic) if le32(magic, 0) == MAGIC => &area[4..],
            _ => &[],
        };
        XattrEntries { base, at: 0, place }
    }

    /// The attributes in a block.
    ///
    /// # Errors
    /// `Corrupt` at `place` when it is no such block.
    pub fn from_block(block: &'a [u8], place: Place) -> Result<XattrEntries<'a>> {
        if block.len() < 32 || le32(block, 0) != MAGIC {
            return Err(place.malformed("no magic number 0xea020000"));
        }
        if le32(block, 8) != 1 {
            return Err(place.malformed("more than one block of attributes"));
        }
        Ok(XattrEntries { base: block, at: 32, place })
    }

    fn entry(&mut self) -> Result<Option<XattrEntry<'a>>> {
        let malformed = |what: &'static str| self.place.malformed(what);
        let rest = self.base.get(self.at..).unwrap_or(&[]);
        if rest.len() < 4 || le32(rest, 0) == 0 {
            return Ok(None);
        }
        if rest.len() < 16 {
            return Err(malformed("an attribute passes the end"));
        }
        let (e_name_len, e_name_index) = (usize::from(rest[0]), rest[1]);
        let e_value_offs = usize::from(le16(rest, 2));
        let (e_value_inum, e_value_size) = (le32(rest, 4), le32(rest, 8));
        let Some(name) = rest.get(16..16 + e_name_len) else {
            return Err(malformed("an attribute's name passes the end"));
        };
        let value = if e_value_inum != 0 || e_value_size == 0 {
            &[]
        } else {
            let size = usize::try_from(e_value_size).unwrap_or(usize::MAX);
            let end = e_value_offs.checked_add(size);
            match end.and_then(|end| self.base.get(e_value_offs..end)) {
                Some(value) => value,
                None => return Err(malformed("an attribute's value passes the end")),
            }
        };
        self.at += (16 + e_name_len).next_multiple_of(4);
        Ok(Some(XattrEntry {
            index: e_name_index,
            name,
            value,
            value_inode: e_value_inum,
            value_size: e_value_size,
        }))
    }
}

impl<'a> Iterator for XattrEntries<'a> {
    type Item = Result<XattrEntry<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.entry().transpose();
        if matches!(entry, Some(Err(_))) {
            // Nothing behind a broken entry can be found.
            self.at = self.base.len();
        }
        entry
    }
}

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
            if entry.index == SYSTEM && entry.name == b"data" {
                return Ok(true);
            }
            sum += u64::from(entry.value_size);
            if sum > LARGEST_SUM {
                return Err(place.malformed("attributes of more than 64 MiB"));
            }
            let value = self.xattr_value(inode, &entry, place)?;
            let value = if matches!(entry.index, 2 | 3) { acl::to_program(&value, place)? } else { value };
            list.push(Xattr { name: [prefix.as_bytes(), entry.name].concat(), value });
            Ok(true)
        })?;
        Ok(list)
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
        data.extend(self.xattr(inode, SYSTEM, b"data")?.unwrap_or_default());
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
        let block = inode.xattr_block();
        if block == 0 {
            return Ok(());
        }
        let (bytes, place) = self.xattr_block(inode, block)?;
        for entry in XattrEntries::from_block(&bytes, place)? {
            if !f(entry?, place)? {
                return Ok(());
            }
        }
        Ok(())
    }

    fn xattr_block(&self, inode: &Inode, block: u64) -> Result<(Vec<u8>, Place)> {
        self.check_blocks(block, 1, Place::inode(Structure::Inode, inode.number()))?;
        let place = Place::inode(Structure::XattrBlock, inode.number()).at(block);
        let bytes = self.read_block(block)?;
        self.verify(Subject::XattrBlock, &Context { block, ..Context::default() }, &bytes, place)?;
        Ok((bytes, place))
    }

    fn xattr_value(&self, inode: &Inode, entry: &XattrEntry<'_>, place: Place) -> Result<Vec<u8>> {
        if entry.value_inode == 0 {
            return Ok(entry.value.to_vec());
        }
        if entry.value_size > LARGEST_VALUE {
            return Err(place.malformed(format!("a value of {} bytes", entry.value_size)));
        }
        let holder = self.inode(entry.value_inode)?;
        let place = Place::inode(Structure::XattrInode, holder.number());
        if !holder.has(InodeFlags::EA_INODE) || holder.size() != u64::from(entry.value_size) {
            return Err(place.malformed("is not the value of the attribute that names it"));
        }
        let mut value = vec![0; entry.value_size as usize];
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
    back == i64::from(owner.number()) && holder.generation() == owner.generation() && back != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area() -> Vec<u8> {
        let mut area = vec![0; 64];
        area[..4].copy_from_slice(&MAGIC.to_le_bytes());
        area[4..8].copy_from_slice(&[3, 1, 40, 0]);
        area[12] = 5;
        area[20..23].copy_from_slice(b"key");
        area[44..49].copy_from_slice(b"value");
        area
    }

    fn read(area: &[u8]) -> Vec<Result<(Vec<u8>, Vec<u8>)>> {
        let place = Place::inode(Structure::Xattr, 1);
        let entries = XattrEntries::from_inode(area, place);
        entries.map(|entry| entry.map(|entry| (entry.name.to_vec(), entry.value.to_vec()))).collect()
    }

    #[test]
    fn one_attribute() {
        let list = read(&area());
        assert_eq!(list.len(), 1);
        assert_eq!(list[0].as_ref().unwrap(), &(b"key".to_vec(), b"value".to_vec()));
    }

    #[test]
    fn nothing_outside_is_read() {
        for (at, value) in [(6, 60), (4, 255), (13, 1), (14, 255), (15, 255)] {
            let mut area = area();
            area[at] = value;
            let list = read(&area);
            assert!(list.len() == 1 && list[0].is_err(), "{at}: {list:?}");
        }
        for len in 0..area().len() {
            let _ = read(&area()[..len]);
        }
    }
}
