//! The command line of `integritysetup` 2.6.1, of what needs no kernel: exit status 0, 1 for wrong parameters, 4 for a
//! wrong device.

use std::ffi::OsString;
use std::io::ErrorKind::{NotFound, PermissionDenied};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use casemate::integrity::{FormatOptions, IntegrityOptions, random_salt};
use casemate::target::{Loss, Made};
use casemate::{Access, Error, ErrorKind, Image, SecretSource, Target, probe};

use crate::cmd::journal::JournalArgs;
use crate::cmd::luks::confirm;
use crate::context::Context;
use crate::streams::say;

/// The version whose command line this is.
pub(super) const VERSION: &str = "integritysetup 2.6.1";

const USAGE: &str = "\
Usage: integritysetup [OPTION...] <action> <action-specific>

  -?, --help                     Show this help
  -V, --version                  Print the version
  -q, --batch-mode               Overwrite a device with known contents
  -I, --integrity=STRING         Integrity algorithm: crc32c, sha256, hmac-sha256, ...
      --integrity-key-file=path  File with the key of tags
      --integrity-key-size=bytes Size of the key
      --interleave-sectors=N     Sectors between two runs of tags
      --journal-integrity=STRING Journal MAC algorithm: hmac-sha256, ...
      --journal-integrity-key-file=path, --journal-integrity-key-size=bytes
      --journal-crypt=STRING     Journal encryption: ctr-aes, cbc-aes
      --journal-crypt-key-file=path, --journal-crypt-key-size=bytes
  -j, --journal-size=bytes       Size of the journal
      --no-wipe                  No effect: formatting writes all tags in any case
  -s, --sector-size=bytes        Size of a block
  -t, --tag-size=bytes           Length of a tag

<action> is one of:
\tformat <integrity_device>
\tdump <integrity_device>

This is casemate under the name integritysetup. Actions that need the kernel (open, close, status, resize) are not supported.
";

#[derive(Debug, Parser)]
#[command(name = "integritysetup", disable_help_flag = true, disable_version_flag = true)]
#[command(args_override_self = true)]
struct Tool {
    #[arg(short = '?', long, alias = "usage")]
    help: bool,
    #[arg(short = 'V', long)]
    version: bool,
    #[arg(short, long)]
    verbose: bool,
    #[arg(long)]
    debug: bool,
    #[arg(short = 'q', long)]
    batch_mode: bool,
    #[arg(short = 'I', long, default_value = "crc32c")]
    integrity: String,
    #[arg(long)]
    integrity_key_file: Option<PathBuf>,
    #[arg(long)]
    integrity_key_size: Option<usize>,
    #[command(flatten)]
    journal: JournalArgs,
    #[arg(long)]
    journal_integrity_key_size: Option<usize>,
    #[arg(long)]
    journal_crypt_key_size: Option<usize>,
    #[arg(long, default_value = "32768")]
    interleave_sectors: u32,
    #[arg(short = 'j', long)]
    journal_size: Option<u64>,
    #[arg(long)]
    no_wipe: bool,
    #[arg(long)]
    progress_frequency: Option<u64>,
    #[arg(short = 's', long, default_value = "512")]
    sector_size: u32,
    #[arg(short = 't', long)]
    tag_size: Option<u16>,
    words: Vec<OsString>,
}

/// Whether a command line is understood; nothing is run.
pub fn understands(args: &[OsString]) -> bool {
    Tool::try_parse_from(args).is_ok()
}

/// Runs one command line.
pub fn main(args: &[OsString]) -> ExitCode {
    let context = Context::for_tool("");
    let tool = match Tool::try_parse_from(args) {
        Ok(tool) => tool,
        Err(error) => return wrong_usage(&super::first_line(&error)),
    };
    let (usage, version) = (tool.help.then_some(USAGE), tool.version.then_some(VERSION));
    if let Some(status) = super::asked(&context, usage, version) {
        return status;
    }
    let result = match &tool.words[..] {
        [] => return wrong_usage("Argument <action> missing."),
        [action, device] if action == "dump" => tool.dump(device, &context),
        [action, device] if action == "format" => tool.format(device, &context),
        [action, ..] if action == "dump" || action == "format" => {
            return wrong_usage(&format!("{}: requires <integrity_device> as arguments", action.display()));
        }
        [action, ..]
            if ["open", "create", "close", "remove", "status", "resize"]
                .iter()
                .any(|name| action == name) =>
        {
            say(format_args!(
                "'{}' needs the kernel; 'casemate integrity --help' says what does not.",
                action.display()
            ));
            let is_wrong = ["open", "create", "status"].iter().any(|name| action == name);
            return ExitCode::from(if is_wrong { 1 } else { 4 });
        }
        _ => return wrong_usage("Unknown action."),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => super::cut(&error).unwrap_or_else(|| {
            context.complain(&error);
            ExitCode::from(if error.kind() == ErrorKind::Argument { 1 } else { 4 })
        }),
    }
}

fn wrong_usage(text: &str) -> ExitCode {
    say(format_args!("integritysetup: {text}"));
    ExitCode::from(1)
}

/// The tool's words for a device that can't be opened.
fn wrong_device(device: &OsString, error: Error) -> Error {
    let (name, is_busy) = (device.display(), error.is_busy());
    let text = match (error.kind(), error.io_kind()) {
        _ if is_busy => return error,
        (ErrorKind::Argument, _) => format!("Device {name} is not compatible."),
        (_, Some(NotFound | PermissionDenied)) => format!("Device {name} does not exist or access denied."),
        _ => return error,
    };
    Error::unsupported(text)
}

impl Tool {
    fn dump(&self, device: &OsString, context: &Context) -> Result<(), Error> {
        let opened = Image::open(device, Access::ReadUnlocked);
        let image = opened.map_err(|error| wrong_device(device, error))?;
        let superblock = image.integrity_superblock().map_err(|error| match error.kind() {
            ErrorKind::Io => error,
            _ => Error::argument(format!("Device {} is not a valid INTEGRITY device.", device.display())),
        })?;
        context.print(format!("Info for integrity device {}.\n{}", device.display(), superblock.to_text()))
    }

    fn format(&self, device: &OsString, context: &Context) -> Result<(), Error> {
        let mut options = IntegrityOptions::default();
        options.algorithm = self.integrity.clone();
        if let Some(path) = &self.integrity_key_file {
            options = options.with_key(&SecretSource::file(path))?;
        }
        self.journal.set(&mut options)?;
        for (key, said, whose) in [
            (options.key.as_ref(), self.integrity_key_size, "integrity"),
            (
                options.journal_code.as_ref().map(|code| &code.key),
                self.journal_integrity_key_size,
                "journal-integrity",
            ),
            (
                options.journal_cipher.as_ref().map(|cipher| &cipher.key),
                self.journal_crypt_key_size,
                "journal-crypt",
            ),
        ] {
            if let (Some(key), Some(said)) = (key, said)
                && key.len() != said
            {
                let text =
                    format!("--{whose}-key-file has {} bytes, and --{whose}-key-size is {said}", key.len());
                return Err(Error::argument(text));
            }
        }
        let image = Image::open(device, Access::Change)?;
        let consent = |loss: &Loss| match self.batch_mode {
            true => Ok(()),
            false if std::io::stdin().is_terminal() => {
                confirm::ask_as_tool(&format!("This will overwrite data on {} irrevocably.", loss.name()))
            }
            false => {
                let text =
                    format!("{} contains {}; use --batch-mode to destroy it", loss.name(), loss.what());
                Err(Error::argument(text))
            }
        };
        let image = Target::on(image, Made::Known(probe::INTEGRITY), &consent)?;
        let tag_size = self.tag_size.map_or_else(|| options.tag_size(context.providers()), Ok)?;
        let mut format = FormatOptions::new(tag_size, random_salt()?);
        (format.block_size, format.journal_size) = (self.sector_size, self.journal_size);
        format.interleave_sectors = self.interleave_sectors;
        let made = options.format(&image, &format, None, &context.opening())?;
        context.print(format!(
            "Formatted with tag size {}, internal integrity {}.\n",
            made.tag_size, self.integrity
        ))
    }
}
