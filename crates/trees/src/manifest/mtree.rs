//! mtree(5): names with keywords. A name without a slash is one in the directory that was named last, `..` ends that, and a
//! path with slashes is from the top on.

use super::composefs::counted_time;
use super::{Entry, Parsed, Wrong, id, lines, number, path, permissions, unpacked_device, words};
use crate::{FileType, Link, join, split};

/// Keywords and their values.
type Words = Vec<(Vec<u8>, Vec<u8>)>;

/// Reads a description.
pub fn parse(text: &[u8]) -> Parsed {
    let mut entries = Vec::new();
    let mut set = Words::new();
    // The directory that names are in, once it is known.
    let mut inside: Option<Vec<u8>> = None;
    let mut whole: Vec<u8> = Vec::new();
    for (number, line) in lines(text) {
        // A backslash at the end takes the next line to this one.
        if let Some(begin) = line.strip_suffix(b"\\") {
            whole.extend_from_slice(begin);
            whole.push(b' ');
            continue;
        }
        whole.extend_from_slice(line);
        let line = std::mem::take(&mut whole);
        let failed = |what| (number, what);
        let mut fields = words(&line);
        match fields.next() {
            None => {}
            Some(comment) if comment.starts_with(b"#") => {}
            Some(b"/set") => put(&mut set, fields),
            Some(b"/unset") => {
                for name in fields {
                    set.retain(|(known, _)| name != b"all" && known != name);
                }
            }
            Some(b"..") => {
                let above = inside.as_deref().filter(|path| !path.is_empty());
                let above = above.ok_or_else(|| failed("the path leads above the top".to_owned()))?;
                inside = Some(split(above).0.to_vec());
            }
            Some(name) if name.starts_with(b"/") => {
                return Err(failed(format!("'{}' is not a command", name.escape_ascii())));
            }
            Some(name) => {
                let name = unescaped(name).map_err(failed)?;
                let path = match name.contains(&b'/') {
                    true => path(&name),
                    false if name == b"." => Ok(Vec::new()),
                    false => Ok(join(inside.as_deref().unwrap_or_default(), &name)),
                };
                let mut told = set.clone();
                put(&mut told, fields);
                let entry = entry(path.map_err(failed)?, &told).map_err(failed)?;
                if entry.kind == Some(FileType::Directory) && !name.contains(&b'/') {
                    inside = Some(entry.path.clone());
                }
                entries.push(entry);
            }
        }
    }
    Ok(entries)
}

/// Takes keywords, each in place of an earlier one.
fn put<'a>(set: &mut Words, fields: impl Iterator<Item = &'a [u8]>) {
    for field in fields {
        let at = field.iter().position(|byte| *byte == b'=');
        let (name, value) = at.map_or((field, &b""[..]), |at| (&field[..at], &field[at + 1..]));
        set.retain(|(known, _)| known != name);
        set.push((name.to_vec(), value.to_vec()));
    }
}

/// The entry that keywords describe; those of which an image has nothing are passed over.
fn entry(path: Vec<u8>, told: &Words) -> Result<Entry, Wrong> {
    let mut entry = Entry { path, ..Entry::default() };
    let has = |keyword: &[u8]| told.iter().any(|(name, _)| name == keyword);
    for (name, value) in told {
        match &name[..] {
            b"type" => {
                entry.kind = Some(match &value[..] {
                    b"file" => FileType::Regular,
                    b"dir" => FileType::Directory,
                    b"link" => FileType::Symlink,
                    b"char" => FileType::CharacterDevice,
                    b"block" => FileType::BlockDevice,
                    b"fifo" => FileType::Fifo,
                    b"socket" => FileType::Socket,
                    other => return Err(format!("'{}' is not a type", other.escape_ascii())),
                });
            }
            b"mode" => entry.mode = Some(permissions(value)?),
            b"uid" => entry.uid = Some(id(value, "owner")?),
            b"gid" => entry.gid = Some(id(value, "group")?),
            b"uname" if !has(b"uid") => {
                return Err("the owner is given by name; give the number as uid=".to_owned());
            }
            b"gname" if !has(b"gid") => {
                return Err("the group is given by name; give the number as gid=".to_owned());
            }
            b"time" => {
                let time = str::from_utf8(value).ok().and_then(counted_time);
                entry.modified =
                    Some(time.ok_or_else(|| format!("'{}' is not a time", value.escape_ascii()))?);
            }
            b"link" => entry.link = Some(Link::Symbolic(unescaped(value)?)),
            b"size" => entry.size = Some(number(value, 10, "size")?),
            b"device" => entry.device = Some(device(value)?),
            b"optional" => entry.is_optional = true,
            _ => {}
        }
    }
    if entry.kind != Some(FileType::Regular) {
        entry.size = None;
    }
    if entry.kind != Some(FileType::Symlink) {
        entry.link = None;
    }
    Ok(entry)
}

/// A device as a format with two numbers behind it, or as one number.
fn device(value: &[u8]) -> Result<(u32, u32), Wrong> {
    let parts: Vec<_> = value.split(|byte| *byte == b',').collect();
    match parts[..] {
        [packed] => {
            Ok(unpacked_device(number(packed, if packed.starts_with(b"0x") { 16 } else { 10 }, "device")?))
        }
        [b"native" | b"linux", major, minor] => Ok((id(major, "major number")?, id(minor, "minor number")?)),
        _ => Err(format!("device '{}': native,MAJOR,MINOR", value.escape_ascii())),
    }
}

/// A name without the escapes of vis(3).
fn unescaped(name: &[u8]) -> Result<Vec<u8>, Wrong> {
    let wrong = || format!("'{}' has an invalid escape", name.escape_ascii());
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name;
    while let [first, behind @ ..] = rest {
        rest = behind;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        if let [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', behind @ ..] = rest {
            bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
            rest = behind;
            continue;
        }
        let [letter, behind @ ..] = rest else { return Err(wrong()) };
        bytes.push(match letter {
            b's' => b' ',
            b't' => b'\t',
            b'n' => b'\n',
            b'r' => b'\r',
            b'b' => 8,
            b'a' => 7,
            b'v' => 11,
            b'f' => 12,
            b'\\' | b'#' | b'=' | b' ' => *letter,
            _ => return Err(wrong()),
        });
        rest = behind;
    }
    Ok(bytes)
}
