//! `casemate luks add-key`, `change-key`, `convert-key`, `remove-key`, `kill-slot` and `erase`.

use std::path::{Path, PathBuf};

use clap::ArgGroup;
use serde_json::json;

use casemate::blockdev::{Events, usize_of};
use casemate::luks::{Header, LuksKey, LuksOptions, NewKeyOptions, Reason, Volume, random_key};
use casemate::{Access, Error, SecretMissing, SecretSource, SecretVec};

use super::confirm::Confirm;
use super::manners::{CRYPTSETUP_LIMIT, Did, Wanted};
use super::options::{
    AreaArgs, EmptyArgs, HeaderArgs, KeyBytes, VolumeArgs, asking, passphrase, whole_bytes,
};
use super::pbkdf::PbkdfArgs;
use crate::answer::Answer;
use crate::cmd::place::VolumeKind;
use crate::context::Context;
use crate::passphrase::{self, Part};
use crate::size::bytes;

/// Add a passphrase to a LUKS volume. An existing passphrase is needed for it.
///
/// The new key slot is written first, and then the header: at any moment the volume opens with the passphrases of before.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
    \x20 casemate luks add-key vault.img --key-file pass.key --new-key-file new.key")]
pub struct AddKey {
    #[command(flatten)]
    pub volume: VolumeArgs,
    #[command(flatten)]
    pub new: NewKeyArgs,
    /// The number of the new key slot [default: the first free one].
    #[arg(long, value_name = "N")]
    pub new_key_slot: Option<u32>,
    /// Add an unbound key, without asking for an existing passphrase: a random key of --key-size bits, or the one in
    /// --volume-key-file.
    #[arg(long, conflicts_with_all = ["key_file", "key_fd", "key_slot"])]
    pub unbound: bool,
    /// Size of the unbound key in bits. With --volume-key-file: size of the volume key, if no key slot tells it.
    #[arg(short = 's', long, value_name = "BITS")]
    pub key_size: Option<usize>,
}

/// Replace a passphrase of a LUKS volume with a new one.
///
/// The new key slot is written to free space, then the old one is wiped: at any moment one of the two passphrases opens
/// the volume. In LUKS2 the slot keeps its number and its tokens. Where a header has no free slot (LUKS1) or no free space
/// for key slots (LUKS2), the old one is overwritten: a power cut may then leave neither. Another slot must open the volume.
#[derive(clap::Args, Debug)]
pub struct ChangeKey {
    #[command(flatten)]
    pub volume: VolumeArgs,
    #[command(flatten)]
    pub new: NewKeyArgs,
}

/// Rewrite a key slot of LUKS2 for the same passphrase, with other costs, another KDF, or another cipher.
///
/// The new slot is written to free space, then the old one is wiped. Where the header has no free space for key slots, the old
/// one is overwritten: a power cut may then leave a slot that the passphrase does not open. Another slot must open the volume.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
    \x20 casemate luks convert-key vault.img --key-file pass.key --pbkdf pbkdf2 --iter-time 500")]
pub struct ConvertKey {
    #[command(flatten)]
    pub volume: VolumeArgs,
    #[command(flatten)]
    pub slot: SlotArgs,
}

/// Remove the key slot that a passphrase opens from a LUKS volume.
#[derive(clap::Args, Debug)]
pub struct RemoveKey {
    #[command(flatten)]
    pub volume: VolumeArgs,
    #[command(flatten)]
    pub confirm: Confirm,
}

/// Remove a key slot of a LUKS volume by its number. No passphrase is needed, unless --key-file is given.
#[derive(clap::Args, Debug)]
#[command(group = ArgGroup::new("asked").args(["key_file", "remaining"]).multiple(true))]
pub struct KillSlot {
    #[command(flatten)]
    pub header: HeaderArgs,
    /// The number of the key slot.
    #[arg(value_name = "SLOT")]
    pub slot: u32,
    /// Remove the slot only if the passphrase in this file, all of it, opens another slot, or this one if it is the
    /// last; "-" is standard input.
    #[arg(short = 'd', long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Skip N bytes of the key file.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = bytes::<u64>, requires = "asked")]
    pub keyfile_offset: u64,
    /// Use N bytes of the key file [default: all].
    #[arg(long, value_name = "BYTES", value_parser = bytes::<usize>, requires = "asked")]
    pub keyfile_size: Option<usize>,
    /// For cryptsetup's command line: a passphrase that stays is asked for, and where standard input has ended none is.
    #[arg(long, hide = true)]
    pub remaining: bool,
    #[command(flatten)]
    pub confirm: Confirm,
}

/// Remove all key slots of a LUKS volume. Only a header backup opens it again.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
    \x20 casemate luks erase vault.img --batch-mode")]
pub struct Erase {
    #[command(flatten)]
    pub header: HeaderArgs,
    #[command(flatten)]
    pub confirm: Confirm,
}

/// A new passphrase.
#[derive(clap::Args, Clone, Debug)]
pub struct NewKeyArgs {
    /// Read the new passphrase from this file, all of it. Without it casemate asks for one, or reads the next line of
    /// standard input.
    #[arg(long, value_name = "FILE")]
    pub new_key_file: Option<PathBuf>,
    /// Skip N bytes of the new key file, or of standard input.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = bytes::<u64>)]
    pub new_keyfile_offset: u64,
    /// Use N bytes of the new key file, or of the line of standard input [default: all].
    #[arg(long, value_name = "BYTES", value_parser = bytes::<usize>)]
    pub new_keyfile_size: Option<usize>,
    #[command(flatten)]
    pub empty: EmptyArgs,
    #[command(flatten)]
    pub slot: SlotArgs,
}

/// How a key slot is made.
#[derive(clap::Args, Clone, Debug)]
pub struct SlotArgs {
    #[command(flatten)]
    pub pbkdf: PbkdfArgs,
    /// The hash of the stripes, and of PBKDF2 (LUKS2) [default: sha256].
    #[arg(long, value_name = "NAME")]
    pub hash: Option<String>,
    #[command(flatten)]
    pub area: AreaArgs,
}

impl NewKeyArgs {
    /// The place of the new passphrase in a file.
    fn place(&self) -> Option<KeyBytes<'_>> {
        let path = self.new_key_file.as_deref()?;
        Some(KeyBytes { path, offset: self.new_keyfile_offset, size: self.new_keyfile_size })
    }

    /// The new passphrase, and how its slot is made.
    fn passphrase(
        &self,
        wanted: Wanted,
        image: &Path,
        volume: &Volume,
        context: &Context,
    ) -> Result<(SecretVec, NewKeyOptions), Error> {
        let part = Part { offset: self.new_keyfile_offset, size: self.new_keyfile_size };
        let passphrase = match &self.new_key_file {
            None => passphrase(wanted, part, image, context).map_err(|error| {
                match error.cause::<SecretMissing>() {
                    Some(SecretMissing::Empty) => Error::argument(
                        "no new passphrase was given; --new-key-file FILE names the file that has it",
                    )
                    .with_cause(SecretMissing::Empty)
                    .at(image.display()),
                    _ => error,
                }
            })?,
            Some(path) => {
                let key = LuksKey::file(&SecretSource::file(path).from_byte(part.offset), part.size)?;
                let (LuksKey::Passphrase(passphrase) | LuksKey::VolumeKey(passphrase)) = key;
                passphrase
            }
        };
        let allow_empty_passphrase = self.empty.check(&passphrase)?;
        let mut options = self.slot.options(volume, context)?;
        options.allow_empty_passphrase = allow_empty_passphrase;
        Ok((passphrase, options))
    }
}

impl SlotArgs {
    fn options(&self, volume: &Volume, context: &Context) -> Result<NewKeyOptions, Error> {
        let mut options = NewKeyOptions::default();
        options.area = self.area.get()?;
        options.hash = self.hash.clone();
        options.pbkdf = Some(match volume.header() {
            Header::Luks1(header) => {
                if self.hash.as_ref().is_some_and(|hash| *hash != header.hash) || options.area.is_some() {
                    let text = "key slots of LUKS1 have hash and cipher of the header; LUKS2 has more";
                    return Err(Error::argument(text));
                }
                self.pbkdf.get(true, &header.hash, usize_of(header.key_bytes), context)?
            }
            Header::Luks2(_) => {
                let key_len = options.area.as_ref().map_or(64, |area| area.key_len);
                self.pbkdf.get(false, self.hash.as_deref().unwrap_or("sha256"), key_len, context)?
            }
        });
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
        args.refuse_changed_keys(self.new.place())?;
        let mut volume = args.changeable(context)?;
        let work = context.opening();
        if self.unbound {
            let key = self.key_for_no_data(context)?;
            let (passphrase, mut options) =
                self.new.passphrase(Wanted::Added, args.place.file(), &volume, context)?;
            options.keyslot = self.new_key_slot;
            let slot = volume.add_unbound_key(&key, &passphrase, &options, &work)?;
            context.did(Did::CreateSlot(slot))?;
            return answer(context, "added, for no data", slot);
        }
        if self.key_size.is_some() && args.unlock.volume_key_file().is_none() {
            let text = "a size is that of a volume key in a file, or of a key for no data";
            return Err(Error::argument(text));
        }
        let len = args.volume_key_len(&volume, self.key_size, context)?;
        let key = args.key_of(len, Wanted::Existing, context)?;
        let unlocked = volume.unlock(&key, &args.unlock.options()?, &work)?;
        // As there: a passphrase that is in a file is not told of.
        if let Some(slot) = unlocked.keyslot.filter(|_| args.passphrase.reads_standard_input()) {
            context.did(Did::UnlockSlot(slot))?;
        }
        let (passphrase, mut options) =
            self.new.passphrase(Wanted::Added, args.place.file(), &volume, context)?;
        options.keyslot = self.new_key_slot;
        let slot = volume.add_key(&unlocked, &passphrase, &options, &work)?;
        context.did(Did::CreateSlot(slot))?;
        answer(context, "added", slot)
    }

    fn key_for_no_data(&self, context: &Context) -> Result<SecretVec, Error> {
        let len = self.key_size.map(whole_bytes).transpose()?;
        match (self.volume.unlock.volume_key(len, context)?, len) {
            (Some(key), None) => Ok(key),
            (Some(key), Some(len)) if key.len() == len => Ok(key),
            (Some(key), Some(len)) => {
                let text = format!("the key has {} bits, and {} were asked for", key.len() * 8, len * 8);
                Err(Error::argument(text))
            }
            (None, Some(len)) => random_key(len),
            (None, None) => Err(Error::argument("--unbound needs a key, or its size in bits")),
        }
    }
}

impl ChangeKey {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let args = &self.volume;
        args.refuse_changed_keys(self.new.place())?;
        let mut volume = args.changeable(context)?;
        let work = context.opening();
        let unlocking = args.unlock.options()?;
        let unlocked = volume.unlock(&args.key(&volume, Wanted::Changed, context)?, &unlocking, &work)?;
        if let Some(slot) = unlocked.keyslot {
            context.did(Did::UnlockSlot(slot))?;
        }
        let (passphrase, mut options) =
            self.new.passphrase(Wanted::Changing, args.place.file(), &volume, context)?;
        options.keyslot = unlocking.keyslot;
        let slot = volume.change_key(&unlocked, &passphrase, &options, &work)?;
        context.did(Did::CreateSlot(slot))?;
        answer(context, "changed", slot)
    }
}

impl ConvertKey {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let args = &self.volume;
        args.refuse_changed_keys(args.passphrase.places())?;
        let mut volume = args.changeable(context)?;
        if let Header::Luks1(_) = volume.header() {
            return Err(Error::argument("LUKS1 has one KDF and one cipher; convert makes a volume LUKS2"));
        }
        let work = context.opening();
        let unlocking = args.unlock.options()?;
        if let Some(slot) = unlocking.keyslot.filter(|slot| !volume.slots().contains(slot)) {
            return Err(slot_not_active(slot));
        }
        let key = args.key(&volume, Wanted::Converted, context)?;
        let LuksKey::Passphrase(passphrase) = &key else {
            return Err(Error::argument("a volume key is in no key slot"));
        };
        let unlocked = volume.unlock(&key, &unlocking, &work)?;
        let mut options = self.slot.options(&volume, context)?;
        // It stays what it is.
        options.allow_empty_passphrase = true;
        let slot = volume.change_key(&unlocked, passphrase, &options, &work)?;
        context.did(Did::CreateSlot(slot))?;
        answer(context, "converted", slot)
    }
}

impl RemoveKey {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let args = &self.volume;
        let mut volume = args.changeable(context)?;
        let work = context.opening();
        let key = args.key(&volume, Wanted::Removed, context)?;
        let Some(slot) = volume.unlock(&key, &args.unlock.options()?, &work)?.keyslot else {
            return Err(Error::argument("a volume key is in no key slot"));
        };
        context.did(Did::UnlockSlot(slot))?;
        context.did(Did::SelectSlot(slot))?;
        self.confirm.last_slot(&volume, slot)?;
        volume.erase_slots(&[slot], &work)?;
        context.did(Did::RemoveSlot(slot))?;
        answer(context, "removed", slot)
    }
}

impl KillSlot {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let mut volume = self.header.changeable(context)?;
        if !volume.slots().contains(&self.slot) {
            return Err(slot_not_active(self.slot));
        }
        context.did(Did::SelectSlot(self.slot))?;
        // Who names a key file is not asked there.
        if !(context.is_other_tool() && self.key_file.is_some()) {
            self.confirm.last_slot(&volume, self.slot)?;
        }
        if let Some(key) = self.key(context)? {
            let options = LuksOptions::default();
            let options = if context.is_other_tool() { options.raised(CRYPTSETUP_LIMIT) } else { options };
            let opened = volume.check_remaining(self.slot, &key, &options, &context.opening())?;
            context.did(Did::UnlockSlot(opened))?;
        }
        volume.erase_slots(&[self.slot], &context.opening())?;
        context.did(Did::RemoveSlot(self.slot))?;
        answer(context, "removed", self.slot)
    }

    /// The passphrase that stays, if one is wanted.
    fn key(&self, context: &Context) -> Result<Option<LuksKey>, Error> {
        let image = self.header.place.file();
        let part = Part { offset: self.keyfile_offset, size: self.keyfile_size };
        let Some(path) = &self.key_file else {
            let of = image.display().to_string();
            let source = asking(Wanted::Remaining, part, &of, context);
            return match self.remaining {
                true => Ok(passphrase::if_any(&source, part, &of)?.map(LuksKey::Passphrase)),
                false => Ok(None),
            };
        };
        let source = SecretSource::file(path).from_byte(self.keyfile_offset);
        match self.remaining && path.as_os_str() == "-" && self.keyfile_size.is_none() {
            true => LuksKey::if_any(&source),
            false => LuksKey::file(&source, self.keyfile_size).map(Some),
        }
    }
}

fn slot_not_active(slot: u32) -> Error {
    Error::argument(format!("key slot {slot} is not active")).with_cause(Reason::SlotNotActive(slot))
}

impl Erase {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let mut volume = self.header.changeable(context)?;
        let slots = volume.slots();
        self.confirm.ask("all key slots will be wiped, and nothing can be read without them")?;
        volume.erase_slots(&slots, &context.opening())?;
        slots.iter().try_for_each(|slot| context.did(Did::RemoveSlot(*slot)))?;
        if context.json() {
            context.print_json(&json!({ "key_slots": slots }))?;
        }
        // The slots are gone, whatever the device says now.
        let device = || self.header.place.open(Access::ReadUnlocked, VolumeKind::Luks, context);
        if self.header.luks_header.is_some()
            && device().and_then(|device| device.begins_with_luks()).unwrap_or(false)
        {
            let file = self.header.place.file().display();
            context.note(&format!(
                "{file} begins with a LUKS header of its own, whose key slots were not wiped"
            ));
        }
        self.header.done(context, "all key slots are wiped");
        Ok(Answer::Yes)
    }
}
