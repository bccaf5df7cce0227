//! Lengths of data that are transformed: work goes on with as many bytes as it was begun with, and none of them are left out
//! unless that is allowed.
//!
//! Data up to the device's end have no length in the header. So the device's end decides what the key that goes away is still
//! needed for: a file that was cut off, or a window that ends before the file under it, would end the work early. What is begun
//! here notes the length (`casemate_data_size`). cryptsetup notes none; then the medium tells whether a window has cut it.
//!
//! A header before its data proves where they begin. One in a file of its own proves nothing: in a window that begins later every
//! sector would be taken for another one, and lost.

use casemate_blockdev::{Medium, Used};

use super::ReencryptOptions;
use crate::luks2::reencrypt::{Mode, Reencryption};
use crate::luks2::{Segment, SegmentSize};
use crate::{Error, Header, Volume};

/// Checks that work goes on with as many bytes as it was begun with.
///
/// # Errors
/// `Argument` for another length; for a window, where nothing says what the length was, unless it is allowed.
pub(super) fn check(course: &Reencryption, data: &Medium, allow_window: bool) -> Result<(), Error> {
    let noun = course.mode.noun();
    let len = course.len(data.top().size());
    match course.data_size {
        Some(begun) if len.as_ref().ok() != Some(&begun) => {
            let found = match len {
                Ok(len) => format!("{len} bytes"),
                Err(_) => "fewer".to_owned(),
            };
            let end = course.new_place(0).max(course.backups.previous.offset).saturating_add(begun);
            Err(Error::argument(format!(
                "{noun} was begun with {begun} bytes of data, and there are {found} now: data could be lost by going on; give the \
                 image, or the part of it, that has data up to byte {end}"
            )))
        }
        _ if allow_window => Ok(()),
        _ => refuse(course.mode, left_out(course, data)),
    }
}

/// Refuses to begin work on data that a window ends early, unless it is allowed.
///
/// # Errors
/// `Argument`: what would be lost.
pub(super) fn refuse_window(mode: Mode, data: &Medium, options: &ReencryptOptions) -> Result<(), Error> {
    match options.allow_window {
        true => Ok(()),
        false => refuse(mode, data.left_out()),
    }
}

/// Refuses to encrypt a window of plain data if something known reaches behind it, unless it is allowed. Whatever is encrypted can
/// be decrypted again, so data of no known kind are not in question. `start`: where the encrypted data begin.
///
/// # Errors
/// `Argument`: what would be cut; `Unsupported` without knowledge of contents; `Io`.
pub(super) fn refuse_cut(data: &Medium, start: u64, options: &ReencryptOptions) -> Result<(), Error> {
    if options.allow_window || data.left_out() == 0 {
        return Ok(());
    }
    let contents = options.contents.ok_or_else(|| {
        Error::unsupported(
            "a window of plain data is encrypted only where their contents are known, and no function was given that finds these",
        )
    })?;
    match Used::reaching_behind(data, start, data.top().size(), contents)? {
        None => Ok(()),
        Some(Used { what, end, .. }) => Err(Error::argument(format!(
            "{what} ends at byte {end}, and the window of the image at byte {}: the part behind the window would stay in plain text, \
             and be noise to who reads it through the volume",
            data.top().size()
        ))),
    }
}

/// Refuses to encrypt plain data from a byte on that are only a part of something known, unless it is allowed.
///
/// # Errors
/// `Argument`: what would be noise; `Io`.
pub(super) fn refuse_middle(data: &Medium, start: u64, options: &ReencryptOptions) -> Result<(), Error> {
    match data.divided(start..data.top().size())?.filter(|_| !options.allow_window) {
        None => Ok(()),
        Some(contents) => Err(Error::argument(contents.to_string())),
    }
}

fn refuse(mode: Mode, bytes: u64) -> Result<(), Error> {
    let fate = match mode {
        Mode::Reencrypt | Mode::Decrypt => "could never be read again: the key that they have is removed",
        Mode::Encrypt => "would stay in plain text",
    };
    match bytes {
        0 => Ok(()),
        _ => Err(Error::argument(format!(
            "the image is a window that ends {bytes} bytes before the file, device or partition that it lies in, and the data of a \
             volume have no end of their own: the data behind the window {fate}; give the image without the window's size"
        ))),
    }
}

/// Bytes that a window leaves out of the data of work that was begun with no known length.
fn left_out(course: &Reencryption, data: &Medium) -> u64 {
    match (course.data_size, course.backups.previous.size) {
        (None, SegmentSize::Dynamic) => data.left_out(),
        _ => 0,
    }
}

impl Volume {
    /// Refuses to write to data that a window begins, where only a header in a file of its own says that they begin there, unless it is
    /// allowed.
    ///
    /// # Errors
    /// `Argument`: what would be lost.
    pub(super) fn refuse_late_beginning(&self, allow_window: bool) -> Result<(), Error> {
        match self.bytes_left_out_before() {
            _ if allow_window => Ok(()),
            0 => Ok(()),
            bytes => Err(Error::argument(format!(
                "the image is a window that begins {bytes} bytes behind the beginning of the file, device or partition that it lies \
                 in, and a header in a file of its own does not prove where its data begin: if they begin elsewhere, all of them are \
                 lost; give the image without the window's offset"
            ))
            .at(self.data.name())),
        }
    }

    /// Bytes before the data that a window leaves out of the file, device or partition that it lies in, where the header is in a file of
    /// its own: it does not prove where its data begin.
    pub fn bytes_left_out_before(&self) -> u64 {
        match self.is_attached || self.header_image.is_same(&self.data) {
            true => 0,
            false => self.data.left_out_before(),
        }
    }

    /// Bytes behind the data that a reencryption or decryption would take the key from: the data have no end of their own, and the
    /// image is a window that ends before the file, device or partition that it lies in. 0 for work that was begun with as many
    /// bytes.
    pub fn bytes_left_out(&self) -> u64 {
        let Header::Luks2(header) = &self.header else { return 0 };
        let course = self.reencryption().ok().flatten();
        let course = course.or_else(|| self.ending().map(|ending| ending.course));
        let is_dynamic = |segment: &Segment| segment.size == SegmentSize::Dynamic;
        match course {
            Some(course) => left_out(&course, &self.data),
            None if header.metadata.segments().first().is_some_and(is_dynamic) => self.data.left_out(),
            None => 0,
        }
    }
}

/// Bytes that the data give up at the end of a device.
pub(super) fn given_up(course: &Reencryption, size: u64) -> u64 {
    match (course.backups.previous.size, course.shift) {
        (SegmentSize::Fixed(len), _) => size.saturating_sub(len),
        (SegmentSize::Dynamic, shift) => shift.unwrap_or(0).saturating_mul(2),
    }
}
