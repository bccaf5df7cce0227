//! Extended attributes of members, from all records that tell them.
//!
//! GNU tar and star write ACLs as text, and labels of SELinux without their NUL; libarchive writes values as base64, too.

use super::{Member, XATTR, records};
use crate::acl::{ACCESS_ACL as ACCESS, Acl, limit_group};
use crate::{Error, Result, mode_without_acl};

/// An extended attribute: its name and its value.
pub type Xattr = (Vec<u8>, Vec<u8>);

/// Attributes that ACLs are, and the keys of the records that have them as text.
const ACLS: [(&[u8], &str); 2] =
    [(ACCESS, "SCHILY.acl.access"), (b"system.posix_acl_default", "SCHILY.acl.default")];

/// The attribute of SELinux, and the key of the record that has it without the NUL at its end.
const LABEL: (&[u8], &[u8]) = (b"security.selinux", b"RHT.security.selinux");

/// Extended attributes of a member, and what they say about its mode.
#[derive(Clone, Debug)]
pub struct Attributes {
    /// Names and values, in the order of the names, each name once.
    pub xattrs: Vec<Xattr>,
    /// Permission bits of the member: what an ACL that is text says. libarchive's headers have the rights of the owning
    /// group where the kernel has the mask's.
    pub mode: u16,
}

impl Member {
    /// Adds the records of an extended attribute: of an ACL also as text, as GNU tar reads it.
    pub fn add_xattr(&mut self, name: &[u8], value: Vec<u8>) {
        if let Some((_, key)) = ACLS.iter().find(|(acl, _)| *acl == name)
            && let Some(acl) = Acl::from_attribute(&value)
        {
            self.records.push((key.as_bytes().to_vec(), acl.to_text()));
        }
        self.records.push(([XATTR, name].concat(), value));
    }

    /// Extended attributes, of `SCHILY.xattr.NAME` above all; where that does not tell one, of `LIBARCHIVE.xattr.NAME`,
    /// `RHT.security.selinux`, `SCHILY.acl.access` and `SCHILY.acl.default`. Of what is told twice the last one counts.
    ///
    /// # Errors
    /// `Corrupt` for values that are not base64 and texts that are not ACLs, `Unsupported` for an ACL that has the name of a
    /// user or group without its number.
    pub fn attributes(&self) -> Result<Attributes> {
        let owned = |(name, value): (&[u8], &[u8])| (name.to_vec(), value.to_vec());
        let mut xattrs: Vec<Xattr> = self.xattrs().map(owned).collect();
        for (key, value) in &self.records {
            if let Some(name) = key.strip_prefix(records::LIBARCHIVE) {
                let value = base64(value).ok_or_else(|| {
                    Error::corrupt(format!("{}: the value is not base64", String::from_utf8_lossy(key)))
                })?;
                xattrs.push((name.to_vec(), value));
            }
        }
        let mut mode = self.node.mode;
        let has = |xattrs: &[Xattr], wanted: &[u8]| xattrs.iter().any(|(name, _)| name == wanted);
        let (name, key) = LABEL;
        if let Some(label) = self.record(key).filter(|label| !label.is_empty())
            && !has(&xattrs, name)
        {
            let label = label.strip_suffix(b"\0").unwrap_or(label);
            xattrs.push((name.to_vec(), [label, b"\0"].concat()));
        }
        for (name, key) in ACLS {
            let Some(text) = self.record(key.as_bytes()).filter(|_| !has(&xattrs, name)) else { continue };
            let Some(acl) = Acl::from_text(text, key)? else { continue };
            if name == ACCESS {
                mode = mode & !0o777 | acl.mode();
                // The kernel keeps none that says no more than the mode.
                if !acl.is_more() {
                    continue;
                }
            }
            xattrs.push((name.to_vec(), acl.to_attribute()));
        }
        // Stable: what counts stands first.
        xattrs.sort_by(|(a, _), (b, _)| a.cmp(b));
        xattrs.dedup_by(|(a, _), (b, _)| a == b);
        Ok(Attributes { xattrs, mode })
    }

    /// Permission bits of the member if it gets no extended attributes, nor its access ACL: the group has none then that the ACL did
    /// not give it, whatever form the ACL has.
    pub fn mode_without_acl(&self) -> u16 {
        let mut mode = self.node.mode;
        for (key, value) in &self.records {
            mode = match &key[..] {
                key if key.strip_prefix(XATTR) == Some(ACCESS) => mode_without_acl(mode, value),
                key if key.strip_prefix(records::LIBARCHIVE) == Some(ACCESS) => {
                    mode_without_acl(mode, &base64(value).unwrap_or_default())
                }
                key if key == ACLS[0].1.as_bytes() => {
                    Acl::group_of_text(value).map_or(mode, |group| limit_group(mode, group))
                }
                _ => mode,
            };
        }
        mode
    }
}

/// Bytes that base64 stands for, with or without the signs that fill it up.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let text = text.trim_ascii_end();
    let text = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for four in text.chunks(4) {
        let mut bits = 0u32;
        for letter in four {
            let value = match letter {
                b'A'..=b'Z' => letter - b'A',
                b'a'..=b'z' => letter - b'a' + 26,
                b'0'..=b'9' => letter - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            bits = bits << 6 | u32::from(value);
        }
        let missing = 4 - four.len();
        let [_, all @ ..] = (bits << (6 * missing)).to_be_bytes();
        bytes.extend_from_slice(all.get(..3 - missing)?);
    }
    // A letter alone has six bits of a byte.
    (text.len() % 4 != 1).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileType, Node};

    #[test]
    fn base64_is_read_with_and_without_its_end() {
        for (text, bytes) in [
            ("", Some(&b""[..])),
            ("AQID", Some(b"\x01\x02\x03")),
            ("AQI", Some(b"\x01\x02")),
            ("AQI=", Some(b"\x01\x02")),
            ("AQ==\n", Some(b"\x01")),
            ("++//", Some(b"\xfb\xef\xff")),
            ("A", None),
            ("AQIDA", None),
            ("A*==", None),
        ] {
            assert_eq!(base64(text.as_bytes()).as_deref(), bytes, "{text}");
        }
    }

    #[test]
    fn the_group_of_a_member_without_its_acl_has_no_more_than_before() {
        let acl: &[u8] =
            b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff\x02\0\x06\0\x07\0\0\0\x04\0\x04\0\xff\xff\xff\xff\
            \x10\0\x06\0\xff\xff\xff\xff\x20\0\0\0\xff\xff\xff\xff";
        let cases: [(&str, &[u8], u16); 7] = [
            ("SCHILY.xattr.system.posix_acl_access", acl, 0o640),
            ("SCHILY.xattr.system.posix_acl_default", acl, 0o660),
            ("LIBARCHIVE.xattr.system.posix_acl_access", b"AgAAAAEABgD", 0o600),
            ("LIBARCHIVE.xattr.system.posix_acl_access", b"*", 0o600),
            ("SCHILY.acl.access", b"user::rw-,user:joe:rw-,group::---,mask::rw-,other::---", 0o600),
            ("SCHILY.acl.access", b"", 0o660),
            ("SCHILY.acl.default", b"user::rw-,group::---,other::---", 0o660),
        ];
        for (key, value, mode) in cases {
            let mut member = Member::new("f", Node { mode: 0o660, ..Node::new(FileType::Regular) }, None);
            member.records.push((key.as_bytes().to_vec(), value.to_vec()));
            assert_eq!(member.mode_without_acl(), mode, "{key}");
        }
    }

    #[test]
    fn the_kernels_names_count_more() {
        let mut member = Member::new("f", Node { mode: 0o4660, ..Node::new(FileType::Regular) }, None);
        let mut add =
            |key: &str, value: &[u8]| member.records.push((key.as_bytes().to_vec(), value.to_vec()));
        add("SCHILY.acl.access", b"user::rw-,user:1:rw-,group::---,mask::r--,other::---");
        add("LIBARCHIVE.xattr.user.a", b"AQ");
        add("SCHILY.xattr.user.a", b"last");
        add("SCHILY.xattr.user.a", b"first");
        add("RHT.security.selinux", b"label");
        let attributes = member.attributes().unwrap();
        assert_eq!(attributes.mode, 0o4640);
        let names: Vec<_> = attributes.xattrs.iter().map(|(name, _)| String::from_utf8_lossy(name)).collect();
        assert_eq!(
            names,
            ["security.selinux", ACLS[0].1.replace("SCHILY.acl.", "system.posix_acl_").as_str(), "user.a"]
        );
        assert_eq!(attributes.xattrs[0].1, b"label\0");
        assert_eq!(attributes.xattrs[2].1, b"last");
        member.add_xattr(ACCESS, b"x".to_vec());
        let attributes = member.attributes().unwrap();
        assert_eq!((attributes.mode, &attributes.xattrs[1].1[..]), (0o4660, &b"x"[..]));
    }
}
