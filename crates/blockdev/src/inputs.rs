//! Inputs that one run has beside the files that its arguments name, and standard output, which may be one of its inputs.
//!
//! A key that comes through a descriptor lies in a file of any name. No argument tells it, so each output asks here
//! ([`check_output`]): whatever is claimed for changes, replaced or appended to is neither the file on standard input nor that
//! of a descriptor which a secret is read from.
//!
//! Standard output is opened by whoever began the process, and asks nobody. A program that prints has it watched
//! ([`watch_output`]), and looks before it prints whether an image or a file that it has opened is the same one ([`read_output`]).

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use crate::error::{Error, Result};
use crate::identity::{FileId, shares};
use crate::os;

/// Descriptors that secrets are read from, and the files that were open under their numbers.
static DESCRIPTORS: Mutex<Vec<Descriptor>> = Mutex::new(Vec::new());

/// A descriptor, and the file that was open under its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Descriptor {
    number: u32,
    id: FileId,
    /// When the file was made, where the system tells: its number is given to another file as soon as it is gone.
    created: Option<SystemTime>,
}

impl Descriptor {
    fn of(number: u32) -> Option<Descriptor> {
        let path = format!("/dev/fd/{number}");
        let created = fs::metadata(&path).ok().and_then(|found| found.created().ok());
        FileId::at(Path::new(&path)).map(|id| Descriptor { number, id, created })
    }
}

/// Standard output of a process that prints.
static OUTPUT: OnceLock<Output> = OnceLock::new();

/// An image or a file that this process has opened, and that standard output leads to.
static READ_OUTPUT: OnceLock<PathBuf> = OnceLock::new();

/// File or block device that standard output leads to.
#[derive(Debug)]
struct Output {
    id: FileId,
    /// True if there was something in it before anything was printed.
    has_contents: bool,
}

/// Keeps the outputs of this process from the file that is open under a number: a secret is read from it. Once something else
/// is open under the number, they are no longer kept from it.
pub fn keep_descriptor(number: u32) {
    let Some(descriptor) = Descriptor::of(number) else { return };
    let mut known = DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner);
    known.retain(|other| other.number != number);
    known.push(descriptor);
}

/// The files and devices that this process reads through standard input and other descriptors.
pub fn through_descriptors() -> Vec<FileId> {
    all().into_iter().map(|(_, id)| id).collect()
}

/// Whether a file or device may be an output of this process.
///
/// # Errors
/// `Argument` if it is read through standard input or another descriptor.
pub fn check_output(id: FileId) -> Result<()> {
    match all().into_iter().find(|(_, input)| shares(id, *input)) {
        None => Ok(()),
        Some((0, _)) => Err(Error::argument(
            "standard input is this file, and would be overwritten; choose another output",
        )),
        Some((number, _)) => {
            let text =
                format!("descriptor {number} is this file, and would be overwritten; choose another output");
            Err(Error::argument(text))
        }
    }
}

/// All inputs, with the numbers of their descriptors.
fn all() -> Vec<(u32, FileId)> {
    let known = DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner);
    let open = known.iter().filter(|known| Descriptor::of(known.number) == Some(**known));
    let input = os::standard_input().map(|id| (0, id));
    input.into_iter().chain(open.map(|known| (known.number, known.id))).collect()
}

/// Watches from now on whether an image that is opened is the file or block device that standard output leads to.
pub fn watch_output() {
    if let Some((id, has_contents)) = os::standard_output() {
        let _ = OUTPUT.set(Output { id, has_contents });
    }
}

/// The image, opened so far, that standard output leads to: what is printed would take the place of a part of it.
pub fn read_output() -> Option<&'static Path> {
    READ_OUTPUT.get().map(PathBuf::as_path)
}

/// The first of these files that standard output leads to, and that would lose something to what is printed; nothing has been
/// printed yet. An empty file has nothing to lose: a shell has just made it.
pub fn lost_by_output(mut files: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    let output = OUTPUT.get().filter(|output| output.has_contents)?;
    let is_output = |id: FileId| shares(id, output.id);
    match all().into_iter().find(|(_, id)| is_output(*id)) {
        Some((number, _)) => Some(format!("/dev/fd/{number}").into()),
        None => files.find(|path| FileId::at(path).is_some_and(is_output)),
    }
}

/// Notes that an image is read, or changed.
pub(crate) fn note(id: FileId, path: &Path) {
    note_if(id, path, |_| true);
}

/// Notes that a file is read. One that was empty has nothing to lose: a list of files may have its own name.
pub(crate) fn note_file(id: FileId, path: &Path) {
    note_if(id, path, |output| output.has_contents);
}

fn note_if(id: FileId, path: &Path, counts: impl Fn(&Output) -> bool) {
    if OUTPUT.get().is_some_and(|output| counts(output) && shares(id, output.id)) {
        let _ = READ_OUTPUT.set(path.to_owned());
    }
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(target_os = "linux")]
    fn the_file_of_a_descriptor_is_no_output_as_long_as_it_is_open() {
        use std::fs::File;
        use std::os::fd::AsRawFd;

        use super::*;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, "key").unwrap();
        let (id, file) = (FileId::at(&path).unwrap(), File::open(&path).unwrap());
        check_output(id).unwrap();
        let number = u32::try_from(file.as_raw_fd()).unwrap();
        keep_descriptor(number);
        let error = check_output(id).unwrap_err();
        assert!(error.text().contains(&format!("descriptor {number} is this file")), "{error}");
        assert!(crate::OutputFile::create(&path).is_err());
        drop(file);
        check_output(id).unwrap();
    }
}
