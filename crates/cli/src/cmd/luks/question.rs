//! `casemate luks is-luks`, `uuid` and `test-passphrase`.

use std::io::{self, IsTerminal};

use serde_json::json;

use casemate::luks::{self, Reason, Settings};
use casemate::{Access, Error, ErrorKind};

use super::manners::{Did, WRONG_PASSPHRASE, Wanted};
use super::options::{HeaderArgs, VolumeArgs};
use crate::answer::Answer;
use crate::cmd::place::{PlaceArgs, VolumeKind};
use crate::context::Context;
use crate::streams::say;

/// Test whether an image begins with a valid LUKS header, by the exit status.
#[derive(clap::Args, Debug)]
pub struct IsLuks {
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Accept only this version: 1 or 2.
    #[arg(long = "type", value_name = "TYPE", value_parser = ["luks", "luks1", "luks2"], default_value = "luks")]
    pub kind: String,
}

/// Print or change the UUID in a LUKS header.
#[derive(clap::Args, Debug)]
pub struct Uuid {
    #[command(flatten)]
    pub header: HeaderArgs,
    /// Change the UUID to this one.
    #[arg(long, value_name = "UUID")]
    pub uuid: Option<String>,
}

/// Test a passphrase, or a volume key, without decrypting data. The exit status is 1 for a wrong one, and 2 if a key slot was not
/// tried.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate luks test-passphrase vault.img --key-file pass.key\n\
    \x20 echo secret | casemate luks test-passphrase vault.img --key-slot 0")]
pub struct TestPassphrase {
    #[command(flatten)]
    pub volume: VolumeArgs,
    /// Also try unbound key slots (LUKS2).
    #[arg(long, conflicts_with = "key_slot")]
    pub unbound: bool,
    /// The size of the volume key in its file, if no key slot tells it.
    #[arg(short = 's', long, value_name = "BITS", requires = "volume_key_file")]
    pub key_size: Option<usize>,
}

impl IsLuks {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let image = self.place.open(Access::ReadUnlocked, VolumeKind::Luks, context)?;
        match image.luks_volume(None, context.providers()) {
            Ok(volume) => {
                let version = volume.header().version();
                let is_wanted = self.kind == "luks" || self.kind == format!("luks{version}");
                Ok(if is_wanted { Answer::Yes } else { Answer::No })
            }
            Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported) => {
                Ok(Answer::No)
            }
            Err(error) => Err(error),
        }
    }
}

impl Uuid {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        if let Some(text) = &self.uuid {
            let mut settings = Settings::default();
            settings.uuid = Some(luks::Uuid::from_text(text)?);
            self.header.changeable(context)?.configure(&settings, &context.opening())?;
            self.header.done(context, &format!("its UUID is {text} now"));
            return Ok(Answer::Yes);
        }
        let volume = self.header.volume(context)?;
        let uuid = super::dump::shown(volume.header().uuid());
        match context.json() {
            true => context.print_json(&json!({ "uuid": uuid }))?,
            false => context.print(format!("{uuid}\n"))?,
        }
        Ok(Answer::Yes)
    }
}

impl TestPassphrase {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let volume = self.volume.volume(Access::ReadUnlocked, context)?;
        let mut options = self.volume.unlock.options()?;
        options.unbound = self.unbound;
        let len = self.volume.volume_key_len(&volume, self.key_size, context)?;
        let is_typed = self.volume.passphrase.reads_standard_input() && io::stdin().is_terminal();
        let mut tries = context.manners().filter(|_| is_typed).map_or(1, |manners| manners.tries);
        let opened = loop {
            let key = self.volume.key_of(len, Wanted::Open, context)?;
            tries = tries.saturating_sub(1);
            match volume.unlock(&key, &options, &context.opening()) {
                Err(error) if tries > 0 && error.cause() == Some(&Reason::WrongPassphrase) => {
                    match context.is_other_tool() {
                        true => say(WRONG_PASSPHRASE),
                        false => context.complain(&error),
                    }
                }
                // Whether the passphrase is right was not found out.
                Err(error)
                    if error.cause() == Some(&Reason::WrongPassphrase)
                        && options.keyslot.is_none()
                        && !context.is_other_tool()
                        && !volume.ignored_slots().is_empty() =>
                {
                    let unknown = Error::unsupported(error.text().into_owned());
                    return Err(error.advice().iter().cloned().fold(unknown, Error::advise));
                }
                opened => break opened?,
            }
        };
        if context.json() {
            context.print_json(&json!({ "key_slot": opened.keyslot }))?;
        }
        match opened.keyslot {
            Some(slot) => {
                context.did(Did::UnlockSlot(slot))?;
                context.done(format_args!("key slot {slot} opens"));
            }
            None => context.done("this is the volume key"),
        }
        Ok(Answer::Yes)
    }
}
