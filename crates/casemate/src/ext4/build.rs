//! New ext4 file systems, made of folders, tar streams and layers of OCI images in one pass.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use casemate_blockdev::android_sparse::Written;
use casemate_blockdev::os::{FileTypeExt, inode};
use casemate_blockdev::{
    AtFile, BlockDevice, ErrorKind, FileDevice, PartitionId, Stream, Window, set_len, signatures, usize_of,
};
use casemate_ext4::{Encrypt, Plan, Seal, Tree, uuid_text};
use casemate_providers::Work;
use casemate_trees::{Packing, oci, unpacked};
use casemate_verity::dm;

pub use casemate_ext4::{
    BuildOptions, BuildReport, BuildSize, Features, Geometry, Identify, NewUuid, Owners, TreeOptions,
    uuid as uuid_of,
};

use super::encrypt::Encrypting;
use super::seal::Sealing;
use crate::luks::NewVolume;
use crate::target::{self, Consent, Made, Target, is_block_device};
use crate::verity::{FormatOptions, Formatted, Seed};
use crate::{Access, Advice, Error, Image, Output};

/// Kind of what is made.
const EXT: Made = Made::Known(signatures::EXT);

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

/// A new file system that is ready to be written.
#[derive(Debug)]
pub(super) struct Build {
    plan: Plan,
}

/// Where a new file system goes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum BuildTarget {
    /// A file, which is there whole or not at all, or a block device.
    File(PathBuf),
    /// A part of a file that is there, or of a block device, whose other bytes stay.
    Within {
        /// The file or device.
        path: PathBuf,
        /// The part's first byte.
        offset: u64,
    },
    /// A file that is there, which stays the same file with its owner and all its names, or a block device. As mke2fs does it, a
    /// file grows if the file system needs that, bytes behind the file system stay, and space in it that nothing uses is given
    /// back.
    InPlace {
        /// The file or device.
        path: PathBuf,
        /// The file system's first byte.
        offset: u64,
    },
    /// A partition (GPT or MBR).
    Partition {
        /// The file or device.
        path: PathBuf,
        /// The partition: its number, counted from 1, or a GPT's UUID or name.
        id: PartitionId,
    },
    /// An image that is open for changes, such as a LUKS volume. It has its size.
    Image(Box<Image>),
    /// Standard output.
    Stream,
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

impl From<PathBuf> for BuildTarget {
    fn from(path: PathBuf) -> BuildTarget {
        BuildTarget::File(path)
    }
}

impl From<&Path> for BuildTarget {
    fn from(path: &Path) -> BuildTarget {
        BuildTarget::File(path.to_owned())
    }
}

impl BuildTarget {
    /// The size in bytes that the target has, if it is a block device or the rest of a file.
    ///
    /// # Errors
    /// `Io`.
    pub fn size(&self) -> Result<Option<u64>, Error> {
        let (path, offset) = match self {
            BuildTarget::File(path) => (path, 0),
            BuildTarget::Within { path, offset } | BuildTarget::InPlace { path, offset } => (path, *offset),
            BuildTarget::Partition { path, id } => {
                let image = Image::open(path, Access::ReadUnlocked)?.partition_named(id, false)?;
                return Ok(Some(image.device().size()));
            }
            BuildTarget::Image(image) => return Ok(Some(image.device().size())),
            BuildTarget::Stream => return Ok(None),
        };
        let metadata = std::fs::metadata(path);
        let is_fixed = metadata.is_ok_and(|metadata| {
            metadata.file_type().is_block_device() || !matches!(self, BuildTarget::File(_))
        });
        if !is_fixed {
            return Ok(None);
        }
        let size = FileDevice::open(path).map_err(|error| error.at(path.display()))?.size();
        Ok(Some(size.saturating_sub(offset)))
    }

    /// Asks for consent if something would be lost there, before anything is begun.
    ///
    /// # Errors
    /// `Io`; whatever the consent says.
    pub fn look(&self, consent: Consent<'_>) -> Result<(), Error> {
        let image = |path: &Path| Image::open(path, Access::ReadUnlocked);
        match self {
            BuildTarget::File(path) => target::look_at_path(path, Some(EXT), consent),
            BuildTarget::Within { path, offset } | BuildTarget::InPlace { path, offset } => {
                Target::on(rest(image(path)?, *offset)?, EXT, consent).map(drop)
            }
            BuildTarget::Partition { path, id } => {
                Target::on(image(path)?.partition_named(id, false)?, EXT, consent).map(drop)
            }
            BuildTarget::Image(image) => Target::on(Image::clone(image), EXT, consent).map(drop),
            BuildTarget::Stream => Ok(()),
        }
    }

    /// The file or device, if there is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            BuildTarget::File(path)
            | BuildTarget::Within { path, .. }
            | BuildTarget::InPlace { path, .. }
            | BuildTarget::Partition { path, .. } => Some(path),
            BuildTarget::Image(image) => image.path(),
            BuildTarget::Stream => None,
        }
    }

    /// The image that is written.
    pub(super) fn open(&self, made: Made, consent: Consent<'_>) -> Result<Target, Error> {
        let image = |path: &Path| Image::open(path, Access::Change);
        match self {
            BuildTarget::File(path) => Target::anew(path, made, consent),
            BuildTarget::Within { path, offset } | BuildTarget::InPlace { path, offset } => {
                Target::on(rest(image(path)?, *offset)?, made, consent)
            }
            BuildTarget::Partition { path, id } => {
                Target::on(image(path)?.partition_named(id, false)?, made, consent)
            }
            BuildTarget::Image(image) => Target::on(Image::clone(image), made, consent),
            BuildTarget::Stream => Err(Error::argument(
                "standard output can't be opened as an image; build into a file or block device",
            )),
        }
    }
}

/// All of an image from a byte on: nothing, where the image ends before it.
fn rest(image: Image, offset: u64) -> Result<Image, Error> {
    let offset = offset.min(image.device().size());
    image.window(offset, None)
}

/// Reads the files of a tree from several sources, later ones over earlier ones. Their contents are read when the file
/// system is written.
///
/// # Errors
/// Errors of the host; `Corrupt` for what is no tar stream; `Argument` if a source is the target.
pub(super) fn read_tree(
    sources: &[Source],
    target: &BuildTarget,
    options: &TreeOptions,
    work: &Work<'_>,
) -> Result<Tree, Error> {
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

/// Adds what a tar file has; its contents are read where they lie, unless it is compressed or a pipe.
fn add_tar(
    tree: &mut Tree,
    file: Stream,
    path: &Path,
    options: &TreeOptions,
    work: &Work<'_>,
) -> Result<(), Error> {
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
) -> Result<(), Error> {
    let mut stream = unpacked(from).map_err(|error| error.at(name))?;
    let kept = tempfile::tempfile().map_err(|error| Error::io("a temporary file", error))?;
    let kept = Arc::new(FileDevice::from_file(kept)?);
    tree.add_tar_stream(&mut stream, kept, name, options, work.events)
}

/// How the bytes on a device are compressed.
fn packing(device: &FileDevice) -> Result<Option<Packing>, Error> {
    let mut begin = [0; 16];
    let begin = &mut begin[..usize_of(device.size().min(16))];
    device.read_at(begin, 0)?;
    Packing::of(begin)
}

/// Makes an image on a temporary file, and copies it to a stream when it is complete.
///
/// # Errors
/// Errors of `make`; `Io`.
pub(super) fn on_stream<R>(
    mut to: impl Write,
    name: &str,
    make: impl FnOnce(&Target) -> Result<R, Error>,
) -> Result<R, Error> {
    let folder = tempfile::tempdir().map_err(|error| Error::io("a temporary folder", error))?;
    let path = folder.path().join("image");
    let made = make(&Target::create(&path, Made::Data, &target::refuse)?)?;
    let copied = File::open(&path).and_then(|mut file| io::copy(&mut file, &mut to)).and_then(|_| to.flush());
    copied.map_err(|error| Error::io(name, error))?;
    Ok(made)
}

/// Makes salt and UUID of dm-verity follow from the UUID of the file system, where no seed says otherwise.
fn identify(format: &mut FormatOptions, report: &BuildReport) {
    format.seed.get_or_insert_with(|| Seed::from_text(&uuid_text(&report.uuid)));
}

impl Build {
    /// Decides where everything of a tree goes, with fs-verity on files and fscrypt on directories.
    ///
    /// # Errors
    /// `Argument` for options that contradict each other, and for fs-verity on files that are not there; `Io` for a size that is
    /// too small (`StorageFull`), for directories that are not in the tree, and for a file with a name in an encrypted directory
    /// and one outside.
    pub fn new(
        tree: Tree,
        options: &BuildOptions,
        sealing: Option<Arc<Sealing>>,
        encrypting: Option<Encrypting>,
    ) -> Result<Build, Error> {
        let mut options = options.clone();
        if encrypting.as_ref().is_some_and(Encrypting::needs_stable_inodes) {
            options.features.change("stable_inodes")?;
        }
        let sealer = sealing.clone().map(|sealing| -> Arc<dyn Seal> { sealing });
        let encrypter = encrypting.map(|encrypting| -> Arc<dyn Encrypt> { Arc::new(encrypting) });
        let plan = Plan::protected(tree, &options, sealer, encrypter)?;
        sealing.map_or(Ok(()), |sealing| sealing.check_used())?;
        Ok(Build { plan })
    }

    /// The image's size in bytes.
    pub fn size(&self) -> u64 {
        self.plan.size()
    }

    /// Bytes of contents, which the listener hears of.
    pub fn contents_size(&self) -> u64 {
        self.plan.contents_size()
    }

    /// The UUID of the file system. All contents are read for it if it follows from them.
    ///
    /// # Errors
    /// `Io`; whatever the listener says.
    pub fn uuid(&self, work: &Work<'_>) -> Result<[u8; 16], Error> {
        self.plan.uuid(work)
    }

    /// The numbers of the file system.
    pub fn geometry(&self) -> &Geometry {
        self.plan.geometry()
    }

    /// Writes the file system. Files are there whole or not at all. `consent` is asked if something would be lost.
    ///
    /// # Errors
    /// `Io`; that a source changed since it was read; [`Error::is_busy`] if the target is in use; whatever the consent says.
    pub fn write(
        self,
        target: &BuildTarget,
        consent: Consent<'_>,
        work: &Work<'_>,
    ) -> Result<BuildReport, Error> {
        match target {
            BuildTarget::File(path) => {
                let output = Output::create_anew(path, &[], Some(EXT), consent)?;
                let Some(device) = output.device() else { return self.stream(output, path, work) };
                let is_new = std::fs::metadata(path).map_or(true, |metadata| metadata.is_file());
                let report = self.to_device(device, path, is_new, work);
                let report = report.map_err(|error| error.within(path.display()))?;
                output.commit()?;
                Ok(report)
            }
            BuildTarget::Within { path, offset } => {
                let image = Image::open(path, Access::Change)?;
                image.check_partitions_in(*offset..offset.saturating_add(self.size()))?;
                let window = image.device();
                let window = Window::new(window, *offset, self.size())
                    .map_err(|error| Error::io(path.display(), error))?;
                let place = image.clone().window(*offset, Some(self.size()))?;
                Target::on(image.window(*offset, None)?, EXT, consent)?;
                place.erase_signatures(0, work.events)?;
                self.plan.write(&window, false, work).map_err(|error| error.within(path.display()))
            }
            BuildTarget::InPlace { path, offset } => {
                let image = Image::open(path, Access::Change)?;
                let end = offset.checked_add(self.size());
                let end = end.ok_or_else(|| Error::argument("the file system would end behind all files"))?;
                image.check_partitions_in(*offset..end)?;
                Target::on(rest(image.clone(), *offset)?, EXT, consent)?;
                let is_file = !is_block_device(path);
                if is_file {
                    image.grow_to(end)?;
                }
                image.clone().window(*offset, Some(self.size()))?.erase_signatures(0, work.events)?;
                let window = Window::new(image.device(), *offset, self.size()).at(path.display())?;
                let is_zeroed = is_file
                    && match window.zero_fast(0, self.size(), true) {
                        Err(error) if error.kind() == ErrorKind::Unsupported => false,
                        done => done.map(|()| true).at(path.display())?,
                    };
                self.plan.write(&window, is_zeroed, work).map_err(|error| error.within(path.display()))
            }
            BuildTarget::Partition { path, id } => {
                let image = Image::open(path, Access::Change)?.partition_named(id, false)?;
                let name = format!("partition {id}");
                self.to_image(image, &name, consent, work).map_err(|error| error.within(path.display()))
            }
            BuildTarget::Image(image) => {
                let name = image.name().to_owned();
                self.to_image(Image::clone(image), "the device", consent, work)
                    .map_err(|error| error.within(name))
            }
            BuildTarget::Stream => self.stream(io::stdout().lock(), Path::new("standard output"), work),
        }
    }

    /// Writes the file system into a new LUKS volume on an image, encrypted on its way. A new file gets its name when everything
    /// is there.
    ///
    /// # Errors
    /// As [`Build::write`], and those of [`NewVolume::write`].
    pub fn write_luks(
        self,
        image: &Target,
        volume: &NewVolume,
        work: &Work<'_>,
    ) -> Result<BuildReport, Error> {
        volume.write(image, self.size(), work, |inner| {
            self.plan.write(&*inner.device(), false, work).map_err(|error| error.within(image.name()))
        })
    }

    /// Writes a LUKS volume as [`Build::write_luks`] does, with dm-verity over the file system: the hash area lies behind it in the volume, or on a `hash` image.
    ///
    /// # Errors
    /// As [`Build::write_luks`] and [`Build::write_verified`]; `Unsupported` for parity.
    pub fn write_luks_verified(
        self,
        image: &Target,
        volume: &NewVolume,
        hash: Option<&Target>,
        format: FormatOptions,
        work: &Work<'_>,
    ) -> Result<(BuildReport, Formatted), Error> {
        if format.area.fec.is_some() {
            return Err(Error::unsupported("parity of dm-verity within a LUKS volume"));
        }
        let mut format = self.verity(image, hash, format)?;
        let layout = format.layout(image, &work.providers)?;
        let len = if hash.is_none() { layout.hash_device_size() } else { self.size() };
        volume.write(image, len, work, |inner| {
            let report = self.plan.write(&*inner.device(), false, work);
            let report = report.map_err(|error| error.within(image.name()))?;
            identify(&mut format, &report);
            let formatted = match hash {
                Some(hash) => Image::from(inner.clone()).verity_format(hash, &format, work)?,
                None => {
                    let layout = format.layout(image, &work.providers)?;
                    let named = inner.named();
                    let root_hash = dm::format(&layout, &named, &named, work)?;
                    Formatted { layout, root_hash, fec: None, fec_on_hash_device: false }
                }
            };
            Ok((report, formatted))
        })
    }

    /// Writes the file system to an image, makes dm-verity's hash area over it, and parity if it is wanted. The hash area lies
    /// behind the file system without a `hash` image; its salt and UUID follow from the file system's UUID, unless a seed says
    /// otherwise. New files get their names when everything is there.
    ///
    /// # Errors
    /// As [`Build::write`]; `Argument` for a size that is not whole data blocks; those of [`Image::verity_format`].
    pub fn write_verified(
        self,
        image: &Target,
        hash: Option<&Target>,
        format: FormatOptions,
        work: &Work<'_>,
    ) -> Result<(BuildReport, Formatted), Error> {
        let (size, mut format) = (self.size(), self.verity(image, hash, format)?);
        image.grow_to(size)?;
        if !image.is_new() {
            image.erase_signatures(0, work.events)?;
        }
        let report = self.plan.write(&*image.device(), image.is_new(), work);
        let report = report.map_err(|error| error.within(image.name()))?;
        identify(&mut format, &report);
        let formatted = image.verity_format(hash.unwrap_or(image), &format, work)?;
        image.commit()?;
        Ok((report, formatted))
    }

    /// Parameters of dm-verity over the file system.
    fn verity(
        &self,
        image: &Image,
        hash: Option<&Target>,
        mut format: FormatOptions,
    ) -> Result<FormatOptions, Error> {
        // These are targets, at which somebody has looked.
        format.overwrite = true;
        let size = self.size();
        let block = u64::from(format.area.data_block_size.unwrap_or_default().bytes());
        if !size.is_multiple_of(block) {
            let text =
                format!("the file system has {size} bytes, which are not whole data blocks of {block} bytes");
            return Err(Error::argument(text).advise(Advice::Align(block)).at(image.name()));
        }
        format.area.data_blocks = Some(size / block);
        if hash.is_none() {
            format.area.hash_offset = size;
        }
        Ok(format)
    }

    /// Writes the file system as a sparse image of Android: what is not in it stays as it is on a device that it is flashed to.
    ///
    /// # Errors
    /// As [`Build::write`]; `Argument` for a target that is no file and no stream, or a size that is not whole blocks.
    pub fn write_android_sparse(
        self,
        target: &BuildTarget,
        consent: Consent<'_>,
        work: &Work<'_>,
    ) -> Result<BuildReport, Error> {
        let kept = tempfile::tempfile().map_err(|error| Error::io("a temporary file", error))?;
        set_len(&kept, self.size())?;
        let written = Written::new(FileDevice::from_file(kept)?);
        let report = self.plan.write(&written, false, work)?;
        let (size, block_size) = (self.size(), self.geometry().block_size);
        match target {
            BuildTarget::Stream => written.write(size, block_size, &mut io::stdout().lock())?,
            BuildTarget::File(path) => {
                let made = Some(Made::Known(signatures::SPARSE));
                let mut output = io::BufWriter::new(Output::create_anew(path, &[], made, consent)?);
                written.write(size, block_size, &mut output).map_err(|error| error.within(path.display()))?;
                let output =
                    output.into_inner().map_err(|error| Error::io(path.display(), error.into_error()))?;
                output.commit()?;
            }
            BuildTarget::Within { .. }
            | BuildTarget::InPlace { .. }
            | BuildTarget::Partition { .. }
            | BuildTarget::Image(_) => {
                return Err(Error::argument("a sparse image is a file of its own; not within another one"));
            }
        }
        Ok(report)
    }

    /// Writes all of an open image, or its beginning.
    fn to_image(
        &self,
        image: Image,
        what: &str,
        consent: Consent<'_>,
        work: &Work<'_>,
    ) -> Result<BuildReport, Error> {
        let (size, room) = (self.size(), image.device().size());
        if room < size {
            let text = format!("{what} has {room} bytes; the file system has {size}");
            return Err(io::Error::new(io::ErrorKind::StorageFull, text).into());
        }
        let _lease = image.lease()?;
        let target = Target::on(image, EXT, consent)?;
        target.erase_signatures(0, work.events)?;
        self.plan.write(&*target.device(), false, work)
    }

    fn to_device(
        &self,
        device: &FileDevice,
        name: &Path,
        is_new: bool,
        work: &Work<'_>,
    ) -> Result<BuildReport, Error> {
        if is_new {
            set_len(device.file(), self.size())?;
        } else if device.size() < self.size() {
            let text = format!("{} bytes; the file system has {}", device.size(), self.size());
            return Err(io::Error::new(io::ErrorKind::StorageFull, text).into());
        } else {
            signatures::erase(device, name.display(), work.events)?;
        }
        self.plan.write(device, is_new, work)
    }

    /// Writes the image to a stream, which has no positions, from a temporary file.
    fn stream(self, mut to: impl Write, name: &Path, work: &Work<'_>) -> Result<BuildReport, Error> {
        let kept = tempfile::tempfile().map_err(|error| Error::io("a temporary file", error))?;
        let device = FileDevice::from_file(kept)?;
        let report = self.to_device(&device, name, true, work)?;
        let mut file = device.file();
        io::Seek::rewind(&mut file)?;
        io::copy(&mut file, &mut to)
            .and_then(|_| to.flush())
            .map_err(|error| Error::io(name.display(), error))?;
        Ok(report)
    }
}
