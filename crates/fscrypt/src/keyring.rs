//! Master keys by what policies call them.

use std::collections::HashMap;
use std::sync::Arc;

use casemate_primitives::secret::SecretVec;

use crate::crypto::Crypto;
use crate::error::Result;
use crate::key::{KeyDescriptor, KeyId, MasterKey};

/// The master keys that somebody has.
#[derive(Clone, Debug)]
pub struct Keyring {
    crypto: Crypto,
    keys: HashMap<KeyId, Arc<MasterKey>>,
}

impl Keyring {
    /// A ring without keys.
    pub fn new(crypto: Crypto) -> Keyring {
        Keyring { crypto, keys: HashMap::new() }
    }

    /// Adds a key under everything that it may be called: its identifier, its usual descriptor, and for 32 bytes
    /// the identifier that a hardware-wrapped key with this software secret has. Returns these, in that order.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) for a length that no master key has.
    pub fn add(&mut self, secret: SecretVec) -> Result<Vec<KeyId>> {
        let key = MasterKey::new(&self.crypto, secret.clone())?;
        let mut ids = vec![key.identifier().into(), key.descriptor().into()];
        let key = Arc::new(key);
        for id in &ids {
            self.keys.insert(*id, Arc::clone(&key));
        }
        if let Ok(key) = MasterKey::from_software_secret(&self.crypto, secret) {
            let id = key.identifier().into();
            self.keys.insert(id, Arc::new(key));
            ids.push(id);
        }
        Ok(ids)
    }

    /// Adds a key under a descriptor that somebody chose.
    ///
    /// # Errors
    /// As [`Keyring::add`].
    pub fn add_with_descriptor(&mut self, descriptor: KeyDescriptor, secret: SecretVec) -> Result<()> {
        let key = MasterKey::new(&self.crypto, secret)?;
        self.keys.insert(descriptor.into(), Arc::new(key));
        Ok(())
    }

    /// The key that a policy names, if it is here.
    pub fn get(&self, id: &KeyId) -> Option<&Arc<MasterKey>> {
        self.keys.get(id)
    }

    /// Whether there is no key at all.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// What does the work.
    pub fn crypto(&self) -> &Crypto {
        &self.crypto
    }
}
