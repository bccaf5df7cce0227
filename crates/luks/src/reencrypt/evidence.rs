//! Evidence that a hot zone lies on the device that the work was begun on.
//!
//! Each block of a hot zone is old or new after work was cut off, and what protects the zone tells which.
//! Another device fits neither, and to go on there would destroy what it holds.
//!
//! A power failure tears the writes that are on their way, each in one place. So it leaves at most one block a write that is
//! neither, and all others fit; most torn ones can be told, too. The zone is refused if more blocks than that do not fit, and
//! fewer fit than do not. Blocks of one repeated byte, such as zeros, lie on many devices: that they fit is no evidence. Where a
//! torn block can't be told (blocks of more sectors than mixtures are looked for, wide ciphers), pages of a cache may tear many of
//! them, and the zone is refused only if nothing fits at all.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::luks2::reencrypt::{Reencryption, Resilience};
use casemate_blockdev::{Buffer, u64_of, usize_of};
use casemate_providers::Work;

use super::hot::{Checksums, MIXED, SECTOR, Verdict};
use super::sides::Side;
use super::start::is_wide;
use super::view::CHUNK;
use super::zones::Zones;
use crate::Error;

/// Counts of blocks, or of sectors.
#[derive(Default)]
struct Evidence {
    fits: AtomicU64,
    lost: AtomicU64,
}

impl Evidence {
    fn note(&self, fits: bool, bytes: &[u8]) {
        let is_repeated = bytes.iter().all(|byte| Some(byte) == bytes.first());
        match fits {
            true if is_repeated => {}
            true => _ = self.fits.fetch_add(1, Ordering::Relaxed),
            false => _ = self.lost.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Refuses a zone that is of another device. `torn`: the blocks that a power failure may leave neither old nor new; `is_told`:
    /// whether torn ones are told.
    fn check(self, block: usize, torn: u64, is_told: bool, name: &str) -> Result<(), Error> {
        let (fits, lost) = (self.fits.into_inner(), self.lost.into_inner());
        let most = if is_told { fits } else { 0 };
        if lost <= torn || lost <= most || !is_told && fits > 0 {
            return Ok(());
        }
        let text = format!(
            "{lost} of the blocks of {block} bytes that were being rewritten when the work was cut off are neither as before nor as \
             after, and {fits} are: this is another device than the work was begun on, or one that was changed since, and nothing is \
             written to it; give the right device. What this one holds can be read, or rescued, without going on"
        );
        Err(Error::argument(text).at(name))
    }
}

impl Zones<'_> {
    /// Refuses to go on with a hot zone that is rewritten in place if it is of another device.
    ///
    /// # Errors
    /// `Argument` for another device; `Corrupt` for an area that has no room for the zone; `Io`.
    pub(super) fn refuse_other_device(&self, zone: &Range<u64>, work: &Work<'_>) -> Result<(), Error> {
        let evidence = Evidence::default();
        let len = zone.end - zone.start;
        let backups = &self.course.backups;
        let is_narrow = ![&backups.previous, &backups.last].iter().any(is_wide);
        match &self.course.resilience {
            Resilience::None => Ok(()),
            Resilience::Journal => {
                self.compare_with_journal(zone, &evidence, work)?;
                // What a disk writes as a whole is old or new, whatever the cipher.
                let torn = len.div_ceil(CHUNK).saturating_mul(u64_of(MIXED));
                evidence.check(SECTOR, torn, true, self.name)
            }
            Resilience::Checksum { .. } => {
                let checksums = Checksums::read(&self.course, self.header_device, len, &work.providers)?;
                let block = checksums.block();
                let chunk = CHUNK.max(u64_of(block));
                work.pool.run(len.div_ceil(chunk), Buffer::default, |buf: &mut Buffer, k| {
                    let at = k * chunk;
                    // At most a chunk.
                    buf.resize(usize_of((len - at).min(chunk)));
                    let position = zone.start + at;
                    self.data.read_at(buf, self.course.new_place(position))?;
                    checksums.judge(&self.sides, position, at, buf, |_, verdict, block| {
                        evidence.note(verdict != Verdict::Lost, block);
                        Ok(())
                    })
                })?;
                let is_told = is_narrow && block <= MIXED * SECTOR;
                evidence.check(block, len.div_ceil(chunk), is_told, self.name)
            }
        }
    }

    /// Compares a zone with the journal's copy of it, and with what becomes of that.
    fn compare_with_journal(
        &self,
        zone: &Range<u64>,
        evidence: &Evidence,
        work: &Work<'_>,
    ) -> Result<(), Error> {
        let len = zone.end - zone.start;
        let course: &Reencryption = &self.course;
        work.pool.run(len.div_ceil(CHUNK), Buffer::default, |buf: &mut Buffer, k| {
            let at = k * CHUNK;
            let now = usize_of((len - at).min(CHUNK));
            buf.resize(now);
            self.data.read_at(buf, course.new_place(zone.start + at))?;
            let mut old = vec![0; now];
            self.header_device.read_at(&mut old, course.area.start + at)?;
            let mut new = old.clone();
            self.sides.convert(Side::Old, zone.start + at, &mut new)?;
            let both = old.chunks(SECTOR).zip(new.chunks(SECTOR));
            for (sector, (old, new)) in buf.chunks(SECTOR).zip(both) {
                evidence.note(sector == old || sector == new, sector);
            }
            Ok::<(), Error>(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_refused(fits: u64, lost: u64, torn: u64, is_told: bool) -> bool {
        let evidence = Evidence { fits: AtomicU64::new(fits), lost: AtomicU64::new(lost) };
        evidence.check(4096, torn, is_told, "disk").is_err()
    }

    #[test]
    fn many_blocks_that_do_not_fit_are_another_devices() {
        assert!(is_refused(0, 256, 4, true) && is_refused(100, 156, 4, true));
        assert!(!is_refused(252, 4, 4, true) && !is_refused(156, 100, 4, true));
        // A power failure tears as many.
        assert!(!is_refused(0, 4, 4, true) && is_refused(0, 5, 4, true));
        // Torn blocks that are not told may be many.
        assert!(!is_refused(1, 255, 4, false) && is_refused(0, 255, 4, false));
        let evidence = Evidence::default();
        evidence.note(true, &[0; 512]);
        evidence.note(false, &[0; 512]);
        evidence.note(true, &[0, 1]);
        assert_eq!((evidence.fits.into_inner(), evidence.lost.into_inner()), (1, 1));
    }
}
