//! Image specifications: a file and the layers on it in one word, `disk.img,partition=2,luks,key-file=pw`.
//!
//! The file comes first. Each layer lies on those before it; an option belongs to the layer before it. Two commas are one comma of
//! a name. No secret is part of a specification: it says where a key is read. [`KINDS`] has all layers and their options;
//! docs/reference/image-specification.md describes them.
//!
//! ```
//! use casemate::image_spec::{ImageSpec, LayerSpec};
//!
//! let spec: ImageSpec = "disk.img,partition=2,luks,key-file=pw".parse()?;
//! assert_eq!(spec.file(), "disk.img");
//! assert!(matches!(spec.layers(), [LayerSpec::Partition(_), LayerSpec::Luks(_)]));
//! assert_eq!(spec.to_string(), "disk.img,partition=2,luks,key-file=pw");
//!
//! let error = "disk.img,lusk".parse::<ImageSpec>().unwrap_err();
//! assert_eq!(error.text(), "image specification: unknown layer 'lusk' at character 10; did you mean luks?");
//! # Ok::<(), casemate::Error>(())
//! ```

mod grammar;
mod layers;
mod open;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use casemate_blockdev::PartitionId;
use casemate_blockdev::os::OsStrExt;
use casemate_fscrypt::KeyDescriptor;
use casemate_verity::dm::{BlockSize, HashType, Salt};

pub use self::grammar::{Choice, KINDS, Kind};
pub use self::open::{LayerOpener, Opening, read_policy, read_root_hash};
use crate::Error;
use crate::crypt::MappingOptions;

/// A file, the layers on it from the file upwards, and what reads the file system on top.
///
/// Nothing is opened before [`ImageSpec::open`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageSpec {
    file: PathBuf,
    layers: Vec<LayerSpec>,
    file_system: FileSystemSpec,
}

/// A layer of an image specification.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayerSpec {
    /// A partition.
    Partition(PartitionId),
    /// The bytes from an offset on.
    Window {
        /// The first byte.
        offset: u64,
        /// How many bytes; all if `None`.
        size: Option<u64>,
    },
    /// A dm-crypt mapping.
    Crypt(CryptSpec),
    /// A LUKS volume.
    Luks(LuksSpec),
    /// A dm-integrity volume.
    Integrity(IntegritySpec),
    /// Data that dm-verity verifies.
    Verity(VeritySpec),
}

/// Place that a key or a passphrase is read from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KeyPlace {
    /// A person is asked.
    #[default]
    Asked,
    /// A file from a byte on; "-" is standard input.
    File(PathBuf, u64),
    /// An open file descriptor from a byte on.
    Descriptor(u32, u64),
}

/// A dm-crypt mapping and the place of its key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CryptSpec {
    /// The file with the device-mapper table line that has everything, the key too. Only what is allowed and the drivers count
    /// of the options then.
    pub table: Option<PathBuf>,
    /// The mapping's parameters.
    pub options: MappingOptions,
    /// The place of the key.
    pub key: KeyPlace,
}

/// A LUKS volume, the place of its key, and what is expected of its header.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LuksSpec {
    /// The place of the passphrase.
    pub key: KeyPlace,
    /// The file with the volume key, in place of a passphrase.
    pub volume_key_file: Option<PathBuf>,
    /// The file with a detached header.
    pub header: Option<PathBuf>,
    /// The only key slot that is tried.
    pub key_slot: Option<u32>,
    /// The multiple of the usual KDF cost limits.
    pub kdf_limit: u32,
    /// The file with the policy that the header must meet.
    pub policy: Option<PathBuf>,
    /// The file with the key of the policy's mac.
    pub mac_key_file: Option<PathBuf>,
    /// Whether a detached header's device is written to even where another volume or a file system is seen.
    pub overwrite: bool,
}

impl Default for LuksSpec {
    fn default() -> LuksSpec {
        LuksSpec {
            key: KeyPlace::Asked,
            volume_key_file: None,
            header: None,
            key_slot: None,
            kdf_limit: 1,
            policy: None,
            mac_key_file: None,
            overwrite: false,
        }
    }
}

/// A dm-integrity volume: what its superblock does not say.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IntegritySpec {
    /// The integrity algorithm.
    pub algorithm: String,
    /// The file with the key of the tags.
    pub key_file: Option<PathBuf>,
    /// The file or device with the data, if they lie apart from the tags.
    pub data_device: Option<PathBuf>,
    /// Whether data are written in bitmap mode.
    pub bitmap: bool,
    /// The algorithm of the journal's codes, and the file with their key.
    pub journal_code: Option<(String, PathBuf)>,
    /// The cipher of the journal, and the file with its key.
    pub journal_cipher: Option<(String, PathBuf)>,
}

impl IntegritySpec {
    /// A volume with this integrity algorithm.
    pub fn new(algorithm: impl Into<String>) -> IntegritySpec {
        IntegritySpec {
            algorithm: algorithm.into(),
            key_file: None,
            data_device: None,
            bitmap: false,
            journal_code: None,
            journal_cipher: None,
        }
    }
}

/// Data that dm-verity verifies, the root hash, and where the hash area is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VeritySpec {
    /// The root hash in hex, or the file that has it behind an "@".
    pub root_hash: String,
    /// The file or device with the hash area; the image itself if `None`.
    pub hash_device: Option<PathBuf>,
    /// The byte that the hash area begins at.
    pub hash_offset: u64,
    /// The partition with the hash area.
    pub hash_partition: Option<HashPartition>,
    /// Whether there is a superblock.
    pub superblock: bool,
    /// The hash algorithm.
    pub algorithm: Option<String>,
    /// The format.
    pub hash_type: Option<HashType>,
    /// The size of a data block.
    pub data_block_size: Option<BlockSize>,
    /// The size of a hash block.
    pub hash_block_size: Option<BlockSize>,
    /// How many data blocks there are.
    pub data_blocks: Option<u64>,
    /// The salt.
    pub salt: Option<Salt>,
    /// The driver that must hash.
    pub driver: Option<String>,
}

impl VeritySpec {
    /// Data with this root hash, in hex or as "@FILE"; the hash area begins the image itself.
    pub fn new(root_hash: impl Into<String>) -> VeritySpec {
        VeritySpec {
            root_hash: root_hash.into(),
            hash_device: None,
            hash_offset: 0,
            hash_partition: None,
            superblock: true,
            algorithm: None,
            hash_type: None,
            data_block_size: None,
            hash_block_size: None,
            data_blocks: None,
            salt: None,
            driver: None,
        }
    }
}

/// The partition that has a hash area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashPartition {
    /// The one that is named.
    Named(PartitionId),
    /// The one whose UUID is the second half of the root hash, as systemd makes them.
    Auto,
}

impl FromStr for HashPartition {
    type Err = String;

    fn from_str(text: &str) -> Result<HashPartition, String> {
        match text {
            "auto" => Ok(HashPartition::Auto),
            _ => text.parse().map(HashPartition::Named),
        }
    }
}

/// Superblock and keys of encrypted files that a file system is read with.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileSystemSpec {
    /// The block with the superblock backup to read by.
    pub superblock: Option<u64>,
    /// Raw master keys.
    pub raw_keys: Vec<KeyFile>,
    /// Files with passphrases of google/fscrypt.
    pub passphrase_files: Vec<PathBuf>,
    /// Protectors that are used in place of those in the image.
    pub protectors: Vec<PathBuf>,
    /// The folder with policies and protectors that are used in place of those in the image.
    pub metadata: Option<PathBuf>,
    /// The multiple of the usual KDF cost limits.
    pub kdf_limit: u32,
}

impl Default for FileSystemSpec {
    fn default() -> FileSystemSpec {
        FileSystemSpec {
            superblock: None,
            raw_keys: Vec::new(),
            passphrase_files: Vec::new(),
            protectors: Vec::new(),
            metadata: None,
            kdf_limit: 1,
        }
    }
}

/// A file with a raw master key, and the descriptor that policies of version 1 have for the key, if it is an unusual one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyFile {
    /// The descriptor.
    pub descriptor: Option<KeyDescriptor>,
    /// The file; "-" is standard input.
    pub path: PathBuf,
}

impl ImageSpec {
    /// A file with no layer on it.
    pub fn of_file(file: impl Into<PathBuf>) -> ImageSpec {
        ImageSpec { file: file.into(), layers: Vec::new(), file_system: FileSystemSpec::default() }
    }

    /// Reads a specification.
    ///
    /// # Errors
    /// `Argument`, which names the word and its place.
    pub fn parse(text: impl AsRef<OsStr>) -> Result<ImageSpec, Error> {
        layers::parse(text.as_ref())
    }

    /// Reads an argument of a command line, which may be a specification, or the name of a file as it stands. A file that has the
    /// whole text as its name is meant if the text is no specification. If it is one, too, nobody can tell what is meant.
    ///
    /// # Errors
    /// Errors of [`ImageSpec::parse`]; `Argument` for a text that is a specification and the name of a file.
    pub fn of_argument(text: impl AsRef<OsStr>) -> Result<ImageSpec, Error> {
        let text = text.as_ref();
        if !text.as_bytes().contains(&b',') {
            return Ok(ImageSpec::of_file(text));
        }
        let is_file = fs::symlink_metadata(text).is_ok();
        match (ImageSpec::parse(text), is_file) {
            (Ok(_), true) => Err(grammar::wrong(&format!(
                "{} is the name of a file, and says layers of another one, too: write each comma twice for the file; for the \
                 other one give its layers as options, or rename the file",
                text.display()
            ))),
            (Err(_), true) => Ok(ImageSpec::of_file(text)),
            (read, false) => read,
        }
    }

    /// The specification with a layer on those it has.
    #[must_use]
    pub fn with_layer(mut self, layer: LayerSpec) -> ImageSpec {
        self.layers.push(layer);
        self
    }

    /// The specification with another way to read the file system.
    #[must_use]
    pub fn with_file_system(mut self, file_system: FileSystemSpec) -> ImageSpec {
        self.file_system = file_system;
        self
    }

    /// The file's path.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The layers, from the file upwards.
    pub fn layers(&self) -> &[LayerSpec] {
        &self.layers
    }

    /// Superblock and keys that the file system is read with.
    pub fn file_system(&self) -> &FileSystemSpec {
        &self.file_system
    }

    /// The layers that say which part of the file is meant, and those on them.
    pub fn parts(&self) -> (&[LayerSpec], &[LayerSpec]) {
        let is_part = |layer: &LayerSpec| matches!(layer, LayerSpec::Partition(_) | LayerSpec::Window { .. });
        let end = self.layers.iter().position(|layer| !is_part(layer)).unwrap_or(self.layers.len());
        self.layers.split_at(end)
    }

    /// The files beside the image that are read: keys, headers, policies, hash areas.
    pub fn files_beside(&self) -> Vec<&Path> {
        let of_layers = self.layers.iter().flat_map(LayerSpec::files_beside);
        let FileSystemSpec { raw_keys, passphrase_files, protectors, .. } = &self.file_system;
        let of_keys = raw_keys.iter().map(|key| &key.path).chain(passphrase_files).chain(protectors);
        of_layers.chain(of_keys.map(PathBuf::as_path)).filter(|path| *path != Path::new("-")).collect()
    }

    /// The text that [`ImageSpec::parse`] reads as this.
    pub fn to_os_string(&self) -> OsString {
        layers::write(self)
    }
}

impl FileSystemSpec {
    /// Whether nothing is said.
    pub fn is_default(&self) -> bool {
        *self == FileSystemSpec::default()
    }
}

impl KeyFile {
    /// Reads "FILE" or "DESCRIPTOR:FILE", with a descriptor of 16 hexadecimal digits.
    pub fn parse(text: &OsStr) -> KeyFile {
        layers::key_file(text)
    }
}

impl FromStr for ImageSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<ImageSpec, Error> {
        ImageSpec::parse(text)
    }
}

/// Text that is read as the specification, but for names that are not UTF-8.
impl fmt::Display for ImageSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_os_string().display().fmt(f)
    }
}
