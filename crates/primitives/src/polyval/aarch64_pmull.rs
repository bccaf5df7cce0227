//! POLYVAL with PMULL, a block at a time and a reduction for sixteen.

use core::arch::aarch64::*;

use super::{GROUP, Powers};

/// Takes blocks into a state.
#[target_feature(enable = "neon,aes")]
pub(super) fn absorb(powers: &Powers, state: &mut [u8; 16], blocks: &[[u8; 16]]) {
    let mut sum = load(state);
    for group in blocks.chunks(GROUP) {
        let zero = vdupq_n_u64(0);
        let (mut low, mut middle, mut high) = (zero, zero, zero);
        for (block, power) in group.iter().zip(&powers[GROUP - group.len()..]) {
            let (a, b) = (veorq_u64(load(block), sum), load(power));
            let swapped = vextq_u64::<1>(b, b);
            sum = zero;
            low = veorq_u64(low, product(vget_low_u64(a), vget_low_u64(b)));
            high = veorq_u64(high, product(vget_high_u64(a), vget_high_u64(b)));
            middle = veorq_u64(middle, product(vget_low_u64(a), vget_low_u64(swapped)));
            middle = veorq_u64(middle, product(vget_high_u64(a), vget_high_u64(swapped)));
        }
        sum = reduce(low, middle, high);
    }
    // SAFETY: the state is 16 writable bytes.
    unsafe { vst1q_u8(state.as_mut_ptr(), vreinterpretq_u8_u64(sum)) };
}

/// The 256-bit product `low` + `middle` x^64 + `high` x^128, times x^-128.
#[inline]
#[target_feature(enable = "neon,aes")]
fn reduce(low: uint64x2_t, middle: uint64x2_t, high: uint64x2_t) -> uint64x2_t {
    let zero = vdupq_n_u64(0);
    let low = veorq_u64(low, vextq_u64::<1>(zero, middle));
    let high = veorq_u64(high, vextq_u64::<1>(middle, zero));
    // Twice the lowest word w is made 0 by adding w times the polynomial, which ends in 1; the constant is the
    // polynomial's x^121 + x^126 + x^127, less 64.
    let polynomial = vdup_n_u64(0xc200_0000_0000_0000);
    let once = veorq_u64(vextq_u64::<1>(low, low), product(vget_low_u64(low), polynomial));
    let twice = veorq_u64(vextq_u64::<1>(once, once), product(vget_low_u64(once), polynomial));
    veorq_u64(high, twice)
}

/// The product of two polynomials of 64 bits.
#[inline]
#[target_feature(enable = "neon,aes")]
fn product(a: uint64x1_t, b: uint64x1_t) -> uint64x2_t {
    vreinterpretq_u64_p128(vmull_p64(vget_lane_u64::<0>(a), vget_lane_u64::<0>(b)))
}

#[inline]
#[target_feature(enable = "neon")]
fn load(block: &[u8; 16]) -> uint64x2_t {
    // SAFETY: a block is 16 readable bytes.
    vreinterpretq_u64_u8(unsafe { vld1q_u8(block.as_ptr()) })
}
