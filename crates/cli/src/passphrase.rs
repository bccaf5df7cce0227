//! Passphrases: asked for on the terminal, or the first line of standard input.

#[cfg(target_os = "linux")]
mod terminal;
#[cfg(not(target_os = "linux"))]
#[path = "passphrase/terminal_plain.rs"]
mod terminal;

use std::io::{self, IsTerminal, Read};
use std::path::Path;

use casemate::blockdev::os;
use casemate::{Error, SecretSource, SecretVec};

use self::terminal::Terminal;

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
        let mut input = os::input()?;
        let mut first = SecretVec::zeroed(1);
        match input.read_exact(first.expose_mut()) {
            Ok(()) => SecretSource::first_line(&mut first.expose().chain(input)).map(Some),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    };
    line().map_err(|error| Error::io("the passphrase", error))
}
