//! The command line of `cryptsetup` 2.6.1 for what it does to headers of LUKS: exit status 0, 1 for wrong parameters, 2 for
//! a wrong passphrase, 3 without memory, 4 for a wrong device, 5 for one in use.
//!
//! `line` makes of a command line the command of `casemate luks` that does its work.

mod line;
mod options;
mod texts;
mod tokens;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use casemate::blockdev::os::FileTypeExt;
use casemate::probe::{self, Tag};
use casemate::{Access, Error, Image};

use crate::answer::Answer;
use crate::cmd::luks::Action;
use crate::cmd::luks::confirm::ask_as_tool;
use crate::context::{Context, Manners};
use crate::streams::{say, tell};

use line::{Line, Refusal};
use options::Tool;

/// The version whose command line this is.
pub(super) const VERSION: &str = "cryptsetup 2.6.1";

const USAGE: &str = "\
Usage: cryptsetup [OPTION...] <action> <action-specific>

<action> is one of:
\tluksFormat <device> [<new key file>]
\topen --test-passphrase <device>
\tluksDump, luksUUID, isLuks <device>
\tluksAddKey <device> [<new key file>]
\tluksChangeKey <device> [<new key file>]
\tluksConvertKey <device>
\tluksRemoveKey <device> [<key file>]
\tluksKillSlot <device> <key slot>
\tluksHeaderBackup, luksHeaderRestore <device> --header-backup-file=file
\terase, repair, convert, config <device>
\treencrypt [--encrypt|--decrypt] <device>
\ttoken <add|remove|import|export|unassign> <device>
\tbenchmark

This is casemate under the name cryptsetup; 'casemate luks COMMAND --help' describes each action. Actions that need
the kernel (open, close, resize, status) are not supported; see 'casemate serve --help' and 'casemate luks extract --help'.
";

/// Whether a command line is understood; nothing is run.
pub fn understands(args: &[OsString]) -> bool {
    Tool::parse(args).is_ok_and(|tool| tool.line().is_ok())
}

/// Runs one command line.
pub fn main(args: &[OsString]) -> ExitCode {
    let tool = match Tool::parse(args) {
        Ok(tool) => tool,
        Err(text) => return wrong_usage(&text),
    };
    let context = Context::for_cryptsetup(Manners {
        verbose: tool.verbose,
        tries: tool.tries,
        timeout: tool
            .timeout
            .filter(|seconds| *seconds > 0)
            .map(|seconds| Duration::from_secs(seconds.into())),
        verify: if tool.verify_passphrase { Some(true) } else { tool.batch_mode.then_some(false) },
    });
    let (usage, version) = (tool.help.then_some(USAGE), tool.version.then_some(VERSION));
    if let Some(status) = super::asked(&context, usage, version) {
        return status;
    }
    if tool.test_args {
        return match tool.action().and_then(|action| Tool::needed_words(&action)) {
            Some(needed) if tool.words.len() > needed => {
                said(&context, "No action taken. Invoked with --test-args option.")
            }
            _ => wrong_usage("Unknown action, or arguments are missing."),
        };
    }
    let line = match tool.line() {
        Ok(line) => line,
        Err(Refusal::Usage(text)) => return wrong_usage(&text),
        Err(Refusal::Status(status, text)) => {
            say(&text);
            return ended(status, &context);
        }
    };
    // Their exit statuses are the answers, whoever reads what they print.
    let is_question = matches!(line.action, Action::IsLuks(_) | Action::TestPassphrase(_));
    let context = if is_question { context.going_on() } else { context };
    if let Err(text) = check_devices(&line) {
        say(&text);
        return ended(4, &context);
    }
    if let Some(text) = other_version(&line, &context) {
        say(&text);
        return ended(1, &context);
    }
    match tokens::refused(&tool, &line, &context) {
        Ok(None) => {}
        Ok(Some((status, text))) => {
            say(&text);
            return ended(status, &context);
        }
        Err(error) => return exit(&Err(error), &tool, &line.devices, &context),
    }
    if matches!(line.action, Action::Format(_)) && !tool.batch_mode {
        line.devices.last().and_then(|device| contains(device)).into_iter().for_each(|text| {
            said(&context, &text);
        });
    }
    let asked = match &line.question {
        Some(question) if !tool.asks_nothing() => ask_as_tool(question),
        _ => Ok(()),
    };
    let result = asked.and_then(|()| line.action.run(&context));
    exit(&result, &tool, &line.devices, &context)
}

/// The tool's warning of what `luksFormat` overwrites, with blkid's name of that.
fn contains(device: &Path) -> Option<String> {
    let image = Image::open(device, Access::ReadUnlocked).ok()?;
    let kind = probe::look(&image).ok()?.tags().into_iter().find_map(|(name, tag)| match (name, tag) {
        ("TYPE", Tag::Text(kind)) => Some(format!("'{kind}' superblock")),
        ("PTTYPE", Tag::Text(kind)) => Some(format!("'{kind}' partition")),
        _ => None,
    })?;
    Some(format!("WARNING: Device {} already contains a {kind} signature.", device.display()))
}

/// Prints results; the status of a command that ends well.
fn said(context: &Context, text: &str) -> ExitCode {
    match context.print(format!("{text}\n")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Tells, if that is wanted, how the command has ended.
fn ended(status: u8, context: &Context) -> ExitCode {
    let why = match status {
        0 => None,
        1 => Some("wrong or missing parameters"),
        2 => Some("no permission or bad passphrase"),
        3 => Some("out of memory"),
        4 => Some("wrong device or file specified"),
        5 => Some("device already exists or device is busy"),
        _ => Some("unknown error"),
    };
    let text = match why {
        None => "Command successful.".to_owned(),
        Some(why) => format!("Command failed with code -{status} ({why})."),
    };
    if context.verbose() || context.manners().is_some_and(|manners| manners.verbose) {
        let _ = context.print(text + "\n");
    }
    ExitCode::from(status)
}

/// Checks that the named devices exist and are files or block devices. The error is cryptsetup's text.
fn check_devices(line: &Line) -> Result<(), String> {
    for device in &line.devices {
        let name = device.display();
        let metadata = fs::metadata(device);
        let metadata = metadata.map_err(|_| format!("Device {name} does not exist or access denied."))?;
        if !metadata.is_file() && !metadata.file_type().is_block_device() {
            return Err(format!("Device {name} is not compatible."));
        }
    }
    Ok(())
}

/// Error text if the header is of another version than the one that was named. The command itself refuses what is not a
/// header.
fn other_version(line: &Line, context: &Context) -> Option<String> {
    let (device, version) = (line.devices.last()?, line.version?);
    let volume = Image::open(device, Access::ReadUnlocked)
        .and_then(|image| image.luks_volume(None, context.providers()));
    let is_other = volume.is_ok_and(|volume| volume.header().version() != version);
    is_other.then(|| format!("Device {} is not a valid LUKS device.", device.display()))
}

fn exit(result: &Result<Answer, Error>, tool: &Tool, devices: &[PathBuf], context: &Context) -> ExitCode {
    let error = match result {
        Ok(Answer::Yes) => return ended(0, context),
        Ok(Answer::No | Answer::Failed | Answer::Incomplete | Answer::Status(_)) => return ended(1, context),
        Err(error) => error,
    };
    if let Some(code) = super::cut(error) {
        return code;
    }
    match texts::of(error, tool, devices) {
        Some(text) => say(text),
        None => context.complain(error),
    }
    ended(texts::status(error, tool), context)
}

fn wrong_usage(text: &str) -> ExitCode {
    tell(format_args!("{USAGE}\n"));
    say(format_args!("cryptsetup: {text}"));
    ExitCode::from(1)
}
