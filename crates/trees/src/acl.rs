//! ACLs as text, as records of tar streams have them, and as attributes, as programs get them from the kernel.
//!
//! Text: entries `TAG:NAME:PERMISSIONS`, with line feeds or commas between them, and a remark from "#" to the end of a
//! line. star and libarchive write `TAG:NAME:PERMISSIONS:NUMBER` where there is a name; GNU tar writes names that its host
//! has, and numbers else. Sources: POSIX.1e draft 17, section 23; star(5); include/uapi/linux/posix_acl_xattr.h, for facts.

use crate::node::NO_ID;
use crate::{Error, Result};

/// Name of the attribute that an access ACL is.
pub const ACCESS_ACL: &[u8] = b"system.posix_acl_access";

/// Permission bits of a file whose access ACL, an attribute as programs get it from the kernel, is left out. Those of the group are
/// the mask's as long as there is an ACL, and the mask may allow what the group may not: then the group keeps what both its
/// entry and the mask allow. Of an ACL that makes no sense nothing is known, and the group gets nothing.
pub fn mode_without_acl(mode: u16, acl: &[u8]) -> u16 {
    let group = match Acl::from_attribute(acl) {
        Some(Acl(entries)) if entries.is_empty() => return mode,
        Some(acl) => acl.group(),
        None => 0,
    };
    limit_group(mode, group)
}

/// Permission bits without those of the group that are not in `rights`.
pub(crate) fn limit_group(mode: u16, rights: u16) -> u16 {
    mode & (!0o070 | rights << 3)
}

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
pub(crate) struct Acl(Vec<Entry>);

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
        let entries = entries_of(text).map(|text| entry(text, name));
        let mut entries = entries.collect::<Result<Vec<_>>>()?;
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

    /// The rights of the owning group: none that the mask does not allow.
    fn group(&self) -> u16 {
        rights_of_group(&self.0)
    }

    /// The rights of the owning group by an access ACL that is text, whoever else it names, with numbers or without; `None` if the
    /// text has no entries.
    pub fn group_of_text(text: &[u8]) -> Option<u16> {
        entries_of(text).next()?;
        let entries: Vec<Entry> = entries_of(text).filter_map(|text| entry(text, "").ok()).collect();
        Some(rights_of_group(&entries))
    }

    /// Whether an access ACL says more than permission bits do.
    pub fn is_more(&self) -> bool {
        self.0.iter().any(|entry| matches!(entry.tag, USER | GROUP | MASK))
    }
}

/// Rights that each entry of the owning group, and each mask, allows; none without an entry of the group.
fn rights_of_group(entries: &[Entry]) -> u16 {
    let of = |tag: u16| {
        let rights = entries.iter().filter(move |entry| entry.tag == tag).map(|entry| entry.permissions);
        rights.reduce(|all, some| all & some)
    };
    of(OWNING_GROUP).unwrap_or(0) & of(MASK).unwrap_or(7)
}

/// The entries of a text, without remarks.
fn entries_of(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = text.split(|byte| *byte == b'\n');
    let lines = lines.map(|line| line.split(|byte| *byte == b'#').next().unwrap_or_default());
    let entries = lines.flat_map(|line| line.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    entries.filter(|text| !text.is_empty())
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
    fn a_group_without_its_acl_has_what_entry_and_mask_allow() {
        let attribute = |text: &str| Acl::from_text(text.as_bytes(), "acl").unwrap().unwrap().to_attribute();
        for (text, mode, without) in [
            ("u::rw,u:7:rw,g::-,m::rw,o::r", 0o4664, 0o4604),
            ("u::rw,u:7:rw,g::rwx,m::r,o::-", 0o640, 0o640),
            ("u::rw,g::rx,m::rw,o::-", 0o2660, 0o2640),
            ("u::rw,g::rw,o::-", 0o640, 0o640),
        ] {
            assert_eq!(mode_without_acl(mode, &attribute(text)), without, "{text}");
        }
        assert_eq!(mode_without_acl(0o664, b"nonsense"), 0o604);
        assert_eq!(mode_without_acl(0o664, &VERSION.to_le_bytes()), 0o664);
        assert_eq!(
            Acl::group_of_text(b"user::rw-\nuser:joe:rw-\ngroup::r--#e\nmask::rw-\nother::---"),
            Some(4)
        );
        assert_eq!((Acl::group_of_text(b" #x\n"), Acl::group_of_text(b"x")), (None, Some(0)));
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
