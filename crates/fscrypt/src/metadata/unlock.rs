//! Master keys from the tool's files, by secrets that open protectors.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use casemate_blockdev::{Advice, Code};
use casemate_primitives::secret::SecretVec;
use casemate_providers::{KdfLimits, SecretSource};

use super::tool::{FOLDER, POLICIES, PROTECTORS, ToolFiles, read_host_file};
use super::{PolicyFile, Protector, ProtectorId, ProtectorKey, Source};
use crate::{Error, ErrorKind, KeyId, Keyring};

/// Secret that opens protectors: a passphrase, or the 32 bytes of a raw key.
#[derive(Debug)]
pub struct Secret {
    /// The place that it came from, for messages.
    name: String,
    /// All that is there.
    bytes: SecretVec,
}

/// The longest secret.
const LONGEST: usize = 4096;

/// Protectors that are tried at most: each may cost a minute, and an image may hold thousands.
const MOST_PROTECTORS: usize = 256;

impl Secret {
    /// The secret that all of a source is.
    ///
    /// # Errors
    /// `Io`; `Argument` for what is longer than any secret.
    pub fn read(source: &SecretSource) -> Result<Secret, Error> {
        let name = source.name();
        match source.read_all(LONGEST)? {
            Some(bytes) => Ok(Secret { name, bytes }),
            None => Err(Error::argument(format!("{name}: longer than any passphrase"))),
        }
    }

    /// Place that the secret came from, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes of the secret for a protector. As in the tool, a passphrase ends where its line does.
    pub fn for_source(&self, source: Source) -> &[u8] {
        let bytes = self.bytes.expose();
        match source {
            Source::RawKey => bytes,
            _ => bytes.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default(),
        }
    }
}

/// Adds to `keyring` the master keys of all policies of the tool's that `secrets` open, and returns what policies
/// call them. If `files` are given, these are the protectors; else those beside the policies are. All that is tried together
/// does no more work than `limits` grant.
///
/// # Errors
/// `Mismatch` if a secret opens no protector, `Corrupt` or `Unsupported` if the files of a protector or a policy that
/// it would open make no sense, `Unsupported` for costs above the limits.
pub fn unlock(
    tool: &dyn ToolFiles,
    keyring: &mut Keyring,
    secrets: &[Arc<Secret>],
    files: &[PathBuf],
    limits: &KdfLimits,
) -> Result<Vec<KeyId>, Error> {
    let policies = policies(tool)?;
    let found = Protectors::find(tool, &policies, files)?;
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
                    let text = format!("{protector}: {}{spent}", error.text());
                    let error = Error::coded(Code::TooCostly, text).advise(Advice::Protector);
                    return Err(error.advise(Advice::FscryptKdfLimit));
                }
                Err(error) => return Err(error),
            }
        }
        if !fits {
            return Err(Error::coded(Code::WrongKey, format!("{}: {}", secret.name, found.tried())));
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
    fn find(tool: &dyn ToolFiles, policies: &[PolicyFile], files: &[PathBuf]) -> Result<Protectors, Error> {
        let mut found = Protectors::default();
        for path in files {
            let at = |error: Error| error.within(path.display());
            found.protectors.push(Protector::from_bytes(&read_host_file(path)?).map_err(at)?);
        }
        if !files.is_empty() {
            return Ok(found);
        }
        let mut wanted: Vec<ProtectorId> = policies.iter().flat_map(PolicyFile::protectors).collect();
        wanted.sort();
        wanted.dedup();
        if wanted.len() > MOST_PROTECTORS {
            let text = format!("/{FOLDER}/{PROTECTORS}: {} protectors; name those to try", wanted.len());
            return Err(Error::unsupported(text));
        }
        for id in wanted {
            let path = format!("{PROTECTORS}/{id}");
            if let Some(bytes) = tool.read(&path)? {
                let protector = Protector::from_bytes(&bytes);
                found.protectors.push(protector.map_err(|error| error.within(format!("/{FOLDER}/{path}")))?);
            } else if let Some(link) = tool.read(&format!("{path}.link"))? {
                let place = String::from_utf8_lossy(&link).trim().replace('\n', ", ");
                let place: String = place.chars().filter(|c| !c.is_control()).take(256).collect();
                found.missing.push(format!(
                    "protector {id} lies on another file system ({place}): give its file /{FOLDER}/{path} there"
                ));
            } else {
                found.missing.push(format!("protector {id} is not there: give its file"));
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
            return format!("there are no policies in /{FOLDER}/{POLICIES}, so there is nothing to open");
        }
        reasons.join("; ")
    }
}

/// All policies; none if the file system was never set up for the tool.
fn policies(tool: &dyn ToolFiles) -> Result<Vec<PolicyFile>, Error> {
    let mut policies = Vec::new();
    for name in tool.names(POLICIES)? {
        // Others are the tool's temporary files, or somebody's.
        let Some(id) = str::from_utf8(&name).ok().and_then(KeyId::from_hex) else { continue };
        let path = format!("{POLICIES}/{id}");
        let Some(bytes) = tool.read(&path)? else { continue };
        let policy = PolicyFile::from_bytes(&bytes);
        policies.push(policy.map_err(|error| error.within(format!("/{FOLDER}/{path}")))?);
    }
    Ok(policies)
}
