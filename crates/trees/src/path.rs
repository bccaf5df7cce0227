//! Paths below a tree's top: names with slashes between them, nothing for the top itself.

use std::io::ErrorKind;

use crate::{Error, Result};

/// Bytes of a path, as in Linux: a path makes as many directories as it names.
const LONGEST_PATH: usize = 4095;

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

/// A path of a stream as names with a slash between them, all of it below the top.
///
/// # Errors
/// `InvalidInput` for one that leads out of the tree, `InvalidFilename` for one that is too long or has a NUL.
pub fn below(path: &[u8]) -> Result<Vec<u8>> {
    let parts: Vec<_> =
        path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b".")).collect();
    if parts.contains(&&b".."[..]) {
        let shown = String::from_utf8_lossy(path);
        let text = format!("'{shown}' leads out of the tree; leave it out of the stream, or rename it");
        return Err(Error::path(ErrorKind::InvalidInput, text));
    }
    let path = parts.join(&b'/');
    if path.len() > LONGEST_PATH || path.contains(&0) {
        let text = "a path has at most 4095 bytes, and no NUL";
        return Err(Error::path(ErrorKind::InvalidFilename, text.to_owned()));
    }
    Ok(path)
}
