//! The `casemate` command: parse, call the facade, print.
//!
//! Exit status: 0 yes, 1 no (a mismatch or corruption was found), 2 could not, 130 interrupted.
#![forbid(unsafe_code)]

mod cmd;
mod context;
mod passphrase;
mod progress;
mod tools;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use casemate::Error;

use crate::cmd::Command;
use crate::context::{Common, Context};

/// The Linux storage-protection stack in user space.
///
/// Reads and writes what the kernel's dm-verity, fs-verity and their relatives read and write, byte for byte,
/// without root and without a kernel.
#[derive(Debug, Parser)]
#[command(
    name = "casemate",
    version,
    propagate_version = true,
    infer_subcommands = true,
    max_term_width = 100
)]
#[command(after_help = "Exit status: 0 yes, 1 no (mismatch or corruption found), 2 could not.")]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

/// What a command that came to its end has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Yes,
    No,
    /// Something could not be done, and was said already.
    Failed,
    /// What a command that was run for the user ended with.
    Status(u8),
}

/// The command: does what the process's arguments say.
pub fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    if let Some(tool) = tools::called_as(&args) {
        return tool(&args);
    }
    match run(args) {
        Ok(Answer::Yes) => ExitCode::SUCCESS,
        Ok(Answer::No) => ExitCode::from(1),
        Ok(Answer::Failed) => ExitCode::from(2),
        Ok(Answer::Status(status)) => ExitCode::from(status),
        // Whoever read our output has seen enough.
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        // Where in the data it was is of no use; what it has left is.
        Err(error) if error.is_interrupt() => {
            eprintln!("casemate: {}", error.text());
            ExitCode::from(130)
        }
        Err(error) => {
            eprintln!("casemate: {error}");
            ExitCode::from(if error.is_negative_answer() { 1 } else { 2 })
        }
    }
}

/// Whether a command line is understood, as ours or as that of the tool that it begins with; nothing is run. For
/// fuzzers.
pub fn understands(args: &[OsString]) -> bool {
    tools::understands(args).unwrap_or_else(|| Cli::try_parse_from(args).is_ok())
}

fn run(args: Vec<OsString>) -> Result<Answer, Error> {
    let cli = Cli::try_parse_from(&args).unwrap_or_else(|error| refuse(&args, &error));
    let context = Context::new(cli.common)?;
    let answer = cli.command.run(&context);
    context.mention_trouble();
    answer
}

/// Ends the process as clap does; but where -h stands beside other arguments, with an error. To tools that people know it
/// means something else, and a script that is shown the help goes on as if its work were done.
fn refuse(args: &[OsString], error: &clap::Error) -> ! {
    if error.kind() == clap::error::ErrorKind::DisplayHelp
        && let Some(hint) = what_h_may_mean(args)
    {
        eprintln!(
            "casemate: -h stands beside other arguments, so nothing was done: --help shows the help{hint}"
        );
        std::process::exit(2);
    }
    error.exit()
}

/// What to say of -h in a command line that has more than the names of commands; `None` where help was asked for.
fn what_h_may_mean(args: &[OsString]) -> Option<&'static str> {
    if args.iter().any(|word| word == "--help") {
        return None;
    }
    let mut command = &Cli::command();
    let (mut hint, mut others) = ("", false);
    for word in args.iter().skip(1) {
        let name = word.to_str().unwrap_or_default();
        let mut fitting = command.get_subcommands().filter(|inner| inner.get_name().starts_with(name));
        let inferred = fitting.next().filter(|_| fitting.next().is_none() && !name.is_empty());
        match command.find_subcommand(name).or(inferred) {
            Some(inner) => command = inner,
            None if name == "help" && command.has_subcommands() => return None,
            None => others |= name != "-h",
        }
        if command.get_name() == "verity" {
            hint = "; the hash algorithm, veritysetup's -h, is --hash";
        }
    }
    others.then_some(hint)
}

#[cfg(test)]
mod tests {
    use casemate_testkit::Rng;

    use super::*;

    #[test]
    fn the_description_of_the_options_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_is_told_from_what_means_something_else() {
        let asks = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            what_h_may_mean(&words)
        };
        for line in
            ["casemate -h", "casemate verity -h", "casemate ver format -h", "casemate help verity format"]
        {
            assert_eq!(asks(line), None, "{line}");
        }
        assert_eq!(asks("casemate verity format a b -h sha512 --help"), None);
        assert!(asks("casemate verity format a b -h sha512").unwrap().contains("--hash"));
        assert_eq!(asks("casemate ext4 cat image -h"), Some(""));
        assert_eq!(asks("casemate crypt encrypt -vh"), Some(""));
    }

    /// Command lines of every shape are taken or refused, and never panic.
    #[test]
    fn random_command_lines_do_not_panic() {
        let mut words: Vec<OsString> =
            ["-", "--", "", "=", "-x", "--json", "18446744073709551616", "-1", "a:b", "\u{fffd}"]
                .map(OsString::from)
                .to_vec();
        fn collect(command: &clap::Command, words: &mut Vec<OsString>) {
            words.push(command.get_name().into());
            for option in command.get_arguments().filter_map(clap::Arg::get_long) {
                words.push(format!("--{option}").into());
                words.push(format!("--{option}=7").into());
            }
            command.get_subcommands().for_each(|inner| collect(inner, words));
        }
        collect(&Cli::command(), &mut words);
        let mut rng = Rng::new(5);
        for _ in 0..3000 {
            let mut line = vec![OsString::from("casemate")];
            for _ in 0..rng.below(8) {
                line.push(words[rng.below(words.len() as u64) as usize].clone());
            }
            let _ = Cli::try_parse_from(line);
        }
    }
}
