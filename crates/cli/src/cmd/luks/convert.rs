//! `casemate luks convert`.

use serde_json::json;

use casemate::Error;
use casemate::luks::LuksVersion;

use super::confirm::Confirm;
use super::options::HeaderArgs;
use crate::answer::Answer;
use crate::context::Context;

/// Convert a header from LUKS1 to LUKS2, or back. Keys, UUID and data stay.
///
/// At any moment the volume opens, as one or as the other. A header with features that LUKS1 lacks is refused: sectors
/// larger than 512 bytes, tokens, Argon2 (which convert-key replaces), key slots from 8 on, unbound key slots.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate luks header-backup vault.img vault.header\n\
    \x20 casemate luks convert-key vault.img --key-file pass.key --pbkdf pbkdf2 --iter-time 500\n\
    \x20 casemate luks convert vault.img --type luks1 --batch-mode")]
pub struct Args {
    #[command(flatten)]
    pub header: HeaderArgs,
    /// The new version: luks1 or luks2.
    #[arg(long = "type", value_name = "TYPE", value_parser = ["luks1", "luks2"])]
    pub kind: String,
    #[command(flatten)]
    pub confirm: Confirm,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let mut volume = self.header.changeable(context)?;
        let version = if self.kind == "luks1" { LuksVersion::One } else { LuksVersion::Two };
        self.confirm.ask("the header becomes one of another version, which other tools may not open")?;
        volume.convert(version, &context.opening())?;
        if context.json() {
            context.print_json(&json!({ "version": volume.header().version() }))?;
        }
        self.header.done(context, &format!("it is LUKS{} now", volume.header().version()));
        Ok(Answer::Yes)
    }
}
