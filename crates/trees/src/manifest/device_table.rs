//! Device tables: `NAME TYPE MODE UID GID MAJOR MINOR START INCREMENT COUNT`, as genext2fs, mkfs.jffs2 and buildroot's makedevs
//! read them; `-` is for what is not told.

use super::{Entry, Parsed, Wrong, capability, id, lines, path, permissions, words};
use crate::FileType;

/// Devices of one line.
const MOST_DEVICES: u32 = 1 << 16;

/// Reads a table.
pub fn parse(text: &[u8]) -> Parsed {
    let mut entries: Vec<Entry> = Vec::new();
    let mut last = 0;
    for (number, line) in lines(text) {
        let line = line.split(|byte| *byte == b'#').next().unwrap_or_default();
        let mut fields = words(line);
        let failed = |what| (number, what);
        match fields.next() {
            None => {}
            Some(b"|xattr") => {
                let value = capability::parse(&fields.collect::<Vec<_>>().join(&b' ')).map_err(failed)?;
                if last == entries.len() {
                    return Err(failed("the attributes belong to no file".to_owned()));
                }
                for entry in &mut entries[last..] {
                    entry.xattrs = vec![(capability::NAME.to_vec(), value.clone())];
                }
            }
            Some(name) => {
                last = entries.len();
                entries.extend(file(name, &fields.collect::<Vec<_>>()).map_err(failed)?);
            }
        }
    }
    Ok(entries)
}

/// The files of a line.
fn file(name: &[u8], fields: &[&[u8]]) -> Result<Vec<Entry>, Wrong> {
    let [kind, mode_bits, uid, gid, ref rest @ ..] = fields[..] else {
        return Err("fewer fields than name, type, mode, owner and group".to_owned());
    };
    let told = |word: &'static str, at: usize| match rest.get(at).copied() {
        None | Some(b"-") => Ok(None),
        Some(field) => id(field, word).map(Some),
    };
    let own = |field: &[u8], what: &str| match field {
        b"-" | b"-1" => Ok(None),
        _ => id(field, what).map(Some),
    };
    let mut entry = Entry {
        path: path(name)?,
        mode: if matches!(mode_bits, b"-" | b"-1") { None } else { Some(permissions(mode_bits)?) },
        uid: own(uid, "owner, which is a number here")?,
        gid: own(gid, "group, which is a number here")?,
        ..Entry::default()
    };
    match kind {
        b"f" => entry.kind = Some(FileType::Regular),
        b"F" => (entry.kind, entry.is_optional) = (Some(FileType::Regular), true),
        b"d" => entry.kind = Some(FileType::Directory),
        b"r" => entry.is_recursive = true,
        b"p" => entry.kind = Some(FileType::Fifo),
        b"c" => entry.kind = Some(FileType::CharacterDevice),
        b"b" => entry.kind = Some(FileType::BlockDevice),
        _ => return Err(format!("type '{}': there are f, F, d, r, p, c and b", kind.escape_ascii())),
    }
    if !matches!(kind, b"c" | b"b") {
        return Ok(vec![entry]);
    }
    let (Some(major), Some(minor)) = (told("major number", 0)?, told("minor number", 1)?) else {
        return Err("a device has no major and minor number".to_owned());
    };
    let start = told("first number", 2)?.unwrap_or(0);
    let increment = told("increment", 3)?.unwrap_or(1);
    let count = told("count", 4)?.unwrap_or(0);
    if count == 0 {
        entry.device = Some((major, minor));
        return Ok(vec![entry]);
    }
    if count > MOST_DEVICES {
        return Err(format!("{count} devices: at most {MOST_DEVICES}"));
    }
    let each = |at: u32| {
        let number = start.checked_add(at)?;
        let minor = minor.checked_add(at.checked_mul(increment)?)?;
        let path = [&entry.path[..], number.to_string().as_bytes()].concat();
        Some(Entry { path, device: Some((major, minor)), ..entry.clone() })
    };
    (0..count).map(|at| each(at).ok_or_else(|| "a number of a device passes 2^32".to_owned())).collect()
}
