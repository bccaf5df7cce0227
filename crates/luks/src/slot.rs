//! Key slots of either version: the volume key as stripes, encrypted under what becomes of a passphrase.

use std::ops::Range;

use casemate_blockdev::{BlockDevice, u32_of, u64_of, usize_of};
use casemate_crypt::{Params, SectorCipher};
use casemate_primitives::cpu::Cpu;
use casemate_primitives::secret::SecretVec;
use casemate_providers::{KdfLimits, Providers, pbkdf2};

use crate::json::Object;
use crate::luks1::{self, SALT_LEN, SlotState};
use crate::luks2::{Keyslot, decode, encode};
use crate::pbkdf::Pbkdf;
use crate::random::Source;
use crate::{Error, af};

/// Bytes of a digest, at least and at most.
pub(super) const DIGEST_LEN: std::ops::RangeInclusive<usize> = 16..=64;

/// Whether a specification is that of a cipher that does nothing.
pub(super) fn is_null(encryption: &str) -> bool {
    matches!(encryption.split('-').next(), Some("cipher_null" | "null"))
        || encryption.contains("(cipher_null)")
}

/// Bytes of a cipher's key, or of a volume key, at most: several times what any cipher takes.
const LONGEST_KEY: u32 = 1024;

/// The cipher of a key slot's area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AreaCipher {
    /// The cipher, as `aes-xts-plain64`.
    pub cipher: String,
    /// Bytes of its key.
    pub key_len: usize,
}

/// Key slot: where the stripes of its key lie, and what opens them.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    /// Bytes of the key in the slot.
    pub key_len: usize,
    /// Where its stripes lie.
    pub area: Range<u64>,
    /// The cipher of the stripes.
    pub encryption: String,
    /// Bytes of the cipher's key.
    pub cipher_key_len: usize,
    /// The hash of the stripes.
    pub hash: String,
    /// KDF that makes the cipher's key of a passphrase.
    pub kdf: Pbkdf,
    /// The KDF's salt; none of a slot that nothing was sealed in yet.
    pub salt: Vec<u8>,
}

/// Contents of a slot's area.
pub(super) type Material = SecretVec;

impl Slot {
    /// The slot of a header of LUKS1.
    pub fn of_luks1(header: &luks1::Header, slot: &luks1::Slot) -> Slot {
        let key_len = usize_of(header.key_bytes);
        Slot {
            key_len,
            area: header.area(slot),
            encryption: header.encryption(),
            cipher_key_len: key_len,
            hash: header.hash.clone(),
            kdf: Pbkdf::Pbkdf2 { hash: header.hash.clone(), iterations: slot.iterations },
            salt: slot.salt.to_vec(),
        }
    }

    /// The slot that metadata of LUKS2 describe.
    ///
    /// # Errors
    /// `Unsupported` for another kind of slot, another KDF, or keys of a size that no cipher takes; `Corrupt` for a salt that
    /// is none.
    pub fn of_luks2(keyslot: &Keyslot, cpu: Cpu) -> Result<Slot, Error> {
        let area = &keyslot.area;
        if keyslot.key_size > LONGEST_KEY || area.key_size > LONGEST_KEY {
            let text = format!("keys of {} and {} bytes", keyslot.key_size, area.key_size);
            return Err(Error::unsupported(text));
        }
        let kdf = keyslot.pbkdf()?.clone();
        let salt = keyslot.kdf.as_ref().map_or("", |kdf| &kdf.salt);
        let salt = decode(salt, "salt", cpu)?;
        if salt.len() != SALT_LEN {
            return Err(Error::corrupt(format!("a salt of {} bytes", salt.len())));
        }
        Ok(Slot {
            key_len: usize_of(keyslot.key_size),
            area: area.offset..area.offset.saturating_add(area.size),
            encryption: area.encryption.clone(),
            cipher_key_len: usize_of(area.key_size),
            hash: keyslot.af_hash.clone(),
            kdf,
            salt,
        })
    }

    /// A slot of LUKS2 for a key, with its area from `start` on. It has the cipher of the data if that is one that every
    /// cryptsetup can do by itself.
    pub fn new(start: u64, key_len: usize, cipher: &str, hash: &str, kdf: Pbkdf) -> Result<Slot, Error> {
        let (encryption, cipher_key_len) = match cipher.starts_with("aes-") {
            true => (cipher.to_owned(), key_len),
            false => ("aes-xts-plain64".to_owned(), 64),
        };
        let area = start..start.saturating_add(area_len(key_len)?);
        Ok(Slot { key_len, area, encryption, cipher_key_len, hash: hash.to_owned(), kdf, salt: Vec::new() })
    }

    /// The slot with a cipher, if it is named.
    pub fn with_cipher(mut self, cipher: Option<&AreaCipher>) -> Slot {
        if let Some(AreaCipher { cipher, key_len }) = cipher {
            (self.encryption, self.cipher_key_len) = (cipher.clone(), *key_len);
        }
        self
    }

    /// The cipher of the stripes, under the key that a passphrase makes.
    pub fn cipher(
        &self,
        passphrase: &SecretVec,
        limits: &KdfLimits,
        providers: &Providers,
    ) -> Result<SectorCipher, Error> {
        let key = self.kdf.derive(&self.salt, passphrase, self.cipher_key_len, limits, providers)?;
        let mut params = Params::new(self.encryption.parse()?);
        params.allow_equal_halves = true;
        SectorCipher::new(&params, key.expose(), providers)
    }

    /// Bytes of the stripes, in whole sectors, if the area has room for them.
    pub fn material_len(&self) -> Result<usize, Error> {
        let len =
            af::material_len(self.key_len).filter(|len| u64_of(*len) <= self.area.end - self.area.start);
        len.ok_or_else(|| Error::corrupt(format!("its area has no room for a key of {} bytes", self.key_len)))
    }

    /// Splits a key, and encrypts it under what becomes of the passphrase with a new salt.
    pub fn seal(
        &mut self,
        passphrase: &SecretVec,
        key: &SecretVec,
        random: &mut Source,
        providers: &Providers,
    ) -> Result<Material, Error> {
        self.check_opens(passphrase, providers)?;
        self.salt = vec![0; SALT_LEN];
        random.fill(&mut self.salt)?;
        let cipher = self.cipher(passphrase, &ALL, providers)?;
        let hash = providers.hash(&self.hash)?;
        let mut material = af::split(key, &hash, &mut |bytes| random.fill(bytes))?;
        cipher.encrypt(0, material.expose_mut())?;
        Ok(material)
    }

    /// Refuses a new slot that could not be opened afterwards, whatever costs are granted: every slot is sealed through here.
    ///
    /// # Errors
    /// `Argument`, `Unsupported`.
    pub fn check_opens(&self, passphrase: &SecretVec, providers: &Providers) -> Result<(), Error> {
        self.kdf.check()?;
        if is_null(&self.encryption) && !passphrase.is_empty() {
            let text = format!("a key slot with the cipher {} hides nothing", self.encryption);
            return Err(Error::argument(text));
        }
        if self.key_len > usize_of(LONGEST_KEY) || self.cipher_key_len > usize_of(LONGEST_KEY) {
            let text = format!("keys of {} and {} bytes", self.key_len, self.cipher_key_len);
            return Err(Error::argument(text));
        }
        self.kdf.cost(self.cipher_key_len, providers)?;
        check_hash(&self.hash, *DIGEST_LEN.start(), providers)
    }

    /// The key that lies in the slot, if the passphrase is the slot's: only a digest tells.
    pub fn unseal(
        &self,
        device: &dyn BlockDevice,
        passphrase: &SecretVec,
        limits: &KdfLimits,
        providers: &Providers,
    ) -> Result<SecretVec, Error> {
        let len = self.material_len()?;
        let hash = providers.hash(&self.hash)?;
        let cipher = self.cipher(passphrase, limits, providers)?;
        let mut material = SecretVec::zeroed(len);
        device.read_at(material.expose_mut(), self.area.start)?;
        cipher.decrypt(0, material.expose_mut())?;
        af::merge(material.expose(), self.key_len, &hash)
    }

    /// Notes in a slot of LUKS1 what opens it.
    pub fn put_luks1(&self, slot: &mut luks1::Slot) {
        if let (Pbkdf::Pbkdf2 { iterations, .. }, Ok(salt)) = (&self.kdf, (&*self.salt).try_into()) {
            (slot.state, slot.iterations, slot.salt) = (SlotState::Enabled, *iterations, salt);
        }
    }

    /// The slot as metadata of LUKS2 describe it.
    pub fn to_json(&self, cpu: Cpu) -> Object {
        let af = Object::default()
            .with("type", "luks1")
            .with("stripes", u32_of(af::STRIPES))
            .with("hash", &*self.hash);
        let area = Object::default()
            .with("type", "raw")
            .with("offset", self.area.start.to_string())
            .with("size", (self.area.end - self.area.start).to_string())
            .with("encryption", &*self.encryption)
            .with("key_size", u32_of(self.cipher_key_len));
        let kdf = Object::default().with("type", self.kdf.name());
        let kdf = match &self.kdf {
            Pbkdf::Pbkdf2 { hash, iterations } => kdf.with("hash", &**hash).with("iterations", *iterations),
            Pbkdf::Argon2(argon2) => {
                kdf.with("time", argon2.passes).with("memory", argon2.memory).with("cpus", argon2.lanes)
            }
        };
        Object::default()
            .with("type", "luks2")
            .with("key_size", u32_of(self.key_len))
            .with("af", af)
            .with("area", area)
            .with("kdf", kdf.with("salt", encode(&self.salt, cpu)))
    }
}

/// Bytes of the area of a key's stripes, in whole pages.
pub(super) fn area_len(key_len: usize) -> Result<u64, Error> {
    let len = af::material_len(key_len).and_then(|len| len.checked_next_multiple_of(4096));
    len.map(u64_of).ok_or_else(|| Error::argument(format!("a volume key of {key_len} bytes")))
}

/// Limits of a slot that its owner asks for: none.
pub(super) const ALL: KdfLimits = KdfLimits { memory: u32::MAX, work: u64::MAX, iterations: u64::MAX };

/// Refuses a hash whose digests are too short to tell keys by.
///
/// # Errors
/// `Argument`; `Unsupported` for an unknown hash.
pub(super) fn check_hash(hash: &str, least: usize, providers: &Providers) -> Result<(), Error> {
    match providers.hash(hash)?.digest_len() {
        len if len < least => {
            Err(Error::argument(format!("{hash} has digests of {len} bytes, and {least} are needed")))
        }
        _ => Ok(()),
    }
}

/// The digest of a volume key.
pub(super) fn digest(
    key: &SecretVec,
    hash: &str,
    salt: &[u8],
    iterations: u32,
    len: usize,
    providers: &Providers,
) -> Result<SecretVec, Error> {
    Ok(pbkdf2(providers.hash(hash)?, key.expose(), salt, iterations, len, &ALL)?)
}
