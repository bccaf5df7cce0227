//! Keys of encrypted files, as they were given: what opens a file system's encrypted folders.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use casemate_primitives::secret::SecretVec;
use casemate_providers::{KdfLimits, Providers, SecretSource};

use crate::key::RAW_LENGTHS;
use crate::metadata::{self, Secret, Taken, ToolFiles};
use crate::{Error, KeyDescriptor, KeyId, Keyring, MasterKey};

/// Keys of encrypted files (fscrypt): raw master keys, and secrets that open the protectors which google/fscrypt keeps in
/// a file system.
///
/// Secrets are read when they are added; which files they open shows when a file system is opened with them.
///
/// ```
/// use casemate_fscrypt::Keys;
/// use casemate_providers::SecretSource;
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("master.key");
/// # std::fs::write(&path, [7; 64])?;
/// let keys = Keys::default().with_raw(&SecretSource::file(&path))?;
/// assert_eq!(format!("{keys:?}"), "Keys(1 raw, 0 secrets)");
/// # Ok::<(), casemate_fscrypt::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Keys {
    raw: Vec<Raw>,
    secrets: Vec<Arc<Secret>>,
    protectors: Vec<PathBuf>,
    /// Policies and protectors that are used instead of those in the file system.
    metadata: Option<Arc<Taken>>,
    limits: KdfLimits,
}

#[derive(Clone)]
struct Raw {
    name: String,
    key: SecretVec,
    descriptor: Option<KeyDescriptor>,
}

impl Keys {
    /// Adds a raw master key of 16 to 64 bytes, as fscryptctl takes it.
    ///
    /// # Errors
    /// `Io`; `Argument` for what is longer than any key.
    pub fn with_raw(mut self, source: &SecretSource) -> Result<Keys, Error> {
        let key = read_raw_key(source)?;
        self.raw.push(Raw { name: source.name(), key, descriptor: None });
        Ok(self)
    }

    /// Adds a raw master key for policies of version 1 that call it by an unusual descriptor.
    ///
    /// # Errors
    /// Errors of [`Keys::with_raw`].
    pub fn with_described(mut self, descriptor: KeyDescriptor, source: &SecretSource) -> Result<Keys, Error> {
        let key = read_raw_key(source)?;
        self.raw.push(Raw { name: source.name(), key, descriptor: Some(descriptor) });
        Ok(self)
    }

    /// Adds what opens a protector: a passphrase (of several lines the first), or the 32 bytes of a raw key.
    ///
    /// # Errors
    /// `Io`; `Argument` for what is longer than any passphrase.
    pub fn with_secret(mut self, source: &SecretSource) -> Result<Keys, Error> {
        self.secrets.push(Arc::new(Secret::read(source)?));
        Ok(self)
    }

    /// Adds a protector's file, to be used instead of those in the file system: that of a login passphrase lies in
    /// /.fscrypt/protectors of the system's root, not of every disk.
    #[must_use]
    pub fn with_protector(mut self, path: impl AsRef<Path>) -> Keys {
        self.protectors.push(path.as_ref().to_owned());
        self
    }

    /// Takes policies and protectors from a folder, a copy of some /.fscrypt, instead of the file system.
    ///
    /// # Errors
    /// `Io`; `Corrupt` for what is longer or more than such files are.
    pub fn with_metadata(mut self, folder: impl AsRef<Path>) -> Result<Keys, Error> {
        self.metadata = Some(Arc::new(Taken::of_folder(folder.as_ref())?));
        Ok(self)
    }

    /// Takes policies and protectors from a backup that has the file system's root, instead of the file system; `name` is
    /// the backup's.
    ///
    /// # Errors
    /// `Io`; `Corrupt` if the stream is not a backup.
    pub fn with_metadata_of_backup(mut self, backup: &mut dyn Read, name: &str) -> Result<Keys, Error> {
        self.metadata = Some(Arc::new(Taken::of_backup(backup, name)?));
        Ok(self)
    }

    /// Grants protectors such costs: each so much memory at once, all that are tried together so much work. Without this,
    /// those of [`KdfLimits::default`].
    #[must_use]
    pub fn with_kdf_limits(mut self, limits: KdfLimits) -> Keys {
        self.limits = limits;
        self
    }

    /// The raw keys, ready to be used. Those that protectors guard are not among them.
    ///
    /// # Errors
    /// `Argument` for a key of a wrong length.
    pub fn keyring(&self, providers: &Providers) -> Result<Keyring, Error> {
        let mut ring = Keyring::new(providers.clone());
        for Raw { name, key, descriptor } in &self.raw {
            let added = ring.add_as(*descriptor, key.clone());
            added.map_err(|error| Error::argument(format!("{name}: {error}")))?;
        }
        Ok(ring)
    }

    /// All master keys: those that were given raw, with their descriptors if these are unusual, and those that the secrets open
    /// of the policies that were taken from elsewhere ([`Keys::with_metadata`]).
    ///
    /// # Errors
    /// `Argument` for a key of a wrong length; `Mismatch` if a secret opens nothing.
    pub fn master_keys(
        &self,
        providers: &Providers,
    ) -> Result<Vec<(Option<KeyDescriptor>, SecretVec)>, Error> {
        self.keyring(providers)?;
        let mut all: Vec<_> = self.raw.iter().map(|raw| (raw.descriptor, raw.key.clone())).collect();
        if self.open_protectors() {
            let mut opened = Keyring::new(providers.clone());
            let none = Taken::default();
            self.unlock_tool(self.metadata.as_deref().unwrap_or(&none), &mut opened)?;
            let identified = opened.ids().filter(|id| matches!(id, KeyId::Descriptor(_)));
            all.extend(identified.filter_map(|id| Some((None, opened.get(id)?.secret().clone()))));
        }
        Ok(all)
    }

    /// The raw keys with their names in policies, in words.
    pub fn described(&self, providers: &Providers) -> Option<String> {
        let one = |raw: &Raw| {
            let id = match raw.descriptor {
                Some(descriptor) => KeyId::from(descriptor),
                None => MasterKey::new(providers, raw.key.clone()).ok()?.identifier().into(),
            };
            Some(format!("{} has {} {id}", raw.name, id.kind()))
        };
        let all: Vec<String> = self.raw.iter().filter_map(one).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    /// Whether raw keys were given.
    pub fn have_raw(&self) -> bool {
        !self.raw.is_empty()
    }

    /// Whether there are secrets that open protectors.
    pub fn open_protectors(&self) -> bool {
        !self.secrets.is_empty()
    }

    /// Whether policies and protectors were taken from elsewhere than the file system.
    pub fn have_metadata(&self) -> bool {
        self.metadata.is_some()
    }

    /// Adds to `ring` what the secrets open in a file system, which has these files.
    ///
    /// # Errors
    /// Errors of [`metadata::unlock`].
    pub fn unlock(&self, files: &dyn ToolFiles, ring: &mut Keyring) -> Result<(), Error> {
        match self.metadata.as_deref() {
            Some(taken) => self.unlock_tool(taken, ring),
            None => self.unlock_tool(files, ring),
        }
    }

    /// The raw keys, and what the secrets open of the policies that were taken from elsewhere.
    ///
    /// # Errors
    /// Errors of [`Keys::keyring`]; `Mismatch` if a secret opens nothing; `Unsupported` for costs above what is granted.
    pub fn opened(&self, providers: &Providers) -> Result<Keyring, Error> {
        let mut ring = self.keyring(providers)?;
        if self.open_protectors() {
            let none = Taken::default();
            self.unlock_tool(self.metadata.as_deref().unwrap_or(&none), &mut ring)?;
        }
        Ok(ring)
    }

    fn unlock_tool(&self, tool: &dyn ToolFiles, ring: &mut Keyring) -> Result<(), Error> {
        metadata::unlock(tool, ring, &self.secrets, &self.protectors, &self.limits).map(drop)
    }
}

/// A raw master key, as fscryptctl takes it: all that is there.
///
/// # Errors
/// `Io`; `Argument` for what is longer or shorter than any key.
pub fn read_raw_key(source: &SecretSource) -> Result<SecretVec, Error> {
    let wrong = |what: String| Error::argument(format!("{}: {what}", source.name()));
    let (shortest, longest) = (RAW_LENGTHS.start(), RAW_LENGTHS.end());
    match source.read_all(*longest)? {
        None => Err(wrong(format!("a raw key has at most {longest} bytes, and this one is longer"))),
        Some(key) if RAW_LENGTHS.contains(&key.len()) => Ok(key),
        Some(key) => Err(wrong(format!("a master key has {shortest} to {longest} bytes, not {}", key.len()))),
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({} raw, {} secrets)", self.raw.len(), self.secrets.len())
    }
}
