//! Backups of encrypted trees without their keys: ciphertext in a tar stream. [`extract`] reads one into a folder, decrypted.
//!
//! A member that is encrypted has its [`CONTEXT`] and the numbers of its [`INODE`] as attributes; its name, and a link's target,
//! are text of the [`codec`]. docs/fscrypt-backup.md has the format.

mod folder;
mod member;

use casemate_primitives::Cpu;
use casemate_primitives::base64::{Alphabet, Base64, Padding};

pub use folder::{Report, RestoreOptions, extract};
pub use member::{context, inode_info, number, value, xattrs};

/// fscrypt's context of a member, as the file system stores it.
pub const CONTEXT: &str = "user.casemate.fscrypt.context";

/// Numbers that keys and IVs depend on beside the context, each with its name.
pub const INODE: &str = "user.casemate.fscrypt.inode";

/// Stored names and targets, which may have any bytes, as text.
pub fn codec(cpu: Cpu) -> Base64<'static> {
    Base64::new(cpu, &Alphabet::URL_SAFE, Padding::Unpadded)
}
