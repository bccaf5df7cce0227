//! A tree beside its file: the descriptor at the beginning, zeros up to byte 4096, and the Merkle tree as
//! `fsverity digest --out-merkle-tree` writes it. Whoever knows the digest reads any part of the file, wherever it comes
//! from, and knows that it is right.

use casemate_blockdev::BlockDevice;
use casemate_providers::{Providers, Work};
use casemate_verity::fs::Describer;
use casemate_verity::tree::TreeDevice;

use super::{Descriptor, FileDigest, Parameters};
use crate::{Error, Image};

/// The first byte of the tree.
pub(crate) const TREE_OFFSET: u64 = 4096;

impl Image {
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
    /// `Argument` if the tree's image was opened for reading; `Io`.
    pub fn fsverity_tree(
        &self,
        tree: &Image,
        parameters: &Parameters,
        work: &Work<'_>,
    ) -> Result<FileDigest, Error> {
        tree.check_writable()?;
        let geometry = parameters.geometry(self.top().size()).map_err(|error| error.at(self.name()))?;
        let device = tree.named();
        tree.grow_to(TREE_OFFSET + geometry.tree_size())?;
        let describer = Describer::new(parameters.clone(), work)?;
        let sink = TreeDevice::new(&geometry, &device, TREE_OFFSET);
        let descriptor = describer.describe_as(&geometry, &self.named(), &sink)?;
        // Last: until then nothing takes it for a tree.
        let mut begin = [0; TREE_OFFSET as usize];
        begin[..Descriptor::LEN].copy_from_slice(&descriptor.to_bytes());
        device.write_at(&begin, 0)?;
        tree.commit()?;
        descriptor.digest(&work.providers)
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
                Err(Error::mismatch(format!("the tree's digest is {found}, and not {digest}"))
                    .at(self.name()))
            }
        }
    }
}
