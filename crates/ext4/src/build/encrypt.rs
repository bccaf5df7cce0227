//! Directories that are encrypted, with everything below them.

use std::collections::HashMap;
use std::sync::Arc;

use casemate_blockdev::usize_of;

use crate::build::tree::{Body, TOP, Tree};
use crate::error::{Error, Result, invalid};
use crate::format::inode::FileType;
use crate::format::xattr::{Attribute, ENCRYPTION, Value};
use crate::read::encryption::{EncryptedContents, EncryptedInode, Encryption};
use crate::units::InodeNo;

/// Bytes of the number at a context's end that makes a file's encryption its own.
const NONCE: usize = 16;

/// Somebody who knows which directories are encrypted, and their keys.
pub trait Encrypt: Send + Sync + std::fmt::Debug {
    /// Encryption of names, contents and targets.
    fn encryption(&self) -> &dyn Encryption;

    /// Paths of directories that are encrypted with everything below them, and their contexts.
    fn directories(&self) -> &[(Vec<u8>, Vec<u8>)];

    /// The number that makes the encryption of the file with this inode its own.
    ///
    /// # Errors
    /// When there are no random numbers.
    fn nonce(&self, inode: InodeNo) -> Result<[u8; NONCE]>;
}

/// The encryption of a new file system; `None` without any.
pub(crate) type Encrypter = Option<Arc<dyn Encrypt>>;

/// A file that is encrypted.
#[derive(Debug)]
pub(crate) struct Encrypted {
    pub inode: EncryptedInode,
    /// Of a directory, its names as they are stored, in order, and their files.
    pub names: Vec<(Vec<u8>, u32)>,
    /// Of a symbolic link, its target as it is stored.
    pub target: Vec<u8>,
}

/// Files of a tree by their numbers, and the contexts of those that are encrypted.
pub(crate) type Contexts = HashMap<u32, Vec<u8>>;

impl Encrypted {
    /// The stored form of a file that has this context.
    ///
    /// # Errors
    /// Errors of the key; `InvalidFilename` for names that become too long.
    pub fn new(encrypter: &dyn Encrypt, inode: EncryptedInode, body: &Body) -> Result<Encrypted> {
        let encryption = encrypter.encryption();
        let mut encrypted = Encrypted { inode, names: Vec::new(), target: Vec::new() };
        match body {
            Body::Directory(below) => {
                let names = encryption.names(&encrypted.inode)?;
                let stored = below.iter().map(|(name, number)| match names.encode(name) {
                    Some(stored) => Ok((stored, *number)),
                    None => {
                        let text = "the name is too long to be encrypted";
                        Err(invalid(std::io::ErrorKind::InvalidFilename, text))
                    }
                });
                encrypted.names = stored.collect::<Result<_>>()?;
                // Their order tells nothing of the names.
                encrypted.names.sort_unstable();
            }
            Body::Symlink(target) => encrypted.target = encryption.store_symlink(&encrypted.inode, target)?,
            Body::File(_) | Body::Node => {}
        }
        Ok(encrypted)
    }

    /// The attribute that holds the context.
    pub fn attribute(&self) -> Attribute {
        let value = Value::Here(self.inode.context.clone());
        Attribute { index: ENCRYPTION, name: b"c".to_vec(), value }
    }

    /// Encryption of the file's contents.
    ///
    /// # Errors
    /// Errors of the key.
    pub fn contents(&self, encrypter: &Encrypter) -> Result<Option<Arc<dyn EncryptedContents>>> {
        encrypter.as_ref().map(|encrypter| encrypter.encryption().contents(&self.inode)).transpose()
    }
}

fn has_context(kind: FileType) -> bool {
    matches!(kind, FileType::Regular | FileType::Directory | FileType::Symlink)
}

/// Contexts of all files that are encrypted: those of `order`, where directories come before what is in them, with their
/// `inodes`. `describe` tells a file with a context as an encrypted inode.
///
/// # Errors
/// `NotFound`, `NotADirectory` for directories that are not in the tree; `Argument` for those that can't be encrypted;
/// `CrossesDevices` for a file with names under different policies.
pub(crate) fn contexts(
    encrypter: &dyn Encrypt,
    tree: &Tree,
    order: &[u32],
    inodes: &[InodeNo],
    describe: impl Fn(u32, &[u8]) -> EncryptedInode,
) -> Result<Contexts> {
    let mut contexts = Contexts::new();
    let mut tops = Vec::new();
    for (path, context) in encrypter.directories() {
        let shown = String::from_utf8_lossy(path);
        let number = tree.lookup(path).ok_or_else(|| {
            invalid(std::io::ErrorKind::NotFound, format!("{shown}: no directory to encrypt is there"))
        })?;
        if !tree.is_directory(number) {
            let text = format!("{shown}: only directories are encrypted, with everything in them");
            return Err(invalid(std::io::ErrorKind::NotADirectory, text));
        }
        if number == TOP || inodes[usize_of(number)] == InodeNo::LOST_AND_FOUND {
            let text = format!("{shown}/: the root directory and lost+found can't be encrypted");
            return Err(Error::argument(text));
        }
        if contexts.insert(number, context.clone()).is_some() {
            return Err(Error::argument(format!("{shown}: encrypted twice")));
        }
        tops.push(number);
    }
    let names = |number: u32| match &tree.entry(number).body {
        Body::Directory(names) => Some(names.values().copied()),
        _ => None,
    };
    for directory in order {
        let Some(context) = contexts.get(directory).cloned() else { continue };
        let described = describe(*directory, &context);
        for number in names(*directory).into_iter().flatten() {
            if !has_context(tree.entry(number).node.kind) {
                continue;
            }
            if tops.contains(&number) {
                let text = "a directory to encrypt lies in another one, whose policy goes for it, too";
                return Err(Error::argument(text));
            }
            if let std::collections::hash_map::Entry::Vacant(slot) = contexts.entry(number) {
                let nonce = encrypter.nonce(inodes[usize_of(number)])?;
                slot.insert(encrypter.encryption().child_context(&described, nonce)?);
            }
        }
    }
    // Policies without nonces: a file has one in all directories that it has names in.
    let policy = |number| contexts.get(&number).and_then(|context| context.split_last_chunk::<NONCE>());
    let policy = |number| policy(number).map(|(policy, _)| policy);
    for directory in order {
        let own = policy(*directory);
        let is_foreign = |number: &u32| {
            let is_own = own == policy(*number) || !has_context(tree.entry(*number).node.kind);
            !is_own && !tops.contains(number)
        };
        if names(*directory).is_some_and(|mut names| names.any(|number| is_foreign(&number))) {
            let text = "a file has a hard link in an encrypted directory and one outside of it";
            return Err(invalid(std::io::ErrorKind::CrossesDevices, text));
        }
    }
    Ok(contexts)
}
