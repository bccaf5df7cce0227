//! `casemate luks header-backup` and `header-restore`.

use std::path::PathBuf;

use serde_json::json;

use casemate::blockdev::Events as _;
use casemate::luks::HeaderBackup;
use casemate::{Access, Error};

use super::confirm::Confirm;
use super::dump::shown;
use super::options::HeaderArgs;
use crate::answer::Answer;
use crate::cmd::place::{PlaceArgs, VolumeKind};
use crate::context::Context;

/// Save a LUKS header with its key slots to a new file, as cryptsetup luksHeaderBackup does.
///
/// Anybody with that file and a passphrase of today can open the volume, also after the passphrase was changed or
/// removed.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
    \x20 casemate luks header-backup vault.img vault.header")]
pub struct Backup {
    #[command(flatten)]
    pub header: HeaderArgs,
    /// The file to write, which must not exist. Only its owner can read it.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// Restore a LUKS header with its key slots from a backup.
///
/// The present header and its passphrases are replaced. The key slots are written first, then both copies of the
/// header. After an interruption the same command completes the work.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate luks header-backup vault.img vault.header\n\
    \x20 casemate luks header-restore vault.img vault.header --batch-mode")]
pub struct Restore {
    #[command(flatten)]
    pub place: PlaceArgs,
    /// The file with the header.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    pub confirm: Confirm,
}

impl Backup {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let volume = self.header.volume(context)?;
        let len = volume.backup(&self.file)?;
        let begun = volume.begun().ok().flatten().map(|mode| mode.noun());
        if let Some(work) = begun.or(volume.is_ending().then_some("a reencryption")) {
            context.opening().events.note(&format!(
                "{}: {work} is not finished, and the backup has its present state: once the work has gone on, restoring the \
                 backup would destroy data",
                self.header.path().display(),
            ));
        }
        if context.json() {
            context.print_json(&json!({ "bytes": len }))?;
        }
        context.done(format_args!("{}: {len} bytes", self.file.display()));
        Ok(Answer::Yes)
    }
}

impl Restore {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let backup = HeaderBackup::open(&self.file, context.providers())?;
        let image = self.place.open(Access::Change, VolumeKind::Luks, context)?;
        let replaced = backup.compare(&image, context.providers())?;
        let place = self.place.file().display();
        let mut what = match &replaced.uuid {
            None => "the target has no LUKS header; its present contents will be lost".to_owned(),
            Some(uuid) if uuid != backup.header().uuid() => {
                format!(
                    "the present header has another UUID, {}, and will be lost with its key slots",
                    shown(uuid)
                )
            }
            Some(_) => "the present header will be lost with its key slots".to_owned(),
        };
        if replaced.has_other_key {
            let text = "the backup has another volume key: the data that are encrypted with the present one will be lost, too";
            what += &format!("; {text}");
            // Who is not asked is told.
            if self.confirm.batch_mode {
                context.note(&format!("{place}: {text}"));
            }
        }
        if !replaced.requirements.is_empty() {
            what += &format!(
                "; it requires {}, and its data may be lost too",
                shown(&replaced.requirements.join(", "))
            );
        }
        if !backup.requirements().is_empty() {
            what += "; the backup is of a reencryption that was not finished: data of another state are lost with it, at the latest when \
                     the reencryption goes on";
        }
        self.confirm.ask(&format!("{place}: {what}"))?;
        backup.restore(&image, context.providers())?;
        context.done(format_args!("{place}: the header is as in {}", self.file.display()));
        Ok(Answer::Yes)
    }
}
