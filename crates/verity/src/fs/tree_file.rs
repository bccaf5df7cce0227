//! A tree beside its file: the descriptor at the beginning, zeros up to byte 4096, and the Merkle tree as
//! `fsverity digest --out-merkle-tree` writes it. A reader who knows the digest can verify any part of the file,
//! from any source.

use std::path::Path;
use std::sync::Arc;

use casemate_blockdev::target;
use casemate_blockdev::{AtFile, BlockDevice, Medium, usize_of};
use casemate_providers::{Providers, Work};

use super::descriptor::TREE_OFFSET;
use super::{Describer, Descriptor, FileDigest, Parameters, WholeFile};
use crate::tree::{TreeDevice, Verified};
use crate::{Beside, Code, Error, Part, Whole, is_whole_tree};

/// The file with the fs-verity tree of another one.
///
/// ```
/// use casemate_verity::fs::{Parameters, TreeFile};
/// use casemate_verity::{Access, Medium, Providers, Work};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = |name: &str| folder.path().join(name);
/// # std::fs::write(path("model.bin"), vec![7; 1 << 20])?;
/// let model = Medium::open(path("model.bin"), Access::Read)?;
/// let tree = Medium::create(path("model.bin.fsverity"))?;
/// let digest = TreeFile::new(&tree).make(&model, &Parameters::default(), &Work::default())?;
///
/// let checked = TreeFile::new(&tree).open(&model, &digest, &Providers::default())?.laid_on(model);
/// let mut part = [0; 100];
/// checked.top().read_at(&mut part, 300_000)?;
/// # assert_eq!(part, [7; 100]);
/// # Ok::<(), casemate_verity::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TreeFile<'a>(&'a Medium);

impl<'a> TreeFile<'a> {
    /// A file that has a tree, or is going to have one.
    pub fn new(medium: &'a Medium) -> TreeFile<'a> {
        TreeFile(medium)
    }

    /// Makes the tree of all that `data` hold; returns the digest. A new file has its name
    /// then. A regular file gets the tree's length; an earlier tree is replaced.
    ///
    /// # Errors
    /// `Argument` if the tree's medium was opened for reading, is what the data are in, or holds what would be lost; `Io`.
    pub fn make(self, data: &Medium, parameters: &Parameters, work: &Work<'_>) -> Result<FileDigest, Error> {
        let tree = self.0;
        let _lease = tree.lease()?;
        let size = data.top().size();
        let geometry = parameters.geometry(size).map_err(|error| error.at(data.name()))?;
        let lies_below = |path| data.is_stored_at(path) && !data.is_file(path);
        let len = TREE_OFFSET + geometry.tree_size();
        if data.is_changed_by(size.max(1), tree, 0..len) || tree.path().is_some_and(lies_below) {
            let text = format!("the tree would be written over what it is made of, {}", data.name());
            return Err(Error::argument(text).at(tree.name()));
        }
        if !tree.is_new() {
            let is_file = tree.start() == 0 && tree.path().is_some_and(Path::is_file);
            Beside::Tree.look_before(tree, is_file, &target::refuse)?;
        }
        let device = tree.named();
        tree.grow_to(len)?;
        tree.cut_to(len)?;
        let describer = Describer::new(parameters.clone(), work)?;
        let sink = TreeDevice::new(&geometry, &device, TREE_OFFSET);
        let descriptor = describer.describe_as(&geometry, &data.named(), &sink)?;
        self.write_descriptor(&descriptor)?;
        descriptor.digest(&work.providers)
    }

    /// The device with the bytes of `data`, each read of which is compared with the tree. It can't be written.
    /// [`VerifiedDevice::laid_on`](crate::tree::VerifiedDevice::laid_on) makes a medium of it.
    ///
    /// # Errors
    /// `Corrupt` if there is no tree; `Mismatch` for a tree of another digest, or a file of another size.
    pub fn open(self, data: &Medium, digest: &FileDigest, providers: &Providers) -> Result<Verified, Error> {
        let descriptor = self.descriptor(digest, providers)?;
        let below = self.0.device();
        let device = descriptor.verified(providers, data.device(), below, TREE_OFFSET).at(data.name())?;
        device.check_root().map_err(|error| error.at(self.0.name()))?;
        Ok(Arc::new(device))
    }

    /// The descriptor that a tree's file begins with.
    ///
    /// # Errors
    /// `Corrupt` or `Unsupported` if there is none that makes sense; `Mismatch` if it has another digest.
    pub fn descriptor(&self, digest: &FileDigest, providers: &Providers) -> Result<Descriptor, Error> {
        let mut bytes = [0; Descriptor::LEN];
        self.0.named().read_at(&mut bytes, 0)?;
        let descriptor = Descriptor::from_bytes(&bytes).map_err(|error| error.at(self.0.name()))?;
        match descriptor.digest(providers)? {
            found if found == *digest => Ok(descriptor),
            found => {
                Err(Error::coded(Code::BadDigest, format!("the tree's digest is {found}, and not {digest}"))
                    .at(self.0.name()))
            }
        }
    }

    /// Completes a tree's file, of which the hash blocks of all parts are there ([`Part::of_medium`]; the tree begins at byte
    /// 4096), by the levels above them and the descriptor. Returns the digest.
    ///
    /// # Errors
    /// Errors of [`Part::join`]; `Argument` if the medium was opened for reading; `Io`.
    pub fn join(&self, parts: &[Part<WholeFile>], work: &Work<'_>) -> Result<FileDigest, Error> {
        let _lease = self.0.lease()?;
        let first = parts.first().ok_or_else(|| Error::argument("no parts were given"))?;
        let geometry = first.whole().geometry()?;
        self.0.grow_to(TREE_OFFSET + geometry.tree_size())?;
        let device = self.0.named();
        let descriptor = Part::join(parts, &TreeDevice::new(&geometry, &device, TREE_OFFSET), work)?;
        self.write_descriptor(&descriptor)?;
        descriptor.digest(&work.providers)
    }

    /// Whether this is the whole tree of a file with this digest, as [`TreeFile::make`] makes it: no byte of it is another one, and none is
    /// missing. The file is not read.
    ///
    /// # Errors
    /// `Unsupported` if no implementation of the hash may be used; `Io`.
    pub fn is_whole(&self, digest: &FileDigest, work: &Work<'_>) -> Result<bool, Error> {
        if !Descriptor::leads_tree(self.0)? {
            return Ok(false);
        }
        let mut begin = [0; Descriptor::LEN];
        self.0.named().read_at(&mut begin, 0)?;
        let descriptor = Descriptor::from_bytes(&begin)?;
        if begin != descriptor.to_bytes() || descriptor.digest(&work.providers)? != *digest {
            return Ok(false);
        }
        let whole = WholeFile { parameters: descriptor.parameters().clone(), size: descriptor.data_size() };
        is_whole_tree(&whole, &self.0.named(), TREE_OFFSET, descriptor.root_hash(), work).at(self.0.name())
    }

    /// Puts the descriptor before a tree that is complete: until then nothing takes it for one.
    fn write_descriptor(&self, descriptor: &Descriptor) -> Result<(), Error> {
        let mut begin = vec![0; usize_of(TREE_OFFSET)];
        begin[..Descriptor::LEN].copy_from_slice(&descriptor.to_bytes());
        self.0.named().write_at(&begin, 0)?;
        self.0.commit()
    }
}
