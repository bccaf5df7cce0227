//! Serpent with 32 bits of a block in each lane of a vector register, for any vector type.
//!
//! The cipher was made for this: a round is four words of a key added, an S-box of gates on words ([`super::boxes`]), and a few
//! rotations. A back end names its vector type and what it does to lanes; the macro writes the rounds and the walk
//! through the blocks. It is a macro because a function that uses vector instructions must name them itself; a generic function
//! can't.
//!
//! Names that a back end must have in scope:
//!
//! ```text
//! type Vector                      one word of some blocks
//! const BLOCKS                     how many blocks a state has
//! and, or, xor, not, and_not       on all lanes
//! rotate_left::<N>, shift_left::<N>
//! splat(u32)
//! load(&[[u8; 16]; BLOCKS]) -> State, store(State, &mut [[u8; 16]; BLOCKS])      word i of each block in element i
//! ```

/// Writes `encrypt` and `decrypt` of whole blocks.
macro_rules! rounds {
    ($(#[$feature:meta])*) => {
        /// The four words of each lane's block.
        type State = [Vector; 4];

        $crate::serpent::boxes::boxes!($(#[$feature])*);

        /// Encrypts all blocks in place.
        $(#[$feature])*
        pub(super) fn encrypt(keys: &RoundKeys, blocks: &mut [[u8; 16]]) {
            each(blocks, |state| encrypt_state(keys, state));
        }

        /// Decrypts all blocks in place.
        $(#[$feature])*
        pub(super) fn decrypt(keys: &RoundKeys, blocks: &mut [[u8; 16]]) {
            each(blocks, |state| decrypt_state(keys, state));
        }

        /// Changes all blocks, as many at a time as lanes hold; the last few in a state with idle lanes.
        $(#[$feature])*
        #[inline]
        fn each(blocks: &mut [[u8; 16]], change: impl Fn(State) -> State) {
            let (whole, rest) = blocks.as_chunks_mut::<BLOCKS>();
            for blocks in whole {
                store(change(load(blocks)), blocks);
            }
            if !rest.is_empty() {
                let mut blocks = [[0; 16]; BLOCKS];
                blocks[..rest.len()].copy_from_slice(rest);
                store(change(load(&blocks)), &mut blocks);
                rest.copy_from_slice(&blocks[..rest.len()]);
                blocks.zeroize();
            }
        }

        $(#[$feature])*
        #[inline]
        fn encrypt_state(keys: &RoundKeys, mut x: State) -> State {
            let (rounds, last) = keys.split_at(32);
            for (eight, keys) in rounds.as_chunks::<8>().0.iter().enumerate() {
                x = mix(s0(add_key(x, &keys[0])));
                x = mix(s1(add_key(x, &keys[1])));
                x = mix(s2(add_key(x, &keys[2])));
                x = mix(s3(add_key(x, &keys[3])));
                x = mix(s4(add_key(x, &keys[4])));
                x = mix(s5(add_key(x, &keys[5])));
                x = mix(s6(add_key(x, &keys[6])));
                x = s7(add_key(x, &keys[7]));
                // The last round has a second key in its place.
                x = if eight < 3 { mix(x) } else { add_key(x, &last[0]) };
            }
            x
        }

        $(#[$feature])*
        #[inline]
        fn decrypt_state(keys: &RoundKeys, mut x: State) -> State {
            let (rounds, last) = keys.split_at(32);
            for (eight, keys) in rounds.as_chunks::<8>().0.iter().enumerate().rev() {
                x = if eight < 3 { unmix(x) } else { add_key(x, &last[0]) };
                x = unmix(add_key(inverse_s7(x), &keys[7]));
                x = unmix(add_key(inverse_s6(x), &keys[6]));
                x = unmix(add_key(inverse_s5(x), &keys[5]));
                x = unmix(add_key(inverse_s4(x), &keys[4]));
                x = unmix(add_key(inverse_s3(x), &keys[3]));
                x = unmix(add_key(inverse_s2(x), &keys[2]));
                x = unmix(add_key(inverse_s1(x), &keys[1]));
                x = add_key(inverse_s0(x), &keys[0]);
            }
            x
        }

        $(#[$feature])*
        #[inline]
        fn add_key([a, b, c, d]: State, key: &[u32; 4]) -> State {
            [xor(a, splat(key[0])), xor(b, splat(key[1])), xor(c, splat(key[2])), xor(d, splat(key[3]))]
        }

        /// The linear transformation.
        $(#[$feature])*
        #[inline]
        fn mix([a, b, c, d]: State) -> State {
            let a = rotate_left::<13>(a);
            let c = rotate_left::<3>(c);
            let b = rotate_left::<1>(xor(b, xor(a, c)));
            let d = rotate_left::<7>(xor(d, xor(c, shift_left::<3>(a))));
            let a = rotate_left::<5>(xor(a, xor(b, d)));
            let c = rotate_left::<22>(xor(c, xor(d, shift_left::<7>(b))));
            [a, b, c, d]
        }

        /// Inverse of [`mix`].
        $(#[$feature])*
        #[inline]
        fn unmix([a, b, c, d]: State) -> State {
            let c = xor(rotate_left::<10>(c), xor(d, shift_left::<7>(b)));
            let a = xor(rotate_left::<27>(a), xor(b, d));
            let d = xor(rotate_left::<25>(d), xor(c, shift_left::<3>(a)));
            let b = xor(rotate_left::<31>(b), xor(a, c));
            [rotate_left::<19>(a), b, rotate_left::<29>(c), d]
        }
    };
}

pub(super) use rounds;
