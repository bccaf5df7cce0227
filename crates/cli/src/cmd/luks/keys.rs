//! `casemate luks add-key`, `change-key`, `remove-key` and `kill-slot`.

use std::path::{Path, PathBuf};

use serde_json::json;

use casemate::luks::{LuksKey, NewKeyOptions, Volume};
use casemate::{Access, Error, Image, SecretSource, SecretVec};

use super::format::PbkdfArgs;
use super::options::{PlaceArgs, VolumeArgs};
use crate::answer::Answer;
use crate::context::Context;
use crate::passphrase::{self, Asked};

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

/// Remove the key slot that a passphrase opens from a LUKS volume. The last one stays.
#[derive(clap::Args, Debug)]
pub struct RemoveKey {
    #[command(flatten)]
    volume: VolumeArgs,
}

/// Remove a key slot of a LUKS volume by its number; no passphrase is needed. The last one stays.
#[derive(clap::Args, Debug)]
pub struct KillSlot {
    #[command(flatten)]
    place: PlaceArgs,
    /// The number of the key slot.
    #[arg(value_name = "SLOT")]
    slot: u32,
    /// Change the LUKS header in this file: it lies apart from the data.
    #[arg(long, value_name = "FILE")]
    luks_header: Option<PathBuf>,
}

/// A new passphrase.
#[derive(clap::Args, Clone, Debug)]
struct NewKeyArgs {
    /// Read the new passphrase from this file, all of it. Without it one is asked for, or is the next line of standard
    /// input.
    #[arg(long, value_name = "FILE")]
    new_key_file: Option<PathBuf>,
    #[command(flatten)]
    pbkdf: PbkdfArgs,
}

impl NewKeyArgs {
    fn passphrase(&self, image: &Path) -> Result<SecretVec, Error> {
        let key = match &self.new_key_file {
            Some(path) => LuksKey::file(&SecretSource::file(path), None),
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

/// The volume, to be changed.
fn open(place: &PlaceArgs, header: Option<&PathBuf>, context: &Context) -> Result<Volume, Error> {
    let header = header.map(|path| Image::open(path, Access::Change)).transpose()?;
    let access = if header.is_some() { Access::Read } else { Access::Change };
    place.volume(access, header.as_ref(), context)
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
        let mut volume = open(&args.place, args.unlock.luks_header.as_ref(), context)?;
        let mut options = self.new.options(&volume)?;
        options.keyslot = self.new_key_slot;
        let unlocked = volume.unlock(&args.key()?, &args.unlock.options(), &context.opening())?;
        let passphrase = self.new.passphrase(&args.place.image)?;
        let slot = volume.add_key(&unlocked, &passphrase, &options, &context.opening())?;
        answer(context, "added", slot)
    }
}

impl ChangeKey {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let args = &self.volume;
        let mut volume = open(&args.place, args.unlock.luks_header.as_ref(), context)?;
        let options = self.new.options(&volume)?;
        let work = context.opening();
        let unlocked = volume.unlock(&args.key()?, &args.unlock.options(), &work)?;
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
        let mut volume = open(&args.place, args.unlock.luks_header.as_ref(), context)?;
        let work = context.opening();
        let Some(slot) = volume.unlock(&args.key()?, &args.unlock.options(), &work)?.keyslot else {
            return Err(Error::argument("a volume key is in no key slot"));
        };
        volume.kill_slot(slot, &work)?;
        answer(context, "removed", slot)
    }
}

impl KillSlot {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let mut volume = open(&self.place, self.luks_header.as_ref(), context)?;
        volume.kill_slot(self.slot, &context.opening())?;
        answer(context, "removed", self.slot)
    }
}
