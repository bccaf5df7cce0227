//! AES without AES instructions, in constant time. For every CPU; eight blocks cost as much as one.

use std::array;

use super::bitslice::{Block, Planes};
use super::engine::{Engine, WIDE};
use super::functions::{engine_functions, expand_function};
use super::schedule::KeyExpansion;
use super::schedule::Schedule;

expand_function!(Portable);
engine_functions!(Portable);

/// Nothing is needed, so anyone may make one.
#[derive(Clone, Copy)]
struct Portable;

impl Portable {
    #[inline(always)]
    fn planes<const N: usize>(blocks: [Block; N]) -> Planes {
        Planes::from_blocks(array::from_fn(|i| if i < N { blocks[i] } else { [0; 4] }))
    }

    #[inline(always)]
    fn blocks<const N: usize>(planes: Planes) -> [Block; N] {
        let blocks: [Block; WIDE] = planes.into_blocks();
        array::from_fn(|i| blocks[i])
    }
}

impl Engine for Portable {
    type V = Block;

    const LANES: usize = 1;

    #[inline(always)]
    unsafe fn load(self, src: *const u8) -> Block {
        // SAFETY: the caller vouches for 16 bytes; a byte array may stand anywhere.
        let bytes = unsafe { src.cast::<[u8; 16]>().read() };
        array::from_fn(|i| u32::from_le_bytes(bytes.as_chunks().0[i]))
    }

    #[inline(always)]
    unsafe fn store(self, dst: *mut u8, v: Block) {
        let bytes: [[u8; 4]; 4] = v.map(u32::to_le_bytes);
        // SAFETY: the caller vouches for 16 bytes; a byte array may stand anywhere.
        unsafe { dst.cast::<[[u8; 4]; 4]>().write(bytes) }
    }

    #[inline(always)]
    fn splat_block(self, block: [u8; 16]) -> Block {
        array::from_fn(|i| u32::from_le_bytes(block.as_chunks().0[i]))
    }

    #[inline(always)]
    fn first_block(self, v: Block) -> [u8; 16] {
        array::from_fn(|i| v[i / 4].to_le_bytes()[i % 4])
    }

    #[inline(always)]
    fn xor(self, a: Block, b: Block) -> Block {
        array::from_fn(|i| a[i] ^ b[i])
    }

    #[inline(always)]
    fn encrypt<const N: usize>(self, keys: &Schedule, v: [Block; N]) -> [Block; N] {
        let mut state = Portable::planes(v);
        state.add_round_key(&keys.enc[0]);
        for key in &keys.enc[1..keys.rounds] {
            state.sub_bytes();
            state.shift_rows();
            state.mix_columns();
            state.add_round_key(key);
        }
        state.sub_bytes();
        state.shift_rows();
        state.add_round_key(&keys.enc[keys.rounds]);
        Portable::blocks(state)
    }

    #[inline(always)]
    fn decrypt<const N: usize>(self, keys: &Schedule, v: [Block; N]) -> [Block; N] {
        let mut state = Portable::planes(v);
        state.add_round_key(&keys.dec[0]);
        for key in &keys.dec[1..keys.rounds] {
            state.inv_sub_bytes();
            state.inv_shift_rows();
            state.inv_mix_columns();
            state.add_round_key(key);
        }
        state.inv_sub_bytes();
        state.inv_shift_rows();
        state.add_round_key(&keys.dec[keys.rounds]);
        Portable::blocks(state)
    }

    #[inline(always)]
    fn first_tweaks(self, tweak: [u8; 16]) -> Block {
        self.splat_block(tweak)
    }

    #[inline(always)]
    fn next_tweaks(self, v: Block) -> Block {
        let carry = (v[3] >> 31) * 0x87;
        array::from_fn(|i| (v[i] << 1) ^ if i == 0 { carry } else { v[i - 1] >> 31 })
    }
}

impl KeyExpansion for Portable {
    #[inline(always)]
    fn sub_word(self, word: u32) -> u32 {
        let mut planes = Portable::planes([[word, 0, 0, 0]]);
        planes.sub_bytes();
        let [block] = Portable::blocks(planes);
        block[0]
    }

    #[inline(always)]
    fn inv_mix_columns(self, key: [u8; 16]) -> [u8; 16] {
        let mut planes = Portable::planes([self.splat_block(key)]);
        planes.inv_mix_columns();
        let [block] = Portable::blocks(planes);
        self.first_block(block)
    }
}
