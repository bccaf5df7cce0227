//! `casemate luks repair`.

use serde_json::json;

use casemate::blockdev::Events;
use casemate::luks::{Header, LuksKey, LuksOptions, ReencryptionState};
use casemate::{Access, Error, ErrorKind, probe};

use super::confirm::Confirm;
use super::dump::shown;
use super::manners::{CRYPTSETUP_LIMIT, Wanted};
use super::options::{HeaderArgs, PassphraseArgs};
use crate::answer::Answer;
use crate::context::Context;

/// Repair a damaged LUKS header, and report the damage.
///
/// For LUKS2, writes the damaged or older copy of the header from the other one. For LUKS1, which has one copy,
/// repairs damage that old tools and partitioners are known to do. No other command repairs a header.
///
/// If a reencryption is unfinished, asks for the passphrase first. Then checks its metadata, finishes the part that
/// was being rewritten, and asks before it protects metadata that nothing proves.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
    \x20 casemate luks repair vault.img")]
pub struct Args {
    #[command(flatten)]
    pub header: HeaderArgs,
    /// Open this key slot of a volume that is being reencrypted.
    #[arg(long, value_name = "N")]
    pub key_slot: Option<u32>,
    #[command(flatten)]
    pub passphrase: PassphraseArgs,
    #[command(flatten)]
    pub confirm: Confirm,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let image = self.header.image(Access::Change, context)?;
        // Without a header that could be read the repair says so, and overwrites nothing.
        if !image.begins_with_luks()? && Header::read(&*image.device(), context.providers()).is_ok() {
            let there = probe::beginning(&*image.device())?.unwrap_or("data of no known kind");
            self.confirm.ask(&format!(
                "{}: the primary LUKS header is lost, and {there} in its place; the repair overwrites the beginning with the secondary \
                 header",
                image.name()
            ))?;
        }
        let mended = image.luks_repair(&context.opening())?;
        let mut lines: Vec<String> = mended.iter().map(|line| shown(line)).collect();
        if lines.is_empty() && context.manners().is_some_and(|manners| manners.verbose) {
            context.print("No known problems detected for LUKS header.\n")?;
        }
        // Whoever looks at the reencryption opens it again.
        drop(image);
        let left = self.reencryption(&mut lines, context)?;
        // Damage that no repair undoes is not kept silent about.
        self.header.volume(context)?.check_usable(context.providers())?;
        if context.json() {
            context.print_json(&json!({ "mended": lines, "reencryption": left }))?;
        } else if !context.is_other_tool() {
            context.print(lines.iter().map(|line| format!("{line}\n")).collect::<String>())?;
        }
        self.header.done(context, if lines.is_empty() { "nothing was wrong" } else { "mended" });
        Ok(Answer::Yes)
    }

    /// Looks after a reencryption that was not finished, if there is one: how it stands now.
    fn reencryption(
        &self,
        lines: &mut Vec<String>,
        context: &Context,
    ) -> Result<Option<&'static str>, Error> {
        let found = self.header.volume(context)?.reencryption_state();
        let state = match found {
            // A state of an old version is nobody's to judge.
            Err(error) if error.kind() == ErrorKind::Unsupported && !context.is_other_tool() => None,
            found => found?,
        };
        let Some(state) = state else { return Ok(None) };
        if state == ReencryptionState::HeaderAlone {
            Events::note(
                context,
                &format!(
                    "{}: a reencryption is not finished, and its data lie elsewhere: casemate luks reencrypt goes on with both",
                    self.header.place.file().display()
                ),
            );
            return Ok(Some("not checked"));
        }
        let is_asked = context.is_other_tool() || self.passphrase.source().is_some();
        let image = self.header.place.file().display();
        if !is_asked && state != ReencryptionState::Unproven {
            Events::note(
                context,
                &format!(
                    "{image}: a reencryption is not finished; with its passphrase in \
                --key-file its metadata are checked"
                ),
            );
            return Ok(Some("not checked"));
        }
        let wanted = match state {
            ReencryptionState::Unproven => {
                self.confirm.ask(&format!(
                    "{image}: nothing proves that the reencryption in this header is genuine; check it (casemate luks dump) \
                     before you protect it as it is"
                ))?;
                Wanted::Protected
            }
            ReencryptionState::CutOff => {
                self.confirm.ask(&format!(
                    "{image}: the part that was being reencrypted when the work was cut off will be rewritten"
                ))?;
                Wanted::Recovered
            }
            _ => Wanted::Verified,
        };
        let key = LuksKey::Passphrase(self.passphrase.read(wanted, self.header.place.file(), context)?);
        let mut options = LuksOptions::default();
        if context.is_other_tool() {
            options = options.raised(CRYPTSETUP_LIMIT);
        }
        options.keyslot = self.key_slot;
        let mut volume = match state {
            ReencryptionState::CutOff => self.header.all_changeable(context)?,
            _ => self.header.changeable(context)?,
        };
        let work = context.opening();
        match state {
            ReencryptionState::Unproven => {
                volume.protect_reencryption(&key, &options, &work)?;
                lines.push("the metadata of the reencryption were not protected".to_owned());
            }
            state => {
                let is_cut_off = state == ReencryptionState::CutOff;
                volume.check_reencryption(&key, &options, is_cut_off, &work)?;
                if is_cut_off {
                    lines.push("a part of the data was being reencrypted".to_owned());
                }
            }
        }
        Ok(Some("proven"))
    }
}
