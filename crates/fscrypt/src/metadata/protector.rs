//! Protectors: keys that a passphrase or a key file opens, and that open policies.

use std::fmt;

use casemate_primitives::secret::SecretVec;
use casemate_providers::{Argon2, Argon2Variant, KdfError, KdfLimits, Providers};

use prost::Message;

use super::message::{HashingCosts, ProtectorData, decode};
use super::wrapped::{WRAPPING_LEN, WrappedKey};
use super::{ProtectorId, wrapped};
use crate::key::MasterKey;
use crate::{Code, Error, Result};

/// A protector's file: a key, wrapped under what a passphrase or a key file gives.
#[derive(Clone, Debug)]
pub struct Protector {
    id: ProtectorId,
    name: String,
    source: Source,
    wrapped: WrappedKey,
}

/// The kind of secret that opens a protector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The passphrase with which a user logs in.
    Login {
        /// The user's number.
        uid: u32,
        /// How the passphrase becomes a key.
        hashing: Hashing,
    },
    /// A passphrase of its own.
    Passphrase(Hashing),
    /// A key of 32 bytes.
    RawKey,
}

/// The costs and salt with which Argon2id makes a key of a passphrase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hashing {
    /// Memory in KiB, passes and lanes of Argon2id.
    pub costs: Argon2,
    /// The salt of 16 bytes.
    pub salt: [u8; 16],
}

/// A protector's key; wiped when dropped.
#[derive(Clone)]
pub struct ProtectorKey {
    pub(super) id: ProtectorId,
    pub(super) key: SecretVec,
}

impl Protector {
    /// Reads a protector's file, one protobuf message.
    ///
    /// # Errors
    /// `Corrupt` for bytes that are not such a message or has fields of wrong lengths; `Unsupported` for a
    /// source that is unknown.
    pub fn from_bytes(bytes: &[u8]) -> Result<Protector> {
        let data: ProtectorData = decode("protector", bytes)?;
        let descriptor = &data.protector_descriptor;
        let id = ProtectorId::from_hex(descriptor).ok_or_else(|| {
            Error::corrupt(format!("protector: {descriptor:?} is not a descriptor of 16 hexadecimal digits"))
        })?;
        let hashing = || Hashing::new(data.costs.as_ref(), &data.salt);
        let source = match data.source {
            1 => {
                let uid = data.uid.try_into();
                let uid = uid.map_err(|_| Error::corrupt(format!("protector: user {}", data.uid)))?;
                Source::Login { uid, hashing: hashing()? }
            }
            2 => Source::Passphrase(hashing()?),
            3 => Source::RawKey,
            other => return Err(Error::unsupported(format!("protector: source {other} is unknown"))),
        };
        let wrapped = WrappedKey::new("protector", data.wrapped_key, WRAPPING_LEN)?;
        Ok(Protector { id, name: data.name, source, wrapped })
    }

    /// A new protector with a random key, which a passphrase or a raw key of 32 bytes opens: `source` says which, and at which
    /// costs. `key` and `iv` are random.
    ///
    /// # Errors
    /// `Argument` for a raw key of another length; `Unsupported` for costs above the limits.
    pub fn create(
        providers: &Providers,
        name: &str,
        source: Source,
        secret: &[u8],
        random: (SecretVec, [u8; 16]),
        limits: &KdfLimits,
    ) -> Result<(Protector, ProtectorKey)> {
        let (key, iv) = random;
        let id = ProtectorId(MasterKey::new(providers, key.clone())?.descriptor());
        let wrapping = match &source {
            Source::Login { hashing, .. } | Source::Passphrase(hashing) => hashing.key(secret, limits)?,
            Source::RawKey if secret.len() == WRAPPING_LEN => secret.into(),
            Source::RawKey => {
                let text = format!("a raw key has {WRAPPING_LEN} bytes, not {}", secret.len());
                return Err(Error::argument(text));
            }
        };
        let wrapped = WrappedKey::wrap(providers, &wrapping, &key, iv)?;
        Ok((Protector { id, name: name.to_owned(), source, wrapped }, ProtectorKey { id, key }))
    }

    /// The protector's file, one protobuf message.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (source, uid, hashing) = match self.source {
            Source::Login { uid, hashing } => (1, uid.into(), Some(hashing)),
            Source::Passphrase(hashing) => (2, 0, Some(hashing)),
            Source::RawKey => (3, 0, None),
        };
        let costs = hashing.map(|Hashing { costs, .. }| HashingCosts {
            time: costs.passes.into(),
            memory: costs.memory.into(),
            parallelism: costs.lanes.into(),
            truncation_fixed: true,
        });
        let data = ProtectorData {
            protector_descriptor: self.id.to_string(),
            source,
            name: self.name.clone(),
            costs,
            salt: hashing.map_or(Vec::new(), |hashing| hashing.salt.to_vec()),
            uid,
            wrapped_key: Some(self.wrapped.to_data()),
        };
        data.encode_to_vec()
    }

    /// Opens the protector with a passphrase, or with the 32 bytes of its raw key. Its file names the costs, and `limits`
    /// grants them: the tool itself takes at most 128 MiB of memory.
    ///
    /// # Errors
    /// `Mismatch` for a wrong secret: it can't be told from a damaged file. `Unsupported` for costs above the limits.
    pub fn unlock(&self, providers: &Providers, secret: &[u8], limits: &KdfLimits) -> Result<ProtectorKey> {
        let wrapping = match &self.source {
            Source::Login { hashing, .. } | Source::Passphrase(hashing) => hashing.key(secret, limits)?,
            Source::RawKey if secret.len() == WRAPPING_LEN => secret.into(),
            Source::RawKey => {
                let text = format!("{self}: its key has {WRAPPING_LEN} bytes, not {}", secret.len());
                return Err(Error::coded(Code::WrongKey, text));
            }
        };
        let Some(key) = self.wrapped.unwrap(providers, &wrapping)? else {
            return Err(Error::coded(Code::WrongKey, format!("{self}: wrong secret, or a damaged file")));
        };
        if MasterKey::new(providers, key.clone())?.descriptor() != self.id.0 {
            return Err(Error::corrupt(format!("{self}: the key inside has another descriptor")));
        }
        Ok(ProtectorKey { id: self.id, key })
    }

    /// The memory in KiB that all passes of a passphrase's derivation fill together; 0 for a raw key.
    pub fn work(&self) -> u64 {
        match self.source {
            Source::Login { hashing, .. } | Source::Passphrase(hashing) => {
                u64::from(hashing.costs.passes) * u64::from(hashing.costs.memory)
            }
            Source::RawKey => 0,
        }
    }

    /// The name that policies have for the protector.
    pub fn id(&self) -> ProtectorId {
        self.id
    }

    /// The name that the protector's owner gave, often empty.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kind of secret that opens the protector.
    pub fn source(&self) -> Source {
        self.source
    }
}

impl fmt::Display for Protector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "protector {}", self.id)?;
        match self.source {
            Source::Login { uid, .. } => write!(f, " (login passphrase of user {uid})"),
            Source::Passphrase(_) => write!(f, " (passphrase {:?})", self.name),
            Source::RawKey => write!(f, " (raw key {:?})", self.name),
        }
    }
}

impl Hashing {
    fn new(costs: Option<&HashingCosts>, salt: &[u8]) -> Result<Hashing> {
        let corrupt = |text: String| Error::corrupt(format!("protector: {text}"));
        let costs = costs.ok_or_else(|| corrupt("the costs of hashing are missing".to_owned()))?;
        let lanes = match u8::try_from(costs.parallelism) {
            Ok(lanes) => lanes,
            // Old versions of the tool took the low 8 bits, and what they made must be opened the same way.
            Err(_) if !costs.truncation_fixed => costs.parallelism.to_le_bytes()[0],
            Err(_) => 0,
        };
        let (passes, memory) = (u32::try_from(costs.time), u32::try_from(costs.memory));
        let (Ok(passes @ 1..), Ok(memory), 1..) = (passes, memory, lanes) else {
            return Err(corrupt(format!(
                "Argon2 with {} passes, {} KiB and {} lanes",
                costs.time, costs.memory, costs.parallelism
            )));
        };
        let salt = salt
            .try_into()
            .map_err(|_| corrupt(format!("{} bytes of salt where there should be 16", salt.len())))?;
        let costs = Argon2 { variant: Argon2Variant::Id, passes, memory, lanes: lanes.into() };
        Ok(Hashing { costs, salt })
    }

    fn key(&self, passphrase: &[u8], limits: &KdfLimits) -> Result<SecretVec> {
        let key = self.costs.derive(passphrase, &self.salt, wrapped::WRAPPING_LEN, limits);
        key.map_err(|error| {
            let text = format!("protector: {error}");
            match error {
                KdfError::TooExpensive(_) => Error::unsupported(text),
                KdfError::Stopped => error.into(),
                _ => Error::corrupt(text),
            }
        })
    }
}

impl fmt::Debug for ProtectorKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProtectorKey({})", self.id)
    }
}
