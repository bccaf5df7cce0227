//! Targets of symbolic links: encrypted like a name, behind their length.

use casemate_blockdev::usize_of;

use crate::names::NameCipher;
use crate::{Error, Result};

/// Bytes of the length before the ciphertext.
const LENGTH: usize = 2;

impl NameCipher {
    /// The bytes of a link's target as they are stored, the size of the inode. On disk a NUL follows.
    ///
    /// # Errors
    /// `Argument` for a target that is empty, has a NUL, or does not fit a block.
    pub fn encrypt_symlink(&self, target: &[u8], block_size: u32) -> Result<Vec<u8>> {
        let limit = usize_of(block_size).saturating_sub(LENGTH + 1).min(usize::from(u16::MAX));
        if target.len() > limit {
            let text = format!("a link's target of {} bytes: it must have at most {limit}", target.len());
            return Err(Error::argument(text));
        }
        let ciphertext = self.encrypt(target, limit)?;
        // OK to unwrap: the limit fits 16 bits.
        let len = u16::try_from(ciphertext.len()).unwrap();
        Ok([&len.to_le_bytes()[..], &ciphertext].concat())
    }

    /// A link's target, from the bytes that are stored of it.
    ///
    /// # Errors
    /// `Corrupt` if they contradict themselves.
    pub fn decrypt_symlink(&self, stored: &[u8]) -> Result<Vec<u8>> {
        let target = self.decrypt(symlink_ciphertext(stored)?)?;
        if target.is_empty() {
            return Err(Error::corrupt("an encrypted link has no target"));
        }
        Ok(target)
    }
}

/// The ciphertext in what is stored of a link's target.
///
/// # Errors
/// `Corrupt` if the length before it is none.
pub fn symlink_ciphertext(stored: &[u8]) -> Result<&[u8]> {
    let (length, rest) =
        stored.split_first_chunk().ok_or_else(|| Error::corrupt("an encrypted link lacks its length"))?;
    let length = usize::from(u16::from_le_bytes(*length));
    if length == 0 || length > rest.len() {
        let text =
            format!("an encrypted link claims a target of {length} bytes, and {} are stored", rest.len());
        return Err(Error::corrupt(text));
    }
    Ok(&rest[..length])
}
