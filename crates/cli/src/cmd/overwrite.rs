//! Check of what a target holds, and whether that may be lost.

use std::io::{self, IsTerminal};

use casemate::Error;
use casemate::target::Loss;

use super::luks::confirm;

/// Whether a target may lose what it holds.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct OverwriteArgs {
    /// Destroy what the target holds: a file system, a volume, a partition table; on a device or in a part of an image any data
    /// [default: refuse, or ask at a terminal].
    #[arg(long)]
    pub overwrite: bool,
}

impl OverwriteArgs {
    /// Returns if contents may be lost: by --overwrite, or by the answer of somebody at the terminal.
    ///
    /// # Errors
    /// `Argument`: what would be lost.
    pub fn consent(self, loss: &Loss) -> Result<(), Error> {
        match self.overwrite || !io::stdin().is_terminal() {
            true => self.rehearse(loss),
            false => confirm::ask(&format!("{} contains {}, which will be lost", loss.name(), loss.what())),
        }
    }

    /// Returns if `what` is meant: by --overwrite, or by the answer of somebody at the terminal.
    ///
    /// # Errors
    /// `Argument`: the text, and that it was not confirmed.
    pub fn confirm(self, what: &str) -> Result<(), Error> {
        match (self.overwrite, io::stdin().is_terminal()) {
            (true, _) => Ok(()),
            (false, true) => confirm::ask(what),
            (false, false) => Err(Error::argument(format!("{what}; use --overwrite to confirm"))),
        }
    }

    /// Consent of a command that writes, or only rehearses it.
    pub fn on_trial(self, is_trial: bool) -> impl Fn(&Loss) -> Result<(), Error> {
        move |loss| match is_trial {
            true => self.rehearse(loss),
            false => self.consent(loss),
        }
    }

    /// Consent where nothing is written: nobody is asked.
    ///
    /// # Errors
    /// `Argument`: what would be lost.
    pub fn rehearse(self, loss: &Loss) -> Result<(), Error> {
        match self.overwrite {
            true => Ok(()),
            false => {
                let text = format!("{} contains {}; use --overwrite to destroy it", loss.name(), loss.what());
                Err(Error::argument(text))
            }
        }
    }
}
