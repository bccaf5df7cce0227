//! State of an image at the end of the work.

use casemate_blockdev::journal::RECORD_LEN;
use casemate_blockdev::{BlockDevice, usize_of};
use casemate_primitives::secret::{SecretVec, constant_time_eq};
use casemate_providers::Hash;

use super::job::{Job, digest, tag};
use crate::Error;

/// Bytes of a block.
const BLOCK: u64 = 4096;
/// Blocks whose codes are kept at most.
const MOST_BLOCKS: u64 = 64;
/// Bytes of a code, and of the digest behind the last one.
const CODE: usize = 32;

/// Codes of blocks that are spread over the image, as the work left them. They tell that image from others while its owner has not
/// written to all of the blocks. They are made under the key, so a reader of the journal can't confirm a guess at what a block holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct End(Vec<[u8; CODE]>);

impl End {
    /// The codes of an image that is as the work leaves it.
    pub fn of(job: &Job<'_>, salt: &[u8; 32], image: &dyn BlockDevice) -> Result<End, Error> {
        let mut codes = Vec::new();
        for start in blocks(image.size()) {
            codes.push(code(job, salt, start, read(image, start)?.expose()));
        }
        Ok(End(codes))
    }

    /// Whether an image of this size is the one that the work left: no block is as it was before the work, and one is as the work
    /// left it. Blocks of one byte, as zeros, are like those of other images, so they count only if all are as they were left.
    pub fn fits(&self, job: &Job<'_>, salt: &[u8; 32], image: &dyn BlockDevice) -> Result<bool, Error> {
        let (mut same, mut telling) = (0, 0);
        for (start, expected) in blocks(image.size()).zip(&self.0) {
            let mut block = read(image, start)?;
            if constant_time_eq(&code(job, salt, start, block.expose()), expected) {
                same += 1;
                telling += usize::from(block.expose().windows(2).any(|pair| pair[0] != pair[1]));
                continue;
            }
            job.cipher.run(job.direction, start / 512, block.expose_mut())?;
            if constant_time_eq(&code(job, salt, start, block.expose()), expected) {
                return Ok(false);
            }
        }
        Ok(telling > 0 || same == self.0.len())
    }

    /// Bytes of a record and the codes behind it, which have its place.
    pub fn place_len(image_size: u64) -> usize {
        RECORD_LEN + CODE * blocks(image_size).count() + CODE
    }

    /// The codes behind a record; `None` if there are none, or not all.
    pub fn from_place(sha256: &Hash, place: &[u8]) -> Option<End> {
        let (body, checksum) = place.split_last_chunk::<CODE>()?;
        let codes = body.get(RECORD_LEN..)?.as_chunks::<CODE>().0;
        (digest(sha256, body) == *checksum).then(|| End(codes.to_vec()))
    }

    /// A place's bytes: the record, the codes, and a digest of both.
    pub fn to_place(&self, sha256: &Hash, record: &[u8; RECORD_LEN]) -> Vec<u8> {
        let mut place = [&record[..], self.0.as_flattened()].concat();
        let checksum = digest(sha256, &place);
        place.extend(checksum);
        place
    }
}

/// Where the blocks begin: all of a small image, else as many as are kept, from the first to the last.
fn blocks(size: u64) -> impl Iterator<Item = u64> {
    let all = size.div_ceil(BLOCK);
    let kept = all.min(MOST_BLOCKS);
    // The number of the last block has 52 bits. A step is a block at least.
    (0..kept).map(move |k| if all == kept { k * BLOCK } else { (all - 1) * k / (kept - 1) * BLOCK })
}

fn read(image: &dyn BlockDevice, start: u64) -> Result<SecretVec, Error> {
    let mut block = SecretVec::zeroed(usize_of(BLOCK.min(image.size() - start)));
    image.read_at(block.expose_mut(), start)?;
    Ok(block)
}

/// The code of the block at a byte of the image.
fn code(job: &Job<'_>, salt: &[u8; 32], start: u64, block: &[u8]) -> [u8; CODE] {
    let mut message = SecretVec::zeroed(5 + salt.len() + 8 + block.len());
    let mut rest = message.expose_mut();
    for part in [b"ended", &salt[..], &start.to_le_bytes(), block] {
        let (now, later) = rest.split_at_mut(part.len());
        now.copy_from_slice(part);
        rest = later;
    }
    tag(job, message.expose())
}

#[cfg(test)]
mod tests {
    use casemate_blockdev::journal::RECORD;
    use casemate_blockdev::{MemoryDevice, u64_of};
    use casemate_providers::Direction;
    use casemate_testkit::Rng;

    use super::super::tests::{KEY, cipher, job};
    use super::*;

    const SALT: [u8; 32] = [3; 32];

    #[test]
    fn blocks_are_spread_over_all_of_an_image() {
        for size in [0, 512, 4096, 4097, 64 * 4096, 64 * 4096 + 1, (9 << 20) + 512, 1 << 40, u64::MAX] {
            let all: Vec<_> = blocks(size).collect();
            assert_eq!(u64_of(all.len()), size.div_ceil(BLOCK).min(MOST_BLOCKS), "{size}");
            assert!(all.windows(2).all(|pair| pair[0] < pair[1]), "{size}");
            assert!(all.first().is_none_or(|first| *first == 0), "{size}");
            assert!(all.last().is_none_or(|last| size - last <= BLOCK), "{size}");
            assert!(u64_of(End::place_len(size)) <= RECORD);
        }
    }

    /// Images that the work has left, those that it began with, and others.
    #[test]
    fn only_the_image_that_the_work_left_fits() {
        let cipher = cipher(&KEY);
        for (seed, len) in [512, 4096, 4608, 40 << 12, 1 << 20, (3 << 20) + 512].into_iter().enumerate() {
            let mut rng = Rng::new(seed as u64);
            for plain in [rng.bytes(len), vec![0; len]] {
                let mut encrypted = plain.clone();
                cipher.encrypt(0, &mut encrypted).unwrap();
                for direction in [Direction::Encrypt, Direction::Decrypt] {
                    let job = job(&cipher, direction, &KEY);
                    let (before, after) = match direction {
                        Direction::Encrypt => (&plain, &encrypted),
                        Direction::Decrypt => (&encrypted, &plain),
                    };
                    let end = End::of(&job, &SALT, &MemoryDevice::new(after.clone())).unwrap();
                    let fits =
                        |bytes: &[u8]| end.fits(&job, &SALT, &MemoryDevice::new(bytes.to_vec())).unwrap();
                    let is_told = after.iter().any(|byte| *byte != 0);
                    assert!(fits(after) && !fits(before), "{len} {direction:?}");
                    assert!(!fits(&rng.bytes(len)) && !fits(&vec![0xff; len]), "{len} {direction:?}");
                    assert_eq!(fits(&vec![0; len]), !is_told, "{len} {direction:?}");
                    if len <= 4096 {
                        continue;
                    }
                    // Its owner has written to most of it.
                    let mut written = rng.bytes(len);
                    written[..4096].copy_from_slice(&after[..4096]);
                    assert_eq!(fits(&written), is_told, "{len} {direction:?}");
                    // Half of it was put back, and the other half of another one.
                    let mut half = after.clone();
                    half[len / 4096 * 2048..].copy_from_slice(&before[len / 4096 * 2048..]);
                    assert!(!fits(&half), "{len} {direction:?}");
                    let mut old = rng.bytes(len);
                    let end = old.len() - len % 4096;
                    old[end - 4096..].copy_from_slice(&before[end - 4096..]);
                    assert!(!fits(&old), "{len} {direction:?}");
                }
            }
        }
    }

    #[test]
    fn codes_with_any_damage_are_no_codes() {
        let cipher = cipher(&KEY);
        let job = job(&cipher, Direction::Encrypt, &KEY);
        let end = End::of(&job, &SALT, &MemoryDevice::new(Rng::new(1).bytes(20_480))).unwrap();
        let place = end.to_place(job.sha256, &[7; RECORD_LEN]);
        assert_eq!(place.len(), End::place_len(20_480));
        assert_eq!(End::from_place(job.sha256, &place), Some(end));
        for at in 0..place.len() {
            let mut damaged = place.clone();
            damaged[at] ^= 0x10;
            assert_eq!(End::from_place(job.sha256, &damaged), None, "byte {at}");
        }
    }
}
