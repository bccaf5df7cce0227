//! `casemate luks`: LUKS headers and what is behind them.

pub mod backup;
pub mod benchmark;
mod check;
pub mod config;
pub mod confirm;
pub mod convert;
pub mod dump;
mod extract;
pub mod format;
pub mod keys;
pub mod manners;
pub mod options;
pub mod pbkdf;
pub mod question;
pub mod reencrypt;
pub mod repair;
pub mod token;
pub mod volume_key;

use casemate::Error;

use crate::answer::Answer;
use crate::cmd::table::commands;
use crate::context::Context;

/// Make LUKS volumes, decrypt them, and change their headers.
///
/// Works with LUKS1 and LUKS2. Other commands read what is in a volume: see casemate help layers.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

commands! {
    pub enum Action {
        AddKey(keys::AddKey),
        Benchmark(benchmark::Args),
        ChangeKey(keys::ChangeKey),
        Config(config::Args),
        Check(check::Args),
        Convert(convert::Args),
        ConvertKey(keys::ConvertKey),
        Dump(dump::Args),
        DumpVolumeKey(volume_key::DumpVolumeKey),
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
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        self.action.run(context)
    }
}
