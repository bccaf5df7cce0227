//! From a file's bytes to its descriptor.

use std::io::Read;

use casemate_blockdev::BlockDevice;
use casemate_providers::{SaltedHash, Work};

use crate::Error;
use crate::fs::{Descriptor, Parameters};
use crate::tree::{
    Finding, Geometry, Job, Shape, Stored, Summary, TreeDevice, TreeSink, build, build_stream, check,
};

/// A builder of files' trees and descriptors, with given parameters.
///
/// ```
/// use casemate_blockdev::MemoryDevice;
/// use casemate_providers::Work;
/// use casemate_verity::fs::{Describer, Parameters};
///
/// let work = Work::default();
/// let describer = Describer::new(Parameters::default(), &work)?;
/// let descriptor = describer.describe(&MemoryDevice::new(Vec::new()), &())?;
/// let empty_file = "sha256:3d248ca542a24fc62d1c43b916eae5016878e2533c88238480b26128a1f1af95";
/// assert_eq!(descriptor.digest(&work.providers)?.to_string(), empty_file);
/// # Ok::<(), casemate_verity::Error>(())
/// ```
pub struct Describer<'a> {
    parameters: Parameters,
    hash: SaltedHash,
    shape: Shape,
    work: &'a Work<'a>,
}

impl<'a> Describer<'a> {
    /// A describer for trees of these parameters; the listener hears of bytes of data.
    ///
    /// # Errors
    /// `Unsupported` with the reasons, if no implementation of the hash may be used.
    pub fn new(parameters: Parameters, work: &'a Work<'a>) -> Result<Describer<'a>, Error> {
        let (hash, shape) = (parameters.block_hash(&work.providers)?, parameters.shape());
        Ok(Describer { parameters, hash, shape, work })
    }

    /// Builds the tree over all of `data`. The tree's blocks go to `sink`; `&()` keeps none.
    ///
    /// # Errors
    /// `Io` when reading or writing fails, or the data has become shorter meanwhile.
    pub fn describe(&self, data: &dyn BlockDevice, sink: &dyn TreeSink) -> Result<Descriptor, Error> {
        self.describe_as(&self.parameters.geometry(data.size())?, data, sink)
    }

    /// Builds the tree over all of `data`, whose geometry is known already because a
    /// [`crate::tree::TreeDevice`] needs it.
    ///
    /// # Errors
    /// As [`Describer::describe`].
    ///
    /// # Panics
    /// If the geometry is not one of these parameters.
    pub fn describe_as(
        &self,
        geometry: &Geometry,
        data: &dyn BlockDevice,
        sink: &dyn TreeSink,
    ) -> Result<Descriptor, Error> {
        let built = build(&self.job(), geometry, data, sink)?;
        Ok(Descriptor::new(self.parameters.clone(), built.data_size, &built.root_hash))
    }

    /// Builds the tree over everything that `input` yields: for pipes, whose length is not known before. A
    /// [`crate::tree::SpilledLevels`] can take the tree.
    ///
    /// # Errors
    /// `Io` when reading or writing fails.
    pub fn describe_stream(
        &self,
        input: &mut (dyn Read + Send),
        sink: &dyn TreeSink,
    ) -> Result<Descriptor, Error> {
        let built = build_stream(&self.job(), input, sink)?;
        Ok(Descriptor::new(self.parameters.clone(), built.data_size, &built.root_hash))
    }

    /// Checks `data` and the whole of `tree` below `root_hash`, and calls `report` for each wrong block.
    ///
    /// # Errors
    /// `Io` when reading or `report` fails; `UnexpectedEof` among them if the tree is too short for the data.
    pub fn check(
        &self,
        data: &dyn BlockDevice,
        tree: &dyn BlockDevice,
        root_hash: &[u8],
        report: &mut (dyn FnMut(Finding) -> Result<(), Error> + Send),
    ) -> Result<Summary, Error> {
        let geometry = &self.parameters.geometry(data.size())?;
        let tree = &TreeDevice::new(geometry, tree, 0);
        check(&self.job(), &Stored { geometry, data, tree }, root_hash, report)
    }

    /// The root hash that follows from the top block of `tree`, the stored tree of `data_size` bytes. `None` if
    /// there is no tree: for files of one block or none.
    ///
    /// # Errors
    /// `Io` when reading fails.
    pub fn stored_root_hash(&self, data_size: u64, tree: &dyn BlockDevice) -> Result<Option<Vec<u8>>, Error> {
        if self.parameters.geometry(data_size)?.levels().is_empty() {
            return Ok(None);
        }
        let mut top = vec![0; self.parameters.block_size()];
        tree.read_at(&mut top, 0)?;
        let mut root_hash = vec![0; self.shape.digest_len()];
        self.hash.hash(&top, &mut root_hash);
        Ok(Some(root_hash))
    }

    /// The parameters of the trees: algorithm, block size and salt.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    fn job(&self) -> Job<'_> {
        Job { shape: self.shape, hash: &self.hash, work: self.work }
    }
}
