//! POLYVAL with PCLMULQDQ, a block at a time and a reduction for sixteen.

use core::arch::x86_64::*;

use super::{GROUP, Powers};

/// Takes blocks into a state.
#[target_feature(enable = "pclmulqdq,sse4.1")]
pub(super) fn absorb(powers: &Powers, state: &mut [u8; 16], blocks: &[[u8; 16]]) {
    let mut sum = load(state);
    for group in blocks.chunks(GROUP) {
        let zero = _mm_setzero_si128();
        let (mut low, mut middle, mut high) = (zero, zero, zero);
        for (block, power) in group.iter().zip(&powers[GROUP - group.len()..]) {
            let (a, b) = (_mm_xor_si128(load(block), sum), load(power));
            sum = zero;
            low = _mm_xor_si128(low, _mm_clmulepi64_si128::<0x00>(a, b));
            high = _mm_xor_si128(high, _mm_clmulepi64_si128::<0x11>(a, b));
            let cross = _mm_xor_si128(_mm_clmulepi64_si128::<0x01>(a, b), _mm_clmulepi64_si128::<0x10>(a, b));
            middle = _mm_xor_si128(middle, cross);
        }
        sum = reduce(low, middle, high);
    }
    // SAFETY: the state is 16 writable bytes.
    unsafe { _mm_storeu_si128(state.as_mut_ptr().cast(), sum) };
}

/// The 256-bit product `low` + `middle` x^64 + `high` x^128, times x^-128.
#[inline]
#[target_feature(enable = "pclmulqdq,sse4.1")]
pub(super) fn reduce(low: __m128i, middle: __m128i, high: __m128i) -> __m128i {
    let low = _mm_xor_si128(low, _mm_slli_si128::<8>(middle));
    let high = _mm_xor_si128(high, _mm_srli_si128::<8>(middle));
    // Twice the lowest word w is made 0 by adding w times the polynomial, which ends in 1; the constant is the
    // polynomial's x^121 + x^126 + x^127, less 64.
    let polynomial = _mm_set1_epi64x(0xc200_0000_0000_0000_u64 as i64);
    let swap = |v| _mm_shuffle_epi32::<0b01_00_11_10>(v);
    let once = _mm_xor_si128(swap(low), _mm_clmulepi64_si128::<0x00>(low, polynomial));
    let twice = _mm_xor_si128(swap(once), _mm_clmulepi64_si128::<0x00>(once, polynomial));
    _mm_xor_si128(high, twice)
}

#[inline]
#[target_feature(enable = "sse4.1")]
fn load(block: &[u8; 16]) -> __m128i {
    // SAFETY: a block is 16 readable bytes.
    unsafe { _mm_loadu_si128(block.as_ptr().cast()) }
}
