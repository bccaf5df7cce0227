//! Authenticated encryption: sectors with a tag each, which dm-integrity keeps for dm-crypt.
//!
//! What is kept of a sector is the tag, and the IV where that is random. The tag is over the sector's number in units of 512
//! bytes, the IV as the cipher has it, and the ciphertext.
//!
//! Source: the kernel's Documentation/admin-guide/device-mapper/dm-crypt.rst, RFC 8439 and RFC 5288 for the modes; the rest
//! was read off volumes that the kernel made.

use std::fmt;

use aes_gcm::aead::AeadInOut;
use aes_gcm::{Aes128Gcm, Aes256Gcm, KeyInit};
use chacha20poly1305::ChaCha20Poly1305;

use casemate_primitives::secret::constant_time_eq;
use casemate_providers::{Cipher, Direction, Hmac, Ivs, Providers};

use crate::Error;

/// Bytes of the tag of GCM and of ChaCha20-Poly1305, and of their IVs.
const AEAD_TAG: usize = 16;
const AEAD_IV: usize = 12;

/// A mapping's authenticated cipher under its key.
pub struct AuthenticatedSectors {
    mode: Mode,
    iv_len: usize,
    /// Whether IVs are random, and kept behind the tags. Otherwise they are the sectors' numbers.
    random: bool,
    tag_len: usize,
    sector_size: usize,
}

enum Mode {
    Aes128Gcm(Box<Aes128Gcm>),
    Aes256Gcm(Box<Aes256Gcm>),
    ChaCha20Poly1305(Box<ChaCha20Poly1305>),
    /// A cipher, and an HMAC over its ciphertext unless there is none.
    Cipher(Box<Cipher>, Option<Box<Hmac>>),
}

impl AuthenticatedSectors {
    /// Keys a cipher such as `aes-gcm-random` with integrity as LUKS2 names it: `aead`, `poly1305`, `hmac(sha256)`, or
    /// `none` for a random IV alone. The key of an HMAC, as long as its hash, follows that of the cipher.
    ///
    /// # Errors
    /// `Unsupported` for other combinations; `Argument` for a key of a wrong length.
    pub fn new(
        encryption: &str,
        integrity: &str,
        key: &[u8],
        sector_size: usize,
        providers: &Providers,
    ) -> Result<AuthenticatedSectors, Error> {
        let unsupported =
            || Error::unsupported(format!("integrity protection ({integrity}) of {encryption}"));
        if !sector_size.is_power_of_two() || !(512..=4096).contains(&sector_size) {
            return Err(Error::argument(format!("sectors of {sector_size} bytes")));
        }
        let wrong_key = |_| Error::argument(format!("{encryption}: a key of {} bytes", key.len()));
        let (cipher, iv) = encryption.rsplit_once('-').ok_or_else(unsupported)?;
        let random = match iv {
            "random" => true,
            "plain64" => false,
            _ => return Err(unsupported()),
        };
        let (mode, iv_len, tag_len) = match (cipher, integrity) {
            ("aes-gcm", "aead") if key.len() == 16 => {
                let cipher = Aes128Gcm::new_from_slice(key).map_err(wrong_key)?;
                (Mode::Aes128Gcm(Box::new(cipher)), AEAD_IV, AEAD_TAG)
            }
            ("aes-gcm", "aead") => {
                let cipher = Aes256Gcm::new_from_slice(key).map_err(wrong_key)?;
                (Mode::Aes256Gcm(Box::new(cipher)), AEAD_IV, AEAD_TAG)
            }
            ("chacha20", "poly1305") => {
                let cipher = ChaCha20Poly1305::new_from_slice(key).map_err(wrong_key)?;
                (Mode::ChaCha20Poly1305(Box::new(cipher)), AEAD_IV, AEAD_TAG)
            }
            (cipher, integrity) => {
                let (cipher, chain) = cipher.split_once('-').ok_or_else(unsupported)?;
                let hash = integrity.strip_prefix("hmac(").and_then(|name| name.strip_suffix(')'));
                let hash = match (hash, integrity) {
                    (Some(hash), _) => Some(providers.hash(hash)?),
                    (None, "none") if random => None,
                    _ => return Err(unsupported()),
                };
                let mac_len = hash.as_ref().map_or(0, casemate_providers::Hash::digest_len);
                let split = key.len().checked_sub(mac_len).ok_or_else(|| {
                    Error::argument(format!(
                        "{encryption}: a key of {} bytes has none of {integrity}",
                        key.len()
                    ))
                })?;
                let (key, mac_key) = key.split_at(split);
                let cipher = providers.cipher(&format!("{chain}({cipher})"), key)?;
                let iv_len = cipher.iv_len();
                let cipher = cipher.with_data_unit_size(sector_size)?;
                let hmac = hash.map(|hash| Box::new(Hmac::new(hash, mac_key)));
                (Mode::Cipher(Box::new(cipher), hmac), iv_len, mac_len)
            }
        };
        // An IV that is a number has room for one.
        match random || iv_len >= 8 {
            true => Ok(AuthenticatedSectors { mode, iv_len, random, tag_len, sector_size }),
            false => Err(unsupported()),
        }
    }

    /// Bytes that are kept of each sector.
    pub fn kept_len(&self) -> usize {
        self.tag_len + if self.random { self.iv_len } else { 0 }
    }

    /// Bytes of a sector.
    pub fn sector_size(&self) -> usize {
        self.sector_size
    }

    /// Decrypts a sector in place, by its number in units of 512 bytes and what was kept of it. `false`, and nothing of the
    /// sector is left, if it is not what was encrypted.
    ///
    /// # Errors
    /// `Io` if a driver fails.
    pub fn open(&self, sector: u64, data: &mut [u8], kept: &[u8]) -> Result<bool, Error> {
        let (tag, rest) = kept.split_at(self.tag_len);
        let mut iv = [0; 32];
        let iv = &mut iv[..self.iv_len];
        match self.random {
            true => iv.copy_from_slice(&rest[..self.iv_len]),
            false => iv[..8].copy_from_slice(&sector.to_le_bytes()),
        }
        let is_right = match &self.mode {
            Mode::Aes128Gcm(cipher) => open(&**cipher, sector, iv, data, tag),
            Mode::Aes256Gcm(cipher) => open(&**cipher, sector, iv, data, tag),
            Mode::ChaCha20Poly1305(cipher) => open(&**cipher, sector, iv, data, tag),
            Mode::Cipher(cipher, hmac) => {
                let found = hmac.as_ref().map(|hmac| hmac.tag(&message(sector, iv, data)));
                let is_right = found.is_none_or(|found| constant_time_eq(found.expose(), tag));
                if is_right {
                    cipher.run(Direction::Decrypt, &Ivs::List(iv), data)?;
                }
                is_right
            }
        };
        if !is_right {
            data.fill(0);
        }
        Ok(is_right)
    }

    /// Encrypts a sector in place, and gives what is to be kept of it; `random` fills IVs.
    ///
    /// # Errors
    /// `Io` if a driver fails, or there are no random numbers.
    pub fn seal(
        &self,
        sector: u64,
        data: &mut [u8],
        kept: &mut [u8],
        random: &dyn Fn(&mut [u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (tag, rest) = kept.split_at_mut(self.tag_len);
        let mut iv = [0; 32];
        let iv = &mut iv[..self.iv_len];
        match self.random {
            true => {
                random(iv)?;
                rest[..self.iv_len].copy_from_slice(iv);
            }
            false => iv[..8].copy_from_slice(&sector.to_le_bytes()),
        }
        match &self.mode {
            Mode::Aes128Gcm(cipher) => seal(&**cipher, sector, iv, data, tag),
            Mode::Aes256Gcm(cipher) => seal(&**cipher, sector, iv, data, tag),
            Mode::ChaCha20Poly1305(cipher) => seal(&**cipher, sector, iv, data, tag),
            Mode::Cipher(cipher, hmac) => {
                cipher.run(Direction::Encrypt, &Ivs::List(iv), data)?;
                if let Some(hmac) = hmac {
                    tag.copy_from_slice(hmac.tag(&message(sector, iv, data)).expose());
                }
                Ok(())
            }
        }
    }
}

/// What comes before the ciphertext in what is authenticated.
fn associated(sector: u64, iv: &[u8]) -> Vec<u8> {
    [&sector.to_le_bytes(), iv].concat()
}

fn message(sector: u64, iv: &[u8], data: &[u8]) -> Vec<u8> {
    [&sector.to_le_bytes(), iv, data].concat()
}

fn open<C: AeadInOut>(cipher: &C, sector: u64, iv: &[u8], data: &mut [u8], tag: &[u8]) -> bool {
    let (Ok(iv_bytes), Ok(tag)) = (iv.try_into(), tag.try_into()) else { return false };
    cipher.decrypt_inout_detached(iv_bytes, &associated(sector, iv), data.into(), tag).is_ok()
}

fn seal<C: AeadInOut>(
    cipher: &C,
    sector: u64,
    iv: &[u8],
    data: &mut [u8],
    tag: &mut [u8],
) -> Result<(), Error> {
    let failed = || Error::argument("a sector that is too long");
    let iv_bytes = iv.try_into().map_err(|_| failed())?;
    let made = cipher.encrypt_inout_detached(iv_bytes, &associated(sector, iv), data.into());
    tag.copy_from_slice(&made.map_err(|_| failed())?);
    Ok(())
}

impl fmt::Debug for AuthenticatedSectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("AuthenticatedSectors");
        text.field("sector_size", &self.sector_size)
            .field("kept_len", &self.kept_len())
            .finish_non_exhaustive()
    }
}
