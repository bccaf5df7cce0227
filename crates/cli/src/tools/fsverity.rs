//! The command line of `fsverity` 1.5: exit status 0, 1 for any failure, 2 for wrong usage.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use casemate::Error;

use crate::answer::Answer;
use crate::cmd::fsverity::ToolCommand;
use crate::context::Context;
use crate::streams::{say, tell};

/// The version whose command line this is.
pub(super) const VERSION: &str = "fsverity v1.5";

const PREFIX: &str = "ERROR: ";

/// Name, what it does, and usage of each command.
const COMMANDS: &[(&str, &str, &str)] = &[
    (
        "digest",
        "Compute the fs-verity digest of the given file(s), for offline signing",
        "    fsverity digest FILE...
               [--hash-alg=HASH_ALG] [--block-size=BLOCK_SIZE] [--salt=SALT]
               [--out-merkle-tree=FILE] [--out-descriptor=FILE]
               [--compact] [--for-builtin-sig]\n",
    ),
    (
        "dump_metadata",
        "Dump the fs-verity metadata of the given file",
        "    fsverity dump_metadata TYPE FILE [--offset=OFFSET] [--length=LENGTH]\n",
    ),
    (
        "enable",
        "Enable fs-verity on a file",
        "    fsverity enable FILE
               [--hash-alg=HASH_ALG] [--block-size=BLOCK_SIZE] [--salt=SALT]
               [--signature=SIGFILE]\n",
    ),
    ("measure", "Display the fs-verity digest of the given verity file(s)", "    fsverity measure FILE...\n"),
    (
        "sign",
        "Sign a file for fs-verity built-in signature verification",
        "    fsverity sign FILE OUT_SIGFILE
               [--key=KEYFILE] [--cert=CERTFILE]
               [--signature=SIGFILE] [--bare-signature=SIGFILE] [--print-tbs]
               [--hash-alg=HASH_ALG] [--block-size=BLOCK_SIZE] [--salt=SALT]
               [--out-merkle-tree=FILE] [--out-descriptor=FILE]\n",
    ),
];

#[derive(Debug, Parser)]
#[command(name = "fsverity", infer_long_args = true, disable_help_flag = true)]
#[command(disable_help_subcommand = true)]
struct Tool {
    #[command(subcommand)]
    command: ToolCommand,
}

/// Whether a command line is understood; nothing is run.
pub fn understands(args: &[OsString]) -> bool {
    Tool::try_parse_from(args).is_ok()
}

/// Runs one command line.
pub fn main(args: &[OsString]) -> ExitCode {
    let context = Context::for_tool(PREFIX);
    let Some(name) = args.get(1) else {
        return usage_error("no command specified", None);
    };
    let command = COMMANDS.iter().find(|(command, ..)| name == command);
    let options = args.iter().skip(1).take_while(|arg| *arg != "--");
    let standard = options.filter_map(|arg| match arg.to_str() {
        Some("--help") => Some(usage(command)),
        Some("--version") => Some(format!("{VERSION}\n")),
        _ => None,
    });
    if let Some(text) = standard.into_iter().next() {
        return exit(context.print(text).map(|()| Answer::Yes), &context);
    }
    if command.is_none() {
        return usage_error(&format!("unrecognized command: '{}'", name.to_string_lossy()), None);
    }
    match Tool::try_parse_from(args) {
        Ok(tool) => exit(tool.command.run(&context), &context),
        Err(error) => usage_error(&first_line(&error), command),
    }
}

fn exit(result: Result<Answer, Error>, context: &Context) -> ExitCode {
    match result {
        Ok(Answer::Yes) => ExitCode::SUCCESS,
        Ok(Answer::No | Answer::Failed | Answer::Incomplete | Answer::Status(_)) => ExitCode::FAILURE,
        Err(error) => super::cut(&error).unwrap_or_else(|| {
            context.complain(&error);
            ExitCode::FAILURE
        }),
    }
}

fn usage_error(text: &str, command: Option<&(&str, &str, &str)>) -> ExitCode {
    say(format_args!("{PREFIX}{text}"));
    tell(usage(command));
    ExitCode::from(2)
}

fn usage(command: Option<&(&str, &str, &str)>) -> String {
    if let Some((_, _, usage)) = command {
        return format!("Usage:\n{usage}");
    }
    let all: String = COMMANDS.iter().map(|(_, does, usage)| format!("  {does}:\n{usage}\n")).collect();
    format!(
        "Usage:\n{all}  Standard options:\n    fsverity --help\n    fsverity --version\n\n\
         Available hash algorithms: sha256 sha512\n"
    )
}

/// Text of an error, without clap's own usage and hints.
fn first_line(error: &clap::Error) -> String {
    match error.kind() {
        ErrorKind::MissingRequiredArgument => "missing argument".to_owned(),
        _ => super::first_line(error),
    }
}
