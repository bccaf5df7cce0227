//! `casemate overlay`.

use std::path::PathBuf;

use clap::{Subcommand, ValueHint};
use serde_json::json;

use casemate::image_spec::ImageSpec;
use casemate::{Access, Error};

use super::layers::{Asking, CryptArgs, spec_parser};
use super::place::PartArgs;
use crate::answer::Answer;
use crate::context::Context;
use crate::size::bytes;

/// Work with overlays, in which casemate serve keeps clients' writes.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Commit(CommitArgs),
}

/// Write the contents of an overlay into its image, and empty the overlay, as qemu-img commit does.
///
/// Name the image as for casemate serve --overlay. A kill or a power cut loses nothing: the same command completes the
/// work, and until then the overlay can't be served. An image that was changed since the overlay was made is refused.
/// Data under dm-verity can't be changed.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate serve --overlay changes.ovl root.img --exec 'qemu-io -f raw -c \"write 0 4k\" \"$uri\"'\n\
    \x20 casemate overlay commit changes.ovl root.img -n\n\
    \x20 casemate overlay commit changes.ovl root.img")]
struct CommitArgs {
    /// The overlay's file.
    #[arg(value_name = "OVERLAY")]
    overlay: PathBuf,
    /// The image: a file or block device, or with the layers on it, such as disk.img,partition=2,luks,key-file=pw.
    #[arg(value_name = "IMAGE", value_parser = spec_parser(), value_hint = ValueHint::FilePath)]
    image: ImageSpec,
    #[command(flatten)]
    part: PartArgs,
    /// Limit the image to N bytes.
    #[arg(long, value_name = "BYTES", value_parser = bytes::<u64>, conflicts_with = "partition")]
    size: Option<u64>,
    /// Do everything except writing; the changes go to temporary files.
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Take the image for what it was when the overlay was made, although it has another time of modification: after a copy.
    /// An interrupted commit is completed also over blocks that were changed since.
    #[arg(long)]
    trust_image: bool,
    #[command(flatten)]
    crypt: CryptArgs,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        match self.command {
            Command::Commit(args) => args.run(context),
        }
    }
}

impl CommitArgs {
    fn run(self, context: &Context) -> Result<Answer, Error> {
        self.image.check_device()?;
        let spec = self.part.sized(&self.image, self.size, self.crypt.specs()?)?;
        // That of an interrupted commit has a mark, which the commit looks at.
        let image = match self.dry_run {
            true => spec.open_part_to_look(Access::Read)?.on_trial()?,
            false => spec.open_part_to_look(Access::Change)?,
        };
        let image = spec.lay(image, &Asking::of(context))?;
        let progress = context.progress(image.name(), 0);
        let work = context.work(context.providers().clone(), &progress);
        let blocks = match self.trust_image {
            true => image.commit_overlay_on_trust(&self.overlay, &work)?,
            false => image.commit_overlay(&self.overlay, &work)?,
        };
        drop(progress);
        if context.json() {
            context.print_json(&json!({
                "image": spec.file().to_string_lossy(),
                "overlay": self.overlay.to_string_lossy(),
                "blocks": blocks,
                "dry_run": self.dry_run,
            }))?;
        }
        let what = format!("{blocks} blocks of 4096 bytes written");
        context.done_or_tried(self.dry_run, spec.file(), &what);
        Ok(Answer::Yes)
    }
}
