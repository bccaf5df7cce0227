//! Standard output and standard error, as all commands write them: no other file of the command touches these streams.
//!
//! A reader of standard output may stop reading. A command that prints what it finds ends then, as one of coreutils does,
//! with an exit status that is not zero ([`crate::answer::CUT`]). A command whose exit status is an answer goes on without
//! its reader, because the answer is still to be found; see [`StandardOutput::goes_on`]. A stream that was closed when the process
//! began is an error for all: nobody closed it in answer to what was printed.
// The one place where these streams are used.
#![expect(clippy::disallowed_methods)]

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use casemate::blockdev::inputs;
use casemate::{Error, Output};

/// Beginning of this command's own messages.
pub const OWN_PREFIX: &str = "casemate: ";

/// Standard output. Bytes go to the system with each write: none waits in memory for the end of the process, where an error
/// would be lost.
#[derive(Debug, Default)]
pub struct StandardOutput {
    /// Whether the command does its work when nobody reads what it prints.
    goes_on: bool,
    /// Whether the reader has closed the pipe.
    is_closed: AtomicBool,
}

impl StandardOutput {
    /// Standard output of a command that does its work to the end, whether or not somebody reads: what is written after
    /// the reader has closed the pipe is dropped, and is not an error.
    pub fn goes_on() -> StandardOutput {
        StandardOutput { goes_on: true, is_closed: AtomicBool::new(false) }
    }

    /// Standard output for data that are not text.
    ///
    /// # Errors
    /// `Argument` if it is a terminal, which they would upset; `Io` if it was closed when the process began.
    pub fn for_data(&self) -> Result<&StandardOutput, Error> {
        self.check_open()?;
        match self.is_terminal() {
            true => Err(Error::argument("standard output is a terminal; send the data to a file or a pipe")),
            false => Ok(self),
        }
    }

    /// Refuses a standard output that was closed when the process began, before work whose outcome it is to take.
    ///
    /// # Errors
    /// `Io`.
    pub fn check_open(&self) -> Result<(), Error> {
        check_output().map_err(|error| Error::io("standard output", error))
    }

    /// Standard output for what is made of these files, and of standard input: it is none of them.
    ///
    /// # Errors
    /// `Argument` if it leads to one of them, and would be read in its turn, or replace what is still to be read.
    pub fn apart_from(&self, files: &[PathBuf]) -> Result<&StandardOutput, Error> {
        let input = [Path::new("/dev/stdin")];
        let files: Vec<&Path> = files.iter().map(PathBuf::as_path).chain(input).collect();
        Output::check(Path::new("/dev/stdout"), &files).map(|()| self)
    }

    pub fn is_terminal(&self) -> bool {
        io::stdout().is_terminal()
    }
}

impl Write for &StandardOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_closed.load(Ordering::Relaxed) {
            return Ok(bytes.len());
        }
        check_output()?;
        check_inputs()?;
        let mut out = io::stdout().lock();
        match out.write_all(bytes).and_then(|()| out.flush()) {
            Err(error) if self.goes_on && error.kind() == io::ErrorKind::BrokenPipe => {
                self.is_closed.store(true, Ordering::Relaxed);
                Ok(bytes.len())
            }
            result => result.map(|()| bytes.len()),
        }
    }

    /// Nothing is kept that could be flushed.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Looks at the standard streams before anything else is done. What stands in the place of one that was closed, and would take
/// every byte or seem empty, becomes a file that refuses, also when it is opened as `/dev/stdin` or `/dev/stdout`.
pub fn begin() {
    inputs::watch_output();
    #[cfg(target_os = "linux")]
    {
        use casemate_sys::standard::{Standard, was_closed};
        use std::fs::File;
        // Where there is no such file, the null device stays.
        if was_closed(Standard::Output)
            && let Ok(full) = File::options().write(true).open("/dev/full")
        {
            let _ = rustix::stdio::dup2_stdout(full);
        }
        if was_closed(Standard::Input)
            && let Ok(folder) = File::open("/")
        {
            let _ = rustix::stdio::dup2_stdin(folder);
        }
    }
}

/// Files that the command line says are read.
static INPUTS: OnceLock<Vec<PathBuf>> = OnceLock::new();

/// Tells the files that the command reads: nothing is printed into one of them.
pub fn keep_inputs(files: Vec<PathBuf>) {
    let _ = INPUTS.set(files);
}

/// Refuses to print into a file that the command reads: one that the command line names, as long as nothing is printed yet, and an
/// image that was opened, at any time.
fn check_inputs() -> io::Result<()> {
    static LOST: OnceLock<Option<PathBuf>> = OnceLock::new();
    let named = || INPUTS.get().into_iter().flatten().cloned();
    let lost = LOST.get_or_init(|| inputs::lost_by_output(named()));
    match lost.as_deref().or_else(inputs::read_output) {
        None => Ok(()),
        Some(path) => {
            let text = format!("this would replace {}", path.display());
            Err(io::Error::other(Error::argument(text).at("/dev/stdout")))
        }
    }
}

/// Refuses a standard output that was closed when the process began.
fn check_output() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use casemate_sys::standard::{Standard, was_closed};
        if was_closed(Standard::Output) {
            return Err(rustix::io::Errno::BADF.into());
        }
    }
    Ok(())
}

/// Prints what the parser of the command line has to say to standard output: help, a version.
pub fn print_parsed(text: &clap::Error) -> io::Result<()> {
    check_output()?;
    text.print()
}

/// Writes a message of one line to standard error, without what would steer a terminal or begin another line: names in it may
/// be from an image. Where nobody takes it, nobody is told.
pub fn say(message: impl Display) {
    tell(visible(&message.to_string()) + "\n");
}

/// Writes text of our own to standard error as it is, or to the system's log once this process has left its terminal.
pub fn tell(text: impl Display) {
    match ELSEWHERE.get() {
        Some(tell) => tell(&text.to_string()),
        None => drop(io::stderr().lock().write_all(text.to_string().as_bytes())),
    }
}

/// Takes messages that standard error would lose.
type Listener = Box<dyn Fn(&str) + Send + Sync>;

static ELSEWHERE: OnceLock<Listener> = OnceLock::new();

/// Sends messages to a file from now on, each with its time.
#[cfg(target_os = "linux")]
pub fn to_file(file: std::fs::File) {
    let process = std::process::id();
    let tell = move |text: &str| {
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let time = crate::calendar::utc(time.map_or(0, |time| time.as_secs()));
        let text = text.trim_end().strip_prefix(OWN_PREFIX).unwrap_or(text.trim_end()).replace('\n', " ");
        // One write, so that lines of several processes do not mix. A file that takes no more is not waited for.
        drop((&file).write_all(format!("{time} casemate[{process}]: {text}\n").as_bytes()));
    };
    let _ = ELSEWHERE.set(Box::new(tell));
}

/// Sends messages to the system's log from now on (syslog(3): a daemon's errors), or nowhere if there is none.
#[cfg(target_os = "linux")]
pub fn to_log() {
    use std::os::unix::net::UnixDatagram;

    let Ok(socket) = UnixDatagram::unbound() else { return };
    let process = std::process::id();
    let tell = move |text: &str| {
        let text = text.trim_end().strip_prefix(OWN_PREFIX).unwrap_or(text.trim_end()).replace('\n', " ");
        let line = format!("<{DAEMON_ERROR}>casemate[{process}]: {text}");
        // A log that does not listen is not waited for.
        let _ = socket.set_nonblocking(true).and_then(|()| socket.send_to(line.as_bytes(), LOG));
    };
    let _ = ELSEWHERE.set(Box::new(tell));
}

/// Where the system's log listens, and what messages of daemons about errors begin with.
#[cfg(target_os = "linux")]
const LOG: &str = "/dev/log";
#[cfg(target_os = "linux")]
const DAEMON_ERROR: u8 = 3 << 3 | 3;

/// Whether a person sees standard error.
pub fn is_watched() -> bool {
    io::stderr().is_terminal()
}

/// JSON without characters that steer a terminal: those that JSON lets stand in its strings are written as escapes.
pub fn json(text: String) -> String {
    let stands = |c: char| steers(c) && c != '\n';
    if !text.contains(stands) {
        return text;
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match stands(c) {
            // OK: all of these have 16 bits.
            true => escaped += &format!("\\u{:04x}", u32::from(c)),
            false => escaped.push(c),
        }
    }
    escaped
}

/// Text without characters that steer a terminal, or that change the order of what stands beside them; nor does it have
/// line ends and tabs.
pub fn visible(text: &str) -> String {
    text.chars().map(|c| if steers(c) { '?' } else { c }).collect()
}

/// As [`visible`], for text that has several lines.
pub fn visible_lines(text: &str) -> String {
    text.chars().map(|c| if steers(c) && !matches!(c, '\n' | '\t') { '?' } else { c }).collect()
}

/// Control characters of ASCII and of Unicode's first block, and marks of the direction of text.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_an_image_steers_a_terminal() {
        assert_eq!(visible("a\u{1b}[31mb\nc\td\u{9b}m\u{202e}e\u{7f}"), "a?[31mb?c?d?m?e?");
        assert_eq!(visible_lines("a\u{1b}\n\tb\r"), "a?\n\tb?");
        let text = serde_json::json!("a\u{1b}\n\u{9b}\u{202e}\u{7f}").to_string();
        let escaped = json(text);
        assert!(!escaped.contains(steers), "{escaped}");
        assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), "a\u{1b}\n\u{9b}\u{202e}\u{7f}");
        assert_eq!(visible("a\u{a0}\u{2502} \u{fffd}\u{e9}"), "a\u{a0}\u{2502} \u{fffd}\u{e9}");
    }
}
