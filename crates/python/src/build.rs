//! ext4 images made of trees.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use casemate::ext4::{
    Build, BuildOptions, BuildSize, BuildTarget, Features, Identity, Sealing, Source, TreeOptions, read_tree,
    source_date_epoch,
};
use casemate::fsverity::Parameters;
use casemate::{Error, Output, Work};
use pyo3::prelude::*;

use crate::error::raise;
use crate::work::{Effort, working};

/// The image to build and its sources; `kind` is the type of file system, and one size at most is given.
struct Wanted {
    sources: Vec<Source>,
    size: Option<u64>,
    free: u64,
    kind: String,
    features: String,
    label: Vec<u8>,
    block_size: u32,
    owner: Option<(u32, u32)>,
    seed: Option<String>,
    verity: bool,
}

impl Wanted {
    /// Makes the image; returns its size in bytes, and the numbers of files, directories and others.
    fn build(&self, path: &Path, work: &Work<'_>) -> Result<(u64, u64, u64, u64), Error> {
        let files = self.sources.iter().filter_map(|source| match source {
            Source::Tar(path) | Source::Layer(path) => Some(path.as_path()),
            _ => None,
        });
        Output::check(path, &files.collect::<Vec<_>>())?;
        let target = BuildTarget::File(path);
        let mut tree = TreeOptions::default();
        tree.owners.all = self.owner;
        let mut tree = read_tree(&self.sources, &target, &tree, work)?;
        let time = source_date_epoch()?;
        if let Some(latest) = time {
            tree.clamp_times(latest);
        }
        let identity = match &self.seed {
            Some(text) => Identity::of_text(text, work),
            None => Identity::of_tree(&tree, work),
        };
        let mut options = BuildOptions::new(identity.uuid, identity.hash_seed);
        options.features = Features::of_type(&self.kind)?;
        for word in self.features.split(',').filter(|word| !word.is_empty()) {
            options.features.change(word)?;
        }
        (options.label, options.block_size) = (self.label.clone(), self.block_size);
        options.time = time;
        options.size = match (self.size, target.size()?) {
            (Some(size), _) => BuildSize::Bytes(size),
            (None, Some(size)) if self.free == 0 => BuildSize::Bytes(size),
            (None, _) => BuildSize::Fitting { free: self.free, align: 1 },
        };
        // As `casemate ext4 build --verity` has it.
        let parameters =
            || Parameters::new(Parameters::default().algorithm(), self.block_size.min(4096), &[]);
        let sealing = match self.verity {
            true => Some(Arc::new(Sealing::new(parameters()?, work.providers.clone()))),
            false => None,
        };
        let build =
            Build::protected(tree, &options, sealing, None).map_err(|error| error.at(path.display()))?;
        let size = build.size();
        let report = build.write(&target, &casemate::target::refuse, work)?;
        Ok((size, report.files, report.directories, report.others))
    }
}

/// Makes an image of folders, tar streams and layers of OCI images: each has its kind and its path.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "Python names them")]
pub fn ext4_build(
    py: Python<'_>,
    path: PathBuf,
    sources: Vec<(String, PathBuf)>,
    size: Option<u64>,
    free: u64,
    kind: String,
    features: String,
    label: String,
    block_size: u32,
    owner: Option<(u32, u32)>,
    seed: Option<String>,
    verity: bool,
    effort: Effort,
) -> PyResult<(u64, u64, u64, u64)> {
    let sources = sources.into_iter().map(|(kind, path)| match &*kind {
        "folder" => Ok(Source::Folder(path)),
        "tar" => Ok(Source::Tar(path)),
        "layer" => Ok(Source::Layer(path)),
        "oci" => Ok(Source::Oci(path, None)),
        _ => Err(raise(Error::argument("a source is a folder, a tar, a layer or an oci folder"))),
    });
    let sources = sources.collect::<PyResult<_>>()?;
    let label = label.into_bytes();
    let wanted = Wanted { sources, size, free, kind, features, label, block_size, owner, seed, verity };
    working(py, effort, |work| wanted.build(&path, work))
}
