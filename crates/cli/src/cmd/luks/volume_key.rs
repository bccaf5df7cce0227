//! `casemate luks dump-volume-key`.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::json;

use casemate::luks::luks2::Digest;
use casemate::luks::{Header, Reason, Unlocked, Volume};
use casemate::{Access, Error};

use super::confirm::Confirm;
use super::dump::{octets, shown};
use super::manners::{Did, Wanted};
use super::options::VolumeArgs;
use crate::answer::Answer;
use crate::context::Context;

/// Save the volume key, or an unbound key, to a new file that only its owner can read; or print it.
///
/// Anybody with that key can read the data, also after all passphrases were changed.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
    \x20 casemate luks dump-volume-key vault.img volume.key --key-file pass.key")]
pub struct DumpVolumeKey {
    #[command(flatten)]
    pub volume: VolumeArgs,
    /// The file to write, which must not exist. Without it the key is printed, in hex.
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// For cryptsetup's command line: the key must be for no data.
    #[arg(long, hide = true)]
    pub unbound: bool,
    #[command(flatten)]
    pub confirm: Confirm,
}

impl DumpVolumeKey {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let args = &self.volume;
        let volume = args.volume(Access::ReadUnlocked, context)?;
        let options = args.unlock.options()?;
        if let Some(slot) = options.keyslot.filter(|_| self.unbound)
            && (volume.slots_of_data().contains(&slot) || !volume.slots().contains(&slot))
        {
            let error = Error::argument(format!("key slot {slot} is not an unbound one"));
            return Err(error.with_cause(Reason::SlotNotUnbound(slot)));
        }
        let has_key = |digest: &Digest| !digest.segments.is_empty();
        if let (Header::Luks2(header), None) = (volume.header(), options.keyslot)
            && header.metadata.digests().iter().filter(|digest| has_key(digest)).count() > 1
        {
            return Err(Error::argument(
                "the volume is being reencrypted, and has two keys: name the key slot with --key-slot, or finish first with \
                 casemate luks reencrypt",
            )
            .at(args.place.file().display()));
        }
        if self.file.is_none() {
            self.confirm
                .ask("the volume key will be shown, with which the data can be read without a passphrase")?;
        }
        let key = args.key(&volume, Wanted::Open, context)?;
        let unlocked = volume.unlock(&key, &options, &context.opening())?;
        if let Some(slot) = unlocked.keyslot {
            context.did(Did::UnlockSlot(slot))?;
        }
        match &self.file {
            Some(file) => {
                volume.save_volume_key(&unlocked, file)?;
                if context.json() {
                    context.print_json(&json!({ "key_slot": unlocked.keyslot }))?;
                }
                if context.is_other_tool() {
                    context.print(self.text(&volume, &unlocked))?;
                }
                context.done(format_args!("{}: the key is saved", file.display()));
            }
            None if context.json() => {
                let key = casemate::hex::encode(unlocked.volume_key().expose());
                context.print_json(&json!({ "key_slot": unlocked.keyslot, "volume_key": key }))?;
            }
            None => context.print(self.text(&volume, &unlocked))?,
        }
        Ok(Answer::Yes)
    }

    /// The key as cryptsetup prints it; what it says of one that goes to a file.
    fn text(&self, volume: &Volume, unlocked: &Unlocked) -> String {
        let image = self.volume.unlock.luks_header.as_deref().unwrap_or(self.volume.place.file());
        let key = unlocked.volume_key().expose();
        let mut text = format!("LUKS header information for {}\n", image.display());
        let stored = self.file.as_ref().map(|file| format!("Key stored to file {}.", file.display()));
        let mut field = |name: &str, width: usize, value: String| {
            let is_key = width == 0;
            match stored.as_ref().filter(|_| is_key) {
                Some(stored) => writeln!(text, "{stored}"),
                None => writeln!(text, "{:<width$}\t{value}", format!("{name}:")),
            }
            .expect("writing to a string");
        };
        let bits = (key.len() * 8).to_string();
        let key = octets(key, "\t\t");
        let uuid = shown(volume.header().uuid());
        let of_data = unlocked.keyslot.filter(|slot| !volume.slots_of_data().contains(slot));
        if let Some(slot) = of_data {
            field("UUID", 9, uuid);
            field("Keyslot", 9, slot.to_string());
            field("Key bits", 9, bits);
            field("Unbound Key", 0, key.trim_end_matches('\n').to_owned());
            return text;
        }
        let (encryption, sectors) = match volume.header() {
            Header::Luks1(header) => (header.encryption(), u64::from(header.payload_offset)),
            Header::Luks2(header) => {
                let segments = header.metadata.segments();
                let first = segments.first();
                (
                    first.map(|first| first.encryption.clone()).unwrap_or_default(),
                    first.map_or(0, |first| first.offset / 512),
                )
            }
        };
        let (name, mode) = encryption.split_once('-').unwrap_or((&encryption, ""));
        field("Cipher name", 15, shown(name));
        field("Cipher mode", 15, shown(mode));
        field("Payload offset", 15, sectors.to_string());
        field("UUID", 15, uuid);
        field("MK bits", 15, bits);
        field("MK dump", 0, key.trim_end_matches('\n').to_owned());
        text
    }
}
