//! Android's fs_config: `PATH UID GID MODE [capabilities=NUMBER] [selabel=LABEL]`; a line that begins with a space is about the
//! top.

use super::{Entry, Wrong, capability, id, number, path, permissions, words};

/// Reads a line.
pub fn line(line: &[u8]) -> Result<Entry, Wrong> {
    let mut fields = words(line);
    let mut next = || fields.next().ok_or("fewer fields than path, owner, group and mode");
    let name = if line.starts_with(b" ") { b"" } else { next()? };
    let mut entry = Entry {
        path: path(name)?,
        uid: Some(id(next()?, "owner")?),
        gid: Some(id(next()?, "group")?),
        mode: Some(permissions(next()?)?),
        // The same file describes several images.
        is_optional: true,
        ..Entry::default()
    };
    for field in fields {
        if let Some(text) = field.strip_prefix(b"capabilities=") {
            let (text, radix) = text.strip_prefix(b"0x").map_or((text, 10), |digits| (digits, 16));
            let set = number(text, radix, "set of capabilities")?;
            if set != 0 {
                entry.xattrs.push((capability::NAME.to_vec(), capability::value(set, 0, true)));
            }
        } else if let Some(label) = field.strip_prefix(b"selabel=") {
            entry.xattrs.push((b"security.selinux".to_vec(), [label, b"\0"].concat()));
        } else {
            return Err(format!("'{}' is neither capabilities= nor selabel=", field.escape_ascii()));
        }
    }
    Ok(entry)
}
