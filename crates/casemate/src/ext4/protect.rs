//! Keys of new encrypted directories under the protectors of google/fscrypt, with its files in the file system.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use casemate_blockdev::{MemoryDevice, NoEvents, fill_random, u64_of};
use casemate_ext4::{Tree, TreeOptions};
use casemate_fscrypt::metadata::{Hashing, PolicyFile, Protector, Secret, Source};
use casemate_fscrypt::{MasterKey, NewPolicy};
use casemate_primitives::secret::SecretVec;
use casemate_providers::{Argon2, Argon2Variant, KdfLimits, Providers};
use casemate_trees::tar::{Member, TarWriter};
use casemate_trees::{FileType, Node};

use crate::Error;
use crate::SecretSource;

/// Costs of Argon2id for a new protector, within the 128 MiB that google/fscrypt takes at most. They are not measured:
/// an image is unlocked on other machines than the one that builds it.
const COSTS: Argon2 = Argon2 { variant: Argon2Variant::Id, passes: 8, memory: 1 << 17, lanes: 4 };

/// Modes of the tool's folders and files.
const FOLDER_MODE: u16 = 0o755;
const FILE_MODE: u16 = 0o600;

/// The secret that opens a new protector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProtectorSource {
    /// A passphrase, which ends where its line does.
    #[default]
    CustomPassphrase,
    /// A key of 32 bytes.
    RawKey,
}

impl FromStr for ProtectorSource {
    type Err = Error;

    /// A source's name, as google/fscrypt has it: `custom_passphrase` or `raw_key`.
    fn from_str(text: &str) -> Result<ProtectorSource, Error> {
        match text {
            "custom_passphrase" => Ok(ProtectorSource::CustomPassphrase),
            "raw_key" => Ok(ProtectorSource::RawKey),
            _ => Err(Error::argument(format!(
                "unknown source of a protector '{text}'; known are custom_passphrase and raw_key"
            ))),
        }
    }
}

/// New master keys of directories under new protectors, and the tool's files of both.
pub(super) struct Protected {
    providers: Providers,
    /// Paths in the image, and bytes.
    files: Vec<(String, Vec<u8>)>,
}

impl Protected {
    /// No directory yet.
    pub fn new(providers: Providers) -> Protected {
        Protected { providers, files: Vec::new() }
    }

    /// A random master key for a directory under `policy`, and a protector called `name` that opens it with a secret.
    ///
    /// # Errors
    /// `Io`; `Argument` for a raw key of another length than 32 bytes, an empty passphrase, and a policy that the tool does not
    /// know.
    pub fn add(
        &mut self,
        name: &str,
        source: ProtectorSource,
        secret: &SecretSource,
        policy: &NewPolicy,
    ) -> Result<SecretVec, Error> {
        let secret = Secret::read(secret)?;
        let source = match source {
            ProtectorSource::CustomPassphrase => {
                Source::Passphrase(Hashing { costs: COSTS, salt: random_array()? })
            }
            ProtectorSource::RawKey => Source::RawKey,
        };
        let bytes = secret.for_source(source);
        if bytes.is_empty() {
            return Err(Error::argument(format!("{}: an empty passphrase", secret.name())));
        }
        let key_and_iv = (random(32)?, random_array()?);
        let made = Protector::create(&self.providers, name, source, bytes, key_and_iv, &KdfLimits::default());
        let (protector, key) = made.map_err(|error| error.at(secret.name()))?;
        let master = random(64)?;
        let mut file = PolicyFile::new(&policy.policy(&MasterKey::new(&self.providers, master.clone())?)?)?;
        file.protect(&self.providers, &key, &master, random_array()?)?;
        self.files.push((format!(".fscrypt/protectors/{}", protector.id()), protector.to_bytes()));
        self.files.push((format!(".fscrypt/policies/{}", file.key()), file.to_bytes()));
        Ok(master)
    }

    /// Puts the tool's files into a tree, as `fscrypt setup` and `fscrypt encrypt` make them for root.
    ///
    /// # Errors
    /// Errors of the tree about what it has under those names.
    pub fn write(&self, tree: &mut Tree) -> Result<(), Error> {
        let mut stream = Vec::new();
        let mut tar = TarWriter::new(&mut stream);
        for folder in [".fscrypt", ".fscrypt/policies", ".fscrypt/protectors"] {
            let node = Node { mode: FOLDER_MODE, ..Node::new(FileType::Directory) };
            tar.add(&Member::new(folder, node, None))?;
        }
        for (path, bytes) in &self.files {
            let mut member =
                Member::new(path.as_str(), Node { mode: FILE_MODE, ..Node::new(FileType::Regular) }, None);
            member.size = u64_of(bytes.len());
            tar.add_file(&member, std::slice::from_ref(&(0..member.size)))?;
            tar.write(bytes)?;
        }
        tar.finish()?;
        let device = Arc::new(MemoryDevice::new(stream));
        tree.add_tar(device, "/.fscrypt", &TreeOptions::default(), &NoEvents)
    }
}

impl fmt::Debug for Protected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Protected").field("files", &self.files.len()).finish_non_exhaustive()
    }
}

fn random(len: usize) -> Result<SecretVec, Error> {
    let mut bytes = SecretVec::new(vec![0; len]);
    fill_random(bytes.expose_mut())?;
    Ok(bytes)
}

fn random_array() -> Result<[u8; 16], Error> {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(random(16)?.expose());
    Ok(bytes)
}
