//! The terminal without its echo, on systems that have no signals as files: one that ends the process leaves it without.

use std::io;

use casemate::{SecretSource, SecretVec};
use zeroize::Zeroizing;

/// The terminal that controls this process.
pub struct Terminal;

impl Terminal {
    pub fn open() -> io::Result<Terminal> {
        Ok(Terminal)
    }

    /// A line that is typed without being shown.
    pub fn ask(&self, prompt: &str) -> io::Result<SecretVec> {
        let line = Zeroizing::new(rpassword::prompt_password(prompt)?);
        SecretSource::first_line(&mut line.as_bytes())
    }
}
