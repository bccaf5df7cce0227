//! Backups of encrypted trees without their keys: ciphertext in a tar stream, to be read once the keys are there.
//!
//! [`write()`] makes one, [`extract`] reads one into a folder, [`restore`] into an image. docs/fscrypt-backup.md has the
//! format.

mod folder;
mod image;
mod member;
mod stored;

use casemate_primitives::Cpu;
use casemate_primitives::base64::{Alphabet, Base64, Padding};

pub use folder::{Report, RestoreOptions, extract};
pub use image::restore;
pub use stored::write;

/// fscrypt's context of a member, as the file system stores it.
const CONTEXT: &str = "user.casemate.fscrypt.context";

/// Numbers that keys and IVs depend on beside the context, each with its name.
const INODE: &str = "user.casemate.fscrypt.inode";

/// Stored names and targets, which may have any bytes, as text.
fn codec(cpu: Cpu) -> Base64<'static> {
    Base64::new(cpu, &Alphabet::URL_SAFE, Padding::Unpadded)
}
