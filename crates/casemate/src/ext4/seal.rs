//! fs-verity on files of new file systems: which ones, and what their trees are made with.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use casemate_blockdev::{BlockDevice, Pool, u64_of};
use casemate_ext4::Tree;
use casemate_providers::{Providers, Work};
use casemate_trees::Pattern;
use casemate_verity::fs::{Describer, Descriptor, FileDigest, Parameters};
use casemate_verity::signature::DigestAlgorithm;
use casemate_verity::tree::TreeDevice;

use super::spec::Signer;
use crate::{Code, Error};

/// Bytes that a signature has at most beside its certificate: its structure, and RSA of 4096 bits.
const SIGNATURE_ROOM: u64 = 2048;

/// fs-verity on the files of a tree.
pub(super) struct Sealing {
    /// The files: regular ones of whose paths one matches one of these; all without any, unless digests are expected.
    files: Vec<Chosen>,
    /// Whether some file gets a tree.
    is_used: AtomicBool,
    /// The parameters of their trees.
    pub parameters: Parameters,
    /// The signer of their digests.
    pub signer: Option<Arc<Signer>>,
    /// The digests that files are to have, by their first paths; these files get trees, too.
    expected: BTreeMap<Vec<u8>, FileDigest>,
    providers: Providers,
    /// Digests that were made, by the files' paths.
    digests: Mutex<BTreeMap<Vec<u8>, FileDigest>>,
}

/// A pattern of files, and whether one was found.
struct Chosen {
    pattern: Pattern,
    is_used: AtomicBool,
}

impl Sealing {
    /// fs-verity on all regular files, without signatures.
    pub fn new(parameters: Parameters, providers: Providers) -> Sealing {
        Sealing {
            files: Vec::new(),
            is_used: AtomicBool::new(false),
            parameters,
            signer: None,
            expected: BTreeMap::new(),
            providers,
            digests: Mutex::default(),
        }
    }

    /// Gives trees to files of whose names one matches one of these patterns, of which each must match one.
    pub fn choose(&mut self, patterns: impl IntoIterator<Item = Pattern>) {
        let chosen = |pattern| Chosen { pattern, is_used: AtomicBool::new(false) };
        self.files.extend(patterns.into_iter().map(chosen));
    }

    /// Refuses what was asked for in vain, once all files have been looked at.
    ///
    /// # Errors
    /// `Argument` for a pattern that matches no regular file, and if no file gets a tree at all.
    pub(super) fn check_used(&self) -> Result<(), Error> {
        if let Some(chosen) = self.files.iter().find(|chosen| !chosen.is_used.load(Ordering::Relaxed)) {
            let text = format!(
                "fs-verity for '{}': the pattern matches no regular file of the tree",
                chosen.pattern
            );
            return Err(Error::argument(text));
        }
        match self.is_used.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err(Error::argument("fs-verity is for no file: the tree has no regular files")),
        }
    }

    /// Refuses files whose digests are others than these. Files get trees that are named here or match a pattern; without
    /// patterns, those that are named here alone.
    ///
    /// # Errors
    /// `NotFound` for a path that is no regular file of the tree.
    pub fn expect(
        &mut self,
        tree: &Tree,
        digests: impl IntoIterator<Item = (Vec<u8>, FileDigest)>,
    ) -> Result<(), Error> {
        let (paths, digests): (Vec<_>, Vec<_>) = digests.into_iter().unzip();
        let found = tree.first_paths(paths.iter().map(Vec::as_slice));
        for ((path, digest), first) in paths.iter().zip(digests).zip(found) {
            let first = first.ok_or_else(|| {
                let text = format!("/{}: no regular file of the tree", String::from_utf8_lossy(path));
                Error::path(std::io::ErrorKind::NotFound, text)
            })?;
            self.expected.insert(first, digest);
        }
        Ok(())
    }

    /// The digests of the files that were written, by their paths.
    pub fn digests(&self) -> BTreeMap<Vec<u8>, FileDigest> {
        self.digests.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for Sealing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealing").field("parameters", &self.parameters).finish_non_exhaustive()
    }
}

impl casemate_ext4::Seal for Sealing {
    fn room(&self, paths: &[Vec<u8>], size: u64) -> Result<Option<(u64, u64)>, Error> {
        let is_for_all = self.files.is_empty() && self.expected.is_empty();
        let mut is_chosen =
            is_for_all || paths.first().is_some_and(|first| self.expected.contains_key(first));
        let matches = |chosen: &&Chosen| paths.iter().any(|path| chosen.pattern.matches(path, false));
        for chosen in self.files.iter().filter(matches) {
            chosen.is_used.store(true, Ordering::Relaxed);
            is_chosen = true;
        }
        if !is_chosen {
            return Ok(None);
        }
        self.is_used.store(true, Ordering::Relaxed);
        let tree = self.parameters.geometry(size)?.tree_size();
        let signature = self
            .signer
            .as_ref()
            .map_or(0, |signer| u64_of(signer.certificate().der().len()) + SIGNATURE_ROOM);
        Ok(Some((tree, u64_of(Descriptor::LEN) + signature)))
    }

    fn seal(
        &self,
        path: &[u8],
        contents: &dyn BlockDevice,
        tree: &dyn BlockDevice,
    ) -> Result<Vec<u8>, Error> {
        // Files are shared out among threads whole.
        let work = Work {
            providers: self.providers.clone(),
            pool: Pool::new(std::num::NonZeroUsize::new(1)),
            ..Work::default()
        };
        let geometry = self.parameters.geometry(contents.size())?;
        let sink = TreeDevice::new(&geometry, tree, 0);
        let describer = Describer::new(self.parameters.clone(), &work)?;
        let descriptor = describer.describe_as(&geometry, contents, &sink)?;
        let digest = descriptor.digest(&self.providers)?;
        if let Some(expected) = self.expected.get(path).filter(|expected| **expected != digest) {
            return Err(Error::coded(
                Code::BadDigest,
                format!("the digest is {digest}, and {expected} was expected"),
            )
            .within(format!("/{}", String::from_utf8_lossy(path))));
        }
        let signature = match &self.signer {
            Some(signer) => {
                let hash = DigestAlgorithm::named(digest.algorithm().name())?;
                signer.sign(&digest.bytes_to_sign(), hash, &self.providers)?
            }
            None => Vec::new(),
        };
        let digests = self.digests.lock();
        digests.unwrap_or_else(std::sync::PoisonError::into_inner).insert(path.to_vec(), digest);
        descriptor.to_disk(&signature)
    }
}
