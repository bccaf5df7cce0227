//! `casemate verity dump`.

use std::path::PathBuf;

use casemate::blockdev::PartitionId;
use casemate::{Access, Advice, Error, Image};

use super::info;
use crate::answer::Answer;
use crate::cmd::explained::without_hash_area;
use crate::cmd::layers::CryptArgs;
use crate::context::Context;
use crate::size::bytes;

/// Print the superblock of a hash area.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The hash device.
    #[arg(value_name = "HASH_DEVICE")]
    hash: PathBuf,
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
        let image = Image::open(&self.hash, Access::Read)?;
        let image = match &self.partition {
            Some(id) => image.partition_named(id, false)?,
            None => image,
        };
        let image = self.crypt.over(image, context)?;
        let layout = image.verity_superblock(self.hash_offset);
        let layout = layout.map_err(|error| without_hash_area(error, &image, Advice::HashOffset))?;
        if context.json() {
            context.print_json(&info::json(&layout, None))?;
        } else {
            context.print(info::lines(&self.hash.display(), &layout))?;
        }
        Ok(Answer::Yes)
    }
}
