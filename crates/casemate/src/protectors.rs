//! Keys for encrypted images from the key files that google/fscrypt leaves in them.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use casemate_blockdev::{BlockDevice, Stream, u64_of, usize_of};
use casemate_ext4::{Ext4, FileType};
use casemate_fscrypt::metadata::{MAX_LEN, PolicyFile, Protector, ProtectorId, ProtectorKey, Source};
use casemate_fscrypt::{KeyId, Keyring};
use casemate_primitives::secret::SecretVec;
use casemate_providers::KdfLimits;
use casemate_trees::tar::TarReader;
use casemate_trees::trim;

use crate::SecretSource;
use crate::{Advice, Code, Error, ErrorKind};

/// Secret that opens protectors: a passphrase, or the 32 bytes of a raw key.
#[derive(Debug)]
pub(crate) struct Secret {
    /// The place that it came from, for messages.
    pub(crate) name: String,
    /// All that is there.
    bytes: SecretVec,
}

/// Where the tool keeps its files, below the root of the file system.
const FOLDER: &str = ".fscrypt";
const POLICIES: &str = "policies";
const PROTECTORS: &str = "protectors";

/// Files of the tool's that are taken from elsewhere at most.
const MOST_FILES: usize = 4096;

/// The tool's files, by their paths below /.fscrypt.
pub(crate) trait ToolFiles {
    /// The names in a folder; none if it is not there.
    fn names(&self, folder: &str) -> Result<Vec<Vec<u8>>, Error>;

    /// A file's bytes; `None` if there is none.
    fn read(&self, path: &str) -> Result<Option<Vec<u8>>, Error>;
}

/// The tool's files that were taken from elsewhere than the file system that their keys are for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taken(BTreeMap<String, Vec<u8>>);

impl Taken {
    /// Protectors and policies in a folder of the host, which takes the place of /.fscrypt.
    ///
    /// # Errors
    /// `Io`; `Corrupt` for what is longer or more than the tool's files are.
    pub fn of_folder(folder: &Path) -> Result<Taken, Error> {
        let mut taken = Taken::default();
        for name in [POLICIES, PROTECTORS] {
            let path = folder.join(name);
            for entry in fs::read_dir(&path).map_err(|error| Error::io(path.display(), error))? {
                let entry = entry.map_err(|error| Error::io(path.display(), error))?;
                let (Some(file), path) = (entry.file_name().to_str().map(str::to_owned), entry.path()) else {
                    continue;
                };
                if entry.file_type().is_ok_and(|kind| kind.is_file()) {
                    taken.add(format!("{name}/{file}"), read_host_file(&path)?)?;
                }
            }
        }
        Ok(taken)
    }

    /// Protectors and policies of a backup's /.fscrypt; nothing if that was not backed up.
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    pub fn of_backup(input: &mut dyn Read, name: &str) -> Result<Taken, Error> {
        let mut taken = Taken::default();
        let mut tar = TarReader::new(input, name);
        while let Some(member) = tar.next()? {
            let path = str::from_utf8(trim(&member.path)).ok().and_then(|path| path.strip_prefix(FOLDER));
            let Some(path) = path.and_then(|path| path.strip_prefix('/')) else { continue };
            if member.node.kind != casemate_trees::FileType::Regular || member.link.is_some() {
                continue;
            }
            if member.size > u64_of(MAX_LEN) {
                let text = format!(
                    "{} has {} bytes; such files have at most {MAX_LEN}",
                    member.shown(),
                    member.size
                );
                return Err(tar.corrupt(&text));
            }
            // Within MAX_LEN.
            let mut bytes = vec![0; usize_of(member.size)];
            for range in tar.ranges(&member)? {
                let part = bytes.get_mut(usize_of(range.start)..usize_of(range.end));
                tar.read(part.unwrap_or_default())?;
            }
            taken.add(path.to_owned(), bytes)?;
        }
        Ok(taken)
    }

    fn add(&mut self, path: String, bytes: Vec<u8>) -> Result<(), Error> {
        if self.0.len() >= MOST_FILES {
            return Err(Error::corrupt(format!("/{FOLDER}: more than {MOST_FILES} policies and protectors")));
        }
        self.0.insert(path, bytes);
        Ok(())
    }
}

impl ToolFiles for Taken {
    fn names(&self, folder: &str) -> Result<Vec<Vec<u8>>, Error> {
        let below = |path: &String| Some(path.strip_prefix(folder)?.strip_prefix('/')?.as_bytes().to_vec());
        Ok(self.0.keys().filter_map(below).collect())
    }

    fn read(&self, path: &str) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.0.get(path).cloned())
    }
}

fn read_host_file(path: &Path) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let file = Stream::open(path).map_err(|error| Error::io(path.display(), error))?;
    let read = file.take(u64_of(MAX_LEN) + 1).read_to_end(&mut bytes);
    read.map_err(|error| Error::io(path.display(), error))?;
    Ok(bytes)
}

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

    /// Bytes of the secret for a protector. As in the tool, a passphrase ends where its line does.
    pub(crate) fn for_source(&self, source: Source) -> &[u8] {
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
pub(crate) fn unlock(
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

/// The tool's files in the file system that they are of. Like the tool, this follows no link here, and reads no more than
/// such files have.
impl ToolFiles for Ext4 {
    fn names(&self, folder: &str) -> Result<Vec<Vec<u8>>, Error> {
        let path = format!("{FOLDER}/{folder}");
        let at = |error: Error| error.at(format!("/{path}"));
        let folder = match self.resolve(path.as_bytes(), true) {
            Ok(folder) => folder,
            Err(error) if error.is_not_found() => return Ok(Vec::new()),
            Err(error) => return Err(at(error)),
        };
        let entries = self.read_dir(&folder).map_err(at)?;
        Ok(entries.into_iter().map(|entry| entry.name.to_vec()).collect())
    }

    fn read(&self, path: &str) -> Result<Option<Vec<u8>>, Error> {
        let path = format!("{FOLDER}/{path}");
        let at = |error: Error| error.at(format!("/{path}"));
        let inode = match self.resolve(path.as_bytes(), false) {
            Ok(inode) => inode,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(at(error)),
        };
        if inode.kind() != FileType::Regular || inode.size() > u64_of(MAX_LEN) {
            return Err(Error::corrupt(format!("/{path}: no regular file of at most {MAX_LEN} bytes")));
        }
        let file = self.open_file(&inode).map_err(at)?;
        let mut bytes = vec![0; usize_of(inode.size())];
        file.read_at(&mut bytes, 0).map_err(at)?;
        Ok(Some(bytes))
    }
}
