//! Argon2's blocks, and the function that makes one of two: RFC 9106, section 3.5.
//!
//! A block is a matrix of 8 times 8 registers of 16 bytes. The sum of both parents goes through BLAKE2b's round, whose
//! additions have a product added (section 3.6), first row by row and then column by column, and the sum is added again.
//! Which blocks are parents is not known here.

mod portable;
#[cfg(target_arch = "x86_64")]
mod x86_64_avx2;

use std::fmt;

use zeroize::DefaultIsZeroes;

use crate::backend;
use crate::cpu::{Cpu, Feature};

/// The words of a block.
pub const WORDS: usize = 128;

/// A block of 1024 bytes, as words that are little-endian in bytes.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Block(pub [u64; WORDS]);

/// The function of two blocks. The functions need the CPU to have `needs`.
struct Functions {
    /// Overwrites the third block.
    fill: unsafe fn(&Block, &Block, &mut Block),
    /// Adds to the third block.
    add: unsafe fn(&Block, &Block, &mut Block),
    /// Prefetches a block that will be read soon.
    expect: fn(&Block),
}

type Backend = backend::Row<Functions>;

/// Every back end, fastest first as measured.
static BACKENDS: &[Backend] = &[
    // x86-64 since 2013.
    #[cfg(target_arch = "x86_64")]
    Backend::new(
        "avx2",
        &[Feature::Avx2],
        Functions { fill: x86_64_avx2::fill, add: x86_64_avx2::add, expect: x86_64_avx2::expect },
    ),
    // Everything else.
    Backend::new(
        "portable",
        &[],
        Functions { fill: portable::fill, add: portable::add, expect: portable::expect },
    ),
];

/// The function that makes blocks, by a back end that this CPU can run.
#[derive(Clone, Copy)]
pub struct Compression {
    backend: &'static Backend,
}

impl Compression {
    /// The fastest back end that `cpu` can run.
    pub fn new(cpu: Cpu) -> Compression {
        Compression { backend: backend::best(BACKENDS, cpu) }
    }

    /// Every back end that `cpu` can run, fastest first; the last one is `portable`.
    pub fn available(cpu: Cpu) -> impl Iterator<Item = Compression> {
        backend::available(BACKENDS, cpu).map(|backend| Compression { backend })
    }

    /// The back end's name.
    pub fn name(&self) -> &'static str {
        self.backend.name
    }

    /// Makes a block of its parents.
    #[inline]
    pub fn fill(&self, a: &Block, b: &Block, to: &mut Block) {
        // SAFETY: a back end comes from `crate::backend` alone, so the CPU has what it needs.
        unsafe { (self.backend.run.fill)(a, b, to) }
    }

    /// Adds what the parents make to a block, as passes after the first do.
    #[inline]
    pub fn add(&self, a: &Block, b: &Block, to: &mut Block) {
        // SAFETY: as above.
        unsafe { (self.backend.run.add)(a, b, to) }
    }

    /// Has a block brought into the cache, if it is not there, without waiting for it.
    #[inline]
    pub fn expect(&self, block: &Block) {
        (self.backend.run.expect)(block);
    }
}

impl fmt::Debug for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Compression({})", self.name())
    }
}

impl Block {
    /// A block of zeros.
    pub const ZERO: Block = Block([0; WORDS]);

    /// The whole blocks within bytes, from the first place on that is aligned for them; zero bytes are zero blocks.
    pub fn within(bytes: &mut [u8]) -> &mut [Block] {
        // SAFETY: a block is words, which any bytes are.
        unsafe { bytes.align_to_mut::<Block>().1 }
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Block")
    }
}

impl Default for Block {
    fn default() -> Block {
        Block::ZERO
    }
}

// A block is wiped as a whole: much faster than its words one by one, of which there may be gigabytes.
impl DefaultIsZeroes for Block {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Rng;

    fn block(rng: &mut Rng) -> Block {
        Block(std::array::from_fn(|_| rng.next_u64()))
    }

    /// The RFC's P over 16 words, which are eight registers.
    fn p(mut v: [u64; 16]) -> [u64; 16] {
        let mut gb = |a: usize, b: usize, c: usize, d: usize| {
            for [first, second] in [[32, 24], [16, 63]] {
                for (x, y, z, right) in [(a, b, d, first), (c, d, b, second)] {
                    let product = u128::from(v[x] as u32) * u128::from(v[y] as u32) * 2;
                    v[x] = v[x].wrapping_add(v[y]).wrapping_add(product as u64);
                    v[z] = (v[z] ^ v[x]).rotate_right(right);
                }
            }
        };
        for i in 0..4 {
            gb(i, 4 + i, 8 + i, 12 + i);
        }
        for i in 0..4 {
            gb(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4);
        }
        v
    }

    /// The RFC's G.
    fn g(a: &Block, b: &Block) -> Block {
        let sum: Vec<u64> = a.0.iter().zip(b.0).map(|(a, b)| a ^ b).collect();
        let mut z = sum.clone();
        // Register k of row r has words 16 r + 2 k and the next one.
        for r in 0..8 {
            let places: [usize; 16] = std::array::from_fn(|k| 16 * r + k);
            let out = p(places.map(|place| z[place]));
            places.iter().zip(out).for_each(|(place, word)| z[*place] = word);
        }
        for k in 0..8 {
            let places: [usize; 16] = std::array::from_fn(|i| 16 * (i / 2) + 2 * k + i % 2);
            let out = p(places.map(|place| z[place]));
            places.iter().zip(out).for_each(|(place, word)| z[*place] = word);
        }
        Block(std::array::from_fn(|i| z[i] ^ sum[i]))
    }

    #[test]
    fn back_ends_follow_the_definition() {
        let mut rng = Rng::new(1);
        for _ in 0..20 {
            let (a, b, old) = (block(&mut rng), block(&mut rng), block(&mut rng));
            let expected = g(&a, &b);
            for compression in Compression::available(Cpu::detect()) {
                let mut to = old;
                compression.expect(&a);
                compression.fill(&a, &b, &mut to);
                assert_eq!(to.0, expected.0, "{compression:?}");
                compression.add(&b, &a, &mut to);
                assert_eq!(to.0, [0; WORDS], "{compression:?}");
            }
        }
    }

    #[test]
    fn blocks_lie_within_bytes_where_they_may() {
        let mut bytes = vec![7; 5 * 1024 + 63];
        for skipped in 0..64 {
            let blocks = Block::within(&mut bytes[skipped..]);
            assert!((4..=5).contains(&blocks.len()), "{skipped}");
            assert!(blocks.iter().all(|block| block.0 == [0x0707_0707_0707_0707; WORDS]));
        }
        assert!(Block::within(&mut bytes[..1000]).is_empty());
    }
}
