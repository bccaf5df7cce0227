//! Round keys, in the one layout that all back ends read.

use std::fmt;

use zeroize::{Zeroize, ZeroizeOnDrop};

/// The parts of AES that a key schedule is made with. A value of the type proves that the CPU has the instructions.
pub(super) trait KeyExpansion: Copy {
    /// AES's S-box on each byte.
    fn sub_word(self, word: u32) -> u32;

    /// InvMixColumns of one round key.
    fn inv_mix_columns(self, key: [u8; 16]) -> [u8; 16];
}

/// The round keys of one AES key for both directions.
///
/// `enc` holds the keys of FIPS 197's cipher in order of use, `dec` those of its equivalent inverse cipher in
/// order of use: `dec[0]` is `enc[rounds]`, the last one is `enc[0]`, and those between went through
/// InvMixColumns. Each key is 16 bytes in the order of the state's bytes. Entries past `rounds` are zero.
#[derive(Zeroize, ZeroizeOnDrop)]
#[repr(C, align(64))]
pub(super) struct Schedule {
    pub enc: [[u8; 16]; 15],
    pub dec: [[u8; 16]; 15],
    pub rounds: usize,
}

impl Schedule {
    /// Fills in all round keys of `key` (FIPS 197, section 5.2).
    #[inline(always)]
    pub fn expand(&mut self, key: &[u8], e: impl KeyExpansion) {
        let words = key.len() / 4;
        assert!(
            key.len().is_multiple_of(8) && (4..=8).contains(&words),
            "an AES key, not {} bytes",
            key.len()
        );
        self.rounds = words + 6;
        let mut w = [0u32; 60];
        for (word, bytes) in w.iter_mut().zip(key.chunks_exact(4)) {
            *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        let mut round_constant = 1u32;
        for i in words..4 * (self.rounds + 1) {
            let mut last = w[i - 1];
            if i % words == 0 {
                last = e.sub_word(last.rotate_right(8)) ^ round_constant;
                round_constant = (round_constant << 1) ^ ((round_constant >> 7) * 0x11b);
            } else if words == 8 && i % words == 4 {
                last = e.sub_word(last);
            }
            w[i] = w[i - words] ^ last;
        }
        for (i, word) in w.iter().enumerate() {
            self.enc[i / 4][i % 4 * 4..][..4].copy_from_slice(&word.to_le_bytes());
        }
        w.zeroize();
        // From place to place: a copy on the way would stay on the stack, and the last one is the key itself.
        self.dec[0].copy_from_slice(&self.enc[self.rounds]);
        self.dec[self.rounds].copy_from_slice(&self.enc[0]);
        for i in 1..self.rounds {
            self.dec[i] = e.inv_mix_columns(self.enc[self.rounds - i]);
        }
    }

    /// A schedule without a key, to be filled in where it stands: moving one would leave copies behind.
    pub fn empty() -> Schedule {
        Schedule { enc: [[0; 16]; 15], dec: [[0; 16]; 15], rounds: 0 }
    }
}

/// The two schedules of an XTS key.
#[derive(ZeroizeOnDrop)]
pub(super) struct XtsKeys {
    pub data: Schedule,
    pub tweak: Schedule,
}

/// A key whose length its cipher does not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyError {
    /// The cipher, such as `AES-XTS`.
    pub cipher: &'static str,
    /// The cipher's key lengths in bytes.
    pub takes: &'static [usize],
    /// The given key's length in bytes.
    pub len: usize,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a key of {} bytes for {}, which takes ", self.len, self.cipher)?;
        for (i, len) in self.takes.iter().enumerate() {
            let before = if i == 0 {
                ""
            } else if i + 1 == self.takes.len() {
                " or "
            } else {
                ", "
            };
            write!(f, "{before}{len}")?;
        }
        Ok(())
    }
}

impl std::error::Error for KeyError {}

impl KeyError {
    pub(crate) fn check(cipher: &'static str, takes: &'static [usize], key: &[u8]) -> Result<(), KeyError> {
        let len = key.len();
        if takes.contains(&len) { Ok(()) } else { Err(KeyError { cipher, takes, len }) }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;
    use std::ptr;

    use super::*;

    #[test]
    fn a_schedule_is_wiped_when_it_is_dropped() {
        let mut place = MaybeUninit::new(XtsKeys { data: Schedule::empty(), tweak: Schedule::empty() });
        let keys = place.as_mut_ptr();
        // SAFETY: `keys` is initialised and nobody else refers to it.
        let both = unsafe { [&mut (*keys).data, &mut (*keys).tweak] };
        for schedule in both {
            schedule.enc.as_flattened_mut().fill(0xa5);
            schedule.dec.as_flattened_mut().fill(0x5a);
            schedule.rounds = 14;
        }
        // SAFETY: `keys` is initialised, is dropped once, and is not used as an `XtsKeys` again.
        unsafe { ptr::drop_in_place(keys) };
        for at in 0..size_of::<XtsKeys>() {
            let in_padding = at % size_of::<Schedule>() >= 480 + size_of::<usize>();
            // SAFETY: the place is still `at` bytes and more; bytes outside padding were written above.
            let byte = if in_padding { 0 } else { unsafe { *keys.cast::<u8>().add(at) } };
            assert_eq!(byte, 0, "byte {at} of the dropped keys");
        }
    }

    #[test]
    fn a_refused_key_says_what_is_taken() {
        let refused = KeyError::check("AES-XTS", &[32, 48, 64], &[0; 33]).unwrap_err();
        assert_eq!(refused.to_string(), "a key of 33 bytes for AES-XTS, which takes 32, 48 or 64");
    }
}
