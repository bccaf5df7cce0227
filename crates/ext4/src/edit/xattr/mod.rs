//! Extended attributes that change: in the inode while there is room, then in a block, values that fit nowhere
//! else in inodes of their own.

pub(crate) mod block;
mod placing;
mod value_inode;

use std::io::ErrorKind;

use casemate_blockdev::u32_of;

use crate::alloc::Allocator;
use crate::edit::file_map::FileMap;
use crate::edit::inode::count_clusters;
use crate::edit::inodes::Inodes;
use crate::edit::xattr::block::{load_block, users_of};
use crate::edit::xattr::placing::{Placed, Plan, Room, plan};
use crate::error::{Error, Place, Result, Structure, invalid, no_space};
use crate::format::acl;
use crate::format::csum::{Context, Subject};
use crate::format::features::{Compat, Incompat};
use crate::format::inode::{FileType, Inode};
use crate::format::xattr::{
    self, ACL_ACCESS, ACL_DEFAULT, Attribute, ENCRYPTION, INLINE_DATA, PREFIXES, SYSTEM, Value, XattrEntries,
};
use crate::units::Block;

/// Limits of the kernel: bytes of a whole name (`XATTR_NAME_MAX`) and of a value (`XATTR_SIZE_MAX`).
pub(crate) const MOST_NAME: usize = 255;
const MOST_VALUE: usize = 1 << 16;

/// An inode's attributes, to change. The caller stores the inode.
pub(crate) struct Attributes<'t> {
    inodes: &'t mut Inodes,
    inode: &'t mut Inode,
}

impl<'t> Attributes<'t> {
    pub fn new(inodes: &'t mut Inodes, inode: &'t mut Inode) -> Attributes<'t> {
        Attributes { inodes, inode }
    }

    fn space(&self) -> &Allocator {
        self.inodes.space()
    }

    fn map(&mut self) -> FileMap<'_> {
        self.inodes.map(self.inode)
    }

    /// Checks an ACL as programs see it, and gives the inode the permission bits that it says. Returns it if more is
    /// left of it.
    pub fn apply_acl<'a>(&mut self, index: u8, value: Option<&'a [u8]>) -> Result<Option<&'a [u8]>> {
        if self.inode.kind() == FileType::Symlink {
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
            if !self.inode.is_dir() {
                return Err(invalid(ErrorKind::PermissionDenied, "only directories have default ACLs"));
            }
            return Ok(Some(value));
        }
        self.inode.set_permissions(self.inode.mode() & !0o777 | bits);
        Ok(is_more.then_some(value))
    }

    /// Sets and removes attributes by their whole names. Part of an operation; the caller stores the inode.
    pub fn change(&mut self, changes: &[(&[u8], Option<&[u8]>)]) -> Result<()> {
        let mut list = list(self.space(), self.inode)?;
        for (name, value) in changes {
            let (index, short) = split_name(name)?;
            let at = list.iter().position(|old| old.attribute.index == index && old.attribute.name == short);
            let value = match value {
                None => {
                    if let Some(old) = at.map(|at| list.remove(at)) {
                        self.release_value(&old.attribute.value)?;
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
                    let old = std::mem::replace(&mut list[at].attribute.value, Value::Here(value));
                    list[at].place = placing::Place::New;
                    self.release_value(&old)?;
                }
                None => {
                    list.push(fresh(Attribute { index, name: short.to_vec(), value: Value::Here(value) }));
                }
            }
        }
        self.place(list)
    }

    /// Gives an inode attributes by their prefix index, without further names, as they are stored. Part of an
    /// operation; the caller stores the inode.
    pub fn set_stored(&mut self, new: Vec<(u8, Vec<u8>)>) -> Result<()> {
        if new.is_empty() {
            return Ok(());
        }
        let mut list = list(self.space(), self.inode)?;
        for (index, value) in new {
            let changed = fresh(Attribute { index, name: Vec::new(), value: Value::Here(value) });
            let is_old = |old: &Placed| old.attribute.index == index && old.attribute.name.is_empty();
            match list.iter().position(is_old) {
                Some(at) => {
                    let old = std::mem::replace(&mut list[at], changed);
                    self.release_value(&old.attribute.value)?;
                }
                None => list.push(changed),
            }
        }
        self.place(list)
    }

    /// Gives an inode its encryption context. Part of an operation; the caller stores the inode.
    pub fn set_context(&mut self, context: Vec<u8>) -> Result<()> {
        let mut list = list(self.space(), self.inode)?;
        list.retain(|old| old.attribute.index != ENCRYPTION);
        // First, so that it lies in the inode, where it is found at once.
        let value = Value::Here(context);
        list.insert(0, fresh(Attribute { index: ENCRYPTION, name: b"c".to_vec(), value }));
        self.place(list)
    }

    /// Sets the attribute that inline data continues in, for which the inode has room.
    pub fn set_inline(&mut self, value: &[u8]) -> Result<()> {
        let mut list = list(self.space(), self.inode)?;
        list.retain(|old| !old.attribute.is_inline_data());
        list.insert(
            0,
            fresh(Attribute {
                index: SYSTEM,
                name: INLINE_DATA.to_vec(),
                value: Value::Here(value.to_vec()),
            }),
        );
        self.place(list)
    }

    /// Removes the attribute that inline data continues in.
    pub fn remove_inline(&mut self) -> Result<()> {
        let mut list = list(self.space(), self.inode)?;
        list.retain(|old| !old.attribute.is_inline_data());
        self.place(list)
    }

    /// Frees an inode's block of attributes and the values that nobody else uses.
    pub fn free(&mut self) -> Result<()> {
        let place = Place::inode(Structure::Xattr, self.inode.number());
        let mut list = Vec::new();
        for entry in XattrEntries::from_inode(self.inode.xattr_area(), place) {
            list.push(attribute(self.space(), &entry?)?);
        }
        for attribute in list {
            self.release_value(&attribute.value)?;
        }
        let Some(block) = self.inode.xattr_block() else { return Ok(()) };
        if users_of(self.space(), self.inode, block)? == 1 {
            for attribute in in_block(self.space(), self.inode, block)? {
                self.release_value(&attribute.value)?;
            }
        }
        self.drop_block(block)
    }

    /// Writes a whole new list of attributes.
    fn place(&mut self, mut list: Vec<Placed>) -> Result<()> {
        if !list.is_empty() && !self.inodes.fs().superblock().compat.has(Compat::EXT_ATTR) {
            self.inodes.transaction().edit_superblock(|superblock| {
                superblock.add_compat(Compat::EXT_ATTR);
                Ok(())
            })?;
        }
        let room =
            Room { inode: room_inside(self.inode), block: xattr::room_in_block(self.space().block_size()) };
        // What inline data continues in has its place in the inode; then small ones, as they come.
        list.sort_by_key(|placed| placed.attribute.index != SYSTEM);
        let has_inodes = self.inodes.fs().superblock().incompat.has(Incompat::EA_INODE);
        let Some(Plan { is_inside, moves }) = plan(&list, room, has_inodes) else {
            let has_inline = list.first().is_some_and(|placed| placed.attribute.is_inline_data());
            return Err(no_space(match has_inline {
                true => "room for attributes beside inline data",
                false => "room for the file's attributes",
            }));
        };
        let (mut inside, mut outside) = (Vec::new(), Vec::new());
        for ((Placed { mut attribute, .. }, is_inside), moves) in list.into_iter().zip(is_inside).zip(moves) {
            if moves && let Value::Here(value) = &attribute.value {
                let (number, hash) = self.make_value_inode(value)?;
                // At most 64 KiB.
                attribute.value = Value::Inode(number, u32_of(value.len()), hash);
            }
            if is_inside { inside.push(attribute) } else { outside.push(attribute) }
        }
        xattr::write_area(self.inode.xattr_area_mut(), &inside);
        self.place_block(outside)
    }

    fn place_block(&mut self, list: Vec<Attribute>) -> Result<()> {
        let old = self.inode.xattr_block();
        if list.is_empty() {
            return old.map_or(Ok(()), |old| self.drop_block(old));
        }
        let bytes = xattr::block_bytes(self.space().block_size(), list);
        let own = match old {
            Some(old) if users_of(self.space(), self.inode, old)? == 1 => Some(old),
            Some(old) => self.drop_block(old).map(|()| None)?,
            None => None,
        };
        let block = match own {
            Some(block) => block,
            None => {
                let block = self.map().metadata_block()?;
                self.inode.set_xattr_block(Some(block));
                block
            }
        };
        self.inodes.transaction().create_structure(
            Subject::XattrBlock,
            Context { block, ..Context::default() },
            block,
            bytes,
        );
        Ok(())
    }

    /// Takes a block of attributes from an inode; it is freed if nobody else uses it.
    fn drop_block(&mut self, block: Block) -> Result<()> {
        let users = users_of(self.space(), self.inode, block)?;
        self.inode.set_xattr_block(None);
        if users <= 1 {
            return self.map().free_metadata_block(block);
        }
        count_clusters(self.inodes.fs(), self.inode, -1)?;
        let context = Context { block, ..Context::default() };
        self.inodes.transaction().patch(
            Subject::XattrBlock,
            context,
            block,
            xattr::USERS.at(),
            &(users - 1).to_le_bytes(),
        )
    }

    fn release_value(&mut self, value: &Value) -> Result<()> {
        match value {
            Value::Here(_) => Ok(()),
            Value::Inode(number, size, _) => self.release_value_inode(*number, *size),
        }
    }
}

/// Bytes of contents that an inode has room for beside the attributes that it has: in the place of the map, and in
/// an attribute.
pub(crate) fn inline_room(space: &Allocator, inode: &Inode) -> Result<usize> {
    let place = Place::inode(Structure::Xattr, inode.number());
    let mut room = room_inside(inode);
    for entry in XattrEntries::from_inode(inode.xattr_area(), place) {
        let attribute = attribute(space, &entry?)?;
        if !attribute.is_inline_data() {
            room = room.saturating_sub(attribute.size());
        }
    }
    let entry = Attribute { index: SYSTEM, name: INLINE_DATA.to_vec(), value: Value::Here(Vec::new()) };
    let value = room.checked_sub(entry.size());
    Ok(value.map_or(0, |value| inode.block_area().len() + value / 4 * 4))
}

/// All attributes of an inode, each with its place.
fn list(space: &Allocator, inode: &Inode) -> Result<Vec<Placed>> {
    let place = Place::inode(Structure::Xattr, inode.number());
    let mut list = Vec::new();
    for entry in XattrEntries::from_inode(inode.xattr_area(), place) {
        list.push(Placed { attribute: attribute(space, &entry?)?, place: placing::Place::Inode });
    }
    if let Some(block) = inode.xattr_block() {
        let more = in_block(space, inode, block)?;
        let has_inodes = more.iter().any(|attribute| matches!(attribute.value, Value::Inode(..)));
        if has_inodes && users_of(space, inode, block)? > 1 {
            let text = "changing attributes whose block is shared and has values in inodes";
            return Err(Error::unsupported(text.to_owned()));
        }
        let place = placing::Place::Block;
        list.extend(more.into_iter().map(|attribute| Placed { attribute, place }));
    }
    Ok(list)
}

fn fresh(attribute: Attribute) -> Placed {
    Placed { attribute, place: placing::Place::New }
}

fn in_block(space: &Allocator, inode: &Inode, block: Block) -> Result<Vec<Attribute>> {
    let place = load_block(space, inode, block)?;
    let bytes = space.transaction().with(block, <[u8]>::to_vec)?;
    XattrEntries::from_block(&bytes, place)?.map(|entry| attribute(space, &entry?)).collect()
}

fn attribute(space: &Allocator, entry: &xattr::XattrEntry<'_>) -> Result<Attribute> {
    let value = match entry.value_inode {
        None => Value::Here(entry.value.to_vec()),
        Some(number) => Value::Inode(number, entry.value_size, space.fs().inode(number)?.value_hash()),
    };
    Ok(Attribute { index: entry.index, name: entry.name.to_vec(), value })
}

/// Bytes for attributes in an inode.
fn room_inside(inode: &Inode) -> usize {
    xattr::room_in_inode(inode.xattr_area())
}

/// A whole name as prefix index and the rest.
pub(crate) fn split_name(name: &[u8]) -> Result<(u8, &[u8])> {
    let found = PREFIXES.iter().filter(|(index, _)| *index != SYSTEM).find_map(|(index, prefix)| {
        let rest = name.strip_prefix(prefix.as_bytes())?;
        // A prefix that ends in a dot wants a name behind it, another one none.
        (prefix.ends_with('.') != rest.is_empty() && !rest.contains(&0)).then_some((*index, rest))
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
pub(crate) fn stored_value(index: u8, value: &[u8]) -> Result<Vec<u8>> {
    match index {
        ACL_ACCESS | ACL_DEFAULT => acl::to_stored(value)
            .ok_or_else(|| invalid(ErrorKind::InvalidInput, "an ACL that makes no sense")),
        _ => Ok(value.to_vec()),
    }
}
