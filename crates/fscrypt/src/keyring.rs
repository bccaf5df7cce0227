//! Key rings: master keys by the names that policies have for them.

use std::collections::HashMap;
use std::sync::Arc;

use casemate_primitives::secret::SecretVec;
use casemate_providers::Providers;

use crate::Result;
use crate::key::MasterKey;
use crate::key_id::{KeyDescriptor, KeyId};

/// Master keys, found by the names that policies have for them.
#[derive(Clone, Debug)]
pub struct Keyring {
    providers: Providers,
    keys: HashMap<KeyId, Arc<MasterKey>>,
}

impl Keyring {
    /// A key ring without keys.
    pub fn new(providers: Providers) -> Keyring {
        Keyring { providers, keys: HashMap::new() }
    }

    /// Adds a key under every name that it may have: its identifier, its usual descriptor, and for 32 bytes
    /// the identifier that a hardware-wrapped key with this software secret has. Returns the names, in that
    /// order.
    ///
    /// # Errors
    /// `Argument` for a length that no master key has; `Unsupported` if no implementation of SHA-512 may be used.
    pub fn add(&mut self, secret: SecretVec) -> Result<Vec<KeyId>> {
        let key = MasterKey::new(&self.providers, secret.clone())?;
        let mut ids = vec![key.identifier().into(), key.descriptor().into()];
        let key = Arc::new(key);
        for id in &ids {
            self.keys.insert(*id, Arc::clone(&key));
        }
        if let Ok(key) = MasterKey::from_software_secret(&self.providers, secret) {
            let id = key.identifier().into();
            self.keys.insert(id, Arc::new(key));
            ids.push(id);
        }
        Ok(ids)
    }

    /// Adds a key as [`Keyring::add`] does, or only under a descriptor of the caller's choice, for policies of version 1.
    ///
    /// # Errors
    /// Errors of [`Keyring::add`].
    pub fn add_as(&mut self, descriptor: Option<KeyDescriptor>, secret: SecretVec) -> Result<()> {
        let Some(descriptor) = descriptor else { return self.add(secret).map(drop) };
        let key = MasterKey::new(&self.providers, secret)?;
        self.keys.insert(descriptor.into(), Arc::new(key));
        Ok(())
    }

    /// Adds all keys of another ring.
    pub fn add_all(&mut self, other: &Keyring) {
        self.keys.extend(other.keys.iter().map(|(id, key)| (*id, Arc::clone(key))));
    }

    /// Removes a key under all names that it has; whether it was there.
    pub fn remove(&mut self, id: &KeyId) -> bool {
        let Some(key) = self.keys.get(id).cloned() else { return false };
        self.keys.retain(|_, other| other.secret() != key.secret());
        true
    }

    /// The names of all keys.
    pub fn ids(&self) -> impl Iterator<Item = &KeyId> {
        self.keys.keys()
    }

    /// The master key that a policy names, if the ring has it.
    pub fn get(&self, id: &KeyId) -> Option<&Arc<MasterKey>> {
        self.keys.get(id)
    }

    /// Whether the ring has no keys.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The ciphers and hashes that the ring's keys work with.
    pub fn providers(&self) -> &Providers {
        &self.providers
    }
}
