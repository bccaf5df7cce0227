//! From bytes that somebody hands over to a file's descriptor.

use casemate_providers::Providers;

use crate::Error;
use crate::fs::{Descriptor, Parameters};
use crate::tree::TreeHasher;

/// The descriptor of a file whose bytes come in pieces of any size.
///
/// ```
/// use casemate_providers::Providers;
/// use casemate_verity::fs::{FileHasher, Parameters};
///
/// let providers = Providers::default();
/// let mut hasher = FileHasher::new(Parameters::default(), &providers)?;
/// hasher.update(b"");
/// let empty_file = "sha256:3d248ca542a24fc62d1c43b916eae5016878e2533c88238480b26128a1f1af95";
/// assert_eq!(hasher.finish()?.digest(&providers)?.to_string(), empty_file);
/// # Ok::<(), casemate_verity::Error>(())
/// ```
#[derive(Clone)]
pub struct FileHasher {
    parameters: Parameters,
    tree: TreeHasher,
}

impl FileHasher {
    /// A file of no bytes so far.
    ///
    /// # Errors
    /// `Unsupported` with the reasons, if no implementation of the hash may be used.
    pub fn new(parameters: Parameters, providers: &Providers) -> Result<FileHasher, Error> {
        let tree = TreeHasher::new(parameters.shape(), parameters.block_hash(providers)?);
        Ok(FileHasher { parameters, tree })
    }

    /// Takes the next bytes of the file.
    pub fn update(&mut self, data: &[u8]) {
        self.tree.update(data);
    }

    /// The descriptor of the file that all of this was.
    ///
    /// # Errors
    /// `Argument` if it was too long for a tree.
    pub fn finish(self) -> Result<Descriptor, Error> {
        let built = self.tree.finish()?;
        Ok(Descriptor::new(self.parameters, built.data_size, &built.root_hash))
    }

    /// The parameters of the tree: algorithm, block size and salt.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }
}
