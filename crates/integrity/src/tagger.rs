//! How the tag of a block is made: a checksum, a hash, or a hash under a key, of its sector's number and its bytes.

use std::fmt;

use crc::{Algorithm, Crc, Table};

use casemate_blockdev::usize_of;
use casemate_primitives::Messages;
use casemate_primitives::crc32c::Crc32c;
use casemate_providers::{Hmac, Providers, SaltedHash};

use crate::{Error, Flags, JournalSeal, Result, Superblock};

/// CRC-32 as the kernel's crypto API computes it: from 0 on, and nothing is inverted.
const CRC32: Algorithm<u32> = Algorithm {
    width: 32,
    poly: 0x04c1_1db7,
    init: 0,
    refin: true,
    refout: true,
    xorout: 0,
    check: 0x2dfd_2d88,
    residue: 0,
};

/// The fewest bytes of a tag under a key. The superblock says how long tags are, and anybody may have written it.
const SHORTEST_CODE: u16 = 8;

/// Bytes of messages that are hashed at once.
const AT_ONCE: usize = 128 << 10;

/// Makes the tags of a volume.
pub struct Tagger {
    recipe: Recipe,
    salt: Vec<u8>,
    sectors_per_block: u64,
    block_size: usize,
    tag_size: usize,
    journal: Option<JournalSeal>,
    has_fixed_hmac: bool,
}

enum Recipe {
    Crc32(Box<Crc<u32, Table<16>>>),
    Crc32c(Crc32c),
    Hash(Box<SaltedHash>, usize),
    Hmac(Box<Hmac>),
}

impl Tagger {
    /// The length of a tag in bytes.
    pub(crate) fn tag_size(&self) -> usize {
        self.tag_size
    }

    /// The protection of the volume's journal.
    pub(crate) fn journal(&self) -> Option<&JournalSeal> {
        self.journal.as_ref()
    }

    /// Whether tags are made with a key.
    pub(crate) fn is_keyed(&self) -> bool {
        matches!(self.recipe, Recipe::Hmac(_))
    }

    /// Whether tags may be made of data that have none: not where their key is to keep strangers out, who could ask for it in
    /// a superblock that nothing protects.
    pub(crate) fn may_recalculate(&self) -> bool {
        let has_journal_code = self.journal.as_ref().is_some_and(JournalSeal::has_code);
        match (&self.recipe, self.has_fixed_hmac) {
            (Recipe::Hmac(_), true) => has_journal_code,
            (Recipe::Hmac(_), false) => false,
            (_, true) => true,
            (_, false) => !has_journal_code,
        }
    }

    /// This maker of tags, for a volume whose journal is sealed.
    pub fn with_journal(mut self, journal: JournalSeal) -> Tagger {
        self.journal = Some(journal);
        self
    }

    /// The maker of a volume's tags by an algorithm, which the superblock does not name: `crc32c`, which integritysetup
    /// takes where nothing is said, `crc32`, a hash such as `sha256`, or one under a key, `hmac(sha256)` or `hmac-sha256`.
    ///
    /// # Errors
    /// `Unsupported` for other names, and for tags under a key that are so short that they can be guessed; `Locked` if a key
    /// is needed, `Argument` if one is not.
    pub fn new(
        name: &str,
        key: Option<&[u8]>,
        superblock: &Superblock,
        providers: &Providers,
    ) -> Result<Tagger> {
        let hmac = name.strip_prefix("hmac(").and_then(|name| name.strip_suffix(')'));
        let recipe = match (name, hmac.or(name.strip_prefix("hmac-")), key) {
            (_, Some(_), None) => {
                return Err(Error::locked(format!("{name}: the key of the tags was not given")));
            }
            (_, None, Some(_)) => return Err(Error::argument(format!("{name} takes no key"))),
            (_, Some(hash), Some(key)) => Recipe::Hmac(Box::new(Hmac::new(providers.hash(hash)?, key))),
            ("crc32", ..) => Recipe::Crc32(Box::new(Crc::<u32, Table<16>>::new(&CRC32))),
            ("crc32c", ..) => Recipe::Crc32c(Crc32c::new(providers.cpu())),
            (hash, ..) => {
                let hash = providers.hash(hash)?;
                let salt =
                    if superblock.flags.contains(Flags::FIX_HMAC) { &superblock.salt[..] } else { &[] };
                Recipe::Hash(Box::new(hash.salted(salt, &[])), hash.digest_len())
            }
        };
        if matches!(recipe, Recipe::Hmac(_)) && superblock.tag_size < SHORTEST_CODE {
            return Err(Error::unsupported(format!(
                "dm-integrity superblock: tags of {} bytes under a key, which can be guessed; {SHORTEST_CODE} are the fewest",
                superblock.tag_size
            )));
        }
        let salted = superblock.flags.contains(Flags::FIX_HMAC) && !matches!(recipe, Recipe::Hash(..));
        Ok(Tagger {
            recipe,
            salt: if salted { superblock.salt.to_vec() } else { Vec::new() },
            sectors_per_block: 1 << superblock.log2_sectors_per_block,
            block_size: usize_of(superblock.block_size()),
            tag_size: superblock.tag_size.into(),
            journal: None,
            has_fixed_hmac: superblock.flags.contains(Flags::FIX_HMAC),
        })
    }

    /// The length in bytes of what an algorithm makes of a block, which tags have where nothing else is said.
    ///
    /// # Errors
    /// As [`Tagger::new`].
    pub fn digest_len(name: &str, providers: &Providers) -> Result<u16> {
        let hmac = name.strip_prefix("hmac(").and_then(|name| name.strip_suffix(')'));
        match hmac.or(name.strip_prefix("hmac-")).unwrap_or(name) {
            "crc32" | "crc32c" => Ok(4),
            hash => Ok(u16::try_from(providers.hash(hash)?.digest_len()).unwrap_or(u16::MAX)),
        }
    }

    /// Makes the tags of whole blocks, of which the first has the number `block`, one after the other in `tags`. Digests
    /// that are longer than a tag are cut, shorter ones filled with zeros.
    ///
    /// # Panics
    /// If `data` is not whole blocks, or `tags` not as long as their tags.
    pub fn make(&self, block: u64, data: &[u8], tags: &mut [u8]) {
        let count = data.len() / self.block_size;
        assert!(count * self.block_size == data.len() && count * self.tag_size == tags.len(), "whole blocks");
        tags.fill(0);
        let blocks = (block..).map(|block| (block * self.sectors_per_block).to_le_bytes());
        let many = blocks.zip(data.chunks_exact(self.block_size)).zip(tags.chunks_exact_mut(self.tag_size));
        match &self.recipe {
            Recipe::Crc32(crc) => many.for_each(|((sector, data), tag)| {
                let mut digest = crc.digest();
                [&self.salt[..], &sector, data].iter().for_each(|part| digest.update(part));
                cut(&digest.finalize().to_le_bytes(), tag);
            }),
            Recipe::Crc32c(crc) => many.for_each(|((sector, data), tag)| {
                let sum = [&self.salt[..], &sector, data].iter().fold(!0, |sum, part| crc.update(sum, part));
                cut(&(!sum).to_le_bytes(), tag);
            }),
            Recipe::Hmac(hmac) => {
                let mut message = Vec::with_capacity(self.salt.len() + 8 + self.block_size);
                many.for_each(|((sector, data), tag)| {
                    message.clear();
                    [&self.salt[..], &sector, data].iter().for_each(|part| message.extend_from_slice(part));
                    cut(hmac.tag(&message).expose(), tag);
                });
            }
            // Several at once, for hashes with lanes.
            Recipe::Hash(hash, digest_len) => {
                let (mut messages, mut tags) =
                    (Vec::with_capacity(AT_ONCE + 8 + self.block_size), Vec::new());
                let flush = |messages: &mut Vec<u8>, tags: &mut Vec<&mut [u8]>| {
                    let mut digests = vec![0; tags.len() * digest_len];
                    hash.hash_many(Messages::contiguous(messages, 8 + self.block_size), &mut digests);
                    let pairs = tags.drain(..).zip(digests.chunks_exact(*digest_len));
                    pairs.for_each(|(tag, digest)| cut(digest, tag));
                    messages.clear();
                };
                for ((sector, data), tag) in many {
                    messages.extend_from_slice(&sector);
                    messages.extend_from_slice(data);
                    tags.push(tag);
                    if messages.len() >= AT_ONCE {
                        flush(&mut messages, &mut tags);
                    }
                }
                flush(&mut messages, &mut tags);
            }
        }
    }
}

impl fmt::Debug for Tagger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tagger").field("tag_size", &self.tag_size).finish_non_exhaustive()
    }
}

fn cut(digest: &[u8], tag: &mut [u8]) {
    let len = digest.len().min(tag.len());
    tag[..len].copy_from_slice(&digest[..len]);
}
