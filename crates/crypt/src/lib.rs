//! dm-crypt mappings in user space.
//!
//! [`Spec`] reads a cipher specification such as `aes-xts-plain64`; [`SectorCipher`] turns runs of sectors into
//! ciphertext and back; [`CryptDevice`] is a block device over a block device, as device-mapper's target is;
//! [`Table`] reads and writes device-mapper's line for it. [`image`] transforms whole images, [`in_place`] does so
//! where they lie and survives being killed.
//!
//! Sources: the kernel's Documentation/admin-guide/device-mapper/dm-crypt.rst, and cryptsetup's manual for plain
//! mode.
//!
//! # Limits
//! Integrity (AEAD, `random` IVs) is refused.
#![forbid(unsafe_code)]

mod device;
mod elephant;
mod error;
pub mod image;
pub mod in_place;
mod iv;
mod lmk;
mod passphrase;
mod sectors;
mod spec;
mod table;
mod tcw;

pub use device::{CryptDevice, CryptStatistics};
pub use error::Error;
pub use passphrase::plain_key;
pub use sectors::{Params, SectorCipher};
pub use spec::{IvMode, Spec};
pub use table::Table;
