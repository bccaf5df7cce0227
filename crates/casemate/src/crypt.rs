//! dm-crypt mappings over files: whole images encrypted and decrypted.

use std::sync::Arc;

use casemate_blockdev::{AtFile, Medium};

pub use casemate_crypt::image::Holes;
pub use casemate_crypt::in_place::{DEFAULT_HOT_ZONE, MAX_HOT_ZONE};
pub use casemate_crypt::{
    CryptDevice, CryptStatistics, InPlaceOptions, IvMode, Mapping, MappingOptions, Params, SectorCipher,
    Spec, Table, plain_key,
};
pub use casemate_providers::Direction;

use crate::Error;
use crate::image::{Image, Layer};

impl Image {
    /// A dm-crypt mapping. Discards reach the image only with [`Mapping::allow_discards`].
    ///
    /// # Errors
    /// `Argument` if the device below is not whole sectors.
    pub fn crypt(self, mapping: Mapping) -> Result<Image, Error> {
        let from = mapping.offset.saturating_mul(512);
        let medium = self.as_ref().clone();
        // The data lie in a window where they begin later.
        let medium = if from == 0 { medium } else { medium.window(from, None)? };
        self.crypt_on(mapping, medium, 0)
    }

    /// The mapping of a LUKS volume, whose header is no other contents before its data.
    ///
    /// # Errors
    /// Errors of [`Image::crypt`].
    pub(crate) fn crypt_of_luks(self, mapping: Mapping) -> Result<Image, Error> {
        let (medium, from) = (self.as_ref().clone(), mapping.offset.saturating_mul(512));
        self.crypt_on(mapping, medium, from)
    }

    fn crypt_on(self, mapping: Mapping, medium: Medium, from: u64) -> Result<Image, Error> {
        let (is_key_verified, allow_discards) = (mapping.is_key_verified(), mapping.allow_discards);
        let mut device = mapping.over(self.device()).at(self.name())?;
        if allow_discards {
            device = device.allowing_discards();
        }
        let device = Arc::new(device);
        let medium = medium.laid_writing(device.clone(), from);
        Ok(self.with_layer(Layer::Crypt { device, is_key_verified }, medium, 0))
    }
}
