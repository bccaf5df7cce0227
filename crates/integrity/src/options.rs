//! Options: how tags and journal of a volume are made, which its superblock does not say, and the keys for it.

use casemate_primitives::secret::SecretVec;
use casemate_providers::{Providers, SecretSource};

use crate::{Error, JournalSeal, Superblock, Tagger};

/// How the tags of a volume are made, which its superblock does not say.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct IntegrityOptions {
    /// The algorithm: `crc32c`, `crc32`, a hash such as `sha256`, or one under a key, `hmac(sha256)` or `hmac-sha256`.
    pub algorithm: String,
    /// The key, for algorithms with one.
    pub key: Option<SecretVec>,
    /// The codes that the journal has: `hmac(sha256)` or `hmac-sha256`.
    pub journal_code: Option<Keyed>,
    /// The cipher of the journal: `ctr-aes` or `cbc-aes`.
    pub journal_cipher: Option<Keyed>,
    /// Whether data are written in bitmap mode: to their places at once, and not through the journal.
    pub bitmap: bool,
    /// Whether to go on where the journal can't be read, and blocks in it may be newer than what is read: to rescue the rest.
    pub goes_without_journal: bool,
}

/// An algorithm under a key.
#[derive(Clone, Debug)]
pub struct Keyed {
    /// The algorithm's name.
    pub algorithm: String,
    /// The key.
    pub key: SecretVec,
}

impl Default for IntegrityOptions {
    /// CRC-32C, as integritysetup takes it.
    fn default() -> IntegrityOptions {
        IntegrityOptions {
            algorithm: "crc32c".to_owned(),
            key: None,
            journal_code: None,
            journal_cipher: None,
            bitmap: false,
            goes_without_journal: false,
        }
    }
}

/// Bytes of a key at most, as integritysetup takes it.
const LONGEST_KEY: usize = 4096;

impl IntegrityOptions {
    /// The length in bytes that tags have where nothing else is said.
    ///
    /// # Errors
    /// `Unsupported` for other algorithms.
    pub fn tag_size(&self, providers: &Providers) -> Result<u16, Error> {
        Tagger::digest_len(&self.algorithm, providers)
    }

    /// These options, with all of a file as the key.
    ///
    /// # Errors
    /// `Io`; `Argument` for a key of more than 4096 bytes.
    pub fn with_key(mut self, source: &SecretSource) -> Result<IntegrityOptions, Error> {
        self.key = Some(read_key(source)?);
        Ok(self)
    }

    pub(crate) fn tagger(&self, superblock: &Superblock, providers: &Providers) -> Result<Tagger, Error> {
        let key = self.key.as_ref().map(SecretVec::expose);
        let tagger = Tagger::new(&self.algorithm, key, superblock, providers)?;
        if self.journal_code.is_none() && self.journal_cipher.is_none() {
            return Ok(tagger);
        }
        let [code, cipher] = [&self.journal_code, &self.journal_cipher]
            .map(|named| named.as_ref().map(|keyed| (&*keyed.algorithm, keyed.key.expose())));
        Ok(tagger.with_journal(JournalSeal::new(code, cipher, superblock, providers)?))
    }
}

/// The key that is all of a file, of tags or of a journal.
///
/// # Errors
/// `Io`; `Argument` for a key of more than 4096 bytes.
pub fn read_key(source: &SecretSource) -> Result<SecretVec, Error> {
    let too_long = || Error::argument(format!("{}: a key has at most {LONGEST_KEY} bytes", source.name()));
    source.read_all(LONGEST_KEY)?.ok_or_else(too_long)
}
