//! `casemate luks`: LUKS headers and what is behind them.

mod backup;
mod benchmark;
mod check;
mod config;
pub mod confirm;
mod convert;
mod dump;
mod extract;
mod format;
mod keys;
pub mod options;
mod pbkdf;
mod question;
mod reencrypt;
mod repair;
mod token;

use clap::Subcommand;

use casemate::Error;

use crate::answer::Answer;
use crate::context::Context;

/// Make LUKS volumes, decrypt what is in them, and change their headers.
///
/// LUKS1 and LUKS2. Other commands read what is in a volume with --luks.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    AddKey(keys::AddKey),
    Benchmark(benchmark::Args),
    ChangeKey(keys::ChangeKey),
    Config(config::Args),
    Check(check::Args),
    Convert(convert::Args),
    ConvertKey(keys::ConvertKey),
    Dump(dump::Args),
    DumpVolumeKey(keys::DumpVolumeKey),
    Erase(keys::Erase),
    Extract(extract::Args),
    Format(format::Args),
    HeaderBackup(backup::Backup),
    HeaderRestore(backup::Restore),
    IsLuks(question::IsLuks),
    KillSlot(keys::KillSlot),
    Reencrypt(reencrypt::Args),
    RemoveKey(keys::RemoveKey),
    Repair(repair::Args),
    TestPassphrase(question::TestPassphrase),
    Token(token::Args),
    Uuid(question::Uuid),
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        match self.action {
            Action::AddKey(args) => args.run(context),
            Action::ChangeKey(args) => args.run(context),
            Action::Config(args) => args.run(context),
            Action::Check(args) => args.run(context),
            Action::Dump(args) => args.run(context),
            Action::Erase(args) => args.run(context),
            Action::Extract(args) => args.run(context),
            Action::Format(args) => args.run(context),
            Action::HeaderBackup(args) => args.run(context),
            Action::HeaderRestore(args) => args.run(context),
            Action::IsLuks(args) => args.run(context),
            Action::KillSlot(args) => args.run(context),
            Action::Reencrypt(args) => args.run(context),
            Action::RemoveKey(args) => args.run(context),
            Action::Repair(args) => args.run(context),
            Action::TestPassphrase(args) => args.run(context),
            Action::Token(args) => args.run(context),
            Action::Benchmark(args) => args.run(context),
            Action::Convert(args) => args.run(context),
            Action::ConvertKey(args) => args.run(context),
            Action::DumpVolumeKey(args) => args.run(context),
            Action::Uuid(args) => args.run(context),
        }
    }
}
