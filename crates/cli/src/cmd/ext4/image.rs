//! The image, and how it is read: options that all commands take.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::ValueEnum;

use casemate::Error;
use casemate::ext4::{self, Ext4, Inode, Reading, Source, VerityPolicy};

use super::keys::KeyArgs;
use crate::context::Context;

/// Where the file system is and how it is read.
#[derive(clap::Args, Debug)]
pub struct ImageArgs {
    /// The image file or block device.
    #[arg(value_name = "IMAGE")]
    pub image: PathBuf,
    /// The byte of the image that the file system begins at.
    #[arg(long, value_name = "BYTES", default_value_t = 0, conflicts_with = "partition")]
    offset: u64,
    /// The partition (GPT or MBR) that the file system lies in, counted from 1.
    #[arg(long, value_name = "N")]
    partition: Option<u32>,
    /// Read structures whose checksum does not fit, too.
    #[arg(long)]
    ignore_checksums: bool,
    /// Do not replay the journal in memory: read the image as it lies there.
    #[arg(long)]
    no_replay: bool,
    #[command(flatten)]
    keys: KeyArgs,
}

/// What is demanded of files with and without fs-verity.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum Verity {
    /// Every file must have fs-verity, and match it.
    Require,
    /// Files that have fs-verity must match it.
    #[default]
    Check,
    /// Hash trees are not looked at.
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

impl ImageArgs {
    pub fn source(&self) -> Source {
        Source { path: self.image.clone(), offset: self.offset, partition: self.partition }
    }

    pub fn reading(&self, context: &Context) -> Result<Reading, Error> {
        let mut reading = Reading {
            cpu: context.cpu(),
            verify_checksums: !self.ignore_checksums,
            replay_journal: !self.no_replay,
            keys: None,
        };
        self.keys.give(context, &self.source(), &mut reading)?;
        Ok(reading)
    }

    pub fn open(&self, context: &Context) -> Result<Ext4, Error> {
        ext4::open(&self.source(), &self.reading(context)?)
    }

    /// An error that happened in the image.
    pub fn error(&self, error: casemate::ext4::ReadError) -> Error {
        Error::ext4(self.image.display(), error)
    }

    /// The inode of a path in the image; a link at its end is followed if `follow`.
    pub fn resolve(&self, fs: &Ext4, path: &OsString, follow: bool) -> Result<Inode, Error> {
        fs.resolve(path.as_bytes(), follow).map_err(|error| self.error(error))
    }
}
