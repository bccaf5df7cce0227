//! POLYVAL with VPCLMULQDQ on 512-bit registers, four blocks at a time and a reduction for sixteen.

use core::arch::x86_64::*;

use super::x86_64_pclmul::reduce;
use super::{GROUP, Powers};

/// Takes blocks into a state.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vpclmulqdq,pclmulqdq,sse4.1")]
pub(super) fn absorb(powers: &Powers, state: &mut [u8; 16], blocks: &[[u8; 16]]) {
    // SAFETY: the state is 16 readable bytes.
    let mut sum = unsafe { _mm_loadu_si128(state.as_ptr().cast()) };
    for group in blocks.chunks(GROUP) {
        let zero = _mm512_setzero_si512();
        let (mut low, mut middle, mut high) = (zero, zero, zero);
        let mut first = _mm512_zextsi128_si512(sum);
        for (blocks, powers) in group.chunks(4).zip(powers[GROUP - group.len()..].chunks(4)) {
            let (a, b) = (_mm512_xor_si512(load(blocks), first), load(powers));
            first = zero;
            low = _mm512_xor_si512(low, _mm512_clmulepi64_epi128::<0x00>(a, b));
            high = _mm512_xor_si512(high, _mm512_clmulepi64_epi128::<0x11>(a, b));
            let cross = (_mm512_clmulepi64_epi128::<0x01>(a, b), _mm512_clmulepi64_epi128::<0x10>(a, b));
            middle = _mm512_ternarylogic_epi64::<0x96>(middle, cross.0, cross.1);
        }
        sum = reduce(sum_of_lanes(low), sum_of_lanes(middle), sum_of_lanes(high));
    }
    // SAFETY: the state is 16 writable bytes.
    unsafe { _mm_storeu_si128(state.as_mut_ptr().cast(), sum) };
}

/// One to four blocks; lanes without one are zero.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn load(blocks: &[[u8; 16]]) -> __m512i {
    let mask = 0xff_u8 >> (8 - 2 * blocks.len());
    // SAFETY: two qwords for each block are readable; a qword whose mask bit is 0 is not touched.
    unsafe { _mm512_maskz_loadu_epi64(mask, blocks.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
fn sum_of_lanes(v: __m512i) -> __m128i {
    let half = _mm256_xor_si256(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64::<1>(v));
    _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256::<1>(half))
}
