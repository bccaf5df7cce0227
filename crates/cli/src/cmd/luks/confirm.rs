//! Questions before something is lost.

use std::fmt;
use std::io::{self, IsTerminal};

use casemate::Error;
use casemate::luks::Volume;

use crate::question::answer;
use crate::streams::visible;

/// Whether somebody is asked.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct Confirm {
    /// Ask nothing, and answer all questions with yes.
    #[arg(long)]
    pub batch_mode: bool,
    /// Whether questions look as those of cryptsetup.
    #[arg(skip)]
    pub is_tool: bool,
}

/// The end of a question.
const SURE: &str = "Are you sure? (Type 'yes' in capital letters): ";

/// Asks at the terminal: returns if the answer is YES.
///
/// # Errors
/// `Argument` for another answer; `Io`.
pub fn ask(what: &str) -> Result<(), Error> {
    is_yes(&format!("{}.\n{SURE}", visible(what)))
}

/// Asks a whole question at the terminal, and looks as cryptsetup and integritysetup do: returns if the answer is YES.
///
/// # Errors
/// `Argument` for another answer; `Io`.
pub fn ask_as_tool(question: &str) -> Result<(), Error> {
    is_yes(&format!("\nWARNING!\n========\n{}\n\n{SURE}", visible(question)))
}

fn is_yes(question: &str) -> Result<(), Error> {
    match &*answer(question)? {
        "YES" => Ok(()),
        _ => Err(Error::argument("the answer was not YES; nothing was done").with_cause(Declined)),
    }
}

/// Cause of an error: a question was not answered with yes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Declined;

impl fmt::Display for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the answer was not YES")
    }
}

impl std::error::Error for Declined {}

impl Confirm {
    /// Returns if what will happen is meant: by --batch-mode, or by the answer of somebody at the terminal.
    pub fn ask(self, what: &str) -> Result<(), Error> {
        if self.batch_mode {
            return Ok(());
        }
        if !io::stdin().is_terminal() {
            return Err(Error::argument(format!("{what}; use --batch-mode to confirm")));
        }
        if self.is_tool { ask_as_tool(&format!("{what}.")) } else { ask(what) }
    }

    /// Asks before the last key slot goes.
    pub fn last_slot(self, volume: &Volume, slot: u32) -> Result<(), Error> {
        match volume.is_last_slot(slot) {
            true => self.ask(&format!(
                "key slot {slot} is the last one that opens the data, and nothing can be read without it"
            )),
            false => Ok(()),
        }
    }
}
