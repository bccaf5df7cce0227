//! Linux's fscrypt without a kernel: policies, keys, and the names and contents of encrypted files.
//!
//! An encrypted inode carries a [`Context`]: its [`Policy`], which names a master key, and a nonce. A
//! [`MasterKey`] gives an inode's ciphers: [`NameCipher`] for the names of a directory or a link's target,
//! [`ContentCipher`] for a file's data. A [`Keyring`] finds the key of an inode by [`KeyId`]. A
//! [`NoKeyName`] is the form of a name that is shown without the key. [`Keys`] are those that somebody gives, [`backup`] reads
//! ciphertext in tar streams. This crate does not know where a file system keeps any of this.
//!
//! ```
//! use casemate_fscrypt::{Context, InodeInfo, MasterKey, Mode, Policy};
//! use casemate_primitives::secret::SecretVec;
//! use casemate_providers::Providers;
//!
//! let key = MasterKey::new(&Providers::default(), SecretVec::new(vec![7; 64]))?;
//! let policy = Policy::new(key.identifier().into(), Mode::Aes256Xts, Mode::Aes256Cts);
//! let context = Context { policy, nonce: [1; 16] };
//! let inode = InodeInfo { context, number: 12, uuid: [0; 16], block_size: 4096 };
//! let names = key.names(&inode)?;
//! let stored = names.encrypt(b"secret plans", 255)?;
//! assert_eq!(names.decrypt(&stored)?, b"secret plans");
//! # Ok::<(), casemate_fscrypt::Error>(())
//! ```
//!
//! Sources: the kernel's Documentation/filesystems/fscrypt.rst, and fs/crypto for facts.
//!
//! # Limits
//! Contents under hardware-wrapped keys: their keys never leave the hardware. Names under them can be read with
//! the software secret.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::as_conversions))]

pub mod backup;
mod contents;
mod context;
mod key;
mod key_id;
mod keyring;
mod keys;
mod live_keys;
pub mod metadata;
mod mode;
mod names;
mod new_policy;
mod nokey;
mod policy;
mod symlink;

pub use casemate_blockdev::{Advice, Code, Error, ErrorKind, Result};
pub use contents::{ContentCipher, transform};
pub use context::{Context, Nonce};
pub use key::{InodeInfo, MasterKey, Purpose};
pub use key_id::{KeyDescriptor, KeyId, KeyIdentifier};
pub use keyring::Keyring;
pub use keys::{Keys, read_raw_key};
pub use live_keys::LiveKeys;
pub use mode::Mode;
pub use names::{DirHashKey, LONGEST_NAME, NameCipher, SHORTEST_CIPHERTEXT};
pub use new_policy::NewPolicy;
pub use nokey::NoKeyName;
pub use policy::{Ivs, Policy};
pub use symlink::symlink_ciphertext;
