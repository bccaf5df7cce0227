//! Why a LUKS volume was not opened or changed, as data.

use std::fmt;

use crate::Error;

/// Cause of an error about a LUKS volume, for who has other words for it: [`Error::cause`] has it.
///
/// ```
/// use std::sync::Arc;
///
/// use casemate_blockdev::{Medium, MemoryDevice};
/// use casemate_luks::{Reason, Volume};
/// use casemate_providers::Providers;
///
/// let disk = Medium::over("disk", Arc::new(MemoryDevice::new(vec![0; 1 << 20])));
/// let error = Volume::read(&disk, None, &Providers::default()).unwrap_err();
/// assert_eq!(error.cause(), Some(&Reason::NoHeader));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// There is no valid LUKS header.
    NoHeader,
    /// No key slot that was tried opens with the passphrase.
    WrongPassphrase,
    /// No key slot holds a key of the data.
    NoUsableSlot,
    /// The key is not the volume key.
    WrongVolumeKey,
    /// The key slot of this number is not active.
    SlotNotActive(u32),
    /// The key slot of this number is active already.
    SlotInUse(u32),
    /// A header has fewer key slots than this number says.
    NoSuchSlot {
        /// The number that was asked for.
        slot: u32,
        /// How many key slots there are.
        slots: u32,
    },
    /// The key slot of this number is not one of a key for no data.
    SlotNotUnbound(u32),
    /// The header is of the version already that it was to become.
    SameVersion(u32),
    /// All key slots are active.
    SlotsFull,
    /// The token of this number is not there.
    TokenNotThere(u32),
    /// There is a token of this number already.
    TokenInUse(u32),
    /// A header has no token of this number.
    NoSuchToken(u32),
    /// The token is not assigned to the key slot.
    NotAssigned {
        /// The token's number.
        token: u32,
        /// The key slot's number.
        slot: u32,
    },
    /// The metadata of the reencryption are not proven by the keys.
    ReencryptionNotProven,
}

impl Reason {
    /// An error with this cause.
    pub(super) fn of(self, error: Error) -> Error {
        error.with_cause(self)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::NoHeader => f.write_str("no valid LUKS header"),
            Reason::WrongPassphrase => f.write_str("wrong passphrase"),
            Reason::NoUsableSlot => f.write_str("no usable key slot"),
            Reason::WrongVolumeKey => f.write_str("wrong volume key"),
            Reason::SlotNotActive(slot) => write!(f, "key slot {slot} is not active"),
            Reason::SlotInUse(slot) => write!(f, "key slot {slot} is active"),
            Reason::NoSuchSlot { slot, slots } => write!(f, "there is no key slot {slot} of {slots}"),
            Reason::SlotNotUnbound(slot) => write!(f, "key slot {slot} is not unbound"),
            Reason::SameVersion(version) => write!(f, "it is LUKS{version} already"),
            Reason::SlotsFull => f.write_str("all key slots are active"),
            Reason::TokenNotThere(token) => write!(f, "token {token} is not there"),
            Reason::TokenInUse(token) => write!(f, "token {token} exists"),
            Reason::NoSuchToken(token) => write!(f, "there is no token {token}"),
            Reason::NotAssigned { token, slot } => {
                write!(f, "token {token} is not assigned to key slot {slot}")
            }
            Reason::ReencryptionNotProven => f.write_str("the reencryption is not proven by the keys"),
        }
    }
}

impl std::error::Error for Reason {}
