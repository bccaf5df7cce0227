//! Fields of an encrypted member that backups add to tar streams.

use casemate_blockdev::Uuid;
use casemate_trees::tar::{Member, XATTR};

use super::{CONTEXT, INODE};
use crate::{Context, Error, InodeInfo};

/// Facts of an encrypted member that its keys and IVs depend on; `None` if it is not encrypted.
///
/// # Errors
/// `Corrupt` for what is missing, or is not a number.
pub fn inode_info(member: &Member) -> Result<Option<InodeInfo>, Error> {
    let Some(context) = context(member) else { return Ok(None) };
    let small = |what| {
        number(member, what)?.try_into().map_err(|_| Error::corrupt(format!("{INODE}: {what} passes 2^32")))
    };
    let uuid = value(member, "uuid").and_then(|text| Uuid::from_text(text).ok());
    Ok(Some(InodeInfo {
        context: Context::from_bytes(context)?,
        number: small("number")?,
        uuid: uuid.ok_or_else(|| Error::corrupt(format!("{INODE}: no uuid")))?.bytes(),
        block_size: small("block_size")?,
    }))
}

/// The context of an encrypted member, as the file system stores it.
pub fn context(member: &Member) -> Option<&[u8]> {
    member.record(&[XATTR, CONTEXT.as_bytes()].concat())
}

/// One of the numbers that keys and IVs depend on.
///
/// # Errors
/// `Corrupt` if it is missing, or is not a number.
pub fn number(member: &Member, what: &str) -> Result<u64, Error> {
    let number = value(member, what).and_then(|text| text.parse().ok());
    number.ok_or_else(|| Error::corrupt(format!("{INODE}: no {what}")))
}

/// The text of one of them.
pub fn value<'a>(member: &'a Member, what: &str) -> Option<&'a str> {
    let text = str::from_utf8(member.record(&[XATTR, INODE.as_bytes()].concat())?).ok()?;
    text.split(' ').find_map(|pair| pair.strip_prefix(what)?.strip_prefix('='))
}

/// A member's attributes but for those that are the backup's own.
pub fn xattrs(member: &Member) -> impl Iterator<Item = (&[u8], &[u8])> {
    member.xattrs().filter(|(name, _)| ![CONTEXT, INODE].map(str::as_bytes).contains(name))
}
