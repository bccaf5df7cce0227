//! The kernel's numbers of nodes: those of inodes, but for the root.

use fuser::INodeNo;

use casemate::ext4::{InodeNo, Superblock};

/// The inode of a node, of which the root's is 1; `None` for what can be none.
pub fn inode_number(node: INodeNo) -> Option<InodeNo> {
    match node {
        INodeNo::ROOT => Some(InodeNo::ROOT),
        node => InodeNo::new(u32::try_from(node.0).ok()?),
    }
}

/// Whether names may stand for an inode: those before the first one are the file system's own, but for the root.
pub fn is_nameable(number: InodeNo, superblock: &Superblock) -> bool {
    number == InodeNo::ROOT || !superblock.is_reserved(number)
}

/// A node that stands for no inode: for names whose inode there is none of.
pub fn beyond(number: InodeNo) -> u64 {
    u64::from(number.get()) | 1 << 32
}
