//! The kernel's numbers of nodes: those of inodes, but for the root.

use fuser::INodeNo;

use casemate::ext4::Superblock;

/// The root directory's inode, which the kernel calls node 1.
pub const ROOT: u32 = 2;

/// The inode of a node; `None` for what can be none.
pub fn inode_number(node: INodeNo) -> Option<u32> {
    match node {
        INodeNo::ROOT => Some(ROOT),
        node => u32::try_from(node.0).ok(),
    }
}

/// Whether names may stand for an inode: those before the first one are the file system's own, but for the root.
pub fn is_nameable(number: u32, superblock: &Superblock) -> bool {
    number == ROOT || number >= superblock.first_inode
}

/// A node that stands for no inode: for names whose inode there is none of.
pub fn beyond(number: u32) -> u64 {
    u64::from(number) | 1 << 32
}
