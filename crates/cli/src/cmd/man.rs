//! `casemate man`: manual pages from the same source as `--help`.

use std::path::PathBuf;

use clap::CommandFactory;

use casemate::Error;

use crate::Cli;
use crate::answer::Answer;
use crate::context::Context;

/// Write the manual pages, one for each command.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The folder to write to, such as /usr/local/share/man/man1; made if it is not there.
    folder: PathBuf,
}

impl Args {
    pub fn run(self, _context: &Context) -> Result<Answer, Error> {
        let made = std::fs::create_dir_all(&self.folder);
        let result = made.and_then(|()| clap_mangen::generate_to(Cli::command(), &self.folder));
        result.map_err(|error| Error::io(self.folder.display(), error))?;
        Ok(Answer::Yes)
    }
}
