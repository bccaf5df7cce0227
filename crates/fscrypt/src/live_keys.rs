//! Keys that come and go while a file system is open.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use casemate_primitives::secret::SecretVec;
use casemate_providers::Providers;

use crate::{Error, KeyDescriptor, KeyId, Keyring, MasterKey};

/// The keys that an open file system reads encrypted files with. What was opened with a key goes on to be read with it.
#[derive(Clone)]
pub struct LiveKeys {
    ring: Arc<RwLock<Keyring>>,
    providers: Providers,
}

impl LiveKeys {
    /// The keys of a ring.
    pub fn new(ring: Keyring) -> LiveKeys {
        LiveKeys { providers: ring.providers().clone(), ring: Arc::new(RwLock::new(ring)) }
    }

    /// Adds a raw master key of 16 to 64 bytes, under a descriptor of the caller's choice if there is one, else under all
    /// names that policies may have for it.
    ///
    /// # Errors
    /// `Argument` for a length that no master key has.
    pub fn add(&self, descriptor: Option<KeyDescriptor>, key: SecretVec) -> Result<(), Error> {
        let mut added = Keyring::new(self.providers.clone());
        added.add_as(descriptor, key)?;
        self.ring.write().unwrap_or_else(PoisonError::into_inner).add_all(&added);
        Ok(())
    }

    /// Removes the key that a policy names, under all its names; whether it was there.
    pub fn remove(&self, id: &KeyId) -> bool {
        self.ring.write().unwrap_or_else(PoisonError::into_inner).remove(id)
    }

    /// The names of the keys that are there, in their order.
    pub fn ids(&self) -> Vec<KeyId> {
        let ring = self.ring.read().unwrap_or_else(PoisonError::into_inner);
        let mut ids: Vec<KeyId> = ring.ids().copied().collect();
        ids.sort_unstable_by_key(|id| (id.kind(), id.to_string()));
        ids
    }

    /// The master key that a policy names, if it is there.
    pub fn get(&self, id: &KeyId) -> Option<Arc<MasterKey>> {
        self.ring.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    /// The ciphers and hashes that the keys work with.
    pub fn providers(&self) -> &Providers {
        &self.providers
    }
}

impl fmt::Debug for LiveKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.ids()).finish()
    }
}
