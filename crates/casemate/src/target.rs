//! Places that new things are made on: looked at before anything in them is lost.
//!
//! [`Target`] is the only way to get an image that a new volume, file system or copy is written to, and it is made by looking
//! at what is there. Whether that may be lost is asked of a [`Consent`]: [`refuse`], [`overwrite`], or a function that asks a
//! person. [`Output`](crate::Output) looks in the same way at what it replaces.
//!
//! - Nothing, zeros and holes are free.
//! - A regular file is replaced without a question if it holds nothing known, or a file system or an archive of the kind that
//!   is made: another run of the same command. So is a hash area of dm-verity, wherever it lies, by another one.
//! - Everything else is asked for: volumes, members of arrays, partition tables and other file systems; on block devices, in
//!   partitions and in parts of files whatever is not zeros.

use std::fmt;
use std::fs;
use std::ops::Deref;
use std::path::Path;

use casemate_blockdev::os::FileTypeExt;
use casemate_blockdev::{AtFile, BlockDevice, FileDevice};

use crate::probe::{self, Held};
use crate::{Access, Error, Image};

/// An image that something new is made on. What it held was looked at, and may be lost.
#[derive(Clone, Debug)]
pub struct Target(Image);

/// Contents that would be lost.
#[derive(Clone, Debug)]
pub struct Loss {
    name: String,
    what: &'static str,
}

/// Decision whether contents may be lost: an error says that they may not.
pub type Consent<'a> = &'a dyn Fn(&Loss) -> Result<(), Error>;

/// Kind of what is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// Contents that [`probe`] knows by this name.
    Known(&'static str),
    /// Data without a signature: ciphertext, parity.
    Data,
}

/// Consent that is never given.
///
/// # Errors
/// `Argument`: what would be lost, and where.
pub fn refuse(loss: &Loss) -> Result<(), Error> {
    Err(Error::argument(loss.to_string()))
}

/// Consent that is always given.
///
/// # Errors
/// None.
pub fn overwrite(_: &Loss) -> Result<(), Error> {
    Ok(())
}

impl Made {
    /// The kind of a copy of a device.
    ///
    /// # Errors
    /// `Io`.
    pub fn copy_of(device: &dyn BlockDevice) -> Result<Made, Error> {
        Ok(probe::device(device)?.map_or(Made::Data, Made::Known))
    }
}

impl Target {
    /// An image that is written in place: a device, a partition, a part of a file, a whole file that stays the same file.
    ///
    /// # Errors
    /// `Io`; whatever the consent says.
    pub fn on(image: Image, made: Made, consent: Consent<'_>) -> Result<Target, Error> {
        look(image.name(), image.top(), made, false, consent)?;
        Ok(Target(image))
    }

    /// A file that takes the place of a regular file when it is whole, or a block device, which is written in place.
    ///
    /// # Errors
    /// Those of [`Image::replace`] and [`Image::open`]; whatever the consent says.
    pub fn anew(path: impl AsRef<Path>, made: Made, consent: Consent<'_>) -> Result<Target, Error> {
        let path = path.as_ref();
        let image = match is_block_device(path) {
            true => Image::open(path, Access::Change)?,
            false => Image::replace(path)?,
        };
        look_at_path(path, Some(made), consent)?;
        Ok(Target(image))
    }

    /// A file that its owner alone can read, or a block device: see [`Target::anew`].
    ///
    /// # Errors
    /// Those of [`Target::anew`].
    pub fn anew_private(path: impl AsRef<Path>, made: Made, consent: Consent<'_>) -> Result<Target, Error> {
        let path = path.as_ref();
        let image = match is_block_device(path) {
            true => Image::open(path, Access::Change)?,
            false => Image::replace_private(path)?,
        };
        look_at_path(path, Some(made), consent)?;
        Ok(Target(image))
    }

    /// A file or a block device that is written in place, or a new file where there is none ([`Image::create`]).
    ///
    /// # Errors
    /// Those of [`Image::create`]; whatever the consent says.
    pub fn create(path: impl AsRef<Path>, made: Made, consent: Consent<'_>) -> Result<Target, Error> {
        let image = Image::create(path)?;
        match image.is_new() {
            true => Ok(Target(image)),
            false => Target::on(image, made, consent),
        }
    }

    /// The image.
    pub fn into_image(self) -> Image {
        self.0
    }
}

/// A target is read and changed as an image.
impl Deref for Target {
    type Target = Image;

    fn deref(&self) -> &Image {
        &self.0
    }
}

impl Loss {
    /// The place that would lose something.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The contents that would be lost, such as "a LUKS header".
    pub fn what(&self) -> &'static str {
        self.what
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: contains {}, which would be lost", self.name, self.what)
    }
}

/// Looks at what a path leads to, which is going to be replaced if it is a regular file.
pub(crate) fn look_at_path(path: &Path, made: Option<Made>, consent: Consent<'_>) -> Result<(), Error> {
    let Ok(metadata) = fs::metadata(path) else { return Ok(()) };
    let is_file = metadata.is_file();
    if !is_file && !metadata.file_type().is_block_device() {
        // A pipe, a terminal, /dev/null: nothing is kept there.
        return Ok(());
    }
    let device = FileDevice::open(path).at(path.display())?;
    // An ordinary file on a device has no more to do with what is there than on any other.
    let is_replaced = is_file || made.is_none();
    look(&path.display().to_string(), &device, made.unwrap_or(Made::Data), is_replaced, consent)
}

/// Whether a path leads to a block device.
pub(crate) fn is_block_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
}

/// The one look: asks for consent if a device, which is a regular file that is replaced as a whole or not, holds what must
/// not be lost without it.
pub(crate) fn look(
    name: &str,
    device: &dyn BlockDevice,
    made: Made,
    is_replaced: bool,
    consent: Consent<'_>,
) -> Result<(), Error> {
    let what = match probe::held(device).at(name)? {
        Held::Nothing => return Ok(()),
        Held::Unknown if is_replaced => return Ok(()),
        Held::Unknown => "data of no known kind",
        Held::Known(what) if made == Made::Known(what) => match what {
            probe::VERITY => return Ok(()),
            _ if is_replaced && probe::is_made_again(what) => return Ok(()),
            _ => what,
        },
        Held::Known(what) => what,
    };
    consent(&Loss { name: name.to_owned(), what })
}
