//! Commands that go on in the background: started, told from the outside, and ended by signals.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, set_parent_process_death_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use casemate::blockdev::{Events, u32_of};
use casemate::target::{self, Loss, Made};
use casemate::{Access, Error, Output};

use crate::answer::Answer;
use crate::context::Context;
use crate::signals;
use crate::streams::{self, StandardOutput, say};

/// The hidden option of a command that is in the background.
pub const FORKED: &str = "--forked";

/// Byte with which such a command ends its output, as soon as others can use what it provides.
const READY: u8 = 0;

/// Starts this command once more, in the background, and ends when what it does is there: what it prints until then is
/// printed here. `ending` says for whoever is at a terminal how the process with a number is ended.
///
/// A signal ends both processes, or none. Until the new process is told to go on, it ends with this one; from then on this one
/// ends as if no signal had come.
pub fn start(what: &str, ending: fn(u32) -> Option<String>, context: &Context) -> Result<Answer, Error> {
    let at = |error| Error::io(what, error);
    let (mut child, mut talk) = spawn().map_err(at)?;
    let mut said = Vec::new();
    talk.read_until(READY, &mut said).map_err(at)?;
    if said.pop() != Some(READY) {
        // It has said why.
        return Ok(Answer::Status(exit_status(child.wait().map_err(at)?)));
    }
    // Also where a service goes on without a reader: this is how it is found.
    let told = (&StandardOutput::default()).write_all(&said);
    if let Err(error) = told.map_err(|error| Error::io("standard output", error)) {
        // Nobody would know where to find it. It ends with the stream.
        drop(talk);
        let _ = child.wait();
        return Err(error);
    }
    ignore_signals().map_err(at)?;
    if talk.get_mut().write_all(&[READY]).is_err() {
        // It has ended meanwhile.
        return Ok(Answer::Status(exit_status(child.wait().map_err(at)?)));
    }
    // It closes the stream when it has left.
    talk.read_to_end(&mut Vec::new()).map_err(at)?;
    ending(child.id()).iter().for_each(|text| context.hint(text));
    Ok(Answer::Yes)
}

/// The new process, and the stream that it has as its standard output.
fn spawn() -> io::Result<(Child, BufReader<UnixStream>)> {
    let (talk, stdout) = UnixStream::pair()?;
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_default();
    let mut args: Vec<OsString> = args.collect();
    let end = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
    args.insert(end, FORKED.into());
    let mut command = Command::new(std::env::current_exe()?);
    let child = command.arg0(name).args(args).stdout(OwnedFd::from(stdout)).spawn()?;
    Ok((child, BufReader::new(talk)))
}

/// Has this process ignore the signals that would end it.
fn ignore_signals() -> io::Result<()> {
    let came = Arc::default();
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&came))?;
    }
    Ok(())
}

/// Has a command in the background asked to end when the process that started it ends before it is there for others: nobody would
/// know of it.
pub fn end_with_parent() -> Result<(), Error> {
    set_parent_process_death_signal(Some(Signal::TERM)).map_err(|error| Error::io("signals", error))
}

/// The file that messages go to.
#[derive(clap::Args, Debug)]
pub struct LogArgs {
    /// Append messages to this file, with their times: that the work is there for others, what goes wrong from then on, and the
    /// end [default: standard error; in the background the system's log].
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

impl LogArgs {
    /// Opens the file, so that it is known early whether it can be written.
    ///
    /// # Errors
    /// `Io`; `Argument` for one of these other files of the command, and for one that holds a volume, a file system or anything else
    /// that is known: messages at its end would damage it.
    pub fn open(&self, others: &[&Path]) -> Result<Log, Error> {
        let Some(path) = &self.log else { return Ok(Log(None)) };
        Output::check(path, others)?;
        let refuse = |loss: &Loss| -> Result<(), Error> {
            let what = loss.what();
            Err(Error::argument(format!("contains {what}; messages are only added to a file of them"))
                .at(loss.name()))
        };
        target::look_at_path(path, Some(Made::Data), &refuse)?;
        // Nor to an image on which work is unfinished, whatever it begins with.
        if path.exists() {
            drop(Access::ReadUnlocked.open(path)?);
        }
        let file = File::options().append(true).create(true).open(path);
        file.map(|file| Log(Some(file))).map_err(|error| Error::io(path.display(), error))
    }
}

impl LogArgs {
    /// Writes a line to the file, if there is one, that tells of the work's beginning or end.
    pub fn note(&self, text: &str) {
        if self.log.is_some() {
            say(format_args!("casemate: {text}"));
        }
    }
}

/// A file for messages, if there is one.
pub struct Log(Option<File>);

impl Log {
    /// Sends messages there from now on.
    pub fn begin(self) -> bool {
        let Log(file) = self;
        let is_given = file.is_some();
        file.into_iter().for_each(streams::to_file);
        is_given
    }
}

/// Reports readiness, waits for the word to go on, leaves the terminal, and closes the streams that a shell waits for, such as a
/// pipe that it reads to the end.
///
/// # Errors
/// `Io`, also if the process that started this one ended without that word: nobody knows of this one.
pub fn leave(log: Log) -> Result<(), Error> {
    let leave = || -> io::Result<()> {
        (&StandardOutput::default()).write_all(&[READY])?;
        if rustix::io::retry_on_intr(|| rustix::io::read(rustix::stdio::stdout(), &mut [0]))? == 0 {
            // It has said why, or a signal ended it.
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        set_parent_process_death_signal(None)?;
        rustix::process::setsid()?;
        let null = File::options().read(true).write(true).open("/dev/null")?;
        rustix::stdio::dup2_stdin(&null)?;
        rustix::stdio::dup2_stdout(&null)?;
        if !log.begin() {
            streams::to_log();
        }
        Ok(rustix::stdio::dup2_stderr(&null)?)
    };
    leave().map_err(|error| Error::io("the background", error))
}

/// Sends signals as events, but none that the parent process had ignored, as nohup does with SIGHUP. A second signal of the kind that asks for
/// the end will not wait for it.
pub fn send_signals<E: Send + 'static>(
    wanted: &[i32],
    events: &Sender<E>,
    event: impl Fn(i32) -> E + Send + 'static,
) -> Result<(), Error> {
    let wanted = wanted.iter().filter(|signal| !signals::is_ignored(**signal));
    signals::leave_to_receiver();
    let mut received = Signals::new(wanted).map_err(|error| Error::io("signals", error))?;
    let events = events.clone();
    thread::spawn(move || {
        let mut stopping = false;
        for signal in received.forever() {
            let ends = matches!(signal, SIGINT | SIGTERM);
            if ends && std::mem::replace(&mut stopping, true) {
                std::process::exit(signals::status_of(signal).into());
            }
            if ends || signal == SIGHUP {
                signals::note(signal);
            }
            if events.send(event(signal)).is_err() && !ends {
                return;
            }
        }
    });
    Ok(())
}

/// Printer of what goes wrong meanwhile with single requests: so many messages at once, then a few. A damaged image has as many faults
/// as it is read, and fills no disk with reports. At its end it says how many it left out.
#[derive(Default)]
pub struct Faults(Arc<Told>);

/// Messages that were told so far. The threads of clients may have it longer than [`Faults`].
#[derive(Default)]
struct Told(Mutex<Limit>);

impl Faults {
    /// The receiver of messages.
    pub fn events(&self) -> Arc<dyn Events + Send + Sync> {
        let told: Arc<Told> = Arc::clone(&self.0);
        told
    }
}

impl Events for Told {
    fn note(&self, text: &str) {
        let mut limit = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match limit.pass(Instant::now()) {
            None => {}
            Some(0) => say(format_args!("casemate: {text}")),
            Some(left_out) => {
                say(format_args!("casemate: {text} ({left_out} messages before it were left out)"))
            }
        }
    }
}

impl Drop for Faults {
    fn drop(&mut self) {
        let left_out = self.0.0.lock().unwrap_or_else(PoisonError::into_inner).left_out;
        if left_out > 0 {
            say(format_args!("casemate: {left_out} messages were left out at the end"));
        }
    }
}

/// How many messages pass.
#[derive(Debug)]
pub struct Limit {
    /// Messages that may pass at once.
    credit: u32,
    /// When the credit was raised last.
    raised: Option<Instant>,
    /// Messages that were left out since the last one that passed.
    left_out: u64,
}

/// Messages that pass at once.
const BURST: u32 = 20;

/// After this time one more message passes.
const PAUSE: Duration = Duration::from_secs(10);

impl Default for Limit {
    fn default() -> Limit {
        Limit { credit: BURST, raised: None, left_out: 0 }
    }
}

impl Limit {
    /// Whether a message passes at this time, and how many were left out before it.
    fn pass(&mut self, now: Instant) -> Option<u64> {
        let since = now.saturating_duration_since(*self.raised.get_or_insert(now));
        let more = since.as_secs() / PAUSE.as_secs();
        if more > 0 {
            self.credit = self.credit.saturating_add(u32_of(more)).min(BURST);
            self.raised = Some(now);
        }
        match self.credit.checked_sub(1) {
            Some(rest) => {
                self.credit = rest;
                Some(std::mem::take(&mut self.left_out))
            }
            None => {
                self.left_out += 1;
                None
            }
        }
    }
}

/// A process's exit status as a shell says it.
pub fn exit_status(status: ExitStatus) -> u8 {
    let number = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    number.and_then(|number| u8::try_from(number).ok()).unwrap_or(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_messages_is_cut_and_counted() {
        let (mut limit, start) = (Limit::default(), Instant::now());
        let passed = (0..1000).filter(|_| limit.pass(start).is_some()).count();
        assert_eq!(passed, 20);
        // One each ten seconds, with what was left out before it.
        assert_eq!(limit.pass(start + PAUSE - Duration::from_millis(1)), None);
        assert_eq!(limit.pass(start + PAUSE), Some(981));
        assert_eq!(limit.pass(start + PAUSE), None);
        // After a pause as many pass as at the beginning.
        let later = start + PAUSE * 1000;
        assert_eq!(limit.pass(later), Some(1));
        assert_eq!((0..1000).filter(|_| limit.pass(later).is_some()).count(), 19);
    }
}
