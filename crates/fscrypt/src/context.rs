//! Contexts: the policy and nonce that every encrypted inode has.

use crate::key_id::KeyId;
use crate::policy::Policy;
use crate::{Error, ErrorKind, Result};

/// An inode's nonce: 16 random bytes that make its keys or IVs differ from those of all others.
pub type Nonce = [u8; 16];

/// An inode's policy and nonce: the value of ext4's attribute with name index 9 and name "c".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// The policy, which children inherit.
    pub policy: Policy,
    /// The inode's nonce.
    pub nonce: Nonce,
}

const V1_LEN: usize = 28;
const V2_LEN: usize = 40;

impl Context {
    /// Reads a context from the 28 bytes of version 1 or the 40 of version 2.
    ///
    /// # Errors
    /// `Corrupt` for a length, reserved bytes or combinations that can't be; `Unsupported` for
    /// versions and modes that are unknown.
    pub fn from_bytes(bytes: &[u8]) -> Result<Context> {
        let len = |expected: usize| match bytes.len() == expected {
            true => Ok(()),
            false => Err(Error::corrupt(format!(
                "encryption context: {} bytes where there should be {expected}",
                bytes.len()
            ))),
        };
        let array = |at: usize| bytes[at..at + 16].try_into().expect("16 bytes are 16 bytes");
        match bytes.first() {
            None => Err(Error::corrupt("encryption context: empty")),
            Some(1) => {
                len(V1_LEN)?;
                let key = KeyId::Descriptor(bytes[4..12].try_into().expect("8 bytes are 8 bytes"));
                let policy =
                    Policy::from_numbers(key, bytes[1], bytes[2], bytes[3], 0).map_err(in_context)?;
                Ok(Context { policy, nonce: array(12) })
            }
            Some(2) => {
                len(V2_LEN)?;
                if bytes[5..8] != [0; 3] {
                    return Err(Error::corrupt("encryption context: reserved bytes are set"));
                }
                let key = KeyId::Identifier(array(8));
                let policy =
                    Policy::from_numbers(key, bytes[1], bytes[2], bytes[3], bytes[4]).map_err(in_context)?;
                Ok(Context { policy, nonce: array(24) })
            }
            Some(version) => {
                Err(Error::unsupported(format!("encryption context: version {version} is unknown")))
            }
        }
    }

    /// The context as it is stored: 28 bytes in version 1, 40 in version 2.
    pub fn to_bytes(&self) -> Vec<u8> {
        let policy = &self.policy;
        let mut bytes =
            vec![policy.version(), policy.contents.number(), policy.names.number(), policy.flags()];
        match &policy.key {
            KeyId::Descriptor(descriptor) => bytes.extend(descriptor),
            KeyId::Identifier(identifier) => {
                bytes.extend([policy.log2_data_unit_size, 0, 0, 0]);
                bytes.extend(identifier);
            }
        }
        bytes.extend(self.nonce);
        bytes
    }
}

fn in_context(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Corrupt | ErrorKind::Unsupported => {
            error.map_text(|text| format!("encryption context: {text}"))
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: [u8; V1_LEN] = {
        let mut bytes = [7; V1_LEN];
        (bytes[0], bytes[1], bytes[2], bytes[3]) = (1, 1, 4, 2);
        bytes
    };

    const V2: [u8; V2_LEN] = {
        let mut bytes = [9; V2_LEN];
        (bytes[0], bytes[1], bytes[2], bytes[3]) = (2, 1, 10, 8);
        (bytes[4], bytes[5], bytes[6], bytes[7]) = (0, 0, 0, 0);
        bytes
    };

    #[test]
    fn what_is_read_is_written() {
        for bytes in [&V1[..], &V2] {
            assert_eq!(Context::from_bytes(bytes).unwrap().to_bytes(), bytes);
        }
    }

    #[test]
    fn what_the_kernel_refuses_is_refused() {
        // Which context, which byte is set to what, and a word of the message.
        #[rustfmt::skip]
        let cases: [(&[u8], usize, u8, &str); 17] = [
            (&V1, 0, 3, "version 3"),
            (&V1, 0, 0, "version 0"),
            (&V1, 0, 2, "28 bytes"),
            (&V2, 0, 1, "40 bytes"),
            (&V1, 1, 2, "mode 2"),
            (&V1, 2, 11, "mode 11"),
            (&V1, 2, 10, "can't be combined"),
            (&V1, 2, 6, "can't be combined"),
            (&V1, 3, 4, "DIRECT_KEY with aes-256-xts"),
            (&V1, 3, 8, "version 1"),
            (&V1, 3, 0x20, "flags 0x20"),
            (&V2, 3, 0x0c, "flags 0x0c"),
            (&V2, 3, 0x18, "flags 0x18"),
            (&V2, 4, 8, "2^8"),
            (&V2, 4, 255, "2^255"),
            (&V2, 5, 1, "reserved"),
            (&V2, 7, 1, "reserved"),
        ];
        for (bytes, at, value, word) in cases {
            let mut bytes = bytes.to_vec();
            bytes[at] = value;
            let error = Context::from_bytes(&bytes).unwrap_err().to_string();
            assert!(error.starts_with("encryption context: ") && error.contains(word), "{word}: {error}");
        }
        let mut sm4 = V2;
        (sm4[1], sm4[2], sm4[3]) = (7, 8, 8);
        assert!(
            Context::from_bytes(&sm4).unwrap_err().to_string().contains("IV_INO_LBLK flags with sm4-xts")
        );
        for len in 0..V2_LEN {
            assert!(Context::from_bytes(&V2[..len]).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn data_units_fit_the_block() {
        let mut bytes = V2;
        (bytes[3], bytes[4]) = (0, 10);
        let policy = Context::from_bytes(&bytes).unwrap().policy;
        assert_eq!(policy.data_unit_size(4096).unwrap(), 1024);
        assert!(policy.data_unit_size(512).is_err());
        bytes[3] = 8;
        let policy = Context::from_bytes(&bytes).unwrap().policy;
        assert_eq!(policy.data_unit_size(1024).unwrap(), 1024);
        assert!(policy.data_unit_size(4096).is_err());
    }
}
