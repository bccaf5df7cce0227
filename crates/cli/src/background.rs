//! Commands that go on in the background: started, told from the outside, and ended by signals.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use casemate::Error;
use casemate::blockdev::Events;

use crate::answer::Answer;
use crate::context::Context;
use crate::streams::{self, StandardOutput, say};

/// The hidden option of a command that is in the background.
pub const FORKED: &str = "--forked";

/// Byte with which such a command ends its output, as soon as others can use what it provides.
const READY: u8 = 0;

/// Starts this command once more, in the background, and ends when what it does is there: what it prints until then is
/// printed here.
pub fn start(what: &str, context: &Context) -> Result<Answer, Error> {
    let at = |error| Error::io(what, error);
    let (mut said, mut child) = spawn().map_err(at)?;
    if said.pop() != Some(READY) {
        // It has said why.
        return Ok(Answer::Status(exit_status(child.wait().map_err(at)?)));
    }
    if let Err(error) = context.print(said) {
        // Nobody would know where to find it.
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = child.wait();
        return Err(error);
    }
    Ok(Answer::Yes)
}

fn spawn() -> io::Result<(Vec<u8>, Child)> {
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_default();
    let mut args: Vec<OsString> = args.collect();
    let end = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
    args.insert(end, FORKED.into());
    let mut command = Command::new(std::env::current_exe()?);
    let mut child = command.arg0(name).args(args).stdout(Stdio::piped()).spawn()?;
    let mut said = Vec::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_end(&mut said)?;
    }
    Ok((said, child))
}

/// Reports readiness, leaves the terminal, and closes the streams that a shell waits for, such as a pipe that it reads
/// to the end.
pub fn leave() -> Result<(), Error> {
    let leave = || -> io::Result<()> {
        (&StandardOutput::default()).write_all(&[READY])?;
        rustix::process::setsid()?;
        let null = File::options().read(true).write(true).open("/dev/null")?;
        rustix::stdio::dup2_stdin(&null)?;
        rustix::stdio::dup2_stdout(&null)?;
        streams::to_log();
        Ok(rustix::stdio::dup2_stderr(&null)?)
    };
    leave().map_err(|error| Error::io("the background", error))
}

/// Sends signals as events, but no SIGHUP that the parent process had ignored, as nohup does. A second signal of the kind that asks for
/// the end will not wait for it.
pub fn send_signals<E: Send + 'static>(
    wanted: &[i32],
    events: &Sender<E>,
    event: impl Fn(i32) -> E + Send + 'static,
) -> Result<(), Error> {
    let wanted = wanted.iter().filter(|signal| **signal != SIGHUP || !is_ignored(SIGHUP));
    let mut signals = Signals::new(wanted).map_err(|error| Error::io("signals", error))?;
    let events = events.clone();
    thread::spawn(move || {
        let mut stopping = false;
        for signal in signals.forever() {
            let ends = matches!(signal, SIGINT | SIGTERM);
            if ends && std::mem::replace(&mut stopping, true) {
                std::process::exit(130);
            }
            if events.send(event(signal)).is_err() && !ends {
                return;
            }
        }
    });
    Ok(())
}

/// Whether this process was started with a signal ignored. Where the kernel does not tell, it was not.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

/// Prints what goes wrong meanwhile with single requests.
pub struct Faults;

impl Events for Faults {
    fn note(&self, text: &str) {
        say(format_args!("casemate: {text}"));
    }
}

/// A process's exit status as a shell says it.
pub fn exit_status(status: ExitStatus) -> u8 {
    let number = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    number.and_then(|number| u8::try_from(number).ok()).unwrap_or(2)
}
