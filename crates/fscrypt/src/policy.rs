//! Policies: which key, which modes, which padding and which IVs.

use std::str::FromStr;

use casemate_blockdev::usize_of;

use crate::key_id::KeyId;
use crate::mode::Mode;
use crate::{Error, Result};

/// An encryption policy: the key, modes and flags of the files below a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The master key. A descriptor makes it a policy of version 1, an identifier one of version 2.
    pub key: KeyId,
    /// The mode of contents.
    pub contents: Mode,
    /// The mode of names and link targets.
    pub names: Mode,
    /// The padding of names: they are filled up to a multiple of 4, 8, 16 or 32 bytes.
    pub padding: usize,
    /// How keys and IVs of single files are made.
    pub ivs: Ivs,
    /// The binary logarithm of a data unit's bytes; 0 for the file system's block.
    pub log2_data_unit_size: u8,
}

/// How keys and IVs of single files are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ivs {
    /// A key for each file; IVs count data units.
    #[default]
    PerFileKey,
    /// `DIRECT_KEY`: one key for each mode, the file's nonce in the IVs.
    DirectKey,
    /// `IV_INO_LBLK_64`: one key for each mode and file system, the inode's number in the IVs.
    InodeBlock64,
    /// `IV_INO_LBLK_32`: one key for each mode and file system, the inode's number hashed and added to IVs.
    InodeBlock32,
}

/// Their names.
const IVS: [(&str, Ivs); 4] = [
    ("file", Ivs::PerFileKey),
    ("direct", Ivs::DirectKey),
    ("inode64", Ivs::InodeBlock64),
    ("inode32", Ivs::InodeBlock32),
];

impl Ivs {
    /// The name: `file`, `direct`, `inode64` or `inode32`.
    pub fn name(self) -> &'static str {
        IVS.iter().find(|(_, ivs)| *ivs == self).map_or("", |(name, _)| name)
    }
}

impl FromStr for Ivs {
    type Err = Error;

    fn from_str(text: &str) -> Result<Ivs> {
        let known = IVS.iter().find(|(name, _)| *name == text);
        let unknown =
            || Error::argument(format!("unknown IVs '{text}'; known are file, direct, inode64 and inode32"));
        known.map(|(_, ivs)| *ivs).ok_or_else(unknown)
    }
}

const PADDING_MASK: u8 = 0x03;
const DIRECT_KEY: u8 = 0x04;
const IV_INO_LBLK_64: u8 = 0x08;
const IV_INO_LBLK_32: u8 = 0x10;

/// The least data unit: a sector.
const LEAST_LOG2_DATA_UNIT: u8 = 9;

/// The largest block of any file system.
const MOST_LOG2_DATA_UNIT: u8 = 16;

impl Policy {
    /// A policy with these modes, names padded to 32 bytes, and a key for each file.
    pub fn new(key: KeyId, contents: Mode, names: Mode) -> Policy {
        Policy { key, contents, names, padding: 32, ivs: Ivs::PerFileKey, log2_data_unit_size: 0 }
    }

    /// From the numbers that a context has.
    pub(crate) fn from_numbers(key: KeyId, contents: u8, names: u8, flags: u8, log2: u8) -> Result<Policy> {
        let mode = |number, what| {
            Mode::from_number(number)
                .ok_or_else(|| Error::unsupported(format!("{what} encryption mode {number} is unknown")))
        };
        let ivs = match flags & !PADDING_MASK {
            0 => Ivs::PerFileKey,
            DIRECT_KEY => Ivs::DirectKey,
            IV_INO_LBLK_64 => Ivs::InodeBlock64,
            IV_INO_LBLK_32 => Ivs::InodeBlock32,
            _ => return Err(Error::corrupt(format!("policy flags {flags:#04x} make no sense"))),
        };
        let policy = Policy {
            key,
            contents: mode(contents, "contents")?,
            names: mode(names, "names")?,
            padding: 4 << (flags & PADDING_MASK),
            ivs,
            log2_data_unit_size: log2,
        };
        policy.check()?;
        Ok(policy)
    }

    /// Checks what the kernel checks of a policy wherever it lies; what depends on the file system's block is
    /// checked when a file is keyed.
    ///
    /// # Errors
    /// `Corrupt` for combinations that the kernel refuses.
    pub fn check(&self) -> Result<()> {
        let refuse = |text: String| Err(Error::corrupt(text));
        let version = self.version();
        if !allowed_pair(version, self.contents, self.names) {
            let (contents, names) = (self.contents, self.names);
            return refuse(format!(
                "{contents} can't be combined with {names} in policies of version {version}"
            ));
        }
        if !self.padding.is_power_of_two() || !(4..=32).contains(&self.padding) {
            return refuse(format!("names padded to {} bytes", self.padding));
        }
        match self.ivs {
            Ivs::PerFileKey => {}
            // The IV must hold the index and the nonce.
            Ivs::DirectKey if self.contents != self.names || self.contents.iv_len() < 24 => {
                return refuse(format!("DIRECT_KEY with {} and {}", self.contents, self.names));
            }
            Ivs::DirectKey => {}
            Ivs::InodeBlock64 | Ivs::InodeBlock32 if version == 1 => {
                return refuse("IV_INO_LBLK flags in a policy of version 1".to_owned());
            }
            Ivs::InodeBlock64 | Ivs::InodeBlock32 if self.contents != Mode::Aes256Xts => {
                return refuse(format!("IV_INO_LBLK flags with {}", self.contents));
            }
            Ivs::InodeBlock64 | Ivs::InodeBlock32 => {}
        }
        let log2 = self.log2_data_unit_size;
        if log2 != 0 && (version == 1 || !(LEAST_LOG2_DATA_UNIT..=MOST_LOG2_DATA_UNIT).contains(&log2)) {
            return refuse(format!("data units of 2^{log2} bytes in version {version}"));
        }
        Ok(())
    }

    /// The policy's version, 1 or 2.
    pub fn version(&self) -> u8 {
        match self.key {
            KeyId::Descriptor(_) => 1,
            KeyId::Identifier(_) => 2,
        }
    }

    /// The flags as contexts store them.
    pub fn flags(&self) -> u8 {
        let padding = self.padding.trailing_zeros().saturating_sub(2);
        let padding = u8::try_from(padding).map_or(0, |padding| padding & PADDING_MASK);
        padding
            | match self.ivs {
                Ivs::PerFileKey => 0,
                Ivs::DirectKey => DIRECT_KEY,
                Ivs::InodeBlock64 => IV_INO_LBLK_64,
                Ivs::InodeBlock32 => IV_INO_LBLK_32,
            }
    }

    /// Bytes of a data unit where blocks have `block_size` bytes.
    ///
    /// # Errors
    /// `Corrupt` for units above a block, and for smaller ones where IVs have 32 bits for their number.
    pub fn data_unit_size(&self, block_size: u32) -> Result<usize> {
        let block = usize_of(block_size);
        let unit = match self.log2_data_unit_size {
            0 => return Ok(block),
            log2 => 1usize.checked_shl(log2.into()).unwrap_or(usize::MAX),
        };
        let counted_in_32_bits = matches!(self.ivs, Ivs::InodeBlock64 | Ivs::InodeBlock32);
        if unit > block || counted_in_32_bits && unit < block {
            return Err(Error::corrupt(format!("data units of {unit} bytes in blocks of {block} bytes")));
        }
        Ok(unit)
    }
}

impl Ivs {
    /// The name of the policy's flag; `None` for keys of single files.
    pub fn flag_name(self) -> Option<&'static str> {
        match self {
            Ivs::PerFileKey => None,
            Ivs::DirectKey => Some("DIRECT_KEY"),
            Ivs::InodeBlock64 => Some("IV_INO_LBLK_64"),
            Ivs::InodeBlock32 => Some("IV_INO_LBLK_32"),
        }
    }
}

fn allowed_pair(version: u8, contents: Mode, names: Mode) -> bool {
    match (contents, names) {
        (Mode::Aes256Xts, Mode::Aes256Cts)
        | (Mode::Aes128Cbc, Mode::Aes128Cts)
        | (Mode::Adiantum, Mode::Adiantum) => true,
        (Mode::Aes256Xts, Mode::Aes256Hctr2) | (Mode::Sm4Xts, Mode::Sm4Cts) => version == 2,
        _ => false,
    }
}
