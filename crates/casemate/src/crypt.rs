//! dm-crypt mappings over files: whole images encrypted and decrypted.

use std::sync::Arc;

use casemate_blockdev::AtFile;

pub use casemate_crypt::image::Holes;
pub use casemate_crypt::in_place::{DEFAULT_HOT_ZONE, MAX_HOT_ZONE};
pub use casemate_crypt::{
    CryptDevice, CryptStatistics, InPlaceOptions, IvMode, Mapping, Params, SectorCipher, Spec, Table,
    plain_key,
};
pub use casemate_providers::Direction;

pub use crate::mapping_options::MappingOptions;

use crate::Error;
use crate::image::{Image, Layer};

impl Image {
    /// A dm-crypt mapping. Discards reach the image only with [`Mapping::allow_discards`].
    ///
    /// # Errors
    /// `Argument` if the device below is not whole sectors.
    pub fn crypt(self, mapping: Mapping) -> Result<Image, Error> {
        let (is_key_verified, allow_discards) = (mapping.is_key_verified(), mapping.allow_discards);
        let from = mapping.offset.saturating_mul(512);
        let mut device = mapping.over(self.device()).at(self.name())?;
        if allow_discards {
            device = device.allowing_discards();
        }
        let device = Arc::new(device);
        let medium = self.as_ref().clone().laid_writing(Arc::clone(&device) as _, from);
        Ok(self.with_layer(Layer::Crypt { device, is_key_verified }, medium, 0))
    }
}
