//! The hash algorithms by name, and what runs them on the CPU.

use blake2::{Blake2b, Blake2s};
use digest::consts::{U16, U20, U28, U32, U48};
use digest::{Digest, DynDigest};
use zeroize::Zeroize;

use casemate_primitives::sha256::{self, Sha256};
use casemate_primitives::sha512::{self, Sha512};
use casemate_primitives::{Cpu, Messages};

/// An implementation of a hash on the CPU.
#[derive(Clone, Copy)]
pub(crate) enum Engine {
    Sha256(Sha256),
    Sha512(Sha512),
    Cold(fn() -> Box<dyn ColdHash>),
}

/// A hash that has seen a prefix.
#[derive(Clone)]
pub(crate) enum State {
    Sha256(Sha256, sha256::Midstate),
    Sha512(Sha512, sha512::Midstate),
    Cold(Box<dyn ColdHash>),
}

/// A hash of the vetted crates.
pub(crate) trait ColdHash: DynDigest + Send + Sync {
    fn clone_cold(&self) -> Box<dyn ColdHash>;
}

impl<D: DynDigest + Clone + Send + Sync + 'static> ColdHash for D {
    fn clone_cold(&self) -> Box<dyn ColdHash> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn ColdHash> {
    fn clone(&self) -> Box<dyn ColdHash> {
        (**self).clone_cold()
    }
}

/// A hash algorithm, in any engine.
pub(crate) struct Algorithm {
    /// The algorithm's names: the one to print, then others that tools and the kernel have.
    pub names: &'static [&'static str],
    /// Bytes of a digest.
    pub digest_len: usize,
    /// Bytes of the internal block, to which fs-verity pads its salt.
    pub block_len: usize,
    new: fn() -> Box<dyn ColdHash>,
}

fn new<D: Digest + DynDigest + Clone + Send + Sync + 'static>() -> Box<dyn ColdHash> {
    Box::new(D::new())
}

#[rustfmt::skip]
pub(crate) const ALGORITHMS: &[Algorithm] = &[
    Algorithm { names: &["sha256"], digest_len: 32, block_len: 64, new: new::<sha2::Sha256> },
    Algorithm { names: &["sha512"], digest_len: 64, block_len: 128, new: new::<sha2::Sha512> },
    Algorithm { names: &["sha1"], digest_len: 20, block_len: 64, new: new::<sha1::Sha1> },
    Algorithm { names: &["sha224"], digest_len: 28, block_len: 64, new: new::<sha2::Sha224> },
    Algorithm { names: &["sha384"], digest_len: 48, block_len: 128, new: new::<sha2::Sha384> },
    Algorithm { names: &["sha3-224"], digest_len: 28, block_len: 144, new: new::<sha3::Sha3_224> },
    Algorithm { names: &["sha3-256"], digest_len: 32, block_len: 136, new: new::<sha3::Sha3_256> },
    Algorithm { names: &["sha3-384"], digest_len: 48, block_len: 104, new: new::<sha3::Sha3_384> },
    Algorithm { names: &["sha3-512"], digest_len: 64, block_len: 72, new: new::<sha3::Sha3_512> },
    Algorithm { names: &["blake2b-160"], digest_len: 20, block_len: 128, new: new::<Blake2b<U20>> },
    Algorithm { names: &["blake2b-256"], digest_len: 32, block_len: 128, new: new::<Blake2b<U32>> },
    Algorithm { names: &["blake2b-384"], digest_len: 48, block_len: 128, new: new::<Blake2b<U48>> },
    Algorithm { names: &["blake2b-512"], digest_len: 64, block_len: 128, new: new::<blake2::Blake2b512> },
    Algorithm { names: &["blake2s-128"], digest_len: 16, block_len: 64, new: new::<Blake2s<U16>> },
    Algorithm { names: &["blake2s-160"], digest_len: 20, block_len: 64, new: new::<Blake2s<U20>> },
    Algorithm { names: &["blake2s-224"], digest_len: 28, block_len: 64, new: new::<Blake2s<U28>> },
    Algorithm { names: &["blake2s-256"], digest_len: 32, block_len: 64, new: new::<blake2::Blake2s256> },
    Algorithm { names: &["ripemd160", "rmd160"], digest_len: 20, block_len: 64, new: new::<ripemd::Ripemd160> },
    Algorithm { names: &["whirlpool", "wp512"], digest_len: 64, block_len: 64, new: new::<whirlpool::Whirlpool> },
    Algorithm { names: &["sm3"], digest_len: 32, block_len: 64, new: new::<sm3::Sm3> },
    Algorithm { names: &["stribog256", "streebog256"], digest_len: 32, block_len: 64, new: new::<streebog::Streebog256> },
    Algorithm { names: &["stribog512", "streebog512"], digest_len: 64, block_len: 64, new: new::<streebog::Streebog512> },
    Algorithm { names: &["md5"], digest_len: 16, block_len: 64, new: new::<md5::Md5> },
];

impl Engine {
    /// The state after `prefix`.
    pub fn state(&self, prefix: &[u8]) -> State {
        match *self {
            Engine::Sha256(hash) => State::Sha256(hash, hash.midstate(prefix)),
            Engine::Sha512(hash) => State::Sha512(hash, hash.midstate(prefix)),
            Engine::Cold(new) => {
                let mut hash = new();
                hash.update(prefix);
                State::Cold(hash)
            }
        }
    }
}

impl Algorithm {
    /// The algorithm that tools or the kernel call `name`, in lower or upper case.
    pub fn named(name: &str) -> Option<&'static Algorithm> {
        let known =
            |algorithm: &&Algorithm| algorithm.names.iter().any(|known| known.eq_ignore_ascii_case(name));
        ALGORITHMS.iter().find(known)
    }

    /// All algorithms.
    pub fn all() -> &'static [Algorithm] {
        ALGORITHMS
    }

    /// The algorithm's name to print, under which rows have it.
    pub fn name(&self) -> &'static str {
        self.names[0]
    }

    /// The implementation of the vetted crate.
    pub fn cold(&self) -> Engine {
        Engine::Cold(self.new)
    }

    /// The implementation that the primitives choose on `cpu`, and the vetted crate's where they have nothing.
    pub fn best(&self, cpu: Cpu) -> Engine {
        match self.name() {
            "sha256" => Engine::Sha256(Sha256::new(cpu)),
            "sha512" => Engine::Sha512(Sha512::new(cpu)),
            _ => self.cold(),
        }
    }
}

impl State {
    /// Hashes every message between the prefix and `suffix`; `out` has room for exactly all digests.
    pub fn hash_many(&self, messages: Messages<'_>, suffix: &[u8], digest_len: usize, out: &mut [u8]) {
        match self {
            State::Sha256(hash, prefix) => hash.hash_many(prefix, messages, suffix, out),
            State::Sha512(hash, prefix) => hash.hash_many(prefix, messages, suffix, out),
            State::Cold(prefix) => {
                for (k, out) in out.chunks_exact_mut(digest_len).enumerate() {
                    let mut hash = prefix.clone();
                    hash.update(messages.get(k));
                    hash.update(suffix);
                    // OK to ignore: the only error is a wrong length, and chunks_exact_mut made it.
                    let _ = hash.finalize_into_reset(out);
                }
            }
        }
    }
}

impl Zeroize for State {
    /// Forgets the prefix. Vetted crates' states are replaced, not wiped.
    fn zeroize(&mut self) {
        match self {
            State::Sha256(_, midstate) => midstate.zeroize(),
            State::Sha512(_, midstate) => midstate.zeroize(),
            State::Cold(hash) => hash.reset(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_tells_the_truth_about_lengths() {
        for algorithm in ALGORITHMS {
            assert_eq!((algorithm.new)().output_size(), algorithm.digest_len, "{}", algorithm.name());
            for name in algorithm.names {
                assert_eq!(
                    Algorithm::named(&name.to_uppercase()).map(Algorithm::name),
                    Some(algorithm.name())
                );
            }
        }
    }

    #[test]
    fn hot_engines_agree_with_the_vetted_crates() {
        let data: Vec<u8> = (0..3 * 512u32).map(|i| (i * 7 + i / 256) as u8).collect();
        for name in ["sha256", "sha512"] {
            let algorithm = Algorithm::named(name).unwrap();
            let len = algorithm.digest_len;
            for (prefix, suffix) in [(&b""[..], &b""[..]), (b"salt", b""), (b"", b"pepper")] {
                let [mut hot, mut cold] = [vec![0; 3 * len], vec![0; 3 * len]];
                for (engine, out) in
                    [(algorithm.best(Cpu::detect()), &mut hot), (algorithm.cold(), &mut cold)]
                {
                    engine.state(prefix).hash_many(Messages::contiguous(&data, 512), suffix, len, out);
                }
                assert_eq!(hot, cold, "{name}");
            }
        }
    }
}
