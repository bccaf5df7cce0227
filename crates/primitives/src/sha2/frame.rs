//! The frame of both hashes around their back ends: the handle, the midstate, the hasher of a message in
//! pieces.

/// Writes the public types of a hash of the family, and `Backend`, `Functions`, `Layout` and `digest` for its back ends.
///
/// In scope must be: `BLOCK_LEN`, `DIGEST_LEN`, `INITIAL`, the table `BACKENDS`, and `Cpu`,
/// `Messages`, `backend` and `sha2` of this crate.
macro_rules! frame {
    ($Sha:ident, $name:literal, $Word:ty) => {
        type Layout<'a> = sha2::Layout<'a, BLOCK_LEN>;

        #[doc = concat!("A way to compute ", $name, " that this CPU can run.")]
        #[derive(Clone, Copy, Debug)]
        pub struct $Sha(&'static Backend);

        #[doc = concat!("One way to compute ", $name, ".")]
        struct Functions {
            /// Takes whole blocks into a chaining value.
            compress: unsafe fn(&mut [$Word; 8], &[u8]),
            /// Writes the digests of all messages; there is at least one and the output has the right length.
            hash_many: unsafe fn(&[$Word; 8], &Layout<'_>, Messages<'_>, &mut [u8]),
        }

        type Backend = backend::Row<Functions>;

        impl $Sha {
            /// The back end of `cpu` that is fastest for many messages.
            pub fn new(cpu: Cpu) -> $Sha {
                $Sha(backend::best(BACKENDS, cpu))
            }

            /// Every back end that `cpu` can run, fastest first.
            pub fn available(cpu: Cpu) -> impl Iterator<Item = $Sha> {
                backend::available(BACKENDS, cpu).map($Sha)
            }

            /// The back end's name, such as `portable`.
            pub fn name(&self) -> &'static str {
                self.0.name
            }

            /// The state after `prefix`, from which messages go on. The prefix may have any length.
            pub fn midstate(&self, prefix: &[u8]) -> Midstate {
                let mut midstate = Midstate(sha2::Midstate::new(INITIAL));
                self.update(&mut midstate, prefix);
                midstate
            }

            /// Writes `H(prefix || message k || suffix)` to `out[k * DIGEST_LEN..][..DIGEST_LEN]` for every message.
            ///
            /// Any lengths and alignments do. Beginnings that are a multiple of 4096 bytes apart share one set of the
            /// first-level cache; who copies messages anyway gains 10 % from a stride such as 4160 (Zen 5, AVX-512).
            ///
            /// # Panics
            /// If `out` is not exactly `messages.count() * DIGEST_LEN` bytes.
            pub fn hash_many(
                &self,
                prefix: &Midstate,
                messages: Messages<'_>,
                suffix: &[u8],
                out: &mut [u8],
            ) {
                assert!(
                    out.len().is_multiple_of(DIGEST_LEN) && out.len() / DIGEST_LEN == messages.count(),
                    "{} bytes for the digests of {} messages",
                    out.len(),
                    messages.count()
                );
                if messages.count() > 0 {
                    let layout = prefix.0.layout(messages.message_len(), suffix);
                    // SAFETY: a handle exists only for a CPU that has all features that its back end needs.
                    unsafe { (self.0.run.hash_many)(&prefix.0.state, &layout, messages, out) }
                }
            }

            /// The digest of one message.
            pub fn hash(&self, data: &[u8]) -> [u8; DIGEST_LEN] {
                let mut out = [0; DIGEST_LEN];
                self.hash_many(&self.midstate(&[]), Messages::strided(data, data.len(), 0, 1), &[], &mut out);
                out
            }

            /// Begins a message that comes in pieces.
            pub fn hasher(&self) -> Hasher {
                Hasher { sha: *self, midstate: self.midstate(&[]) }
            }

            fn update(&self, midstate: &mut Midstate, data: &[u8]) {
                // SAFETY: a handle exists only for a CPU that has all features that its back end needs.
                midstate.0.update(data, |state, blocks| unsafe { (self.0.run.compress)(state, blocks) });
            }
        }

        /// The state after a prefix: chaining value, the bytes since the last block boundary, and the length so far.
        ///
        /// It belongs to no back end: any handle may go on from it.
        #[derive(Clone)]
        pub struct Midstate(sha2::Midstate<$Word, BLOCK_LEN>);

        impl zeroize::Zeroize for Midstate {
            fn zeroize(&mut self) {
                self.0.zeroize();
            }
        }

        #[doc = concat!("One message that comes in pieces; see [`", stringify!($Sha), "::hasher`].")]
        #[derive(Clone)]
        pub struct Hasher {
            sha: $Sha,
            midstate: Midstate,
        }

        impl Hasher {
            /// Takes in the next piece, of any length.
            pub fn update(&mut self, data: &[u8]) {
                self.sha.update(&mut self.midstate, data);
            }

            /// The digest of all pieces.
            pub fn finalize(self) -> [u8; DIGEST_LEN] {
                let mut out = [0; DIGEST_LEN];
                self.sha.hash_many(&self.midstate, Messages::strided(&[], 0, 0, 1), &[], &mut out);
                out
            }
        }

        /// A chaining value as the digest.
        fn digest(state: &[$Word; 8]) -> [u8; DIGEST_LEN] {
            let mut out = [0; DIGEST_LEN];
            for (bytes, word) in out.chunks_exact_mut(size_of::<$Word>()).zip(state) {
                bytes.copy_from_slice(&word.to_be_bytes());
            }
            out
        }
    };
}

pub(crate) use frame;
