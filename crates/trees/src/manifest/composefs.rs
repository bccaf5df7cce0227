//! composefs-dump(5): path, size, mode, links, owner, group, device, time, payload, contents and digest on each line, then
//! attributes; `-` is for what is not there, a backslash escapes bytes.

use casemate_blockdev::u64_of;

use super::{Entry, Wrong, id, mode, number, path, unpacked_device};
use crate::{FileType, Link, Time};

/// Reads a line.
pub fn line(line: &[u8]) -> Result<Entry, Wrong> {
    let mut fields = line.split(|byte| *byte == b' ');
    let mut next = |what: &str| fields.next().ok_or_else(|| format!("no {what}"));
    let file = path(&unescaped(next("path")?)?)?;
    let size = number(next("size")?, 10, "size")?;
    let bits = next("mode")?;
    let is_hard_link = bits.starts_with(b"@");
    let bits = mode(bits.strip_prefix(b"@").unwrap_or(bits))?;
    next("number of links")?;
    let (uid, gid) = (id(next("owner")?, "owner")?, id(next("group")?, "group")?);
    let device = number(next("device")?, 10, "device")?;
    let time = next("time")?;
    let modified = str::from_utf8(time).ok().and_then(counted_time);
    let modified = modified.ok_or_else(|| format!("'{}' is not a time", time.escape_ascii()))?;
    let mut told = |what: &str| match next(what)? {
        b"-" => Ok(None),
        field => unescaped(field).map(Some),
    };
    let (payload, contents, digest) = (told("payload")?, told("contents")?, told("digest")?);
    if is_hard_link {
        let first = payload.ok_or("a hard link has no target")?;
        return Ok(Entry { path: file, link: Some(Link::Hard(path(&first)?)), ..Entry::default() });
    }
    let kind = FileType::from_mode(bits).ok_or_else(|| format!("mode {bits:o} has no type"))?;
    let mut entry = Entry {
        path: file,
        kind: Some(kind),
        mode: Some(bits & 0o7777),
        uid: Some(uid),
        gid: Some(gid),
        modified: Some(modified),
        has_all_xattrs: true,
        ..Entry::default()
    };
    match kind {
        FileType::Regular => {
            entry.size = Some(size);
            if contents.as_ref().is_some_and(|bytes| u64_of(bytes.len()) != size) {
                return Err(format!("the contents do not have {size} bytes"));
            }
            entry.contents = contents;
            entry.digest = digest.map(|digits| hexadecimal(&digits)).transpose()?;
        }
        FileType::Symlink => entry.link = Some(Link::Symbolic(payload.ok_or("a link has no target")?)),
        FileType::CharacterDevice | FileType::BlockDevice => entry.device = Some(unpacked_device(device)),
        _ => {}
    }
    for field in fields {
        let at = field.iter().position(|byte| *byte == b'=').ok_or("an attribute has no value")?;
        entry.xattrs.push((unescaped(&field[..at])?, unescaped(&field[at + 1..])?));
    }
    Ok(entry)
}

/// Seconds, and behind a point the number of nanoseconds.
pub fn counted_time(text: &str) -> Option<Time> {
    let (seconds, nanoseconds) = text.split_once('.').unwrap_or((text, "0"));
    let nanoseconds = nanoseconds.parse().ok().filter(|count| *count < 1_000_000_000)?;
    Some(Time { seconds: seconds.parse().ok()?, nanoseconds })
}

fn unescaped(field: &[u8]) -> Result<Vec<u8>, Wrong> {
    let wrong = || format!("'{}' has an invalid escape", field.escape_ascii());
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, behind @ ..] = rest {
        rest = behind;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let (byte, behind) = match rest {
            [b'x', digits @ ..] if digits.len() >= 2 => {
                let digits = (str::from_utf8(&digits[..2]).map_err(|_| wrong())?, &digits[2..]);
                (u8::from_str_radix(digits.0, 16).map_err(|_| wrong())?, digits.1)
            }
            [b'n', behind @ ..] => (b'\n', behind),
            [b'r', behind @ ..] => (b'\r', behind),
            [b't', behind @ ..] => (b'\t', behind),
            [b'\\', behind @ ..] => (b'\\', behind),
            _ => return Err(wrong()),
        };
        bytes.push(byte);
        rest = behind;
    }
    Ok(bytes)
}

fn hexadecimal(digits: &[u8]) -> Result<[u8; 32], Wrong> {
    let digit = |byte: u8| u8::try_from(char::from(byte).to_digit(16)?).ok();
    let bytes: Option<Vec<u8>> = match digits.len() {
        64 => digits.chunks(2).map(|two| Some(digit(two[0])? * 16 + digit(two[1])?)).collect(),
        _ => None,
    };
    let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| format!("'{}' is not a digest of 64 digits", digits.escape_ascii()))
}
