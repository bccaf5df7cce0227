//! `casemate verity dump`.

use std::path::PathBuf;

use casemate::{Access, Error, Image, verity};

use super::info;
use crate::answer::Answer;
use crate::context::Context;
use crate::size::bytes;

/// Print what the superblock of a hash area says.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The hash device.
    #[arg(value_name = "HASH_DEVICE")]
    hash: PathBuf,
    /// Where the hash area begins.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = bytes::<u64>)]
    hash_offset: u64,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let layout = verity::read_superblock(&Image::open(&self.hash, Access::Read)?, self.hash_offset)?;
        if context.json() {
            context.print_json(&info::json(&layout, None))?;
        } else {
            context.print(info::lines(&self.hash.display(), &layout))?;
        }
        Ok(Answer::Yes)
    }
}
