//! Marks on image files that somebody has begun to change and not finished.
//!
//! Work that can be stopped in the middle keeps its journal in another file. The mark is an extended attribute of the image
//! itself, so it is found by every name of the image, after the image was moved, and through loop devices. A file system
//! without such attributes has no marks, nor has a disk: there the journal is found by its name alone, as is that of a copy that
//! has lost the mark.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};

use crate::advice::Advice;
use crate::code::Code;
use crate::error::{Error, Result};
use crate::identity::{FileId, all_below, places};
use crate::os::{self, OsStrExt, OsStringExt};

/// Name of the extended attribute.
pub const MARK_NAME: &str = "user.casemate.unfinished";

/// Behind the name of an image: the name of its journal.
pub const SUFFIX: &str = ".casemate-journal";

/// Name of the extended attribute that leads to the recovery file of a file system at byte 0: that of one elsewhere has the byte
/// behind it. Its value is the path.
///
/// It says nothing of the state of the image. A change that is not complete tells that itself; then this is where the rest of
/// it is. So the attribute may stay behind, and nobody waits until it is on stable storage.
const RECOVERY_NAME: &str = "user.casemate.recovery";

/// The most bytes of a journal's path that a mark names: some file systems have little room for attributes.
const MAX_PATH: usize = 1024;

/// Work that changes an image where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InPlaceWork {
    /// Encryption. The rest is in a journal.
    Encryption,
    /// Decryption. The rest is in a journal.
    Decryption,
    /// Commit of an overlay, which has the rest.
    Commit,
}

impl InPlaceWork {
    const ALL: [InPlaceWork; 3] = [InPlaceWork::Encryption, InPlaceWork::Decryption, InPlaceWork::Commit];

    fn word(self) -> &'static [u8] {
        match self {
            InPlaceWork::Encryption => b"encryption",
            InPlaceWork::Decryption => b"decryption",
            InPlaceWork::Commit => b"commit",
        }
    }

    /// The noun of the file that has the rest.
    fn rest(self) -> &'static str {
        match self {
            InPlaceWork::Encryption | InPlaceWork::Decryption => "journal",
            InPlaceWork::Commit => "overlay",
        }
    }
}

/// Mark on an image: in-place work on it has begun, and has not come to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Kind of the work.
    pub work: InPlaceWork,
    /// Number of the work, which its journal has too.
    pub id: [u8; 32],
    /// Path of the journal or overlay when the work began; empty if it was too long to be kept.
    pub journal: PathBuf,
}

impl Mark {
    /// Whether both are of one work, wherever its journal or overlay lay when they were set.
    pub fn is_of_same_work(&self, other: &Mark) -> bool {
        (self.work, self.id) == (other.work, other.id)
    }

    /// The value of the attribute on a file in which the work's part begins at byte `start`.
    fn encode(&self, start: u64) -> Vec<u8> {
        let at = if start == 0 { String::new() } else { format!("@{start}") };
        let path = Some(self.journal.as_os_str().as_bytes()).filter(|path| path.len() <= MAX_PATH);
        let id: String = self.id.iter().map(|byte| format!("{byte:02x}")).collect();
        [self.work.word(), at.as_bytes(), b" ", id.as_bytes(), b" ", path.unwrap_or_default()].concat()
    }

    /// The mark of a value, and the byte at which the work's part begins.
    fn decode(value: &[u8]) -> Option<(Mark, u64)> {
        let mut words = value.splitn(3, |byte| *byte == b' ');
        let mut word = words.next()?;
        let mut start = 0;
        if let Some(at) = word.iter().position(|byte| *byte == b'@') {
            start = str::from_utf8(&word[at + 1..]).ok()?.parse().ok()?;
            word = &word[..at];
        }
        let work = InPlaceWork::ALL.into_iter().find(|work| work.word() == word)?;
        let digits = str::from_utf8(words.next()?).ok().filter(|digits| digits.len() == 64)?;
        let mut id = [0; 32];
        for (byte, at) in id.iter_mut().zip((0..64).step_by(2)) {
            *byte = u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()?;
        }
        let journal = OsString::from_vec(words.next()?.to_vec()).into();
        Some((Mark { work, id, journal }, start))
    }

    /// The fact, and the place of the journal, as a text.
    pub fn text(&self) -> String {
        let work = match self.work {
            InPlaceWork::Encryption => "an encryption in place",
            InPlaceWork::Decryption => "a decryption in place",
            InPlaceWork::Commit => "the commit of an overlay",
        };
        let begun = format!("{work} was interrupted, or goes on");
        match self.journal.as_os_str().is_empty() {
            true => begun,
            // A hostile image may have any mark.
            false => {
                let path = self.journal.display().to_string();
                let article = if self.work == InPlaceWork::Commit { "the" } else { "its" };
                format!("{begun}: {} is {article} {}", path.escape_debug(), self.work.rest())
            }
        }
    }

    /// Refusal of an image that has the mark.
    pub fn refusal(&self) -> Error {
        let is_gone = !self.journal.as_os_str().is_empty() && !self.journal.exists();
        let rest = match is_gone {
            true => format!(
                " and is not there any more. If it was moved, name it; if the image is whole all the same, remove its attribute \
                 {MARK_NAME}"
            ),
            false => String::new(),
        };
        Error::coded(Code::Unfinished, format!("{}{rest}", self.text())).advise(match self.work {
            InPlaceWork::Encryption | InPlaceWork::Decryption => Advice::Resume,
            InPlaceWork::Commit => Advice::CommitOverlay,
        })
    }

    /// Refusal of an image that has no mark, but beside which a journal tells of the work. It may be another image's, which had the
    /// name before.
    pub(crate) fn refusal_by_name(&self) -> Error {
        let text = self.text();
        let text = format!("{text} (to be removed if it is another image's, or the image is whole)");
        Error::coded(Code::Unfinished, text).advise(Advice::Resume)
    }
}

/// The files that keep the mark of an open file or block device: the file itself, or those that the device stands on.
fn carriers(file: &File, id: FileId) -> Result<Vec<File>> {
    if let FileId::Inode(..) = id {
        return Ok(vec![file.try_clone()?]);
    }
    let open = |path: PathBuf, id: FileId| {
        let file = File::open(path).ok()?;
        (os::id_of(&file).ok()? == id).then_some(file)
    };
    let all = all_below(id).into_iter();
    Ok(all.filter_map(|(_, below)| open(below.backing?, below.id)).collect())
}

/// The files that keep what is known of a file system at a byte of an open file or block device, each with the byte of it that
/// the file system begins at.
fn carriers_at(file: &File, id: FileId, start: u64) -> Result<Vec<(File, u64)>> {
    let files = carriers(file, id)?;
    if let FileId::Inode(..) = id {
        return Ok(files.into_iter().map(|file| (file, start)).collect());
    }
    let parts = places(id);
    let at = |file: File| {
        let id = os::id_of(&file).ok()?;
        let (_, part) = parts.iter().find(|(below, _)| *below == id)?;
        Some((file, part.start.checked_add(start)?))
    };
    Ok(files.into_iter().filter_map(at).collect())
}

fn recovery_name(start: u64) -> String {
    if start == 0 { RECOVERY_NAME.to_owned() } else { format!("{RECOVERY_NAME}.{start}") }
}

/// The path of the recovery file of a file system at a byte of an open file or block device, if the attribute is there.
///
/// # Errors
/// `Io`.
pub(crate) fn recovery(file: &File, id: FileId, start: u64) -> Result<Option<PathBuf>> {
    for (carrier, start) in carriers_at(file, id, start)? {
        if let Some(value) = os::attribute(&carrier, &recovery_name(start))? {
            return Ok(Some(OsString::from_vec(value).into()));
        }
    }
    Ok(None)
}

/// The bytes of an open file or block device at which file systems begin that have the path of a recovery file.
///
/// # Errors
/// `Io`.
pub(crate) fn recovery_starts(file: &File, id: FileId) -> Result<Vec<u64>> {
    let mut starts = Vec::new();
    for (carrier, base) in carriers_at(file, id, 0)? {
        for name in os::attribute_names(&carrier) {
            let at = match name.strip_prefix(RECOVERY_NAME) {
                Some("") => Some(0),
                Some(end) => end.strip_prefix('.').and_then(|digits| digits.parse::<u64>().ok()),
                None => None,
            };
            starts.extend(at.and_then(|at| at.checked_sub(base)));
        }
    }
    Ok(starts)
}

/// Sets the path of the recovery file. Where there are no such attributes, or no room for it, nothing happens.
///
/// # Errors
/// `Io`.
pub(crate) fn set_recovery(file: &File, id: FileId, start: u64, path: &Path) -> Result<()> {
    let path = path.as_os_str().as_bytes();
    for (carrier, start) in carriers_at(file, id, start)? {
        if path.len() <= MAX_PATH {
            let _ = os::set_attribute(&carrier, &recovery_name(start), path);
        }
    }
    Ok(())
}

/// Removes the path of the recovery file, if it is there.
///
/// # Errors
/// `Io`.
pub(crate) fn remove_recovery(file: &File, id: FileId, start: u64) -> Result<()> {
    for (carrier, start) in carriers_at(file, id, start)? {
        let _ = os::remove_attribute(&carrier, &recovery_name(start));
    }
    Ok(())
}

/// The mark of an open file or block device, if it has one.
///
/// # Errors
/// `Io`; `Unsupported` for a mark that this version does not know.
pub(crate) fn read(file: &File, id: FileId) -> Result<Option<Mark>> {
    for carrier in carriers(file, id)? {
        let Some(value) = os::attribute(&carrier, MARK_NAME)? else { continue };
        let Some((mark, _)) = Mark::decode(&value) else {
            let text = format!(
                "the attribute {MARK_NAME} says that work on it is unfinished, in a way that this version does not know"
            );
            return Err(Error::unsupported(text));
        };
        return Ok(Some(mark));
    }
    Ok(None)
}

/// The paths that the journal of work on the part of a file or block device that begins at byte `start` has, unless another was
/// named. Where the part begins at byte 0, those of the files that a device is a part of count, too.
pub(crate) fn journals(id: FileId, path: &Path, start: u64) -> Vec<PathBuf> {
    if let FileId::Inode(..) = id {
        return vec![beside(path, SUFFIX, start)];
    }
    let parts = places(id);
    let of = |path: PathBuf, id: FileId| {
        let first = parts.iter().find(|(below, _)| *below == id).map(|(_, part)| part.start);
        let whole = (start == 0).then(|| beside(&path, SUFFIX, 0));
        let part = first.and_then(|first| first.checked_add(start)).filter(|start| *start > 0);
        whole.into_iter().chain(part.map(|start| beside(&path, SUFFIX, start))).collect::<Vec<_>>()
    };
    let all = all_below(id).into_iter();
    all.filter_map(|(_, below)| Some(of(below.backing?, below.id))).flatten().collect()
}

/// The path beside a file of what belongs to the part of it that begins at byte `start`. Symbolic links to the file are followed.
pub(crate) fn beside(path: &Path, suffix: &str, start: u64) -> PathBuf {
    let mut path = OsString::from(followed(path));
    path.push(suffix);
    if start > 0 {
        path.push(format!(".{start}"));
    }
    path.into()
}

/// Refuses a mark that [`set`] would refuse.
///
/// # Errors
/// `Io`; `Argument` if other work has left a mark, or work on another part.
pub(crate) fn check_same(file: &File, id: FileId, start: u64, mark: &Mark) -> Result<()> {
    if let Some(found) = read(file, id)?.filter(|found| found.id != mark.id) {
        let rest = mark.work.rest();
        let text = format!("this is not the {rest} of the work that was begun on it. {}", found.text());
        return Err(Error::coded(Code::Unfinished, text));
    }
    for (carrier, start) in carriers_at(file, id, start)? {
        let found = os::attribute(&carrier, MARK_NAME)?.and_then(|value| Some(Mark::decode(&value)?.1));
        if let Some(found) = found.filter(|found| *found != start) {
            let text = format!(
                "the work was begun on the part of it from byte {found} on, not {start}: give that part"
            );
            return Err(Error::coded(Code::Unfinished, text));
        }
    }
    Ok(())
}

/// Sets a mark of work on the part of an open file or block device that begins at byte `start`, on stable storage. Where there are no
/// such attributes nothing happens.
///
/// # Errors
/// Errors of [`check_same`].
pub(crate) fn set(file: &File, id: FileId, start: u64, mark: &Mark) -> Result<()> {
    check_same(file, id, start, mark)?;
    for (carrier, start) in carriers_at(file, id, start)? {
        let set = os::set_attribute(&carrier, MARK_NAME, &mark.encode(start));
        if set.map_err(|error| Error::io(format_args!("its attribute {MARK_NAME}"), error))? {
            carrier.sync_all()?;
        }
    }
    Ok(())
}

/// Removes the mark, on stable storage.
///
/// # Errors
/// `Io`.
pub(crate) fn remove(file: &File, id: FileId) -> Result<()> {
    for carrier in carriers(file, id)? {
        if os::remove_attribute(&carrier, MARK_NAME)? {
            carrier.sync_all()?;
        }
    }
    Ok(())
}

/// The path where symbolic links at the end of a path lead: what lies beside a file lies beside its own name.
pub(crate) fn followed(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    // The system follows no more.
    for _ in 0..40 {
        let Ok(target) = path.read_link() else { break };
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_as_they_were_written_and_nothing_else_is() {
        for work in InPlaceWork::ALL {
            let mark = Mark { work, id: [0xa7; 32], journal: "/a b/disk.journal".into() };
            for start in [0, 51_200] {
                assert_eq!(Mark::decode(&mark.encode(start)), Some((mark.clone(), start)));
            }
            let value = mark.encode(0);
            for len in 0..work.word().len() + 66 {
                assert_eq!(Mark::decode(&value[..len]), None, "{len}");
            }
        }
        assert_eq!(Mark::decode(b"\xff\xff"), None);
    }
}
