//! Paths below a tree's top: names with slashes between them, nothing for the top itself.

/// The path of a name in a folder.
pub fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() }
}

/// A path as the folder's path and the last name.
pub fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

/// A path without "./" before it and slashes behind it.
pub fn trim(path: &[u8]) -> &[u8] {
    let path = path.strip_prefix(b"./").unwrap_or(path);
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    if &path[..end] == b"." { b"" } else { &path[..end] }
}
