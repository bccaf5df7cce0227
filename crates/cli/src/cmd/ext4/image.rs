//! The image, and how it is read: options that all commands take.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::ValueEnum;

use casemate::blockdev::Events;
use casemate::ext4::{self, Ext4, Inode, Reading, VerityPolicy};
use casemate::{Access, Error, Image};

use super::keys::KeyArgs;
use crate::cmd::layers::LayerArgs;
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
    /// Do not replay the journal in memory, nor complete a change that is kept beside the image: read the image as it
    /// lies there.
    #[arg(long)]
    no_replay: bool,
    /// Where a change of a file system without a journal was kept [default: IMAGE.casemate-redo].
    #[arg(long, value_name = "FILE", conflicts_with = "no_replay")]
    recovery_file: Option<PathBuf>,
    #[command(flatten)]
    keys: KeyArgs,
    #[command(flatten)]
    layers: LayerArgs,
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
    /// The image as its file system is read, decrypted and verified as the options say.
    pub fn image(&self, access: Access, context: &Context) -> Result<Image, Error> {
        let mut image = Image::open(&self.image, access)?;
        image = match self.partition {
            Some(number) => image.partition(number)?,
            None => image.window(self.offset, None)?,
        };
        if !self.no_replay && access != Access::Change {
            let (completed, was_interrupted) =
                image.completed(self.recovery_file.as_deref(), context.providers())?;
            image = completed;
            if was_interrupted {
                let name = image.name();
                context.note(&format!(
                    "{name}: a change was interrupted, and is shown as complete; casemate ext4 recover completes it"
                ));
            }
        }
        image = self.layers.over(image, context, false)?;
        if ext4::is_half_changed(&image) {
            let name = image.name();
            context.note(&format!(
                "{name}: the file system was not left clean and has no journal: what is read may be half of a change; \
                 run e2fsck on it"
            ));
        }
        Ok(image)
    }

    /// How the file system on `image` is read.
    pub fn reading(&self, context: &Context, image: &Image) -> Result<Reading, Error> {
        let mut reading = Reading {
            providers: context.providers().clone(),
            verify_checksums: !self.ignore_checksums,
            replay_journal: !self.no_replay,
            keys: None,
        };
        self.keys.give(context, image, &mut reading)?;
        Ok(reading)
    }

    pub fn open(&self, context: &Context) -> Result<Ext4, Error> {
        let image = self.image(Access::Read, context)?;
        let reading = self.reading(context, &image)?;
        open(&image, &reading, context)
    }

    /// An error that happened in the image.
    pub fn error(&self, error: Error) -> Error {
        error.at(self.image.display())
    }

    /// The inode of a path in the image; a link at its end is followed if `follow`.
    pub fn resolve(&self, fs: &Ext4, path: &OsString, follow: bool) -> Result<Inode, Error> {
        fs.resolve(path.as_bytes(), follow).map_err(|error| self.error(error))
    }
}

/// Opens the file system on an image, and says on stderr what of its journal is missing.
pub fn open(image: &Image, reading: &Reading, context: &Context) -> Result<Ext4, Error> {
    let fs = ext4::open(image, reading)?;
    if let Some(cut) = fs.recovery().cut_text() {
        let name = image.name();
        context.note(&format!(
            "{name}: {cut}: what is read is the state before it; e2fsck -f makes it the last one"
        ));
    }
    Ok(fs)
}
