//! The way to the kernel that no request waits on.

use std::sync::{Arc, OnceLock};

use fuser::{INodeNo, Notifier};

/// Tells the kernel what no longer holds of what it was told. Nothing is lost if it can't be told: it is unmounting then.
#[derive(Clone, Default)]
pub struct Kernel(Arc<OnceLock<Notifier>>);

impl Kernel {
    /// Sets the channel to the kernel.
    pub fn is_reached_by(&self, notifier: Notifier) {
        let _ = self.0.set(notifier);
    }

    /// Makes the kernel ask again for attributes and contents of a node. A thread that answers requests must not wait
    /// for this.
    pub fn forget_contents(&self, node: INodeNo) {
        self.0.get().iter().for_each(|notifier| drop(notifier.inval_inode(node, 0, 0)));
    }

    /// Makes the kernel ask again for the attributes of a node.
    pub fn forget_attributes(&self, node: INodeNo) {
        self.0.get().iter().for_each(|notifier| drop(notifier.inval_inode(node, -1, 0)));
    }
}
