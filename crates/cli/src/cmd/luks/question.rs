//! `casemate luks is-luks`, `uuid` and `test-passphrase`.

use serde_json::json;

use casemate::luks::{self, Settings};
use casemate::{Access, Error, ErrorKind};

use super::options::{HeaderArgs, PlaceArgs, VolumeArgs};
use crate::answer::Answer;
use crate::context::Context;

/// Say with the exit status whether an image begins with a LUKS header that makes sense.
#[derive(clap::Args, Debug)]
pub struct IsLuks {
    #[command(flatten)]
    place: PlaceArgs,
    /// Ask for this version only: 1 or 2.
    #[arg(long = "type", value_name = "TYPE", value_parser = ["luks", "luks1", "luks2"], default_value = "luks")]
    kind: String,
}

/// Print the UUID in a LUKS header, or give it another one.
#[derive(clap::Args, Debug)]
pub struct Uuid {
    #[command(flatten)]
    header: HeaderArgs,
    /// Change the UUID to this one.
    #[arg(long, value_name = "UUID")]
    uuid: Option<String>,
}

/// Try a passphrase, or a volume key; nothing is decrypted. The exit status is 1 for a wrong one.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate luks test-passphrase vault.img --key-file pass.key\n\
    \x20 echo secret | casemate luks test-passphrase vault.img --key-slot 0")]
pub struct TestPassphrase {
    #[command(flatten)]
    volume: VolumeArgs,
}

impl IsLuks {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let image = self.place.open(Access::Read)?;
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
        let volume = self.volume.volume(context)?;
        let key = self.volume.key()?;
        let opened = volume.unlock(&key, &self.volume.unlock.options()?, &context.opening())?;
        if context.json() {
            context.print_json(&json!({ "key_slot": opened.keyslot }))?;
        }
        match opened.keyslot {
            Some(slot) => context.done(format_args!("key slot {slot} opens")),
            None => context.done("this is the volume key"),
        }
        Ok(Answer::Yes)
    }
}
