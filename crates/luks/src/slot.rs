//! Key slots that are filled: the volume key as stripes, encrypted under a passphrase.

use std::ops::Range;

use crate::af;
use crate::json::Object;
use crate::luks1::{self, SALT_LEN, SlotState};
use crate::luks2::{self, Kdf, Keyslot};
use casemate_crypt::{Params, SectorCipher};
use casemate_primitives::secret::SecretVec;
use casemate_providers::{Argon2, Argon2Variant, KdfLimits, Providers, pbkdf2};

use super::random::Source;
use super::unlock::Derivation;
use crate::Error;

/// What makes a key of a passphrase, and at what cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pbkdf {
    /// PBKDF2.
    Pbkdf2 {
        /// The hash's name.
        hash: String,
        /// The number of iterations: at least 1000.
        iterations: u32,
    },
    /// Argon2i or Argon2id: at least 4 passes, 32 KiB, and at most 4 lanes, as cryptsetup takes them.
    Argon2(Argon2),
}

/// Iterations of PBKDF2 where none are named: about a second of a core with instructions for SHA-256.
const ITERATIONS: u32 = 4_000_000;

impl Pbkdf {
    /// PBKDF2 with a hash, at the usual costs.
    pub fn pbkdf2(hash: &str) -> Pbkdf {
        Pbkdf::Pbkdf2 { hash: hash.to_owned(), iterations: ITERATIONS }
    }

    /// Argon2id at the costs that cryptsetup chooses at the most: 4 passes over 1 GiB, in 4 lanes.
    pub fn argon2id() -> Pbkdf {
        Pbkdf::Argon2(Argon2 { variant: Argon2Variant::Id, passes: 4, memory: 1 << 20, lanes: 4 })
    }

    /// The KDF and the costs of a key slot of LUKS2.
    pub(super) fn of(slot: &Keyslot) -> Result<Pbkdf, Error> {
        match &slot.kdf {
            Some(Kdf::Pbkdf2 { hash, iterations, .. }) => {
                Ok(Pbkdf::Pbkdf2 { hash: hash.clone(), iterations: *iterations })
            }
            Some(Kdf::Argon2 { kind, time, memory, cpus, .. }) => {
                let variant = if kind == "argon2i" { Argon2Variant::I } else { Argon2Variant::Id };
                Ok(Pbkdf::Argon2(Argon2 { variant, passes: *time, memory: *memory, lanes: *cpus }))
            }
            Some(Kdf::Other(name)) => Err(Error::unsupported(format!("its KDF is {name}"))),
            None => Err(Error::unsupported(format!("it is of type '{}'", slot.kind))),
        }
    }

    /// Refuses what a header of LUKS1 with a hash can't name.
    pub(super) fn check_luks1(&self, hash: &str) -> Result<(), Error> {
        match self {
            Pbkdf::Pbkdf2 { hash: own, .. } if own == hash => Ok(()),
            _ => Err(Error::argument("LUKS1 has PBKDF2 with the header's hash only; LUKS2 has more")),
        }
    }

    pub(super) fn derivation(&self, salt: &[u8]) -> Derivation {
        let salt = salt.to_vec();
        match self {
            Pbkdf::Pbkdf2 { hash, iterations } => {
                Derivation::Pbkdf2 { hash: hash.clone(), iterations: *iterations, salt }
            }
            Pbkdf::Argon2(argon2) => Derivation::Argon2(*argon2, salt),
        }
    }

    /// Refuses costs that cryptsetup would not take.
    pub(super) fn check(&self) -> Result<(), Error> {
        match self {
            Pbkdf::Pbkdf2 { iterations, .. } if *iterations < 1000 => {
                Err(Error::argument(format!("{iterations} iterations of PBKDF2: at least 1000")))
            }
            Pbkdf::Argon2(Argon2 { passes, memory, lanes, .. })
                if *passes < 4 || !(32..=4 << 20).contains(memory) || !(1..=4).contains(lanes) =>
            {
                Err(Error::argument(format!(
                    "{passes} passes of Argon2 over {memory} KiB in {lanes} lanes: at least 4 passes, 32 KiB to 4 GiB, and \
                     1 to 4 lanes"
                )))
            }
            _ => Ok(()),
        }
    }
}

/// Bytes of the area of a key's stripes, in whole pages.
pub(super) fn area_len(key_len: usize) -> Result<u64, Error> {
    let len = af::material_len(key_len).and_then(|len| len.checked_next_multiple_of(4096));
    len.map(|len| len as u64).ok_or_else(|| Error::argument(format!("a volume key of {key_len} bytes")))
}

/// Where a key goes, and how it is encrypted there.
#[derive(Clone, Debug)]
pub(super) struct SlotPlace {
    pub area: Range<u64>,
    pub encryption: String,
    pub cipher_key_len: usize,
    /// The hash of the stripes.
    pub hash: String,
}

/// A key slot that can be written.
pub(super) struct Sealed {
    pub place: SlotPlace,
    pub pbkdf: Pbkdf,
    pub salt: [u8; SALT_LEN],
    /// The area's contents.
    pub material: SecretVec,
}

impl SlotPlace {
    pub fn of_luks1(header: &luks1::Header, slot: &luks1::Slot) -> SlotPlace {
        SlotPlace {
            area: header.area(slot),
            encryption: header.encryption(),
            // OK to cast: 32 bits.
            cipher_key_len: header.key_bytes as usize,
            hash: header.hash.clone(),
        }
    }

    /// An area from `start` on. It has the cipher of the data if that is one that every cryptsetup can do by itself.
    pub fn of_luks2(start: u64, key_len: usize, cipher: &str, hash: &str) -> Result<SlotPlace, Error> {
        let (encryption, cipher_key_len) = match cipher.starts_with("aes-") {
            true => (cipher.to_owned(), key_len),
            false => ("aes-xts-plain64".to_owned(), 64),
        };
        let area = start..start.saturating_add(area_len(key_len)?);
        Ok(SlotPlace { area, encryption, cipher_key_len, hash: hash.to_owned() })
    }

    /// The same with a cipher and bytes of its key, if they are named.
    pub fn with_cipher(mut self, cipher: Option<&(String, usize)>) -> SlotPlace {
        if let Some((encryption, key_len)) = cipher {
            (self.encryption, self.cipher_key_len) = (encryption.clone(), *key_len);
        }
        self
    }

    /// Splits the key, and encrypts it under what becomes of the passphrase.
    pub fn seal(
        &self,
        passphrase: &SecretVec,
        volume_key: &SecretVec,
        pbkdf: &Pbkdf,
        random: &mut Source,
        providers: &Providers,
    ) -> Result<Sealed, Error> {
        pbkdf.check()?;
        let mut salt = [0; SALT_LEN];
        random.fill(&mut salt)?;
        let key = pbkdf.derivation(&salt).derive(passphrase, self.cipher_key_len, &ALL, providers)?;
        let mut params = Params::new(self.encryption.parse()?);
        params.allow_equal_halves = true;
        let cipher = SectorCipher::new(&params, key.expose(), providers)?;
        let hash = providers.hash(&self.hash)?;
        let mut material = af::split(volume_key, &hash, &mut |bytes| random.fill(bytes))?;
        cipher.encrypt(0, material.expose_mut())?;
        Ok(Sealed { place: self.clone(), pbkdf: pbkdf.clone(), salt, material })
    }
}

/// What a slot may cost that its owner asks for.
pub(super) const ALL: KdfLimits = KdfLimits { memory: u32::MAX, work: u64::MAX, iterations: u64::MAX };

impl Sealed {
    /// Notes in a slot of LUKS1 what opens it.
    pub fn put_luks1(&self, slot: &mut luks1::Slot) {
        if let Pbkdf::Pbkdf2 { iterations, .. } = self.pbkdf {
            (slot.state, slot.iterations, slot.salt) = (SlotState::Enabled, iterations, self.salt);
        }
    }

    /// What the metadata of LUKS2 say of the slot.
    pub fn to_json(&self, key_len: usize) -> Object {
        keyslot_json(key_len, &self.place, &self.pbkdf, &self.salt)
    }
}

/// What the metadata of LUKS2 say of a key slot.
pub(super) fn keyslot_json(key_len: usize, place: &SlotPlace, pbkdf: &Pbkdf, salt: &[u8]) -> Object {
    let salt = luks2::encode(salt);
    let af = Object::default()
        .with("type", "luks1")
        .with("stripes", af::STRIPES as u32)
        .with("hash", &*place.hash);
    let area = Object::default()
        .with("type", "raw")
        .with("offset", place.area.start.to_string())
        .with("size", (place.area.end - place.area.start).to_string())
        .with("encryption", &*place.encryption)
        .with("key_size", place.cipher_key_len as u32);
    let kdf = match pbkdf {
        Pbkdf::Pbkdf2 { hash, iterations } => Object::default()
            .with("type", "pbkdf2")
            .with("hash", &**hash)
            .with("iterations", *iterations)
            .with("salt", salt),
        Pbkdf::Argon2(argon2) => Object::default()
            .with("type", argon2.name())
            .with("time", argon2.passes)
            .with("memory", argon2.memory)
            .with("cpus", argon2.lanes)
            .with("salt", salt),
    };
    Object::default()
        .with("type", "luks2")
        // OK to cast: keys have at most 1024 bytes.
        .with("key_size", key_len as u32)
        .with("af", af)
        .with("area", area)
        .with("kdf", kdf)
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
