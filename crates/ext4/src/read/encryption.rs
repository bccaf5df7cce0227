//! Names and contents of encrypted inodes, which a caller with the keys supplies.
//!
//! ext4 knows where fscrypt's context lies and which bytes are ciphertext, and nothing about keys. A caller that
//! joins the two implements [`Encryption`] and gives it to [`OpenOptions`](crate::OpenOptions).

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::dirhash::DirHash;
use crate::format::inode::{FileType, Inode};
use crate::units::InodeNo;

/// An encrypted inode, as far as decryption needs to know it.
#[derive(Clone, Debug)]
pub struct EncryptedInode {
    /// The inode's number.
    pub number: InodeNo,
    /// Kind of the file.
    pub kind: FileType,
    /// Whether the names of this directory are looked up without regard to case.
    pub casefolded: bool,
    /// fscrypt's context: the attribute with name index 9 and name "c".
    pub context: Vec<u8>,
    /// The file system's UUID.
    pub uuid: [u8; 16],
    /// The file system's block size.
    pub block_size: u32,
}

/// A name as an encrypted directory stores it.
#[derive(Clone, Copy, Debug)]
pub struct StoredName<'a> {
    /// The ciphertext.
    pub bytes: &'a [u8],
    /// The name's hash where the directory can be indexed, which names without a key begin with.
    pub hash: Option<DirHash>,
}

/// Reads names and contents of encrypted inodes.
pub trait Encryption: Send + Sync {
    /// Whether what the inode encrypts can be read: names, contents or target.
    ///
    /// # Errors
    /// When the key is missing, or the context makes no sense.
    fn require_key(&self, inode: &EncryptedInode) -> Result<()>;

    /// The names of a directory. Without the key these are its no-key names: that is no error.
    ///
    /// # Errors
    /// When there is a key, and it can't be used.
    fn names(&self, directory: &EncryptedInode) -> Result<Arc<dyn EncryptedNames>>;

    /// The contents of a regular file.
    ///
    /// # Errors
    /// When the key is missing, or the context makes no sense.
    fn contents(&self, file: &EncryptedInode) -> Result<Arc<dyn EncryptedContents>>;

    /// The target of a symbolic link, from its bytes on disk; encoded like a name when the key is missing.
    ///
    /// # Errors
    /// For a context or a target that makes no sense.
    fn symlink(&self, link: &EncryptedInode, stored: &[u8]) -> Result<Vec<u8>>;

    /// The context of a new inode in a directory, with this nonce.
    ///
    /// # Errors
    /// When the directory's context makes no sense, or nobody here encrypts.
    fn child_context(&self, _directory: &EncryptedInode, _nonce: [u8; 16]) -> Result<Vec<u8>> {
        Err(reads_only())
    }

    /// The bytes that a link's target is stored as; a NUL follows on disk.
    ///
    /// # Errors
    /// When the key is missing, the target does not fit, or nobody here encrypts.
    fn store_symlink(&self, _link: &EncryptedInode, _target: &[u8]) -> Result<Vec<u8>> {
        Err(reads_only())
    }
}

/// The names of one encrypted directory.
pub trait EncryptedNames: Send + Sync {
    /// The name to show.
    ///
    /// # Errors
    /// For ciphertext that is none.
    fn decode(&self, name: StoredName<'_>) -> Result<Vec<u8>>;

    /// The bytes that a name is stored as, where that can be said: it makes looking one up fast.
    fn encode(&self, _name: &[u8]) -> Option<Vec<u8>> {
        None
    }

    /// The hash that is stored with a name in a directory without regard to case.
    fn hash(&self, _name: &[u8]) -> Option<DirHash> {
        None
    }
}

/// The contents of one encrypted file.
pub trait EncryptedContents: Send + Sync {
    /// Decrypts whole blocks in place; the first one is block `first` of the file.
    ///
    /// # Errors
    /// Errors of the cipher.
    fn decrypt(&self, first: u64, blocks: &mut [u8]) -> Result<()>;

    /// Encrypts whole blocks in place.
    ///
    /// # Errors
    /// Errors of the cipher; `Unsupported` if this implementation only reads.
    fn encrypt(&self, _first: u64, _blocks: &mut [u8]) -> Result<()> {
        Err(reads_only())
    }
}

/// The error for writing where encrypted inodes are only read.
fn reads_only() -> Error {
    Error::unsupported("encrypted files can only be read here")
}

/// The error for an encrypted inode where nobody reads such inodes.
pub(crate) fn no_keys(inode: &Inode) -> Error {
    Error::unsupported(format!("inode {} is encrypted, and no keys were given", inode.number()))
}
