//! Blocks of attributes, as they are loaded.

use crate::alloc::Allocator;
use crate::error::{Place, Result, Structure};
use crate::format::csum::{Context, Subject};
use crate::format::inode::Inode;
use crate::format::xattr::{self, XattrEntries};
use crate::units::Block;

/// How many inodes use a block of attributes.
pub(super) fn users_of(space: &Allocator, inode: &Inode, block: Block) -> Result<u32> {
    load_block(space, inode, block)?;
    space.transaction().with(block, |bytes| xattr::USERS.get(bytes))
}

/// Loads an attribute block, whose checksum and entries must be sound.
pub(crate) fn load_block(space: &Allocator, inode: &Inode, block: Block) -> Result<Place> {
    let place = Place::inode(Structure::XattrBlock, inode.number()).at(block);
    space.load(block, place, |bytes| {
        let context = Context { block, ..Context::default() };
        space.fs().verify(Subject::XattrBlock, &context, bytes, place)?;
        XattrEntries::from_block(bytes, place).map(|_| ())
    })?;
    Ok(place)
}
