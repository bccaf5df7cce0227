//! Trees over parts of data, on many machines, and the whole tree from them.
//!
//! A part fills whole hash blocks of the lower levels, so they are the same whether the rest is known or not: what a part leaves
//! is a digest for each [`unit`] of its data, a few bytes for a gigabyte. [`join`] makes the levels above of these.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use casemate_blockdev::{BlockDevice, u64_of};

use super::build::Worker;
use super::climber::{Climber, OrderedClimber};
use super::plan::Plan;
use super::{Geometry, Job, Shape, TreeSink, build};
use crate::Error;

/// Bytes of data that a digest of a part stands for at most.
const LARGEST_UNIT: u64 = 64 << 20;

/// Bytes of data that each digest of a part stands for: parts begin at multiples of this, and all but the last one end there.
/// For SHA-256 in blocks of 4096 bytes that is 64 MiB.
pub fn unit(shape: &Shape) -> u64 {
    height_and_unit(shape).1
}

/// Levels that a unit fills whole blocks of, and the bytes of its data.
fn height_and_unit(shape: &Shape) -> (usize, u64) {
    let (mut height, mut unit) = (0, u64_of(shape.data_block_size()));
    // OK to multiply: at most 2^26 times the digests of a block.
    while unit * u64_of(shape.digests_per_block()) <= LARGEST_UNIT {
        unit *= u64_of(shape.digests_per_block());
        height += 1;
    }
    (height, unit)
}

/// Checks that bytes are a part of data: within them, from one unit to another or to the end.
///
/// # Errors
/// `Argument`, with what is wrong.
pub fn check_part(geometry: &Geometry, range: &Range<u64>) -> Result<(), Error> {
    let (unit, size) = (unit(geometry.shape()), geometry.data_size());
    let ends_well = range.end == size || range.end.is_multiple_of(unit);
    let is_there = range.start < range.end || size == 0;
    if range.start.is_multiple_of(unit) && ends_well && is_there && range.end <= size {
        return Ok(());
    }
    Err(Error::argument(format!(
        "bytes {} to {} can't be a part of {size}: parts begin and end at multiples of {unit}, and the last one at the end",
        range.start, range.end
    )))
}

/// Builds the lower levels over a part, of which `data` has the bytes from byte `start` of the whole on. Returns a digest for
/// each unit, side by side; hash blocks go to `sink`, numbered as in the whole tree.
///
/// # Errors
/// `Argument` for bytes that are not a part; those of [`build()`].
///
/// # Panics
/// As [`build()`].
pub fn build_part(
    job: &Job<'_>,
    geometry: &Geometry,
    start: u64,
    data: &dyn BlockDevice,
    sink: &dyn TreeSink,
) -> Result<Vec<u8>, Error> {
    assert_eq!(job.shape, *geometry.shape());
    let end = start.checked_add(data.size()).ok_or_else(|| Error::argument("the part passes 2^64 bytes"))?;
    check_part(geometry, &(start..end))?;
    let (height, unit) = height_and_unit(&job.shape);
    if geometry.data_size() <= unit {
        let built = build(job, geometry, data, sink)?;
        return Ok(if built.data_size == 0 { Vec::new() } else { built.root_hash });
    }
    let part = Geometry::new(job.shape, data.size())?;
    // OK to divide: whole blocks lie before a part.
    let first_leaf = start / u64_of(job.shape.data_block_size());
    let sink = &Shifted { sink, first_leaf, fan_out: u64_of(job.shape.digests_per_block()) };
    let plan = Plan::for_size(&job.shape, data.size(), job.work.pool.threads());
    let climber = Climber::new(job.shape, job.hash, sink, plan.levels).up_to(height);
    let climber = Mutex::new(OrderedClimber::new(climber));
    let new_worker = || Worker::new(job, sink, plan);
    job.work.pool.run(part.data_blocks().div_ceil(plan.leaves), new_worker, |worker, piece| {
        worker.read(&part, piece, data)?;
        worker.climb(piece, false)?;
        climber.lock().unwrap_or_else(PoisonError::into_inner).deliver(piece, worker.digests())
    })?;
    climber.into_inner().unwrap_or_else(PoisonError::into_inner).finish_part()
}

/// Makes the levels above the units of all parts, whose digests are handed over in order; returns the root hash.
///
/// # Errors
/// `Argument` for more or fewer digests than the data have units; what the sink says.
pub fn join(
    job: &Job<'_>,
    geometry: &Geometry,
    digests: &[u8],
    sink: &dyn TreeSink,
) -> Result<Vec<u8>, Error> {
    let (height, unit) = height_and_unit(&job.shape);
    let (len, units) = (job.shape.digest_len(), geometry.data_size().div_ceil(unit));
    if u64_of(digests.len()) != units.saturating_mul(u64_of(len)) {
        let text = format!("{} bytes of digests for {units} units of {unit} bytes", digests.len());
        return Err(Error::argument(text));
    }
    if units <= 1 {
        return Ok(if units == 0 { vec![0; len] } else { digests.to_vec() });
    }
    let mut climber = Climber::new(job.shape, job.hash, sink, height);
    climber.push_all(digests)?;
    let root_hash = climber.finish()?;
    Ok(root_hash.unwrap_or_else(|| vec![0; len]))
}

/// A sink whose blocks are counted from a part's first one on.
struct Shifted<'a> {
    sink: &'a dyn TreeSink,
    /// The number of the part's first block of data.
    first_leaf: u64,
    fan_out: u64,
}

impl TreeSink for Shifted<'_> {
    fn write(&self, level: usize, first: u64, blocks: &[u8]) -> Result<(), Error> {
        let before = (0..=level).fold(self.first_leaf, |count, _| count / self.fan_out);
        self.sink.write(level, before + first, blocks)
    }
}

#[cfg(test)]
mod tests {
    use casemate_blockdev::MemoryDevice;
    use casemate_providers::{Providers, Work};
    use casemate_testkit::Rng;

    use super::*;
    use crate::tree::TreeDevice;

    #[test]
    fn units_are_as_large_as_they_may_be() {
        let packed = |block, len| unit(&Shape::packed(block, len).unwrap());
        assert_eq!(packed(4096, 32), 64 << 20);
        assert_eq!(packed(4096, 64), 16 << 20);
        assert_eq!(packed(1024, 32), 32 << 20);
        assert_eq!(packed(64, 32), 64 << 20);
        assert_eq!(unit(&Shape::power_of_two(524_288, 524_288, 32, true).unwrap()), 524_288);
    }

    #[test]
    fn parts_joined_are_the_whole() {
        let shape = Shape::power_of_two(32_768, 32_768, 32, true).unwrap();
        let unit = unit(&shape);
        assert_eq!(unit, 32 << 20);
        let hash = Providers::default().hash("sha256").unwrap().salted(b"salt", b"");
        let work = Work::default();
        let job = Job { shape, hash: &hash, work: &work };
        for size in [0, 1, 32_768, unit - 1, unit, unit + 1, 3 * unit + 100_000] {
            let mut data = vec![0; size as usize];
            Rng::new(size).fill(&mut data);
            let geometry = Geometry::new(shape, size).unwrap();
            let (whole, parts) = (
                MemoryDevice::new(vec![0; geometry.tree_size() as usize]),
                MemoryDevice::new(vec![0; geometry.tree_size() as usize]),
            );
            let built = build(
                &job,
                &geometry,
                &MemoryDevice::new(data.clone()),
                &TreeDevice::new(&geometry, &whole, 0),
            );
            let mut digests = Vec::new();
            let mut start = 0;
            let sink = TreeDevice::new(&geometry, &parts, 0);
            while start < size {
                let end = size.min(start + unit * (1 + start / unit % 2));
                let part = MemoryDevice::new(data[start as usize..end as usize].to_vec());
                digests.extend(build_part(&job, &geometry, start, &part, &sink).unwrap());
                start = end;
            }
            assert_eq!(join(&job, &geometry, &digests, &sink).unwrap(), built.unwrap().root_hash, "{size}");
            assert!(whole.into_bytes() == parts.into_bytes(), "{size}: the trees differ");
        }
    }

    #[test]
    fn what_is_no_part_is_refused() {
        let shape = Shape::packed(4096, 32).unwrap();
        let geometry = Geometry::new(shape, 200 << 20).unwrap();
        let unit = unit(&shape);
        for (start, end) in [(0, unit), (unit, 200 << 20), (0, 200 << 20)] {
            assert!(check_part(&geometry, &(start..end)).is_ok());
        }
        for (start, end) in [(1, unit), (0, unit - 1), (0, 0), (unit, 256 << 20), (2 * unit, unit)] {
            let error = check_part(&geometry, &(start..end)).unwrap_err();
            assert!(error.to_string().contains("can't be a part of"), "{error}");
        }
    }
}
