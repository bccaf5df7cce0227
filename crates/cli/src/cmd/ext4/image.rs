//! The image, and how it is read: options that all commands take.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;

use casemate::Error;
use casemate::blockdev::BlockDevice;
use casemate::ext4::{self, Ext4, Inode, Reading, Source, VerityPolicy};
use casemate::stack::Stack;

use super::keys::KeyArgs;
use crate::cmd::layers::LayerArgs;
use crate::context::Context;

/// Where the magic number of a file system lies, and what it is.
const MAGIC: (u64, [u8; 2]) = (1080, 0xef53_u16.to_le_bytes());

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

/// Says that the key may be wrong where what was decrypted is no file system: before anything is said about checksums of
/// what is noise.
pub fn check_magic(device: &Arc<dyn BlockDevice>, image: &Path) -> Result<(), Error> {
    let (place, magic) = MAGIC;
    let mut found = [0; 2];
    device.read_at(&mut found, place).map_err(|error| error.at(image.display()))?;
    if found == magic {
        return Ok(());
    }
    Err(Error::mismatch(format!(
        "{}: decrypted, this is no ext2, ext3 or ext4 file system: the key may be wrong, or what --crypt and its options \
         say, or where it begins",
        image.display()
    )))
}

impl ImageArgs {
    pub fn source(&self) -> Source {
        Source { path: self.image.clone(), offset: self.offset, partition: self.partition }
    }

    /// The device that the file system lies on, decrypted and verified as the options say.
    pub fn device(&self, context: &Context) -> Result<Arc<dyn BlockDevice>, Error> {
        let (source, name) = (self.source(), self.image.display());
        let (device, is_interrupted) = if self.no_replay {
            (ext4::device(&source)?, false)
        } else {
            ext4::completed(&source, self.recovery_file.as_deref())?
        };
        if is_interrupted {
            eprintln!(
                "casemate: {name}: a change was interrupted, and is shown as complete; casemate ext4 recover completes it"
            );
        }
        let stack = Stack::over(&self.image, device);
        let device = self.layers.over(stack, context, false)?.device();
        if self.layers.decrypt() {
            check_magic(&device, &self.image)?;
        }
        if ext4::is_half_changed(&device) {
            eprintln!(
                "casemate: {name}: the file system was not left clean and has no journal: what is read may be half of a \
                 change; run e2fsck on it"
            );
        }
        Ok(device)
    }

    /// How the file system on `device` is read.
    pub fn reading(&self, context: &Context, device: &Arc<dyn BlockDevice>) -> Result<Reading, Error> {
        let mut reading = Reading {
            cpu: context.cpu(),
            verify_checksums: !self.ignore_checksums,
            replay_journal: !self.no_replay,
            keys: None,
        };
        self.keys.give(context, &self.image, || Ok(Arc::clone(device)), &mut reading)?;
        Ok(reading)
    }

    pub fn open(&self, context: &Context) -> Result<Ext4, Error> {
        let device = self.device(context)?;
        let reading = self.reading(context, &device)?;
        self.open_device(device, &reading)
    }

    /// Opens the file system on the image's device, and says on stderr what of its journal is missing.
    pub fn open_device(&self, device: Arc<dyn BlockDevice>, reading: &Reading) -> Result<Ext4, Error> {
        let fs = ext4::open_device(device, self.image.display(), reading)?;
        if let Some(cut) = fs.recovery().cut_text() {
            eprintln!(
                "casemate: {}: {cut}: what is read is the state before it; e2fsck -f makes it the last one",
                self.image.display()
            );
        }
        Ok(fs)
    }

    /// An error that happened in the image.
    pub fn error(&self, error: casemate::ext4::ReadError) -> Error {
        error.at(self.image.display())
    }

    /// The inode of a path in the image; a link at its end is followed if `follow`.
    pub fn resolve(&self, fs: &Ext4, path: &OsString, follow: bool) -> Result<Inode, Error> {
        fs.resolve(path.as_bytes(), follow).map_err(|error| self.error(error))
    }
}
