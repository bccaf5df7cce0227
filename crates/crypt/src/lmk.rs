//! loop-AES's IVs: MD5 over the sector itself.
//!
//! The sector's bytes from 16 on, its number and two constants go through MD5's rounds without the final padding;
//! the state is the IV of the first block. Version 3 begins with a seed from the key. To read, the sector is
//! decrypted with a zero IV, then its own bytes give the IV that is XORed into the first block.
//!
//! Source: dm-crypt.rst ("lmk"), loop-AES's README.

use std::fmt;

use casemate_primitives::secret::SecretVec;
use casemate_providers::{Cipher, Direction};
use digest::block_api::UpdateCore;
use digest::common::hazmat::SerializableState;

use crate::Error;
use crate::iv::one_iv;

/// Bytes of the seed that come from the key; the rest of the 64 is zero.
const SEED: usize = 16;

/// Key bytes beyond the ciphers' own: version 3 has one part more than there are ciphers.
pub(crate) fn seed_len(key_len: usize, key_count: usize) -> usize {
    if key_len.is_multiple_of(key_count) { 0 } else { key_len / (key_count + 1) }
}

/// loop-AES's generator of IVs from sectors.
pub(crate) struct Lmk {
    seed: Option<SecretVec>,
}

impl Lmk {
    /// The IVs of a seed, which is the key's last part, or empty for version 2.
    pub fn new(seed: &[u8]) -> Lmk {
        let seed = (!seed.is_empty()).then(|| {
            let mut block = SecretVec::zeroed(64);
            let len = seed.len().min(SEED);
            block.expose_mut()[..len].copy_from_slice(&seed[..len]);
            block
        });
        Lmk { seed }
    }

    /// Encrypts or decrypts one sector of 512 bytes.
    pub fn run(
        &self,
        cipher: &Cipher,
        direction: Direction,
        number: u64,
        data: &mut [u8],
    ) -> Result<(), Error> {
        match direction {
            Direction::Encrypt => {
                let iv = self.iv(number, data);
                one_iv(cipher, direction, &iv, data)
            }
            Direction::Decrypt => {
                one_iv(cipher, direction, &[0; 16], data)?;
                let iv = self.iv(number, data);
                data.iter_mut().zip(iv).for_each(|(byte, iv)| *byte ^= iv);
                Ok(())
            }
        }
    }

    fn iv(&self, number: u64, plaintext: &[u8]) -> [u8; 16] {
        let mut input = Vec::with_capacity(64 + 512);
        if let Some(seed) = &self.seed {
            input.extend_from_slice(seed.expose());
        }
        input.extend_from_slice(&plaintext[16..]);
        // 56 bits of the number, and a bit behind them.
        let mut number = number.to_le_bytes();
        number[7] = 0x80;
        input.extend(number);
        input.extend([4024_u32, 0].map(u32::to_le_bytes).as_flattened());
        let mut core = md5::block_api::Md5Core::default();
        for block in input.chunks_exact(64) {
            // OK to unwrap: chunks_exact made it 64 bytes.
            core.update_blocks(&[block.try_into().unwrap()]);
        }
        let mut iv = [0; 16];
        iv.copy_from_slice(&core.serialize()[..16]);
        zeroize(&mut input);
        iv
    }
}

/// The buffer held plaintext; it goes back to the allocator without it.
fn zeroize(bytes: &mut Vec<u8>) {
    drop(SecretVec::new(std::mem::take(bytes)));
}

impl fmt::Debug for Lmk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lmk(version {})", if self.seed.is_some() { 3 } else { 2 })
    }
}
