//! dm-crypt mappings in user space.
//!
//! [`Spec`] reads a cipher specification such as `aes-xts-plain64`; [`MappingOptions`] make a [`Mapping`] of what cryptsetup's plain
//! mode takes; [`SectorCipher`] turns runs of sectors into
//! ciphertext and back; [`CryptDevice`] is a block device over a block device, as device-mapper's target is;
//! [`Table`] reads and writes device-mapper's line for it. [`image`] transforms whole images, [`in_place`] does so
//! in place, and survives a kill.
//!
//! ```
//! use casemate_blockdev::{BlockDevice, MemoryDevice};
//! use casemate_crypt::{CryptDevice, Params, SectorCipher};
//! use casemate_providers::Providers;
//!
//! let key: Vec<u8> = (0..64).collect();
//! let params = Params::new("aes-xts-plain64".parse()?);
//! let cipher = SectorCipher::new(&params, &key, &Providers::default())?;
//! let mapping = CryptDevice::new(MemoryDevice::new(vec![0; 4096]), cipher)?;
//! mapping.write_at(b"secret", 512)?;
//! let mut bytes = [0; 6];
//! mapping.read_at(&mut bytes, 512)?;
//! assert_eq!(&bytes, b"secret");
//! # Ok::<(), casemate_crypt::Error>(())
//! ```
//!
//! Sources: the kernel's Documentation/admin-guide/device-mapper/dm-crypt.rst, and cryptsetup's manual for plain
//! mode.
//!
//! # Limits
//! [`AuthenticatedSectors`] (AEAD, `random` IVs) has no device of its own: its tags lie in a dm-integrity volume.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::as_conversions))]

mod aegis;
mod authenticated;
mod device;
mod elephant;
pub mod image;
pub mod in_place;
mod iv;
mod lmk;
mod mapping;
mod options;
mod passphrase;
mod sectors;
mod spec;
mod table;
mod tcw;

pub use authenticated::AuthenticatedSectors;
pub use casemate_blockdev::{Advice, Code, Error, ErrorKind, Result};
pub use casemate_primitives::secret::SecretVec;
pub use casemate_providers::{SecretSource, Work};
pub use device::{CryptDevice, CryptStatistics};
pub use mapping::{InPlaceOptions, Mapping};
pub use options::MappingOptions;
pub use passphrase::plain_key;
pub use sectors::{Params, SectorCipher};
pub use spec::{IvMode, Spec};
pub use table::Table;
