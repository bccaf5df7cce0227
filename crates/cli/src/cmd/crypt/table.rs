//! `casemate crypt table`.

use std::path::PathBuf;

use serde::Serialize;

use casemate::blockdev::{BlockDevice, FileDevice};
use casemate::{Error, SecretVec};

use super::mapping::OwnMappingArgs;
use crate::answer::Answer;
use crate::context::Context;
use crate::passphrase::Asked;

/// Print device-mapper's table line for a mapping, for `dmsetup create`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate crypt table disk.enc --key-file disk.key --key-size 512\n\
    \x20 casemate crypt table /dev/vdb --key-file disk.key --show-key | dmsetup create disk")]
pub struct Args {
    /// The encrypted image or block device.
    device: PathBuf,
    /// Print the key in the line. Without it the key is printed as zeros, as `dmsetup table` does.
    #[arg(long)]
    show_key: bool,
    #[command(flatten)]
    mapping: OwnMappingArgs,
}

#[derive(Serialize)]
struct Printed<'a> {
    table: &'a str,
    driver: &'a str,
    batches_sectors: bool,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let mapping = self.mapping.get().mapping(&self.device, Asked::Once, context)?;
        let name = self.device.display().to_string();
        let device = FileDevice::open(&self.device).map_err(|error| Error::io(&name, error))?;
        let table = mapping.table(&name, device.size())?;
        let line =
            if self.show_key { table.with_key() } else { SecretVec::new(table.without_key().into_bytes()) };
        if context.json() {
            let cipher = mapping.cipher();
            let value = Printed {
                // OK to unwrap: made of texts.
                table: str::from_utf8(line.expose()).unwrap(),
                driver: cipher.driver_name(),
                batches_sectors: cipher.batches_sectors(),
            };
            context.print(SecretVec::new(context.json_line(&value)?).expose())?;
        } else {
            context.print(line.expose())?;
            context.print("\n")?;
        }
        Ok(Answer::Yes)
    }
}
