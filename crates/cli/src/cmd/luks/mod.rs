//! `casemate luks`: LUKS headers and what is behind them.

mod dump;
mod extract;
mod format;
pub mod options;
mod question;

use clap::Subcommand;

use casemate::Error;

use crate::answer::Answer;
use crate::context::Context;

/// Make LUKS volumes, read their headers, try passphrases, and decrypt what is behind.
///
/// LUKS1 and LUKS2. Other commands read what is in a volume with --luks.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Dump(dump::Args),
    Extract(extract::Args),
    Format(format::Args),
    IsLuks(question::IsLuks),
    TestPassphrase(question::TestPassphrase),
    Uuid(question::Uuid),
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        match self.action {
            Action::Dump(args) => args.run(context),
            Action::Extract(args) => args.run(context),
            Action::Format(args) => args.run(context),
            Action::IsLuks(args) => args.run(context),
            Action::TestPassphrase(args) => args.run(context),
            Action::Uuid(args) => args.run(context),
        }
    }
}
