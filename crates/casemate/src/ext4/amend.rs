//! What becomes of a tree's files before an image is made of them: descriptions beside the tree, rules, and labels.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use casemate_ext4::Tree;
use casemate_trees::labels::{Labels, SELINUX};
use casemate_trees::manifest::{self, Format};
use casemate_trees::{FileType, Pattern, below, join};
use casemate_verity::fs::{Algorithm, FileDigest};

use crate::Error;

/// New permission bits, made of the old ones, for a directory or not.
pub type ModeRule = Box<dyn Fn(u16, bool) -> u16>;

/// Changes to files, made in the order of these fields.
#[derive(Default)]
#[non_exhaustive]
pub struct Amendments {
    /// Descriptions beside the tree, in files.
    pub descriptions: Vec<(Format, PathBuf)>,
    /// Where the tree's top will be mounted: paths of `fs_config` and `file_contexts` begin there.
    pub mount_point: Vec<u8>,
    /// New modes of files whose paths match, but of no symbolic links.
    pub modes: Vec<(Pattern, ModeRule)>,
    /// Names and values of attributes of files whose paths match.
    pub xattrs: Vec<(Pattern, Vec<u8>, Vec<u8>)>,
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
        let descriptions = self.descriptions.iter().map(|(_, path)| path);
        descriptions.chain(&self.file_contexts).map(PathBuf::as_path)
    }

    /// Changes a tree. The digests of contents that the descriptions have are handed back, by paths.
    ///
    /// # Errors
    /// `Io`; `Corrupt` for what is no description; what is told of files that are not there, or are others.
    pub fn apply(&self, tree: &mut Tree) -> Result<BTreeMap<Vec<u8>, FileDigest>, Error> {
        let mount_point = below(&self.mount_point)?;
        let mut digests = BTreeMap::new();
        for (format, path) in &self.descriptions {
            let name = path.display().to_string();
            for mut entry in manifest::parse(*format, &read(path)?, &name)? {
                if *format == Format::FsConfig {
                    match from_mount_point(&entry.path, &mount_point) {
                        Some(path) => entry.path = path.to_vec(),
                        None => continue,
                    }
                }
                tree.amend(&entry).map_err(|error| error.at(&name))?;
                if let Some(digest) = entry.digest {
                    digests.insert(entry.path, FileDigest::new(Algorithm::Sha256, digest.to_vec()));
                }
            }
        }
        if self.modes.is_empty() && self.xattrs.is_empty() && self.file_contexts.is_none() {
            return Ok(digests);
        }
        tree.adjust(&mut |path, node| {
            let is_directory = node.kind == FileType::Directory;
            for (_, rule) in self.modes.iter().filter(|(pattern, _)| pattern.matches(path, is_directory)) {
                if node.kind != FileType::Symlink {
                    node.mode = rule(node.mode, is_directory) & 0o7777;
                }
            }
            let matching = self.xattrs.iter().filter(|(pattern, ..)| pattern.matches(path, is_directory));
            Ok(matching.map(|(_, name, value)| (name.clone(), value.clone())).collect())
        })?;
        if let Some(path) = &self.file_contexts {
            let labels = Labels::parse(&read(path)?, &path.display().to_string())?;
            tree.add_lost_and_found()?;
            tree.adjust(&mut |path, node| {
                let below = if path.is_empty() { mount_point.clone() } else { join(&mount_point, path) };
                let label = labels.of(&[b"/", &below[..]].concat(), node.kind)?;
                Ok(label.map(|label| (SELINUX.to_vec(), label.to_vec())).into_iter().collect())
            })?;
        }
        Ok(digests)
    }
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
    std::fs::read(path).map_err(|error| Error::io(path.display(), error))
}
