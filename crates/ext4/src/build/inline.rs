//! Contents of small files in their inodes: in the place of the map, and behind them in an attribute.
//!
//! Source: Documentation/filesystems/ext4/inlinedata.rst.

use casemate_blockdev::u64_of;

use crate::format::xattr::{Attribute, INLINE_DATA, SYSTEM, Value, room_in_inode};

/// Bytes of the place of the map.
const AREA: usize = 60;

/// The longest contents that an inode has room for, with so many bytes behind its fields.
pub(crate) fn most(room: usize) -> u64 {
    let without = attribute(&[]).size();
    match room_in_inode(&vec![0; room]).checked_sub(without) {
        // What is in the attribute goes on in words of four bytes.
        Some(left) => u64_of(AREA + left / 4 * 4),
        None => 0,
    }
}

/// Contents, and the attribute that has those behind the first 60 bytes; it is always there.
pub(crate) fn divided(mut contents: Vec<u8>) -> (Box<[u8]>, Attribute) {
    let rest = contents.split_off(contents.len().min(AREA));
    (contents.into_boxed_slice(), attribute(&rest))
}

fn attribute(value: &[u8]) -> Attribute {
    Attribute { index: SYSTEM, name: INLINE_DATA.to_vec(), value: Value::Here(value.to_vec()) }
}
