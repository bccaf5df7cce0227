//! `casemate luks token`.

use std::io::Write;
use std::path::PathBuf;

use clap::Subcommand;
use serde_json::json;

use casemate::luks::{NewTokenOptions, keyring_token, token_from_json};
use casemate::{Error, Output};

use super::manners::Did;
use super::options::HeaderArgs;
use crate::answer::Answer;
use crate::context::{Context, read_small};
use crate::streams::StandardOutput;

/// Add, copy and remove tokens of LUKS2: metadata for opening key slots without typing a passphrase.
///
/// `casemate luks dump` lists them. Those of systemd, clevis and others are kept as they are.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    pub action: Action,
}

#[derive(Debug, Subcommand)]
pub enum Action {
    Add(Add),
    Export(Export),
    Import(Import),
    Remove(Remove),
    Unassign(Unassign),
}

/// Where a token goes.
#[derive(clap::Args, Debug)]
pub struct NewArgs {
    /// The token's number [default: the first free one].
    #[arg(long, value_name = "N")]
    pub token_id: Option<u32>,
    /// Replace a token of this number.
    #[arg(long, requires = "token_id")]
    pub overwrite: bool,
}

/// Add a token with the name of a passphrase in the kernel's keyring.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
    \x20 casemate luks token add vault.img --key-description vault-key")]
pub struct Add {
    #[command(flatten)]
    pub header: HeaderArgs,
    /// The name of the key in the keyring.
    #[arg(long, value_name = "DESCRIPTION")]
    pub key_description: String,
    /// The key slot that the token opens [default: all that are for the data].
    #[arg(long, value_name = "N")]
    pub key_slot: Option<u32>,
    /// Make a token without a key slot.
    #[arg(long, conflicts_with = "key_slot")]
    pub unbound: bool,
    #[command(flatten)]
    pub new: NewArgs,
}

/// Add a token from a JSON file.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
    \x20 echo '{\"type\":\"note\",\"keyslots\":[\"0\"]}' | casemate luks token import vault.img -")]
pub struct Import {
    #[command(flatten)]
    pub header: HeaderArgs,
    /// The file with the token; "-" is standard input.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// A key slot that the token opens, beside those named in the JSON.
    #[arg(long, value_name = "N")]
    pub key_slot: Option<u32>,
    #[command(flatten)]
    pub new: NewArgs,
}

/// Print a token as JSON, or write it to a file.
#[derive(clap::Args, Debug)]
pub struct Export {
    #[command(flatten)]
    pub header: HeaderArgs,
    /// The token's number.
    #[arg(value_name = "TOKEN")]
    pub token: u32,
    /// The file to write [default: standard output].
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// Remove a token. Its key slots stay.
#[derive(clap::Args, Debug)]
pub struct Remove {
    #[command(flatten)]
    pub header: HeaderArgs,
    /// The token's number.
    #[arg(value_name = "TOKEN")]
    pub token: u32,
}

/// Detach a token from a key slot. Both stay.
#[derive(clap::Args, Debug)]
pub struct Unassign {
    #[command(flatten)]
    pub header: HeaderArgs,
    /// The token's number.
    #[arg(value_name = "TOKEN")]
    pub token: u32,
    /// The number of the key slot.
    #[arg(value_name = "SLOT")]
    pub slot: u32,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        match self.action {
            Action::Add(args) => args.run(context),
            Action::Export(args) => args.run(context),
            Action::Import(args) => args.run(context),
            Action::Remove(args) => {
                args.header.changeable(context)?.remove_token(args.token, &context.opening())?;
                context.did(Did::RemoveToken(args.token))?;
                args.header.done(context, &format!("token {} is removed", args.token));
                Ok(Answer::Yes)
            }
            Action::Unassign(args) => {
                let mut volume = args.header.changeable(context)?;
                volume.unassign_token(args.token, args.slot, &context.opening())?;
                args.header.done(context, &format!("token {} is not of key slot {}", args.token, args.slot));
                Ok(Answer::Yes)
            }
        }
    }
}

impl NewArgs {
    fn options(&self, slots: Vec<u32>) -> NewTokenOptions {
        let mut options = NewTokenOptions::default();
        (options.id, options.overwrite, options.slots) = (self.token_id, self.overwrite, slots);
        options
    }
}

fn answer(header: &HeaderArgs, context: &Context, id: u32) -> Result<Answer, Error> {
    context.did(Did::CreateToken(id))?;
    if context.json() {
        context.print_json(&json!({ "token": id }))?;
    }
    header.done(context, &format!("token {id} is added"));
    Ok(Answer::Yes)
}

impl Add {
    fn run(self, context: &Context) -> Result<Answer, Error> {
        let mut volume = self.header.changeable(context)?;
        let slots = match (self.key_slot, self.unbound) {
            (Some(slot), _) => vec![slot],
            (None, true) => Vec::new(),
            (None, false) => volume.slots_of_data(),
        };
        let token = keyring_token(&self.key_description);
        let id = volume.add_token(token, &self.new.options(slots), &context.opening())?;
        answer(&self.header, context, id)
    }
}

impl Import {
    fn run(self, context: &Context) -> Result<Answer, Error> {
        let token =
            token_from_json(&read_small(&self.file)?).map_err(|error| error.at(self.file.display()))?;
        let mut volume = self.header.changeable(context)?;
        let options = self.new.options(self.key_slot.into_iter().collect());
        let id = volume.add_token(token, &options, &context.opening())?;
        answer(&self.header, context, id)
    }
}

impl Export {
    fn run(self, context: &Context) -> Result<Answer, Error> {
        let mut text = self.header.volume(context)?.token(self.token)?.to_plain();
        // As there, what goes to a file or another program is the token alone.
        if !context.is_other_tool() || (self.file.is_none() && StandardOutput::default().is_terminal()) {
            text.push(b'\n');
        }
        match &self.file {
            None => context.print(text)?,
            Some(path) => {
                let mut output = Output::create(path, &[self.header.place.file()])?;
                output.write_all(&text).map_err(|error| Error::io(path.display(), error))?;
                output.commit()?;
            }
        }
        Ok(Answer::Yes)
    }
}
