//! Numbers that nobody can guess, or the same ones every time.

use crate::error::Result;
use crate::number::low32;

/// Numbers for generations, and with a seed for nonces: SplitMix64, public domain by Sebastiano Vigna.
#[derive(Debug)]
pub(crate) struct Random {
    state: u64,
    seeded: bool,
}

impl Random {
    pub fn new(seed: Option<u64>) -> Random {
        use std::hash::{BuildHasher, Hasher};
        // The standard library seeds its hashers from the system.
        let random = || std::collections::hash_map::RandomState::new().build_hasher().finish();
        Random { state: seed.unwrap_or_else(random), seeded: seed.is_some() }
    }

    pub fn next(&mut self) -> u32 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        // The low half is as random as the rest.
        low32(z ^ z >> 31)
    }

    /// A number that no other file has: from the system, or from the seed.
    pub fn nonce(&mut self) -> Result<[u8; 16]> {
        let mut nonce = [0; 16];
        if self.seeded {
            for word in nonce.chunks_exact_mut(4) {
                word.copy_from_slice(&self.next().to_le_bytes());
            }
        } else {
            getrandom::fill(&mut nonce).map_err(std::io::Error::from)?;
        }
        Ok(nonce)
    }
}
