//! Options that several commands of `casemate verity` take.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::ValueHint;

use casemate::blockdev::{Events, PartitionId, is_same_file};
use casemate::image_spec::{ImageSpec, read_root_hash};
use casemate::probe::VERITY;
use casemate::signature::check_root_hash;
use casemate::verity::{Fec, VerityOptions, Volume, hex};
use casemate::{Access, Advice, Error, Image, Output, Work};

use super::hash::HashArgs;
use crate::cmd::explained::{explained, hash_area_within, without_hash_area};
use crate::cmd::layers::{Asking, CryptArgs, spec_parser};
use crate::cmd::place::with_partition;
use crate::context::Context;
use crate::size::bytes;

/// Data with its hash area.
#[derive(clap::Args, Debug)]
pub struct StoredArgs {
    /// The data: a file or a block device, or a part of one, such as disk.img,partition=2, also with layers on it.
    #[arg(value_name = "DATA_DEVICE", value_parser = spec_parser(), value_hint = ValueHint::FilePath)]
    data: ImageSpec,
    /// The hash device, which may be the data device, or a part of it. Without it, the hash area lies in DATA_DEVICE, behind the
    /// data.
    #[arg(value_name = "HASH_DEVICE", value_parser = spec_parser(), value_hint = ValueHint::FilePath)]
    hash: Option<ImageSpec>,
    /// First byte of the hash area on the hash device. Commands that only read find one that was appended to a file system.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = bytes::<u64>)]
    pub hash_offset: u64,
    /// Make or expect no superblock; the other options give the parameters.
    #[arg(long)]
    pub no_superblock: bool,
    /// The partition (GPT or MBR) of DATA_DEVICE that has the data: its number, counted from 1, UUID or name.
    #[arg(short = 'P', long, value_name = "WHICH")]
    partition: Option<PartitionId>,
    /// The partition of HASH_DEVICE that has the hash area. Without it, a HASH_DEVICE that is the data device has the hash
    /// area behind the data: in the same partition, and encrypted as the data are.
    #[arg(long, value_name = "WHICH")]
    hash_partition: Option<PartitionId>,
    #[command(flatten)]
    pub options: HashArgs,
    #[command(flatten)]
    pub fec: FecArgs,
    #[command(flatten)]
    crypt: CryptArgs,
}

/// Data with its hash area, for commands that change them.
#[derive(clap::Args, Debug)]
pub struct ChangedArgs {
    #[command(flatten)]
    pub stored: StoredArgs,
    /// Do everything except writing; the changes go to temporary files.
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}

/// Error correction.
#[derive(clap::Args, Clone, Debug)]
pub struct FecArgs {
    /// Parity for error correction; it may be on the hash device.
    #[arg(long, value_name = "PATH")]
    pub fec_device: Option<PathBuf>,
    /// First byte of the parity.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = bytes::<u64>, requires = "fec_device")]
    pub fec_offset: u64,
    /// Parity bytes for each codeword of 255, from 2 to 24 [default: 2; of existing parity as its size tells].
    #[arg(long, value_name = "COUNT", requires = "fec_device")]
    pub fec_roots: Option<u32>,
}

/// A root hash that exists.
#[derive(clap::Args, Clone, Debug)]
pub struct RootHashArgs {
    /// The root hash in hex, or @FILE with the file that has it ("@-": standard input).
    #[arg(value_name = "ROOT_HASH")]
    pub root_hash: Option<String>,
    /// Read the root hash from this file; "-" is standard input.
    #[arg(long, value_name = "FILE")]
    pub root_hash_file: Option<PathBuf>,
}

/// Parts that are going to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changes {
    /// Hash area and parity, which are made if they are not there.
    New,
    /// Hash area and parity.
    HashArea,
    /// Data, hash area and parity, of which the parity may be one that can't be written.
    Data,
}

impl StoredArgs {
    /// The file or block device that the data lie in.
    pub fn data(&self) -> &Path {
        self.data.file()
    }

    /// The file or block device that the hash area lies in.
    pub fn hash(&self) -> &Path {
        self.hash.as_ref().unwrap_or(&self.data).file()
    }

    /// Whether the data are a part of their file or device, or lie on layers: the kernel has another name for them.
    pub fn data_is_part(&self) -> bool {
        self.partition.is_some() || !self.data.layers().is_empty()
    }

    /// Whether the hash area lies in a part of its file or device.
    pub fn hash_is_part(&self) -> bool {
        self.hash_partition.is_some() || self.hash.as_ref().is_some_and(|hash| !hash.layers().is_empty())
    }

    /// The root hash's bytes. A single word behind DATA_DEVICE that reads as a root hash is one: the hash area lies in
    /// DATA_DEVICE then.
    pub fn root_hash(&mut self, given: &RootHashArgs) -> Result<Vec<u8>, Error> {
        let is_given = given.root_hash.is_some() || given.root_hash_file.is_some();
        let word = self.hash.as_ref().filter(|spec| !is_given && spec.layers().is_empty());
        let word = word.and_then(|spec| spec.file().to_str());
        let is_hash = |word: &&str| word.starts_with('@') || hex::decode(word).is_some();
        let is_small =
            |word: &&str| std::fs::metadata(word).is_ok_and(|file| file.is_file() && file.len() < 512);
        let file = word.filter(is_small);
        let Some(word) = word.filter(|word| is_hash(word) && !Path::new(word).exists()) else {
            // The file that has the root hash, perhaps.
            return given.get().map_err(|error| match file {
                Some(file) => error.map_text(|text| format!("{text}; @{file} reads it from that file")),
                None => error,
            });
        };
        let root_hash = read_root_hash(word)?;
        self.hash = None;
        Ok(root_hash)
    }

    /// The data, the hash device, and the options with the parity; what lies in one file is opened once. What is written
    /// on trial goes to temporary files.
    fn images(
        &self,
        changes: Option<Changes>,
        on_trial: bool,
        context: &Context,
    ) -> Result<(Image, Image, VerityOptions), Error> {
        let data_spec = with_partition(&self.data, self.partition.clone(), self.crypt.specs()?)?;
        let hash_spec = self.hash.clone().unwrap_or_else(|| ImageSpec::of_file(self.data()));
        let hash_spec = with_partition(&hash_spec, self.hash_partition.clone(), Vec::new())?;
        let (data, hash) = (self.data(), self.hash());
        let opener = Asking::of(context);
        let fec = self.fec.fec_device.as_deref();
        let is_changed = |path: &Path| {
            (changes == Some(Changes::Data) && is_same_file(path, data))
                || (changes.is_some() && is_same_file(path, hash))
                || (changes.is_some() && fec.is_some_and(|fec| is_same_file(path, fec)))
        };
        let open = |path: &Path| match (is_changed(path), changes) {
            (false, _) => Image::open(path, Access::Read),
            (true, Some(Changes::New)) if on_trial => Image::create_on_trial(path),
            (true, Some(Changes::New)) => Image::create(path),
            (true, _) if on_trial => Image::open(path, Access::Read)?.on_trial(),
            (true, _) => Image::open(path, Access::Change),
        };
        let disk = if data.exists() { open(data) } else { Image::open(data, Access::Read) }?;
        let is_one_file = disk.is_file(hash);
        let data_image = data_spec.lay_all(disk.clone(), &opener)?;
        let hash_image = match is_one_file {
            // Opened once, so that each sees what is written to the other.
            true if hash_spec.layers().is_empty() || hash_spec.layers() == data_spec.layers() => {
                data_image.clone()
            }
            true => hash_spec.lay_all(disk, &opener)?,
            false => hash_spec.lay_all(open(hash)?, &opener)?,
        };
        let mut options = self.options.options(self.hash_offset, self.no_superblock)?;
        if let Some(path) = fec {
            let image = match path {
                path if is_same_file(path, hash) => hash_image.clone(),
                path if is_same_file(path, data) => data_image.clone(),
                path => match open(path) {
                    Err(error) if changes == Some(Changes::Data) && is_refusal_to_write(&error) => {
                        Image::open(path, Access::Read)?
                    }
                    opened => opened?,
                },
            };
            let mut fec = Fec::new(image);
            (fec.offset, fec.roots) = (self.fec.fec_offset, self.fec.fec_roots);
            options.fec = Some(fec);
        }
        Ok((data_image, hash_image, options))
    }

    /// Opens everything for reading.
    pub fn open(&self, context: &Context) -> Result<Volume, Error> {
        let (data, hash, mut options) = self.images(None, false, context)?;
        if let Some(place) = self.appended(&data, &hash, &options, context) {
            options.hash_offset = place;
        }
        let volume = self.volume((data, hash, options), context)?;
        self.tell_roots(&volume, context);
        Ok(volume)
    }

    /// Tells a number of roots that nobody has said, and that the size of the parity does not tell.
    fn tell_roots(&self, volume: &Volume, context: &Context) {
        let (Some(device), Some((roots, by_rounds))) = (&self.fec.fec_device, volume.untold_fec_roots())
        else {
            return;
        };
        let device = device.display();
        context.note(&match by_rounds {
            true => format!("{device} has not the size of parity of these data; by its contents it has {roots} roots"),
            false => format!(
                "{device}: neither size nor contents tell the number of roots of the parity; taken for {roots}; --fec-roots gives \
                 another"
            ),
        });
    }

    /// Takes another number of roots, if nobody has said one and the parity is of another than its size tells, and tells it.
    pub fn settle_roots(&self, volume: &mut Volume, context: &Context) -> Result<bool, Error> {
        let settled = volume.settle_fec_roots(&self.work(context, &context.progress("", 0)))?;
        if let (Some(device), Some(roots)) = (&self.fec.fec_device, settled) {
            let device = device.display();
            context.note(&format!(
                "{device} has {roots} roots by its contents, and not by its size: --fec-roots {roots}"
            ));
        }
        Ok(settled.is_some())
    }

    /// First byte of a hash area that was appended to a file system, where both are in one image and no place was named. What
    /// is there is as good as a superblock in a named place: the root hash tells.
    fn appended(
        &self,
        data: &Image,
        hash: &Image,
        options: &VerityOptions,
        context: &Context,
    ) -> Option<u64> {
        let may_be = self.hash_offset == 0 && !self.no_superblock && !context.is_other_tool();
        let place = match data.verity_volume(hash, options) {
            Err(error) if may_be && data.is_same(hash) => hash_area_within(&error, hash)?,
            _ => return None,
        };
        context.hint(&format!("the hash area begins at byte {place}: --hash-offset {place}"));
        Some(place)
    }

    fn volume(
        &self,
        (data, hash, options): (Image, Image, VerityOptions),
        context: &Context,
    ) -> Result<Volume, Error> {
        let volume = data.verity_volume(&hash, &options);
        let volume = volume.map_err(|error| match self.hash_offset {
            0 if self.hash.is_none() && hash_area_within(&error, &hash).is_none() => explained(
                error, &hash, VERITY,
            )
            .map_text(|text| {
                format!(
                    "{text}; if the hash area lies in another file or device, name that behind DATA_DEVICE"
                )
            }),
            0 => without_hash_area(error, &hash, Advice::HashOffset),
            _ => error,
        })?;
        if let (Some(device), Some(roots)) = (&self.fec.fec_device, volume.other_fec_roots()) {
            let device = device.display();
            context
                .note(&format!("{device} has the size of parity with {roots} roots; --fec-roots {roots}?"));
        }
        Ok(volume)
    }

    /// Work of the command: with the driver's engines, if one was named.
    pub fn work<'a>(&self, context: &Context, events: &'a dyn Events) -> Work<'a> {
        context.work(context.naming(self.options.provider.as_slice()), events)
    }
}

impl ChangedArgs {
    /// The data, the hash device, and the options with the parity, of which some are changed.
    pub fn images(
        &self,
        changes: Changes,
        context: &Context,
    ) -> Result<(Image, Image, VerityOptions), Error> {
        self.stored.images(Some(changes), self.dry_run, context)
    }

    /// Opens everything.
    pub fn open(&self, changes: Changes, context: &Context) -> Result<Volume, Error> {
        let volume = self.stored.volume(self.images(changes, context)?, context)?;
        // An update refuses them.
        if changes == Changes::Data {
            self.stored.tell_roots(&volume, context);
        }
        Ok(volume)
    }

    /// Begins the file for the root hash: what can't be written is known before anything is changed. So is a standard output that
    /// takes nothing.
    pub fn begin(&self, root_hash_file: Option<&Path>, context: &Context) -> Result<Option<Output>, Error> {
        context.output().check_open()?;
        let StoredArgs { data, hash, fec, .. } = &self.stored;
        let parts = || [data].into_iter().chain(hash);
        let beside = parts().flat_map(ImageSpec::files_beside);
        let others = parts().map(ImageSpec::file).chain(beside).chain(fec.fec_device.as_deref());
        let others: Vec<&Path> = others.collect();
        let file = root_hash_file.map(|path| Output::create(path, &others)).transpose()?;
        Ok(file.filter(|_| !self.dry_run))
    }
}

/// Whether what was opened may be read all the same.
fn is_refusal_to_write(error: &Error) -> bool {
    matches!(error.io_kind(), Some(ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem))
}

/// Prints what was done. `written` tells whether the root hash came to its file, if there is one. If neither takes it, the error has it:
/// a hash area that was changed is of no use without. One that is new can be made again, so a closed pipe is as silent as that of other commands.
pub fn tell_root_hash(
    (context, changes): (&Context, Changes),
    written: Option<Result<(), Error>>,
    root_hash: &[u8],
    text: impl AsRef<[u8]>,
) -> Result<(), Error> {
    let root_hash = hex::encode(root_hash);
    let printed = context.print(text);
    match (written, printed) {
        (Some(Ok(())), printed) => printed,
        (written, Ok(())) => written.unwrap_or(Ok(())),
        (written, Err(error)) => {
            let error = written.and_then(Result::err).unwrap_or(error);
            let told = |text: &str| format!("{text}; the new root hash is {root_hash}");
            match error.is_broken_pipe() {
                true => {
                    if changes == Changes::HashArea {
                        context.complain(&Error::argument(told("standard output was closed")));
                    }
                    Err(error)
                }
                false => Err(error.map_text(told)),
            }
        }
    }
}

/// A root hash that exists, where more words follow.
#[derive(clap::Args, Clone, Debug)]
pub struct RootHashFileArgs {
    /// Read the root hash from this file; "-" is standard input.
    #[arg(long, value_name = "FILE")]
    root_hash_file: Option<PathBuf>,
}

impl RootHashFileArgs {
    /// The root hash's bytes, and the path behind it, if there is one.
    pub fn split(&self, words: &[OsString]) -> Result<(Vec<u8>, Option<PathBuf>), Error> {
        let mut words = words.iter();
        let text = match &self.root_hash_file {
            Some(_) => None,
            None => words.next().map(|word| word.to_string_lossy().into_owned()),
        };
        let path = words.next().map(PathBuf::from);
        if words.next().is_some() {
            return Err(Error::argument("give the root hash or --root-hash-file, not both"));
        }
        let root_hash = RootHashArgs { root_hash: text, root_hash_file: self.root_hash_file.clone() };
        let root_hash = root_hash.get()?;
        check_root_hash(&root_hash)?;
        Ok((root_hash, path))
    }
}

impl RootHashArgs {
    /// The root hash's bytes.
    pub fn get(&self) -> Result<Vec<u8>, Error> {
        self.find()?
            .ok_or_else(|| Error::argument("no root hash: give it in hex, as @FILE or with --root-hash-file"))
    }

    /// The root hash's bytes, if one was given.
    pub fn find(&self) -> Result<Option<Vec<u8>>, Error> {
        let text = match (&self.root_hash, &self.root_hash_file) {
            (Some(text), None) => text.clone(),
            (None, Some(path)) => format!("@{}", path.display()),
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => {
                let text = "give the root hash or --root-hash-file, not both";
                return Err(Error::argument(text.to_owned()));
            }
        };
        read_root_hash(&text).map(Some)
    }
}
