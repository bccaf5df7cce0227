//! Authenticated encryption: sectors with a tag each, which dm-integrity keeps for dm-crypt.
//!
//! dm-integrity keeps a sector's tag, and its IV where that is random. The tag is over the sector's number in units of 512
//! bytes, the IV as the cipher has it, and the ciphertext.
//!
//! Source: the kernel's Documentation/admin-guide/device-mapper/dm-crypt.rst, RFC 8439, RFC 5288 and RFC 4309 for the modes; the rest
//! was read off volumes that the kernel made.

use std::fmt;

use aes_gcm::aead::AeadInOut;
use aes_gcm::{Aes128Gcm, Aes256Gcm, KeyInit};
use ccm::Ccm;
use ccm::consts::{U11, U16};
use chacha20poly1305::ChaCha20Poly1305;

use casemate_primitives::secret::{SecretVec, constant_time_eq};
use casemate_providers::{Cipher, Direction, Hmac, Ivs, Providers};

use crate::Error;
use crate::aegis::Aegis128;

/// Bytes of an AEAD's tag, of most IVs, and of the part of CCM's nonce that is of the key.
const AEAD_TAG: usize = 16;
const AEAD_IV: usize = 12;
const CCM_SALT: usize = 3;

/// A mapping's authenticated cipher under its key.
pub struct AuthenticatedSectors {
    mode: Mode,
    iv: SectorIv,
    iv_len: usize,
    tag_len: usize,
    sector_size: usize,
}

/// Where a sector's IV comes from.
enum SectorIv {
    /// Random bytes, which are kept behind the tag.
    Random,
    /// The sector's number.
    Number,
    /// The sector's number, encrypted.
    Encrypted(Box<Cipher>),
}

enum Mode {
    Aead(Box<dyn SectorAead>),
    /// A cipher, and an HMAC over its ciphertext unless there is none.
    Cipher(Box<Cipher>, Option<Box<Hmac>>),
}

/// Encryption with a tag of 16 bytes, which knows what of a sector's number and IV is authenticated.
trait SectorAead: Send + Sync {
    fn open(&self, sector: u64, iv: &[u8], data: &mut [u8], tag: &[u8]) -> bool;
    fn seal(&self, sector: u64, iv: &[u8], data: &mut [u8], tag: &mut [u8]) -> Result<(), Error>;
}

/// An AEAD whose IV is authenticated.
struct Plain<C>(C);

/// CCM as RFC 4309 has it: the key's last bytes begin the nonce, and the IV is not authenticated.
struct Rfc4309<C>(C, SecretVec);

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
        let (cipher, iv_mode) = encryption.rsplit_once('-').ok_or_else(unsupported)?;
        let hash = integrity.strip_prefix("hmac(").and_then(|name| name.strip_suffix(')'));
        let iv = match (iv_mode, iv_mode.strip_prefix("essiv:")) {
            ("random", _) => SectorIv::Random,
            ("plain64", _) => SectorIv::Number,
            // The hash is over all of the key, with that of the HMAC.
            (_, Some(essiv)) if hash.is_some() => {
                let (block, _) = cipher.split_once('-').ok_or_else(unsupported)?;
                let number_key = SecretVec::new(providers.hash(essiv)?.digest(key));
                SectorIv::Encrypted(Box::new(
                    providers.cipher(&format!("ecb({block})"), number_key.expose())?,
                ))
            }
            _ => return Err(unsupported()),
        };
        let (mode, iv_len, tag_len) = match (cipher, integrity) {
            (_, "aead" | "poly1305") => {
                let (aead, iv_len) = aead(cipher, integrity, key).ok_or_else(unsupported)??;
                (Mode::Aead(aead), iv_len, AEAD_TAG)
            }
            (cipher, integrity) => {
                let (cipher, chain) = cipher.split_once('-').ok_or_else(unsupported)?;
                let hash = match (hash, integrity) {
                    (Some(hash), _) => Some(providers.hash(hash)?),
                    (None, "none") if matches!(iv, SectorIv::Random) => None,
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
        let has_room = match &iv {
            SectorIv::Random => true,
            SectorIv::Number => iv_len >= 8,
            SectorIv::Encrypted(_) => iv_len == 16,
        };
        match has_room {
            true => Ok(AuthenticatedSectors { mode, iv, iv_len, tag_len, sector_size }),
            false => Err(unsupported()),
        }
    }

    /// Bytes that are kept of each sector.
    pub fn kept_len(&self) -> usize {
        self.tag_len + if matches!(self.iv, SectorIv::Random) { self.iv_len } else { 0 }
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
        match &self.iv {
            SectorIv::Random => iv.copy_from_slice(&rest[..self.iv_len]),
            given => given.put(sector, iv)?,
        }
        let is_right = match &self.mode {
            Mode::Aead(aead) => aead.open(sector, iv, data, tag),
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
        match &self.iv {
            SectorIv::Random => {
                random(iv)?;
                rest[..self.iv_len].copy_from_slice(iv);
            }
            given => given.put(sector, iv)?,
        }
        match &self.mode {
            Mode::Aead(aead) => aead.seal(sector, iv, data, tag),
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

impl SectorIv {
    /// Makes an IV that is not random.
    fn put(&self, sector: u64, iv: &mut [u8]) -> Result<(), Error> {
        iv[..8].copy_from_slice(&sector.to_le_bytes());
        match self {
            SectorIv::Encrypted(cipher) => Ok(cipher.run(Direction::Encrypt, &Ivs::List(&[]), iv)?),
            _ => Ok(()),
        }
    }
}

/// The AEAD of these names under its key, and the bytes of its IV.
#[allow(clippy::type_complexity, reason = "taken apart where it is made")]
fn aead(cipher: &str, integrity: &str, key: &[u8]) -> Option<Result<(Box<dyn SectorAead>, usize), Error>> {
    fn boxed<C: SectorAead + 'static, E>(made: Result<C, E>) -> Option<Box<dyn SectorAead>> {
        made.ok().map(|cipher| -> Box<dyn SectorAead> { Box::new(cipher) })
    }
    let (made, iv_len) = match (cipher, integrity) {
        ("aes-gcm", "aead") if key.len() == 16 => (boxed(Aes128Gcm::new_from_slice(key).map(Plain)), AEAD_IV),
        ("aes-gcm", "aead") => (boxed(Aes256Gcm::new_from_slice(key).map(Plain)), AEAD_IV),
        ("chacha20", "poly1305") => (boxed(ChaCha20Poly1305::new_from_slice(key).map(Plain)), AEAD_IV),
        ("aegis128", "aead") => (boxed(Aegis128::new(key).ok_or(())), 16),
        ("aes-ccm", "aead") => {
            let (key, salt) = key.split_at(key.len().saturating_sub(CCM_SALT));
            let with_salt = |key: &[u8]| match key.len() {
                16 => boxed(
                    Ccm::<aes::Aes128, U16, U11>::new_from_slice(key).map(|ccm| Rfc4309(ccm, salt.into())),
                ),
                _ => boxed(
                    Ccm::<aes::Aes256, U16, U11>::new_from_slice(key).map(|ccm| Rfc4309(ccm, salt.into())),
                ),
            };
            (with_salt(key), 8)
        }
        _ => return None,
    };
    let wrong_key = || Error::argument(format!("{cipher} with {integrity}: a key of {} bytes", key.len()));
    Some(made.map(|made| (made, iv_len)).ok_or_else(wrong_key))
}

fn message(sector: u64, iv: &[u8], data: &[u8]) -> Vec<u8> {
    [&sector.to_le_bytes(), iv, data].concat()
}

fn open<C: AeadInOut>(cipher: &C, iv: &[u8], associated: &[u8], data: &mut [u8], tag: &[u8]) -> bool {
    let (Ok(iv), Ok(tag)) = (iv.try_into(), tag.try_into()) else { return false };
    cipher.decrypt_inout_detached(iv, associated, data.into(), tag).is_ok()
}

fn seal<C: AeadInOut>(
    cipher: &C,
    iv: &[u8],
    associated: &[u8],
    data: &mut [u8],
    tag: &mut [u8],
) -> Result<(), Error> {
    let failed = || Error::argument("the sector is too long");
    let iv = iv.try_into().map_err(|_| failed())?;
    let made = cipher.encrypt_inout_detached(iv, associated, data.into());
    tag.copy_from_slice(&made.map_err(|_| failed())?);
    Ok(())
}

impl<C: AeadInOut + Send + Sync> SectorAead for Plain<C> {
    fn open(&self, sector: u64, iv: &[u8], data: &mut [u8], tag: &[u8]) -> bool {
        open(&self.0, iv, &message(sector, iv, &[]), data, tag)
    }

    fn seal(&self, sector: u64, iv: &[u8], data: &mut [u8], tag: &mut [u8]) -> Result<(), Error> {
        seal(&self.0, iv, &message(sector, iv, &[]), data, tag)
    }
}

impl<C: AeadInOut + Send + Sync> SectorAead for Rfc4309<C> {
    fn open(&self, sector: u64, iv: &[u8], data: &mut [u8], tag: &[u8]) -> bool {
        open(&self.0, &[self.1.expose(), iv].concat(), &sector.to_le_bytes(), data, tag)
    }

    fn seal(&self, sector: u64, iv: &[u8], data: &mut [u8], tag: &mut [u8]) -> Result<(), Error> {
        seal(&self.0, &[self.1.expose(), iv].concat(), &sector.to_le_bytes(), data, tag)
    }
}

impl SectorAead for Aegis128 {
    fn open(&self, sector: u64, iv: &[u8], data: &mut [u8], tag: &[u8]) -> bool {
        Aegis128::open(self, iv, &message(sector, iv, &[]), data, tag)
    }

    fn seal(&self, sector: u64, iv: &[u8], data: &mut [u8], tag: &mut [u8]) -> Result<(), Error> {
        tag.copy_from_slice(&Aegis128::seal(self, iv, &message(sector, iv, &[]), data));
        Ok(())
    }
}

impl fmt::Debug for AuthenticatedSectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("AuthenticatedSectors");
        text.field("sector_size", &self.sector_size)
            .field("kept_len", &self.kept_len())
            .finish_non_exhaustive()
    }
}
