//! Contents of a device, beside the bytes that it will have.

use casemate_blockdev::{BlockDevice, Contents, Medium, Used, u64_of, usize_of};

use crate::{Advice, Error};

/// Bytes that are read at once.
const PIECE: u64 = 1 << 20;

/// Checks that the file system or the partitions on plain data lie within their first `len` bytes, as far as it is known
/// where they end. Returns whether there is a file system whose size is known: it does not use what lies behind it.
///
/// # Errors
/// `Argument`, which names what would be cut; `Unsupported` without knowledge of contents; `Io`.
pub(super) fn check(plain: &Medium, len: u64, contents: Option<Contents>) -> Result<bool, Error> {
    let contents = contents.ok_or_else(|| {
        Error::unsupported(
            "data give up their end only where their contents are known, and no function was given that finds these",
        )
    })?;
    let used = contents(plain)?;
    match used.iter().find(|used| used.end > len) {
        Some(Used { what, end, .. }) => Err(Error::argument(format!(
            "{what} ends at byte {end} of the data, of which {len} are left: make it smaller first"
        ))),
        None => Ok(used.iter().any(|used| used.is_whole)),
    }
}

/// Checks that nothing is lost with the plain data from `start` on: they are zeros, or what nobody wrote, which is zeros as `raw`, the
/// data as they are encrypted. With `is_known` a file system that is known ends before them.
///
/// # Errors
/// Errors of [`used_end`]; `Io`.
pub(super) fn check_end(
    plain: &dyn BlockDevice,
    raw: &dyn BlockDevice,
    start: u64,
    is_known: bool,
) -> Result<(), Error> {
    let (end, mut at) = (plain.size(), start);
    while at < end {
        let len = (end - at).min(PIECE);
        let mut pieces = [vec![0; usize_of(len)], vec![0; usize_of(len)]];
        plain.read_at(&mut pieces[0], at)?;
        raw.read_at(&mut pieces[1], at)?;
        let is_zero = |sector: &[u8]| sector.iter().all(|byte| *byte == 0);
        let [plain, raw] = pieces;
        if plain.chunks(512).zip(raw.chunks(512)).any(|(plain, raw)| !is_zero(plain) && !is_zero(raw)) {
            return Err(used_end(end - start, is_known));
        }
        at += u64_of(plain.len());
    }
    Ok(())
}

/// Refusal to give up the last bytes of the data, which are in use; with `is_known` a file system that is known ends before them.
pub(super) fn used_end(reduce: u64, is_known: bool) -> Error {
    if is_known {
        let text = format!(
            "the last {reduce} bytes, which the header would take, hold data behind the file system that would be lost"
        );
        return Error::argument(text).advise(Advice::Overwrite);
    }
    Error::argument(format!(
        "the last {reduce} bytes, which the header would take, are not all zeros, and no file system shows that they are free: \
         shrink what is there, or fill them with zeros if they are not needed"
    ))
}
