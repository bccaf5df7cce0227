//! Headers of members, as they are written.

use casemate_blockdev::u64_of;

use super::{Member, RECORD, records};
use crate::{FileType, Link};

/// The largest number in an octal field of a size or time, and of an owner.
const LARGEST_SIZE: u64 = 0o777_7777_7777;
const LARGEST_ID: u32 = 0o777_7777;

/// The headers of a member with `stored` bytes in the stream, which are not all of the file if it is `sparse`.
pub(super) fn header(member: &Member, stored: u64, sparse: bool) -> Vec<u8> {
    let node = &member.node;
    let mut more = member.records.clone();
    let mut record = |key: &str, value: Vec<u8>| more.push((key.as_bytes().to_vec(), value));
    let name = if sparse {
        // Programs that know sparse members find the name here, others see what it is.
        record("GNU.sparse.major", b"1".to_vec());
        record("GNU.sparse.minor", b"0".to_vec());
        record("GNU.sparse.name", member.path.clone());
        record("GNU.sparse.realsize", member.size.to_string().into_bytes());
        [b"GNUSparseFile.0/", &member.path[..]].concat()
    } else {
        member.path.clone()
    };
    if needs_record(&name) {
        record("path", name.clone());
    }
    let target: &[u8] = match &member.link {
        Some(Link::Hard(target) | Link::Symbolic(target)) => target,
        None => &[],
    };
    if needs_record(target) {
        record("linkpath", target.to_vec());
    }
    if stored > LARGEST_SIZE {
        record("size", stored.to_string().into_bytes());
    }
    for (key, id) in [("uid", node.uid), ("gid", node.gid)] {
        if id > LARGEST_ID {
            record(key, id.to_string().into_bytes());
        }
    }
    let time = node.modified;
    if time.nanoseconds != 0 || u64::try_from(time.seconds).map_or(true, |s| s > LARGEST_SIZE) {
        record("mtime", time.to_decimal().into_bytes());
    }
    let mut header = Vec::new();
    if !more.is_empty() {
        // Names may be any bytes. GNU tar takes them as they are, and complains about this record.
        if [&name[..], target].iter().any(|name| std::str::from_utf8(name).is_err()) {
            more.insert(0, (b"hdrcharset".to_vec(), b"BINARY".to_vec()));
        }
        let body: Vec<u8> = more.iter().flat_map(records::to_bytes).collect();
        header.extend(raw(b"PaxHeader", b'x', u64_of(body.len()), &[], 0o644, (0, 0), 0, (0, 0)));
        header.extend(&body);
        header.resize(header.len().next_multiple_of(RECORD), 0);
    }
    let kind = match (&member.link, node.kind) {
        (Some(Link::Hard(_)), _) => b'1',
        (_, FileType::Symlink) => b'2',
        (_, FileType::CharacterDevice) => b'3',
        (_, FileType::BlockDevice) => b'4',
        (_, FileType::Directory) => b'5',
        (_, FileType::Fifo) => b'6',
        _ => b'0',
    };
    let seconds = u64::try_from(time.seconds).unwrap_or(0);
    let owner = (node.uid, node.gid);
    header.extend(raw(&name, kind, stored, target, node.mode & 0o7777, owner, seconds, node.device));
    header
}

fn needs_record(name: &[u8]) -> bool {
    name.len() > 100 || !name.is_ascii()
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
