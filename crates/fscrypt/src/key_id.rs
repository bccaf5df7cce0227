//! Names of master keys.

use std::fmt;

use casemate_primitives::hex;

/// The name that policies of version 1 have for a master key: any 8 bytes.
pub type KeyDescriptor = [u8; 8];

/// The name that policies of version 2 have for a master key: 16 bytes derived from the key, so that no other
/// key has the same name.
pub type KeyIdentifier = [u8; 16];

/// The name that a policy has for its master key. Shown in hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyId {
    /// A key's name in policies of version 1.
    Descriptor(KeyDescriptor),
    /// A key's name in policies of version 2.
    Identifier(KeyIdentifier),
}

impl KeyId {
    /// Reads a key's name: 16 hexadecimal digits of a descriptor, or 32 of an identifier.
    pub fn from_hex(text: &str) -> Option<KeyId> {
        hex::decode_array(text)
            .map(KeyId::Descriptor)
            .or_else(|| hex::decode_array(text).map(KeyId::Identifier))
    }

    /// The kind of name in words: "descriptor" or "identifier".
    pub fn kind(&self) -> &'static str {
        match self {
            KeyId::Descriptor(_) => "descriptor",
            KeyId::Identifier(_) => "identifier",
        }
    }
}

impl From<KeyDescriptor> for KeyId {
    fn from(descriptor: KeyDescriptor) -> KeyId {
        KeyId::Descriptor(descriptor)
    }
}

impl From<KeyIdentifier> for KeyId {
    fn from(identifier: KeyIdentifier) -> KeyId {
        KeyId::Identifier(identifier)
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&match self {
            KeyId::Descriptor(descriptor) => hex::encode(descriptor),
            KeyId::Identifier(identifier) => hex::encode(identifier),
        })
    }
}
