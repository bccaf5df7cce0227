//! POSIX ACLs: ext4 stores them shorter than programs see them.
//!
//! Stored: version 1, then entries of tag and permissions (16 bits each), followed by an id only where the tag
//! names a user or group. Seen by programs: version 2, and every entry with an id. Source: the kernel's
//! fs/ext4/acl.h and include/uapi/linux/posix_acl_xattr.h, for facts.

use crate::error::{Place, Result};
use crate::format::field::{Le16, Le32};
use crate::number::u8_of;

/// The version, and the fields of the entries behind it.
const VERSION: Le32 = Le32(0);
const HEADER: usize = VERSION.end();
const TAG: Le16 = Le16(0);
const PERMISSIONS: Le16 = Le16(2);
const ID: Le32 = Le32(4);
/// Bytes of an entry without an id, and of one with it.
const SHORT: usize = PERMISSIONS.end();
const LONG: usize = ID.end();

/// Versions of what is stored, and of what programs see.
const STORED: u32 = 1;
const SEEN: u32 = 2;

/// The tags that are followed by an id: a named user, a named group.
const NAMED: [u16; 2] = [0x02, 0x08];

/// The tag of what named users, named groups and the group have at most.
const MASK: u16 = 0x10;

/// The id of entries that have none.
const NO_ID: u32 = !0;

/// The attribute's value as programs see it.
pub(crate) fn to_program(stored: &[u8], place: Place) -> Result<Vec<u8>> {
    to_seen(stored).ok_or_else(|| place.malformed("an ACL that makes no sense"))
}

/// The value as programs see it; `None` for nonsense.
fn to_seen(stored: &[u8]) -> Option<Vec<u8>> {
    if stored.len() < HEADER || VERSION.get(stored) != STORED {
        return None;
    }
    let mut value = SEEN.to_le_bytes().to_vec();
    let mut rest = &stored[HEADER..];
    while !rest.is_empty() {
        let (head, after) = rest.split_at_checked(SHORT)?;
        value.extend(head);
        rest = after;
        if NAMED.contains(&TAG.get(head)) {
            let (id, after) = rest.split_at_checked(LONG - SHORT)?;
            value.extend(id);
            rest = after;
        } else {
            value.extend(NO_ID.to_le_bytes());
        }
    }
    Some(value)
}

/// The value as it is stored, from what programs see; `None` for nonsense.
pub(crate) fn to_stored(seen: &[u8]) -> Option<Vec<u8>> {
    let (version, entries) = seen.split_at_checked(HEADER)?;
    if VERSION.get(version) != SEEN || entries.len() % LONG != 0 {
        return None;
    }
    let mut value = STORED.to_le_bytes().to_vec();
    for entry in entries.chunks_exact(LONG) {
        value.extend(&entry[..entry_len(TAG.get(entry))]);
    }
    Some(value)
}

/// The access ACL of a new file that its directory has a default ACL for, and its permission bits: what both the ACL
/// and `mode` allow. Also whether the ACL says more than the bits. `None` for nonsense.
///
/// ACLs are as they are stored. Source: the kernel's fs/posix_acl.c, for facts; here `posix_acl_create_masq`.
pub(crate) fn create(default: &[u8], mode: u16) -> Option<(Vec<u8>, u16, bool)> {
    let (classes, is_more) = classes(default)?;
    let mut acl = default.to_vec();
    let mut bits = mode & !0o777;
    for (at, shift) in classes {
        let both = acl[at] & three_bits(mode, shift);
        acl[at] = both;
        bits |= u16::from(both) << shift;
    }
    Some((acl, bits, is_more))
}

/// The access ACL of a file that gets these permission bits (`posix_acl_chmod_masq`); `None` for nonsense.
pub(crate) fn change_mode(access: &[u8], mode: u16) -> Option<Vec<u8>> {
    let mut acl = access.to_vec();
    for (at, shift) in classes(access)?.0 {
        acl[at] = three_bits(mode, shift);
    }
    Some(acl)
}

/// The access ACL, as programs see it, of a file that gets these permission bits: what is left of it by chmod(2) behind
/// setxattr(2). `None` if the kernel would not take it.
pub(crate) fn change_seen_mode(seen: &[u8], bits: u16) -> Option<Vec<u8>> {
    let stored = to_stored(seen)?;
    if is_empty(&stored) {
        return Some(seen.to_vec());
    }
    mode(&stored)?;
    to_seen(&change_mode(&stored, bits)?)
}

/// Changes the ids of an ACL as programs see it. `map` is told of each whether it is that of a group.
pub(crate) fn map_seen_ids(seen: &mut [u8], mut map: impl FnMut(u32, bool) -> Result<u32>) -> Result<()> {
    for entry in seen.get_mut(HEADER..).unwrap_or_default().chunks_exact_mut(LONG) {
        if NAMED.contains(&TAG.get(entry)) {
            let id = map(ID.get(entry), TAG.get(entry) == NAMED[1])?;
            ID.set(entry, id);
        }
    }
    Ok(())
}

/// The permission bits that an access ACL says, and whether it says more than them (`posix_acl_equiv_mode`); `None` if
/// the kernel would not take it (`posix_acl_valid`). It is as it is stored.
pub(crate) fn mode(access: &[u8]) -> Option<(u16, bool)> {
    let (classes, is_more) = classes(access)?;
    let (mut at, mut last, mut is_named, mut has_mask) = (HEADER, 0, false, false);
    while at < access.len() {
        let entry = &access[at..];
        let tag = TAG.get(entry);
        let has_id = NAMED.contains(&tag);
        // In the order of the tags, and each once but those that have a name.
        if tag < last || tag == last && !has_id || PERMISSIONS.get(entry) > 7 {
            return None;
        }
        if has_id && ID.get(entry) == NO_ID {
            return None;
        }
        is_named |= has_id;
        has_mask |= tag == MASK;
        last = tag;
        at += entry_len(tag);
    }
    let bits = classes.iter().fold(0, |bits, (at, shift)| bits | u16::from(access[*at]) << shift);
    (has_mask || !is_named).then_some((bits, is_more))
}

/// Whether an ACL as it is stored has no entries: then it is none.
pub(crate) fn is_empty(acl: &[u8]) -> bool {
    acl.len() == HEADER
}

/// Where an ACL has the permissions that the bits of owner, group and others are those of, and where those bits stand in
/// a mode. Also whether it has more.
fn classes(acl: &[u8]) -> Option<([(usize, u32); 3], bool)> {
    const OWNER: u16 = 0x01;
    const GROUP: u16 = 0x04;
    const OTHER: u16 = 0x20;
    if acl.len() < HEADER || VERSION.get(acl) != STORED {
        return None;
    }
    let [mut owner, mut group, mut mask, mut other] = [None; 4];
    let (mut at, mut is_more) = (HEADER, false);
    while at < acl.len() {
        let tag = TAG.get(acl.get(at..at + SHORT)?);
        let is_named = NAMED.contains(&tag);
        let permissions = Some(at + PERMISSIONS.at());
        match tag {
            OWNER => owner = permissions,
            GROUP => group = permissions,
            MASK => mask = permissions,
            OTHER => other = permissions,
            _ if is_named => {}
            _ => return None,
        }
        is_more |= tag == MASK || is_named;
        at += entry_len(tag);
    }
    (at == acl.len()).then_some(([(owner?, 6), (mask.or(group)?, 3), (other?, 0)], is_more))
}

/// Bytes of an entry with this tag.
fn entry_len(tag: u16) -> usize {
    if NAMED.contains(&tag) { LONG } else { SHORT }
}

fn three_bits(mode: u16, shift: u32) -> u8 {
    u8_of(mode >> shift & 7)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Structure;
    use crate::units::InodeNo;

    #[test]
    fn ids_are_filled_in() {
        let place = Place::inode(Structure::Xattr, InodeNo::FIRST);
        let stored = [1, 0, 0, 0, 1, 0, 6, 0, 2, 0, 4, 0, 0xe8, 3, 0, 0];
        let seen = [2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 4, 0, 0xe8, 3, 0, 0];
        assert_eq!(to_program(&stored, place).unwrap(), seen);
        assert_eq!(to_stored(&seen).unwrap(), stored);
        assert_eq!(to_stored(&seen[..11]), None);
        assert_eq!(create(&stored, 0o777), None, "no entry for the group");
        for len in [0, 3, 5, 10, 15] {
            assert!(to_program(&stored[..len], place).is_err(), "{len}");
        }
    }
}
