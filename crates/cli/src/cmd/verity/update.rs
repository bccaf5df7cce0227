//! `casemate verity update`.

use std::ops::Range;
use std::path::PathBuf;

use serde_json::json;

use casemate::Error;
use casemate::image_spec::read_root_hash;
use casemate::tree::Ranges;
use casemate::verity::hex;

use super::options::{ChangedArgs, Changes, tell_root_hash};
use crate::answer::Answer;
use crate::cmd::overwrite::OverwriteArgs;
use crate::context::Context;
use crate::size::bytes;

/// Bring a hash area up to date after a part of the data has changed, and print the new root hash.
///
/// Only the changed data blocks are read, and only the hash blocks above them are written, in place. Parity, if its
/// device is given, is made anew; all other blocks are then compared with the hash tree first.
#[derive(clap::Args, Debug)]
#[command(mut_arg("hash", |arg| arg.required(true).help("The hash device, which may be the data device, or a part of it").long_help(None)))]
#[command(after_help = "Example:\n\
    \x20 casemate verity update root.img root.verity --changed=1M+4K --old-root-hash=@root.hash.txt")]
pub struct Args {
    #[command(flatten)]
    area: ChangedArgs,
    /// Bytes that have changed: OFFSET+LENGTH, in bytes of the data device. May be repeated.
    #[arg(long, value_name = "RANGE", required = true, value_parser = byte_range)]
    changed: Vec<Range<u64>>,
    /// Before writing, check the hash blocks that will change against the root hash of the data as it was, in hex or as
    /// @FILE.
    #[arg(long, value_name = "ROOT_HASH")]
    old_root_hash: Option<String>,
    /// Write the new root hash in hex to this file.
    #[arg(long, value_name = "FILE")]
    root_hash_file: Option<PathBuf>,
    #[command(flatten)]
    overwrite: OverwriteArgs,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let old_root = self.old_root_hash.as_deref().map(read_root_hash).transpose()?;
        context.heed_signals();
        let root_hash_file = self.area.begin(self.root_hash_file.as_deref(), context)?;
        let stored = &self.area.stored;
        let volume = self.area.open(Changes::HashArea, context)?;
        if let Some(file) = &root_hash_file {
            // In hex.
            file.reserve(2 * volume.layout().parameters().digest_len())?;
        }
        let bytes: Ranges = self.changed.into_iter().collect();
        let blocks = volume.blocks_of(&bytes);
        let total = volume.update_size(&blocks);
        let progress = context.progress(&stored.data().display().to_string(), total);
        let consent = self.overwrite.on_trial(self.area.dry_run);
        let work = stored.work(context, &progress);
        let root_hash = volume.update_with(&blocks, old_root.as_deref(), &consent, &work)?;
        drop(progress);
        let in_hex = hex::encode(&root_hash);
        let text = match context.json() {
            true => context.json_line(&json!({
                "root_hash": in_hex, "data_blocks_hashed": blocks.count(), "dry_run": self.area.dry_run,
            }))?,
            false => format!("Root hash:      \t{in_hex}\n").into_bytes(),
        };
        let written = root_hash_file.map(|file| file.finish(in_hex.as_bytes()));
        tell_root_hash((context, Changes::HashArea), written, &root_hash, text)?;
        context.done_or_tried(self.area.dry_run, stored.hash(), "updated");
        Ok(Answer::Yes)
    }
}

fn byte_range(text: &str) -> Result<Range<u64>, String> {
    let parts = text.split_once('+').and_then(|(offset, len)| {
        let (offset, len) = (bytes::<u64>(offset).ok()?, bytes::<u64>(len).ok()?);
        Some(offset..offset.checked_add(len)?)
    });
    let range = parts.filter(|range| !range.is_empty());
    range.ok_or_else(|| "must be OFFSET+LENGTH in bytes, such as 1M+4K, with at least one byte".to_owned())
}
