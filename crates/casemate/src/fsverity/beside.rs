//! A tree beside its file: the descriptor at the beginning, zeros up to byte 4096, and the Merkle tree as
//! `fsverity digest --out-merkle-tree` writes it. A reader who knows the digest can verify any part of the file,
//! from any source.

use std::sync::Arc;

use casemate_blockdev::{AtFile, BlockDevice};
use casemate_providers::{Providers, Work};
use casemate_verity::fs::Describer;
use casemate_verity::tree::TreeDevice;
use casemate_verity::{Part, Whole};

use super::{Descriptor, FileDigest, Parameters, WholeFile};
use crate::{Code, Error, Image};

/// The first byte of the tree.
const TREE_OFFSET: u64 = 4096;

impl Image {
    /// Image with the bytes of this one, each read of which is compared with the fs-verity tree that
    /// [`Image::fsverity_tree`] has made in `tree`. It can't be written.
    ///
    /// # Errors
    /// `Corrupt` if there is no tree; `Mismatch` for a tree of another digest, or a file of another size.
    pub fn fsverity(self, tree: &Image, digest: &FileDigest, providers: &Providers) -> Result<Image, Error> {
        let descriptor = tree.fsverity_descriptor(digest, providers)?;
        let below = tree.device();
        let device = descriptor.verified(providers, self.device(), below, TREE_OFFSET).at(self.name())?;
        device.check_root().map_err(|error| error.at(tree.name()))?;
        Ok(self.with_verity(Arc::new(device), 0))
    }

    /// Makes the tree of all that the device on top holds, in a file of its own; returns the digest. A new file has its name
    /// then.
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
    /// `Argument` if the tree's image was opened for reading, or is what the data are in; `Io`.
    pub fn fsverity_tree(
        &self,
        tree: &Image,
        parameters: &Parameters,
        work: &Work<'_>,
    ) -> Result<FileDigest, Error> {
        let _lease = tree.lease()?;
        let size = self.top().size();
        let geometry = parameters.geometry(size).map_err(|error| error.at(self.name()))?;
        let lies_below = |path| self.is_stored_at(path) && !self.is_file(path);
        let len = TREE_OFFSET + geometry.tree_size();
        if self.is_changed_by(size.max(1), tree, 0..len) || tree.path().is_some_and(lies_below) {
            let text = format!("the tree would be written over what it is made of, {}", self.name());
            return Err(Error::argument(text).at(tree.name()));
        }
        let device = tree.named();
        tree.grow_to(TREE_OFFSET + geometry.tree_size())?;
        let describer = Describer::new(parameters.clone(), work)?;
        let sink = TreeDevice::new(&geometry, &device, TREE_OFFSET);
        let descriptor = describer.describe_as(&geometry, &self.named(), &sink)?;
        tree.write_descriptor(&descriptor)?;
        descriptor.digest(&work.providers)
    }

    /// Puts the descriptor before a tree that is complete: until then nothing takes it for one.
    fn write_descriptor(&self, descriptor: &Descriptor) -> Result<(), Error> {
        let mut begin = [0; TREE_OFFSET as usize];
        begin[..Descriptor::LEN].copy_from_slice(&descriptor.to_bytes());
        self.named().write_at(&begin, 0)?;
        self.commit()
    }

    /// The descriptor that a tree's file begins with.
    ///
    /// # Errors
    /// `Corrupt` or `Unsupported` if there is none that makes sense; `Mismatch` if it has another digest.
    pub(crate) fn fsverity_descriptor(
        &self,
        digest: &FileDigest,
        providers: &Providers,
    ) -> Result<Descriptor, Error> {
        let mut bytes = [0; Descriptor::LEN];
        self.named().read_at(&mut bytes, 0)?;
        let descriptor = Descriptor::from_bytes(&bytes).map_err(|error| error.at(self.name()))?;
        match descriptor.digest(providers)? {
            found if found == *digest => Ok(descriptor),
            found => {
                Err(Error::coded(Code::BadDigest, format!("the tree's digest is {found}, and not {digest}"))
                    .at(self.name()))
            }
        }
    }
}

impl Image {
    /// Completes a tree's file, of which the hash blocks of all parts are there ([`Image::tree_part`]; the tree begins at byte
    /// 4096), by the levels above them and the descriptor. Returns the digest.
    ///
    /// # Errors
    /// Those of [`Part::join`]; `Argument` if the image was opened for reading; `Io`.
    pub fn fsverity_join(&self, parts: &[Part<WholeFile>], work: &Work<'_>) -> Result<FileDigest, Error> {
        let _lease = self.lease()?;
        let first = parts.first().ok_or_else(|| Error::argument("no parts were given"))?;
        let geometry = first.whole().geometry()?;
        self.grow_to(TREE_OFFSET + geometry.tree_size())?;
        let device = self.named();
        let descriptor = Part::join(parts, &TreeDevice::new(&geometry, &device, TREE_OFFSET), work)?;
        self.write_descriptor(&descriptor)?;
        descriptor.digest(&work.providers)
    }
}
