//! POLYVAL, the hash of HCTR2 and AES-GCM-SIV: RFC 8452, section 3.
//!
//! Over GF(2^128) with x^128 + x^127 + x^126 + x^121 + 1, blocks little-endian, dot(a, b) = a b x^-128. The state is
//! replaced by dot(state + block, h) for each block in turn:
//!
//! ```text
//! for block in blocks { state = dot(state ^ block, h) }
//! ```
//!
//! Sixteen blocks in a row are the sum of dot(block i, h^(16 - i)), so their products are added first and reduced
//! once.

#[cfg(target_arch = "aarch64")]
mod aarch64_pmull;
mod portable;
#[cfg(target_arch = "x86_64")]
mod x86_64_pclmul;
#[cfg(target_arch = "x86_64")]
mod x86_64_vpclmul;

use std::fmt;

use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::backend;
use crate::cpu::{Cpu, Feature};

/// How many blocks are reduced together.
const GROUP: usize = 16;

/// Powers of the hash key h: entry i is h^(16 - i), so that a group of n blocks uses the last n.
type Powers = [[u8; 16]; GROUP];

/// A hash key's powers, wiped on drop.
#[derive(Zeroize, ZeroizeOnDrop)]
#[repr(C, align(64))]
struct Key {
    powers: Powers,
}

/// One way to do POLYVAL. The function needs the CPU to have `needs`.
struct Functions {
    /// Takes blocks into a state. A single block needs the last power only.
    absorb: unsafe fn(&Powers, &mut [u8; 16], &[[u8; 16]]),
}

type Backend = backend::Row<Functions>;

/// Every back end, fastest first as measured.
static BACKENDS: &[Backend] = &[
    // Intel from Ice Lake on, AMD from Zen 4 on.
    #[cfg(target_arch = "x86_64")]
    Backend::new(
        "vpclmul-512",
        &[Feature::Avx512, Feature::Vpclmul],
        Functions { absorb: x86_64_vpclmul::absorb },
    ),
    // x86-64 since 2010.
    #[cfg(target_arch = "x86_64")]
    Backend::new("pclmul", &[Feature::Pclmul], Functions { absorb: x86_64_pclmul::absorb }),
    // AArch64 with the optional AES instructions.
    #[cfg(target_arch = "aarch64")]
    Backend::new("pmull", &[Feature::Neon, Feature::ArmPmull], Functions { absorb: aarch64_pmull::absorb }),
    // Everything else.
    Backend::new("portable", &[], Functions { absorb: portable::absorb }),
];

/// POLYVAL under one hash key.
pub struct Polyval {
    key: Box<Key>,
    backend: &'static Backend,
}

impl Polyval {
    /// The fastest back end that `cpu` can run.
    pub fn new(cpu: Cpu, key: &[u8; 16]) -> Polyval {
        Polyval::with(backend::best(BACKENDS, cpu), key)
    }

    /// Every back end that `cpu` can run, fastest first.
    pub fn available(cpu: Cpu, key: &[u8; 16]) -> Vec<Polyval> {
        backend::available(BACKENDS, cpu).map(|backend| Polyval::with(backend, key)).collect()
    }

    fn with(backend: &'static Backend, key: &[u8; 16]) -> Polyval {
        let mut polyval = Polyval { key: Box::new(Key { powers: [[0; 16]; GROUP] }), backend };
        polyval.key.powers[GROUP - 1] = *key;
        for i in (0..GROUP - 1).rev() {
            let mut power = [0; 16];
            polyval.absorb(&mut power, &[polyval.key.powers[i + 1]]);
            polyval.key.powers[i] = power;
        }
        polyval
    }

    /// Takes whole blocks into `state`, which begins as zeros.
    pub fn absorb(&self, state: &mut [u8; 16], blocks: &[[u8; 16]]) {
        // SAFETY: a back end comes from `crate::backend` alone, so the CPU has what it needs.
        unsafe { (self.backend.run.absorb)(&self.key.powers, state, blocks) }
    }

    /// The back end's name.
    pub fn name(&self) -> &'static str {
        self.backend.name
    }
}

impl fmt::Debug for Polyval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Polyval({})", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Guarded, Rng};

    /// a b x^-128, bit by bit: whenever the sum is odd the polynomial is added, so that it can be divided by x.
    fn dot(a: u128, b: u128) -> u128 {
        let mut sum = 0;
        for i in 0..128 {
            sum ^= if a >> i & 1 == 1 { b } else { 0 };
            // x^128 + x^127 + x^126 + x^121 + 1, divided by x once the sum was made even.
            let odd = sum & 1 == 1;
            sum = (sum >> 1) ^ if odd { 0xe1 << 120 } else { 0 };
        }
        sum
    }

    #[test]
    fn the_example_of_the_rfc() {
        // RFC 8452, appendix A.
        let key = 0x25629347589242761d31f826ba4b757b_u128.to_be_bytes();
        let blocks = [0x4f4f95668c83dfb6401762bb2d01a262_u128, 0xd1a24ddd2721d006bbe45f20d3c9f362];
        for polyval in Polyval::available(Cpu::detect(), &key) {
            let mut state = [0; 16];
            polyval.absorb(&mut state, &blocks.map(u128::to_be_bytes));
            assert_eq!(u128::from_be_bytes(state), 0xf7a3b47b846119fae5b7866cf5e5b77e, "{}", polyval.name());
        }
    }

    #[test]
    fn any_number_of_blocks_follows_the_definition() {
        let mut rng = Rng::new(1);
        for count in 0..=70 {
            let key: [u8; 16] = std::array::from_fn(|_| rng.next_u64() as u8);
            let start: [u8; 16] = std::array::from_fn(|_| rng.next_u64() as u8);
            let bytes = Guarded::copy_at_end(&rng.bytes(16 * count));
            let blocks = bytes.as_chunks().0;
            let expected = blocks.iter().fold(u128::from_le_bytes(start), |state, block| {
                dot(state ^ u128::from_le_bytes(*block), u128::from_le_bytes(key))
            });
            for polyval in Polyval::available(Cpu::detect(), &key) {
                let mut state = start;
                polyval.absorb(&mut state, blocks);
                assert_eq!(u128::from_le_bytes(state), expected, "{} with {count} blocks", polyval.name());
            }
        }
    }
}
