//! The way to the kernel that no request waits on.

use std::sync::{Arc, OnceLock};

use fuser::{INodeNo, Notifier};

/// Tells the kernel what no longer holds of what it was told. Nothing is lost if it can't be told: it is unmounting then.
#[derive(Clone, Default)]
pub struct Kernel(Arc<OnceLock<Notifier>>);

impl Kernel {
    /// Says how the kernel is reached.
    pub fn is_reached_by(&self, notifier: Notifier) {
        let _ = self.0.set(notifier);
    }

    /// Lets the kernel ask again for attributes and contents of a node. Nobody may wait for this who answers requests.
    pub fn forget_contents(&self, node: INodeNo) {
        self.0.get().iter().for_each(|notifier| drop(notifier.inval_inode(node, 0, 0)));
    }

    /// Lets the kernel ask again for the attributes of a node.
    pub fn forget_attributes(&self, node: INodeNo) {
        self.0.get().iter().for_each(|notifier| drop(notifier.inval_inode(node, -1, 0)));
    }
}
