//! The command line of `mke2fs` 1.47.4, and of `mkfs.ext2`, `mkfs.ext3` and `mkfs.ext4`: exit status 0, or 1.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Parser;

use casemate::ext4::{
    BuildOptions, BuildSize, BuildSpec, BuildTarget, Geometry, Source, Time, random_uuid, source_date_epoch,
    uuid_of, uuid_text,
};
use casemate::probe::{self, Held};
use casemate::{Access, Error, Image};

use super::mke2fs_conf::Configuration;
use crate::context::Context;
use crate::streams::{say, tell};

/// The version whose command line this is.
const VERSION: &str = "mke2fs 1.47.4 (casemate)\n";

/// Names that blkid, whose words mke2fs shows, has for what is known.
const KINDS: &[(&str, &str)] = &[
    (probe::LUKS, "crypto_LUKS"),
    (probe::LUKS_REENCRYPTED, "crypto_LUKS"),
    (probe::LUKS_SECOND, "crypto_LUKS"),
    (probe::VERITY, "DM_verity_hash"),
    (probe::INTEGRITY, "DM_integrity"),
    ("an XFS file system", "xfs"),
    ("a btrfs file system", "btrfs"),
    ("a squashfs file system", "squashfs"),
    ("an EROFS file system", "erofs"),
    ("an F2FS file system", "f2fs"),
    ("a FAT file system", "vfat"),
    ("an exFAT file system", "exfat"),
    ("an NTFS file system", "ntfs"),
    ("an ISO 9660 file system", "iso9660"),
    ("swap space", "swap"),
    ("an LVM physical volume", "LVM2_member"),
    ("a member of an MD array", "linux_raid_member"),
    ("a member of a ZFS pool", "zfs_member"),
    ("a bcache device", "bcache"),
    ("a BitLocker header", "BitLocker"),
];

const USAGE: &str = "\
Usage: mke2fs [-b block-size] [-C cluster-size] [-d root-directory|tarball] [-D] [-e errors-behavior]
\t[-E extended-options] [-F] [-g blocks-per-group] [-G flex-group-size] [-i bytes-per-inode]
\t[-I inode-size] [-j] [-J journal-options] [-L volume-label] [-m reserved-blocks-percentage]
\t[-M last-mounted-directory] [-n] [-N number-of-inodes] [-o creator-os] [-O feature[,...]] [-q]
\t[-t fs-type] [-T usage-type] [-U UUID] [-v] [-V] device [blocks-count]

This is casemate under the name mke2fs. Bad blocks (-c, -l) and undo files (-z) are not supported; see
'casemate ext4 build --help'.
";

#[derive(Debug, Parser)]
#[command(name = "mke2fs", disable_help_flag = true, disable_version_flag = true)]
#[command(args_override_self = true, allow_negative_numbers = true)]
struct Tool {
    #[arg(short)]
    block_size: Option<String>,
    #[arg(short = 'C')]
    cluster_size: Option<String>,
    #[arg(short = 'd')]
    root: Option<PathBuf>,
    #[arg(short = 'D')]
    direct: bool,
    #[arg(short = 'e')]
    on_errors: Option<String>,
    #[arg(short = 'E')]
    extended: Vec<String>,
    #[arg(short = 'F', action = clap::ArgAction::Count)]
    force: u8,
    #[arg(short = 'g')]
    blocks_per_group: Option<u32>,
    #[arg(short = 'G')]
    groups_per_flex: Option<u32>,
    #[arg(short = 'i')]
    inode_ratio: Option<String>,
    #[arg(short = 'I')]
    inode_size: Option<u32>,
    #[arg(short = 'j')]
    journal: bool,
    #[arg(short = 'J')]
    journal_options: Vec<String>,
    #[arg(short = 'L')]
    label: Option<String>,
    #[arg(short = 'm')]
    reserved_percent: Option<f64>,
    #[arg(short = 'M')]
    last_mounted: Option<String>,
    #[arg(short = 'n')]
    dry_run: bool,
    #[arg(short = 'N')]
    inodes: Option<u32>,
    #[arg(short = 'o')]
    creator: Option<String>,
    #[arg(short = 'O')]
    features: Vec<String>,
    #[arg(short = 'q')]
    quiet: bool,
    #[arg(short = 'r')]
    revision: Option<u32>,
    #[arg(short = 't')]
    kind: Option<String>,
    #[arg(short = 'T')]
    usage: Option<String>,
    #[arg(short = 'U')]
    uuid: Option<String>,
    #[arg(short = 'v')]
    verbose: bool,
    #[arg(short = 'V')]
    version: bool,
    device: Option<PathBuf>,
    blocks: Option<String>,
}

/// Whether a command line is understood; nothing is run.
pub fn understands(args: &[OsString]) -> bool {
    Tool::try_parse_from(args).is_ok()
}

/// Runs one command line.
pub fn main(args: &[OsString]) -> ExitCode {
    let context = Context::for_tool("mke2fs: ");
    let tool = match Tool::try_parse_from(args) {
        Ok(tool) => tool,
        Err(error) => {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            say(format_args!("mke2fs: {}", line.strip_prefix("error: ").unwrap_or(line)));
            tell(USAGE);
            return ExitCode::FAILURE;
        }
    };
    if tool.version {
        tell(VERSION);
        return ExitCode::SUCCESS;
    }
    let Some(device) = &tool.device else {
        tell(USAGE);
        return ExitCode::FAILURE;
    };
    let name = args.first().and_then(|name| Path::new(name).file_name()).and_then(|name| name.to_str());
    let kind = name.and_then(|name| name.strip_prefix("mkfs."));
    match tool.run(&context, device, kind) {
        Ok(status) => status,
        Err(error) => super::cut(&error).unwrap_or_else(|| {
            context.complain(&error);
            ExitCode::FAILURE
        }),
    }
}

impl Tool {
    fn run(&self, context: &Context, device: &Path, kind: Option<&str>) -> Result<ExitCode, Error> {
        if self.creator.as_ref().is_some_and(|creator| !["Linux", "linux", "0"].contains(&&**creator)) {
            return Err(Error::unsupported("creators other than Linux (-o)"));
        }
        if self.revision.is_some_and(|revision| revision != 1) {
            return Err(Error::unsupported("revisions other than 1 (-r)"));
        }
        let offset = self
            .extended
            .iter()
            .flat_map(|list| list.split(','))
            .find_map(|word| word.strip_prefix("offset="));
        let offset = offset.map(|text| number(text, 1)).transpose()?;
        let target = match offset.unwrap_or(0) {
            0 if !device.is_file() => BuildTarget::from(device),
            offset => BuildTarget::InPlace { path: device.to_owned(), offset },
        };
        if self.force == 0 && offset.is_none() && !self.may_proceed(context, device)? {
            context.print("\n")?;
            return Ok(ExitCode::FAILURE);
        }
        let size = self.size(&target, device)?;
        let copies_xattrs =
            !self.extended.iter().any(|list| list.split(',').any(|word| word == "no_copy_xattrs"));
        let mut spec =
            BuildSpec::new(target).file_system(self.options(kind, size)?).size(BuildSize::Bytes(size));
        spec.reading.xattrs = copies_xattrs;
        spec.sources = self.root.iter().map(|root| source(root)).collect();
        let work = context.opening();
        let planned = spec.plan(&work)?;
        if !self.quiet {
            context.print(told(planned.geometry(), &planned.uuid(&work)?))?;
        }
        if !self.dry_run {
            // It was asked for above, as far as mke2fs asks.
            planned.write(&casemate::target::overwrite, &work)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Whether the device may lose what it holds: mke2fs asks that, where standard input and output are terminals, of what is known.
    fn may_proceed(&self, context: &Context, device: &Path) -> Result<bool, Error> {
        let is_terminal = std::io::stdin().is_terminal() && context.output().is_terminal();
        if !is_terminal || !device.exists() {
            return Ok(true);
        }
        let image = Image::open(device, Access::ReadUnlocked)?;
        let Held::Known(what) = probe::held(&*image.device())? else { return Ok(true) };
        let found = probe::look(&image)?;
        let fact = |name: &str| found.fact(name).unwrap_or_default();
        let device = device.display();
        let mut text = match what {
            probe::GPT => format!("Found a gpt partition table in {device}\n"),
            probe::MBR => format!("Found a dos partition table in {device}\n"),
            _ => {
                let kind = KINDS.iter().find(|(words, _)| *words == what).map(|(_, kind)| *kind);
                let kind = if what == probe::EXT { fact("version") } else { kind.unwrap_or(what) };
                let label = match fact("label") {
                    "" => String::new(),
                    label => format!(" labelled '{label}'"),
                };
                format!("{device} contains a {kind} file system{label}\n")
            }
        };
        text += "Proceed anyway? (y,N) ";
        context.print(text)?;
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).map_err(|error| Error::io("standard input", error))?;
        Ok(line.starts_with(['y', 'Y']))
    }

    /// Bytes of the file system: what is said, or all of the device.
    fn size(&self, target: &BuildTarget, device: &Path) -> Result<u64, Error> {
        if let Some(text) = &self.blocks {
            let block = match &self.block_size {
                Some(size) => number(size.trim_start_matches('-'), 1)?,
                None => 1024,
            };
            return number(text, block);
        }
        if let Some(size) = target.size()? {
            return Ok(size);
        }
        let metadata = std::fs::metadata(device).map_err(|_| {
            Error::argument("the file does not exist, and no size was specified").at(device.display())
        })?;
        Ok(metadata.len())
    }

    fn options(&self, kind: Option<&str>, size: u64) -> Result<BuildOptions, Error> {
        let mut options = BuildOptions::new(random_uuid()?, random_uuid()?);
        let configuration = Configuration::read()?;
        let has_journal = self.journal || !self.journal_options.is_empty();
        let usual = configuration.as_ref().and_then(Configuration::default_type);
        let kind = self.kind.as_deref().or(kind).or(usual);
        let kind = kind.unwrap_or(if has_journal { "ext3" } else { "ext2" });
        let usage = self.usage.as_deref().unwrap_or(BuildOptions::usage_of(size));
        match &configuration {
            Some(configuration) => configuration.apply(&mut options, kind, usage, &self.features)?,
            None => {
                // A type of file system that is given as a usage is that type, and no usage follows from the size then.
                let (kind, usage) = match (self.kind.is_none(), usage) {
                    (true, "ext2" | "ext3" | "ext4") => (usage, "default"),
                    _ => (kind, usage),
                };
                options.set_type(kind)?;
                options.set_usage(usage)?;
                options.reserved_percent = 5.0;
                self.features.iter().try_for_each(|list| options.features.change(list))?;
            }
        }
        if has_journal {
            options.features.change("has_journal")?;
        }
        (options.root_owner, options.root_mode) = (Some((0, 0)), Some(0o755));
        options.time = Some(source_date_epoch()?.unwrap_or_else(now));
        for list in &self.extended {
            // Group descriptors have this size with the feature 64bit, and another one is refused as what is not done here.
            let words: Vec<&str> = list.split(',').filter(|word| *word != "desc_size=64").collect();
            options.set_extended(&words.join(","))?;
        }
        self.journal_options.iter().try_for_each(|list| options.set_journal(list))?;
        if let Some(text) = &self.block_size {
            let least = number(text.trim_start_matches('-'), 1)?;
            // OK to cut: what is larger is refused as a block size.
            let least = u32::try_from(least).unwrap_or(u32::MAX);
            options.block_size = if text.starts_with('-') { least.max(options.block_size) } else { least };
        }
        let small = |text: &String| number(text, 1).map(|size| u32::try_from(size).unwrap_or(u32::MAX));
        options.cluster_size = self.cluster_size.as_ref().map(small).transpose()?.or(options.cluster_size);
        options.blocks_per_group = self.blocks_per_group;
        options.groups_per_flex = self.groups_per_flex.unwrap_or(options.groups_per_flex);
        if let Some(text) = &self.inode_ratio {
            options.inode_ratio = number(text, 1)?;
        }
        options.inode_size = self.inode_size.unwrap_or(options.inode_size);
        options.inodes = self.inodes;
        options.reserved_percent = self.reserved_percent.unwrap_or(options.reserved_percent);
        options.label = self.label.clone().unwrap_or_default().into_bytes();
        options.last_mounted = self.last_mounted.clone().unwrap_or_default().into_bytes();
        match self.uuid.as_deref() {
            None | Some("random" | "time") => {}
            Some("clear") => options.uuid = Some([0; 16].into()),
            Some(text) => {
                let uuid = uuid_of(text).ok_or_else(|| Error::argument(format!("Invalid UUID {text}")))?;
                options.uuid = Some(uuid.into());
            }
        }
        options.on_errors = match self.on_errors.as_deref() {
            None => options.on_errors,
            Some("continue") => 1,
            Some("remount-ro") => 2,
            Some("panic") => 3,
            Some(other) => return Err(Error::argument(format!("bad error behavior - {other}"))),
        };
        Ok(options)
    }
}

/// This moment.
fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanoseconds: 0 }
}

/// A folder, or a tar stream.
fn source(path: &Path) -> Source {
    match path.is_dir() {
        true => Source::Folder(path.to_owned()),
        false => Source::Tar(path.to_owned()),
    }
}

/// A number with a unit, else of so many bytes each.
fn number(text: &str, unit: u64) -> Result<u64, Error> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => Some(unit),
        "s" => Some(512),
        "k" => Some(1 << 10),
        "m" => Some(1 << 20),
        "g" => Some(1 << 30),
        "t" => Some(1 << 40),
        _ => None,
    };
    let number = digits.parse::<u64>().ok().zip(unit).and_then(|(number, unit)| number.checked_mul(unit));
    number.ok_or_else(|| Error::argument(format!("{text}: invalid number or size")))
}

/// Text that mke2fs prints about a new file system.
fn told(geometry: &Geometry, uuid: &[u8; 16]) -> String {
    let mut text = format!(
        "Creating filesystem with {} {}k blocks and {} inodes\nFilesystem UUID: {}\n",
        geometry.blocks,
        geometry.block_size / 1024,
        geometry.inodes(),
        uuid_text(uuid)
    );
    let backups: Vec<String> = geometry.backups().map(|block| block.to_string()).collect();
    if !backups.is_empty() {
        text += &format!("Superblock backups stored on blocks: \n\t{}\n", backups.join(", "));
    }
    text + "\n"
}
