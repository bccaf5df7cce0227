//! POSIX ACLs: ext4 stores them shorter than programs see them.
//!
//! Stored: version 1, then entries of tag and permissions (16 bits each), followed by an id only where the tag
//! names a user or group. Seen by programs: version 2, and every entry with an id. Source: the kernel's
//! fs/ext4/acl.h and include/uapi/linux/posix_acl_xattr.h, for facts.

use crate::bytes::le32;
use crate::error::{Place, Result};

/// The tags that are followed by an id: a named user, a named group.
const NAMED: [u16; 2] = [0x02, 0x08];

/// The id of entries that have none.
const NO_ID: u32 = !0;

/// The attribute's value as programs see it.
pub(crate) fn to_program(stored: &[u8], place: Place) -> Result<Vec<u8>> {
    let malformed = || place.malformed("an ACL that makes no sense");
    if stored.len() < 4 || le32(stored, 0) != 1 {
        return Err(malformed());
    }
    let mut value = 2u32.to_le_bytes().to_vec();
    let mut rest = &stored[4..];
    while !rest.is_empty() {
        let (head, after) = rest.split_at_checked(4).ok_or_else(malformed)?;
        value.extend(head);
        rest = after;
        if NAMED.contains(&u16::from_le_bytes([head[0], head[1]])) {
            let (id, after) = rest.split_at_checked(4).ok_or_else(malformed)?;
            value.extend(id);
            rest = after;
        } else {
            value.extend(NO_ID.to_le_bytes());
        }
    }
    Ok(value)
}

/// The value as it is stored, from what programs see; `None` for nonsense.
pub(crate) fn to_stored(seen: &[u8]) -> Option<Vec<u8>> {
    let (version, entries) = seen.split_at_checked(4)?;
    if le32(version, 0) != 2 || entries.len() % 8 != 0 {
        return None;
    }
    let mut value = 1u32.to_le_bytes().to_vec();
    for entry in entries.chunks_exact(8) {
        let named = NAMED.contains(&u16::from_le_bytes([entry[0], entry[1]]));
        value.extend(&entry[..if named { 8 } else { 4 }]);
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Structure;

    #[test]
    fn ids_are_filled_in() {
        let place = Place::inode(Structure::Xattr, 1);
        let stored = [1, 0, 0, 0, 1, 0, 6, 0, 2, 0, 4, 0, 0xe8, 3, 0, 0];
        let seen = [2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 4, 0, 0xe8, 3, 0, 0];
        assert_eq!(to_program(&stored, place).unwrap(), seen);
        assert_eq!(to_stored(&seen).unwrap(), stored);
        assert_eq!(to_stored(&seen[..11]), None);
        for len in [0, 3, 5, 10, 15] {
            assert!(to_program(&stored[..len], place).is_err(), "{len}");
        }
    }
}
