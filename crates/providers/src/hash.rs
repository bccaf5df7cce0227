//! Hash algorithms by the names that Linux tools use.

use std::fmt;
use std::sync::Arc;

use blake2::{Blake2b, Blake2s};
use digest::consts::{U16, U20, U28, U32, U48};
use digest::{Digest, DynDigest};
use zeroize::Zeroize;

use casemate_primitives::sha256::{self, Sha256};
use casemate_primitives::sha512::{self, Sha512};
use casemate_primitives::{Cpu, Messages};

use crate::cipher::DriverError;
use crate::guard::HashGuard;
use crate::policy::Policy;
use crate::registry::{ChoiceError, Registry};
use crate::row::{Origin, Row, Spec};

/// One hash algorithm with the implementation that runs it.
#[derive(Clone)]
pub struct Hash {
    algorithm: &'static Algorithm,
    driver: String,
    origin: Origin,
    engine: Engine,
    /// An implementation outside this program, which does the work again and is compared with the CPU's.
    outside: Option<Arc<HashGuard>>,
}

/// A hash with a salt before and after each message, made once for many messages.
///
/// The digest of a message is `H(prefix || message || suffix)`.
#[derive(Clone)]
pub struct SaltedHash {
    digest_len: usize,
    suffix: Vec<u8>,
    state: State,
    /// The prefix is kept for those who can't be given a state.
    outside: Option<(Arc<HashGuard>, Vec<u8>)>,
}

/// What does the work of a hash outside this program.
pub trait HashDriver: Send + Sync {
    /// Writes the digest of one message, which is given in `parts`, one after the other.
    ///
    /// # Errors
    /// Whatever went wrong.
    fn digest(&self, parts: &[&[u8]], out: &mut [u8]) -> Result<(), DriverError>;
}

/// A hash's digest length and what runs it.
#[derive(Clone)]
pub struct HashSpec {
    digest_len: usize,
    make: Make,
}

#[derive(Clone)]
enum Make {
    Own(Engine),
    Outside(Arc<dyn HashDriver>),
}

/// What runs a hash on the CPU.
#[derive(Clone, Copy)]
pub(crate) enum Engine {
    Sha256(Sha256),
    Sha512(Sha512),
    Cold(fn() -> Box<dyn ColdHash>),
}

#[derive(Clone)]
enum State {
    Sha256(Sha256, sha256::Midstate),
    Sha512(Sha512, sha512::Midstate),
    Cold(Box<dyn ColdHash>),
}

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

struct Algorithm {
    /// The name to print, and other names that tools and the kernel have for it.
    names: &'static [&'static str],
    digest_len: usize,
    /// The internal block, to which fs-verity pads its salt.
    block_len: usize,
    new: fn() -> Box<dyn ColdHash>,
}

fn new<D: Digest + DynDigest + Clone + Send + Sync + 'static>() -> Box<dyn ColdHash> {
    Box::new(D::new())
}

#[rustfmt::skip]
const ALGORITHMS: &[Algorithm] = &[
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

impl Hash {
    /// The algorithm called `name`, in lower or upper case, run by what the default policy chooses of what `cpu` has.
    ///
    /// # Errors
    /// As [`Registry::hash`].
    pub fn named(name: &str, cpu: Cpu) -> Result<Hash, ChoiceError> {
        Registry::hashes(cpu).hash(name, &Policy::default())
    }

    /// The names of all algorithms.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ALGORITHMS.iter().map(|algorithm| algorithm.names[0])
    }

    /// The name under which rows have the algorithm that tools or the kernel call `name`.
    pub fn canonical_name(name: &str) -> Option<&'static str> {
        find(name).map(|algorithm| algorithm.names[0])
    }

    /// The digest's length in bytes of the algorithm called `name`.
    ///
    /// # Errors
    /// [`ChoiceError::UnknownHash`].
    pub fn digest_len_of(name: &str) -> Result<usize, ChoiceError> {
        let algorithm = find(name).ok_or_else(|| ChoiceError::UnknownHash(name.to_owned()))?;
        Ok(algorithm.digest_len)
    }

    /// A row as a handle; `own` is the CPU's engine, for rows that are outside.
    pub(crate) fn of_row(
        row: &Row,
        own: impl FnOnce() -> Result<Engine, ChoiceError>,
    ) -> Result<Hash, ChoiceError> {
        let unknown = || ChoiceError::UnknownHash(row.algorithm.clone());
        let algorithm = find(&row.algorithm).ok_or_else(unknown)?;
        let Ok(Spec::Hash(spec)) = &row.spec else { return Err(unknown()) };
        let (engine, outside) = match &spec.make {
            Make::Own(engine) => (*engine, None),
            Make::Outside(driver) => {
                (own()?, Some(Arc::new(HashGuard::new(Arc::clone(driver), row.driver.clone()))))
            }
        };
        Ok(Hash { algorithm, driver: row.driver.clone(), origin: row.origin, engine, outside })
    }

    /// What runs it on the CPU.
    ///
    /// # Errors
    /// The sentence that says that it is run elsewhere.
    pub(crate) fn own_engine(&self) -> Result<Engine, String> {
        match &self.outside {
            None => Ok(self.engine),
            Some(_) => Err(format!("{} does not run on the CPU", self.driver)),
        }
    }

    /// Prepares `H(prefix || message || suffix)` for many messages.
    pub fn salted(&self, prefix: &[u8], suffix: &[u8]) -> SaltedHash {
        let outside = self.outside.as_ref().map(|guard| (Arc::clone(guard), prefix.to_vec()));
        let (digest_len, suffix) = (self.algorithm.digest_len, suffix.to_vec());
        SaltedHash { digest_len, suffix, state: self.engine.state(prefix), outside }
    }

    /// The digest of one message.
    pub fn digest(&self, message: &[u8]) -> Vec<u8> {
        let mut out = vec![0; self.digest_len()];
        self.salted(&[], &[]).hash(message, &mut out);
        out
    }

    /// The algorithm's name, such as `sha256`.
    pub fn name(&self) -> &'static str {
        self.algorithm.names[0]
    }

    /// Digest length in bytes.
    pub fn digest_len(&self) -> usize {
        self.algorithm.digest_len
    }

    /// Length in bytes of the blocks that the algorithm works on inside.
    pub fn block_len(&self) -> usize {
        self.algorithm.block_len
    }

    /// Where the implementation comes from.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The implementation's name.
    pub fn driver(&self) -> &str {
        &self.driver
    }

    /// What went wrong and was mended, if anything: an engine that is no longer asked.
    pub fn trouble(&self) -> Option<&str> {
        self.outside.as_ref()?.trouble()
    }
}

/// The same implementation of the same algorithm.
impl PartialEq for Hash {
    fn eq(&self, other: &Hash) -> bool {
        (self.name(), &self.driver) == (other.name(), &other.driver)
    }
}

impl Eq for Hash {}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hash({} by {})", self.name(), self.driver)
    }
}

impl HashSpec {
    /// A hash that something outside this program makes. What it makes is compared with the CPU's work each time.
    pub fn outside(digest_len: usize, driver: Arc<dyn HashDriver>) -> HashSpec {
        HashSpec { digest_len, make: Make::Outside(driver) }
    }

    /// The vetted crate's.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn cold(algorithm: &str) -> HashSpec {
        let algorithm = find(algorithm).expect("a row's algorithm is in the table");
        HashSpec { digest_len: algorithm.digest_len, make: Make::Own(Engine::Cold(algorithm.new)) }
    }

    /// One of our own.
    pub(crate) fn own(algorithm: &str, engine: Engine) -> HashSpec {
        HashSpec { make: Make::Own(engine), ..HashSpec::cold(algorithm) }
    }

    /// The hash with a salt, if the CPU runs it.
    pub(crate) fn salted(&self, prefix: &[u8], suffix: &[u8]) -> Option<SaltedHash> {
        let Make::Own(engine) = &self.make else { return None };
        let (digest_len, suffix) = (self.digest_len, suffix.to_vec());
        Some(SaltedHash { digest_len, suffix, state: engine.state(prefix), outside: None })
    }

    /// Asks for one digest what is outside.
    pub(crate) fn ask(&self, parts: &[&[u8]], out: &mut [u8]) -> Result<(), DriverError> {
        match &self.make {
            Make::Outside(driver) => driver.digest(parts, out),
            Make::Own(_) => Err(DriverError("it is not outside".to_owned())),
        }
    }

    /// Whether many messages in one request are faster than one by one.
    pub(crate) fn batches(&self) -> bool {
        matches!(self.make, Make::Own(Engine::Sha256(_) | Engine::Sha512(_)))
    }

    /// Digest length in bytes.
    pub fn digest_len(&self) -> usize {
        self.digest_len
    }
}

impl Engine {
    fn state(&self, prefix: &[u8]) -> State {
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

/// Whether there is portable code for the algorithm, under this very name.
pub(crate) fn is_known(algorithm: &str) -> bool {
    Hash::canonical_name(algorithm) == Some(algorithm)
}

fn find(name: &str) -> Option<&'static Algorithm> {
    let known = |algorithm: &&Algorithm| algorithm.names.iter().any(|known| known.eq_ignore_ascii_case(name));
    ALGORITHMS.iter().find(known)
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
        if let Some((_, prefix)) = &mut self.outside {
            prefix.zeroize();
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
        if let Some((guard, prefix)) = &self.outside {
            guard.compare(prefix, messages, &self.suffix, out);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_tell_the_truth_about_their_lengths() {
        for row in ALGORITHMS {
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
                    let mut cold = (hash.algorithm.new)();
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
