//! NH in 512-bit registers: the four sums' keys overlap, so 64 bytes of key are all that a block needs.

use core::arch::x86_64::*;

use super::key::NhKey;

/// The four sums of `message`, which is not longer than the key.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn nh(key: &NhKey, message: &[[u8; 16]]) -> [u8; 32] {
    let mut sums = [_mm512_setzero_si512(); 4];
    for (i, blocks) in message.chunks(4).enumerate() {
        for (j, (block, sum)) in blocks.iter().zip(&mut sums).enumerate() {
            let key: &[u8; 64] =
                key.0[64 * i + 16 * j..].first_chunk().expect("key for a message of 1024 bytes");
            // SAFETY: the block is 16 readable bytes, the key's part is 64.
            let (block, key) =
                unsafe { (_mm_loadu_si128(block.as_ptr().cast()), _mm512_loadu_si512(key.as_ptr().cast())) };
            let words = _mm512_add_epi32(_mm512_broadcast_i32x4(block), key);
            // The multiplication takes words 0 and 2 of each four.
            let low = _mm512_shuffle_epi32::<0b01_01_00_00>(words);
            let high = _mm512_shuffle_epi32::<0b11_11_10_10>(words);
            *sum = _mm512_add_epi64(*sum, _mm512_mul_epu32(low, high));
        }
    }
    let [a, b, c, d] = sums;
    let sum = _mm512_add_epi64(_mm512_add_epi64(a, b), _mm512_add_epi64(c, d));
    // Each lane holds the two halves of one of the four sums.
    let sum = _mm512_add_epi64(sum, _mm512_bsrli_epi128::<8>(sum));
    let sums = _mm512_permutexvar_epi64(_mm512_set_epi64(7, 7, 7, 7, 6, 4, 2, 0), sum);
    let mut out = [0; 32];
    // SAFETY: the result is 32 writable bytes.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), _mm512_castsi512_si256(sums)) };
    out
}
