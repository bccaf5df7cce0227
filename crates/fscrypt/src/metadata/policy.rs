//! Files of policies: master keys, wrapped under protectors' keys.

use casemate_primitives::secret::SecretVec;

use prost::Message;

use super::message::{EncryptionOptions, PolicyData, WrappedPolicyKey, decode};
use super::wrapped::WrappedKey;
use super::{ProtectorId, ProtectorKey};
use casemate_providers::Providers;

use crate::key::MasterKey;
use crate::key_id::KeyId;
use crate::policy::{Ivs, Policy};
use crate::{Code, Error, Result};

/// Bytes of the master keys that the tool makes, whatever the mode.
const MASTER_LEN: usize = 64;

/// A policy's file: the name of a master key, and the key wrapped for each protector.
#[derive(Clone, Debug)]
pub struct PolicyFile {
    key: KeyId,
    options: EncryptionOptions,
    slots: Vec<(ProtectorId, WrappedKey)>,
}

impl PolicyFile {
    /// Reads a policy's file, one protobuf message.
    ///
    /// # Errors
    /// `Corrupt` for bytes that are not such a message or has fields of wrong lengths; `Unsupported` for an
    /// unknown version.
    pub fn from_bytes(bytes: &[u8]) -> Result<PolicyFile> {
        let data: PolicyData = decode("policy", bytes)?;
        let options = data.options.unwrap_or_default();
        let version = options.policy_version;
        let key = KeyId::from_hex(&data.key_descriptor);
        let key = match (version, key) {
            // Files of the time before versions have none.
            (0 | 1, Some(key @ KeyId::Descriptor(_))) | (2, Some(key @ KeyId::Identifier(_))) => key,
            (0..=2, _) => {
                let text = format!("policy: {:?} is not a key of version {version}", data.key_descriptor);
                return Err(Error::corrupt(text));
            }
            _ => return Err(Error::unsupported(format!("policy: version {version} is unknown"))),
        };
        let slots = data.wrapped_policy_keys.into_iter().map(|slot| {
            let descriptor = &slot.protector_descriptor;
            let id = ProtectorId::from_hex(descriptor);
            let id =
                id.ok_or_else(|| Error::corrupt(format!("policy: {descriptor:?} is not a protector")))?;
            Ok((id, WrappedKey::new("policy", slot.wrapped_key, MASTER_LEN)?))
        });
        Ok(PolicyFile { key, options, slots: slots.collect::<Result<_>>()? })
    }

    /// The file of a policy that nothing protects yet.
    ///
    /// # Errors
    /// `Argument` for a policy that the tool does not know: with flags, or data units of its own.
    pub fn new(policy: &Policy) -> Result<PolicyFile> {
        if policy.ivs != Ivs::PerFileKey || policy.log2_data_unit_size != 0 {
            let text = "google/fscrypt knows no policies with flags or data units of their own";
            return Err(Error::argument(text));
        }
        let options = EncryptionOptions {
            padding: i64::try_from(policy.padding).unwrap_or(i64::MAX),
            contents: policy.contents.number().into(),
            filenames: policy.names.number().into(),
            policy_version: match policy.key {
                KeyId::Descriptor(_) => 1,
                KeyId::Identifier(_) => 2,
            },
        };
        Ok(PolicyFile { key: policy.key, options, slots: Vec::new() })
    }

    /// Adds a protector that opens the policy, whose master key of 64 bytes this is; `iv` is random.
    ///
    /// # Errors
    /// `Argument` for a key of another length.
    pub fn protect(
        &mut self,
        providers: &Providers,
        protector: &ProtectorKey,
        master: &SecretVec,
        iv: [u8; 16],
    ) -> Result<()> {
        if master.len() != MASTER_LEN {
            return Err(Error::argument(format!(
                "the master key has {} bytes, and the fscrypt tool's have {MASTER_LEN}",
                master.len()
            )));
        }
        let wrapped = WrappedKey::wrap(providers, &protector.key, master, iv)?;
        self.slots.push((protector.id, wrapped));
        Ok(())
    }

    /// The policy's file, one protobuf message.
    pub fn to_bytes(&self) -> Vec<u8> {
        let slots = self.slots.iter().map(|(id, wrapped)| WrappedPolicyKey {
            protector_descriptor: id.to_string(),
            wrapped_key: Some(wrapped.to_data()),
        });
        let data = PolicyData {
            key_descriptor: self.key.to_string(),
            options: Some(self.options.clone()),
            wrapped_policy_keys: slots.collect(),
        };
        data.encode_to_vec()
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
            return Err(Error::coded(Code::WrongKey, format!("{}: the wrapped key is damaged", place())));
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
