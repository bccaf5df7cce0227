//! Serpent in words of the CPU: four blocks side by side, which compilers put into vector registers where there are some.

use zeroize::Zeroize;

use super::RoundKeys;
use super::rounds::rounds;

const BLOCKS: usize = 4;

type Vector = [u32; BLOCKS];

rounds!();

fn each_word(a: Vector, b: Vector, change: impl Fn(u32, u32) -> u32) -> Vector {
    std::array::from_fn(|lane| change(a[lane], b[lane]))
}

fn and(a: Vector, b: Vector) -> Vector {
    each_word(a, b, |a, b| a & b)
}

fn or(a: Vector, b: Vector) -> Vector {
    each_word(a, b, |a, b| a | b)
}

fn xor(a: Vector, b: Vector) -> Vector {
    each_word(a, b, |a, b| a ^ b)
}

fn not(a: Vector) -> Vector {
    a.map(|word| !word)
}

fn and_not(a: Vector, b: Vector) -> Vector {
    each_word(a, b, |a, b| a & !b)
}

fn rotate_left<const N: u32>(a: Vector) -> Vector {
    a.map(|word| word.rotate_left(N))
}

fn shift_left<const N: u32>(a: Vector) -> Vector {
    a.map(|word| word << N)
}

fn splat(word: u32) -> Vector {
    [word; BLOCKS]
}

fn load(blocks: &[[u8; 16]; BLOCKS]) -> State {
    let word = |block: usize, i: usize| {
        let bytes = &blocks[block];
        u32::from_le_bytes([bytes[4 * i], bytes[4 * i + 1], bytes[4 * i + 2], bytes[4 * i + 3]])
    };
    std::array::from_fn(|i| std::array::from_fn(|block| word(block, i)))
}

fn store(state: State, blocks: &mut [[u8; 16]; BLOCKS]) {
    for (block, bytes) in blocks.iter_mut().enumerate() {
        for (i, word) in bytes.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            *word = state[i][block].to_le_bytes();
        }
    }
}

/// Key of a round through an S-box, which is how round keys are made.
pub(super) fn through_box(number: usize, words: [u32; 4]) -> [u32; 4] {
    let boxes = [s0, s1, s2, s3, s4, s5, s6, s7];
    boxes[number % 8](words.map(splat)).map(|vector| vector[0])
}
