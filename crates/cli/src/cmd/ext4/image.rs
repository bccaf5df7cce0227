//! The image, and how it is read: options that all commands take.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use clap::{ValueEnum, ValueHint};

use casemate::ext4::{FileSystem, ReadOptions, VerityPolicy, WriteOptions, Writer, source_date_epoch};
use casemate::image_spec::{FileSystemSpec, ImageSpec, LayerSpec};
use casemate::{Access, Error, Image, Output, probe};

use super::keys::KeyArgs;
use crate::cmd::explained::explained;
use crate::cmd::layers::{Asking, LayerArgs, file_system, spec_parser};
use crate::cmd::place::PartArgs;
use crate::context::Context;

/// Where the file system is and how it is read.
#[derive(clap::Args, Debug)]
pub struct ImageArgs {
    /// The image: a file or block device, or with the layers on it, such as disk.img,partition=2,luks,key-file=pw.
    #[arg(value_name = "IMAGE", value_parser = spec_parser(), value_hint = ValueHint::FilePath)]
    image: ImageSpec,
    #[command(flatten)]
    part: PartArgs,
    /// Read structures with a wrong checksum, too.
    #[arg(long)]
    ignore_checksums: bool,
    /// Use the superblock backup in this block and its group descriptors, as e2fsck -b does: usually 8193, 16384 or
    /// 32768.
    #[arg(long, value_name = "BLOCK")]
    superblock: Option<u64>,
    /// Read the image as it is: do not replay the journal in memory, nor apply a recovery file.
    #[arg(long)]
    no_replay: bool,
    /// Recovery file of a file system without a journal [default: IMAGE.casemate-redo].
    #[arg(long, value_name = "FILE", conflicts_with = "no_replay")]
    recovery_file: Option<PathBuf>,
    #[command(flatten)]
    keys: KeyArgs,
    #[command(flatten)]
    layers: LayerArgs,
}

/// Demands on files with and without fs-verity.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum Verity {
    /// Every file must have fs-verity, and match it.
    Require,
    /// Files that have fs-verity must match it.
    #[default]
    Check,
    /// Hash trees are ignored.
    Ignore,
}

impl From<Verity> for VerityPolicy {
    fn from(verity: Verity) -> VerityPolicy {
        match verity {
            Verity::Require => VerityPolicy::Require,
            Verity::Check => VerityPolicy::Check,
            Verity::Ignore => VerityPolicy::Ignore,
        }
    }
}

/// A file system that a command reads. At the end it is said of keys if they were of no use.
pub struct Opened<'a> {
    fs: FileSystem,
    context: &'a Context,
}

impl Deref for Opened<'_> {
    type Target = FileSystem;

    fn deref(&self) -> &FileSystem {
        &self.fs
    }
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        self.fs.note_useless_keys(self.context);
    }
}

impl ImageArgs {
    /// The image's file.
    pub fn file(&self) -> &Path {
        self.image.file()
    }

    /// The files that are found by their names also while the image is in use.
    pub fn files_by_name(&self) -> impl Iterator<Item = &Path> {
        [self.file()].into_iter().chain(self.recovery_file.as_deref())
    }

    /// The image with all that lies on it.
    fn spec(&self) -> Result<ImageSpec, Error> {
        self.part.under(&self.image, self.layers.specs()?)
    }

    /// How the file system is read.
    fn file_system(&self) -> Result<FileSystemSpec, Error> {
        let mut given = self.keys.spec();
        given.superblock = self.superblock;
        file_system(&self.image, given)
    }

    /// Takes permissions from a file that gets data of the image: it is as private as the image, and its owner's alone if the
    /// data were decrypted.
    pub fn narrow(&self, output: &Output) -> Result<(), Error> {
        output.narrow_to(self.file());
        if self.has_keys() || self.spec()?.layers().iter().any(LayerSpec::is_decryption) {
            output.narrow(0o600);
        }
        Ok(())
    }

    /// Whether keys of encrypted files were given.
    pub fn has_keys(&self) -> bool {
        self.file_system().is_ok_and(|spec| spec.has_keys())
    }

    /// The image that the file system lies on, decrypted and verified as the options say.
    pub fn image(&self, access: Access, context: &Context) -> Result<Image, Error> {
        let spec = self.spec()?;
        // An image that is cut off is read as far as it goes.
        let image = spec.open_part(access, access != Access::Change)?;
        spec.lay(image, &Asking::of(context))
    }

    /// Opens the image for a dry run: writes go to a temporary file that lies below decryption.
    pub fn trial(&self, context: &Context) -> Result<Image, Error> {
        let spec = self.spec()?;
        let image = spec.open_part(Access::Read, false)?;
        let completed = image.completed(self.recovery_file.as_deref(), context.providers())?;
        spec.lay(completed.unwrap_or(image).on_trial()?, &Asking::of(context))
    }

    /// How it is changed.
    pub fn write_options(&self) -> Result<WriteOptions, Error> {
        let mut options = WriteOptions::default();
        let file_system = self.file_system()?;
        options.keys = file_system.keys()?;
        options.recovery_file = self.recovery_file.clone();
        options.superblock = file_system.superblock;
        options.time = source_date_epoch()?;
        Ok(options)
    }

    /// How the file system is read.
    pub fn options(&self) -> Result<ReadOptions, Error> {
        let mut options = ReadOptions::default();
        let file_system = self.file_system()?;
        options.keys = file_system.keys()?;
        options.verify_checksums = !self.ignore_checksums;
        options.replay_journal = !self.no_replay;
        options.recovery_file = self.recovery_file.clone();
        options.superblock = file_system.superblock;
        options.inode_paths = true;
        Ok(options)
    }

    /// Opens the file system to look at its names and numbers, which others may change meanwhile.
    pub fn open<'a>(&self, context: &'a Context) -> Result<Opened<'a>, Error> {
        self.open_as(Access::ReadUnlocked, Verity::default(), context)
    }

    /// Opens the file system for its contents, which are kept from changes meanwhile; of files that are read by path this is
    /// demanded.
    pub fn open_with<'a>(&self, verity: Verity, context: &'a Context) -> Result<Opened<'a>, Error> {
        self.open_as(Access::Read, verity, context)
    }

    /// Opens the file system with this access; `Read` keeps others from changing the image as long as it is open.
    /// `verity` is demanded of files that are read by path.
    pub fn open_as<'a>(
        &self,
        access: Access,
        verity: Verity,
        context: &'a Context,
    ) -> Result<Opened<'a>, Error> {
        let mut options = self.options()?;
        options.verity = verity.into();
        let image = self.image(access, context)?;
        let fs = image.ext4(&options, &context.opening());
        Ok(Opened { fs: fs.map_err(|error| explained(error, &image, probe::EXT))?, context })
    }

    /// Opens the file system for changes that go on for a while, and what it shows meanwhile.
    pub fn open_changing(&self, verity: Verity, context: &Context) -> Result<(Writer, FileSystem), Error> {
        let image = self.image(Access::Change, context)?;
        let mut options = self.write_options()?;
        options.time = None;
        let opened = image.ext4_changing(&options, verity.into(), &context.opening());
        opened.map_err(|error| explained(error, &image, probe::EXT))
    }

    /// An error that happened in the image.
    pub fn error(&self, error: Error) -> Error {
        error.at(self.file().display())
    }
}
