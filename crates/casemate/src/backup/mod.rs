//! Backups of encrypted trees without their keys: ciphertext in a tar stream, to be read once the keys are there.
//!
//! [`write()`] makes one, [`extract`] reads one into a folder, [`restore`] into an image. docs/fscrypt-backup.md has the
//! format.

mod image;
mod stored;

pub use casemate_fscrypt::backup::{Report, RestoreOptions, extract};
pub use image::restore;
pub use stored::write;
