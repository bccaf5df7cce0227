//! `casemate luks add-key`, `change-key`, `remove-key`, `kill-slot` and `erase`.

use std::path::{Path, PathBuf};

use serde_json::json;

use casemate::luks::{LuksKey, NewKeyOptions, Volume};
use casemate::{Error, SecretSource, SecretVec};

use super::confirm::Confirm;
use super::format::PbkdfArgs;
use super::options::{HeaderArgs, VolumeArgs};
use crate::answer::Answer;
use crate::context::Context;
use crate::passphrase::{self, Asked};
use crate::size::bytes;

/// Add a passphrase to a LUKS volume that another one opens.
///
/// The new key slot is written first, and then the header: at any moment the volume opens with the passphrases of before.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
    \x20 casemate luks add-key vault.img --key-file pass.key --new-key-file new.key")]
pub struct AddKey {
    #[command(flatten)]
    volume: VolumeArgs,
    #[command(flatten)]
    new: NewKeyArgs,
    /// The number of the new key slot [default: the first free one].
    #[arg(long, value_name = "N")]
    new_key_slot: Option<u32>,
}

/// Replace a passphrase of a LUKS volume by another one.
///
/// The new one goes to a free key slot, and when it is there the old slot is wiped: at any moment one of the two opens.
#[derive(clap::Args, Debug)]
pub struct ChangeKey {
    #[command(flatten)]
    volume: VolumeArgs,
    #[command(flatten)]
    new: NewKeyArgs,
}

/// Remove the key slot that a passphrase opens from a LUKS volume.
#[derive(clap::Args, Debug)]
pub struct RemoveKey {
    #[command(flatten)]
    volume: VolumeArgs,
    #[command(flatten)]
    confirm: Confirm,
}

/// Remove a key slot of a LUKS volume by its number; no passphrase is needed.
#[derive(clap::Args, Debug)]
pub struct KillSlot {
    #[command(flatten)]
    header: HeaderArgs,
    /// The number of the key slot.
    #[arg(value_name = "SLOT")]
    slot: u32,
    #[command(flatten)]
    confirm: Confirm,
}

/// Remove all key slots of a LUKS volume: nothing but a backup of its header opens it again.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
    \x20 casemate luks erase vault.img --batch-mode")]
pub struct Erase {
    #[command(flatten)]
    header: HeaderArgs,
    #[command(flatten)]
    confirm: Confirm,
}

/// A new passphrase.
#[derive(clap::Args, Clone, Debug)]
struct NewKeyArgs {
    /// Read the new passphrase from this file, all of it. Without it one is asked for, or is the next line of standard
    /// input.
    #[arg(long, value_name = "FILE")]
    new_key_file: Option<PathBuf>,
    /// Pass over this many bytes of the new key file.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = bytes::<u64>, requires = "new_key_file")]
    new_keyfile_offset: u64,
    /// Take so many bytes of the new key file [default: all].
    #[arg(long, value_name = "BYTES", value_parser = bytes::<usize>, requires = "new_key_file")]
    new_keyfile_size: Option<usize>,
    #[command(flatten)]
    pbkdf: PbkdfArgs,
}

impl NewKeyArgs {
    fn passphrase(&self, image: &Path) -> Result<SecretVec, Error> {
        let key = match &self.new_key_file {
            Some(path) => {
                let source = SecretSource::file(path).from_byte(self.new_keyfile_offset);
                LuksKey::file(&source, self.new_keyfile_size)
            }
            None => {
                let of = format!("{}, the new one", image.display());
                LuksKey::passphrase(&passphrase::source(Asked::Twice), &of)
            }
        };
        let (LuksKey::Passphrase(passphrase) | LuksKey::VolumeKey(passphrase)) = key?;
        Ok(passphrase)
    }

    fn options(&self, volume: &Volume) -> Result<NewKeyOptions, Error> {
        let mut options = NewKeyOptions::default();
        let (is_luks1, hash) = match volume.header() {
            casemate::luks::Header::Luks1(header) => (true, &*header.hash),
            casemate::luks::Header::Luks2(_) => (false, "sha256"),
        };
        options.pbkdf = Some(self.pbkdf.get(is_luks1, hash)?);
        Ok(options)
    }
}

fn answer(context: &Context, what: &str, slot: u32) -> Result<Answer, Error> {
    if context.json() {
        context.print_json(&json!({ "key_slot": slot }))?;
    }
    context.done(format_args!("key slot {slot}: {what}"));
    Ok(Answer::Yes)
}

impl AddKey {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let args = &self.volume;
        let mut volume = args.changeable(context)?;
        let mut options = self.new.options(&volume)?;
        options.keyslot = self.new_key_slot;
        let unlocked = volume.unlock(&args.key()?, &args.unlock.options()?, &context.opening())?;
        let passphrase = self.new.passphrase(&args.place.image)?;
        let slot = volume.add_key(&unlocked, &passphrase, &options, &context.opening())?;
        answer(context, "added", slot)
    }
}

impl ChangeKey {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let args = &self.volume;
        let mut volume = args.changeable(context)?;
        let options = self.new.options(&volume)?;
        let work = context.opening();
        let unlocked = volume.unlock(&args.key()?, &args.unlock.options()?, &work)?;
        let Some(old) = unlocked.keyslot else {
            return Err(Error::argument("a volume key is in no key slot: add-key adds a passphrase"));
        };
        let passphrase = self.new.passphrase(&args.place.image)?;
        let slot = volume.add_key(&unlocked, &passphrase, &options, &work)?;
        volume.kill_slot(old, &work)?;
        answer(context, &format!("changed; it was {old}"), slot)
    }
}

impl RemoveKey {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let args = &self.volume;
        let mut volume = args.changeable(context)?;
        let work = context.opening();
        let Some(slot) = volume.unlock(&args.key()?, &args.unlock.options()?, &work)?.keyslot else {
            return Err(Error::argument("a volume key is in no key slot"));
        };
        self.confirm.last_slot(&volume, slot)?;
        volume.erase_slots(&[slot], &work)?;
        answer(context, "removed", slot)
    }
}

impl KillSlot {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let mut volume = self.header.changeable(context)?;
        self.confirm.last_slot(&volume, self.slot)?;
        volume.erase_slots(&[self.slot], &context.opening())?;
        answer(context, "removed", self.slot)
    }
}

impl Erase {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let mut volume = self.header.changeable(context)?;
        let slots = volume.slots();
        self.confirm.ask("all key slots will be wiped, and nothing can be read without them")?;
        volume.erase_slots(&slots, &context.opening())?;
        if context.json() {
            context.print_json(&json!({ "key_slots": slots }))?;
        }
        self.header.done(context, "all key slots are wiped");
        Ok(Answer::Yes)
    }
}
