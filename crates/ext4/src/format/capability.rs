//! Capabilities of files, the value of `security.capability`: who runs the file has them where one user is root.
//!
//! Source: the kernel's include/uapi/linux/capability.h (`vfs_ns_cap_data`), for facts.

use crate::format::field::Le32;

/// The revision with flags below it, and that user's number behind the sets. Older revisions end before it.
const MAGIC: Le32 = Le32(0);
const ROOT_ID: Le32 = Le32(20);

/// The revision that has the number.
const REVISION_MASK: u32 = 0xff00_0000;
const REVISION: u32 = 0x0300_0000;

/// The user who is root where the capabilities count; `None` if the value does not say that.
pub(crate) fn root_id(value: &[u8]) -> Option<u32> {
    let is_known = value.len() == ROOT_ID.end() && MAGIC.get(value) & REVISION_MASK == REVISION;
    is_known.then(|| ROOT_ID.get(value))
}

/// Changes the number of a value that has one.
pub(crate) fn set_root_id(value: &mut [u8], id: u32) {
    ROOT_ID.set(value, id);
}
