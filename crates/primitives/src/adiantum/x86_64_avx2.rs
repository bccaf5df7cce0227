//! NH in 256-bit registers: the four sums' keys overlap, so one register holds those of two.

use core::arch::x86_64::*;

use super::key::NhKey;

/// The four sums of `message`, which is not longer than the key.
#[target_feature(enable = "avx2")]
pub(super) fn nh(key: &NhKey, message: &[[u8; 16]]) -> [u8; 32] {
    let keys = key.0.as_chunks::<16>().0;
    let mut sums = [_mm256_setzero_si256(); 2];
    for (block, keys) in message.iter().zip(keys.windows(4)) {
        // SAFETY: the block is 16 readable bytes.
        let block = _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(block.as_ptr().cast()) });
        for (sum, keys) in sums.iter_mut().zip(keys.as_chunks::<2>().0) {
            // SAFETY: two blocks of key are 32 readable bytes.
            let words = _mm256_add_epi32(block, unsafe { _mm256_loadu_si256(keys.as_ptr().cast()) });
            // The multiplication takes words 0 and 2 of each four.
            let low = _mm256_shuffle_epi32::<0b01_01_00_00>(words);
            let high = _mm256_shuffle_epi32::<0b11_11_10_10>(words);
            *sum = _mm256_add_epi64(*sum, _mm256_mul_epu32(low, high));
        }
    }
    // Each lane holds the two halves of one of the four sums.
    let both =
        _mm256_add_epi64(_mm256_unpacklo_epi64(sums[0], sums[1]), _mm256_unpackhi_epi64(sums[0], sums[1]));
    let in_order = _mm256_permute4x64_epi64::<0b11_01_10_00>(both);
    let mut out = [0; 32];
    // SAFETY: the result is 32 writable bytes.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), in_order) };
    out
}
