//! A hash run by one implementation, and the same with a salt.

use std::fmt;
use std::sync::Arc;

use zeroize::Zeroize;

use casemate_primitives::Messages;

use crate::engine::{ALGORITHMS, Algorithm, Engine, State};
use crate::flags::Origin;
use crate::guard::HashGuard;

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

impl Hash {
    /// The names of all hash algorithms.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ALGORITHMS.iter().map(Algorithm::name)
    }

    /// The name under which rows have the algorithm that tools or the kernel call `name`.
    pub fn canonical_name(name: &str) -> Option<&'static str> {
        Algorithm::named(name).map(Algorithm::name)
    }

    /// A handle on what `engine` runs; `outside` does the work again, and is compared.
    pub(crate) fn new(
        algorithm: &'static Algorithm,
        driver: &str,
        origin: Origin,
        engine: Engine,
        outside: Option<HashGuard>,
    ) -> Hash {
        Hash { algorithm, driver: driver.to_owned(), origin, engine, outside: outside.map(Arc::new) }
    }

    /// Prepares `H(prefix || message || suffix)` for many messages.
    pub fn salted(&self, prefix: &[u8], suffix: &[u8]) -> SaltedHash {
        let outside = self.outside.as_ref().map(|guard| (Arc::clone(guard), prefix.to_vec()));
        SaltedHash { outside, ..SaltedHash::new(&self.engine, self.algorithm.digest_len, prefix, suffix) }
    }

    /// The digest of one message.
    pub fn digest(&self, message: &[u8]) -> Vec<u8> {
        let mut out = vec![0; self.digest_len()];
        self.salted(&[], &[]).hash(message, &mut out);
        out
    }

    /// The algorithm's name, such as `sha256`.
    pub fn name(&self) -> &'static str {
        self.algorithm.name()
    }

    /// Digest length in bytes.
    pub fn digest_len(&self) -> usize {
        self.algorithm.digest_len
    }

    /// Length in bytes of the blocks that the algorithm works on inside.
    pub fn block_len(&self) -> usize {
        self.algorithm.block_len
    }

    /// The origin of the implementation.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The implementation's name.
    pub fn driver(&self) -> &str {
        &self.driver
    }

    /// The fault of the engine, if there was one: it was mended, and the engine is no longer asked.
    pub fn trouble(&self) -> Option<&str> {
        self.outside.as_ref()?.trouble()
    }
}

/// Equality: one implementation of one algorithm.
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

impl Zeroize for SaltedHash {
    /// Forgets the salt; what is hashed afterwards means nothing. Vetted crates' states are replaced, not wiped.
    fn zeroize(&mut self) {
        self.suffix.zeroize();
        self.state.zeroize();
        if let Some((_, prefix)) = &mut self.outside {
            prefix.zeroize();
        }
    }
}

impl SaltedHash {
    /// `H(prefix || message || suffix)` by what runs on the CPU.
    pub(crate) fn new(engine: &Engine, digest_len: usize, prefix: &[u8], suffix: &[u8]) -> SaltedHash {
        SaltedHash { digest_len, suffix: suffix.to_vec(), state: engine.state(prefix), outside: None }
    }

    /// Hashes every message; digests go to `out` one after the other.
    ///
    /// # Panics
    /// If `out` is not exactly as long as all digests.
    pub fn hash_many(&self, messages: Messages<'_>, out: &mut [u8]) {
        assert_eq!(out.len(), messages.count() * self.digest_len, "room for {} digests", messages.count());
        self.state.hash_many(messages, &self.suffix, self.digest_len, out);
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
