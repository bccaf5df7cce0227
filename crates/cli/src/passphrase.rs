//! Passphrases: asked for on the terminal, or the first line of standard input.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::SignalFd;
use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};

use casemate::{Error, SecretSource, SecretVec};

/// How often a passphrase is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Once: what is read with a wrong one shows it.
    Once,
    /// Twice on a terminal: what is encrypted with a mistyped one is lost.
    Twice,
}

/// Where a passphrase comes from: the terminal; where standard input is none, its first line.
pub fn source(asked: Asked) -> SecretSource {
    if !io::stdin().is_terminal() {
        return SecretSource::standard_input();
    }
    SecretSource::prompt(move |of| {
        let at = |error| Error::io("the passphrase", error);
        let terminal = Terminal::open().map_err(at)?;
        let passphrase = terminal.ask(&format!("Enter passphrase for {of}: ")).map_err(at)?;
        if asked == Asked::Twice && terminal.ask("Verify passphrase: ").map_err(at)? != passphrase {
            return Err(Error::argument("the two passphrases are not the same; nothing was done"));
        }
        Ok(passphrase)
    })
}

/// A passphrase for an image, asked for on the terminal; where standard input is none, its first line, which may be empty, or
/// `None` if it has ended.
pub fn if_any(of: &Path) -> Result<Option<SecretVec>, Error> {
    let of = of.display().to_string();
    if io::stdin().is_terminal() {
        return source(Asked::Once).passphrase(&of).map(Some);
    }
    let line = || -> io::Result<Option<SecretVec>> {
        // Unbuffered: what is behind the line is for whoever reads next.
        let mut input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        let mut first = SecretVec::zeroed(1);
        match input.read_exact(first.expose_mut()) {
            Ok(()) => SecretSource::first_line(&mut first.expose().chain(input)).map(Some),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    };
    line().map_err(|error| Error::io("the passphrase", error))
}

/// The terminal that controls this process.
struct Terminal(File);

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
    fn open() -> io::Result<Terminal> {
        File::options().read(true).write(true).open("/dev/tty").map(Terminal)
    }

    /// A line that is typed without being shown.
    fn ask(&self, prompt: &str) -> io::Result<SecretVec> {
        loop {
            // Whoever comes back from a signal, because it was stopped and goes on, is asked again.
            if let Some(line) = self.try_to_ask(prompt)? {
                return Ok(line);
            }
        }
    }

    /// `None` if a signal came first. It takes effect when the terminal is as it was.
    fn try_to_ask(&self, prompt: &str) -> io::Result<Option<SecretVec>> {
        let mut terminal = &self.0;
        let held = signals();
        let signals = SignalFd::new(&held)?;
        // The order matters: the echo comes back before the signals do.
        let _held = Held::new(&held)?;
        let _silent = Silent::new(terminal)?;
        terminal.write_all(prompt.as_bytes())?;
        let wanted = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut ready = [wanted(signals.as_fd()), wanted(terminal.as_fd())];
        poll(&mut ready, PollTimeout::NONE)?;
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
