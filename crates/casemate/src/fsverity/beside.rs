//! A tree beside its file: the descriptor at the beginning, zeros up to byte 4096, and the Merkle tree as
//! `fsverity digest --out-merkle-tree` writes it. A reader who knows the digest can verify any part of the file,
//! from any source.

use std::path::Path;
use std::sync::Arc;

use casemate_blockdev::{AtFile, BlockDevice, signatures, usize_of};
use casemate_providers::{Providers, Work};
use casemate_verity::fs::Describer;
use casemate_verity::tree::TreeDevice;
use casemate_verity::{Part, Whole};

use super::{Descriptor, FileDigest, Parameters, WholeFile};
use crate::target::{self, Consent, Made};
use crate::{Code, Error, Image};

/// The first byte of the tree.
const TREE_OFFSET: u64 = 4096;

/// Kind of a file with the hashes of another one, beside which it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Beside {
    /// An fs-verity tree.
    Tree,
    /// A hash area of dm-verity.
    Area,
}

impl Image {
    /// Asks for consent if what the image holds would be lost to a tree or a hash area. An earlier one of the same kind needs
    /// no consent. `is_replaced` tells that a regular file, or an object of a store, is replaced as a whole: then data of no
    /// known kind need none.
    ///
    /// # Errors
    /// `Io`; whatever the consent says.
    pub fn look_before(&self, beside: Beside, is_replaced: bool, consent: Consent<'_>) -> Result<(), Error> {
        let made = match beside {
            Beside::Area => Made::Known(signatures::VERITY),
            Beside::Tree if self.begins_with_tree()? => return Ok(()),
            Beside::Tree => Made::Data,
        };
        match is_replaced {
            true => target::look(self.name(), self.top(), made, true, consent),
            false => target::look_in_place(self, made, consent),
        }
    }

    /// Whether the image begins with a descriptor, and zeros up to the tree behind it.
    fn begins_with_tree(&self) -> Result<bool, Error> {
        let mut begin = vec![0; usize_of(TREE_OFFSET)];
        if self.top().size() < TREE_OFFSET {
            return Ok(false);
        }
        self.named().read_at(&mut begin, 0)?;
        let (descriptor, rest) = begin.split_at(Descriptor::LEN);
        Ok(Descriptor::from_bytes(descriptor).is_ok() && rest.iter().all(|byte| *byte == 0))
    }

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
    /// `Argument` if the tree's image was opened for reading, is what the data are in, or holds what would be lost; `Io`.
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
        if !tree.is_new() {
            let is_file = tree.start() == 0 && tree.path().is_some_and(Path::is_file);
            tree.look_before(Beside::Tree, is_file, &target::refuse)?;
        }
        let device = tree.named();
        tree.grow_to(len)?;
        tree.cut_to(len)?;
        let describer = Describer::new(parameters.clone(), work)?;
        let sink = TreeDevice::new(&geometry, &device, TREE_OFFSET);
        let descriptor = describer.describe_as(&geometry, &self.named(), &sink)?;
        tree.write_descriptor(&descriptor)?;
        descriptor.digest(&work.providers)
    }

    /// Puts the descriptor before a tree that is complete: until then nothing takes it for one.
    fn write_descriptor(&self, descriptor: &Descriptor) -> Result<(), Error> {
        let mut begin = vec![0; usize_of(TREE_OFFSET)];
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
    /// Errors of [`Part::join`]; `Argument` if the image was opened for reading; `Io`.
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
