//! Sources of a tree's files: folders, tar streams and layers of OCI images.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use casemate_blockdev::os::inode;
use casemate_blockdev::{BlockDevice, FileDevice, Output, Stream, usize_of};
use casemate_providers::Work;
use casemate_trees::{Packing, oci, unpacked};

use crate::build::target::BuildTarget;
use crate::build::tree::{Tree, TreeOptions};
use crate::error::{Error, Result};

/// A source of the files of a new file system.
#[derive(Clone, Debug)]
pub enum Source {
    /// A folder of the host.
    Folder(PathBuf),
    /// A tar stream in a file, which may be compressed with gzip or zstd; "-" is standard input.
    Tar(PathBuf),
    /// A layer of an OCI image, as a tar stream: names that begin with `.wh.` remove what earlier sources have.
    Layer(PathBuf),
    /// All layers of an image in an OCI layout folder: of the only one, or of the one with this name, digest or platform.
    Oci(PathBuf, Option<String>),
}

impl Source {
    /// The file or folder that it is.
    pub fn path(&self) -> &Path {
        match self {
            Source::Folder(path) | Source::Tar(path) | Source::Layer(path) | Source::Oci(path, _) => path,
        }
    }

    /// Returns whether it is a tar stream that comes from standard input.
    pub fn is_standard_input(&self) -> bool {
        matches!(self, Source::Tar(path) | Source::Layer(path) if path == Path::new("-"))
    }
}

impl Tree {
    /// Reads the files of a tree from several sources, later ones over earlier ones. Their contents are read when the file
    /// system is written.
    ///
    /// # Errors
    /// Errors of the host; `Corrupt` for what is no tar stream; `Argument` if a source is the target.
    pub fn of_sources(
        sources: &[Source],
        target: &BuildTarget,
        options: &TreeOptions,
        work: &Work<'_>,
    ) -> Result<Tree> {
        let mut options = options.clone();
        options.owners.check()?;
        if sources.iter().filter(|source| source.is_standard_input()).count() > 1 {
            return Err(Error::argument(
                "standard input, \"-\", can't be two of the sources: it has one tar stream",
            ));
        }
        if let Some(path) = target.path() {
            let files: Vec<&Path> =
                sources.iter().map(Source::path).filter(|path| *path != Path::new("-")).collect();
            Output::check(path, &files)?;
            options.image = std::fs::metadata(path).ok().and_then(|metadata| inode(&metadata));
        }
        let mut tree = Tree::new();
        for source in sources {
            options.whiteouts = matches!(source, Source::Layer(_) | Source::Oci(..));
            match source {
                Source::Folder(path) => tree.add_folder(path, &options, work.pool)?,
                Source::Tar(path) | Source::Layer(path) if path == Path::new("-") => {
                    add_tar_stream(&mut tree, Stream::input()?, "-", &options, work)?;
                }
                Source::Tar(path) | Source::Layer(path) => {
                    let file = Stream::open(path).map_err(|error| Error::io(path.display(), error))?;
                    add_tar(&mut tree, file, path, &options, work)?;
                }
                Source::Oci(folder, name) => {
                    for layer in oci::layers(folder, name.as_deref(), work.providers.cpu(), work.events)? {
                        add_tar(&mut tree, Stream::over(layer.file)?, &layer.path, &options, work)?;
                    }
                }
            }
        }
        Ok(tree)
    }
}

/// Adds what a tar file has; its contents are read where they lie, unless it is compressed or a pipe.
fn add_tar(tree: &mut Tree, file: Stream, path: &Path, options: &TreeOptions, work: &Work<'_>) -> Result<()> {
    let name = path.display().to_string();
    match FileDevice::from_file(file.file().try_clone()?) {
        Ok(device) if packing(&device).map_err(|error| error.at(&name))?.is_none() => {
            tree.add_tar(Arc::new(device), &name, options, work.events)
        }
        _ => add_tar_stream(tree, file, &name, options, work),
    }
}

/// Adds what a tar stream has, whose members are kept in a temporary file.
fn add_tar_stream(
    tree: &mut Tree,
    from: impl Read,
    name: &str,
    options: &TreeOptions,
    work: &Work<'_>,
) -> Result<()> {
    let mut stream = unpacked(from).map_err(|error| error.at(name))?;
    let kept = tempfile::tempfile().map_err(|error| Error::io("a temporary file", error))?;
    let kept = Arc::new(FileDevice::from_file(kept)?);
    tree.add_tar_stream(&mut stream, kept, name, options, work.events)
}

/// How the bytes on a device are compressed.
fn packing(device: &FileDevice) -> Result<Option<Packing>> {
    let mut begin = [0; 16];
    let begin = &mut begin[..usize_of(device.size().min(16))];
    device.read_at(begin, 0)?;
    Packing::of(begin)
}
