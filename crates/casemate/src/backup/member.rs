//! What a backup says of an encrypted member beside what tar streams say, and members' paths.

use casemate_fscrypt::{Context, InodeInfo};
use casemate_primitives::hex;

use super::tar::Member;
use super::{CONTEXT, INODE, XATTR};
use crate::Error;

/// What an encrypted member's keys and IVs depend on; `None` if it is not encrypted.
pub(super) fn inode_info(member: &Member) -> Result<Option<InodeInfo>, Error> {
    let Some(context) = context(member) else { return Ok(None) };
    let small = |what| {
        number(member, what)?.try_into().map_err(|_| Error::corrupt(format!("{INODE}: {what} passes 2^32")))
    };
    let uuid = value(member, "uuid").and_then(parse_uuid);
    Ok(Some(InodeInfo {
        context: Context::from_bytes(context)?,
        number: small("number")?,
        uuid: uuid.ok_or_else(|| Error::corrupt(format!("{INODE}: no uuid")))?,
        block_size: small("block_size")?,
    }))
}

/// The context of an encrypted member, as the file system stores it.
pub(super) fn context(member: &Member) -> Option<&[u8]> {
    member.record(&[XATTR, CONTEXT.as_bytes()].concat())
}

/// One of the numbers that keys and IVs depend on.
pub(super) fn number(member: &Member, what: &str) -> Result<u64, Error> {
    let number = value(member, what).and_then(|text| text.parse().ok());
    number.ok_or_else(|| Error::corrupt(format!("{INODE}: no {what}")))
}

pub(super) fn value<'a>(member: &'a Member, what: &str) -> Option<&'a str> {
    let text = str::from_utf8(member.record(&[XATTR, INODE.as_bytes()].concat())?).ok()?;
    text.split(' ').find_map(|pair| pair.strip_prefix(what)?.strip_prefix('='))
}

fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    hex::decode_array(&text.replace('-', ""))
}

/// A member's path without "./" before it and slashes behind it.
pub(super) fn trim(path: &[u8]) -> &[u8] {
    let path = path.strip_prefix(b"./").unwrap_or(path);
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    if &path[..end] == b"." { b"" } else { &path[..end] }
}

/// A path as the folder's path and the last name.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}
