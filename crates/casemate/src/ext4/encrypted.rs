//! Encrypted files of ext4 images, read with the keys of fscrypt.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use casemate_blockdev::{Events, u64_of};
use casemate_ext4::{
    CheckReport, DirHash, EncryptedContents, EncryptedInode, EncryptedNames, Encryption, Ext4, Inode,
    InodeNo, Place, Result, StoredName, Structure, casefold,
};
use casemate_fscrypt::{
    ContentCipher, Context, DirHashKey, InodeInfo, KeyId, Keys, LONGEST_NAME, LiveKeys, MasterKey,
    NameCipher, NoKeyName, symlink_ciphertext,
};
use casemate_providers::Providers;

use crate::{Error, ErrorKind};

/// Encryption of an inode.
#[derive(Clone, Copy, Debug)]
pub struct EncryptionInfo {
    /// The inode's policy and nonce.
    pub context: Context,
    /// Whether the inode's key is there and fits.
    pub readable: bool,
}

/// How an inode is encrypted; `None` if it is not.
///
/// # Errors
/// `Corrupt` or `Unsupported` for a context that makes no sense.
pub fn encryption_info(fs: &Ext4, inode: &Inode) -> std::result::Result<Option<EncryptionInfo>, Error> {
    let read = || -> Result<Option<EncryptionInfo>> {
        let Some(encrypted) = fs.encrypted(inode)? else { return Ok(None) };
        let InodeInfo { context, .. } = info(&encrypted)?;
        Ok(Some(EncryptionInfo { context, readable: fs.require_key(inode).is_ok() }))
    };
    read().map_err(|error| error.at(format!("inode {}", inode.number())))
}

/// Use of the keys of a ring.
#[derive(Debug, Default)]
pub(super) struct KeyUse {
    /// Whether one of them was of use.
    found: AtomicBool,
    /// The names of those that were needed and not there.
    missed: Mutex<BTreeSet<String>>,
}

/// Missing keys that are named: an image may name any number.
const MOST_MISSED: usize = 4;

impl KeyUse {
    /// The keys that were needed, in words, if none of those that are there was of use.
    pub fn missed(&self) -> Option<String> {
        let missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
        let missed: Vec<&str> = missed.iter().map(String::as_str).collect();
        (!missed.is_empty() && !self.found.load(Ordering::Relaxed)).then(|| missed.join(", "))
    }

    fn note(&self, id: &KeyId, is_there: bool) {
        if is_there {
            self.found.store(true, Ordering::Relaxed);
            return;
        }
        let mut missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
        if missed.len() < MOST_MISSED {
            missed.insert(format!("{} {id}", id.kind()));
        }
    }

    /// Notes that none of the given keys was of use, and which ones are needed.
    pub fn note_useless(&self, keys: &Keys, name: &str, providers: &Providers, events: &dyn Events) {
        if let Some(missed) = self.missed()
            && let Some(given) = keys.described(providers)
        {
            events.note(&format!("{name}: no key that was given fits: {given}; needed is {missed}"));
        }
    }

    /// Makes it a fault of a check that none of the given raw keys was of use: it has checked nothing with them.
    pub fn demand_use(&self, keys: &Keys, report: &mut CheckReport) {
        if keys.have_raw() && !self.found.load(Ordering::Relaxed) {
            report.miss_keys();
        }
    }
}

/// Reads encrypted inodes with the keys that there are.
pub(super) struct Unlocked {
    pub ring: LiveKeys,
    pub uses: Arc<KeyUse>,
}

impl Unlocked {
    /// Facts that an inode's policy needs, and the key, if it is there.
    fn key(&self, encrypted: &EncryptedInode) -> Result<(InodeInfo, Option<Arc<MasterKey>>)> {
        let inode = info(encrypted)?;
        let key = self.ring.get(&inode.context.policy.key);
        self.uses.note(&inode.context.policy.key, key.is_some());
        Ok((inode, key))
    }

    fn needed_key(&self, encrypted: &EncryptedInode) -> Result<(InodeInfo, Arc<MasterKey>)> {
        let (inode, key) = self.key(encrypted)?;
        let key = key.ok_or_else(|| {
            let id = &inode.context.policy.key;
            let text =
                format!("inode {} needs the key with {} {id}, which was not given", inode.number, id.kind());
            Error::locked(text)
        })?;
        Ok((inode, key))
    }
}

impl Encryption for Unlocked {
    fn require_key(&self, encrypted: &EncryptedInode) -> Result<()> {
        let (inode, key) = self.needed_key(encrypted)?;
        let policy = &inode.context.policy;
        let mode =
            if encrypted.kind == casemate_ext4::FileType::Regular { policy.contents } else { policy.names };
        key.file_key(mode, &inode).map(|_| ()).map_err(|error| in_inode(encrypted, error))
    }

    fn names(&self, directory: &EncryptedInode) -> Result<Arc<dyn EncryptedNames>> {
        let fail = |error| in_inode(directory, error);
        // As in the kernel, a context that makes no sense is as good as a key that is not there.
        match self.key(directory) {
            Ok((inode, Some(key))) => {
                let hash =
                    directory.casefolded.then(|| key.dir_hash_key(&inode)).transpose().map_err(fail)?;
                let cipher = key.names(&inode).map_err(fail)?;
                Ok(Arc::new(Names { directory: directory.number, cipher, hash }))
            }
            _ => Ok(Arc::new(NoKeyNames(self.ring.providers().clone()))),
        }
    }

    fn contents(&self, file: &EncryptedInode) -> Result<Arc<dyn EncryptedContents>> {
        let (inode, key) = self.needed_key(file)?;
        let cipher = key.contents(&inode).map_err(|error| in_inode(file, error))?;
        let units_per_block = u64::from(file.block_size) / u64_of(cipher.data_unit_size());
        Ok(Arc::new(FileContents { inode: file.number, cipher, units_per_block }))
    }

    fn symlink(&self, link: &EncryptedInode, stored: &[u8]) -> Result<Vec<u8>> {
        let fail = |error| in_inode(link, error);
        let (inode, key) = self.key(link)?;
        match key {
            Some(key) => key.names(&inode).and_then(|names| names.decrypt_symlink(stored)).map_err(fail),
            None => {
                let providers = self.ring.providers();
                let ciphertext = symlink_ciphertext(stored).map_err(fail)?;
                Ok(NoKeyName::new(providers, [0; 2], ciphertext)?.text(providers).into_bytes())
            }
        }
    }

    fn child_context(&self, directory: &EncryptedInode, nonce: [u8; 16]) -> Result<Vec<u8>> {
        let InodeInfo { context, .. } = info(directory)?;
        Ok(Context { nonce, ..context }.to_bytes())
    }

    fn store_symlink(&self, link: &EncryptedInode, target: &[u8]) -> Result<Vec<u8>> {
        let (inode, key) = self.needed_key(link)?;
        let stored = key.names(&inode).and_then(|names| names.encrypt_symlink(target, link.block_size));
        stored.map_err(|error| in_inode(link, error))
    }
}

struct Names {
    directory: InodeNo,
    cipher: NameCipher,
    /// Of a directory without regard to case.
    hash: Option<DirHashKey>,
}

impl EncryptedNames for Names {
    fn decode(&self, name: StoredName<'_>) -> Result<Vec<u8>> {
        self.cipher.decrypt(name.bytes).map_err(|error| at(Structure::Directory, self.directory, error))
    }

    fn encode(&self, name: &[u8]) -> Option<Vec<u8>> {
        self.cipher.encrypt(name, LONGEST_NAME).ok()
    }

    fn hash(&self, name: &[u8]) -> Option<DirHash> {
        // What is no UTF-8 can't be folded.
        let folded = casefold(name).map_or_else(|| name.to_vec(), String::into_bytes);
        self.hash.as_ref().map(|key| DirHash::from_keyed(key.hash(&folded)))
    }
}

struct NoKeyNames(Providers);

impl EncryptedNames for NoKeyNames {
    fn decode(&self, name: StoredName<'_>) -> Result<Vec<u8>> {
        let DirHash { major, minor } = name.hash.unwrap_or_default();
        Ok(NoKeyName::new(&self.0, [major, minor], name.bytes)?.text(&self.0).into_bytes())
    }

    fn encode(&self, name: &[u8]) -> Option<Vec<u8>> {
        let name = NoKeyName::from_text(&self.0, name).ok()?;
        // Of a longer one the end is not known.
        name.rest_sha256.is_none().then_some(name.ciphertext)
    }

    fn hash(&self, name: &[u8]) -> Option<DirHash> {
        let [major, minor] = NoKeyName::from_text(&self.0, name).ok()?.hash;
        Some(DirHash { major, minor })
    }
}

struct FileContents {
    inode: InodeNo,
    cipher: ContentCipher,
    units_per_block: u64,
}

impl EncryptedContents for FileContents {
    fn decrypt(&self, first: u64, blocks: &mut [u8]) -> Result<()> {
        // Saturated numbers are refused below.
        let first = first.saturating_mul(self.units_per_block);
        self.cipher.decrypt(first, blocks).map_err(|error| at(Structure::Inode, self.inode, error))
    }

    fn encrypt(&self, first: u64, blocks: &mut [u8]) -> Result<()> {
        let first = first.saturating_mul(self.units_per_block);
        self.cipher.encrypt(first, blocks).map_err(|error| at(Structure::Inode, self.inode, error))
    }
}

fn info(encrypted: &EncryptedInode) -> Result<InodeInfo> {
    let EncryptedInode { number, uuid, block_size, .. } = *encrypted;
    let context = Context::from_bytes(&encrypted.context)
        .map_err(|error| at(Structure::EncryptionContext, number, error))?;
    Ok(InodeInfo { context, number: number.get(), uuid, block_size })
}

fn in_inode(encrypted: &EncryptedInode, error: Error) -> Error {
    let structure = match encrypted.kind {
        casemate_ext4::FileType::Symlink => Structure::Symlink,
        _ => Structure::EncryptionContext,
    };
    at(structure, encrypted.number, error)
}

fn at(structure: Structure, number: InodeNo, error: Error) -> Error {
    match error.kind() {
        ErrorKind::Corrupt => Place::inode(structure, number).malformed(error.text().into_owned()),
        _ => error.map_text(|text| format!("inode {number}: {text}")),
    }
}
