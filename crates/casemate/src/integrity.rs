//! dm-integrity over images: superblocks read, volumes checked, and their data as a device.
//!
//! Data in the journal are shown as if the kernel had written them to their place. [`Image::integrity`] lays the data on an image,
//! to be read and written. All of the format is the crate `casemate-integrity`; here its volumes become layers of images.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use casemate_blockdev::{AtFile, Named};
use casemate_providers::{Providers, Work};

pub use casemate_integrity::{
    Flags, FormatOptions, IntegrityOptions, Keyed, Layout, Report, Superblock, random_salt, read_key,
};

use crate::image::Layer;
use crate::target::{Consent, Made};
use crate::{Error, Image, Output};

/// A dm-integrity volume: what it says and how it is checked is the [volume's](casemate_integrity::Volume).
#[derive(Clone)]
pub struct Volume {
    volume: casemate_integrity::Volume,
    /// The image that the data lie on.
    image: Image,
}

impl Image {
    /// The data of the dm-integrity volume whose superblock the image begins with; `data` has the data, if they lie apart.
    /// Each block is checked when it is read, and what is written goes through the volume's journal once it is flushed.
    ///
    /// # Errors
    /// Errors of [`Image::integrity_volume`].
    pub fn integrity(
        self,
        data: Option<&Image>,
        options: &IntegrityOptions,
        providers: &Providers,
    ) -> Result<Image, Error> {
        let volume = self.integrity_volume(data, options, providers)?;
        let block = volume.superblock().block_size();
        Ok(self.with_layer(Layer::Integrity(Arc::clone(volume.device())), volume.medium(), block))
    }

    /// The dm-integrity superblock that the image begins with.
    ///
    /// # Errors
    /// `Corrupt` if there is none that makes sense; `Unsupported` for unknown versions; `Io`.
    pub fn integrity_superblock(&self) -> Result<Superblock, Error> {
        casemate_integrity::read_superblock(self.top()).at(self.name())
    }

    /// The dm-integrity volume whose superblock the image begins with. `data` is the image with the data, if they lie
    /// apart.
    ///
    /// # Errors
    /// Errors of [`casemate_integrity::Volume::open`].
    pub fn integrity_volume(
        &self,
        data: Option<&Image>,
        options: &IntegrityOptions,
        providers: &Providers,
    ) -> Result<Volume, Error> {
        let volume = casemate_integrity::Volume::open(self, data.map(AsRef::as_ref), options, providers)?;
        Ok(Volume { volume, image: data.unwrap_or(self).clone() })
    }
}

impl Volume {
    /// Copies the data, checked, to a file or block device; a new file gets its name when it is whole, and nobody can read it who
    /// could not read the volume. The number is that of
    /// blocks of which nothing is known, because by the superblock their tags were still to be computed; they are copied, too.
    ///
    /// # Errors
    /// `Mismatch` for a block whose tag is not that of its data; whatever the consent says if the target holds something; `Io`.
    pub fn extract(
        &self,
        target: &Path,
        others: &[&Path],
        consent: Consent<'_>,
        work: &Work<'_>,
    ) -> Result<u64, Error> {
        let made = Made::copy_of(&**self.device()).at(self.image.name())?;
        let mut output = Output::create_anew(target, others, Some(made), consent)?;
        output.narrow(self.image.copy_mode());
        let unknown = match output.device() {
            Some(to) => self.copy_to(&Named::new(target.display(), to), work)?,
            None => self.extract_stream((&target.display().to_string(), &mut output), work)?,
        };
        output.commit()?;
        Ok(unknown)
    }
}

impl Deref for Volume {
    type Target = casemate_integrity::Volume;

    fn deref(&self) -> &casemate_integrity::Volume {
        &self.volume
    }
}
