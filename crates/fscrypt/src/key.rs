//! Master keys, and the keys that are derived from them.

use std::fmt;

use casemate_primitives::secret::SecretVec;
use casemate_providers::{Hash, Hkdf, Ivs as CipherIvs, Providers, siphash24};

use crate::contents::{ContentCipher, UnitIvs};
use crate::context::Context;
use crate::key_id::{KeyDescriptor, KeyId, KeyIdentifier};
use crate::mode::Mode;
use crate::names::{DirHashKey, NameCipher};
use crate::policy::Ivs;
use crate::{Error, Result};

/// The purpose that a key is derived for: the byte of HKDF's info behind "fscrypt" and a NUL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Purpose {
    /// The identifier of a raw key: 16 bytes.
    KeyIdentifier = 1,
    /// A file's own key; needs its nonce.
    PerFileKey = 2,
    /// `DIRECT_KEY`; needs the mode's number.
    DirectKey = 3,
    /// `IV_INO_LBLK_64`; needs the mode's number and the file system's UUID.
    InodeBlock64Key = 4,
    /// The hash of names in a casefolded directory: 16 bytes; needs the directory's nonce.
    DirHashKey = 5,
    /// `IV_INO_LBLK_32`; needs the mode's number and the file system's UUID.
    InodeBlock32Key = 6,
    /// The hash of inode numbers: 16 bytes.
    InodeHashKey = 7,
    /// The identifier of a hardware-wrapped key, from its software secret: 16 bytes.
    HardwareKeyIdentifier = 8,
}

impl Purpose {
    #[expect(clippy::as_conversions, reason = "a discriminant of `repr(u8)`")]
    fn byte(self) -> u8 {
        self as u8
    }
}

/// An encrypted inode, as far as its keys and IVs depend on it.
#[derive(Clone, Copy, Debug)]
pub struct InodeInfo {
    /// The inode's policy and nonce.
    pub context: Context,
    /// The inode's number.
    pub number: u32,
    /// The file system's UUID.
    pub uuid: [u8; 16],
    /// The file system's block size in bytes.
    pub block_size: u32,
}

/// A master key, from which those of all its files are derived.
#[derive(Clone)]
pub struct MasterKey {
    providers: Providers,
    sha512: Hash,
    secret: SecretVec,
    hkdf: Hkdf,
    /// Whether the secret is what software may know of a hardware-wrapped key.
    hardware: bool,
    /// Derived once: it is compared whenever a file is opened.
    identifier: KeyIdentifier,
}

/// Lengths of raw keys that the kernel takes.
pub(crate) const RAW_LENGTHS: std::ops::RangeInclusive<usize> = 16..=64;

/// Bytes of a hardware-wrapped key's software secret.
const SOFTWARE_SECRET_LEN: usize = 32;

impl MasterKey {
    /// Takes a raw master key of 16 to 64 bytes.
    ///
    /// # Errors
    /// `Argument` for a length that no master key has; `Unsupported` if no implementation of SHA-512 may be used.
    pub fn new(providers: &Providers, secret: SecretVec) -> Result<MasterKey> {
        if !RAW_LENGTHS.contains(&secret.len()) {
            let text = format!("a master key has 16 to 64 bytes, not {}", secret.len());
            return Err(Error::argument(text));
        }
        MasterKey::make(providers, secret, false)
    }

    /// Takes the 32 bytes of a hardware-wrapped key's software secret, which opens names but not contents.
    ///
    /// # Errors
    /// `Argument` for a length that software secrets do not have; as [`MasterKey::new`].
    pub fn from_software_secret(providers: &Providers, secret: SecretVec) -> Result<MasterKey> {
        if secret.len() != SOFTWARE_SECRET_LEN {
            let text = format!("a software secret has {SOFTWARE_SECRET_LEN} bytes, not {}", secret.len());
            return Err(Error::argument(text));
        }
        MasterKey::make(providers, secret, true)
    }

    fn make(providers: &Providers, secret: SecretVec, hardware: bool) -> Result<MasterKey> {
        let sha512 = providers.hash("sha512")?;
        let hkdf = Hkdf::new(sha512.clone(), &[], secret.expose());
        let purpose = if hardware { Purpose::HardwareKeyIdentifier } else { Purpose::KeyIdentifier };
        let providers = providers.clone();
        let mut key = MasterKey { providers, sha512, secret, hkdf, hardware, identifier: [0; 16] };
        key.identifier = key.array(purpose, &[]);
        Ok(key)
    }

    /// The key as it was given.
    pub fn secret(&self) -> &SecretVec {
        &self.secret
    }

    /// The identifier by which policies of version 2 name this key.
    pub fn identifier(&self) -> KeyIdentifier {
        self.identifier
    }

    /// The descriptor by which policies of version 1 name this key, by the custom of e4crypt and fscrypt: the first 8
    /// bytes of SHA-512 of SHA-512 of the key. The kernel takes any other descriptor, too.
    pub fn descriptor(&self) -> KeyDescriptor {
        let once = SecretVec::new(self.sha512.digest(self.secret.expose()));
        // OK to unwrap: a digest has 64 bytes.
        *self.sha512.digest(once.expose()).first_chunk().unwrap()
    }

    /// Derives `len` bytes for a purpose, as policies of version 2 do: HKDF-SHA512 without a salt.
    ///
    /// # Panics
    /// If `len` passes 255 times 64 bytes.
    pub fn derive(&self, purpose: Purpose, extra: &[u8], len: usize) -> SecretVec {
        let info = [b"fscrypt\0", &[purpose.byte()][..], extra].concat();
        self.hkdf.expand(&info, len)
    }

    /// The cipher for the names in a directory, or for the target of a symbolic link.
    ///
    /// # Errors
    /// `Argument` if this is not the policy's key, or too short for its mode.
    pub fn names(&self, inode: &InodeInfo) -> Result<NameCipher> {
        let policy = &inode.context.policy;
        let cipher =
            self.providers.cipher(policy.names.algorithm(), self.file_key(policy.names, inode)?.expose())?;
        let mut iv = [0; 32];
        self.unit_ivs(inode).write_first(&mut iv);
        Ok(NameCipher::new(cipher, iv, policy.padding))
    }

    /// The cipher for the contents of a regular file.
    ///
    /// # Errors
    /// As [`MasterKey::names`]; `Unsupported` for the software secret of a hardware-wrapped key;
    /// `Corrupt` for data units that do not fit the file system's blocks.
    pub fn contents(&self, inode: &InodeInfo) -> Result<ContentCipher> {
        if self.hardware {
            let text = "contents under a hardware-wrapped key are encrypted by the hardware alone";
            return Err(Error::unsupported(text.to_owned()));
        }
        let policy = &inode.context.policy;
        let unit = policy.data_unit_size(inode.block_size)?;
        let key = self.file_key(policy.contents, inode)?;
        let cipher =
            self.providers.cipher(policy.contents.algorithm(), key.expose())?.with_data_unit_size(unit)?;
        Ok(ContentCipher::new(cipher, unit, self.unit_ivs(inode)))
    }

    /// The key of the hashes of a casefolded directory's names.
    ///
    /// # Errors
    /// `Corrupt` for a policy of version 1, which such directories can't have; as
    /// [`MasterKey::names`].
    pub fn dir_hash_key(&self, directory: &InodeInfo) -> Result<DirHashKey> {
        if directory.context.policy.version() == 1 {
            let text = "a casefolded directory can't have an encryption policy of version 1";
            return Err(Error::corrupt(text.to_owned()));
        }
        self.check_id(directory)?;
        Ok(DirHashKey::new(self.array(Purpose::DirHashKey, &directory.context.nonce)))
    }

    /// The key that a file's contents, or its names, are encrypted with.
    ///
    /// # Errors
    /// As [`MasterKey::names`].
    pub fn file_key(&self, mode: Mode, inode: &InodeInfo) -> Result<SecretVec> {
        self.check_id(inode)?;
        let Context { policy, nonce } = &inode.context;
        let needed = if policy.version() == 1 { mode.key_len() } else { mode.security_strength() };
        if self.secret.len() < needed {
            let text =
                format!("{mode} needs a master key of at least {needed} bytes, not {}", self.secret.len());
            return Err(Error::argument(text));
        }
        let number = [mode.number()];
        let on_this_system = [&number[..], &inode.uuid].concat();
        let derive = |purpose, extra: &[u8]| Ok(self.derive(purpose, extra, mode.key_len()));
        match (policy.version(), policy.ivs) {
            (1, Ivs::DirectKey) => Ok(self.secret.expose()[..mode.key_len()].into()),
            (1, _) => {
                // The nonce is the key here, and the master key what is encrypted.
                let mut key = SecretVec::from(&self.secret.expose()[..mode.key_len()]);
                self.providers.cipher("ecb(aes)", nonce)?.encrypt(&CipherIvs::List(&[]), key.expose_mut())?;
                Ok(key)
            }
            (_, Ivs::PerFileKey) => derive(Purpose::PerFileKey, nonce),
            (_, Ivs::DirectKey) => derive(Purpose::DirectKey, &number),
            (_, Ivs::InodeBlock64) => derive(Purpose::InodeBlock64Key, &on_this_system),
            (_, Ivs::InodeBlock32) => derive(Purpose::InodeBlock32Key, &on_this_system),
        }
    }

    /// The hash of an inode's number, which `IV_INO_LBLK_32` adds to the numbers of the inode's data units.
    pub fn inode_hash(&self, number: u32) -> u32 {
        let hash = siphash24(&self.array(Purpose::InodeHashKey, &[]), &u64::from(number).to_le_bytes());
        // The low half, by definition.
        let [a, b, c, d, ..] = hash.to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }

    fn unit_ivs(&self, inode: &InodeInfo) -> UnitIvs {
        match inode.context.policy.ivs {
            Ivs::PerFileKey => UnitIvs::Index,
            Ivs::DirectKey => UnitIvs::IndexAndNonce(inode.context.nonce),
            Ivs::InodeBlock64 => UnitIvs::IndexAndInode(inode.number),
            Ivs::InodeBlock32 => UnitIvs::Hashed(self.inode_hash(inode.number)),
        }
    }

    /// Refuses a policy of version 2 that names another key; descriptors say nothing about the key.
    fn check_id(&self, inode: &InodeInfo) -> Result<()> {
        match inode.context.policy.key {
            KeyId::Identifier(wanted) if wanted != self.identifier() => {
                let own = KeyId::from(self.identifier());
                let text = format!("the key's identifier is {own}, not the policy's {}", KeyId::from(wanted));
                Err(Error::argument(text))
            }
            _ => Ok(()),
        }
    }

    fn array<const N: usize>(&self, purpose: Purpose, extra: &[u8]) -> [u8; N] {
        // OK to unwrap: N bytes were asked for.
        self.derive(purpose, extra, N).expose().try_into().unwrap()
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MasterKey({} bytes)", self.secret.len())
    }
}

#[cfg(test)]
mod tests {
    use casemate_primitives::hex;

    use super::*;

    /// Keys that kernels were given, and what they called them.
    #[rustfmt::skip]
    const RAW: [(&str, &str); 3] = [
        ("f65199bd17ccf1e483036cce79314be244b11ea2de68c26755521b8f7b1e04a5", "5eb0a5b3d77fad5fa85bf34a5e5c715c"),
        ("5d99493941f29deb5fe59640422027f5f457a52ad34dd4315c777c94f96e83f7", "c71c498875d57b958ae002f9f2b8d9a9"),
        ("6bea3405892d0e7a40956473fc09d845d154f6d2132aa509093321543a115a55\
          38263c47fb8eec1e7e19d4326187bfef35e6cc80cd3fd83c94a82cb87991b30e", "3de67e06a1462a92"),
    ];

    fn secret(text: &str) -> SecretVec {
        SecretVec::new(hex::decode(text).unwrap())
    }

    #[test]
    fn keys_are_called_what_the_kernel_calls_them() {
        let providers = Providers::default();
        for (key, id) in RAW {
            let key = MasterKey::new(&providers, secret(key)).unwrap();
            let id = KeyId::from_hex(id).unwrap();
            let own = match id {
                KeyId::Descriptor(_) => key.descriptor().into(),
                KeyId::Identifier(_) => key.identifier().into(),
            };
            assert_eq!(id, own);
        }
        for len in [0, 15, 65] {
            assert!(MasterKey::new(&providers, SecretVec::zeroed(len)).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn identifiers_are_checked_and_lengths_too() {
        let providers = Providers::default();
        let key = MasterKey::new(&providers, SecretVec::zeroed(16)).unwrap();
        let inode = |id: KeyId, contents, names| InodeInfo {
            context: Context { policy: crate::Policy::new(id, contents, names), nonce: [0; 16] },
            number: 1,
            uuid: [0; 16],
            block_size: 4096,
        };
        let other = inode([1; 16].into(), Mode::Aes128Cbc, Mode::Aes128Cts);
        assert!(key.names(&other).unwrap_err().to_string().starts_with("the key's identifier is "));
        let own = inode(key.identifier().into(), Mode::Aes128Cbc, Mode::Aes128Cts);
        assert!(key.names(&own).is_ok() && key.contents(&own).is_ok());
        let strong = inode(key.identifier().into(), Mode::Aes256Xts, Mode::Aes256Cts);
        let text = "aes-256-xts needs a master key of at least 32 bytes, not 16";
        assert_eq!(key.contents(&strong).unwrap_err().to_string(), text);
        let old = inode([1; 8].into(), Mode::Adiantum, Mode::Adiantum);
        assert!(key.names(&old).unwrap_err().to_string().contains("at least 32 bytes"));
    }
}
