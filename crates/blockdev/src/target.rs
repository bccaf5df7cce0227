//! Places that new things are made on: looked at before anything in them is lost.
//!
//! [`Target`] is the only way to get a medium that a new volume, file system or copy is written to, and it is made by looking
//! at what is there. Whether that may be lost is asked of a [`Consent`]: [`refuse`], [`overwrite`], or a function that asks a
//! person. An ordinary file that replaces another looks in the same way at what was there.
//!
//! - Nothing, zeros and holes are free.
//! - A regular file is replaced without a question if it holds nothing known, or a file system or an archive of the kind that
//!   is made: another run of the same command. So is a hash area of dm-verity, wherever it lies, by another one.
//! - Everything else is asked for: volumes, members of arrays, partition tables and other file systems; on block devices, in
//!   partitions and in parts of files whatever is not zeros.

use std::fmt;
use std::fs;
use std::ops::{Deref, Range};
use std::path::Path;

use crate::os::FileTypeExt;
use crate::signatures::{self, Held};
use crate::{Access, AtFile, BlockDevice, Error, FileDevice, Medium, u64_of, usize_of};

/// A medium, or an image that is one, that something new is made on. What it held was looked at, and may be lost.
#[derive(Clone, Debug)]
pub struct Target<M = Medium>(M);

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
    /// Contents that [`signatures`] know by this name.
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
        Ok(signatures::device(device)?.map_or(Made::Data, Made::Known))
    }
}

impl<M: AsRef<Medium>> Target<M> {
    /// An image that is written in place: a device, a partition, a part of a file, a whole file that stays the same file.
    ///
    /// # Errors
    /// `Io`; errors of the consent.
    pub fn on(image: M, made: Made, consent: Consent<'_>) -> Result<Target<M>, Error> {
        let medium = image.as_ref();
        look(medium.name(), medium.top(), made, false, consent)?;
        Ok(Target(image))
    }

    /// The image.
    pub fn into_image(self) -> M {
        self.0
    }
}

impl<M: AsRef<Medium> + From<Medium>> Target<M> {
    /// A file that takes the place of a regular file when it is whole, or a block device, which is written in place.
    ///
    /// # Errors
    /// Errors of [`Medium::replace`] and [`Medium::open`]; errors of the consent.
    pub fn anew(path: impl AsRef<Path>, made: Made, consent: Consent<'_>) -> Result<Target<M>, Error> {
        let path = path.as_ref();
        let image = match is_block_device(path) {
            true => Medium::open(path, Access::Change)?,
            false => Medium::replace(path)?,
        };
        look_at_path(path, Some(made), consent)?;
        Ok(Target(image.into()))
    }

    /// A file that its owner alone can read, or a block device: see [`Target::anew`].
    ///
    /// # Errors
    /// Errors of [`Target::anew`].
    pub fn anew_private(
        path: impl AsRef<Path>,
        made: Made,
        consent: Consent<'_>,
    ) -> Result<Target<M>, Error> {
        let path = path.as_ref();
        let image = match is_block_device(path) {
            true => Medium::open(path, Access::Change)?,
            false => {
                let medium = Medium::replace(path)?;
                medium.narrow(0o600);
                medium
            }
        };
        look_at_path(path, Some(made), consent)?;
        Ok(Target(image.into()))
    }

    /// A file or a block device that is written in place, or a new file where there is none ([`Medium::create`]).
    ///
    /// # Errors
    /// Errors of [`Medium::create`]; errors of the consent.
    pub fn create(path: impl AsRef<Path>, made: Made, consent: Consent<'_>) -> Result<Target<M>, Error> {
        let image = Medium::create(path)?;
        match image.is_new() {
            true => Ok(Target(image.into())),
            false => Target::on(image.into(), made, consent),
        }
    }
}

/// A target is read and changed as what it was made of.
impl<M> Deref for Target<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.0
    }
}

impl<M: AsRef<Medium>> AsRef<Medium> for Target<M> {
    fn as_ref(&self) -> &Medium {
        self.0.as_ref()
    }
}

impl Loss {
    /// A loss of what a place contains, such as "a LUKS header".
    pub fn new(name: impl Into<String>, what: &'static str) -> Loss {
        Loss { name: name.into(), what }
    }

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
///
/// # Errors
/// `Io`; errors of the consent.
pub fn look_at_path(path: &Path, made: Option<Made>, consent: Consent<'_>) -> Result<(), Error> {
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
pub fn is_block_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
}

/// Contents without a signature.
const UNKNOWN: &str = "data of no known kind";

/// Asks for consent if some of these bytes of a device are there and are not zeros: for what is written to a part of a device, of
/// which [`look`] looks at the first MiB alone.
///
/// # Errors
/// `Io`; whatever the consent says.
pub fn look_at_bytes(
    name: &str,
    device: &dyn BlockDevice,
    bytes: Range<u64>,
    consent: Consent<'_>,
) -> Result<(), Error> {
    let mut buffer = Vec::new();
    let end = bytes.end.min(device.size());
    let mut at = bytes.start;
    while at < end {
        let Some(data) = device.next_data(at).at(name)? else { break };
        let data = data.start.max(at)..data.end.min(end);
        if data.is_empty() {
            break;
        }
        // At most a MiB.
        buffer.resize(usize_of((data.end - data.start).min(1 << 20)), 0);
        device.read_at(&mut buffer, data.start).at(name)?;
        if buffer.iter().any(|byte| *byte != 0) {
            return consent(&Loss::new(name, UNKNOWN));
        }
        at = data.start + u64_of(buffer.len());
    }
    Ok(())
}

/// The one look: asks for consent if a device, which is a regular file that is replaced as a whole or not, holds what must
/// not be lost without it.
///
/// # Errors
/// `Io`; errors of the consent.
pub fn look(
    name: &str,
    device: &dyn BlockDevice,
    made: Made,
    is_replaced: bool,
    consent: Consent<'_>,
) -> Result<(), Error> {
    let what = match signatures::held(device).at(name)? {
        Held::Nothing => return Ok(()),
        Held::Unknown if is_replaced => return Ok(()),
        Held::Unknown => UNKNOWN,
        Held::Known(what) if made == Made::Known(what) => match what {
            signatures::VERITY => return Ok(()),
            _ if is_replaced && signatures::is_made_again(what) => return Ok(()),
            _ => what,
        },
        Held::Known(what) => what,
    };
    consent(&Loss { name: name.to_owned(), what })
}
