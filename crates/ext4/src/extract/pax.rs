//! Headers of a tar stream in the pax format (POSIX.1-2008, `pax` utility).

use crate::extract::Record;
use crate::inode::{FileType, Inode, Time};

/// Bytes of a record: headers are one, contents fill whole ones.
pub(crate) const RECORD: usize = 512;

/// The largest number in an octal field of a size or time, and of an owner.
const LARGEST_SIZE: u64 = 0o777_7777_7777;
const LARGEST_ID: u32 = 0o777_7777;

/// A member of the stream.
pub(crate) struct Member<'a> {
    /// Its path; directories' paths end in a slash.
    pub path: Vec<u8>,
    /// Whose mode, owner and times it has.
    pub inode: &'a Inode,
    /// A symbolic link's target, or the path of the member that this one is another name of.
    pub link: Option<Link>,
    /// Bytes of contents in the stream.
    pub stored: u64,
    /// The file's own size, if it is stored without its holes.
    pub sparse: Option<u64>,
    /// Further records: attributes.
    pub records: Vec<Record>,
    /// Whether owners are told.
    pub owners: bool,
}

/// What a link leads to.
pub(crate) enum Link {
    Hard(Vec<u8>),
    Symbolic(Vec<u8>),
}

impl Member<'_> {
    /// The member's headers.
    pub fn header(&self) -> Vec<u8> {
        let mut records = self.records.clone();
        let mut record = |key: &str, value: Vec<u8>| records.push((key.as_bytes().to_vec(), value));
        let name = match self.sparse {
            // Programs that know sparse members find the name here, others see what it is.
            Some(size) => {
                record("GNU.sparse.major", b"1".to_vec());
                record("GNU.sparse.minor", b"0".to_vec());
                record("GNU.sparse.name", self.path.clone());
                record("GNU.sparse.realsize", size.to_string().into_bytes());
                [b"GNUSparseFile.0/", &self.path[..]].concat()
            }
            None => self.path.clone(),
        };
        if needs_record(&name) {
            record("path", name.clone());
        }
        let target: &[u8] = match &self.link {
            Some(Link::Hard(target) | Link::Symbolic(target)) => target,
            None => &[],
        };
        if needs_record(target) {
            record("linkpath", target.to_vec());
        }
        if self.stored > LARGEST_SIZE {
            record("size", self.stored.to_string().into_bytes());
        }
        let (uid, gid) = if self.owners { (self.inode.uid(), self.inode.gid()) } else { (0, 0) };
        for (key, id) in [("uid", uid), ("gid", gid)] {
            if id > LARGEST_ID {
                record(key, id.to_string().into_bytes());
            }
        }
        let time = self.inode.modified();
        if time.nanoseconds != 0 || u64::try_from(time.seconds).map_or(true, |s| s > LARGEST_SIZE) {
            record("mtime", decimal(time));
        }
        let mut header = Vec::new();
        if !records.is_empty() {
            // Names may be any bytes. GNU tar takes them as they are, and complains about this record.
            if [&name[..], target].iter().any(|name| std::str::from_utf8(name).is_err()) {
                records.insert(0, (b"hdrcharset".to_vec(), b"BINARY".to_vec()));
            }
            let body: Vec<u8> = records.iter().flat_map(|(key, value)| pax_record(key, value)).collect();
            header.extend(raw(b"PaxHeader", b'x', body.len() as u64, &[], 0o644, (0, 0), 0, (0, 0)));
            header.extend(&body);
            header.resize(header.len().next_multiple_of(RECORD), 0);
        }
        let kind = match (&self.link, self.inode.kind()) {
            (Some(Link::Hard(_)), _) => b'1',
            (_, FileType::Symlink) => b'2',
            (_, FileType::CharacterDevice) => b'3',
            (_, FileType::BlockDevice) => b'4',
            (_, FileType::Directory) => b'5',
            (_, FileType::Fifo) => b'6',
            _ => b'0',
        };
        let seconds = u64::try_from(time.seconds).unwrap_or(0);
        let device = self.inode.device().unwrap_or((0, 0));
        let mode = self.inode.mode() & 0o7777;
        header.extend(raw(&name, kind, self.stored, target, mode, (uid, gid), seconds, device));
        header
    }
}

fn needs_record(name: &[u8]) -> bool {
    name.len() > 100 || !name.is_ascii()
}

/// "LENGTH KEY=VALUE\n", where the length counts itself. A key has no "=": names of attributes may, which GNU tar
/// writes as "%3D", and "%" as "%25".
fn pax_record(key: &[u8], value: &[u8]) -> Vec<u8> {
    let key = &key.iter().fold(Vec::new(), |mut key, byte| {
        match byte {
            b'=' => key.extend(b"%3D"),
            b'%' => key.extend(b"%25"),
            _ => key.push(*byte),
        }
        key
    })[..];
    let rest = key.len() + value.len() + 3;
    let mut len = rest + 1;
    while len != rest + len.to_string().len() {
        len = rest + len.to_string().len();
    }
    [len.to_string().as_bytes(), b" ", key, b"=", value, b"\n"].concat()
}

fn decimal(time: Time) -> Vec<u8> {
    // A time before 1970 with a fraction counts towards zero in decimal, and from below in the inode.
    let (sign, seconds, nanoseconds) = match time {
        Time { seconds: ..0, nanoseconds: 1.. } => {
            ("-", -(time.seconds + 1), 1_000_000_000 - time.nanoseconds)
        }
        Time { seconds: ..0, .. } => ("-", -time.seconds, 0),
        _ => ("", time.seconds, time.nanoseconds),
    };
    let text = format!("{sign}{seconds}.{nanoseconds:09}");
    text.trim_end_matches('0').trim_end_matches('.').as_bytes().to_vec()
}

/// A record of the header. What does not fit its field is cut: a pax record has said it before.
#[allow(clippy::too_many_arguments, reason = "these are the header's fields")]
fn raw(
    name: &[u8],
    kind: u8,
    size: u64,
    link: &[u8],
    mode: u16,
    owner: (u32, u32),
    seconds: u64,
    device: (u32, u32),
) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    let mut text = |at: usize, room: usize, value: &[u8]| {
        let len = value.len().min(room);
        record[at..at + len].copy_from_slice(&value[..len]);
    };
    let octal = |digits: usize, value: u64| format!("{value:0digits$o}").into_bytes();
    let id = |id: u32| octal(7, if id > LARGEST_ID { 0 } else { id.into() });
    text(0, 100, name);
    text(100, 8, &octal(7, mode.into()));
    text(108, 8, &id(owner.0));
    text(116, 8, &id(owner.1));
    text(124, 12, &octal(11, if size > LARGEST_SIZE { 0 } else { size }));
    text(136, 12, &octal(11, if seconds > LARGEST_SIZE { 0 } else { seconds }));
    text(148, 8, b"        ");
    text(156, 1, &[kind]);
    text(157, 100, link);
    text(257, 8, b"ustar\x0000");
    text(329, 8, &id(device.0));
    text(337, 8, &id(device.1));
    let sum: u64 = record.iter().map(|byte| u64::from(*byte)).sum();
    record[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_its_own_length() {
        assert_eq!(pax_record(b"a", b"b"), b"6 a=b\n");
        assert_eq!(pax_record(b"a=b%", b"c="), b"15 a%3Db%25=c=\n");
        assert_eq!(pax_record(b"path", &[b'x'; 90]).len(), 99);
        for len in 80..120 {
            let record = pax_record(b"path", &vec![b'x'; len]);
            assert!(record.starts_with(record.len().to_string().as_bytes()), "{len}");
        }
    }

    #[test]
    fn times_are_decimals() {
        let text = |seconds, nanoseconds| String::from_utf8(decimal(Time { seconds, nanoseconds })).unwrap();
        assert_eq!(text(5, 250_000_000), "5.25");
        assert_eq!(text(-1, 750_000_000), "-0.25");
        assert_eq!(text(-3, 0), "-3");
        assert_eq!(text(100, 0), "100");
    }
}
