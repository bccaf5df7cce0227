//! Serpent, a block cipher of old volumes, for many blocks at a time.
//!
//! Anderson, Biham and Knudsen, "Serpent: a proposal for the Advanced Encryption Standard" (1998); `serpent` of the kernel,
//! whose keys and blocks are little-endian. Every back end is made of gates, shifts and rotations: no branch and no address
//! depends on a secret.
//!
//! ```
//! use casemate_primitives::{Cpu, serpent::Serpent};
//!
//! let serpent = Serpent::new(Cpu::detect(), &[7; 32])?;
//! let mut blocks = [[1; 16]; 100];
//! serpent.encrypt_blocks(&mut blocks);
//! serpent.decrypt_blocks(&mut blocks);
//! assert_eq!(blocks, [[1; 16]; 100]);
//! # Ok::<(), casemate_primitives::aes::KeyError>(())
//! ```

mod boxes;
mod portable;
mod rounds;
#[cfg(target_arch = "x86_64")]
mod x86_64_avx2;
#[cfg(target_arch = "x86_64")]
mod x86_64_avx512;

use std::fmt;

use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::aes::KeyError;
use crate::backend;
use crate::cpu::{Cpu, Feature};

/// Keys of the 32 rounds, and the one after them.
type RoundKeys = [[u32; 4]; 33];

/// The key schedule's constant: the fraction of the golden ratio.
const PHI: u32 = 0x9e37_79b9;

/// A key's rounds, wiped on drop.
#[derive(Zeroize, ZeroizeOnDrop)]
struct Key(RoundKeys);

/// One way to do Serpent. The functions need the CPU to have what the row says.
struct Functions {
    encrypt: unsafe fn(&RoundKeys, &mut [[u8; 16]]),
    decrypt: unsafe fn(&RoundKeys, &mut [[u8; 16]]),
}

type Backend = backend::Row<Functions>;

/// Every back end, fastest first as measured.
static BACKENDS: &[Backend] = &[
    #[cfg(target_arch = "x86_64")]
    Backend::new(
        "avx512",
        &[Feature::Avx512],
        Functions { encrypt: x86_64_avx512::encrypt, decrypt: x86_64_avx512::decrypt },
    ),
    #[cfg(target_arch = "x86_64")]
    Backend::new(
        "avx2",
        &[Feature::Avx2],
        Functions { encrypt: x86_64_avx2::encrypt, decrypt: x86_64_avx2::decrypt },
    ),
    Backend::new("portable", &[], Functions { encrypt: portable::encrypt, decrypt: portable::decrypt }),
];

/// Serpent under one key.
pub struct Serpent {
    key: Box<Key>,
    backend: &'static Backend,
}

impl Serpent {
    /// Key lengths in bytes.
    pub const KEY_LENGTHS: &[usize] = &[16, 24, 32];

    /// Serpent under `key`, on the fastest back end that `cpu` can run.
    ///
    /// # Errors
    /// A key of another length than 16, 24 or 32 bytes.
    pub fn new(cpu: Cpu, key: &[u8]) -> Result<Serpent, KeyError> {
        Ok(Serpent { key: expand(key)?, backend: backend::best(BACKENDS, cpu) })
    }

    /// Every back end that `cpu` can run, fastest first.
    ///
    /// # Errors
    /// As [`Serpent::new`].
    pub fn available(cpu: Cpu, key: &[u8]) -> Result<Vec<Serpent>, KeyError> {
        backend::available(BACKENDS, cpu).map(|backend| Ok(Serpent { key: expand(key)?, backend })).collect()
    }

    /// Encrypts every block in place, each by itself.
    pub fn encrypt_blocks(&self, blocks: &mut [[u8; 16]]) {
        // SAFETY: a back end comes from `crate::backend` alone, so the CPU has what it needs.
        unsafe { (self.backend.run.encrypt)(&self.key.0, blocks) }
    }

    /// Decrypts every block in place, each by itself.
    pub fn decrypt_blocks(&self, blocks: &mut [[u8; 16]]) {
        // SAFETY: a back end comes from `crate::backend` alone, so the CPU has what it needs.
        unsafe { (self.backend.run.decrypt)(&self.key.0, blocks) }
    }

    /// Name of the back end that [`Serpent::new`] takes.
    pub fn backend(cpu: Cpu) -> &'static str {
        backend::best(BACKENDS, cpu).name
    }

    /// The back end's name.
    pub fn name(&self) -> &'static str {
        self.backend.name
    }
}

impl fmt::Debug for Serpent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Serpent({})", self.name())
    }
}

/// Expands a key. A short one is filled up with a 1 bit and zeros.
fn expand(key: &[u8]) -> Result<Box<Key>, KeyError> {
    KeyError::check("Serpent", Serpent::KEY_LENGTHS, key)?;
    let mut padded = [0; 32];
    padded[..key.len()].copy_from_slice(key);
    if let Some(next) = padded.get_mut(key.len()) {
        *next = 1;
    }
    // The last eight words, of which the next one is made.
    let mut last: [u32; 8] = std::array::from_fn(|i| {
        u32::from_le_bytes([padded[4 * i], padded[4 * i + 1], padded[4 * i + 2], padded[4 * i + 3]])
    });
    padded.zeroize();
    let mut expanded = Box::new(Key([[0; 4]; 33]));
    for (i, words) in expanded.0.iter_mut().enumerate() {
        for (j, word) in words.iter_mut().enumerate() {
            let number = (4 * i + j) as u32;
            let next = (last[0] ^ last[3] ^ last[5] ^ last[7] ^ PHI ^ number).rotate_left(11);
            last.rotate_left(1);
            last[7] = next;
            *word = next;
        }
        // S-box 3 for the first key, 2 for the second, and so on.
        *words = portable::through_box(35 - i, *words);
    }
    last.zeroize();
    Ok(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Guarded, Rng};

    /// Words that hold one bit each, as an S-box takes them, and its answer as a number.
    #[test]
    fn gates_are_the_boxes_of_the_standard() {
        // The paper's tables.
        let boxes: [u64; 8] = [
            0x38f1_a65b_ed42_709c,
            0xfc27_905a_1be8_6d34,
            0x8679_3caf_d1e4_0b52,
            0x0fb8_c963_d124_a75e,
            0x1f83_c0b6_254a_9e7d,
            0xf52b_4a9c_03e8_d671,
            0x72c5_846b_e91f_d3a0,
            0x1df0_e82b_74ca_9356,
        ];
        for (number, table) in boxes.into_iter().enumerate() {
            for input in 0..16_u32 {
                let bits = std::array::from_fn(|bit| input >> bit & 1);
                let answer = portable::through_box(number, bits);
                let answer = (0..4).fold(0, |sum, bit| sum | u64::from(answer[bit] & 1) << bit);
                assert_eq!(answer, table >> (60 - 4 * input) & 15, "box {number} of {input}");
            }
        }
    }

    #[test]
    fn all_back_ends_do_any_number_of_blocks_as_another_implementation_does() {
        use serpent::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
        let mut rng = Rng::new(1);
        for len in [16, 24, 32] {
            let key = rng.bytes(len);
            let oracle = serpent::Serpent::new_from_slice(&key).expect("a key of a right length");
            for mine in Serpent::available(Cpu::detect(), &key).expect("a key of a right length") {
                for count in 0..=70 {
                    let plain = rng.bytes(16 * count);
                    let mut data = Guarded::copy_at_end(&plain);
                    mine.encrypt_blocks(data.as_chunks_mut().0);
                    let mut expected = plain.clone();
                    for block in expected.as_chunks_mut::<16>().0 {
                        oracle.encrypt_block(block.into());
                    }
                    assert!(*data == expected[..], "{mine:?}, {count} blocks");
                    mine.decrypt_blocks(data.as_chunks_mut().0);
                    assert!(*data == plain[..], "{mine:?}, {count} blocks back");
                    let mut data = plain.clone();
                    mine.decrypt_blocks(data.as_chunks_mut().0);
                    let mut expected = plain;
                    for block in expected.as_chunks_mut::<16>().0 {
                        oracle.decrypt_block(block.into());
                    }
                    assert!(data == expected, "{mine:?}, {count} blocks decrypted");
                }
            }
        }
    }
}
