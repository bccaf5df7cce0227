//! Blocks that were being rewritten where they lie when the work was cut off, told apart by their checksums.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::luks2::reencrypt::{Reencryption, Resilience};
use casemate_blockdev::{BlockDevice, u64_of, usize_of};
use casemate_primitives::Messages;
use casemate_providers::{Direction, Hash, Providers};

use super::sides::{Side, Sides};
use crate::Error;

/// The checksums of the old bytes of a hot zone.
pub(super) struct Checksums {
    hash: Hash,
    block: usize,
    stored: Vec<u8>,
    /// How many blocks were neither old nor new nor a mixture.
    lost: AtomicU32,
}

/// State of a block of a hot zone, by its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Old,
    New,
    /// Some sectors are old and some are new. The buffer has the old ones now.
    Torn,
    /// Neither, and no mixture of both.
    Lost,
}

/// Bytes that a disk writes whole or not at all, at least.
pub(super) const SECTOR: usize = 512;

/// A block is told from its mixtures if there are at most so many sectors in it: there are 256 mixtures then.
pub(super) const MIXED: usize = 8;

/// Mixtures are looked for until so many blocks were none: a power failure tears few, and looking takes milliseconds.
const MOST_LOST: u32 = 64;

impl Checksums {
    /// Reads the checksums of `len` bytes of data from the reencryption's area on `device`.
    ///
    /// # Errors
    /// `Corrupt` if the area has no room for so many checksums; `Io`.
    pub fn read(
        course: &Reencryption,
        device: &dyn BlockDevice,
        len: u64,
        providers: &Providers,
    ) -> Result<Checksums, Error> {
        let mut found = Checksums::new(course, providers)?;
        let size = len.div_ceil(u64_of(found.block)).saturating_mul(u64_of(found.hash.digest_len()));
        if size > course.area.end - course.area.start {
            let text = format!("LUKS2 reencryption: checksums of {len} bytes have no room in its area");
            return Err(Error::corrupt(text));
        }
        // Areas have at most 128 MiB.
        found.stored.resize(usize_of(size), 0);
        device.read_at(&mut found.stored, course.area.start)?;
        Ok(found)
    }

    /// None yet.
    pub fn new(course: &Reencryption, providers: &Providers) -> Result<Checksums, Error> {
        let Resilience::Checksum { hash, block } = &course.resilience else {
            return Err(Error::corrupt("LUKS2 reencryption: it has no checksums"));
        };
        Ok(Checksums {
            hash: providers.hash(hash)?,
            block: usize_of(*block),
            stored: Vec::new(),
            lost: AtomicU32::new(0),
        })
    }

    /// Bytes that have one checksum.
    pub fn block(&self) -> usize {
        self.block
    }

    /// Bytes of a checksum.
    pub fn digest_len(&self) -> usize {
        self.hash.digest_len()
    }

    /// The checksums of blocks, of which the last one may be shorter.
    pub fn of(&self, data: &[u8]) -> Vec<u8> {
        let (hash, len) = (self.hash.salted(&[], &[]), self.hash.digest_len());
        let whole = data.len() / self.block;
        let mut out = vec![0; data.len().div_ceil(self.block) * len];
        let (first, rest) = out.split_at_mut(whole * len);
        if whole > 0 {
            hash.hash_many(Messages::strided(data, self.block, self.block, whole), first);
        }
        if !rest.is_empty() {
            hash.hash(&data[whole * self.block..], rest);
        }
        out
    }

    /// Looks at blocks, the first of which begins at `at` within the zone and at `position` of the data.
    pub fn judge(
        &self,
        sides: &Sides,
        position: u64,
        at: u64,
        data: &mut [u8],
        mut tell: impl FnMut(u64, Verdict, &mut [u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let found = self.of(data);
        let len = self.digest_len();
        let first = usize_of(at / u64_of(self.block));
        for (k, block) in data.chunks_mut(self.block).enumerate() {
            let stored = self.stored.get((first + k) * len..(first + k + 1) * len);
            let stored =
                stored.ok_or_else(|| Error::corrupt("LUKS2 reencryption: a block has no checksum"))?;
            let place = position + u64_of(k * self.block);
            let verdict = match found[k * len..(k + 1) * len] == *stored {
                true => Verdict::Old,
                false => self.mixed(sides, place, block, stored)?,
            };
            tell(place, verdict, block)?;
        }
        Ok(())
    }

    /// Looks for a choice of sectors to be taken as new, with which the block is the old one.
    fn mixed(&self, sides: &Sides, position: u64, block: &mut [u8], stored: &[u8]) -> Result<Verdict, Error> {
        let mut back = block.to_vec();
        sides.convert(Side::New, position, &mut back)?;
        if self.hash.digest(&back) == stored {
            return Ok(Verdict::New);
        }
        if block.len() > MIXED * SECTOR || self.lost.load(Ordering::Relaxed) >= MOST_LOST {
            return Ok(Verdict::Lost);
        }
        let mut search = Search { sides, position, block, plain: vec![0; block.len()], found: None };
        let is_it = |old: &[u8]| self.hash.digest(old) == stored;
        search.from(0, &is_it)?;
        let Some(old) = search.found else {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return Ok(Verdict::Lost);
        };
        block.copy_from_slice(&old);
        Ok(Verdict::Torn)
    }
}

/// A walk over all mixtures of old and new sectors, whose plain data come out one sector after the other. It needs a mode
/// in which what follows in a data unit changes nothing before it.
struct Search<'a> {
    sides: &'a Sides,
    position: u64,
    block: &'a [u8],
    plain: Vec<u8>,
    found: Option<Vec<u8>>,
}

impl Search<'_> {
    /// Takes the sectors from one on as either.
    fn from(&mut self, at: usize, is_it: &impl Fn(&[u8]) -> bool) -> Result<(), Error> {
        if at >= self.block.len() {
            let mut old = self.plain.clone();
            self.sides.run(Side::Old, Direction::Encrypt, self.position, &mut old)?;
            self.found = is_it(&old).then_some(old);
            return Ok(());
        }
        let end = (at + SECTOR).min(self.block.len());
        for side in [Side::New, Side::Old] {
            // What this side has before the sector, and there the sector.
            let mut unit = self.plain.clone();
            self.sides.run(side, Direction::Encrypt, self.position, &mut unit)?;
            unit[at..end].copy_from_slice(&self.block[at..end]);
            self.sides.run(side, Direction::Decrypt, self.position, &mut unit)?;
            self.plain[at..end].copy_from_slice(&unit[at..end]);
            self.from(end, is_it)?;
            if self.found.is_some() {
                break;
            }
        }
        Ok(())
    }
}
