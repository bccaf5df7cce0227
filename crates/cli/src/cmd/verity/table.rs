//! `casemate verity table`.

use std::fmt::Display;
use std::path::Path;

use clap::ValueEnum;
use serde_json::json;

use casemate::Error;
use casemate::verity::{OnFault, Volume, hex, partition_uuids};

use super::info;
use super::options::{RootHashArgs, StoredArgs};
use crate::answer::Answer;
use crate::context::Context;

/// Print the device-mapper table line for a device, the same as arguments of the kernel and of systemd, and the partition
/// UUIDs by which systemd finds data and hash partition.
///
/// The line names the devices as the booting machine knows them: give their names with --data-name and --hash-name.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate verity table root.img root.verity @root.hash.txt \\\n\
    \x20     --data-name=/dev/vda --hash-name=/dev/vdb\n\
    \x20 casemate verity table boot.img @boot.txt --data-name=PARTUUID=12345678-02\n\
    \x20 casemate verity table /dev/vda /dev/vdb @root.hash.txt --print=table > table\n\
    \x20 dmsetup create root -r --table \"$(cat table)\"")]
pub struct Args {
    #[command(flatten)]
    stored: StoredArgs,
    #[command(flatten)]
    root_hash: RootHashArgs,
    /// Print only this item, without its name.
    #[arg(long, value_enum, value_name = "WHAT")]
    print: Option<Print>,
    /// Name of the data device for the kernel: a path, MAJOR:MINOR, PARTUUID=... [default: DATA_DEVICE].
    #[arg(long, value_name = "NAME")]
    data_name: Option<String>,
    /// Name of the hash device for the kernel [default: HASH_DEVICE; if that is the data device, --data-name].
    #[arg(long, value_name = "NAME")]
    hash_name: Option<String>,
    /// Name of the parity device for the kernel [default: that of --fec-device].
    #[arg(long, value_name = "NAME", requires = "fec_device")]
    fec_name: Option<String>,
    /// The device's name in the kernel argument.
    #[arg(long = "device-name", alias = "name", value_name = "NAME", default_value = "verity")]
    name: String,
    /// The device's minor number in the kernel argument.
    #[arg(long, value_name = "NUMBER")]
    minor: Option<u32>,
    /// Log corruption and continue.
    #[arg(long, conflicts_with_all = ["restart_on_corruption", "panic_on_corruption"])]
    ignore_corruption: bool,
    /// Restart the machine on corruption.
    #[arg(long, conflicts_with = "panic_on_corruption")]
    restart_on_corruption: bool,
    /// Panic on corruption.
    #[arg(long)]
    panic_on_corruption: bool,
    /// Restart the machine when a block can't be read.
    #[arg(long, conflicts_with = "panic_on_error")]
    restart_on_error: bool,
    /// Panic when a block can't be read.
    #[arg(long)]
    panic_on_error: bool,
    /// Return zeros for blocks that should be zero, without reading them.
    #[arg(long)]
    ignore_zero_blocks: bool,
    /// Check each data block only when it is first read.
    #[arg(long)]
    check_at_most_once: bool,
    /// Hash in the context of interrupts (tasklets), for lower latency.
    #[arg(long)]
    use_tasklets: bool,
    /// The keyring description of the root hash's signature.
    #[arg(long, value_name = "DESCRIPTION")]
    root_hash_sig_key_desc: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Print {
    Table,
    KernelArgument,
    DataUuid,
    HashUuid,
}

impl Args {
    pub fn run(mut self, context: &Context) -> Result<Answer, Error> {
        let root_hash = self.stored.root_hash(&self.root_hash)?;
        let mut volume = self.stored.open(context)?;
        self.stored.settle_roots(&mut volume, context)?;
        let is_one = volume.is_in_one_device();
        if is_one && self.hash_name.is_none() {
            self.hash_name.clone_from(&self.data_name);
        }
        let needs_names = matches!(self.print, None | Some(Print::Table | Print::KernelArgument));
        for (option, given, is_part, device) in [
            ("--data-name", &self.data_name, self.stored.data_is_part(), self.stored.data()),
            ("--hash-name", &self.hash_name, self.stored.hash_is_part() && !is_one, self.stored.hash()),
        ] {
            if needs_names && given.is_none() && is_part {
                return Err(Error::argument(format!(
                    "this is a part of {}: give the kernel's name of that part with {option}, such as PARTUUID=UUID (casemate info \
                     has the UUID)",
                    device.display()
                )));
            }
        }
        let name = |given: &Option<String>, location: &dyn Display| {
            given.clone().unwrap_or_else(|| location.to_string())
        };
        let (data, hash) = (
            name(&self.data_name, &self.stored.data().display()),
            name(&self.hash_name, &self.stored.hash().display()),
        );
        let fec = self.stored.fec.fec_device.as_ref().map(|device| name(&self.fec_name, &device.display()));
        for (option, name) in [("--data-name", &data), ("--hash-name", &hash)] {
            // What is no file here may be a device there. Who takes the table alone gives it to tools that say so.
            let is_told = matches!(self.print, None | Some(Print::KernelArgument));
            if is_told && !(is_one && option == "--hash-name") && Path::new(name).is_file() {
                context.hint(&format!(
                    "{name} is a file, and the kernel opens devices: give the name of the one that will hold it with {option}"
                ));
            }
        }
        let systemd = systemd_arguments(&volume, &root_hash, &data, &hash);
        let mut table = volume.table(&root_hash, data, hash, fec.unwrap_or_default())?;
        table.on_corruption =
            choice(self.ignore_corruption, self.restart_on_corruption, self.panic_on_corruption);
        table.on_error = choice(false, self.restart_on_error, self.panic_on_error);
        table.ignore_zero_blocks = self.ignore_zero_blocks;
        table.check_at_most_once = self.check_at_most_once;
        table.try_verify_in_tasklet = self.use_tasklets;
        table.root_hash_sig_key_desc = self.root_hash_sig_key_desc;
        let argument = table.kernel_argument(&self.name, self.minor);
        let uuids = partition_uuids(&root_hash);
        match self.print {
            Some(Print::Table) => context.print(format!("{table}\n"))?,
            Some(Print::KernelArgument) => context.print(format!("{}\n", argument?))?,
            Some(Print::DataUuid) => context.print(format!("{}\n", uuids?.data))?,
            Some(Print::HashUuid) => context.print(format!("{}\n", uuids?.hash))?,
            None if context.json() => context.print_json(&json!({
                "table": table.to_string(),
                "kernel_argument": argument.ok(),
                "systemd_arguments": systemd,
                "data_partition_uuid": uuids.as_ref().ok().map(|uuids| uuids.data.to_string()),
                "hash_partition_uuid": uuids.as_ref().ok().map(|uuids| uuids.hash.to_string()),
            }))?,
            None => {
                let mut text = format!("Table:              \t{table}\n");
                if let Ok(argument) = argument {
                    text += &format!("Kernel argument:    \t{argument}\n");
                    text += &format!("Root argument:      \troot=/dev/dm-{}\n", self.minor.unwrap_or(0));
                }
                text += &format!("Systemd arguments:  \t{systemd}\n");
                // Data and hash area of one device are no two partitions.
                if !is_one {
                    text += &info::partition_lines(&root_hash);
                }
                context.print(text)?;
            }
        }
        Ok(Answer::Yes)
    }
}

/// Arguments of the kernel from which systemd opens the root file system.
fn systemd_arguments(volume: &Volume, root_hash: &[u8], data: &str, hash: &str) -> String {
    let offset = match volume.layout().hash_offset() {
        0 => String::new(),
        offset => format!(" systemd.verity_root_options=hash-offset={offset}"),
    };
    let root_hash = hex::encode(root_hash);
    format!("roothash={root_hash} systemd.verity_root_data={data} systemd.verity_root_hash={hash}{offset}")
}

fn choice(ignore: bool, restart: bool, panic: bool) -> Option<OnFault> {
    match (ignore, restart, panic) {
        (true, ..) => Some(OnFault::Ignore),
        (_, true, _) => Some(OnFault::Restart),
        (.., true) => Some(OnFault::Panic),
        _ => None,
    }
}
