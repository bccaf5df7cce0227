//! `casemate key`.

use std::path::PathBuf;

use serde_json::json;

use casemate::fscrypt::KeyId;
use casemate::{Error, Keys};
use casemate_fuse::FolderKeys;

use super::ext4::keys::KeyArgs;
use crate::answer::Answer;
use crate::context::Context;

/// Add, remove and list keys of encrypted files in a mounted folder.
///
/// The folder must be mounted with --control. Only the user who mounted it, and root, may do this.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand, Debug)]
enum Action {
    Add(Add),
    Remove(Remove),
    Status(Status),
}

/// Add keys, so that files encrypted with them can be read, and written if the folder is mounted with --write.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
    \x20 mkdir folder && casemate mount --control keys.sock root.img folder\n\
    \x20 casemate key add folder --fscrypt-key master.key && casemate key status folder\n\
    \x20 casemate umount folder")]
struct Add {
    /// The folder that the image is mounted on.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    #[command(flatten)]
    keys: KeyArgs,
}

/// Remove keys, which locks the files encrypted with them at once, also for programs that have them open.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
    \x20 mkdir folder && casemate mount --control keys.sock root.img folder --fscrypt-key master.key\n\
    \x20 casemate key remove folder --all && casemate umount folder")]
struct Remove {
    /// The folder that the image is mounted on.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Identifiers or descriptors of keys, as in policies.
    #[arg(value_name = "ID", required_unless_present = "all", value_parser = key_id)]
    ids: Vec<KeyId>,
    /// Remove all keys.
    #[arg(long, conflicts_with = "ids")]
    all: bool,
}

/// List the keys of a folder, by their descriptors and identifiers.
#[derive(clap::Args, Debug)]
struct Status {
    /// The folder that the image is mounted on.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

fn key_id(text: &str) -> Result<KeyId, String> {
    KeyId::from_hex(text).ok_or_else(|| "an identifier has 32 hexadecimal digits, a descriptor 16".to_owned())
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let (folder, ids) = match self.action {
            Action::Add(Add { folder, keys }) => {
                let mounted = FolderKeys::of(&folder)?;
                let mut keys: Keys = keys.keys()?;
                // Protectors are read where they are mounted.
                if keys.open_protectors() && !keys.have_metadata() {
                    keys = keys.with_metadata(folder.join(".fscrypt"))?;
                }
                let all = keys.master_keys(context.providers())?;
                if all.is_empty() {
                    return Err(Error::argument(
                        "no key was given: --fscrypt-key, or --fscrypt-passphrase-file",
                    ));
                }
                let mut ids = Vec::new();
                for (descriptor, key) in &all {
                    ids = mounted.add(*descriptor, key)?;
                }
                context.done(format_args!("{}: {} keys added", folder.display(), all.len()));
                (folder, ids)
            }
            Action::Remove(Remove { folder, ids, all }) => {
                let mounted = FolderKeys::of(&folder)?;
                let mut left = mounted.list()?;
                // One key has several names.
                while let Some(id) = left.first().filter(|_| all).copied() {
                    left = mounted.remove(&id)?;
                }
                for id in &ids {
                    left = mounted.remove(id)?;
                }
                context.done(format_args!("{}: keys removed", folder.display()));
                (folder, left)
            }
            Action::Status(Status { folder }) => {
                let ids = FolderKeys::of(&folder)?.list()?;
                (folder, ids)
            }
        };
        match context.json() {
            true => {
                let keys: Vec<_> =
                    ids.iter().map(|id| json!({ "kind": id.kind(), "id": id.to_string() })).collect();
                context.print_json(&json!({ "folder": folder.to_string_lossy(), "keys": keys }))?;
            }
            false => {
                let lines: String = ids.iter().map(|id| format!("{} {id}\n", id.kind())).collect();
                context.print(lines)?;
            }
        }
        Ok(Answer::Yes)
    }
}
