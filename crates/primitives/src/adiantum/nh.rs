//! NH as Adiantum uses it: four sums of products of 32-bit words, under overlapping keys.

use super::key::{MESSAGE, NhKey};
use crate::backend;
use crate::cpu::{Cpu, Feature};

type Hash = unsafe fn(&NhKey, &[[u8; 16]]) -> [u8; 32];

/// One way to do NH.
type Backend = backend::Row<Hash>;

/// Every back end, fastest first as measured.
static BACKENDS: &[Backend] = &[
    // Intel from Skylake-X on, AMD from Zen 4 on.
    #[cfg(target_arch = "x86_64")]
    Backend::new("avx512", &[Feature::Avx512], super::x86_64_avx512::nh),
    // Intel from Haswell on, AMD from Zen on.
    #[cfg(target_arch = "x86_64")]
    Backend::new("avx2", &[Feature::Avx2], super::x86_64_avx2::nh),
    // AArch64.
    #[cfg(target_arch = "aarch64")]
    Backend::new("neon", &[Feature::Neon], super::aarch64_neon::nh),
    // Everything else.
    Backend::new("portable", &[], portable),
];

/// NH by a back end that the CPU can run.
#[derive(Clone, Copy)]
pub(super) struct Nh(&'static Backend);

impl Nh {
    /// The fastest back end that `cpu` can run.
    pub fn new(cpu: Cpu) -> Nh {
        Nh(backend::best(BACKENDS, cpu))
    }

    /// Every back end that `cpu` can run, fastest first.
    #[cfg(test)]
    pub fn available(cpu: Cpu) -> impl Iterator<Item = Nh> {
        backend::available(BACKENDS, cpu).map(Nh)
    }

    /// The back end's name.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// The four sums, as little-endian 64-bit words, of at most [`MESSAGE`] bytes.
    pub fn hash(self, key: &NhKey, message: &[[u8; 16]]) -> [u8; 32] {
        assert!(message.len() <= MESSAGE / 16, "{} blocks for NH", message.len());
        // SAFETY: an `Nh` comes from `crate::backend` alone, so the CPU has what the function needs.
        unsafe { (self.0.run)(key, message) }
    }
}

/// With words m and, for sum p, the key's words k from 4 p on: the sum over blocks of
/// (m0 + k0) (m2 + k2) + (m1 + k1) (m3 + k3), where the additions inside are modulo 2^32.
fn portable(key: &NhKey, message: &[[u8; 16]]) -> [u8; 32] {
    let words = |block: &[u8; 16]| -> [u32; 4] {
        std::array::from_fn(|i| u32::from_le_bytes(block.as_chunks().0[i]))
    };
    let keys = key.0.as_chunks().0;
    let mut sums = [0u64; 4];
    for (i, block) in message.iter().enumerate() {
        let m = words(block);
        for (p, sum) in sums.iter_mut().enumerate() {
            let k = words(&keys[i + p]);
            let a: [u64; 4] = std::array::from_fn(|j| m[j].wrapping_add(k[j]).into());
            *sum = sum.wrapping_add(a[0] * a[2]).wrapping_add(a[1] * a[3]);
        }
    }
    let mut out = [0; 32];
    for (out, sum) in out.chunks_exact_mut(8).zip(sums) {
        out.copy_from_slice(&sum.to_le_bytes());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::key::KEY;
    use super::*;
    use crate::testing::{Guarded, Rng};

    #[test]
    fn back_ends_agree_on_every_length() {
        let mut rng = Rng::new(2);
        let mut key = NhKey([0; KEY]);
        rng.fill(&mut key.0);
        for blocks in 0..=MESSAGE / 16 {
            let message = Guarded::copy_at_end(&rng.bytes(16 * blocks));
            let expected = portable(&key, message.as_chunks().0);
            for nh in Nh::available(Cpu::detect()) {
                assert_eq!(
                    nh.hash(&key, message.as_chunks().0),
                    expected,
                    "{} with {blocks} blocks",
                    nh.name()
                );
            }
        }
    }
}
