//! The terminal without its echo.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::SignalFd;
use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};

use casemate::{SecretSource, SecretVec};

/// The terminal that controls this process.
pub struct Terminal(File);

/// The terminal as it was; it is that again when this is dropped.
struct Silent<'a> {
    terminal: &'a File,
    before: Termios,
}

/// Signals that would end or stop the process wait until this is dropped.
struct Held {
    before: SigSet,
}

impl Terminal {
    pub fn open() -> io::Result<Terminal> {
        File::options().read(true).write(true).open("/dev/tty").map(Terminal)
    }

    /// A line that is typed without being shown, and begun in time.
    pub fn ask(&self, prompt: &str, timeout: Option<Duration>) -> io::Result<SecretVec> {
        loop {
            // Whoever comes back from a signal, because it was stopped and goes on, is asked again.
            if let Some(line) = self.try_to_ask(prompt, timeout)? {
                return Ok(line);
            }
        }
    }

    /// `None` if a signal came first. It takes effect when the terminal is as it was.
    fn try_to_ask(&self, prompt: &str, timeout: Option<Duration>) -> io::Result<Option<SecretVec>> {
        let mut terminal = &self.0;
        let held = signals();
        let signals = SignalFd::new(&held)?;
        // The order matters: the echo comes back before the signals do.
        let _held = Held::new(&held)?;
        let _silent = Silent::new(terminal)?;
        terminal.write_all(prompt.as_bytes())?;
        let wanted = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut ready = [wanted(signals.as_fd()), wanted(terminal.as_fd())];
        let timeout = match timeout {
            // What is longer than can be said is as good as for ever.
            Some(timeout) => PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX),
            None => PollTimeout::NONE,
        };
        if poll(&mut ready, timeout)? == 0 {
            terminal.write_all(b"\n")?;
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no passphrase was typed in time"));
        }
        if ready[0].any() == Some(true) {
            terminal.write_all(b"\n")?;
            return Ok(None);
        }
        SecretSource::first_line(&mut terminal).map(Some)
    }
}

impl<'a> Silent<'a> {
    fn new(terminal: &'a File) -> io::Result<Silent<'a>> {
        let before = tcgetattr(terminal)?;
        let mut silent = before.clone();
        silent.local_flags.remove(LocalFlags::ECHO);
        silent.local_flags.insert(LocalFlags::ECHONL);
        tcsetattr(terminal, SetArg::TCSADRAIN, &silent)?;
        Ok(Silent { terminal, before })
    }
}

impl Drop for Silent<'_> {
    fn drop(&mut self) {
        // Nothing can be done where even this fails.
        let _ = tcsetattr(self.terminal, SetArg::TCSADRAIN, &self.before);
    }
}

impl Held {
    fn new(signals: &SigSet) -> io::Result<Held> {
        Ok(Held { before: signals.thread_swap_mask(SigmaskHow::SIG_BLOCK)? })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.before.thread_set_mask();
    }
}

fn signals() -> SigSet {
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGTSTP].into_iter().collect()
}
