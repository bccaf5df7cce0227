//! dm-crypt mappings over files: whole images encrypted and decrypted.

pub use casemate_crypt::image::Holes;
pub use casemate_crypt::in_place::{DEFAULT_HOT_ZONE, MAX_HOT_ZONE};
pub use casemate_crypt::{
    CryptDevice, CryptStatistics, InPlaceOptions, IvMode, Mapping, Params, SectorCipher, Spec, Table,
    plain_key,
};
pub use casemate_providers::Direction;

pub use crate::mapping_options::MappingOptions;
