//! The command line of `veritysetup` 2.6.1: exit status 0, 1 for wrong parameters, 2 for failed verification, 4
//! for a wrong device.

use casemate::ErrorKind;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

use casemate::blockdev::{is_same_file, u32_of, u64_of, usize_of};
use casemate::target;
use casemate::tree::{Block, Fault, Finding};
use casemate::verity::{
    BlockSize, Fec, FormatOptions, Formatted, HashType, Layout, Parameters, Salt, TriedRepair, Uuid,
    VerityOptions, hex,
};
use casemate::{Access, Code, Error, Image, Output};

use crate::answer;
use crate::cmd::verity::info;
use crate::context::{Context, read_small};
use crate::streams::{say, tell, visible_lines};

/// The version whose command line this is.
pub(super) const VERSION: &str = "veritysetup 2.6.1";

const USAGE: &str = "\
Usage: veritysetup [OPTION...] <action> <action-specific>

  -?, --help                     Show this help
      --usage                    Show this help
  -V, --version                  Print the version
  -v, --verbose                  Report success
      --debug                    Report success
      --data-block-size=bytes    Size of data blocks
      --data-blocks=blocks       Number of data blocks
      --fec-device=path          Device with parity
      --fec-offset=bytes         First byte of the parity
      --fec-roots=bytes          Parity bytes in a codeword
      --format=number            Format: 1 normal, 0 Chrome OS
  -h, --hash=string              Hash algorithm
      --hash-block-size=bytes    Size of hash blocks
      --hash-offset=bytes        First byte of the hash area
      --no-superblock            Make or expect no superblock
      --root-hash-file=path      File with the root hash
  -s, --salt=hex string          Salt, or - for none
      --uuid=string              UUID in the superblock

<action> is one of:
\tformat <data_device> <hash_device>
\tverify <data_device> <hash_device> [<root_hash>]
\tdump <hash_device>

This is casemate under the name veritysetup. Actions that need the kernel (open, close, status) are not supported;
see 'casemate verity table --help'.
";

#[derive(Debug, Parser)]
#[command(name = "veritysetup", disable_help_flag = true, disable_version_flag = true)]
#[command(args_override_self = true, allow_negative_numbers = true)]
struct Tool {
    #[arg(short = '?', long)]
    help: bool,
    #[arg(long)]
    usage: bool,
    #[arg(short = 'V', long)]
    version: bool,
    #[arg(short, long)]
    verbose: bool,
    #[arg(long)]
    debug: bool,
    #[arg(long, value_parser = number, default_value = "4096")]
    data_block_size: u64,
    #[arg(long, value_parser = number, default_value = "0")]
    data_blocks: u64,
    #[arg(long)]
    fec_device: Option<PathBuf>,
    #[arg(long, value_parser = number, default_value = "0")]
    fec_offset: u64,
    #[arg(long, value_parser = number, default_value = "2")]
    fec_roots: u64,
    #[arg(long, value_parser = number, default_value = "1")]
    format: u64,
    #[arg(short = 'h', long, default_value = "sha256")]
    hash: String,
    #[arg(long, value_parser = number, default_value = "4096")]
    hash_block_size: u64,
    #[arg(long, value_parser = number, default_value = "0")]
    hash_offset: u64,
    #[arg(long)]
    no_superblock: bool,
    #[arg(long)]
    root_hash_file: Option<PathBuf>,
    #[arg(short, long, allow_hyphen_values = true)]
    salt: Option<String>,
    #[arg(long)]
    uuid: Option<String>,
    words: Vec<OsString>,
}

/// Text on damage that the parity does not restore.
const UNREPAIRED: &str = "Errors cannot be repaired with FEC device.";

/// Why the tool fails: its exit status, and what it says.
#[derive(Debug)]
struct Failure {
    status: u8,
    text: String,
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
    let usage = (tool.help || tool.usage).then_some(USAGE);
    if let Some(status) = super::asked(&context, usage, tool.version.then_some(VERSION)) {
        return status;
    }
    let Some((action, words)) = tool.words.split_first() else {
        return wrong_usage("Argument <action> missing.");
    };
    let path = |number: usize| Path::new(&words[number]);
    let context = if action == "verify" { context.going_on() } else { context };
    let result = match (action.to_str(), words.len()) {
        (Some("format"), 2..) => tool.format(&context, path(0), path(1)),
        (Some("format"), _) => {
            return wrong_usage("format: requires <data_device> <hash_device> as arguments");
        }
        (Some("verify"), 2..) => tool.verify(
            &context,
            path(0),
            path(1),
            words.get(2).map(|word| word.to_string_lossy().into_owned()),
        ),
        (Some("verify"), _) => {
            return wrong_usage("verify: requires <data_device> <hash_device> [<root_hash>] as arguments");
        }
        (Some("dump"), 1..) => tool.dump(&context, path(0)),
        (Some("dump"), _) => return wrong_usage("dump: requires <hash_device> as arguments"),
        (Some(kernel @ ("open" | "create" | "close" | "remove" | "status")), _) => Err(Failure::parameters(
            &format!("'{kernel}' needs the kernel; 'casemate verity table' prints what dmsetup takes"),
        )),
        _ => return wrong_usage("Unknown action."),
    };
    tool.exit(&context, result)
}

impl Tool {
    fn format(&self, context: &Context, data: &Path, hash: &Path) -> Result<(), Failure> {
        let mut options = FormatOptions::default();
        options.area = self.area()?;
        options.uuid = match &self.uuid {
            None => None,
            Some(text) => {
                let wrong = || format!("Wrong VERITY UUID format provided on device {}.", hash.display());
                Some(Uuid::from_text(text).map_err(|_| Failure::parameters(&wrong()))?)
            }
        };
        self.check_hash_offset()?;
        let size = |size: Option<BlockSize>| size.unwrap_or_default();
        self.check_fec(size(options.area.data_block_size), size(options.area.hash_block_size))?;
        let access = if is_same_file(data, hash) { Access::Change } else { Access::Read };
        let data_image = Image::open(data, access).map_err(Failure::device)?;
        self.check_data_size(data)?;
        let failed = |error: Error| match error.kind() {
            ErrorKind::Io if error.is_not_found() => {
                Failure::parameters(&format!("Cannot create hash image {} for writing.", hash.display()))
            }
            _ if error.code() == Code::Overlap => Failure::parameters("Data area overlaps with hash area."),
            _ => Failure::other(&error),
        };
        // veritysetup asks nothing.
        options.overwrite = true;
        context.heed_signals();
        let hash_image = match data_image.is_file(hash) {
            true => data_image.clone(),
            false => Image::create(hash).map_err(failed)?,
        };
        options.area.fec = self.fec(&hash_image, |path| Image::create(path)).map_err(failed)?;
        let progress = context.progress("", 0);
        let work = context.work(context.providers().clone(), &progress);
        let file = self.root_hash_file.as_ref().map(|path| Output::create(path, &[data, hash]));
        let file = file.transpose().map_err(|error| Failure::other(&error))?;
        let beside = |formatted: &Formatted| {
            let root_hash = hex::encode(&formatted.root_hash);
            file.map(|file| file.with(root_hash.as_bytes())).into_iter().collect()
        };
        let formatted = options.format_beside(&data_image, &hash_image, &target::refuse, &work, beside);
        let formatted = formatted.map_err(failed)?;
        let lines = info::formatted_lines(&hash.display(), self.fec_offset, &formatted);
        context.print(lines).map_err(|error| Failure::other(&error))
    }

    /// Data that has not one sector is refused before anything else.
    fn check_data_size(&self, data: &Path) -> Result<(), Failure> {
        match std::fs::metadata(data) {
            Ok(metadata) if metadata.is_file() && metadata.len() < 512 => Err(Failure::parameters(&format!(
                "Header detected but device {} is too small.",
                data.display()
            ))),
            _ => Ok(()),
        }
    }

    fn verify(
        &self,
        context: &Context,
        data: &Path,
        hash: &Path,
        root_hash: Option<String>,
    ) -> Result<(), Failure> {
        let text = match (&self.root_hash_file, root_hash) {
            (Some(path), _) => {
                let bytes = read_small(path).map_err(|error| Failure::other(&error))?;
                String::from_utf8_lossy(&bytes).trim_end().to_owned()
            }
            (None, Some(text)) => text,
            (None, None) => {
                let text = "Command requires <root_hash> or --root-hash-file option as argument.";
                return Err(Failure::parameters(text));
            }
        };
        self.check_hash_offset()?;
        let mut area = self.area()?;
        // What the superblock says is right.
        if area.superblock {
            area = VerityOptions::default();
            area.hash_offset = self.hash_offset;
        }
        let data_image = Image::open(data, Access::Read).map_err(Failure::device)?;
        let hash_image = match data_image.is_file(hash) {
            true => data_image.clone(),
            false => Image::open(hash, Access::Read).map_err(Failure::device)?,
        };
        // Nothing is asked of the parity until something is damaged, as in the tool.
        let fec = self.fec(&hash_image, |path| Image::open(path, Access::Read)).map_err(Failure::device)?;
        let volume = data_image.verity_volume(&hash_image, &area).map_err(|error| match error.kind() {
            ErrorKind::Corrupt | ErrorKind::Unsupported => not_verity(hash),
            _ => Failure::device(error),
        })?;
        self.check_data_size(data)?;
        let invalid = || Failure::parameters("Invalid root hash string specified.");
        let root_hash = hex::decode(&text).ok_or_else(invalid)?;
        volume.layout().check_root_hash(&root_hash).map_err(|_| invalid())?;

        let progress = context.progress("", 0);
        let work = context.work(context.providers().clone(), &progress);
        let mut stop: Option<Stop> = None;
        let mut report = |finding: Finding| {
            if let Some(error) = finding.unreadable() {
                return Err(error);
            }
            let found = Stop::new(volume.layout(), &finding);
            stop = stop.take().into_iter().chain([found]).min_by_key(|stop| stop.order);
            Ok(())
        };
        let summary = volume.verify(&root_hash, &work, &mut report).map_err(|error| match error.kind() {
            ErrorKind::Corrupt => Failure::parameters("Verification of data area failed."),
            _ => Failure::other(&error),
        })?;
        let Some(stop) = stop else { return Ok(()) };
        debug_assert!(!summary.is_clean());
        let Some(fec) = fec else { return Err(Failure { status: stop.status, text: stop.text }) };
        if stop.status == 1 {
            // Under another root hash the tool finds nothing to repair, and has the status of its repairs.
            return Err(Failure { status: 2, text: stop.text });
        }
        tell(format_args!("{}\n", stop.text));
        let found = volume.layout().parameters();
        let checked = self.check_fec(found.data_block_size, found.hash_block_size);
        checked
            .map_err(|Failure { status, text }| Failure { status, text: format!("{text}\n{UNREPAIRED}") })?;
        area.fec = Some(fec);
        // Parity that is cut off, say, repairs nothing.
        let unrepaired = |error: Error| match error.kind() {
            ErrorKind::Argument | ErrorKind::Corrupt => Failure { status: 2, text: UNREPAIRED.to_owned() },
            _ => Failure::other(&error),
        };
        let volume = data_image.verity_volume(&hash_image, &area).map_err(unrepaired)?;
        let TriedRepair { repaired, changed_bytes: bytes, .. } =
            volume.try_repair(&root_hash, &work).map_err(unrepaired)?;
        if !repaired.left.is_clean() {
            return Err(Failure { status: 2, text: UNREPAIRED.to_owned() });
        }
        say(format_args!("Found {bytes} repairable errors with FEC device."));
        Ok(())
    }

    fn dump(&self, context: &Context, hash: &Path) -> Result<(), Failure> {
        self.check_hash_offset()?;
        let layout =
            Image::open(hash, Access::ReadUnlocked).and_then(|hash| hash.verity_superblock(self.hash_offset));
        let layout = layout.map_err(|error| match error.kind() {
            ErrorKind::Corrupt | ErrorKind::Unsupported => not_verity(hash),
            _ => Failure::device(error),
        })?;
        context.print(info::lines(&hash.display(), &layout)).map_err(|error| Failure::other(&error))
    }

    fn area(&self) -> Result<VerityOptions, Failure> {
        let mut area = VerityOptions::default();
        let unknown = |_| Failure::parameters(&format!("Hash algorithm {} not supported.", self.hash));
        Parameters::new(&self.hash).map_err(unknown)?;
        area.algorithm = Some(self.hash.clone());
        let block_size =
            |size| BlockSize::new(size).map_err(|_| Failure::parameters("Unsupported VERITY block size."));
        area.data_block_size = Some(block_size(self.data_block_size)?);
        area.hash_block_size = Some(block_size(self.hash_block_size)?);
        let wrong_type = |_| Failure::parameters(&format!("Unsupported VERITY hash type {}.", self.format));
        area.hash_type = Some(HashType::numbered(self.format).map_err(wrong_type)?);
        let wrong_salt = |_| Failure::parameters("Invalid salt string specified.");
        area.salt = self.salt.as_deref().map(Salt::from_text).transpose().map_err(wrong_salt)?;
        area.data_blocks = Some(self.data_blocks).filter(|blocks| *blocks > 0);
        area.hash_offset = self.hash_offset;
        area.superblock = !self.no_superblock;
        Ok(area)
    }

    fn check_hash_offset(&self) -> Result<(), Failure> {
        match self.hash_offset.is_multiple_of(512) {
            true => Ok(()),
            false => Err(Failure::parameters("Unsupported VERITY hash offset.")),
        }
    }

    fn check_fec(&self, data: BlockSize, hash: BlockSize) -> Result<(), Failure> {
        if self.fec_device.is_some() && data != hash {
            return Err(Failure::parameters("Block sizes must match for FEC."));
        }
        match self.fec_device.is_none() || (2..=24).contains(&self.fec_roots) {
            true => Ok(()),
            false => Err(Failure::parameters("Invalid number of parity bytes.")),
        }
    }

    /// The parity, which may be on the hash device, and is opened by `open` otherwise.
    fn fec(
        &self,
        hash: &Image,
        open: impl FnOnce(&Path) -> Result<Image, Error>,
    ) -> Result<Option<Fec>, Error> {
        let Some(path) = &self.fec_device else { return Ok(None) };
        let mut fec = Fec::new(if hash.is_file(path) { hash.clone() } else { open(path)? });
        fec.offset = self.fec_offset;
        // Too many are refused where they are used.
        fec.roots = Some(u32_of(self.fec_roots.min(255)));
        // The tool leaves a file as long as it was.
        fec.keep_behind = true;
        Ok(Some(fec))
    }

    fn exit(&self, context: &Context, result: Result<(), Failure>) -> ExitCode {
        let verbose = self.verbose || self.debug;
        let (status, line) = match result {
            Ok(()) => (0, "Command successful.\n".to_owned()),
            Err(failure) => {
                if !failure.text.is_empty() {
                    tell(visible_lines(&failure.text) + "\n");
                }
                let meaning = match failure.status {
                    1 => "wrong or missing parameters",
                    2 => "no permission or bad passphrase",
                    _ => "wrong device or file specified",
                };
                (failure.status, format!("Command failed with code -{} ({meaning}).\n", failure.status))
            }
        };
        if verbose && context.print(line).is_err() {
            return ExitCode::FAILURE;
        }
        ExitCode::from(status)
    }
}

/// Where veritysetup stops: it compares the data first, then each level from level 0 up, takes the digests that
/// it compares with as they are, and looks at the spare bytes of each hash block on its way.
struct Stop {
    /// Level whose digests are compared, block in it, digest in that, and whether spare bytes come after it.
    order: (usize, u64, usize, bool),
    status: u8,
    text: String,
}

impl Stop {
    fn new(layout: &Layout, finding: &Finding) -> Stop {
        let (geometry, shape) = (layout.geometry(), layout.geometry().shape());
        let position = |level, index| layout.position(level, index);
        let (parent, child, place) = match finding.block {
            Block::Data(index) => (0, index, index * u64_of(shape.data_block_size())),
            Block::Hash { level, index } => (level + 1, index, position(level, index)),
        };
        let failed = |text: String| format!("{text}\nVerification of data area failed.");
        match (&finding.fault, finding.block) {
            (Fault::Digest { .. }, _) if parent == geometry.levels().len() => {
                let text = "Verification of root hash failed.".to_owned();
                Stop { order: (parent, 0, 0, false), status: 1, text }
            }
            (Fault::NotZero { offset }, Block::Hash { level, index }) => {
                let digests = geometry.digests_in(level, index);
                let digest = offset / shape.digest_stride();
                // The gap after a digest, or all that follows the last one.
                let start = match digest < digests {
                    true => digest * shape.digest_stride() + shape.digest_len(),
                    false => digests * shape.digest_stride(),
                };
                let position = position(level, index) + u64_of(start);
                let text = failed(format!("Spare area is not zeroed at position {position}."));
                Stop { order: (level, index, digest.min(digests), true), status: 2, text }
            }
            _ => {
                let per_block = u64_of(shape.digests_per_block());
                let order = (parent, child / per_block, usize_of(child % per_block), false);
                let text = failed(format!("Verification failed at position {place}."));
                Stop { order, status: 2, text }
            }
        }
    }
}

impl Failure {
    fn parameters(text: &str) -> Failure {
        Failure { status: 1, text: text.to_owned() }
    }

    fn other(error: &Error) -> Failure {
        match error.is_broken_pipe() {
            true => Failure { status: answer::CUT, text: String::new() },
            false => Failure::parameters(&error.to_string()),
        }
    }

    fn device(error: Error) -> Failure {
        if error.is_busy() {
            return Failure { status: 5, ..Failure::other(&error) };
        }
        match (error.io_kind(), &error.place().file) {
            (Some(_), Some(file)) => {
                let text = format!("Device {file} does not exist or access denied.");
                Failure { status: 4, text }
            }
            _ => Failure::other(&error),
        }
    }
}

fn not_verity(hash: &Path) -> Failure {
    Failure::parameters(&format!("Device {} is not a valid VERITY device.", hash.display()))
}

fn wrong_usage(text: &str) -> ExitCode {
    tell(USAGE);
    say(format_args!("veritysetup: {text}"));
    ExitCode::FAILURE
}

/// Numbers as the tool takes them: decimal, and negative ones wrap around.
fn number(text: &str) -> Result<u64, String> {
    let value = match text.strip_prefix('-') {
        Some(digits) => digits.parse().map(u64::wrapping_neg),
        None => text.parse(),
    };
    value.map_err(|_| "invalid numeric value".to_owned())
}
