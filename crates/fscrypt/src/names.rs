//! Names: padded with NULs and encrypted, all names of a directory with the same key and IV.

use std::fmt;

use casemate_primitives::secret::SecretVec;
use casemate_providers::{Cipher, Ivs, siphash24};

use crate::{Error, Result};

/// The most bytes of a name in any file system, encrypted or not.
pub const LONGEST_NAME: usize = 255;

/// The fewest bytes of an encrypted name: a cipher block.
pub const SHORTEST_CIPHERTEXT: usize = 16;

/// The cipher for the names in one directory, or for the target of one symbolic link.
pub struct NameCipher {
    cipher: Cipher,
    iv: [u8; 32],
    padding: usize,
}

impl NameCipher {
    pub(crate) fn new(cipher: Cipher, iv: [u8; 32], padding: usize) -> NameCipher {
        NameCipher { cipher, iv, padding }
    }

    /// The ciphertext of a name, of at most `limit` bytes: [`LONGEST_NAME`] in directories.
    ///
    /// "." and ".." are stored as they are: they must not come here.
    ///
    /// # Errors
    /// `Argument` for a name that is empty, longer than `limit`, or has a NUL.
    pub fn encrypt(&self, name: &[u8], limit: usize) -> Result<Vec<u8>> {
        if name.is_empty() || name.len() > limit || name.contains(&0) {
            let text = format!("a name of {} bytes: it must have 1 to {limit} and no NUL", name.len());
            return Err(Error::argument(text));
        }
        let mut bytes = name.to_vec();
        bytes.resize(self.encrypted_len(name.len(), limit), 0);
        self.cipher.encrypt(&self.ivs(), &mut bytes)?;
        Ok(bytes)
    }

    /// The name of a ciphertext: what is before the first NUL.
    ///
    /// # Errors
    /// `Corrupt` for ciphertext that is shorter than a cipher block.
    pub fn decrypt(&self, ciphertext: &[u8]) -> Result<Vec<u8>> {
        if ciphertext.len() < SHORTEST_CIPHERTEXT {
            let text = format!("an encrypted name has {} bytes, less than a block", ciphertext.len());
            return Err(Error::corrupt(text));
        }
        let mut bytes = ciphertext.to_vec();
        self.cipher.decrypt(&self.ivs(), &mut bytes)?;
        let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        bytes.truncate(len);
        Ok(bytes)
    }

    /// Bytes of the ciphertext of a name with `len` bytes, where at most `limit` bytes fit.
    pub fn encrypted_len(&self, len: usize, limit: usize) -> usize {
        len.max(SHORTEST_CIPHERTEXT).next_multiple_of(self.padding).min(limit)
    }

    fn ivs(&self) -> Ivs<'_> {
        Ivs::List(&self.iv[..self.cipher.iv_len()])
    }
}

impl fmt::Debug for NameCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NameCipher({:?}, padded to {})", self.cipher, self.padding)
    }
}

/// The hash key of one casefolded directory's names.
pub struct DirHashKey(SecretVec);

impl DirHashKey {
    pub(crate) fn new(key: [u8; 16]) -> DirHashKey {
        DirHashKey(SecretVec::from(&key[..]))
    }

    /// The hash of a casefolded name in 64 bits, of which the upper half orders the directory's tree.
    pub fn hash(&self, folded: &[u8]) -> u64 {
        // OK to unwrap: it was made of 16 bytes.
        siphash24(self.0.expose().try_into().unwrap(), folded)
    }
}

impl fmt::Debug for DirHashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DirHashKey")
    }
}
