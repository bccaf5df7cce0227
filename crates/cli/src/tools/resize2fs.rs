//! The command line of `resize2fs` 1.47.0: exit status 0, or 1.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgAction, Parser};

use casemate::ext4::{ReadOptions, Resize, Tail, WriteOptions, source_date_epoch};
use casemate::{Access, Error, Image};

use crate::context::Context;
use crate::streams::{say, tell};

/// The version whose command line this is.
const VERSION: &str = "resize2fs 1.47.0 (casemate)";

const USAGE: &str = "\
Usage: resize2fs [-f] [-F] [-M] [-P] [-p] device [new_size]

This is casemate under the name resize2fs. A size has s, K, M, G or T behind it, or is a number of blocks. The feature
64bit (-b, -s), a RAID's stride (-S), debugging (-d) and undo files (-z) are not supported.
";

#[derive(Debug, Parser)]
#[command(name = "resize2fs", disable_help_flag = true, disable_version_flag = true)]
#[command(args_override_self = true)]
struct Tool {
    #[arg(short = 'b')]
    to_64bit: bool,
    #[arg(short = 's')]
    from_64bit: bool,
    #[arg(short = 'd')]
    debug: Option<String>,
    #[arg(short = 'f', short_aliases = ['F', 'p'], action = ArgAction::Count)]
    ignored: u8,
    #[arg(short = 'M')]
    least: bool,
    #[arg(short = 'P')]
    print: bool,
    #[arg(short = 'S')]
    stride: Option<String>,
    #[arg(short = 'z')]
    undo: Option<OsString>,
    device: Option<PathBuf>,
    size: Option<String>,
}

/// Whether a command line is understood; nothing is run.
pub fn understands(args: &[OsString]) -> bool {
    Tool::try_parse_from(args).is_ok_and(|tool| tool.unsupported().is_none())
}

/// Runs one command line.
pub fn main(args: &[OsString]) -> ExitCode {
    let context = Context::for_tool("resize2fs: ");
    say(VERSION);
    let parsed = Tool::try_parse_from(args);
    if let Err(error) = &parsed {
        say(format_args!("resize2fs: {}", super::first_line(error)));
    }
    let parsed = parsed.ok().and_then(|mut tool| tool.device.take().map(|device| (tool, device)));
    let Some((tool, device)) = parsed else {
        tell(USAGE);
        return ExitCode::FAILURE;
    };
    if let Some(option) = tool.unsupported() {
        say(format_args!(
            "resize2fs: {option} is not supported here; e2fsprogs has a resize2fs that does it"
        ));
        return ExitCode::FAILURE;
    }
    match tool.run(&device, &context) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => super::cut(&error).unwrap_or_else(|| {
            context.complain(&error);
            ExitCode::FAILURE
        }),
    }
}

impl Tool {
    /// An option that was given, and that there is in e2fsprogs alone.
    fn unsupported(&self) -> Option<&'static str> {
        let given = [
            (self.to_64bit, "-b (the feature 64bit)"),
            (self.from_64bit, "-s (without the feature 64bit)"),
            (self.debug.is_some(), "-d (debugging)"),
            (self.stride.is_some(), "-S (a RAID's stride)"),
            (self.undo.is_some(), "-z (an undo file)"),
            (self.least && self.size.is_some(), "-M with a size"),
        ];
        given.into_iter().find(|(is, _)| *is).map(|(_, option)| option)
    }

    fn run(&self, device: &Path, context: &Context) -> Result<(), Error> {
        if self.print {
            let image = Image::open(device, Access::ReadUnlocked)?;
            let options = ReadOptions::default();
            let bytes = image.ext4_least_size(&options, &context.opening())?;
            let block = block_size(&image, context)?;
            return context.print(format!("Estimated minimum size of the filesystem: {}\n", bytes / block));
        }
        let image = Image::open(device, Access::Change)?;
        let block = block_size(&image, context)?;
        let mut resize = Resize::default();
        resize.least = self.least;
        resize.size = self.size.as_deref().map(|text| size(text, block)).transpose()?;
        // It asks nobody, and cuts a file. Bytes that were behind the file system are lost with e2fsprogs' own, and stay here.
        resize.overwrite = true;
        resize.tail = Tail::CutIfEmpty;
        let mut options = WriteOptions::default();
        options.time = source_date_epoch()?;
        let report = image.ext4_resize(&options, resize, &context.opening())?;
        let (name, blocks, kib) = (device.display(), report.blocks, block / 1024);
        if report.blocks == report.blocks_before {
            say(format_args!("The filesystem is already {blocks} ({kib}k) blocks long.  Nothing to do!"));
            tell("\n");
            return Ok(());
        }
        context.print(format!(
            "Resizing the filesystem on {name} to {blocks} ({kib}k) blocks.\n\
             The filesystem on {name} is now {blocks} ({kib}k) blocks long.\n\n"
        ))
    }
}

/// Bytes of a block of the file system.
fn block_size(image: &Image, context: &Context) -> Result<u64, Error> {
    let fs = image.ext4(&ReadOptions::default(), &context.opening())?;
    Ok(fs.inodes().layout().block_size.into())
}

/// Bytes of a size with a unit, or of a number of blocks. Numbers are those of C: octal after a 0, hexadecimal after 0x.
fn size(text: &str, block: u64) -> Result<u64, Error> {
    let wrong = || Error::argument(format!("bad filesystem size - {text}"));
    let is_hex = text.get(..2).is_some_and(|prefix| prefix.eq_ignore_ascii_case("0x")) && text.len() > 2;
    let number = match is_hex {
        true => text[2..].trim_end_matches(|c: char| !c.is_ascii_hexdigit()),
        false => text.trim_end_matches(|c: char| c.is_ascii_alphabetic()),
    };
    let unit = match &text[number.len() + if is_hex { 2 } else { 0 }..] {
        "" => block,
        "s" | "S" => 512,
        "k" | "K" => 1 << 10,
        "m" | "M" => 1 << 20,
        "g" | "G" => 1 << 30,
        "t" | "T" => 1 << 40,
        _ => return Err(wrong()),
    };
    let radix = match number {
        _ if is_hex => 16,
        "0" => 10,
        _ if number.starts_with('0') => 8,
        _ => 10,
    };
    let number = u64::from_str_radix(number, radix).ok().filter(|_| !number.starts_with('+'));
    number.and_then(|number| number.checked_mul(unit)).ok_or_else(wrong)
}
