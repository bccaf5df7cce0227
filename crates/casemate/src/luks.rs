//! LUKS over images: headers read, keys found in their slots, and the data as the dm-crypt mapping that they are.
//!
//! [`Image::luks`] opens the data behind a header with a passphrase, as a device that nests like any other.
//! [`Image::luks_volume`] reads the header, once: what is shown, tried and opened afterwards is that copy of it.
//! All of the format is the crate `casemate-luks`; here its volumes become layers of images.
//!
//! A wrong passphrase costs as much as a right one: as the header says, within [`LuksOptions::limits`].

use std::fmt;
use std::ops::{Deref, DerefMut};

use casemate_blockdev::Medium;
use casemate_luks::{Opened, Plain};
use casemate_providers::{Providers, Work};

pub use casemate_luks::{
    AreaCipher, Argon2, Argon2Variant, Broken, Header, HeaderBackup, LuksFormatOptions, LuksKey, LuksOptions,
    LuksVersion, MAPPING_FLAGS, Measured, NewKeyOptions, NewTokenOptions, NewVolume, Pbkdf, PbkdfRule,
    PbkdfTarget, Policy, Protection, Reason, ReencryptOptions, Reencrypting, ReencryptionState, Replaced,
    Seed, Settings, SlotPriority, Unlocked, Used, Uuid, json, keyring_token, luks1, luks2, random_key,
    token_from_json,
};

use crate::{Error, Image};

/// A LUKS header with the data that it is of, as an image. What it says and how its keys change is the
/// [volume's](casemate_luks::Volume).
#[derive(Clone)]
pub struct Volume {
    volume: casemate_luks::Volume,
    data: Image,
}

impl Image {
    /// The header at the beginning of the image, or of `header` if it lies apart from the data.
    ///
    /// # Errors
    /// `Corrupt` if there is none that makes sense, `Unsupported` for an unknown version, `Io`.
    pub fn luks_volume(&self, header: Option<&Image>, providers: &Providers) -> Result<Volume, Error> {
        let header: Option<&Medium> = header.map(AsRef::as_ref);
        Ok(Volume { volume: casemate_luks::Volume::read(self, header, providers)?, data: self.clone() })
    }

    /// The data behind the header at the image's beginning, or in `header` if that lies apart, opened with a key.
    ///
    /// ```
    /// use casemate::luks::{LuksKey, LuksOptions};
    /// use casemate::{Access, Image, SecretSource, Work};
    ///
    /// # let Some(cryptsetup) = casemate_testkit::tool("cryptsetup") else { return Ok(()) };
    /// # let folder = tempfile::tempdir()?;
    /// # let path = |name: &str| folder.path().join(name);
    /// # std::fs::write(path("disk.img"), vec![0; 20 << 20])?;
    /// # std::fs::write(path("disk.key"), "secret")?;
    /// # casemate_testkit::run(std::process::Command::new(cryptsetup).current_dir(&folder).args(
    /// #     "luksFormat -q --pbkdf pbkdf2 --pbkdf-force-iterations 1000 disk.img disk.key".split(' ')));
    /// let work = Work::default();
    /// let key = LuksKey::file(&SecretSource::file(path("disk.key")), None)?;
    /// let disk = Image::open(path("disk.img"), Access::Read)?.luks(None, &key, &LuksOptions::default(), &work)?;
    /// assert_eq!(disk.device().size(), 4 << 20);
    /// # Ok::<(), casemate::Error>(())
    /// ```
    ///
    /// # Errors
    /// Errors of [`Image::luks_volume`] and [`Volume::open`].
    pub fn luks(
        self,
        header: Option<&Image>,
        key: &LuksKey,
        options: &LuksOptions,
        work: &Work<'_>,
    ) -> Result<Image, Error> {
        self.luks_volume(header, &work.providers)?.open(key, options, work)
    }

    /// Mends the header at the image's beginning: see [`casemate_luks::repair`].
    ///
    /// # Errors
    /// Errors of [`casemate_luks::repair`].
    pub fn luks_repair(&self, work: &Work<'_>) -> Result<Vec<String>, Error> {
        casemate_luks::repair(self, work)
    }

    /// Whether the image begins with a header of LUKS, sound or not.
    ///
    /// # Errors
    /// `Io`.
    pub fn begins_with_luks(&self) -> Result<bool, Error> {
        casemate_luks::begins_with_luks(self)
    }
}

impl Volume {
    /// The data as the device that dm-crypt makes of them; in the middle of a reencryption as they are, to be read.
    ///
    /// Nobody else changes header or data as long as the image, or a clone of it, is there.
    ///
    /// # Errors
    /// Errors of [`casemate_luks::Volume::open`].
    pub fn open(self, key: &LuksKey, options: &LuksOptions, work: &Work<'_>) -> Result<Image, Error> {
        laid(self.data, self.volume.open(key, options, work)?)
    }

    /// The plain data of a volume whose reencryption was begun, or cut off, to be read and written while
    /// [`Reencrypting::run`] reencrypts them: see [`casemate_luks::Volume::open_reencrypting`].
    ///
    /// # Errors
    /// Errors of [`casemate_luks::Volume::open_reencrypting`].
    pub fn open_reencrypting(
        self,
        key: &LuksKey,
        options: &LuksOptions,
        zone: Option<u64>,
        work: &Work<'_>,
    ) -> Result<(Image, Reencrypting), Error> {
        let (opened, reencrypting) = self.volume.open_reencrypting(key, options, zone, work)?;
        Ok((laid(self.data, opened)?, reencrypting))
    }

    /// Decrypts the data where they lie: see [`casemate_luks::Volume::decrypt`].
    ///
    /// # Errors
    /// Errors of [`casemate_luks::Volume::decrypt`].
    pub fn decrypt(
        self,
        key: &LuksKey,
        export: Option<&Image>,
        unlocking: &LuksOptions,
        options: &ReencryptOptions,
        work: &Work<'_>,
    ) -> Result<bool, Error> {
        self.volume.decrypt(key, export.map(AsRef::as_ref), unlocking, options, work)
    }
}

/// The image of a volume's data with what makes them plain on it.
fn laid(data: Image, Opened { data: medium, plain }: Opened) -> Result<Image, Error> {
    let image = data.with_medium(medium);
    match plain {
        Plain::Mapping(mapping) => image.crypt_of_luks(*mapping),
        Plain::Protected(device) => Ok(image.protected(device)),
        Plain::Reencryption(device) => Ok(image.reencrypting(device, true)),
        Plain::Reencrypting(device) => Ok(image.reencrypting(device, false)),
    }
}

impl Deref for Volume {
    type Target = casemate_luks::Volume;

    fn deref(&self) -> &casemate_luks::Volume {
        &self.volume
    }
}

impl DerefMut for Volume {
    fn deref_mut(&mut self) -> &mut casemate_luks::Volume {
        &mut self.volume
    }
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.volume.fmt(f)
    }
}
