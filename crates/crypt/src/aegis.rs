//! AEGIS-128, an authenticated cipher of AES rounds: the variant of five blocks of state, which the kernel calls `aegis128`.
//!
//! No crate has this variant; it is for volumes that exist, and not fast.
//!
//! Source: H. Wu and B. Preneel, AEGIS: A Fast Authenticated Encryption Algorithm (v1.1), section 3.

use aes::Block;
use aes::hazmat::cipher_round;

use casemate_blockdev::u64_of;
use casemate_primitives::secret::{SecretVec, constant_time_eq};

const BLOCK: usize = 16;

/// The Fibonacci sequence modulo 256, in two blocks.
const FIRST: [u8; BLOCK] =
    [0x00, 0x01, 0x01, 0x02, 0x03, 0x05, 0x08, 0x0d, 0x15, 0x22, 0x37, 0x59, 0x90, 0xe9, 0x79, 0x62];
const SECOND: [u8; BLOCK] =
    [0xdb, 0x3d, 0x18, 0x55, 0x6d, 0xc2, 0x2f, 0xf1, 0x20, 0x11, 0x31, 0x42, 0x73, 0xb5, 0x28, 0xdd];

/// The cipher under its key of 16 bytes.
pub(crate) struct Aegis128 {
    key: SecretVec,
}

/// Five blocks that a message goes through.
struct State([Block; 5]);

fn xor(a: &Block, b: &[u8]) -> Block {
    let mut out = *a;
    out.iter_mut().zip(b).for_each(|(out, b)| *out ^= b);
    out
}

impl State {
    fn new(key: &[u8], iv: &[u8]) -> State {
        let key = xor(&Block::default(), key);
        let (first, second) = (xor(&Block::default(), &FIRST), xor(&Block::default(), &SECOND));
        let mixed = xor(&key, iv);
        let mut state = State([mixed, second, first, xor(&key, &first), xor(&key, &second)]);
        for _ in 0..5 {
            state.update(&key);
            state.update(&mixed);
        }
        state
    }

    fn update(&mut self, message: &[u8]) {
        let old = self.0;
        for (number, block) in self.0.iter_mut().enumerate() {
            let mut round = old[(number + 4) % 5];
            cipher_round(&mut round, &old[number]);
            *block = round;
        }
        self.0[0] = xor(&self.0[0], message);
    }

    /// The block that the next one of a message is covered with.
    fn cover(&self) -> Block {
        let [_, one, two, three, four] = &self.0;
        let mut both = *two;
        both.iter_mut().zip(three).for_each(|(both, three)| *both &= three);
        xor(&xor(one, four), &both)
    }

    fn tag(mut self, associated_len: usize, len: usize) -> Block {
        let bits = |len: usize| (u64_of(len) * 8).to_le_bytes();
        let last = xor(&self.0[3], &[bits(associated_len), bits(len)].concat());
        (0..7).for_each(|_| self.update(&last));
        self.0.iter().fold(Block::default(), |tag, block| xor(&tag, block))
    }
}

impl Aegis128 {
    /// Takes a key of 16 bytes.
    pub fn new(key: &[u8]) -> Option<Aegis128> {
        (key.len() == BLOCK).then(|| Aegis128 { key: key.into() })
    }

    fn begin(&self, iv: &[u8], associated: &[u8]) -> State {
        let mut state = State::new(self.key.expose(), iv);
        associated.chunks(BLOCK).for_each(|block| state.update(block));
        state
    }

    /// Encrypts whole blocks in place, and returns their tag.
    pub fn seal(&self, iv: &[u8], associated: &[u8], data: &mut [u8]) -> Block {
        let mut state = self.begin(iv, associated);
        for block in data.chunks_exact_mut(BLOCK) {
            let covered = xor(&state.cover(), block);
            state.update(block);
            block.copy_from_slice(&covered);
        }
        state.tag(associated.len(), data.len())
    }

    /// Decrypts whole blocks in place. Whether the tag is theirs.
    pub fn open(&self, iv: &[u8], associated: &[u8], data: &mut [u8], tag: &[u8]) -> bool {
        let mut state = self.begin(iv, associated);
        for block in data.chunks_exact_mut(BLOCK) {
            let plain = xor(&state.cover(), block);
            state.update(&plain);
            block.copy_from_slice(&plain);
        }
        constant_time_eq(&state.tag(associated.len(), data.len()), tag)
    }
}
