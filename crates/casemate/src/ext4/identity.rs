//! UUID and hash seed of new file systems: random, of a text, or of what is in them.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use casemate_blockdev::Uuid;
use casemate_ext4::{Identify, NewUuid, Tree};
use casemate_primitives::Cpu;
use casemate_primitives::sha256::Sha256;
use casemate_providers::Work;

use crate::Error;

/// UUID and hash seed of a new file system.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    /// The UUID.
    pub uuid: NewUuid,
    /// The seed of the hash of names.
    pub hash_seed: [u8; 16],
}

impl Identity {
    /// Random numbers.
    ///
    /// # Errors
    /// `Io`.
    pub fn random() -> Result<Identity, Error> {
        Ok(Identity { uuid: random_uuid()?.into(), hash_seed: random_uuid()? })
    }

    /// Identity that follows from a text alone.
    pub fn of_text(text: &str, work: &Work<'_>) -> Identity {
        let mut hash = Sha256::new(work.providers.cpu()).hasher();
        hash.update(b"casemate ext4 build\0");
        hash.update(text.as_bytes());
        let [uuid, hash_seed] = halves(&hash.finalize());
        Identity { uuid: marked(uuid).into(), hash_seed }
    }

    /// Identity that follows from a tree: the hash seed from names, attributes, sizes and times, since directories are arranged
    /// before any contents are read; the UUID from contents, too.
    pub fn of_tree(tree: &Tree, work: &Work<'_>) -> Identity {
        let cpu = work.providers.cpu();
        let mut hash = Sha256::new(cpu).hasher();
        hash.update(b"casemate ext4 build\0");
        tree.describe(&mut |bytes| hash.update(bytes));
        let description = hash.finalize();
        let [_, hash_seed] = halves(&description);
        Identity { uuid: NewUuid::OfContents(Arc::new(OfContents { description, cpu })), hash_seed }
    }
}

/// Function from contents to a UUID, for a tree with this description.
#[derive(Debug)]
struct OfContents {
    description: [u8; 32],
    cpu: Cpu,
}

impl Identify for OfContents {
    fn uuid(&self, sums: &[u32]) -> [u8; 16] {
        let mut hash = Sha256::new(self.cpu).hasher();
        hash.update(b"casemate ext4 build contents\0");
        hash.update(&self.description);
        sums.iter().for_each(|sum| hash.update(&sum.to_le_bytes()));
        marked(halves(&hash.finalize())[0])
    }
}

/// A random UUID.
///
/// # Errors
/// `Io`.
pub fn random_uuid() -> Result<[u8; 16], Error> {
    Ok(Uuid::random()?.bytes())
}

/// The UUID that a word stands for, as tune2fs has them: `random`, `clear` for zeros, `time` for one of the time and a random
/// node, or a UUID as it is written.
///
/// # Errors
/// `Argument` for other words; `Io`.
pub fn new_uuid(word: &str) -> Result<[u8; 16], Error> {
    match word {
        "random" => random_uuid(),
        "clear" => Ok([0; 16]),
        "time" => Ok(timed(random_uuid()?)),
        _ => casemate_ext4::uuid(word).ok_or_else(|| {
            Error::argument(format!("'{word}' is not a UUID, nor one of random, clear and time"))
        }),
    }
}

/// A UUID of version 1 (RFC 9562) of the time that it is now, whose node is random.
fn timed(random: [u8; 16]) -> [u8; 16] {
    /// Units of 100 nanoseconds from 1582, when the calendar began, to 1970.
    const BEFORE_1970: u128 = 0x01b2_1dd2_1381_4000;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let ticks = now.as_nanos() / 100 + BEFORE_1970;
    // The field has 60 bits.
    let [.., a, b, c, d, e, f, g, h] = ticks.to_be_bytes();
    let mut uuid = random;
    uuid[..8].copy_from_slice(&[e, f, g, h, c, d, a & 0x0f | 0x10, b]);
    uuid[8] = uuid[8] & 0x3f | 0x80;
    // No network card has such an address.
    uuid[10] |= 1;
    uuid
}

pub(super) fn halves(digest: &[u8; 32]) -> [[u8; 16]; 2] {
    let (mut first, mut last) = ([0; 16], [0; 16]);
    first.copy_from_slice(&digest[..16]);
    last.copy_from_slice(&digest[16..]);
    [first, last]
}

/// A UUID of version 8 (RFC 9562), for values of one's own.
pub(super) fn marked(mut uuid: [u8; 16]) -> [u8; 16] {
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}
