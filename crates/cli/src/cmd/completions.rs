//! `casemate completions`: completion scripts for shells.

use clap_complete::Shell;

use casemate::Error;

use crate::answer::Answer;
use crate::context::Context;

/// Print a shell's completion script.
///
/// For bash: casemate completions bash > ~/.local/share/bash-completion/completions/casemate
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The shell to print for.
    shell: Shell,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::command(), "casemate", &mut script);
        context.print(script)?;
        Ok(Answer::Yes)
    }
}
