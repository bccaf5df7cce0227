//! `casemate verity dump`.

use clap::ValueHint;

use casemate::blockdev::PartitionId;
use casemate::image_spec::ImageSpec;
use casemate::{Access, Advice, Error};

use super::info;
use crate::answer::Answer;
use crate::cmd::explained::without_hash_area;
use crate::cmd::layers::{Asking, CryptArgs, spec_parser};
use crate::cmd::place::with_partition;
use crate::context::Context;
use crate::size::bytes;

/// Print the superblock of a hash area.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The hash device, or a part of it, such as disk.img,partition=2, also with layers on it.
    #[arg(value_name = "HASH_DEVICE", value_parser = spec_parser(), value_hint = ValueHint::FilePath)]
    hash: ImageSpec,
    /// First byte of the hash area.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = bytes::<u64>)]
    hash_offset: u64,
    /// The partition (GPT or MBR) of the device that has the hash area: its number, counted from 1, UUID or name.
    #[arg(short = 'P', long, value_name = "WHICH")]
    partition: Option<PartitionId>,
    #[command(flatten)]
    crypt: CryptArgs,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let spec = with_partition(&self.hash, self.partition, self.crypt.specs()?)?;
        let image = spec.lay(spec.open_part(Access::ReadUnlocked, false)?, &Asking::of(context))?;
        let layout = image.verity_superblock(self.hash_offset);
        let layout = layout.map_err(|error| without_hash_area(error, &image, Advice::HashOffset))?;
        if context.json() {
            context.print_json(&info::json(&layout, None))?;
        } else {
            context.print(info::lines(&self.hash.file().display(), &layout))?;
        }
        Ok(Answer::Yes)
    }
}
