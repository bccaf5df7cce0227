//! LUKS volumes, version 1 and 2, in user space: creates, opens, changes and reencrypts them as cryptsetup does.
//!
//! A [`Volume`] is a header with its data, each on a [`Medium`]: a file, a block device, or any [`BlockDevice`]. It is read once,
//! locked as cryptsetup locks it, and opened with a [`LuksKey`]; the plain data are a medium again. Nothing needs root or
//! device-mapper.
//!
//! ```
//! use casemate_luks::{Access, BlockDevice, LuksKey, LuksOptions, Medium, Volume, Work};
//!
//! # use casemate_luks::{LuksFormatOptions, Pbkdf};
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("disk.img");
//! # std::fs::File::create(&path)?.set_len(20 << 20)?;
//! # let mut format = LuksFormatOptions::default();
//! # format.pbkdf = Some(Pbkdf::Pbkdf2 { hash: "sha256".to_owned(), iterations: 1000 });
//! # let new = format.prepare(&b"secret".as_slice().into(), &Work::default())?;
//! # new.format(&Medium::open(&path, Access::Change)?, None, false, &Work::default())?;
//! let (work, options) = (Work::default(), LuksOptions::default());
//! let disk = Medium::open(path, Access::Read)?;
//! let key = LuksKey::Passphrase(b"secret".as_slice().into());
//! let plain = Volume::read(&disk, None, &work.providers)?.open(&key, &options, &work)?.medium()?;
//! let mut sector = [0; 512];
//! plain.top().read_at(&mut sector, 0)?;
//! # assert_eq!(plain.top().size(), 4 << 20);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | to | there is |
//! | --- | --- |
//! | make a volume | [`LuksFormatOptions::prepare`], [`NewVolume`] |
//! | open it, find its key | [`Volume::open`], [`Volume::unlock`], [`Volume::mapping`] (the dm-crypt table) |
//! | change its keys | [`Volume::add_key`], [`Volume::change_key`], [`Volume::kill_slot`], [`Volume::erase_slots`] |
//! | give it another key or cipher | [`Volume::reencrypt`], [`Volume::open_reencrypting`], [`encrypt_in_place`], [`Volume::decrypt`] |
//! | keep its header safe | [`Volume::backup`], [`HeaderBackup`], [`repair`], [`Volume::convert`] |
//! | say what a stranger's header must be | [`Policy`], [`Volume::broken_rules`] |
//!
//! Not here, because only a kernel, a disk or a service has it: mappings of device-mapper, OPAL, tags that a disk keeps in its
//! sectors, and keys that tokens fetch from TPMs, FIDO2 devices or servers. LUKS1 is not reencrypted; it can be converted to
//! LUKS2 first.
//!
//! # Headers
//!
//! [`Header::read`] finds the header on a device and says which version it is. [`luks1::Header`] is plain old bytes;
//! [`luks2::Header`] is the better one of two copies, with its [`luks2::Metadata`]: JSON whose foreign members stay as
//! they are. [`af`] makes stripes of a key.
//!
//! ```
//! use casemate_luks::{Header, Providers, luks1};
//!
//! # use casemate_blockdev::MemoryDevice;
//! let mut made = luks1::Header::new("aes", "xts-plain64", "sha256", 64)?;
//! made.payload_offset = 4096;
//! let mut disk = vec![0; 4 << 20];
//! disk[..1024].copy_from_slice(&made.to_bytes());
//! let Header::Luks1(header) = Header::read(&MemoryDevice::new(disk), &Providers::default())? else { panic!() };
//! assert_eq!(header.encryption(), "aes-xts-plain64");
//! # Ok::<(), casemate_luks::Error>(())
//! ```
//!
//! Sources: the LUKS1 and LUKS2 on-disk format specifications, and what cryptsetup 2.6 and 2.8 do where these are silent.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::as_conversions))]

pub mod af;
mod areas;
mod authenticated;
mod backup;
mod calibrate;
mod change;
mod convert;
mod digest;
mod format;
pub mod json;
mod locks;
pub mod luks1;
pub mod luks2;
mod new_volume;
mod other_data;
mod pbkdf;
mod policy;
mod random;
mod reason;
mod reencrypt;
mod repair;
mod settings;
mod slot;
mod tokens;
mod unlock;
mod volume;

pub use authenticated::Protected;
pub use backup::{HeaderBackup, Replaced};
pub use calibrate::{Measured, PbkdfTarget};
pub use casemate_blockdev::{
    Access, Advice, BlockDevice, Code, Contents, Error, ErrorKind, Medium, Result, Used, Uuid,
};
pub use casemate_primitives::secret::SecretVec;
pub use casemate_providers::{Argon2, Argon2Variant, Providers, SecretSource, Seed, Work};
pub use change::{NewKeyOptions, random_key};
pub use format::{LuksFormatOptions, LuksVersion};
pub use new_volume::NewVolume;
pub use pbkdf::Pbkdf;
pub use policy::{Broken, PbkdfRule, Policy};
pub use reason::Reason;
pub use reencrypt::{Protection, ReencryptOptions, Reencrypting, ReencryptionState, encrypt_in_place};
pub use repair::repair;
pub use settings::{MAPPING_FLAGS, Settings, SlotPriority};
pub use slot::AreaCipher;
pub use tokens::{NewTokenOptions, keyring_token, token_from_json};
pub use unlock::Unlocked;
use volume::refuse_empty;
pub use volume::{LuksKey, LuksOptions, Opened, Plain, Volume, begins_with_luks};

use casemate_blockdev::u64_of;

/// Magic of a header; the secondary header of LUKS2 has these bytes turned.
pub const MAGIC: &[u8; 6] = b"LUKS\xba\xbe";

/// Source of random bytes: fills a buffer.
pub type Random<'a> = &'a mut dyn FnMut(&mut [u8]) -> Result<()>;

/// A header of either version.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one for an image")]
pub enum Header {
    /// Version 1.
    Luks1(luks1::Header),
    /// Version 2.
    Luks2(luks2::Header),
}

impl Header {
    /// Reads the header at the beginning of a device; of LUKS2 the second copy is looked for where there is no first.
    ///
    /// # Errors
    /// `Corrupt` if there is none, or none that makes sense; `Unsupported` for a version that is not known; `Io`.
    pub fn read(device: &dyn BlockDevice, providers: &Providers) -> Result<Header> {
        let mut bytes = [0; luks1::HEADER_LEN];
        if device.size() >= u64_of(bytes.len()) {
            device.read_at(&mut bytes, 0)?;
        }
        match (&bytes[..6] == MAGIC, u16::from_be_bytes([bytes[6], bytes[7]])) {
            (true, 1) => {
                let header = luks1::Header::from_bytes(&bytes)?;
                match header.metadata_end() <= device.size() {
                    true => Ok(Header::Luks1(header)),
                    false => Err(Error::corrupt(format!(
                        "LUKS1 header: cut off: its key slots end at byte {}, the image at byte {}",
                        header.metadata_end(),
                        device.size()
                    ))),
                }
            }
            (true, version) if version != 2 => {
                luks2::Header::read(device, providers).map(Header::Luks2).map_err(|_| {
                    Error::unsupported(format!("LUKS header: version {version}; 1 and 2 are known"))
                })
            }
            _ => luks2::Header::read(device, providers).map(Header::Luks2),
        }
    }

    /// The version: 1 or 2.
    pub fn version(&self) -> u32 {
        match self {
            Header::Luks1(_) => 1,
            Header::Luks2(_) => 2,
        }
    }

    /// The byte behind the header and its key slots.
    pub fn metadata_end(&self) -> u64 {
        match self {
            Header::Luks1(header) => header.metadata_end(),
            Header::Luks2(header) => header.metadata.keyslots_area().end,
        }
    }

    /// The UUID's text.
    pub fn uuid(&self) -> &str {
        match self {
            Header::Luks1(header) => &header.uuid,
            Header::Luks2(header) => &header.uuid,
        }
    }
}

/// The error for a header that is not as it was read.
fn changed() -> Error {
    Error::busy("another program has changed the LUKS header; it was not written: try again")
}

/// The text in a field of fixed size, which ends at its first NUL or, at the latest, with the byte before its last.
fn field_text(field: &[u8]) -> String {
    let text = field[..field.len() - 1].split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}
