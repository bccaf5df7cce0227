//! Demands of encrypted directories on names, contents and links.

use std::io::ErrorKind;
use std::sync::Arc;

use casemate_blockdev::Advice;

use crate::edit::dir::name::{Name, require_name};
use crate::error::{Error, Result, invalid};
use crate::format::features::Incompat;
use crate::format::inode::{FileType, Inode, InodeFlags};
use crate::read::encryption::{EncryptedContents, EncryptedInode, Encryption, no_keys};
use crate::read::fs::Ext4;

/// The bit of `s_encoding_flags` that lets directories without regard to case refuse what is no text.
const STRICT_ENCODING: u16 = 1;

/// Bytes of the number at a context's end that makes a file's encryption its own.
const NONCE: usize = 16;

/// The bytes that a name is stored as in a directory. A name that is to be `new` needs the key.
pub(crate) fn stored_name(fs: &Ext4, dir: &Inode, name: &[u8], new: bool) -> Result<Name> {
    if new {
        require_name(name)?;
    }
    if matches!(name, b"." | b"..") {
        return Ok(Name::exact(name, None));
    }
    let is_folded = dir.has(InodeFlags::CASEFOLD);
    let is_strict = fs.superblock().encoding.1 & STRICT_ENCODING != 0;
    if new && is_folded && is_strict && std::str::from_utf8(name).is_err() {
        let text = format!("{}: the directory takes names in UTF-8 only", String::from_utf8_lossy(name));
        return Err(invalid(ErrorKind::InvalidInput, text));
    }
    if !dir.has(InodeFlags::ENCRYPT) {
        return Ok(if is_folded { Name::folded(name.to_vec(), name, None) } else { Name::exact(name, None) });
    }
    let encrypted = encrypted(fs, dir)?;
    let encryption = match fs.encryption() {
        Some(encryption) => encryption,
        // Without any keys names are shown as they are stored.
        None if !new => return Ok(Name::exact(name, None)),
        None => return Err(no_keys(dir)),
    };
    if new {
        encryption.require_key(&encrypted)?;
    }
    let names = encryption.names(&encrypted)?;
    if let Some(stored) = names.encode(name) {
        let can_fold = is_folded && encryption.require_key(&encrypted).is_ok();
        return Ok(match (can_fold, is_folded) {
            (true, _) => Name::folded(stored, name, Some(names)),
            (false, true) => Name::exact(&stored, names.hash(name)),
            (false, false) => Name::exact(&stored, None),
        });
    }
    // Without the key it is no name that the directory shows.
    encryption.require_key(&encrypted)?;
    Err(invalid(ErrorKind::InvalidFilename, "the name is too long to be encrypted"))
}

pub(super) fn require_feature(fs: &Ext4) -> Result<()> {
    if fs.superblock().incompat.has(Incompat::ENCRYPT) {
        return Ok(());
    }
    let text = "file systems without the feature encrypt have no encrypted directories";
    Err(Error::unsupported(text).advise(Advice::AddFeature("encrypt".to_owned())))
}

/// The bytes that a link's target is stored as.
pub(crate) fn stored_target(fs: &Ext4, inode: &Inode, target: &[u8]) -> Result<Vec<u8>> {
    if !inode.has(InodeFlags::ENCRYPT) {
        return Ok(target.to_vec());
    }
    keys(fs, inode)?.store_symlink(&encrypted(fs, inode)?, target)
}

/// Encryption of a file's contents; `None` if they are not encrypted.
pub(crate) fn cipher(fs: &Ext4, inode: &Inode) -> Result<Option<Arc<dyn EncryptedContents>>> {
    if !inode.has(InodeFlags::ENCRYPT) {
        return Ok(None);
    }
    keys(fs, inode)?.contents(&encrypted(fs, inode)?).map(Some)
}

/// Refuses to give a file a name in an encrypted directory if it is not encrypted in the same way.
pub(crate) fn refuse_foreign(fs: &Ext4, dir: &Inode, inode: &Inode) -> Result<()> {
    let has_context = matches!(inode.kind(), FileType::Regular | FileType::Directory | FileType::Symlink);
    if !dir.has(InodeFlags::ENCRYPT) || !has_context {
        return Ok(());
    }
    let foreign =
        || invalid(ErrorKind::CrossesDevices, "the directory encrypts in another way than the file");
    if !inode.has(InodeFlags::ENCRYPT) {
        return Err(foreign());
    }
    let context = encrypted(fs, inode)?.context;
    let nonce = context.last_chunk::<NONCE>().ok_or_else(foreign)?;
    let expected = keys(fs, dir)?.child_context(&encrypted(fs, dir)?, *nonce)?;
    if expected == context { Ok(()) } else { Err(foreign()) }
}

pub(super) fn encrypted(fs: &Ext4, inode: &Inode) -> Result<EncryptedInode> {
    fs.encrypted(inode)?.ok_or_else(|| no_keys(inode))
}

pub(super) fn keys(fs: &Ext4, inode: &Inode) -> Result<Arc<dyn Encryption>> {
    match fs.encryption() {
        Some(encryption) => Ok(Arc::clone(encryption)),
        None => Err(no_keys(inode)),
    }
}

pub(crate) fn casefolded() -> Error {
    Error::unsupported("changing encrypted directories without regard to case")
}
