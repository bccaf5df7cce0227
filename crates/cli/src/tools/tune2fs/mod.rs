//! The command lines of `tune2fs` 1.47.0 and `e2label`: exit status 0, or 1.

mod list;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgAction, Parser};

use casemate::blockdev::AtFile;
use casemate::blockdev::os::OsStringExt;
use casemate::ext4::{ReadOptions, Superblock, Tuning, WriteOptions, hash_name, source_date_epoch};
use casemate::{Access, Error, Image};

use crate::cmd::ext4::touch;
use crate::cmd::ext4::tune::{Moment, Parameters, interval};
use crate::context::Context;
use crate::streams::{say, tell, visible};

/// The version whose command line this is.
const VERSION: &str = "tune2fs 1.47.0 (casemate)";

/// Bytes of a label.
const LABEL: usize = 16;

const USAGE: &str = "\
Usage: tune2fs [-c max_mounts_count] [-e errors_behavior] [-f] [-g group]
\t[-i interval[d|m|w]] [-j] [-J journal_options] [-l]
\t[-m reserved_blocks_percent] [-o [^]mount_options[,...]]
\t[-r reserved_blocks_count] [-u user] [-C mount_count]
\t[-L volume_label] [-M last_mounted_dir]
\t[-O [^]feature[,...]]
\t[-E extended-option[,...]] [-T last_check_time] [-U UUID] device

This is casemate under the name tune2fs. Another size of inodes (-I), quotas (-Q) and undo
files (-z) are not supported.
";

#[derive(Debug, Parser)]
#[command(name = "tune2fs", disable_help_flag = true, disable_version_flag = true)]
#[command(args_override_self = true, allow_negative_numbers = true)]
struct Tool {
    #[arg(short = 'c')]
    max_mounts: Option<i32>,
    #[arg(short = 'C')]
    mounts: Option<u16>,
    #[arg(short = 'e')]
    on_errors: Option<String>,
    #[arg(short = 'E')]
    extended: Vec<String>,
    #[arg(short = 'f', action = ArgAction::Count)]
    force: u8,
    #[arg(short = 'g')]
    group: Option<String>,
    #[arg(short = 'i')]
    interval: Option<String>,
    #[arg(short = 'I')]
    inode_size: Option<String>,
    #[arg(short = 'j')]
    journal: bool,
    #[arg(short = 'J')]
    journal_options: Vec<String>,
    #[arg(short = 'l')]
    list: bool,
    #[arg(short = 'L')]
    label: Option<OsString>,
    #[arg(short = 'm')]
    reserved_percent: Option<f64>,
    #[arg(short = 'M')]
    last_mounted: Option<OsString>,
    #[arg(short = 'o')]
    mount_options: Vec<String>,
    #[arg(short = 'O')]
    features: Vec<String>,
    #[arg(short = 'Q')]
    quota: Option<String>,
    #[arg(short = 'r')]
    reserved_blocks: Option<u64>,
    #[arg(short = 'T')]
    last_check: Option<String>,
    #[arg(short = 'u')]
    user: Option<String>,
    #[arg(short = 'U')]
    uuid: Option<String>,
    #[arg(short = 'z')]
    undo: Option<OsString>,
    device: Option<PathBuf>,
}

/// Whether a command line is understood; nothing is run.
pub fn understands(args: &[OsString]) -> bool {
    Tool::try_parse_from(args).is_ok_and(|tool| tool.unsupported().is_none())
}

/// Runs one command line.
pub fn main(args: &[OsString]) -> ExitCode {
    let context = Context::for_tool("tune2fs: ");
    if let Err(error) = context.print(format!("{VERSION}\n")) {
        return end(&context, Err(error));
    }
    let parsed = Tool::try_parse_from(args);
    if let Err(error) = &parsed {
        say(format_args!("tune2fs: {}", super::first_line(error)));
    }
    let parsed = parsed.ok().and_then(|mut tool| tool.device.take().map(|device| (tool, device)));
    let Some((tool, device)) = parsed else {
        return wrong_usage();
    };
    if let Some(option) = tool.unsupported() {
        say(format_args!("tune2fs: {option} is not supported here; e2fsprogs has a tune2fs that does it"));
        return ExitCode::FAILURE;
    }
    let done = match tool.parameters() {
        Ok(None) if !tool.list => return wrong_usage(),
        Ok(parameters) => parameters
            .map_or(Ok(()), |parameters| tool.tune(&parameters, &device, &context))
            .and_then(|()| if tool.list { list(&device, &context) } else { Ok(()) }),
        Err(text) => Err(Error::argument(text)),
    };
    end(&context, done)
}

/// Whether a command line of e2label is understood; nothing is run.
pub fn understands_label(args: &[OsString]) -> bool {
    (2..=3).contains(&args.len())
}

/// Runs one command line of e2label.
pub fn label(args: &[OsString]) -> ExitCode {
    let context = Context::for_tool("e2label: ");
    let done = match args {
        [_, device] => print_label(Path::new(device), &context),
        [_, device, label] => {
            let mut tuning = Tuning::default();
            tuning.label = Some(cut(label.clone()));
            change(Path::new(device), &context, |_, _| Ok(tuning))
        }
        _ => {
            say("Usage: e2label device [newlabel]");
            return ExitCode::FAILURE;
        }
    };
    end(&context, done)
}

fn wrong_usage() -> ExitCode {
    tell(USAGE);
    ExitCode::FAILURE
}

fn end(context: &Context, done: Result<(), Error>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => super::cut(&error).unwrap_or_else(|| {
            context.complain(&error);
            ExitCode::FAILURE
        }),
    }
}

/// A label, cut to what there is room for, as these tools do.
fn cut(label: OsString) -> Vec<u8> {
    let mut label = label.into_vec();
    if label.len() > LABEL {
        say("Warning: label too long, truncating.");
        label.truncate(LABEL);
    }
    label
}

/// Changes parameters of the file system on a device.
fn change(
    device: &Path,
    context: &Context,
    tuning: impl FnOnce(&Superblock, i64) -> Result<Tuning, Error>,
) -> Result<(), Error> {
    let image = Image::open(device, Access::Change)?;
    let mut options = WriteOptions::default();
    options.time = source_date_epoch()?;
    let mut writer = image.ext4_writer(&options, &context.opening())?;
    let tuning = tuning(writer.fs().superblock(), writer.time().seconds)?;
    writer.tune(&tuning).and_then(|()| writer.commit()).at(image.name())
}

fn print_label(device: &Path, context: &Context) -> Result<(), Error> {
    let fs = Image::open(device, Access::ReadUnlocked)?.ext4(&ReadOptions::default(), &context.opening())?;
    context.print(format!("{}\n", visible(&fs.inodes().superblock().label())))
}

impl Tool {
    /// An option that was given, and that there is in e2fsprogs alone.
    fn unsupported(&self) -> Option<&'static str> {
        let given = [
            (self.inode_size.is_some(), "-I (another size of inodes)"),
            (self.quota.is_some(), "-Q (quotas)"),
            (self.undo.is_some(), "-z (an undo file)"),
        ];
        given.into_iter().find(|(is, _)| *is).map(|(_, option)| option)
    }

    /// Parameters that change, if any do.
    fn parameters(&self) -> Result<Option<Parameters>, String> {
        // A number, or a name that this system knows.
        let id = |kind: &str, text: &Option<String>, file: &str| match text {
            None => Ok(None),
            Some(text) => text
                .parse()
                .ok()
                .or_else(|| list::id_of(text, file))
                .map(Some)
                .ok_or_else(|| format!("bad {kind} name - {text}")),
        };
        let on_errors = match self.on_errors.as_deref() {
            None => None,
            Some(action @ ("continue" | "remount-ro" | "panic")) => Some(action.to_owned()),
            Some(other) => return Err(format!("bad error behavior - {other}")),
        };
        let parameters = Parameters {
            label: self.label.clone().map(|label| OsString::from_vec(cut(label))),
            uuid: self.uuid.clone(),
            reserved_percent: self.reserved_percent,
            reserved_blocks: self.reserved_blocks,
            reserved_user: id("uid/user", &self.user, list::USERS)?,
            reserved_group: id("gid/group", &self.group, list::GROUPS)?,
            features: self.features.clone(),
            add_journal: self.journal,
            journal_options: self.journal_options.clone(),
            journal_size: None,
            mount_options: self.mount_options.clone(),
            extended: self.extended.clone(),
            on_errors,
            max_mounts: self.max_mounts,
            mounts: self.mounts,
            check_interval: self.interval.as_deref().map(interval).transpose()?,
            last_check: self.last_check.as_deref().map(moment).transpose()?,
            last_mounted: self.last_mounted.clone(),
        };
        Ok(Some(parameters).filter(|parameters| !parameters.is_empty()))
    }

    fn tune(&self, parameters: &Parameters, device: &Path, context: &Context) -> Result<(), Error> {
        let mut text = String::new();
        change(device, context, |superblock, now| {
            let makes_journal = self.journal || !self.journal_options.is_empty();
            if makes_journal && superblock.journal_inode.is_some() {
                return Err(Error::argument("The filesystem already has a journal."));
            }
            let tuning = parameters.tuning(superblock, now)?;
            let mut line = |said: String| text += &format!("{said}\n");
            if let Some(count) = parameters.max_mounts {
                line(format!("Setting maximal mount count to {}", if count == 0 { -1 } else { count }));
            }
            if let Some(count) = tuning.mounts {
                line(format!("Setting current mount count to {count}"));
            }
            if let Some(action) = tuning.on_errors {
                line(format!("Setting error behavior to {action}"));
            }
            if let Some(gid) = tuning.reserved_group {
                line(format!("Setting reserved blocks gid to {gid}"));
            }
            if let Some(seconds) = tuning.check_interval {
                line(format!("Setting interval between checks to {seconds} seconds"));
            }
            match (self.reserved_blocks, self.reserved_percent, tuning.reserved_blocks) {
                (Some(blocks), ..) => line(format!("Setting reserved blocks count to {blocks}")),
                (None, Some(percent), Some(blocks)) => {
                    line(format!("Setting reserved blocks percentage to {percent}% ({blocks} blocks)"));
                }
                _ => {}
            }
            if let Some(seconds) = tuning.checked {
                line(format!("Setting time filesystem last checked to {}\n", list::time(seconds)));
            }
            if let Some(uid) = tuning.reserved_user {
                line(format!("Setting reserved blocks uid to {uid}"));
            }
            if self.journal || !self.journal_options.is_empty() {
                line("Creating journal inode: done".to_owned());
            }
            if let Some(version) = tuning.hash_version {
                line(format!("Setting default hash algorithm to {} ({version})", hash_name(version)));
            }
            match tuning.for_tests {
                Some(true) => line("Setting test filesystem flag".to_owned()),
                Some(false) => line("Clearing test filesystem flag".to_owned()),
                None => {}
            }
            if tuning.force_check {
                line("Setting filesystem error flag to force fsck.".to_owned());
            }
            if let Some(stride) = tuning.stride {
                line(format!("Setting stride size to {stride}"));
            }
            if let Some(width) = tuning.stripe_width {
                line(format!("Setting stripe width to {width}"));
            }
            if let Some(options) = &tuning.mount_options_text {
                let options = String::from_utf8_lossy(options);
                line(format!("Setting extended default mount options to '{}'", visible(&options)));
            }
            Ok(tuning)
        })?;
        context.print(text)
    }
}

/// Time as tune2fs takes it, in UTC: now, 20200131, with hours, minutes and seconds behind, or seconds behind an @.
fn moment(text: &str) -> Result<Moment, String> {
    if text == "now" {
        return Ok(Moment(None));
    }
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let dashed = match text.len() {
        8.. if is_digits && text.len() <= 14 && text.len().is_multiple_of(2) => {
            let all = format!("{text:0<14}");
            let part = |from, to| all.get(from..to).unwrap_or("00");
            let (date, time) = (
                [part(0, 4), part(4, 6), part(6, 8)].join("-"),
                [part(8, 10), part(10, 12), part(12, 14)].join(":"),
            );
            format!("{date}T{time}")
        }
        _ => text.to_owned(),
    };
    touch::date(&dashed).map(|time| Moment(Some(time.seconds)))
}

/// Prints all parameters.
fn list(device: &Path, context: &Context) -> Result<(), Error> {
    let fs = Image::open(device, Access::ReadUnlocked)?.ext4(&ReadOptions::default(), &context.opening())?;
    context.print(list::text(fs.inodes().superblock()))
}
