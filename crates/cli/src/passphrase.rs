//! Passphrases: asked for on the terminal, or the first line of standard input.

#[cfg(target_os = "linux")]
mod terminal;
#[cfg(not(target_os = "linux"))]
#[path = "passphrase/terminal_plain.rs"]
mod terminal;

use std::fmt;
use std::io::{self, IsTerminal, Read};
use std::time::Duration;

use clap::builder::TypedValueParser;

use casemate::blockdev::{inputs, os};
use casemate::{Error, SecretSource, SecretVec};

use self::terminal::Terminal;

/// Parser of the number of a descriptor that a key is read from: no output of the command takes the place of its file.
pub fn descriptor() -> impl TypedValueParser<Value = u32> {
    clap::value_parser!(u32).map(|number| {
        inputs::keep_descriptor(number);
        number
    })
}

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
    prompting(asked, None, |of| format!("Enter passphrase for {of}: "))
}

/// As [`source`], with what stands before a passphrase that is typed, and how long that is waited for.
pub fn prompting(
    asked: Asked,
    timeout: Option<Duration>,
    prompt: impl Fn(&str) -> String + Send + Sync + 'static,
) -> SecretSource {
    if !io::stdin().is_terminal() {
        return SecretSource::standard_input();
    }
    SecretSource::prompt(move |of| {
        let at = |error| Error::io("the passphrase", error);
        let terminal = Terminal::open().map_err(at)?;
        let passphrase = terminal.ask(&prompt(of), timeout).map_err(at)?;
        if asked == Asked::Twice && terminal.ask("Verify passphrase: ", timeout).map_err(at)? != passphrase {
            let error = Error::argument("the two passphrases are not the same; nothing was done");
            return Err(error.with_cause(NotTheSame));
        }
        Ok(passphrase)
    })
}

/// Cause of an error: a passphrase that was asked for twice was not the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotTheSame;

impl fmt::Display for NotTheSame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the passphrases differ")
    }
}

impl std::error::Error for NotTheSame {}

/// The passphrase at a place that is not a file: `None` if standard input, where it is read, ends before its first byte. A
/// line of it may be empty.
pub fn if_any(source: &SecretSource, part: Part, of: &str) -> Result<Option<SecretVec>, Error> {
    if io::stdin().is_terminal() {
        return source.passphrase(of).map(Some);
    }
    // Unbuffered: what is behind the line is for whoever reads next.
    let input = || -> io::Result<Option<_>> {
        let mut input = os::input()?;
        let mut passed = SecretVec::zeroed(1);
        for _ in 0..part.offset {
            input.read_exact(passed.expose_mut())?;
        }
        match input.read_exact(passed.expose_mut()) {
            Ok(()) => Ok(Some((passed, input))),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    };
    match input().map_err(|error| Error::io("the passphrase", error))? {
        Some((first, input)) => {
            SecretSource::part_of_line(&mut first.expose().chain(input), part.size).map(Some)
        }
        None => Ok(None),
    }
}

/// The part of a line that is a passphrase.
#[derive(Clone, Copy, Debug, Default)]
pub struct Part {
    /// Bytes that are passed over.
    pub offset: u64,
    /// How many bytes of the rest are taken; all if `None`.
    pub size: Option<usize>,
}
