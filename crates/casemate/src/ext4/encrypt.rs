//! fscrypt on directories of new file systems: which ones, under which policies, and their keys.

use std::fmt;
use std::sync::{Arc, OnceLock};

use casemate_blockdev::{fill_random, u32_of, u64_of, usize_of};
use casemate_ext4::{Encrypt, Encryption, InodeNo, Tree};
use casemate_fscrypt::{Context, InodeInfo, Ivs, Keyring, LiveKeys, MasterKey, NewPolicy};
use casemate_primitives::secret::SecretVec;
use casemate_primitives::sha256::Sha256;
use casemate_providers::{Providers, Work};

use super::encrypted::Unlocked;
use super::identity;
use crate::Error;

/// Bytes of contents that are read at once for nonces.
const CHUNK: usize = 1 << 20;

/// fscrypt on directories of a tree, with everything below them.
pub(super) struct Encrypting {
    unlocked: Unlocked,
    /// Paths, and contexts as they are stored.
    directories: Vec<(Vec<u8>, Vec<u8>)>,
    needs_stable_inodes: bool,
    /// Seed that nonces follow from; they are random without it.
    seed: Option<SecretVec>,
}

impl Encrypting {
    /// fscrypt on no directory yet, with random nonces.
    pub fn new(providers: Providers) -> Encrypting {
        Encrypting {
            unlocked: Unlocked { ring: LiveKeys::new(Keyring::new(providers)), uses: Arc::default() },
            directories: Vec::new(),
            needs_stable_inodes: false,
            seed: None,
        }
    }

    /// Makes nonces follow from a text, the tree (its names, attributes, sizes and times), the contents of all files below
    /// these directories, which are read for it and must not change until they are copied, and the keys that are added from now on. So no nonce comes twice with other
    /// contents under one key.
    ///
    /// # Errors
    /// Errors of the host of contents; whatever the listener says.
    pub fn set_seed(
        &mut self,
        seed: &str,
        tree: &Tree,
        directories: &[&[u8]],
        work: &Work<'_>,
    ) -> Result<(), Error> {
        let mut hash = Sha256::new(self.unlocked.ring.providers().cpu()).hasher();
        hash.update(b"casemate ext4 build nonces\0");
        hash.update(&u64_of(seed.len()).to_le_bytes());
        hash.update(seed.as_bytes());
        tree.describe(&mut |bytes| hash.update(bytes));
        for directory in directories {
            contents_digests(tree, directory, work)?.iter().for_each(|digest| hash.update(digest));
        }
        self.seed = Some(SecretVec::from(&hash.finalize()[..]));
        Ok(())
    }

    /// Encrypts a directory with everything below it with a master key of 16 to 64 bytes.
    ///
    /// # Errors
    /// `Argument` for a key or modes that do not fit each other, or blocks of `block_size` bytes; `Io` without random numbers.
    pub fn add(
        &mut self,
        path: &[u8],
        key: SecretVec,
        new: &NewPolicy,
        block_size: u32,
    ) -> Result<(), Error> {
        let master = MasterKey::new(self.unlocked.ring.providers(), key.clone())?;
        let policy = new.policy(&master)?;
        // Whether the key is long enough, and data units fit blocks, shows when something is keyed.
        let sample =
            InodeInfo { context: Context { policy, nonce: [0; 16] }, number: 11, uuid: [0; 16], block_size };
        let keyed = master.names(&sample).and_then(|_| master.contents(&sample));
        keyed.map_err(|error| Error::argument(error.to_string()))?;
        if let Some(seed) = &mut self.seed {
            // Without the key nobody can see in nonces whether a guess of names and sizes is right.
            let mut hash = Sha256::new(self.unlocked.ring.providers().cpu()).hasher();
            hash.update(seed.expose());
            hash.update(key.expose());
            *seed = SecretVec::from(&hash.finalize()[..]);
        }
        self.unlocked.ring.add(None, key)?;
        self.needs_stable_inodes |= matches!(policy.ivs, Ivs::InodeBlock64 | Ivs::InodeBlock32);
        // Another number for each directory; those of files follow from their inodes.
        let nonce = self.numbered_nonce(u32::MAX - u32_of(self.directories.len()))?;
        self.directories.push((path.to_vec(), Context { policy, nonce }.to_bytes()));
        Ok(())
    }

    /// The UUID that the file system needs: that of a seed, where a policy makes its IVs of inodes' numbers and its keys of the
    /// UUID instead of nonces, so that these do not come twice with other contents either.
    pub fn uuid(&self) -> Option<[u8; 16]> {
        let seed = self.seed.as_ref().filter(|_| self.needs_stable_inodes)?;
        let mut hash = Sha256::new(self.unlocked.ring.providers().cpu()).hasher();
        hash.update(b"casemate ext4 build uuid\0");
        hash.update(seed.expose());
        Some(identity::marked(identity::halves(&hash.finalize())[0]))
    }

    /// Whether a policy is for file systems only whose inodes keep their numbers.
    pub fn needs_stable_inodes(&self) -> bool {
        self.needs_stable_inodes
    }
}

/// The SHA-256 of each file below a directory, in the order of their paths.
fn contents_digests(tree: &Tree, directory: &[u8], work: &Work<'_>) -> Result<Vec<[u8; 32]>, Error> {
    let files = tree.files_below(directory);
    let digests: Vec<OnceLock<[u8; 32]>> = files.iter().map(|_| OnceLock::new()).collect();
    work.pool.run(
        u64_of(files.len()),
        || vec![0; CHUNK],
        |buffer, piece| {
            let mut hash = Sha256::new(work.providers.cpu()).hasher();
            files[usize_of(piece)].read(work.providers.cpu(), buffer, &mut |part| {
                hash.update(part);
                work.events.advance(0)
            })?;
            let _ = digests[usize_of(piece)].set(hash.finalize());
            Ok::<_, Error>(())
        },
    )?;
    // OK to unwrap: all pieces were done.
    Ok(digests.into_iter().map(|slot| slot.into_inner().unwrap()).collect())
}

impl fmt::Debug for Encrypting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encrypting").field("directories", &self.directories.len()).finish_non_exhaustive()
    }
}

impl Encrypt for Encrypting {
    fn encryption(&self) -> &dyn Encryption {
        &self.unlocked
    }

    fn directories(&self) -> &[(Vec<u8>, Vec<u8>)] {
        &self.directories
    }

    fn nonce(&self, inode: InodeNo) -> Result<[u8; 16], Error> {
        self.numbered_nonce(inode.get())
    }
}

impl Encrypting {
    /// The nonce of an inode or, by a number from the end of all, of a directory that was named.
    fn numbered_nonce(&self, number: u32) -> Result<[u8; 16], Error> {
        let mut nonce = [0; 16];
        let Some(seed) = &self.seed else {
            fill_random(&mut nonce)?;
            return Ok(nonce);
        };
        let mut hash = Sha256::new(self.unlocked.ring.providers().cpu()).hasher();
        hash.update(seed.expose());
        hash.update(&number.to_le_bytes());
        nonce.copy_from_slice(&hash.finalize()[..16]);
        Ok(nonce)
    }
}
