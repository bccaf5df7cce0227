//! Power that fails while a command changes files: what may be left of them, as many states as are wanted.
//!
//! A command runs under `strace` ([`record`]), which notes everything that it, its threads and its children change in
//! one folder: bytes and sizes of files, names, and what was flushed when. From these notes come the states that a loss
//! of power can leave ([`Recording::states`]):
//!
//! - Power fails before, while or after any of the calls.
//! - Of what was not flushed there is any part: each sector of 512 bytes is as it was before or after any of the writes
//!   that touch it. A write counts as flushed once a flush of its file that began after it has ended.
//! - A file's size, and names that were made, moved or removed, come in the same way: the names with a flush of the
//!   folder, whatever became of the files.
//! - A flush that failed leaves in doubt what it was for, and no later flush ends that doubt: kernels call such pages
//!   clean.
//!
//! Writes that strace does not show (mapped memory, `io_uring`, copies within the kernel) make the recording fail, so
//! nothing is missed in silence.

mod disk;
mod trace;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::{find_program, run_any, skip};

pub use disk::{Recording, State};

/// An error that the kernel gives in place of doing a call.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// The system call's name.
    pub call: &'static str,
    /// The error, such as `EIO`.
    pub error: &'static str,
    /// Which of the calls fails, counted from 1.
    pub number: usize,
}

/// The files of a folder by their names.
pub type Files = BTreeMap<String, Vec<u8>>;

/// The files that lie in a folder.
///
/// # Panics
/// If there is anything but files.
pub fn read_folder(folder: &Path) -> Files {
    let entries = fs::read_dir(folder).expect("the folder can be read");
    let read = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().expect("a name in UTF-8");
        (name, fs::read(entry.path()).expect("a file that can be read"))
    };
    entries.map(|entry| read(entry.expect("an entry"))).collect()
}

/// Makes a folder hold these files, and nothing else.
///
/// # Panics
/// If that can't be done.
pub fn write_folder(folder: &Path, files: &Files) {
    for entry in fs::read_dir(folder).expect("the folder can be read") {
        fs::remove_file(entry.expect("an entry").path()).expect("a file that can be removed");
    }
    for (name, bytes) in files {
        fs::write(folder.join(name), bytes).expect("a file that can be written");
    }
}

/// Runs a command in `folder` to its end, with a fault where one is wanted, and notes what it changes there.
///
/// `None`, after a skip, where there is no `strace` or it may not trace.
///
/// # Panics
/// If the command does what can't be noted.
pub fn record(command: &Command, folder: &Path, fault: Option<Fault>) -> Option<(Recording, Output)> {
    let Some(strace) = find_program("strace") else {
        skip("power: no strace");
        return None;
    };
    let folder = folder.canonicalize().expect("the folder is there");
    let before = read_folder(&folder);
    let notes = tempfile::NamedTempFile::new().expect("a temporary file");
    let mut traced = Command::new(strace);
    traced.args(["-f", "-y", "-xx", "-s", "268435456", "-e", "signal=none", "-o"]).arg(notes.path());
    traced.args(["-e", &format!("trace={}", trace::CALLS)]);
    if let Some(Fault { call, error, number }) = fault {
        traced.args(["-e", &format!("inject={call}:error={error}:when={number}")]);
    }
    traced.arg(command.get_program()).args(command.get_args()).current_dir(&folder);
    for (name, value) in command.get_envs() {
        traced.env(name, value.unwrap_or_default());
    }
    let output = run_any(&mut traced);
    let text = fs::read_to_string(notes.path()).expect("the notes are text");
    if text.is_empty() {
        skip(&format!("power: strace may not trace: {}", String::from_utf8_lossy(&output.stderr).trim()));
        return None;
    }
    let recording = trace::parse(&text, &folder, before);
    // What was noted must be what is there.
    let (noted, found) = (recording.end().files, read_folder(&folder));
    assert!(noted.keys().eq(found.keys()), "noted {:?}, found {:?}", noted.keys(), found.keys());
    for (name, bytes) in &found {
        assert!(noted[name] == *bytes, "{name}: not all changes were noted");
    }
    Some((recording, output))
}
