//! Changes to a tree's files before an image is made of them: descriptions beside the tree, rules, and labels.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use casemate_trees::labels::{Labels, SELINUX};
use casemate_trees::manifest::{self, Format};
use casemate_trees::{FileType, ModeChange, Pattern, below, join};

use crate::build::tree::Tree;
use crate::error::Error;

/// New permission bits, made of the old ones, for a directory or not.
pub type ModeRule = Box<dyn Fn(u16, bool) -> u16 + Send + Sync>;

/// A rule for the modes of files whose paths match, but of no symbolic links.
#[non_exhaustive]
pub struct NewMode {
    /// The files.
    pub pattern: Pattern,
    /// Their new permission bits.
    pub rule: ModeRule,
}

/// An extended attribute that files get whose paths match.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NewXattr {
    /// The files.
    pub pattern: Pattern,
    /// The attribute's name.
    pub name: Vec<u8>,
    /// The attribute's value.
    pub value: Vec<u8>,
}

/// A description beside the tree.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Description {
    /// The format.
    pub format: Format,
    /// The file that it is in.
    pub path: PathBuf,
}

impl NewMode {
    /// New permission bits for files whose paths match.
    pub fn new(pattern: Pattern, rule: ModeRule) -> NewMode {
        NewMode { pattern, rule }
    }

    /// Permission bits for files whose paths match, changed as chmod(1) does.
    pub fn change(pattern: Pattern, change: ModeChange) -> NewMode {
        NewMode { pattern, rule: Box::new(move |old, is_directory| change.apply(old, is_directory)) }
    }
}

impl NewXattr {
    /// An attribute for files whose paths match.
    pub fn new(pattern: Pattern, name: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> NewXattr {
        NewXattr { pattern, name: name.into(), value: value.into() }
    }
}

impl Description {
    /// A description in a file.
    pub fn new(format: Format, path: impl Into<PathBuf>) -> Description {
        Description { format, path: path.into() }
    }
}

/// Changes to files, made in the order of these fields.
#[derive(Default)]
#[non_exhaustive]
pub struct Amendments {
    /// Descriptions beside the tree, in files.
    pub descriptions: Vec<Description>,
    /// Where the tree's top will be mounted: paths of `fs_config` and `file_contexts` begin there.
    pub mount_point: Vec<u8>,
    /// New attributes.
    pub xattrs: Vec<NewXattr>,
    /// New modes. Of a file with an access ACL that changes too, also where a new attribute is the ACL.
    pub modes: Vec<NewMode>,
    /// SELinux's labels: a file in the format of `file_contexts`.
    pub file_contexts: Option<PathBuf>,
}

impl fmt::Debug for Amendments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Amendments").field("descriptions", &self.descriptions).finish_non_exhaustive()
    }
}

impl Amendments {
    /// The files that are read.
    pub fn inputs(&self) -> impl Iterator<Item = &Path> {
        let descriptions = self.descriptions.iter().map(|description| &description.path);
        descriptions.chain(&self.file_contexts).map(PathBuf::as_path)
    }

    /// Changes a tree. The SHA-256 digests of fs-verity that the descriptions have are handed back, by paths.
    ///
    /// # Errors
    /// `Io`; `Corrupt` for what is no description; what is told of files that are not there, or are others; `Argument` for a
    /// description that tells of no file, and a rule that is for none.
    pub fn apply(&self, tree: &mut Tree) -> Result<BTreeMap<Vec<u8>, [u8; 32]>, Error> {
        let mount_point = below(&self.mount_point)?;
        let mut digests = BTreeMap::new();
        for Description { format, path } in &self.descriptions {
            let name = path.display().to_string();
            let mut applied = false;
            for mut entry in manifest::parse(*format, &read(path)?, &name)? {
                if *format == Format::FsConfig {
                    match from_mount_point(&entry.path, &mount_point) {
                        Some(path) => entry.path = path.to_vec(),
                        None => continue,
                    }
                }
                applied |= tree.amend(&entry).map_err(|error| error.at(&name))?;
                if let Some(digest) = entry.digest {
                    digests.insert(entry.path, digest);
                }
            }
            if !applied {
                let text = match format {
                    Format::FsConfig => "it tells of no file of the tree; is the mount point right?",
                    _ => "it tells of no file",
                };
                return Err(Error::argument(text).at(&name));
            }
        }
        if self.modes.is_empty() && self.xattrs.is_empty() && self.file_contexts.is_none() {
            return Ok(digests);
        }
        let mut modes: Vec<_> = self.modes.iter().map(|new| (new, false)).collect();
        let mut xattrs: Vec<_> = self.xattrs.iter().map(|new| (new, false)).collect();
        tree.adjust(&mut |path, node| {
            let is_directory = node.kind == FileType::Directory;
            let matching = xattrs.iter_mut().filter(|(new, _)| new.pattern.matches(path, is_directory));
            Ok(matching
                .map(|(new, used)| {
                    *used = true;
                    (new.name.clone(), new.value.clone())
                })
                .collect())
        })?;
        tree.adjust(&mut |path, node| {
            let is_directory = node.kind == FileType::Directory;
            if node.kind != FileType::Symlink {
                for (new, used) in modes.iter_mut().filter(|(new, _)| new.pattern.matches(path, is_directory))
                {
                    node.mode = (new.rule)(node.mode, is_directory) & 0o7777;
                    *used = true;
                }
            }
            Ok(Vec::new())
        })?;
        if let Some((new, _)) = modes.iter().find(|(_, used)| !used) {
            return Err(unused("new mode", &new.pattern));
        }
        if let Some((new, _)) = xattrs.iter().find(|(_, used)| !used) {
            return Err(unused("extended attribute", &new.pattern));
        }
        if let Some(path) = &self.file_contexts {
            let labels = Labels::parse(&read(path)?, &path.display().to_string())?;
            tree.add_lost_and_found()?;
            let mut used = false;
            tree.adjust(&mut |path, node| {
                let below = if path.is_empty() { mount_point.clone() } else { join(&mount_point, path) };
                let label = labels.of(&[b"/", &below[..]].concat(), node.kind)?;
                used |= label.is_some();
                Ok(label.map(|label| (SELINUX.to_vec(), label.to_vec())).into_iter().collect())
            })?;
            if !used {
                let text = "it has a label for no file of the tree; is the mount point right?";
                return Err(Error::argument(text).at(path.display()));
            }
        }
        Ok(digests)
    }
}

/// The error of a rule for files that are not there: it has not done what was asked for.
fn unused(what: &str, pattern: &Pattern) -> Error {
    Error::argument(format!("{what} for '{pattern}': the pattern matches no file of the tree"))
}

/// A path below a mount point, from there on.
fn from_mount_point<'a>(path: &'a [u8], mount_point: &[u8]) -> Option<&'a [u8]> {
    match path.strip_prefix(mount_point)? {
        rest if mount_point.is_empty() => Some(rest),
        b"" => Some(b""),
        rest => rest.strip_prefix(b"/"),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    casemate_blockdev::Stream::read_all(path).map_err(|error| Error::io(path.display(), error))
}
