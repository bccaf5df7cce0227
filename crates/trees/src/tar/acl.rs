//! ACLs as text, as records of tar streams have them, and as attributes, as programs get them from the kernel.
//!
//! Text: entries `TAG:NAME:PERMISSIONS`, with line feeds or commas between them, and a remark from "#" to the end of a
//! line. star and libarchive write `TAG:NAME:PERMISSIONS:NUMBER` where there is a name; GNU tar writes names that its host
//! has, and numbers else. Sources: POSIX.1e draft 17, section 23; star(5); include/uapi/linux/posix_acl_xattr.h, for facts.

use crate::node::NO_ID;
use crate::{Error, Result};

/// The version of an attribute's value.
const VERSION: u32 = 2;

/// Bytes of an entry of an attribute: tag and permissions (16 bits each), and the number of a user or group.
const ENTRY: usize = 8;

const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const OWNING_GROUP: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// An ACL, its entries in the order that the kernel wants.
#[derive(Debug)]
pub(super) struct Acl(Vec<Entry>);

#[derive(Clone, Copy, Debug)]
struct Entry {
    tag: u16,
    id: u32,
    permissions: u16,
}

impl Acl {
    /// An ACL as text; `None` if the text has no entries. Errors begin with `name`, the record's.
    ///
    /// # Errors
    /// `Corrupt` for a text that is not an ACL, `Unsupported` for a user or group without a number.
    pub fn from_text(text: &[u8], name: &str) -> Result<Option<Acl>> {
        let lines = text.split(|byte| *byte == b'\n');
        let lines = lines.map(|line| line.split(|byte| *byte == b'#').next().unwrap_or_default());
        let mut entries = Vec::new();
        for text in lines.flat_map(|line| line.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii) {
            if !text.is_empty() {
                entries.push(entry(text, name)?);
            }
        }
        if entries.is_empty() {
            return Ok(None);
        }
        let wrong = |text: &str| Err(Error::corrupt(format!("{name}: {text}")));
        entries.sort_by_key(|entry| (entry.tag, entry.id));
        if entries.windows(2).any(|pair| (pair[0].tag, pair[0].id) == (pair[1].tag, pair[1].id)) {
            return wrong("the ACL has an entry twice");
        }
        let has = |tag: u16| entries.iter().any(|entry| entry.tag == tag);
        for (tag, what) in [(OWNER, "the owner"), (OWNING_GROUP, "the group"), (OTHER, "others")] {
            if !has(tag) {
                return wrong(&format!("the ACL lacks the entry of {what}"));
            }
        }
        if (has(USER) || has(GROUP)) && !has(MASK) {
            return wrong("the ACL names users or groups, and lacks a mask");
        }
        Ok(Some(Acl(entries)))
    }

    /// An ACL as the value of an attribute; `None` for nonsense.
    pub fn from_attribute(value: &[u8]) -> Option<Acl> {
        let (version, entries) = value.split_first_chunk()?;
        let (entries, rest) = entries.as_chunks::<ENTRY>();
        if u32::from_le_bytes(*version) != VERSION || !rest.is_empty() {
            return None;
        }
        let entry = |&[t0, t1, p0, p1, id @ ..]: &[u8; ENTRY]| {
            let (tag, permissions) = (u16::from_le_bytes([t0, t1]), u16::from_le_bytes([p0, p1]));
            (tag_name(tag).is_some() && permissions <= 7).then_some(Entry {
                tag,
                permissions,
                id: u32::from_le_bytes(id),
            })
        };
        entries.iter().map(entry).collect::<Option<_>>().map(Acl)
    }

    /// The value of the attribute.
    pub fn to_attribute(&self) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for Entry { tag, id, permissions } in &self.0 {
            value.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
            value.extend(id.to_le_bytes());
        }
        value
    }

    /// The text as GNU tar writes it of users and groups without names: a line for each entry.
    pub fn to_text(&self) -> Vec<u8> {
        let mut text = String::new();
        for Entry { tag, id, permissions } in &self.0 {
            let id = if matches!(*tag, USER | GROUP) { id.to_string() } else { String::new() };
            let letter = |bit: u16, letter: char| if permissions & bit != 0 { letter } else { '-' };
            let name = tag_name(*tag).unwrap_or_default();
            text.extend([name, ":", &id, ":"]);
            text.extend([letter(4, 'r'), letter(2, 'w'), letter(1, 'x'), '\n']);
        }
        text.into_bytes()
    }

    /// Permission bits that an access ACL says: its group's are what the mask has.
    pub fn mode(&self) -> u16 {
        let of = |tag: u16| self.0.iter().find(|entry| entry.tag == tag).map(|entry| entry.permissions);
        let group = of(MASK).or_else(|| of(OWNING_GROUP));
        of(OWNER).unwrap_or(0) << 6 | group.unwrap_or(0) << 3 | of(OTHER).unwrap_or(0)
    }

    /// Whether an access ACL says more than permission bits do.
    pub fn is_more(&self) -> bool {
        self.0.iter().any(|entry| matches!(entry.tag, USER | GROUP | MASK))
    }
}

/// An entry as text.
fn entry(text: &[u8], name: &str) -> Result<Entry> {
    let shown = || format!("{name}: '{}'", text.escape_ascii());
    let wrong = || Error::corrupt(format!("{}: not an entry of an ACL", shown()));
    let fields: Vec<&[u8]> = text.split(|byte| *byte == b':').map(<[u8]>::trim_ascii).collect();
    let (tag, who, permissions, number) = match fields[..] {
        [tag, who, permissions] => (tag, who, permissions, None),
        [tag, who, permissions, number] => (tag, who, permissions, Some(number)),
        [tag @ (b"mask" | b"m" | b"other" | b"o"), permissions] => (tag, &b""[..], permissions, None),
        _ => return Err(wrong()),
    };
    let is_named = !who.is_empty() || number.is_some();
    let tag = match (tag, is_named) {
        (b"user" | b"u", false) => OWNER,
        (b"user" | b"u", true) => USER,
        (b"group" | b"g", false) => OWNING_GROUP,
        (b"group" | b"g", true) => GROUP,
        (b"mask" | b"m", false) => MASK,
        (b"other" | b"o", false) => OTHER,
        _ => return Err(wrong()),
    };
    let mut bits = 0;
    for letter in permissions {
        bits |= match letter {
            b'r' => 4,
            b'w' => 2,
            b'x' => 1,
            b'-' => 0,
            _ => return Err(wrong()),
        };
    }
    if permissions.is_empty() {
        return Err(wrong());
    }
    let mut id = NO_ID;
    if is_named {
        let number = number.unwrap_or(who);
        if number.iter().any(|byte| !byte.is_ascii_digit()) || number.is_empty() {
            let text = "a user or group without its number; an image has no names of them. bsdtar writes numbers, and \
                        GNU tar ACLs with numbers among the extended attributes";
            return Err(Error::unsupported(format!("{}: {text}", shown())));
        }
        let number = str::from_utf8(number).ok().and_then(|number| number.parse().ok());
        id = number
            .filter(|id| *id != NO_ID)
            .ok_or_else(|| Error::corrupt(format!("{}: not the number of a user or group", shown())))?;
    }
    Ok(Entry { tag, id, permissions: bits })
}

fn tag_name(tag: u16) -> Option<&'static str> {
    Some(match tag {
        OWNER | USER => "user",
        OWNING_GROUP | GROUP => "group",
        MASK => "mask",
        OTHER => "other",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acl_survives_both_forms() {
        let text =
            b"user::rwx\nuser:7:r--\nuser:4294967294:-w-\ngroup::--x\ngroup:5:r-x\nmask::rw-\nother::---\n";
        let acl = Acl::from_text(text, "acl").unwrap().unwrap();
        assert_eq!((acl.mode(), acl.is_more()), (0o760, true));
        let value = acl.to_attribute();
        assert_eq!(value[..20], [2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 4, 0, 7, 0, 0, 0]);
        assert_eq!(value.len(), 4 + 7 * ENTRY);
        assert_eq!(Acl::from_attribute(&value).unwrap().to_text(), text);
        assert!(Acl::from_text(b"\n# nothing\n", "acl").unwrap().is_none());
        let few = Acl::from_text(b"user::rw-,other::r--,group::r--", "acl").unwrap().unwrap();
        assert_eq!((few.mode(), few.is_more()), (0o644, false));
    }

    #[test]
    fn nonsense_is_no_attribute() {
        let value = Acl::from_text(b"u::r,g::r,o::r", "acl").unwrap().unwrap().to_attribute();
        for len in 0..value.len() {
            assert_eq!(Acl::from_attribute(&value[..len]).is_some(), len >= 4 && len % ENTRY == 4, "{len}");
        }
        for (at, byte) in [(0, 1), (4, 3), (6, 8), (7, 1)] {
            let mut value = value.clone();
            value[at] = byte;
            assert!(Acl::from_attribute(&value).is_none(), "{at}");
        }
    }
}
