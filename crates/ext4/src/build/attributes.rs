//! Attributes of files that are written once: in the inode while there is room, then in a block, which files with the same
//! attributes share.

use std::collections::HashMap;

use casemate_blockdev::u32_of;

use crate::edit::{split_name, stored_value};
use crate::error::{Error, Result, no_space};
use crate::format::xattr::{self, Attribute, USERS, Value};

/// The most inodes that share a block of attributes, as the kernel has it.
const MOST_USERS: u32 = 1024;

/// Blocks of attributes of a file system.
#[derive(Debug, Default)]
pub(crate) struct AttributeBlocks {
    /// Bytes, without checksums and users, and how many inodes use them.
    pub blocks: Vec<(Vec<u8>, u32)>,
    /// The block that the next file with the same attributes uses.
    known: HashMap<Vec<u8>, usize>,
}

/// Attributes of a file that have got their place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Placed {
    /// Bytes of the attribute area behind the inode's fields; empty without any.
    pub area: Vec<u8>,
    /// The number of the block with the rest.
    pub block: Option<u32>,
}

impl AttributeBlocks {
    /// Gives attributes, by whole names as programs see them, their place: `room` bytes behind an inode's fields, and a
    /// block of `block_size` bytes. What is `first` has its place in the inode.
    ///
    /// # Errors
    /// `InvalidInput` for names that ext4 does not store, `StorageFull` for too many.
    pub fn place(
        &mut self,
        first: Option<Attribute>,
        list: &[(Vec<u8>, Vec<u8>)],
        room: usize,
        block_size: usize,
    ) -> Result<Placed> {
        let mut placed = Placed::default();
        if list.is_empty() && first.is_none() {
            return Ok(placed);
        }
        let mut area = vec![0; room];
        let (inside_room, block_room) = (xattr::room_in_inode(&area), xattr::room_in_block(block_size));
        let (mut inside, mut outside) = (Vec::new(), Vec::new());
        let (mut used, mut block_used) = (0, 0);
        let parsed = list.iter().map(|(name, value)| {
            let (index, short) = split_name(name)?;
            let value = Value::Here(stored_value(index, value)?);
            Ok::<_, Error>(Attribute { index, name: short.to_vec(), value })
        });
        for attribute in first.map(Ok).into_iter().chain(parsed) {
            let attribute = attribute?;
            let size = attribute.size();
            if used + size <= inside_room {
                used += size;
                inside.push(attribute);
            } else if block_used + size <= block_room {
                block_used += size;
                outside.push(attribute);
            } else {
                return Err(no_space("room for the file's attributes, which have an inode and a block"));
            }
        }
        if !inside.is_empty() {
            xattr::write_area(&mut area, &inside);
            placed.area = area;
        }
        if !outside.is_empty() {
            placed.block = Some(self.block(xattr::block_bytes(block_size, outside)));
        }
        Ok(placed)
    }

    fn block(&mut self, bytes: Vec<u8>) -> u32 {
        let number = match self.known.get(&bytes) {
            Some(number) if self.blocks[*number].1 < MOST_USERS => *number,
            _ => {
                self.blocks.push((bytes.clone(), 0));
                self.known.insert(bytes, self.blocks.len() - 1);
                self.blocks.len() - 1
            }
        };
        let (bytes, users) = &mut self.blocks[number];
        *users += 1;
        USERS.set(bytes, *users);
        // No more than there are inodes.
        u32_of(number)
    }
}
