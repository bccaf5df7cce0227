//! Keys for encrypted images from the key files that google/fscrypt leaves in them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;

use casemate_blockdev::BlockDevice;
use casemate_ext4::{Ext4, FileType};
use casemate_fscrypt::metadata::{MAX_LEN, PolicyFile, Protector, ProtectorId, ProtectorKey, Source};
use casemate_fscrypt::{KeyId, Keyring};
use casemate_primitives::secret::SecretVec;
use casemate_providers::KdfLimits;

use crate::secrets::SecretSource;
use crate::{Error, ErrorKind};

/// What opens protectors: a passphrase, or the 32 bytes of a raw key.
#[derive(Debug)]
pub(crate) struct Secret {
    /// The place that it came from, for messages.
    name: String,
    /// All that is there.
    bytes: SecretVec,
}

/// Where the tool keeps its files, below the root of the file system.
const POLICIES: &str = ".fscrypt/policies";
const PROTECTORS: &str = ".fscrypt/protectors";

/// The longest secret.
const LONGEST: usize = 4096;

/// Protectors that are tried at most: each may cost a minute, and an image may hold thousands.
const MOST_PROTECTORS: usize = 256;

impl Secret {
    /// # Errors
    /// `Io`; `Argument` for what is longer than any secret.
    pub fn read(source: &SecretSource) -> Result<Secret, Error> {
        let name = source.name();
        match source.read_all(LONGEST)? {
            Some(bytes) => Ok(Secret { name, bytes }),
            None => Err(Error::argument(format!("{name}: longer than any passphrase"))),
        }
    }

    /// What this is for a protector: as the tool reads it, a passphrase ends where its line does.
    fn for_source(&self, source: Source) -> &[u8] {
        let bytes = self.bytes.expose();
        match source {
            Source::RawKey => bytes,
            _ => bytes.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default(),
        }
    }
}

/// Adds to `keyring` the master keys of all policies of a file system that `secrets` open, and returns what policies
/// call them. If `files` are given, these are the protectors; else those in the file system are. All that is tried together
/// does no more work than `limits` grant.
///
/// # Errors
/// `Mismatch` if a secret opens no protector, `Corrupt` or `Unsupported` if the files of a protector or a policy that
/// it would open make no sense, `Unsupported` for costs above the limits.
pub(crate) fn unlock(
    fs: &Ext4,
    keyring: &mut Keyring,
    secrets: &[Arc<Secret>],
    files: &[PathBuf],
    limits: &KdfLimits,
) -> Result<Vec<KeyId>, Error> {
    let policies = policies(fs)?;
    let found = Protectors::find(fs, &policies, files)?;
    let providers = keyring.providers().clone();
    let mut opened: BTreeMap<ProtectorId, ProtectorKey> = BTreeMap::new();
    let mut left = *limits;
    for secret in secrets {
        let mut fits = false;
        for protector in &found.protectors {
            if opened.contains_key(&protector.id()) {
                continue;
            }
            let spent = limits.work - left.work;
            let unlocked = protector.unlock(&providers, secret.for_source(protector.source()), &left);
            left.work = left.work.saturating_sub(protector.work());
            match unlocked {
                Ok(key) => {
                    fits = true;
                    opened.insert(protector.id(), key);
                }
                Err(error) if error.kind() == ErrorKind::Mismatch => {}
                Err(error) if error.kind() == ErrorKind::Unsupported => {
                    let spent = match spent {
                        0 => String::new(),
                        spent => format!("; what was tried before filled {spent} KiB"),
                    };
                    return Err(Error::unsupported(format!(
                        "{protector}: {}{spent}: --protector FILE tries one alone, --fscrypt-kdf-limit grants more",
                        error.text()
                    )));
                }
                Err(error) => return Err(error),
            }
        }
        if !fits {
            return Err(Error::mismatch(format!("{}: {}", secret.name, found.tried())));
        }
    }
    let mut keys = Vec::new();
    for policy in &policies {
        if let Some(key) = policy.protectors().find_map(|id| opened.get(&id)) {
            keyring.add(policy.unlock(&providers, key)?)?;
            keys.push(policy.key());
        }
    }
    Ok(keys)
}

/// The protectors that are there, and a sentence for each that is not.
#[derive(Default)]
struct Protectors {
    protectors: Vec<Protector>,
    missing: Vec<String>,
}

impl Protectors {
    fn find(fs: &Ext4, policies: &[PolicyFile], files: &[PathBuf]) -> Result<Protectors, Error> {
        let mut found = Protectors::default();
        for path in files {
            let at = |error: Error| error.within(path.display());
            let mut bytes = Vec::new();
            let file = File::open(path).map_err(|error| Error::io(path.display(), error))?;
            let read = file.take(MAX_LEN as u64 + 1).read_to_end(&mut bytes);
            read.map_err(|error| Error::io(path.display(), error))?;
            found.protectors.push(Protector::from_bytes(&bytes).map_err(at)?);
        }
        if !files.is_empty() {
            return Ok(found);
        }
        let mut wanted: Vec<ProtectorId> = policies.iter().flat_map(PolicyFile::protectors).collect();
        wanted.sort();
        wanted.dedup();
        if wanted.len() > MOST_PROTECTORS {
            let text = format!("/{PROTECTORS}: {} protectors; name those to try", wanted.len());
            return Err(Error::unsupported(text));
        }
        for id in wanted {
            let path = format!("{PROTECTORS}/{id}");
            if let Some(bytes) = read(fs, &path)? {
                let protector = Protector::from_bytes(&bytes);
                found.protectors.push(protector.map_err(|error| error.within(format!("/{path}")))?);
            } else if let Some(link) = read(fs, &format!("{path}.link"))? {
                let place = String::from_utf8_lossy(&link).trim().replace('\n', ", ");
                let place: String = place.chars().filter(|c| !c.is_control()).take(256).collect();
                found.missing.push(format!(
                    "protector {id} lies on another file system ({place}): give its file /{path} there"
                ));
            } else {
                found.missing.push(format!("protector {id} is not in the image: give its file"));
            }
        }
        Ok(found)
    }

    /// Why nothing was opened.
    fn tried(&self) -> String {
        let mut reasons: Vec<String> =
            self.protectors.iter().map(|protector| format!("it does not open {protector}")).collect();
        reasons.extend(self.missing.iter().cloned());
        if reasons.is_empty() {
            return format!("the image has no policies in /{POLICIES}, so there is nothing to open");
        }
        reasons.join("; ")
    }
}

/// All policies of the file system; none if it was never set up for the tool.
fn policies(fs: &Ext4) -> Result<Vec<PolicyFile>, Error> {
    let at = |error: Error| error.at(format!("/{POLICIES}"));
    let folder = match fs.resolve(POLICIES.as_bytes(), true) {
        Ok(folder) => folder,
        Err(error) if error.is_not_found() => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(at(error)),
    };
    let mut policies = Vec::new();
    for entry in fs.read_dir(&folder).map_err(at)? {
        // Others are the tool's temporary files, or somebody's.
        let Some(id) = str::from_utf8(&entry.name).ok().and_then(KeyId::from_hex) else { continue };
        let path = format!("{POLICIES}/{id}");
        let Some(bytes) = read(fs, &path)? else { continue };
        policies.push(PolicyFile::from_bytes(&bytes).map_err(|error| error.within(format!("/{path}")))?);
    }
    Ok(policies)
}

/// A file of the tool's; `None` if there is none. Like the tool, this follows no link here, and reads no more than such
/// files have.
fn read(fs: &Ext4, path: &str) -> Result<Option<Vec<u8>>, Error> {
    let at = |error: Error| error.at(format!("/{path}"));
    let inode = match fs.resolve(path.as_bytes(), false) {
        Ok(inode) => inode,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(at(error)),
    };
    if inode.kind() != FileType::Regular || inode.size() > MAX_LEN as u64 {
        return Err(Error::corrupt(format!("/{path}: no regular file of at most {MAX_LEN} bytes")));
    }
    let file = fs.open_file(&inode).map_err(at)?;
    let mut bytes = vec![0; inode.size() as usize];
    file.read_at(&mut bytes, 0).map_err(at)?;
    Ok(Some(bytes))
}
