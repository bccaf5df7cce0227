//! Hash algorithms by the names that Linux tools use.

use std::fmt;

use blake2::{Blake2b, Blake2s};
use digest::consts::{U16, U20, U28, U32, U48};
use digest::{Digest, DynDigest};
use zeroize::Zeroize;

use casemate_primitives::sha256::{self, Sha256};
use casemate_primitives::sha512::{self, Sha512};
use casemate_primitives::{Cpu, Messages};

use crate::row::Origin;

/// One hash algorithm with the implementation that runs it.
#[derive(Clone, Copy, Debug)]
pub struct Hash {
    row: &'static Row,
    engine: Engine,
}

/// A hash with a salt before and after each message, made once for many messages.
///
/// The digest of a message is `H(prefix || message || suffix)`.
#[derive(Clone)]
pub struct SaltedHash {
    digest_len: usize,
    suffix: Vec<u8>,
    state: State,
}

/// No algorithm has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownHash(pub String);

#[derive(Clone, Copy, Debug)]
enum Engine {
    Sha256(Sha256),
    Sha512(Sha512),
    Cold,
}

#[derive(Clone)]
enum State {
    Sha256(Sha256, sha256::Midstate),
    Sha512(Sha512, sha512::Midstate),
    Cold(Box<dyn ColdHash>),
}

trait ColdHash: DynDigest + Send + Sync {
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

struct Row {
    /// The name to print, and other names that tools and the kernel have for it.
    names: &'static [&'static str],
    digest_len: usize,
    /// The internal block, to which fs-verity pads its salt.
    block_len: usize,
    new: fn() -> Box<dyn ColdHash>,
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.names[0])
    }
}

fn new<D: Digest + DynDigest + Clone + Send + Sync + 'static>() -> Box<dyn ColdHash> {
    Box::new(D::new())
}

#[rustfmt::skip]
const ROWS: &[Row] = &[
    Row { names: &["sha256"], digest_len: 32, block_len: 64, new: new::<sha2::Sha256> },
    Row { names: &["sha512"], digest_len: 64, block_len: 128, new: new::<sha2::Sha512> },
    Row { names: &["sha1"], digest_len: 20, block_len: 64, new: new::<sha1::Sha1> },
    Row { names: &["sha224"], digest_len: 28, block_len: 64, new: new::<sha2::Sha224> },
    Row { names: &["sha384"], digest_len: 48, block_len: 128, new: new::<sha2::Sha384> },
    Row { names: &["sha3-224"], digest_len: 28, block_len: 144, new: new::<sha3::Sha3_224> },
    Row { names: &["sha3-256"], digest_len: 32, block_len: 136, new: new::<sha3::Sha3_256> },
    Row { names: &["sha3-384"], digest_len: 48, block_len: 104, new: new::<sha3::Sha3_384> },
    Row { names: &["sha3-512"], digest_len: 64, block_len: 72, new: new::<sha3::Sha3_512> },
    Row { names: &["blake2b-160"], digest_len: 20, block_len: 128, new: new::<Blake2b<U20>> },
    Row { names: &["blake2b-256"], digest_len: 32, block_len: 128, new: new::<Blake2b<U32>> },
    Row { names: &["blake2b-384"], digest_len: 48, block_len: 128, new: new::<Blake2b<U48>> },
    Row { names: &["blake2b-512"], digest_len: 64, block_len: 128, new: new::<blake2::Blake2b512> },
    Row { names: &["blake2s-128"], digest_len: 16, block_len: 64, new: new::<Blake2s<U16>> },
    Row { names: &["blake2s-160"], digest_len: 20, block_len: 64, new: new::<Blake2s<U20>> },
    Row { names: &["blake2s-224"], digest_len: 28, block_len: 64, new: new::<Blake2s<U28>> },
    Row { names: &["blake2s-256"], digest_len: 32, block_len: 64, new: new::<blake2::Blake2s256> },
    Row { names: &["ripemd160", "rmd160"], digest_len: 20, block_len: 64, new: new::<ripemd::Ripemd160> },
    Row { names: &["whirlpool", "wp512"], digest_len: 64, block_len: 64, new: new::<whirlpool::Whirlpool> },
    Row { names: &["sm3"], digest_len: 32, block_len: 64, new: new::<sm3::Sm3> },
    Row { names: &["stribog256", "streebog256"], digest_len: 32, block_len: 64, new: new::<streebog::Streebog256> },
    Row { names: &["stribog512", "streebog512"], digest_len: 64, block_len: 64, new: new::<streebog::Streebog512> },
    Row { names: &["md5"], digest_len: 16, block_len: 64, new: new::<md5::Md5> },
];

impl Hash {
    /// The algorithm called `name`, in lower or upper case, run by the best back end for `cpu`.
    ///
    /// # Errors
    /// [`UnknownHash`] if no row has the name; its message lists those that exist.
    pub fn named(name: &str, cpu: Cpu) -> Result<Hash, UnknownHash> {
        let lower = name.to_ascii_lowercase();
        let row = ROWS.iter().find(|row| row.names.contains(&&*lower));
        let row = row.ok_or_else(|| UnknownHash(name.to_owned()))?;
        let engine = match row.names[0] {
            "sha256" => Engine::Sha256(Sha256::new(cpu)),
            "sha512" => Engine::Sha512(Sha512::new(cpu)),
            _ => Engine::Cold,
        };
        Ok(Hash { row, engine })
    }

    /// The names of all algorithms.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ROWS.iter().map(|row| row.names[0])
    }

    /// Prepares `H(prefix || message || suffix)` for many messages.
    pub fn salted(&self, prefix: &[u8], suffix: &[u8]) -> SaltedHash {
        let state = match self.engine {
            Engine::Sha256(hash) => State::Sha256(hash, hash.midstate(prefix)),
            Engine::Sha512(hash) => State::Sha512(hash, hash.midstate(prefix)),
            Engine::Cold => {
                let mut hash = (self.row.new)();
                hash.update(prefix);
                State::Cold(hash)
            }
        };
        SaltedHash { digest_len: self.row.digest_len, suffix: suffix.to_vec(), state }
    }

    /// The digest of one message.
    pub fn digest(&self, message: &[u8]) -> Vec<u8> {
        let mut out = vec![0; self.row.digest_len];
        self.salted(&[], &[]).hash(message, &mut out);
        out
    }

    /// The algorithm's name, such as `sha256`.
    pub fn name(&self) -> &'static str {
        self.row.names[0]
    }

    /// Digest length in bytes.
    pub fn digest_len(&self) -> usize {
        self.row.digest_len
    }

    /// Length in bytes of the blocks that the algorithm works on inside.
    pub fn block_len(&self) -> usize {
        self.row.block_len
    }

    /// Whether our own back ends run the algorithm, or a vetted crate.
    pub fn origin(&self) -> Origin {
        if matches!(self.engine, Engine::Cold) { Origin::Crate } else { Origin::Own }
    }

    /// What runs the algorithm: a back end's name, or `portable` for the vetted crates.
    pub fn driver(&self) -> &'static str {
        match self.engine {
            Engine::Sha256(hash) => hash.name(),
            Engine::Sha512(hash) => hash.name(),
            Engine::Cold => "portable",
        }
    }
}

impl Zeroize for SaltedHash {
    /// Forgets the salt; what is hashed afterwards means nothing. Vetted crates' states are replaced, not wiped.
    fn zeroize(&mut self) {
        self.suffix.zeroize();
        match &mut self.state {
            State::Sha256(_, midstate) => midstate.zeroize(),
            State::Sha512(_, midstate) => midstate.zeroize(),
            State::Cold(hash) => hash.reset(),
        }
    }
}

impl SaltedHash {
    /// Hashes every message; digests go to `out` one after the other.
    ///
    /// # Panics
    /// If `out` is not exactly as long as all digests.
    pub fn hash_many(&self, messages: Messages<'_>, out: &mut [u8]) {
        assert_eq!(out.len(), messages.count() * self.digest_len, "room for {} digests", messages.count());
        match &self.state {
            State::Sha256(hash, prefix) => hash.hash_many(prefix, messages, &self.suffix, out),
            State::Sha512(hash, prefix) => hash.hash_many(prefix, messages, &self.suffix, out),
            State::Cold(prefix) => {
                for (k, out) in out.chunks_exact_mut(self.digest_len).enumerate() {
                    let mut hash = prefix.clone();
                    hash.update(messages.get(k));
                    hash.update(&self.suffix);
                    // OK to ignore: the only error is a wrong length, and chunks_exact_mut made it.
                    let _ = hash.finalize_into_reset(out);
                }
            }
        }
    }

    /// Hashes one message of any length, 0 included.
    ///
    /// # Panics
    /// If `out` is not exactly as long as a digest.
    pub fn hash(&self, message: &[u8], out: &mut [u8]) {
        self.hash_many(Messages::strided(message, message.len(), message.len(), 1), out);
    }

    /// Digest length in bytes.
    pub fn digest_len(&self) -> usize {
        self.digest_len
    }
}

impl fmt::Debug for SaltedHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SaltedHash({} bytes)", self.digest_len)
    }
}

impl fmt::Display for UnknownHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<_> = Hash::names().collect();
        write!(f, "unknown hash algorithm '{}'; known are {}", self.0, known.join(", "))
    }
}

impl std::error::Error for UnknownHash {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_tell_the_truth_about_their_lengths() {
        for row in ROWS {
            let hash = Hash::named(row.names[0], Cpu::portable()).unwrap();
            assert_eq!((row.new)().output_size(), row.digest_len, "{}", row.names[0]);
            assert_eq!(hash.digest(b"").len(), row.digest_len, "{}", row.names[0]);
            for name in row.names {
                assert_eq!(Hash::named(&name.to_uppercase(), Cpu::portable()).unwrap().name(), row.names[0]);
            }
        }
    }

    #[test]
    fn hot_engines_agree_with_the_vetted_crates() {
        let data: Vec<u8> = (0..3 * 512u32).map(|i| (i * 7 + i / 256) as u8).collect();
        for name in ["sha256", "sha512"] {
            let hash = Hash::named(name, Cpu::detect()).unwrap();
            for (prefix, suffix) in [(&b""[..], &b""[..]), (b"salt", b""), (b"", b"pepper")] {
                let mut out = vec![0; 3 * hash.digest_len()];
                hash.salted(prefix, suffix).hash_many(Messages::contiguous(&data, 512), &mut out);
                for (message, out) in data.chunks(512).zip(out.chunks(hash.digest_len())) {
                    let mut cold = (hash.row.new)();
                    [prefix, message, suffix].iter().for_each(|part| cold.update(part));
                    assert_eq!(&*cold.finalize_reset(), out, "{name}");
                }
            }
        }
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = Hash::named("sha257", Cpu::portable()).unwrap_err();
        assert!(error.to_string().contains("'sha257'; known are sha256, sha512, sha1"));
    }
}
