//! Where fs-verity keeps a file's hash tree and descriptor: behind its end.
//!
//! From the end rounded up to 64 KiB on lies the tree, behind that on a block boundary the descriptor with its
//! signature, and the last four bytes of the last allocated block say how long both are. What they mean is not
//! for ext4 to know. Source: Documentation/filesystems/fsverity.rst and the kernel's fs/ext4/verity.c, for
//! facts.

use casemate_blockdev::{BlockDevice, usize_of};

use crate::error::{Place, Result, Structure};
use crate::format::inode::{FileType, Inode, InodeFlags};
use crate::read::file::FileReader;
use crate::read::fs::Ext4;

/// The boundary behind a file's end where its tree begins.
const TREE_ALIGNMENT: u64 = 1 << 16;

/// The largest descriptor with its signature, as the kernel has it.
const LARGEST_DESCRIPTOR: u32 = 1 << 14;

/// Metadata of fs-verity, which lie behind the end of a file's contents.
pub struct VerityMetadata {
    /// The descriptor, followed by the signature if there is one.
    pub descriptor: Vec<u8>,
    /// The file with all that is allocated behind its end.
    pub whole: FileReader,
    /// Where in that the tree begins.
    pub tree_offset: u64,
    /// How many bytes the tree can have at most: the descriptor lies behind it.
    pub tree_room: u64,
}

impl Ext4 {
    /// The fs-verity metadata of a file; `None` for files without.
    ///
    /// # Errors
    /// `Corrupt` when it is not where it belongs; and all errors of
    /// [`open_file`](Ext4::open_file), for contents and metadata are encrypted together.
    pub fn verity(&self, inode: &Inode) -> Result<Option<VerityMetadata>> {
        if inode.kind() != FileType::Regular || !inode.has(InodeFlags::VERITY) {
            return Ok(None);
        }
        let malformed =
            |what: &'static str| Err(Place::inode(Structure::VerityMetadata, inode.number()).malformed(what));
        if !inode.has(InodeFlags::EXTENTS) || inode.has(InodeFlags::INLINE_DATA) {
            return malformed("a file with fs-verity and without extents");
        }
        let whole = self.open_file(inode)?;
        let end = whole.allocated_end()?;
        let whole = whole.with_size(end);
        let tree_offset = inode.size().next_multiple_of(TREE_ALIGNMENT);
        if end < tree_offset + 4 {
            return malformed("nothing lies behind the file's end");
        }
        let mut size = [0; 4];
        whole.read_at(&mut size, end - 4)?;
        let size = u32::from_le_bytes(size);
        if size == 0 || size > LARGEST_DESCRIPTOR || u64::from(size) + 4 > end - tree_offset {
            return malformed("the descriptor's size makes no sense");
        }
        let block_size = u64::from(self.layout().block_size);
        let at = (end - 4 - u64::from(size)) / block_size * block_size;
        if at < tree_offset {
            return malformed("the descriptor lies before the tree");
        }
        let mut descriptor = vec![0; usize_of(size)];
        whole.read_at(&mut descriptor, at)?;
        Ok(Some(VerityMetadata { descriptor, whole, tree_offset, tree_room: at - tree_offset }))
    }
}
