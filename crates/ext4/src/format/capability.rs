//! Capabilities of files, the value of `security.capability`: who runs the file has them where one user is root.
//!
//! Source: the kernel's include/uapi/linux/capability.h (`vfs_ns_cap_data`) and security/commoncap.c (`cap_convert_nscap`), for
//! facts.

use crate::format::field::Le32;

/// The revision with flags below it, and that user's number behind the sets. Older revisions end before it.
const MAGIC: Le32 = Le32(0);
const ROOT_ID: Le32 = Le32(20);

/// The revision that has the number, and the one before, whose root is the user 0.
const REVISION_MASK: u32 = 0xff00_0000;
const REVISION: u32 = 0x0300_0000;
const WITHOUT_ID: u32 = 0x0200_0000;

/// The user who is root where the capabilities count; `None` for another value.
pub(crate) fn root_id(value: &[u8]) -> Option<u32> {
    if value.len() < MAGIC.end() {
        return None;
    }
    match (MAGIC.get(value) & REVISION_MASK, value.len()) {
        (REVISION, len) if len == ROOT_ID.end() => Some(ROOT_ID.get(value)),
        (WITHOUT_ID, len) if len == ROOT_ID.at() => Some(0),
        _ => None,
    }
}

/// Changes the number of a value that [`root_id`] knows. One without becomes one of the revision with it, as the kernel stores those
/// that the root of a user namespace sets.
pub(crate) fn set_root_id(value: &mut Vec<u8>, id: u32) {
    let flags = MAGIC.get(value) & !REVISION_MASK;
    MAGIC.set(value, REVISION | flags);
    value.resize(ROOT_ID.end(), 0);
    ROOT_ID.set(value, id);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_is_told_in_both_revisions() {
        let second = [&[1, 0, 0, 2][..], &[7; 16]].concat();
        assert_eq!(root_id(&second), Some(0));
        let mut value = second.clone();
        set_root_id(&mut value, 5);
        assert_eq!(value, [&[1, 0, 0, 3][..], &[7; 16], &[5, 0, 0, 0]].concat());
        assert_eq!(root_id(&value), Some(5));
        for wrong in [&[][..], &second[..19], &value[..20], &[1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]] {
            assert_eq!(root_id(wrong), None, "{wrong:?}");
        }
    }
}
