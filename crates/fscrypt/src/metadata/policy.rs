//! Files of policies: master keys, wrapped under protectors' keys.

use casemate_primitives::secret::SecretVec;

use super::message::{PolicyData, decode};
use super::wrapped::WrappedKey;
use super::{ProtectorId, ProtectorKey};
use casemate_providers::Providers;

use crate::key::{KeyId, MasterKey};
use crate::{Error, Result};

/// Bytes of the master keys that the tool makes, whatever the mode.
const MASTER_LEN: usize = 64;

/// A policy's file: the name of a master key, and the key wrapped for each protector.
#[derive(Clone, Debug)]
pub struct PolicyFile {
    key: KeyId,
    slots: Vec<(ProtectorId, WrappedKey)>,
}

impl PolicyFile {
    /// Reads a policy's file, one protobuf message.
    ///
    /// # Errors
    /// `Corrupt` for what is no such message or has fields of wrong lengths; `Unsupported` for an
    /// unknown version.
    pub fn from_bytes(bytes: &[u8]) -> Result<PolicyFile> {
        let data: PolicyData = decode("policy", bytes)?;
        let version = data.options.map_or(0, |options| options.policy_version);
        let key = KeyId::from_hex(&data.key_descriptor);
        let key = match (version, key) {
            // Files of the time before versions have none.
            (0 | 1, Some(key @ KeyId::Descriptor(_))) | (2, Some(key @ KeyId::Identifier(_))) => key,
            (0..=2, _) => {
                let text = format!("policy: {:?} is no key of version {version}", data.key_descriptor);
                return Err(Error::corrupt(text));
            }
            _ => return Err(Error::unsupported(format!("policy: version {version} is unknown"))),
        };
        let slots = data.wrapped_policy_keys.into_iter().map(|slot| {
            let descriptor = &slot.protector_descriptor;
            let id = ProtectorId::from_hex(descriptor);
            let id = id.ok_or_else(|| Error::corrupt(format!("policy: {descriptor:?} is no protector")))?;
            Ok((id, WrappedKey::new("policy", slot.wrapped_key, MASTER_LEN)?))
        });
        Ok(PolicyFile { key, slots: slots.collect::<Result<_>>()? })
    }

    /// Opens the policy with a protector's key, and gives the master key of 64 bytes.
    ///
    /// # Errors
    /// `Argument` if it is not a protector of this policy; `Mismatch` if its key does not open it;
    /// `Corrupt` if what is inside is not the key that the policy names.
    pub fn unlock(&self, providers: &Providers, protector: &ProtectorKey) -> Result<SecretVec> {
        let place = || format!("policy {}, protector {}", self.key, protector.id);
        let Some((_, wrapped)) = self.slots.iter().find(|(id, _)| *id == protector.id) else {
            return Err(Error::argument(format!("{}: it does not protect this policy", place())));
        };
        let Some(secret) = wrapped.unwrap(providers, &protector.key)? else {
            return Err(Error::mismatch(format!("{}: the wrapped key is damaged", place())));
        };
        let key = MasterKey::new(providers, secret.clone())?;
        let id = match self.key {
            KeyId::Descriptor(_) => KeyId::from(key.descriptor()),
            KeyId::Identifier(_) => KeyId::from(key.identifier()),
        };
        if id != self.key {
            let text = format!("{}: the key inside has the {} {id}", place(), id.kind());
            return Err(Error::corrupt(text));
        }
        Ok(secret)
    }

    /// The name that the policy has for its master key.
    pub fn key(&self) -> KeyId {
        self.key
    }

    /// The names of the protectors, each of which opens the policy.
    pub fn protectors(&self) -> impl Iterator<Item = ProtectorId> {
        self.slots.iter().map(|(id, _)| *id)
    }
}
