//! Files of the tool's: where it keeps them, and those that were taken from elsewhere.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;

use casemate_blockdev::{Stream, u64_of, usize_of};
use casemate_trees::tar::TarReader;
use casemate_trees::{FileType, trim};

use super::MAX_LEN;
use crate::Error;

/// Folder of the tool's files, below the root of the file system.
pub const FOLDER: &str = ".fscrypt";
pub(super) const POLICIES: &str = "policies";
pub(super) const PROTECTORS: &str = "protectors";

/// Files of the tool's that are taken from elsewhere at most.
const MOST_FILES: usize = 4096;

/// The tool's files, by their paths below /.fscrypt.
pub trait ToolFiles {
    /// The names in a folder; none if it is not there.
    ///
    /// # Errors
    /// Errors of reading.
    fn names(&self, folder: &str) -> Result<Vec<Vec<u8>>, Error>;

    /// A file's bytes; `None` if there is none.
    ///
    /// # Errors
    /// Errors of reading; `Corrupt` for what is no such file.
    fn read(&self, path: &str) -> Result<Option<Vec<u8>>, Error>;
}

/// The tool's files that were taken from elsewhere than the file system that their keys are for.
#[derive(Clone, Debug, Default)]
pub struct Taken(BTreeMap<String, Vec<u8>>);

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

    /// Protectors and policies of the /.fscrypt of a [backup](crate::backup); nothing if that was not backed up.
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    pub fn of_backup(input: &mut dyn Read, name: &str) -> Result<Taken, Error> {
        let mut taken = Taken::default();
        let mut tar = TarReader::new(input, name);
        while let Some(member) = tar.next()? {
            let path = str::from_utf8(trim(&member.path)).ok().and_then(|path| path.strip_prefix(FOLDER));
            let Some(path) = path.and_then(|path| path.strip_prefix('/')) else { continue };
            if member.node.kind != FileType::Regular || member.link.is_some() {
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

    /// Adds a file by its path below /.fscrypt.
    ///
    /// # Errors
    /// `Corrupt` for more than the tool has.
    pub fn add(&mut self, path: String, bytes: Vec<u8>) -> Result<(), Error> {
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

pub(super) fn read_host_file(path: &Path) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let file = Stream::open(path).map_err(|error| Error::io(path.display(), error))?;
    let read = file.take(u64_of(MAX_LEN) + 1).read_to_end(&mut bytes);
    read.map_err(|error| Error::io(path.display(), error))?;
    Ok(bytes)
}
