//! `casemate verity format`.

use std::path::PathBuf;

use casemate::Error;
use casemate::verity::{FormatOptions, Formatted, Seed, Uuid, hex};

use super::info;
use super::options::{ChangedArgs, Changes, tell_root_hash};
use crate::answer::Answer;
use crate::cmd::overwrite::OverwriteArgs;
use crate::context::Context;

/// Make the hash area for a data device.
///
/// A hash device that does not exist becomes a file, which appears only when it is complete. An existing file or block
/// device is written in place, the superblock last.
#[derive(clap::Args, Debug)]
#[command(mut_arg("hash", |arg| arg.required(true).help("The hash device, which may be the data device, or a part of it").long_help(None)))]
#[command(after_help = "Examples:\n\
    \x20 casemate verity format root.img root.verity --root-hash-file=root.hash.txt\n\
    \x20 casemate verity format root.img root.verity --seed=5e34f531-3859-825c-fad6-33289ccfcb92\n\
    \x20 casemate verity format root.img root.verity --fec-device=root.fec --fec-roots=2\n\
    \x20 truncate -s +1M root.img   # room behind the data, in the same file\n\
    \x20 casemate verity format root.img root.img --data-blocks=16384 --hash-offset=64M")]
pub struct Args {
    #[command(flatten)]
    changed: ChangedArgs,
    /// The UUID in the superblock [default: a random one].
    #[arg(long, value_name = "UUID")]
    uuid: Option<String>,
    /// Derive salt and UUID from this UUID or text, so that they are the same each time. systemd-repart makes the same
    /// salt from the same UUID.
    #[arg(long, value_name = "SEED")]
    seed: Option<String>,
    /// Write the root hash in hex to this file.
    #[arg(long, value_name = "FILE")]
    root_hash_file: Option<PathBuf>,
    #[command(flatten)]
    overwrite: OverwriteArgs,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        context.heed_signals();
        let root_hash_file = self.changed.begin(self.root_hash_file.as_deref(), context)?;
        let stored = &self.changed.stored;
        let (data, hash, area) = self.changed.images(Changes::New, context)?;
        data.check_settled(context.providers())?;
        let mut options = FormatOptions::default();
        options.area = area;
        options.uuid = self.uuid.as_deref().map(Uuid::from_text).transpose()?;
        options.seed = self.seed.as_deref().map(Seed::from_text);
        let consent = self.overwrite.on_trial(self.changed.dry_run);
        let progress = context.progress(data.name(), options.work_size(&data));
        let written = root_hash_file.as_ref().map(|_| Ok(()));
        let beside = |formatted: &Formatted| {
            let root_hash = hex::encode(&formatted.root_hash);
            root_hash_file.map(|file| file.with(root_hash.as_bytes())).into_iter().collect()
        };
        let work = stored.work(context, &progress);
        let formatted = options.format_beside(&data, &hash, &consent, &work, beside)?;
        drop(progress);
        let text = match context.json() {
            true => context.json_line(&info::formatted_json(&formatted, self.changed.dry_run))?,
            false => info::formatted_lines(&hash.name(), stored.fec.fec_offset, &formatted).into_bytes(),
        };
        tell_root_hash((context, Changes::New), written, &formatted.root_hash, text)?;
        context.done_or_tried(self.changed.dry_run, stored.hash(), "formatted");
        Ok(Answer::Yes)
    }
}
