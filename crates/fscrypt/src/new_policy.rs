//! Policies of directories that are about to be encrypted, before their key is known.

use crate::{Error, Ivs, KeyId, MasterKey, Mode, Policy};

/// Encryption of a new directory.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NewPolicy {
    /// The mode of contents.
    pub contents: Mode,
    /// The mode of names and links.
    pub names: Mode,
    /// Bytes that names are padded to a multiple of: 4, 8, 16 or 32.
    pub padding: usize,
    /// How keys and IVs of single files are made.
    pub ivs: Ivs,
    /// Whether the key is named by a descriptor, as in version 1, and not by an identifier.
    pub is_version_1: bool,
    /// Bytes of a data unit, a power of two; those of the file system's block if `None`.
    pub data_unit_size: Option<u32>,
}

impl NewPolicy {
    /// Makes it a policy of version 1, where a descriptor names the key, or 2.
    ///
    /// # Errors
    /// `Argument` for other versions.
    pub fn set_version(&mut self, version: u32) -> Result<(), Error> {
        self.is_version_1 = match version {
            1 => true,
            2 => false,
            _ => return Err(Error::argument(format!("policies have version 1 or 2, and not {version}"))),
        };
        Ok(())
    }

    /// The policy that names this key.
    ///
    /// # Errors
    /// `Argument` for what does not go together.
    pub fn policy(&self, key: &MasterKey) -> Result<Policy, Error> {
        let size = self.data_unit_size;
        if let Some(size) = size.filter(|size| !size.is_power_of_two() || *size < 512) {
            return Err(Error::argument(format!("data units of {size} bytes: a power of two from 512 on")));
        }
        let id: KeyId = match self.is_version_1 {
            true => key.descriptor().into(),
            false => key.identifier().into(),
        };
        let policy = Policy {
            padding: self.padding,
            ivs: self.ivs,
            log2_data_unit_size: u8::try_from(size.map_or(0, u32::ilog2)).unwrap_or(u8::MAX),
            ..Policy::new(id, self.contents, self.names)
        };
        // What was asked for is wrong, not something on a disk.
        policy.check().map_err(|error| Error::argument(error.to_string()))?;
        Ok(policy)
    }
}

impl Default for NewPolicy {
    /// AES-256 in XTS for contents and in CTS for names, which are padded to 32 bytes.
    fn default() -> NewPolicy {
        NewPolicy {
            contents: Mode::Aes256Xts,
            names: Mode::Aes256Cts,
            padding: 32,
            ivs: Ivs::PerFileKey,
            is_version_1: false,
            data_unit_size: None,
        }
    }
}
