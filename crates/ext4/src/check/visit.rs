//! What a walk over a file system tells of.

use crate::error::{Error, Place, Result, Structure};
use crate::format::csum::Context;
use crate::format::group::{Bitmap, GroupDescriptor};
use crate::format::inode::Inode;
use crate::read::file::FileReader;

/// Sees every structure of a file system, and the damage that keeps a walk from going on somewhere.
///
/// A structure that several others lead to is seen once for each of them. Threads have a visitor each.
pub(crate) trait Visitor {
    /// Whether to look for structures of a kind. What only they lead to is not seen otherwise.
    fn wants(&self, structure: Structure) -> bool;

    /// A structure with bytes of its own. Whether it can be believed: the walk goes on to what it leads to.
    fn structure(&mut self, item: &Item<'_>) -> Result<bool>;

    /// A group's bitmap. Whether it can be believed.
    fn bitmap(&mut self, item: &BitmapItem<'_>) -> Result<bool>;

    /// The value of an attribute that has an inode of its own.
    fn value(&mut self, inode: &Inode, contents: &FileReader) -> Result<()>;

    /// What contradicts the format, so that nothing below can be found. Errors that are none of the image's pass.
    fn damage(&mut self, error: Error) -> Result<()>;
}

/// A structure, as the bytes on disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item<'a> {
    /// Which one.
    pub place: Place,
    /// Where it begins on the device, in bytes.
    pub offset: u64,
    pub bytes: &'a [u8],
    /// What its checksum takes from around it.
    pub context: Context,
}

/// A group's bitmap, as the bytes on disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BitmapItem<'a> {
    pub which: Bitmap,
    pub group: u32,
    /// The group's, which can be believed, and holds the checksum.
    pub descriptor: GroupDescriptor<'a>,
    pub place: Place,
    /// All of its block.
    pub bytes: &'a [u8],
    /// Bits of any group's bitmap, which the checksum covers.
    pub covered: u32,
    /// Bits that stand for something in this group.
    pub used: u32,
}
