//! What encrypted directories ask of names, contents and links.

use std::io::ErrorKind;
use std::sync::Arc;

use crate::edit::Writer;
use crate::edit::inode::{InodeMut, Stamp};
use crate::edit::name::Name;
use crate::error::{Error, Result, invalid};
use crate::format::features::Incompat;
use crate::format::inode::{FileType, InodeFlags};
use crate::read::encryption::{EncryptedContents, EncryptedInode, Encryption, no_keys};

/// The bit of `s_encoding_flags` that lets directories without regard to case refuse what is no text.
const STRICT_ENCODING: u16 = 1;

/// Bytes of the number at a context's end that makes a file's encryption its own.
const NONCE: usize = 16;

impl Writer {
    /// Makes an empty directory an encrypted one; what is made in it from now on is encrypted as its context says.
    /// `context` makes that from a nonce.
    ///
    /// # Errors
    /// `DirectoryNotEmpty`, `NotADirectory`, `AlreadyExists` for one that is encrypted; `Unsupported`
    /// when the file system has not the feature encrypt.
    pub fn encrypt_directory(
        &mut self,
        path: &[u8],
        context: impl FnOnce([u8; 16]) -> Vec<u8>,
    ) -> Result<()> {
        self.require_feature()?;
        let number = self.space.fs().resolve(path, true)?.number();
        self.operation(|writer| {
            let mut dir = writer.inode_mut(number)?;
            if !dir.is_dir() {
                return Err(invalid(ErrorKind::NotADirectory, "only directories are encrypted"));
            }
            if dir.has(InodeFlags::ENCRYPT) {
                return Err(invalid(ErrorKind::AlreadyExists, "the directory is encrypted already"));
            }
            if !writer.is_empty_directory(&dir)? {
                return Err(invalid(ErrorKind::DirectoryNotEmpty, "only empty directories can be encrypted"));
            }
            if dir.has(InodeFlags::INLINE_DATA) {
                writer.spread_inline_directory(&mut dir)?;
            }
            let context = context(writer.nonce()?);
            if dir.has(InodeFlags::CASEFOLD) && context.first() != Some(&2) {
                let text = "a directory without regard to case takes policies of version 2 only";
                return Err(Error::unsupported(text.to_owned()));
            }
            dir.set_flags(dir.flags().0 | InodeFlags::ENCRYPT.0);
            writer.set_context(&mut dir, context)?;
            dir.set_time(Stamp::Changed, writer.now());
            writer.store_inode(&dir)
        })
    }

    /// The bytes that a name is stored as in a directory. A name that is to be `new` needs the key.
    pub(crate) fn stored_name(&self, dir: &InodeMut, name: &[u8], new: bool) -> Result<Name> {
        if matches!(name, b"." | b"..") {
            return Ok(Name::exact(name, None));
        }
        let is_folded = dir.has(InodeFlags::CASEFOLD);
        let is_strict = self.space.fs().superblock().encoding.1 & STRICT_ENCODING != 0;
        if new && is_folded && is_strict && std::str::from_utf8(name).is_err() {
            let text = format!("{}: the directory takes names in UTF-8 only", String::from_utf8_lossy(name));
            return Err(invalid(ErrorKind::InvalidInput, text));
        }
        if !dir.has(InodeFlags::ENCRYPT) {
            return Ok(if is_folded {
                Name::folded(name.to_vec(), name, None)
            } else {
                Name::exact(name, None)
            });
        }
        let encrypted = self.encrypted(dir)?;
        let encryption = match self.space.fs().encryption() {
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

    /// Gives a new inode in an encrypted directory its own context, if it is of a kind that has one.
    pub(crate) fn encrypt_child(&mut self, dir: &InodeMut, inode: &mut InodeMut) -> Result<()> {
        let has_context = matches!(inode.kind(), FileType::Regular | FileType::Directory | FileType::Symlink);
        if !dir.has(InodeFlags::ENCRYPT) || !has_context {
            return Ok(());
        }
        let nonce = self.nonce()?;
        let context = self.keys(dir)?.child_context(&self.encrypted(dir)?, nonce)?;
        inode.set_flags(inode.flags().0 | InodeFlags::ENCRYPT.0);
        self.set_context(inode, context)
    }

    /// Gives a new inode this context, or none, where its directory allows that.
    pub(crate) fn encrypt_as(
        &mut self,
        dir: &InodeMut,
        inode: &mut InodeMut,
        context: Option<&[u8]>,
    ) -> Result<()> {
        if let Some(context) = context {
            self.require_feature()?;
            if inode.has(InodeFlags::CASEFOLD) {
                return Err(casefolded());
            }
            inode.set_flags(inode.flags().0 | InodeFlags::ENCRYPT.0);
            self.set_context(inode, context.to_vec())?;
        }
        self.refuse_foreign(dir, inode)
    }

    fn require_feature(&self) -> Result<()> {
        if self.space.fs().superblock().incompat.has(Incompat::ENCRYPT) {
            return Ok(());
        }
        let text = "file systems without the feature encrypt have no encrypted directories; \
                    tune2fs -O encrypt gives it to them";
        Err(Error::unsupported(text.to_owned()))
    }

    /// The bytes that a link's target is stored as.
    pub(crate) fn stored_target(&self, inode: &InodeMut, target: &[u8]) -> Result<Vec<u8>> {
        if !inode.has(InodeFlags::ENCRYPT) {
            return Ok(target.to_vec());
        }
        self.keys(inode)?.store_symlink(&self.encrypted(inode)?, target)
    }

    /// What encrypts a file's contents; `None` if nothing does.
    pub(crate) fn cipher(&self, inode: &InodeMut) -> Result<Option<Arc<dyn EncryptedContents>>> {
        if !inode.has(InodeFlags::ENCRYPT) {
            return Ok(None);
        }
        self.keys(inode)?.contents(&self.encrypted(inode)?).map(Some)
    }

    /// Refuses to give a file a name in an encrypted directory if it is not encrypted in the same way.
    pub(crate) fn refuse_foreign(&self, dir: &InodeMut, inode: &InodeMut) -> Result<()> {
        let has_context = matches!(inode.kind(), FileType::Regular | FileType::Directory | FileType::Symlink);
        if !dir.has(InodeFlags::ENCRYPT) || !has_context {
            return Ok(());
        }
        let foreign =
            || invalid(ErrorKind::CrossesDevices, "the directory encrypts in another way than the file");
        if !inode.has(InodeFlags::ENCRYPT) {
            return Err(foreign());
        }
        let context = self.encrypted(inode)?.context;
        let nonce = context.last_chunk::<NONCE>().ok_or_else(foreign)?;
        let expected = self.keys(dir)?.child_context(&self.encrypted(dir)?, *nonce)?;
        if expected == context { Ok(()) } else { Err(foreign()) }
    }

    fn encrypted(&self, inode: &InodeMut) -> Result<EncryptedInode> {
        self.space.fs().encrypted(inode)?.ok_or_else(|| no_keys(inode))
    }

    fn keys(&self, inode: &InodeMut) -> Result<Arc<dyn Encryption>> {
        match self.space.fs().encryption() {
            Some(encryption) => Ok(Arc::clone(encryption)),
            None => Err(no_keys(inode)),
        }
    }

    /// A number that no other file has: from the system, or from the seed.
    fn nonce(&mut self) -> Result<[u8; NONCE]> {
        let mut nonce = [0; NONCE];
        if self.random.is_seeded() {
            for word in nonce.chunks_exact_mut(4) {
                word.copy_from_slice(&self.random.next().to_le_bytes());
            }
        } else {
            let len = rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::empty())
                .map_err(std::io::Error::from)?;
            if len < NONCE {
                return Err(std::io::Error::from(ErrorKind::UnexpectedEof).into());
            }
        }
        Ok(nonce)
    }
}

pub(crate) fn casefolded() -> Error {
    Error::unsupported("changing encrypted directories without regard to case")
}
