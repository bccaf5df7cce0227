//! `casemate crypt table`.

use std::path::PathBuf;

use serde_json::json;

use casemate::Error;
use casemate::blockdev::{BlockDevice, FileDevice};

use super::mapping::MappingArgs;
use crate::Answer;
use crate::context::Context;

/// Print device-mapper's table line for a mapping, for `dmsetup create`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  casemate crypt table /dev/vdb --key-file disk.key --key-size 512 --show-key | dmsetup create disk"
)]
pub struct Args {
    /// The encrypted image or block device.
    device: PathBuf,
    /// Print the key in the line. Without it the key is printed as zeros, as `dmsetup table` does.
    #[arg(long)]
    show_key: bool,
    #[command(flatten)]
    mapping: MappingArgs,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let mapping = self.mapping.mapping(context)?;
        let name = self.device.display().to_string();
        let device = FileDevice::open(&self.device).map_err(|error| Error::io(&name, error))?;
        let before = mapping.offset * 512;
        let size = device.size().checked_sub(before).ok_or_else(|| {
            Error::Argument(format!("{name}: {} bytes end before the offset of {before}", device.size()))
        })?;
        let table = mapping.table(&name, size)?;
        let line = if self.show_key { table.with_key() } else { table.without_key() };
        if context.json() {
            let cipher = mapping.cipher();
            context.print_json(&json!({
                "table": line,
                "driver": cipher.driver_name(),
                "batches_sectors": cipher.batches_sectors(),
            }))?;
        } else {
            context.print(format!("{line}\n"))?;
        }
        Ok(Answer::Yes)
    }
}
