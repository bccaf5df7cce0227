//! Encrypting or decrypting an image where it lies, so that being killed at any moment loses nothing.
//!
//! The image is worked through in hot zones. For each one, in this order:
//!
//! 1. the transformed bytes are written to one of two slots of a journal file, and flushed;
//! 2. a record that says which zone this is, with the bytes' SHA-256, is written to the journal, and flushed;
//! 3. the bytes are written to their place in the image, and flushed.
//!
//! Before 2 is on stable storage the zone in the image is untouched, so it can be read again. After 2 the journal has
//! what belongs there, and writing it once more does no harm. Records and slots take turns, so a record that is torn
//! while it is written leaves the one before it, whose slot nobody has touched. [`resume`] goes on from the newer of the
//! records that are whole.
//!
//! A record is bound to the image by what it held at the beginning ([`samples`] of it): [`resume`] transforms back what
//! is done so far and compares. So work goes on when image and journal were copied elsewhere, and is refused when
//! somebody has put the image back as it was.
//!
//! After the last zone both records say that the work is finished, and how the image is then (`End`). From then on the image may be
//! written to, and nothing of the journal is written to it any more. [`resume`] says of an image only that it is done if it is still
//! known by that.
//!
//! The journal file, byte by byte: docs/formats/in-place.md.

use std::sync::Mutex;

use casemate_blockdev::journal::RECORD;
use casemate_blockdev::{BlockDevice, MARK_NAME, samples, u64_of, usize_of};
use casemate_primitives::secret::{SecretVec, constant_time_eq};
use casemate_providers::Direction;

use crate::Error;
use crate::image::check_size;

use end::End;
pub use job::Job;
use job::{digest, tag};
pub use marks::{Marks, Unmarked};
use record::Record;
pub use record::{MAX_HOT_ZONE, RECORDS};

mod end;
mod job;
mod marks;
mod record;
#[cfg(test)]
mod tests;

/// One piece of a hot zone, the work of one cipher call.
const PIECE: usize = 256 * 1024;

/// Bytes that a disk writes whole or not at all.
const SECTOR: usize = 512;

/// Bytes of a hot zone where none is given: with so many, flushing three times for each zone costs little.
pub const DEFAULT_HOT_ZONE: u64 = 32 << 20;

/// Begins an image's transformation: writes the first record to an empty `journal`. The image is not touched;
/// [`resume`] does that.
///
/// # Errors
/// `Argument` for a hot zone that is not whole sectors or too large, or an image that is not whole sectors or whose IVs
/// pass 2^64; `Io`. After any error nothing is begun, and the journal is worth nothing.
pub fn begin(
    job: &Job<'_>,
    image: &dyn BlockDevice,
    journal: &dyn BlockDevice,
    hot_zone: u64,
    salt: [u8; 32],
) -> Result<(), Error> {
    check_size(job.cipher, image.size())?;
    if hot_zone == 0 || hot_zone > MAX_HOT_ZONE || !hot_zone.is_multiple_of(u64_of(job.cipher.sector_size()))
    {
        return Err(Error::argument(format!(
            "a hot zone of {hot_zone} bytes: it must be whole sectors of {}, at most {MAX_HOT_ZONE}",
            job.cipher.sector_size()
        )));
    }
    let image_tag = image_tag(job, &salt, image.size(), |buf, offset| image.read_at(buf, offset))?;
    let record = Record {
        decrypt: job.direction == Direction::Decrypt,
        is_finished: false,
        zones: 0,
        image_size: image.size(),
        hot_zone,
        data_digest: [0; 32],
        salt,
        key_tag: key_tag(job, &salt),
        image_tag,
        end: None,
    };
    // A journal of an earlier work would leave a record that looks newer.
    journal.write_at(&vec![0; usize_of(RECORD)], RECORD)?;
    record.write(job.sha256, journal)
}

/// Transforms the image, or those of its hot zones that are left, and ends with the journal that says so: of finished work nothing is
/// written, and an image is refused that is not known as the one that the work left. After an error, or after the process was killed,
/// the transformation can be resumed again.
///
/// An image that has no mark may have been written to since. Then the zone that the journal has must be in the image as it was or as
/// it becomes, sector by sector.
///
/// # Errors
/// `Argument` if the key, the mapping, the direction or the image is another one than the journal tells of, and `Corrupt`
/// if the journal has no whole record or its slot does not have what the record says: nothing is written then. `Io`.
pub fn resume(
    job: &Job<'_>,
    image: &dyn BlockDevice,
    journal: &dyn BlockDevice,
    marks: &dyn Marks,
) -> Result<(), Error> {
    let record = Record::newest(job.sha256, journal)?;
    let refuse = |text: String| Err(Error::argument(text));
    if record.decrypt != (job.direction == Direction::Decrypt) {
        let begun = if record.decrypt { "a decryption" } else { "an encryption" };
        return refuse(format!("the journal belongs to {begun}; resume that"));
    }
    if record.image_size != image.size() {
        return refuse(format!(
            "the journal belongs to an image of {} bytes, this one has {}",
            record.image_size,
            image.size()
        ));
    }
    if !constant_time_eq(&record.key_tag, &key_tag(job, &record.salt)) {
        let text = "the key or the mapping's options are not those that the work was begun with";
        return refuse(text.to_owned());
    }
    if record.is_finished {
        marks.check(record.salt)?;
        return check_end(job, &record, image, marks);
    }
    check_size(job.cipher, record.image_size)?;
    if !record.hot_zone.is_multiple_of(u64_of(job.cipher.sector_size())) {
        return Err(Error::corrupt("in-place journal: the hot zone is not whole sectors"));
    }
    let Some(zone) = record.zones.checked_sub(1) else {
        check_image(job, &record, image, &[])?;
        marks.set(record.salt)?;
        return go_on(job, image, journal, record);
    };
    let (offset, len) = record.zone(zone);
    let mut data = vec![0; len];
    journal.read_at(&mut data, record.slot(zone))?;
    if digest(job.sha256, &data) != record.data_digest {
        let text = format!("in-place journal: the data of hot zone {zone} is not what its record says");
        return Err(Error::corrupt(text));
    }
    check_image(job, &record, image, &data)?;
    if !marks.is_marked()? {
        check_hot_zone(job, &record, image, &data)?;
    }
    marks.set(record.salt)?;
    image.write_at(&data, offset)?;
    image.flush()?;
    drop(data);
    job.work.events.advance(offset + u64_of(len))?;
    go_on(job, image, journal, record)
}

/// Whether the journal is that of this work, finished, and the image is the one that it left.
///
/// # Errors
/// `Corrupt` if the journal has no whole record; `Io`.
pub fn is_done(job: &Job<'_>, image: &dyn BlockDevice, journal: &dyn BlockDevice) -> Result<bool, Error> {
    let record = Record::newest(job.sha256, journal)?;
    let is_of_job = record.decrypt == (job.direction == Direction::Decrypt)
        && record.image_size == image.size()
        && constant_time_eq(&record.key_tag, &key_tag(job, &record.salt));
    match record.end.as_ref().filter(|_| record.is_finished && is_of_job) {
        Some(end) => end.fits(job, &record.salt, image),
        None => Ok(false),
    }
}

/// Whether the image is the one that the work was begun with, transformed as far as the record says. `hot` is what
/// belongs to the zone that may be there in part.
fn check_image(job: &Job<'_>, record: &Record, image: &dyn BlockDevice, hot: &[u8]) -> Result<(), Error> {
    let tag = image_tag(job, &record.salt, record.image_size, |mut buf, mut offset| {
        while !buf.is_empty() {
            let zone = offset / record.hot_zone;
            let (start, len) = record.zone(zone);
            let within = usize_of(offset - start);
            let (now, later) = buf.split_at_mut(buf.len().min(len - within));
            match zone + 1 == record.zones {
                true => now.copy_from_slice(&hot[within..within + now.len()]),
                false => image.read_at(now, offset)?,
            }
            if zone < record.zones {
                job.cipher.run(back(job), offset / 512, now)?;
            }
            offset += u64_of(now.len());
            buf = later;
        }
        Ok(())
    })?;
    if constant_time_eq(&record.image_tag, &tag) { Ok(()) } else { Err(changed(record)) }
}

/// Whether the image is the one that finished work left. It may have been written to since.
fn check_end(
    job: &Job<'_>,
    record: &Record,
    image: &dyn BlockDevice,
    marks: &dyn Marks,
) -> Result<(), Error> {
    let fits = match &record.end {
        Some(end) => end.fits(job, &record.salt, image)?,
        None => {
            let read = |buf: &mut [u8], offset| image.read_at(buf, offset);
            let is_before =
                constant_time_eq(&record.image_tag, &image_tag(job, &record.salt, record.image_size, read)?);
            if !is_before && !marks.is_marked()? {
                let text = "the journal is of an earlier version: it says that its work was finished, and not how the image was then. \
                            Nothing tells whether this is that image: if it is whole, or another one, remove the journal";
                return Err(Error::argument(text));
            }
            !is_before
        }
    };
    if fits { Ok(()) } else { Err(changed(record)) }
}

/// Whether each sector of the zone that may be there in part is as it was or as it becomes. One that can't be read was torn.
fn check_hot_zone(job: &Job<'_>, record: &Record, image: &dyn BlockDevice, hot: &[u8]) -> Result<(), Error> {
    let (start, _) = record.zone(record.zones - 1);
    for (offset, new) in (start..).step_by(PIECE).zip(hot.chunks(PIECE)) {
        let (mut there, mut old) = (new.to_vec(), new.to_vec());
        if image.read_at(&mut there, offset).is_err() {
            for (at, sector) in (offset..).step_by(SECTOR).zip(there.chunks_mut(SECTOR)) {
                let mut read = [0; SECTOR];
                let read = &mut read[..sector.len()];
                if image.read_at(read, at).is_ok() {
                    sector.copy_from_slice(read);
                }
            }
        }
        job.cipher.run(back(job), offset / 512, &mut old)?;
        let both = old.chunks(SECTOR).zip(new.chunks(SECTOR));
        if !there.chunks(SECTOR).zip(both).all(|(there, (old, new))| there == old || there == new) {
            return Err(changed(record));
        }
    }
    Ok(())
}

/// The direction that undoes the work.
fn back(job: &Job<'_>) -> Direction {
    match job.direction {
        Direction::Encrypt => Direction::Decrypt,
        Direction::Decrypt => Direction::Encrypt,
    }
}

/// Refusal of an image that is not as the work left it.
fn changed(record: &Record) -> Error {
    let what = "this is not the image as the stopped work left it: it is another one, or was put back or changed since.";
    Error::argument(match record.zones == record.all_zones() {
        true if record.is_finished => format!(
            "{what} The work was finished, and nothing is written: if this image is whole, or another one, remove the journal, and \
             the image's attribute {MARK_NAME} if it has one; begin anew if this work is still to be done on it"
        ),
        true => format!(
            "{what} The work had come to the end of its image, and goes on with nothing: if this image is whole, remove the \
             journal, and the image's attribute {MARK_NAME} if it has one"
        ),
        false => format!(
            "{what} Bring that image back to go on; if this one is whole, remove the journal, and the image's attribute \
             {MARK_NAME} if it has one, and begin anew"
        ),
    })
}

/// The record's hot zones from its number on, and the end of the work.
fn go_on(
    job: &Job<'_>,
    image: &dyn BlockDevice,
    journal: &dyn BlockDevice,
    mut record: Record,
) -> Result<(), Error> {
    let zones = record.all_zones();
    // At most MAX_HOT_ZONE.
    let mut data = vec![0; usize_of(record.hot_zone.min(record.image_size))];
    while record.zones < zones {
        let zone = record.zones;
        let (offset, len) = record.zone(zone);
        let data = &mut data[..len];
        transform_zone(job, image, offset, data)?;
        journal.write_at(data, record.slot(zone))?;
        journal.flush()?;
        record.data_digest = digest(job.sha256, data);
        record.zones = zone + 1;
        record.write(job.sha256, journal)?;
        image.write_at(data, offset)?;
        image.flush()?;
        job.work.events.advance(u64_of(len))?;
    }
    let end = End::of(job, &record.salt, image)?;
    record.finish(job.sha256, journal, &end)
}

/// Reads a zone and transforms it, on all threads.
fn transform_zone(job: &Job<'_>, image: &dyn BlockDevice, offset: u64, data: &mut [u8]) -> Result<(), Error> {
    let pieces: Vec<Mutex<&mut [u8]>> = data.chunks_mut(PIECE).map(Mutex::new).collect();
    job.work.pool.run(
        u64_of(pieces.len()),
        || (),
        |(), k| {
            // OK to unwrap: an index of the vector, locked once.
            let mut piece = pieces[usize_of(k)].lock().unwrap();
            let offset = offset + k * u64_of(PIECE);
            image.read_at(&mut piece, offset)?;
            job.cipher.run(job.direction, offset / 512, &mut piece)
        },
    )
}

fn key_tag(job: &Job<'_>, salt: &[u8; 32]) -> [u8; 32] {
    tag(job, &[salt, job.mapping.as_bytes()].concat())
}

/// The code that tells the image from others. It is made under the key, so that a reader of the journal can't
/// confirm a guess at what the image holds.
fn image_tag(
    job: &Job<'_>,
    salt: &[u8; 32],
    size: u64,
    mut read: impl FnMut(&mut [u8], u64) -> Result<(), Error>,
) -> Result<[u8; 32], Error> {
    let start = [&b"image"[..], salt].concat();
    // A MiB and a little.
    let sampled: u64 = samples(size).map(|range| range.end - range.start).sum();
    let mut message = SecretVec::zeroed(start.len() + usize_of(sampled));
    let (first, mut rest) = message.expose_mut().split_at_mut(start.len());
    first.copy_from_slice(&start);
    for range in samples(size) {
        let (now, later) = rest.split_at_mut(usize_of(range.end - range.start));
        read(now, range.start)?;
        rest = later;
    }
    Ok(tag(job, message.expose()))
}
