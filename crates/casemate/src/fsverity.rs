//! fs-verity: describing, checking and signing files, trees beside them, and asking the kernel.
//!
//! All of the format is the crate `casemate-verity`; here a tree beside a file becomes a layer of an image.

use casemate_providers::{Providers, Work};
use casemate_verity::fs::TreeFile;

pub use casemate_verity::Beside;
pub use casemate_verity::fs::{
    Algorithm, Describer, Descriptor, Entry, FileDigest, FileHasher, Input, Manifest, Parameters, WholeFile,
    check_tree, describe, describe_device, describe_keeping, describe_many, digest, escape_name,
};
#[cfg(target_os = "linux")]
pub use casemate_verity::fs::{KernelError, Metadata, enable, enable_file, measure, read_metadata};

use crate::part::Part;
use crate::target::Consent;
use crate::{Error, Image};

impl Image {
    /// Asks for consent if what the image holds would be lost to a tree or a hash area: see [`Beside::look_before`].
    ///
    /// # Errors
    /// Errors of [`Beside::look_before`].
    pub fn look_before(&self, beside: Beside, is_replaced: bool, consent: Consent<'_>) -> Result<(), Error> {
        beside.look_before(self, is_replaced, consent)
    }

    /// Image with the bytes of this one, each read of which is compared with the fs-verity tree that
    /// [`Image::fsverity_tree`] has made in `tree`. It can't be written.
    ///
    /// # Errors
    /// `Corrupt` if there is no tree; `Mismatch` for a tree of another digest, or a file of another size.
    pub fn fsverity(self, tree: &Image, digest: &FileDigest, providers: &Providers) -> Result<Image, Error> {
        let device = TreeFile::new(tree).open(&self, digest, providers)?;
        Ok(self.with_verity(device, 0))
    }

    /// Makes the tree of all that the device on top holds, in a file of its own; returns the digest. A new file has its name
    /// then. A regular file gets the tree's length; an earlier tree is replaced.
    ///
    /// ```
    /// use casemate::fsverity::Parameters;
    /// use casemate::{Access, Image, Providers, Work};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let path = |name: &str| folder.path().join(name);
    /// # std::fs::write(path("model.bin"), vec![7; 1 << 20])?;
    /// let model = Image::open(path("model.bin"), Access::Read)?;
    /// let tree = Image::create(path("model.bin.fsverity"))?;
    /// let digest = model.fsverity_tree(&tree, &Parameters::default(), &Work::default())?;
    ///
    /// let tree = Image::open(path("model.bin.fsverity"), Access::Read)?;
    /// let checked = model.fsverity(&tree, &digest, &Providers::default())?;
    /// let mut part = [0; 100];
    /// checked.device().read_at(&mut part, 300_000)?;
    /// # assert_eq!(part, [7; 100]);
    /// # Ok::<(), casemate::Error>(())
    /// ```
    ///
    /// # Errors
    /// Errors of [`TreeFile::make`].
    pub fn fsverity_tree(
        &self,
        tree: &Image,
        parameters: &Parameters,
        work: &Work<'_>,
    ) -> Result<FileDigest, Error> {
        TreeFile::new(tree).make(self, parameters, work)
    }

    /// Completes a tree's file, of which the hash blocks of all parts are there ([`Image::tree_part`]; the tree begins at byte
    /// 4096), by the levels above them and the descriptor. Returns the digest.
    ///
    /// # Errors
    /// Errors of [`TreeFile::join`].
    pub fn fsverity_join(&self, parts: &[Part<WholeFile>], work: &Work<'_>) -> Result<FileDigest, Error> {
        TreeFile::new(self).join(parts, work)
    }

    /// Whether the image is the whole tree of a file with this digest: see [`TreeFile::is_whole`].
    ///
    /// # Errors
    /// Errors of [`TreeFile::is_whole`].
    pub fn is_whole_fsverity_tree(&self, digest: &FileDigest, work: &Work<'_>) -> Result<bool, Error> {
        TreeFile::new(self).is_whole(digest, work)
    }
}
