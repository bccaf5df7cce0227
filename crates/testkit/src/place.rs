//! A folder of one test, and the command that works there.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::{TempDir, tempdir};

use crate::{run, run_any};

/// A folder that is gone when the test ends, and the program under test.
pub struct Place {
    folder: TempDir,
    program: PathBuf,
    words: &'static str,
}

impl Place {
    /// An empty folder; `program` is what a test builds, `env!("CARGO_BIN_EXE_...")`.
    pub fn new(program: impl Into<PathBuf>) -> Place {
        Place::under(program, "")
    }

    /// A place for the program's command of these words.
    pub fn under(program: impl Into<PathBuf>, words: &'static str) -> Place {
        Place { folder: tempdir().unwrap(), program: program.into(), words }
    }

    /// The folder itself.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The path of a file in the folder.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder().join(name)
    }

    /// Writes a file. Returns its path.
    pub fn file(&self, name: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// The bytes of a file.
    pub fn read(&self, name: impl AsRef<Path>) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    /// XORs a byte of a file.
    pub fn flip(&self, name: impl AsRef<Path>, offset: usize, with: u8) {
        let mut bytes = self.read(&name);
        bytes[offset] ^= with;
        self.file(name, bytes);
    }

    /// The names in the folder, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Runs a program in the folder; arguments are words.
    pub fn run(&self, program: impl AsRef<OsStr>, line: &str) -> Output {
        run_any(Command::new(program).args(line.split_whitespace()).current_dir(self.folder()))
    }

    /// Runs a script in the folder, with the tools of the system. Returns what it prints.
    pub fn sh(&self, script: &str) -> String {
        let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
        run(Command::new("bash").args(["-euc", script]).env("PATH", path).current_dir(self.folder()))
    }

    /// Runs the program under test in the folder, without input; arguments are words.
    pub fn own(&self, line: &str) -> Output {
        run_any(self.command().args(line.split_whitespace()).stdin(Stdio::null()))
    }

    /// Runs the program under test, which must end with this status and say this on standard error.
    #[track_caller]
    pub fn is(&self, line: &str, expected: i32, said: &str) -> Output {
        let output = self.own(line);
        let talk = stderr(&output);
        assert_eq!(status(&output), expected, "{line}: {talk}");
        assert!(talk.contains(said), "{line}: {talk}");
        output
    }

    /// Runs the program under test, which must succeed and have nothing to say. Returns what it prints.
    #[track_caller]
    pub fn yes(&self, line: &str) -> String {
        let output = self.is(line, 0, "");
        assert_eq!(stderr(&output), "", "{line}");
        stdout(&output)
    }

    /// The program under test as a command in the folder, for arguments with spaces, input and variables.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(self.words.split_whitespace()).current_dir(self.folder());
        command
    }

    /// A link to the program under test, by which it is called as another tool.
    pub fn link(&self, name: &str) -> PathBuf {
        let link = self.path(name);
        let _ = symlink(&self.program, &link);
        link
    }
}

/// The standard output of a program.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The standard error of a program.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The exit status, or -1 of a program that was killed.
pub fn status(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

/// Starts a command's program in its folder with no signal ignored: a shell ignores SIGINT for what it runs in the background, as it
/// may run these tests.
pub fn heeding_signals(command: &Command) -> Command {
    let mut new = Command::new("env");
    new.arg("--default-signal=HUP,INT,TERM").arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        new.current_dir(folder);
    }
    new
}
