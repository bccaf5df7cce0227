//! The key files of google/fscrypt, the tool that most systems set encryption up with.
//!
//! At the root of a file system lie `.fscrypt/policies` and `.fscrypt/protectors`, files of one protobuf message each.
//! A policy's file has its master key, wrapped under the key of each of its [`Protector`]s; a protector's file has its
//! key, wrapped under what a user has: a passphrase or a file of 32 bytes. [`unlock`] opens with secrets what it can of all
//! [`ToolFiles`].
//!
//! ```no_run
//! use casemate_fscrypt::metadata::{PolicyFile, Protector};
//! use casemate_providers::{KdfLimits, Providers};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let providers = Providers::default();
//! let protector = Protector::from_bytes(&std::fs::read("/mnt/.fscrypt/protectors/7626382168311a9d")?)?;
//! let policy = PolicyFile::from_bytes(&std::fs::read("/mnt/.fscrypt/policies/16382f282d7b29ee27e6460151d03382")?)?;
//! let key = protector.unlock(&providers, b"hunter2", &KdfLimits::default())?;
//! let master_key = policy.unlock(&providers, &key)?;
//! # Ok(()) }
//! ```
//!
//! Source for facts: google/fscrypt's metadata/metadata.proto and crypto/crypto.go.

mod message;
mod policy;
mod protector;
mod tool;
mod unlock;
mod wrapped;

use std::fmt;

use casemate_primitives::hex;

pub use policy::PolicyFile;
pub use protector::{Hashing, Protector, ProtectorKey, Source};
pub use tool::{FOLDER, Taken, ToolFiles};
pub use unlock::{Secret, unlock};

/// The most bytes of a policy's or protector's file, as the tool has it.
pub const MAX_LEN: usize = 16384;

/// A protector's name: the first 8 bytes of SHA-512 of SHA-512 of its key, shown in hexadecimal. It is also the
/// name of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProtectorId([u8; 8]);

impl ProtectorId {
    /// Reads a protector's name from 16 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<ProtectorId> {
        hex::decode_array(text).map(ProtectorId)
    }
}

impl fmt::Display for ProtectorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}
