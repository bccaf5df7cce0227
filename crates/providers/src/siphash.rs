//! SipHash-2-4: a short keyed hash, for hash tables that somebody else fills.

use siphasher::sip::SipHasher24;

/// SipHash-2-4 of `message` (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012).
pub fn siphash24(key: &[u8; 16], message: &[u8]) -> u64 {
    SipHasher24::new_with_key(key).hash(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answers_of_the_paper() {
        let key: [u8; 16] = std::array::from_fn(|i| i as u8);
        let message: Vec<u8> = (0..15).collect();
        // The paper's appendix A, and the first of its reference program's table.
        assert_eq!(siphash24(&key, &message), 0xa129_ca61_49be_45e5);
        assert_eq!(siphash24(&key, &[]), 0x726f_db47_dd0e_0e31);
    }
}
