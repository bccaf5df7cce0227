//! Old TrueCrypt's CBC: IVs from a seed in the key, and whitening over the ciphertext.
//!
//! Source: dm-crypt.rst ("tcw").

use casemate_primitives::secret::SecretVec;
use casemate_providers::{Cipher, Direction};

use crate::Error;
use crate::iv::one_iv;

/// Key bytes beyond the cipher's own: the seed of the IVs and the seed of the whitening.
pub(crate) const EXTRA_KEY: usize = 32;

/// TrueCrypt's seeds of IVs and whitening, 16 bytes each.
pub(crate) struct Tcw {
    iv_seed: SecretVec,
    whitening_seed: SecretVec,
}

impl Tcw {
    /// The seeds in `extra`, the last 32 bytes of the key: 16 for IVs, 16 for whitening.
    pub fn new(extra: &[u8]) -> Result<Tcw, Error> {
        let (iv, whitening) = extra
            .split_at_checked(16)
            .filter(|(_, whitening)| whitening.len() == 16)
            .ok_or_else(|| Error::argument(format!("tcw needs {EXTRA_KEY} key bytes beyond the cipher's")))?;
        Ok(Tcw { iv_seed: iv.into(), whitening_seed: whitening.into() })
    }

    /// Encrypts or decrypts one sector of 512 bytes.
    pub fn run(
        &self,
        cipher: &Cipher,
        direction: Direction,
        number: u64,
        data: &mut [u8],
    ) -> Result<(), Error> {
        let with_number = |seed: &SecretVec| {
            let mut bytes = [0; 16];
            let number = number.to_le_bytes();
            let pairs = seed.expose().iter().zip(number.iter().chain(&number));
            bytes.iter_mut().zip(pairs).for_each(|(byte, (seed, number))| *byte = seed ^ number);
            bytes
        };
        let (iv, whitening) = (with_number(&self.iv_seed), whiten(with_number(&self.whitening_seed)));
        if direction == Direction::Decrypt {
            apply(whitening, data);
        }
        one_iv(cipher, direction, &iv, data)?;
        if direction == Direction::Encrypt {
            apply(whitening, data);
        }
        Ok(())
    }
}

/// Each word becomes its own CRC-32, then the halves are folded into eight bytes.
fn whiten(mut bytes: [u8; 16]) -> [u8; 8] {
    for word in bytes.as_chunks_mut().0 {
        *word = crc32(*word).to_le_bytes();
    }
    std::array::from_fn(|i| bytes[i] ^ bytes[if i < 4 { 12 + i } else { 4 + i }])
}

fn apply(whitening: [u8; 8], data: &mut [u8]) {
    for eight in data.as_chunks_mut::<8>().0 {
        eight.iter_mut().zip(whitening).for_each(|(byte, white)| *byte ^= white);
    }
}

/// CRC-32 (IEEE, reflected) of four bytes from register 0, not inverted.
fn crc32(word: [u8; 4]) -> u32 {
    let mut register = u32::from_le_bytes(word);
    for _ in 0..32 {
        register = (register >> 1) ^ (0xedb8_8320 & 0u32.wrapping_sub(register & 1));
    }
    register
}
