//! Extended attributes that change: in the inode while there is room, then in a block, values that fit nowhere
//! else in inodes of their own.

use std::io::ErrorKind;

use crate::edit::Writer;
use crate::edit::inode::InodeMut;
use crate::error::{Error, Place, Result, Structure, invalid, no_space};
use crate::format::acl;
use crate::format::bytes::le32;
use crate::format::csum::{Context, Subject};
use crate::format::features::{Compat, Incompat};
use crate::format::inode::FileType;
use crate::read::xattr::{ACL_ACCESS, ACL_DEFAULT, ENCRYPTION, MAGIC, PREFIXES, SYSTEM, USER, XattrEntries};

/// Bytes of a block's header, and of an entry without its name.
const HEADER: usize = 32;
const ENTRY: usize = 16;

/// What the kernel reads at most: of a whole name (`XATTR_NAME_MAX`) and of a value (`XATTR_SIZE_MAX`).
const MOST_NAME: usize = 255;
const MOST_VALUE: usize = 1 << 16;

/// An attribute while it is moved about.
#[derive(Clone, Debug)]
struct Attribute {
    index: u8,
    name: Vec<u8>,
    value: Value,
}

#[derive(Clone, Debug)]
enum Value {
    Here(Vec<u8>),
    /// In an inode of its own: its number, the value's size and hash.
    Inode(u32, u32, u32),
}

impl Attribute {
    /// Bytes of the entry.
    fn entry_size(&self) -> usize {
        ENTRY + self.name.len().next_multiple_of(4)
    }

    /// Bytes of the value where the entry is.
    fn value_size(&self) -> usize {
        match &self.value {
            Value::Here(bytes) => bytes.len().next_multiple_of(4),
            Value::Inode(..) => 0,
        }
    }

    fn size(&self) -> usize {
        self.entry_size() + self.value_size()
    }

    /// Whether contents of the file continue in it.
    fn is_inline_data(&self) -> bool {
        self.index == SYSTEM && self.name == b"data"
    }

    /// `e_hash`: the name, then the value in words.
    fn hash(&self) -> u32 {
        let name = self.name.iter().fold(0u32, |hash, byte| hash.rotate_left(5) ^ u32::from(*byte));
        let word = |hash: u32, word: u32| hash.rotate_left(16) ^ word;
        match &self.value {
            Value::Here(bytes) => bytes.chunks(4).fold(name, |hash, chunk| {
                let mut padded = [0; 4];
                padded[..chunk.len()].copy_from_slice(chunk);
                word(hash, u32::from_le_bytes(padded))
            }),
            Value::Inode(_, _, value_hash) => word(name, *value_hash),
        }
    }
}

impl Writer {
    /// Sets an attribute of a file, or removes it if the value is `None`. With an access ACL, the permission bits become
    /// what it says, and it is stored if it says more than they can.
    ///
    /// # Errors
    /// `NotFound` for a path, or an attribute to be removed, that is not there (which may be so for ACLs); `StorageFull`
    /// when all attributes together have no room; `InvalidInput` for names without a known prefix, and for more than
    /// the kernel takes; `PermissionDenied` for immutable and append-only files, and for attributes that files of this
    /// kind can't have.
    pub fn set_xattr(&mut self, path: &[u8], name: &[u8], value: Option<&[u8]>, follow: bool) -> Result<()> {
        let number = self.changeable(path, follow)?;
        self.operation(|writer| {
            let mut inode = writer.inode_mut(number)?;
            let (index, short) = split_name(name)?;
            let has_user = matches!(inode.kind(), FileType::Regular | FileType::Directory);
            if index == USER && !has_user {
                let text = "only regular files and directories have attributes of users (user.*)";
                return Err(invalid(ErrorKind::PermissionDenied, text));
            }
            let value = match index {
                ACL_ACCESS | ACL_DEFAULT => writer.apply_acl(&mut inode, index, value)?,
                _ => value,
            };
            if value.is_some() || writer.space.fs().xattr(&inode, index, short)?.is_some() {
                writer.change_attributes(&mut inode, &[(name, value)])?;
            } else if !matches!(index, ACL_ACCESS | ACL_DEFAULT) {
                let text = format!("{}: no such attribute", String::from_utf8_lossy(name));
                return Err(invalid(ErrorKind::NotFound, text));
            }
            inode.set_time(super::inode::Stamp::Changed, writer.now());
            writer.store_inode(&inode)
        })
    }

    /// Checks an ACL as programs see it, and gives the inode the permission bits that it says. Returns it if more is left
    /// of it.
    fn apply_acl<'a>(
        &self,
        inode: &mut InodeMut,
        index: u8,
        value: Option<&'a [u8]>,
    ) -> Result<Option<&'a [u8]>> {
        if inode.kind() == FileType::Symlink {
            return Err(invalid(ErrorKind::PermissionDenied, "symbolic links have no ACLs"));
        }
        let Some(value) = value.filter(|value| !value.is_empty()) else { return Ok(None) };
        let stored = stored_value(index, value)?;
        if acl::is_empty(&stored) {
            return Ok(None);
        }
        let malformed = || invalid(ErrorKind::InvalidInput, "an ACL that makes no sense");
        let (bits, is_more) = acl::mode(&stored).ok_or_else(malformed)?;
        if index == ACL_DEFAULT {
            if !inode.is_dir() {
                return Err(invalid(ErrorKind::PermissionDenied, "only directories have default ACLs"));
            }
            return Ok(Some(value));
        }
        inode.set_permissions(inode.mode() & !0o777 | bits);
        Ok(is_more.then_some(value))
    }

    /// Sets and removes attributes by their whole names. Part of an operation; the caller stores the inode.
    pub(crate) fn change_attributes(
        &mut self,
        inode: &mut InodeMut,
        changes: &[(&[u8], Option<&[u8]>)],
    ) -> Result<()> {
        let mut list = self.attributes(inode)?;
        for (name, value) in changes {
            let (index, short) = split_name(name)?;
            let at = list.iter().position(|old| old.index == index && old.name == short);
            let value = match value {
                None => {
                    if let Some(old) = at.map(|at| list.remove(at)) {
                        self.release_value(inode, &old.value)?;
                    }
                    continue;
                }
                Some(value) => stored_value(index, value)?,
            };
            if value.len() > MOST_VALUE {
                let text = format!("an attribute's value has at most {MOST_VALUE} bytes");
                return Err(invalid(ErrorKind::InvalidInput, text));
            }
            match at {
                Some(at) => {
                    let old = std::mem::replace(&mut list[at].value, Value::Here(value));
                    self.release_value(inode, &old)?;
                }
                None => list.push(Attribute { index, name: short.to_vec(), value: Value::Here(value) }),
            }
        }
        self.place_attributes(inode, list)
    }

    /// Gives an inode attributes by their prefix index, without further names, as they are stored. Part of an
    /// operation; the caller stores the inode.
    pub(crate) fn set_stored(&mut self, inode: &mut InodeMut, new: Vec<(u8, Vec<u8>)>) -> Result<()> {
        if new.is_empty() {
            return Ok(());
        }
        let mut list = self.attributes(inode)?;
        for (index, value) in new {
            let attribute = Attribute { index, name: Vec::new(), value: Value::Here(value) };
            match list.iter_mut().find(|old| old.index == index && old.name.is_empty()) {
                Some(old) => *old = attribute,
                None => list.push(attribute),
            }
        }
        self.place_attributes(inode, list)
    }

    /// Gives an inode its encryption context. Part of an operation; the caller stores the inode.
    pub(crate) fn set_context(&mut self, inode: &mut InodeMut, context: Vec<u8>) -> Result<()> {
        let mut list = self.attributes(inode)?;
        list.retain(|old| old.index != ENCRYPTION);
        // First, so that it lies in the inode, where it is found at once.
        let value = Value::Here(context);
        list.insert(0, Attribute { index: ENCRYPTION, name: b"c".to_vec(), value });
        self.place_attributes(inode, list)
    }

    /// Bytes of contents that an inode has room for beside the attributes that it has: in the place of the map, and in
    /// an attribute.
    pub(crate) fn inline_room(&self, inode: &InodeMut) -> Result<usize> {
        let place = Place::inode(Structure::Xattr, inode.number());
        let mut room = self.room_inside(inode);
        for entry in XattrEntries::from_inode(inode.xattr_area(), place) {
            let attribute = self.attribute(&entry?)?;
            if !attribute.is_inline_data() {
                room = room.saturating_sub(attribute.size());
            }
        }
        let entry = Attribute { index: SYSTEM, name: b"data".to_vec(), value: Value::Here(Vec::new()) };
        let value = room.checked_sub(entry.size());
        Ok(value.map_or(0, |value| inode.block_area().len() + value / 4 * 4))
    }

    /// Sets the attribute that inline data continues in, for which the inode has room.
    pub(crate) fn set_inline_attribute(&mut self, inode: &mut InodeMut, value: &[u8]) -> Result<()> {
        let mut list = self.attributes(inode)?;
        list.retain(|old| !old.is_inline_data());
        list.insert(
            0,
            Attribute { index: SYSTEM, name: b"data".to_vec(), value: Value::Here(value.to_vec()) },
        );
        self.place_attributes(inode, list)
    }

    /// Removes the attribute that inline data continues in.
    pub(crate) fn remove_inline_attribute(&mut self, inode: &mut InodeMut) -> Result<()> {
        let mut list = self.attributes(inode)?;
        list.retain(|old| !old.is_inline_data());
        self.place_attributes(inode, list)
    }

    /// Frees an inode's block of attributes and the values that nobody else uses.
    pub(crate) fn free_attributes(&mut self, inode: &mut InodeMut) -> Result<()> {
        let place = Place::inode(Structure::Xattr, inode.number());
        let mut list = Vec::new();
        for entry in XattrEntries::from_inode(inode.xattr_area(), place) {
            list.push(self.attribute(&entry?)?);
        }
        for attribute in list {
            self.release_value(inode, &attribute.value)?;
        }
        let block = inode.xattr_block();
        if block == 0 {
            return Ok(());
        }
        if self.users_of(inode, block)? == 1 {
            for attribute in self.attributes_in_block(inode, block)? {
                self.release_value(inode, &attribute.value)?;
            }
        }
        self.drop_block(inode, block)
    }

    fn attributes(&self, inode: &InodeMut) -> Result<Vec<Attribute>> {
        let place = Place::inode(Structure::Xattr, inode.number());
        let mut list = Vec::new();
        for entry in XattrEntries::from_inode(inode.xattr_area(), place) {
            list.push(self.attribute(&entry?)?);
        }
        let block = inode.xattr_block();
        if block != 0 {
            let more = self.attributes_in_block(inode, block)?;
            let has_inodes = more.iter().any(|attribute| matches!(attribute.value, Value::Inode(..)));
            if has_inodes && self.users_of(inode, block)? > 1 {
                let text = "changing attributes whose block is shared and has values in inodes";
                return Err(Error::unsupported(text.to_owned()));
            }
            list.extend(more);
        }
        Ok(list)
    }

    fn attributes_in_block(&self, inode: &InodeMut, block: u64) -> Result<Vec<Attribute>> {
        let place = self.load_attributes(inode, block)?;
        let bytes = self.space.transaction().with(block, <[u8]>::to_vec)?;
        XattrEntries::from_block(&bytes, place)?.map(|entry| self.attribute(&entry?)).collect()
    }

    fn attribute(&self, entry: &crate::read::xattr::XattrEntry<'_>) -> Result<Attribute> {
        let value = match entry.value_inode {
            0 => Value::Here(entry.value.to_vec()),
            number => Value::Inode(number, entry.value_size, self.value_hash(number)?),
        };
        Ok(Attribute { index: entry.index, name: entry.name.to_vec(), value })
    }

    /// Bytes for attributes in an inode.
    fn room_inside(&self, inode: &InodeMut) -> usize {
        // Magic number before, four zero bytes behind the entries.
        inode.xattr_area().len().saturating_sub(8)
    }

    /// Writes a whole new list of attributes.
    fn place_attributes(&mut self, inode: &mut InodeMut, mut list: Vec<Attribute>) -> Result<()> {
        if !list.is_empty() && !self.space.fs().superblock().compat.has(Compat::EXT_ATTR) {
            self.space.transaction_mut().add_feature(0x5c, Compat::EXT_ATTR.0)?;
        }
        let block_size = self.block_size();
        let room = self.room_inside(inode);
        let block_room = block_size - HEADER - 4;
        // What inline data continues in has its place in the inode; then small ones, as they come.
        list.sort_by_key(|attribute| attribute.index != SYSTEM);
        let (mut inside, mut outside) = (Vec::new(), Vec::new());
        let (mut used, mut block_used) = (0, 0);
        for mut attribute in list {
            if used + attribute.size() <= room {
                used += attribute.size();
                inside.push(attribute);
                continue;
            }
            if attribute.is_inline_data() {
                return Err(no_space("room for attributes beside inline data"));
            }
            if block_used + attribute.size() > block_room {
                let has_inodes = self.space.fs().superblock().incompat.has(Incompat::EA_INODE);
                let value = match &attribute.value {
                    Value::Here(value) if has_inodes => value.clone(),
                    _ => return Err(no_space("room for the file's attributes")),
                };
                let (number, hash) = self.make_value_inode(inode, &value)?;
                // OK to truncate: at most 16 MiB.
                attribute.value = Value::Inode(number, value.len() as u32, hash);
                if used + attribute.size() <= room {
                    used += attribute.size();
                    inside.push(attribute);
                    continue;
                }
                if block_used + attribute.size() > block_room {
                    return Err(no_space("room for the file's attributes"));
                }
            }
            block_used += attribute.size();
            outside.push(attribute);
        }
        let area = inode.xattr_area_mut();
        area.fill(0);
        if !inside.is_empty() {
            area[..4].copy_from_slice(&MAGIC.to_le_bytes());
            // Entries in the inode have a hash only for values in other inodes.
            write_entries(&mut area[4..], 0, &inside, |a| match a.value {
                Value::Inode(..) => a.hash(),
                Value::Here(_) => 0,
            });
        }
        self.place_block(inode, outside)
    }

    fn place_block(&mut self, inode: &mut InodeMut, mut list: Vec<Attribute>) -> Result<()> {
        let old = inode.xattr_block();
        if list.is_empty() {
            return if old == 0 { Ok(()) } else { self.drop_block(inode, old) };
        }
        list.sort_by(|a, b| (a.index, a.name.len(), &a.name).cmp(&(b.index, b.name.len(), &b.name)));
        let mut bytes = vec![0; self.block_size()];
        for (at, word) in [(0, MAGIC), (4, 1), (8, 1)] {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        write_entries(&mut bytes, HEADER, &list, Attribute::hash);
        // One entry without a hash makes the block one that is shared with nobody.
        let hashes = list.iter().map(Attribute::hash);
        let all = hashes.clone().fold(0u32, |all, hash| all.rotate_left(16) ^ hash);
        let hash = if hashes.into_iter().any(|hash| hash == 0) { 0 } else { all };
        bytes[0xc..0x10].copy_from_slice(&hash.to_le_bytes());
        let block = if old != 0 && self.users_of(inode, old)? == 1 {
            old
        } else {
            if old != 0 {
                self.drop_block(inode, old)?;
            }
            let block = self.metadata_block(inode)?;
            inode.set_xattr_block(block);
            block
        };
        self.create_block(Subject::XattrBlock, Context { block, ..Context::default() }, block, bytes);
        Ok(())
    }

    /// Takes a block of attributes from an inode; it is freed if nobody else uses it.
    fn drop_block(&mut self, inode: &mut InodeMut, block: u64) -> Result<()> {
        let users = self.users_of(inode, block)?;
        inode.set_xattr_block(0);
        if users <= 1 {
            return self.free_metadata_block(inode, block);
        }
        self.count_clusters(inode, -1)?;
        let context = Context { block, ..Context::default() };
        self.space.transaction_mut().patch(Subject::XattrBlock, context, block, 4, &(users - 1).to_le_bytes())
    }

    /// How many inodes use a block of attributes.
    fn users_of(&self, inode: &InodeMut, block: u64) -> Result<u32> {
        self.load_attributes(inode, block)?;
        self.space.transaction().with(block, |bytes| le32(bytes, 4))
    }

    pub(crate) fn load_attributes(&self, inode: &InodeMut, block: u64) -> Result<Place> {
        let place = Place::inode(Structure::XattrBlock, inode.number()).at(block);
        self.space.load(block, place, |bytes| {
            let context = Context { block, ..Context::default() };
            self.space.fs().verify(Subject::XattrBlock, &context, bytes, place)?;
            XattrEntries::from_block(bytes, place).map(|_| ())
        })?;
        Ok(place)
    }

    fn release_value(&mut self, owner: &mut InodeMut, value: &Value) -> Result<()> {
        match value {
            Value::Here(_) => Ok(()),
            Value::Inode(number, size, _) => self.release_value_inode(owner, *number, *size),
        }
    }
}

/// Writes entries from `at` on and their values from the end of `area` on, offsets counted from its start.
fn write_entries(area: &mut [u8], at: usize, list: &[Attribute], hash: impl Fn(&Attribute) -> u32) {
    let (mut at, mut end) = (at, area.len());
    for attribute in list {
        let (offset, inode, size) = match &attribute.value {
            Value::Here(bytes) if bytes.is_empty() => (0, 0, 0),
            Value::Here(bytes) => {
                end -= attribute.value_size();
                area[end..end + bytes.len()].copy_from_slice(bytes);
                (end, 0, bytes.len() as u32)
            }
            Value::Inode(number, size, _) => (0, *number, *size),
        };
        // OK to truncate: names have at most 255 bytes, offsets lie in a block.
        area[at] = attribute.name.len() as u8;
        area[at + 1] = attribute.index;
        area[at + 2..at + 4].copy_from_slice(&(offset as u16).to_le_bytes());
        for (word, value) in [(4, inode), (8, size), (12, hash(attribute))] {
            area[at + word..at + word + 4].copy_from_slice(&value.to_le_bytes());
        }
        area[at + ENTRY..at + ENTRY + attribute.name.len()].copy_from_slice(&attribute.name);
        at += attribute.entry_size();
    }
}

/// A whole name as prefix index and the rest.
fn split_name(name: &[u8]) -> Result<(u8, &[u8])> {
    let found = PREFIXES.iter().filter(|(index, _)| *index != SYSTEM).find_map(|(index, prefix)| {
        let rest = name.strip_prefix(prefix.as_bytes())?;
        // A prefix that ends in a dot wants a name behind it, another one none.
        (prefix.ends_with('.') != rest.is_empty()).then_some((*index, rest))
    });
    if name.len() > MOST_NAME {
        let text =
            format!("{}: an attribute's name has at most {MOST_NAME} bytes", String::from_utf8_lossy(name));
        return Err(invalid(ErrorKind::InvalidInput, text));
    }
    found.ok_or_else(|| {
        let text = format!("{}: not a name of an attribute that ext4 stores", String::from_utf8_lossy(name));
        invalid(ErrorKind::InvalidInput, text)
    })
}

/// Whether ext4 stores attributes of this name.
pub(crate) fn is_storable(name: &[u8]) -> bool {
    split_name(name).is_ok()
}

/// A value as it is stored: ACLs have another form there.
fn stored_value(index: u8, value: &[u8]) -> Result<Vec<u8>> {
    match index {
        ACL_ACCESS | ACL_DEFAULT => acl::to_stored(value)
            .ok_or_else(|| invalid(ErrorKind::InvalidInput, "an ACL that makes no sense")),
        _ => Ok(value.to_vec()),
    }
}
