//! SHA-2 with one message in each lane of a vector register, for any vector type and word size.
//!
//! SHA-256 and SHA-512 have the same rounds on words of different sizes, and AVX2 and AVX-512 differ in their
//! instructions alone. A back end names its vector type and word arithmetic, and the macros here write
//! the rounds and the walk through the blocks around it. They are macros because a function that uses
//! vector instructions must name them itself; a generic function can't.
//!
//! Every vector instruction has a latency of two or more cycles, so not their number alone decides but the chain
//! from one round to the next. Two things shorten it. The sums are taken in an order in which the value that
//! arrives last is added last; compilers reassociate integer sums, so `pin` holds the order. And two
//! independent sets are interleaved, round by round, so that one fills the gaps of the other.
//!
//! Names that a back end must have in scope:
//!
//! ```text
//! type Vector                                one word of each lane
//! type Word                                  u32 or u64
//! const LANES, BLOCK_LEN, DIGEST_LEN; K
//! splat(Word), add, sub                      wrapping arithmetic on all lanes
//! big_sigma0, big_sigma1, small_sigma0, small_sigma1, choice, majority       FIPS 180-4 section 4.1
//! pin(Vector)                                the same value; the compiler can't see that
//! load(layout, block, messages) -> [Vector; 16]     word i of each lane's block in element i
//! store(state, out)                          the digests of the first lanes, as many as `out` has room for
//! ```

/// Writes `hash_one_set`, digests of up to `LANES` messages; and what `two_sets` needs too.
macro_rules! one_set {
    ($features:literal) => {
        /// Eight words of each lane's chaining value, word by word.
        type State = [Vector; 8];

        /// Digests of up to `LANES` messages; lanes without one repeat the last.
        #[target_feature(enable = $features)]
        fn hash_one_set(midstate: &[Word; 8], layout: &Layout<'_>, messages: Messages<'_>, out: &mut [u8]) {
            let last = messages.count() - 1;
            let lanes: [&[u8]; LANES] = std::array::from_fn(|k| messages.get(k.min(last)));
            let mut state = broadcast(midstate);
            for block in 0..layout.blocks() {
                compress_one(&mut state, load(layout, block, &lanes));
            }
            store(&state, out);
        }

        /// Takes one block of each lane into the chaining values. The schedule stays in registers if there are
        /// enough of them.
        #[target_feature(enable = $features)]
        #[inline]
        fn compress_one(state: &mut State, mut w: [Vector; 16]) {
            let mut s = *state;
            $crate::sha2::sixteen!(I { round_fast(&mut s, I, w[I], splat(K[I])); });
            for k in K[16..].as_chunks::<16>().0 {
                $crate::sha2::sixteen!(I {
                    w[I] = schedule(&w, I);
                    round_fast(&mut s, I, w[I], splat(k[I]));
                });
            }
            for (state, s) in state.iter_mut().zip(s) {
                *state = add(*state, s);
            }
        }

        /// Round `i` of a set on its own: one addition more than needed, but the shortest way from `e` to the
        /// next `e`: 7 cycles on Zen 5, where the order of the standard takes 11.
        ///
        /// Instead of moving the eight words by one place each round, the places move: word a is at `-i`.
        #[target_feature(enable = $features)]
        #[inline]
        fn round_fast(s: &mut State, i: usize, w: Vector, k: Vector) {
            let at = |word: usize| (word + 16 - i) % 8;
            let [a, b, c, d, e, f, g] = [0, 1, 2, 3, 4, 5, 6].map(|word| s[at(word)]);
            let t = pin(add(pin(add(s[at(7)], w)), k));
            let t = pin(add(t, d));
            let t = pin(add(t, choice(e, f, g)));
            let next = pin(add(t, big_sigma1(e)));
            s[at(3)] = next;
            let u = pin(sub(next, d));
            let u = pin(add(u, majority(a, b, c)));
            s[at(7)] = add(u, big_sigma0(a));
        }

        /// The word that takes the place of `w[i]`, sixteen rounds later.
        #[target_feature(enable = $features)]
        #[inline]
        fn schedule(w: &[Vector; 16], i: usize) -> Vector {
            let t = pin(add(w[i], w[(i + 9) % 16]));
            let t = pin(add(t, small_sigma0(w[(i + 1) % 16])));
            add(t, small_sigma1(w[(i + 14) % 16]))
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn broadcast(midstate: &[Word; 8]) -> State {
            let mut state = [splat(0); 8];
            for (state, word) in state.iter_mut().zip(midstate) {
                *state = splat(*word);
            }
            state
        }
    };
}

/// Writes `hash_two_sets`, digests of up to `2 * LANES` messages.
macro_rules! two_sets {
    ($features:literal) => {
        /// Digests of up to `2 * LANES` messages; lanes without one repeat the last. `next` are the messages
        /// after them.
        #[target_feature(enable = $features)]
        fn hash_two_sets(
            midstate: &[Word; 8],
            layout: &Layout<'_>,
            messages: Messages<'_>,
            next: Messages<'_>,
            out: &mut [u8],
        ) {
            let last = messages.count() - 1;
            let low: [&[u8]; LANES] = std::array::from_fn(|k| messages.get(k.min(last)));
            let high: [&[u8]; LANES] = std::array::from_fn(|k| messages.get((LANES + k).min(last)));
            let mut states = [broadcast(midstate); 2];
            let mut w = [[splat(0); 16]; 2];
            for block in 0..layout.blocks() {
                w[0] = load(layout, block, &low);
                w[1] = load(layout, block, &high);
                prefetch(next.data(), block);
                compress_two(&mut states, &mut w);
            }
            let (out_low, out_high) = out.split_at_mut(out.len().min(LANES * DIGEST_LEN));
            store(&states[0], out_low);
            store(&states[1], out_high);
        }

        /// Takes one block of each lane of two sets into their chaining values. The schedules are in memory and
        /// are updated one period ahead, so that the way through memory is off the critical path.
        #[target_feature(enable = $features)]
        #[inline]
        fn compress_two(states: &mut [State; 2], w: &mut [[Vector; 16]; 2]) {
            let [mut low, mut high] = *states;
            for k in K[..K.len() - 16].as_chunks::<16>().0 {
                $crate::sha2::sixteen!(I {
                    let k = splat(k[I]);
                    round_short(&mut low, I, w[0][I], k);
                    round_short(&mut high, I, w[1][I], k);
                    w[0][I] = schedule(&w[0], I);
                    w[1][I] = schedule(&w[1], I);
                });
            }
            let k = &K[K.len() - 16..];
            $crate::sha2::sixteen!(I {
                let k = splat(k[I]);
                round_short(&mut low, I, w[0][I], k);
                round_short(&mut high, I, w[1][I], k);
            });
            for i in 0..8 {
                states[0][i] = add(states[0][i], low[i]);
                states[1][i] = add(states[1][i], high[i]);
            }
        }

        /// Round `i` of a set that has a companion: the fewest instructions, 9 cycles from `e` to the next `e`
        /// on Zen 5. The places of the words are those of `round_fast`.
        #[target_feature(enable = $features)]
        #[inline]
        fn round_short(s: &mut State, i: usize, w: Vector, k: Vector) {
            let at = |word: usize| (word + 16 - i) % 8;
            let [a, b, c, e, f, g] = [0, 1, 2, 4, 5, 6].map(|word| s[at(word)]);
            let t = pin(add(pin(add(s[at(7)], w)), k));
            let t = pin(add(t, choice(e, f, g)));
            let t = pin(add(t, big_sigma1(e)));
            s[at(3)] = add(s[at(3)], t);
            s[at(7)] = add(t, pin(add(big_sigma0(a), majority(a, b, c))));
        }

        /// Brings as many bytes of the next messages near as one block of all lanes has.
        ///
        /// Messages a page apart defeat the prefetcher of the hardware, so these lines are asked for in the
        /// order of their addresses. From memory, this takes SHA-256 of 4096-byte messages from 5.6 to 6.5 GB/s
        /// on Zen 5; when they are in the L2 cache already it costs nothing that can be measured.
        #[target_feature(enable = $features)]
        #[inline]
        fn prefetch(next: &[u8], block: usize) {
            const STEP: usize = 2 * LANES * BLOCK_LEN;
            let lines = next.get(block * STEP..).unwrap_or_default();
            for line in lines[..lines.len().min(STEP)].as_chunks::<64>().0 {
                _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast());
            }
        }

        /// Digests of as many messages as there are while at least `one_set_from` are left. Returns the others.
        #[target_feature(enable = $features)]
        #[inline]
        fn hash_sets<'a>(
            midstate: &[Word; 8],
            layout: &Layout<'_>,
            mut messages: Messages<'a>,
            mut out: &mut [u8],
            two_sets_from: usize,
            one_set_from: usize,
        ) -> Messages<'a> {
            while messages.count() >= one_set_from {
                let two = messages.count() >= two_sets_from;
                let (group, rest) =
                    messages.split_at(messages.count().min(if two { 2 * LANES } else { LANES }));
                let (group_out, rest_out) = out.split_at_mut(group.count() * DIGEST_LEN);
                if two {
                    hash_two_sets(midstate, layout, group, rest, group_out);
                } else {
                    hash_one_set(midstate, layout, group, group_out);
                }
                (messages, out) = (rest, rest_out);
            }
            messages
        }
    };
}

pub(crate) use {one_set, two_sets};
