//! Media whose data are checked against a hash tree.

use std::sync::Arc;

use casemate_blockdev::{BlockDevice, Medium};

use super::VerifiedDevice;

/// Reason why data under a hash tree take no writes.
const VERIFIED: &str = "data under dm-verity can't be changed: the root hash would no longer match";

/// Data of a medium under a hash tree on another, or on the same.
pub type Verified = Arc<VerifiedDevice<Arc<dyn BlockDevice>, Arc<dyn BlockDevice>>>;

impl VerifiedDevice<Arc<dyn BlockDevice>, Arc<dyn BlockDevice>> {
    /// The medium with the data, each block of which is checked when it is read: it takes no writes.
    #[must_use]
    pub fn laid_on(self: &Arc<Self>, data: Medium) -> Medium {
        data.laid_reading(Arc::<Self>::clone(self)).refusing_writes(VERIFIED, None)
    }
}
