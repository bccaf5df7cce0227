//! The terminal without its echo, on systems that have no signals as files: one that ends the process leaves it without.

use std::io;
use std::time::Duration;

use casemate::{SecretSource, SecretVec};
use zeroize::Zeroizing;

/// The terminal that controls this process.
pub struct Terminal;

impl Terminal {
    pub fn open() -> io::Result<Terminal> {
        Ok(Terminal)
    }

    /// A line that is typed without being shown. How long it takes does not matter here.
    pub fn ask(&self, prompt: &str, _timeout: Option<Duration>) -> io::Result<SecretVec> {
        let line = Zeroizing::new(rpassword::prompt_password(prompt)?);
        SecretSource::first_line(&mut line.as_bytes())
    }
}
