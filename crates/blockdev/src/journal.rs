//! Journals of encryptions and decryptions in place, as far as whoever opens an image has to know them.
//!
//! A journal beside an image tells of unfinished work as the image's mark does: a copy of the image may have lost the mark, and
//! some file systems have none. Only one whose work has not begun, or is finished, says that the image is whole. What the
//! journals hold, byte by byte: docs/formats/in-place.md.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::code::Code;
use crate::device::BlockDevice;
use crate::error::{AtFile, Error, Result};
use crate::file::FileDevice;
use crate::identity::FileId;
pub use crate::mark::SUFFIX;
use crate::mark::{InPlaceWork, Mark, journals, read};
use crate::os;

/// Text that each record of a journal begins with.
pub const MAGIC: &[u8; 16] = b"casemate-inplace";
/// Version of the format.
pub const VERSION: u32 = 1;
/// Bytes of a record's place.
pub const RECORD: u64 = 4096;
/// Bytes of a record.
pub const RECORD_LEN: usize = 208;
/// Bit of the kind of work that says that all of it is on stable storage.
pub const FINISHED: u32 = 2;
/// The first fields of a record, whose checksum nobody has looked at.
struct Head {
    kind: u32,
    zones: u64,
    has_data: bool,
    salt: [u8; 32],
}

/// A record, as far as it can be told without a hash.
enum Found {
    /// Nothing was written there.
    Blank,
    /// Anything but a record.
    Other,
    /// A record of a version that is not known.
    Unknown,
    Known(Head),
}

impl Found {
    fn of(bytes: &[u8; RECORD_LEN]) -> Found {
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        if bytes.iter().all(|byte| *byte == 0) {
            return Found::Blank;
        }
        if !bytes.starts_with(MAGIC) {
            return Found::Other;
        }
        let kind = u32_at(20);
        if u32_at(16) != VERSION || kind >= 2 * FINISHED {
            return Found::Unknown;
        }
        Found::Known(Head {
            kind,
            zones: u64::from_le_bytes(bytes[24..32].try_into().expect("eight bytes")),
            has_data: bytes[48..80].iter().any(|byte| *byte != 0),
            salt: bytes[80..112].try_into().expect("32 bytes"),
        })
    }
}

/// Whether a file begins as a journal does: with a record, or with room for the first one.
pub fn is_journal(path: &Path) -> bool {
    let begins = |found: &Found| matches!(found, Found::Unknown | Found::Known(_));
    records(path).is_ok_and(|records| records.iter().any(begins))
}

/// Whether a file is a journal whose work is finished: nothing needs it any more.
pub fn is_finished(path: &Path) -> bool {
    records(path).is_ok_and(|records| says_finished(&records))
}

/// The two records of a file; blank where it is too short.
fn records(path: &Path) -> Result<[Found; 2]> {
    let file = FileDevice::open(path)?;
    let read = |at: u64| {
        let mut bytes = [0; RECORD_LEN];
        match file.read_at(&mut bytes, at) {
            Err(error) if error.code() != Code::CutOff => Err(error),
            // A journal that was cut off in its first record has its text all the same.
            Err(_) => {
                let mut magic = [0; MAGIC.len()];
                let is_there = file.read_at(&mut magic, at).is_ok() && magic == *MAGIC;
                Ok(if is_there { Found::Unknown } else { Found::Blank })
            }
            Ok(()) => Ok(Found::of(&bytes)),
        }
    };
    Ok([read(0)?, read(RECORD)?])
}

/// A finished record has no digest, and each other one of work that has begun has one: no damaged bit makes the one of the other.
fn says_finished(records: &[Found; 2]) -> bool {
    let is_finished = |found: &Found| match found {
        Found::Known(head) => head.kind >= FINISHED && !head.has_data,
        _ => false,
    };
    records.iter().any(is_finished)
}

/// The mark that the journal of this name stands for; `None` where none is there, or it says that the image is whole.
///
/// # Errors
/// `Argument` with the code `Unfinished` for one that can't be read; `Unsupported` for one that this version does not know.
pub(crate) fn mark(path: &Path) -> Result<Option<Mark>> {
    // Of a name that can't be there is no journal.
    if !fs::metadata(path).is_ok_and(|metadata| metadata.is_file()) {
        return Ok(None);
    }
    let shown = path.display().to_string().escape_debug().to_string();
    let records = records(path).map_err(|error| {
        let text = format!(
            "{shown} has the name of a journal of work in place on it, and can't be read ({}): nothing tells whether that work \
             is done",
            error.text()
        );
        Error::coded(Code::Unfinished, text)
    })?;
    if says_finished(&records) {
        return Ok(None);
    }
    let head = match &records {
        // The image changes after the first zone's record is there.
        [Found::Known(Head { zones: 0, .. }), Found::Blank] => return Ok(None),
        [Found::Blank | Found::Other, Found::Blank | Found::Other] => return Ok(None),
        [Found::Known(head), _] | [_, Found::Known(head)] => head,
        _ => {
            let text = format!(
                "{shown} says that work on it is unfinished, in a way that this version does not know"
            );
            return Err(Error::unsupported(text));
        }
    };
    let work = if head.kind & 1 == 0 { InPlaceWork::Encryption } else { InPlaceWork::Decryption };
    let journal = fs::canonicalize(path).at(path.display())?;
    Ok(Some(Mark { work, id: head.salt, journal }))
}

/// The mark that the first of these journals stands for.
///
/// # Errors
/// Errors of [`mark`].
pub(crate) fn first_mark(paths: Vec<PathBuf>) -> Result<Option<Mark>> {
    for path in paths {
        if let Some(mark) = mark(&path)? {
            return Ok(Some(mark));
        }
    }
    Ok(None)
}

/// Refuses an image beside which one of these journals tells of unfinished work.
///
/// # Errors
/// `Argument` with the code `Unfinished`; those of [`mark`].
pub(crate) fn check(paths: Vec<PathBuf>) -> Result<()> {
    first_mark(paths)?.map_or(Ok(()), |mark| Err(mark.refusal_by_name()))
}

/// Refuses an open file or block device that has a mark, or beside whose path a journal tells of unfinished work.
///
/// # Errors
/// `Argument` with the code `Unfinished`; those of [`read`].
pub(crate) fn check_file(file: &File, id: FileId, path: &Path) -> Result<()> {
    if let Some(mark) = read(file, id)? {
        return Err(mark.refusal());
    }
    check(journals(id, path, 0))
}

/// Refuses a file that is open to be read as a stream, as [`check_file`] does.
///
/// # Errors
/// Errors of [`check_file`].
pub(crate) fn check_stream(file: &File, path: &Path) -> io::Result<()> {
    check_file(file, os::id_of(file)?, path).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, zones: u64, digest: u8) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(RECORD).unwrap()];
        bytes[..16].copy_from_slice(MAGIC);
        bytes[16..20].copy_from_slice(&VERSION.to_le_bytes());
        bytes[20..24].copy_from_slice(&kind.to_le_bytes());
        bytes[24..32].copy_from_slice(&zones.to_le_bytes());
        bytes[48..80].fill(digest);
        bytes[80..112].fill(7);
        bytes
    }

    #[test]
    fn only_work_that_has_begun_and_is_not_finished_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.casemate-journal");
        let blank = || vec![0; usize::try_from(RECORD).unwrap()];
        assert_eq!(mark(&path).unwrap(), None);
        let work = |records: [Vec<u8>; 2]| {
            fs::write(&path, records.concat()).unwrap();
            mark(&path).unwrap().map(|mark| (mark.work, mark.id[0]))
        };
        // Another file, and work that has not begun.
        assert_eq!(work([vec![], vec![]]), None);
        assert_eq!(work([vec![b'x'; 4096], vec![b'x'; 4096]]), None);
        assert_eq!(work([record(0, 0, 0), blank()]), None);
        assert_eq!(work([record(1, 0, 0), vec![]]), None);
        for (kind, expected) in [(0, InPlaceWork::Encryption), (1, InPlaceWork::Decryption)] {
            let begun = Some((expected, 7));
            assert_eq!(work([record(kind, 0, 0), record(kind, 1, 9)]), begun);
            assert_eq!(work([record(kind, 2, 9), record(kind, 1, 9)]), begun);
            // One of the two is torn.
            assert_eq!(work([vec![b'x'; 4096], record(kind, 1, 9)]), begun);
            assert_eq!(work([record(kind, 0, 0), vec![b'x'; 4096]]), begun);
            assert_eq!(work([record(kind | FINISHED, 2, 0), record(kind, 1, 9)]), None);
            assert_eq!(work([record(kind, 2, 9), record(kind | FINISHED, 2, 0)]), None);
            // No one bit makes a finished one.
            assert_eq!(work([record(kind | FINISHED, 2, 9), record(kind, 1, 9)]), begun);
        }
        // What can't be told is not taken for whole.
        for unknown in [record(4, 1, 9), MAGIC.to_vec()] {
            fs::write(&path, unknown).unwrap();
            let error = mark(&path).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::Unsupported, "{error}");
        }
    }
}
