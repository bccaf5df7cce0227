//! NH with NEON: a multiplication of the low half of four words by the high half does both products of a sum.

use core::arch::aarch64::*;

use super::key::NhKey;

/// The four sums of `message`, which is not longer than the key.
#[target_feature(enable = "neon")]
pub(super) fn nh(key: &NhKey, message: &[[u8; 16]]) -> [u8; 32] {
    let keys = key.0.as_chunks::<16>().0;
    let mut sums = [vdupq_n_u64(0); 4];
    for (block, keys) in message.iter().zip(keys.windows(4)) {
        let block = load(block);
        for (sum, key) in sums.iter_mut().zip(keys) {
            let words = vaddq_u32(block, load(key));
            *sum = vmlal_u32(*sum, vget_low_u32(words), vget_high_u32(words));
        }
    }
    let mut out = [0; 32];
    for (out, sum) in out.chunks_exact_mut(8).zip(sums) {
        out.copy_from_slice(&vaddvq_u64(sum).to_le_bytes());
    }
    out
}

#[inline]
#[target_feature(enable = "neon")]
fn load(block: &[u8; 16]) -> uint32x4_t {
    // SAFETY: a block is 16 readable bytes.
    vreinterpretq_u32_u8(unsafe { vld1q_u8(block.as_ptr()) })
}
