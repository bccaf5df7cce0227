//! The `casemate` command: parse, call the facade, print.
//!
//! `answer.rs` has the exit statuses.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::as_conversions))]
// What only serving and mounting need.
#![cfg_attr(not(target_os = "linux"), allow(dead_code))]

mod advice;
mod answer;
#[cfg(target_os = "linux")]
mod background;
mod calendar;
mod cmd;
mod context;
mod help;
mod hints;
#[cfg(target_os = "linux")]
mod notify;
mod outputs;
mod passphrase;
mod progress;
mod question;
mod signals;
mod size;
mod streams;
mod tools;
mod version;

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser};

use casemate::blockdev::wipe_stack;
use casemate::{Error, ErrorKind};

use crate::cmd::Command;
use crate::context::{Common, Context};
use crate::streams::{OWN_PREFIX, say, tell};

pub use crate::tools::LINKS;

/// Read, build, check and change protected Linux disk images, without root.
///
/// Formats: dm-verity, fs-verity, dm-crypt, LUKS, dm-integrity, fscrypt and ext4, byte for byte as in the kernel.
#[derive(Debug, Parser)]
#[command(name = "casemate", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = help::EXIT_STATUS)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

/// The text of --version.
const VERSION: &str = concat!("casemate ", env!("CARGO_PKG_VERSION"), "\n");

/// The command: does what the process's arguments say.
pub fn main() -> ExitCode {
    leave_no_core();
    outlive_file_limits();
    streams::begin();
    signals::prepare();
    let args: Vec<OsString> = std::env::args_os().collect();
    let code = match tools::called_as(&args) {
        Some(tool) => {
            streams::keep_inputs(tools::files(&args));
            tool(&args)
        }
        None => ExitCode::from(run(&cmd::ext4::find::with_two_dashes(&args))),
    };
    // Whoever looks at the memory of a process that has ended, or at its core, finds no keys.
    wipe_stack();
    code
}

/// Has Linux write no core when the process ends by a signal: keys would be in it. A limit of one byte says so for
/// files and for programs that take cores; with none such programs get one.
fn leave_no_core() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let limit = getrlimit(Resource::Core);
        // Where the limit may not be set it is none at all.
        let _ = setrlimit(Resource::Core, Rlimit { current: Some(1), ..limit });
    }
}

/// Makes a write past the limit of a file's size (`ulimit -f`) an error, which names the file: the signal would end the process
/// in the middle of its work.
fn outlive_file_limits() {
    #[cfg(unix)]
    {
        // A handler, because a program that this one runs would inherit that the signal is ignored. If it can't be set, the signal
        // ends the process, as before.
        let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, std::sync::Arc::default());
    }
}

/// All commands with their options: for tests and documents.
pub fn command() -> clap::Command {
    help::arranged(Cli::command())
}

/// Whether a command line is understood, as ours or as that of the tool that it begins with; nothing is run. For
/// fuzzers.
pub fn understands(args: &[OsString]) -> bool {
    tools::understands(args).unwrap_or_else(|| Cli::try_parse_from(args).is_ok())
}

fn run(args: &[OsString]) -> u8 {
    if args.len() == 3 && args[1] == "help" && args[2] == "layers" {
        let printed = Context::default().print(help::layers()).map(|()| answer::Answer::Yes);
        if let Some(error) = printed.as_ref().err().filter(|error| !error.is_broken_pipe()) {
            Context::default().complain(error);
        }
        return answer::exit_status(&printed, "help");
    }
    if let [_, word] = args
        && (word == "--version" || word == "-V")
    {
        // Parsing it takes longer than all the rest.
        let printed = Context::default().print(VERSION).map(|()| answer::Answer::Yes);
        if let Some(error) = printed.as_ref().err().filter(|error| !error.is_broken_pipe()) {
            Context::default().complain(error);
        }
        return answer::exit_status(&printed, "");
    }
    let described = cmd::described_for(args, Cli::command);
    if let Some(error) = tried_first(&described, args) {
        context_of(args).complain(&error);
        return 2;
    }
    let is_about_one = is_about_one(&described, args);
    let parsed = parse(described, args).or_else(|error| match error.kind() {
        clap::error::ErrorKind::DisplayVersion => Err(error),
        _ if is_about_one => Err(error),
        // What is wrong, and help, is told by all commands.
        _ => parse(Cli::command(), args),
    });
    let Parsed { cli, command, named, read } = parsed.unwrap_or_else(|error| refuse(args, error));
    streams::keep_inputs(read);
    let (context, result) = match Context::new(cli.common) {
        Ok(context) => {
            let context = context.of_words(&args[1..]);
            let mut context = if answer::goes_on(&command) { context.going_on() } else { context };
            let result = named.and_then(|named| {
                context.keep(named);
                cli.command.run(&context)
            });
            context.mention_trouble();
            (context, result)
        }
        Err(error) => (Context::default(), Err(error)),
    };
    match &result {
        // Where in the data it was is of no use; what it has left is.
        Err(error) if error.is_interrupt() => {
            context.complain(&Error::new(ErrorKind::Interrupted, error.text().into_owned()));
            signals::end_by_quit();
        }
        Err(error) if !error.is_broken_pipe() => context.complain(error),
        _ => {}
    }
    answer::exit_status(&result, &command)
}

/// Whether help and errors of a command line are about one command that has no commands, so that others need not be described;
/// or about none, as the front page.
fn is_about_one(described: &clap::Command, args: &[OsString]) -> bool {
    let mut command = described;
    for word in args.iter().skip(1) {
        if !command.has_subcommands() {
            return true;
        }
        match named(command, word) {
            Some(inner) => command = inner,
            None => return matches!(args, [_, word] if word == "--help" || word == "-h"),
        }
    }
    !command.has_subcommands() || args.len() == 1
}

/// The command that a word names. No word is short for a longer one, as in git and cryptsetup: `luks er` is a slip, and erases nothing.
fn named<'a>(command: &'a clap::Command, word: &OsStr) -> Option<&'a clap::Command> {
    command.find_subcommand(word.to_str()?)
}

/// A command line that is understood.
struct Parsed {
    cli: Cli,
    /// The names of its commands.
    command: String,
    /// The files that it names, or an error if an output would replace one of them.
    named: Result<Vec<PathBuf>, Error>,
    /// Files of the line that are read.
    read: Vec<PathBuf>,
}

/// Parses a command line.
fn parse(commands: clap::Command, args: &[OsString]) -> Result<Parsed, clap::Error> {
    let matches = help::arranged(commands).try_get_matches_from(args)?;
    let command = words(&matches);
    let named = outputs::check(&command, &matches).map(|()| outputs::named(&matches));
    let read = outputs::read(&command, &matches);
    Ok(Parsed { cli: Cli::from_arg_matches(&matches)?, command, named, read })
}

/// The names of the command and of those in it, as they are typed.
fn words(matches: &ArgMatches) -> String {
    let names = std::iter::successors(matches.subcommand(), |(_, inner)| inner.subcommand());
    names.map(|(name, _)| name).collect::<Vec<_>>().join(" ")
}

/// Ends the process as clap does, but with our prefix; and where -h stands beside other arguments, with an error. To tools
/// that people know it means something else, and a script that is shown the help goes on as if its work were done.
fn refuse(args: &[OsString], mut error: clap::Error) -> ! {
    // What is human-readable elsewhere is help where nothing but the command's name stands before it.
    if error.kind() == clap::error::ErrorKind::MissingRequiredArgument
        && let Some((last, words)) = args.split_last()
        && last == "-h"
        && words
            .iter()
            .skip(1)
            .all(|word| word.as_encoded_bytes().first().is_some_and(u8::is_ascii_lowercase))
        && let Err(help) = parse(Cli::command(), &[words, &["--help".into()]].concat())
    {
        error = help;
    }
    hints::keep_slips(&mut error);
    hints::name_stray(&mut error, args);
    if error.kind() == clap::error::ErrorKind::DisplayHelp
        && let Some(hint) = what_h_may_mean(args)
    {
        say(format_args!(
            "casemate: -h stands beside other arguments, so nothing was done: --help shows the help{hint}"
        ));
        std::process::exit(2);
    }
    if !error.use_stderr() {
        if error.kind() == clap::error::ErrorKind::DisplayVersion
            && let Some(printed) = version::print_more(args)
        {
            let printed = printed.map(|()| answer::Answer::Yes);
            if let Some(error) = printed.as_ref().err().filter(|error| !error.is_broken_pipe()) {
                context_of(args).complain(error);
            }
            std::process::exit(answer::exit_status(&printed, "version").into());
        }
        std::process::exit(match streams::print_parsed(&error) {
            Ok(()) => 0,
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => answer::CUT.into(),
            Err(error) => {
                context_of(args).complain(&Error::io("standard output", error));
                2
            }
        });
    }
    let text = error.render().to_string();
    let is_help = error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if is_help && !context_of(args).json() {
        tell(format_args!("{text}"));
        std::process::exit(2)
    }
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let context = context_of(args);
    if context.json() {
        let first = text.split("\n\n").next().unwrap_or_default().trim_end();
        context.complain(&Error::argument(first.to_owned()));
    } else {
        tell(format_args!("{OWN_PREFIX}{text}"));
    }
    std::process::exit(2)
}

/// Context for errors of a command line that can't be parsed.
fn context_of(args: &[OsString]) -> Context {
    if args.iter().any(|word| word == "--json") { Context::for_json() } else { Context::default() }
}

/// Error for the name of a command of another tool, or of another group, which says what does that here.
fn tried_first(mut command: &clap::Command, args: &[OsString]) -> Option<Error> {
    for word in args.iter().skip(1).filter(|word| !word.as_encoded_bytes().starts_with(b"-")) {
        let name = word.to_str()?;
        match command.find_subcommand(name) {
            Some(inner) => command = inner,
            None => {
                if !command.has_subcommands() {
                    return None;
                }
                let hint = match hints::of(name) {
                    Some(hint) => hint.to_owned(),
                    None => hints::elsewhere(&Cli::command(), name)?,
                };
                return Some(Error::argument(format!("unknown command '{name}'; did you mean: {hint}")));
            }
        }
    }
    None
}

/// Hint for -h in a command line that has more than the names of commands; `None` where help was asked for.
fn what_h_may_mean(args: &[OsString]) -> Option<&'static str> {
    if args.iter().any(|word| word == "--help") {
        return None;
    }
    let mut command = &cmd::described_for(args, Cli::command);
    let (mut hint, mut others) = ("", false);
    for word in args.iter().skip(1) {
        match named(command, word) {
            Some(inner) => command = inner,
            None if word == "help" && command.has_subcommands() => return None,
            None => others |= word != "-h",
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

    /// Every command is described for its command line as it is with all others.
    #[test]
    fn what_a_command_line_means_is_described() {
        fn compare(all: &clap::Command, path: &[OsString]) {
            for inner in all.get_subcommands() {
                let path: Vec<OsString> = path.iter().cloned().chain([inner.get_name().into()]).collect();
                let described = cmd::described_for(&path, Cli::command);
                let found =
                    path[1..].iter().fold(&described, |command, word| command.find_subcommand(word).unwrap());
                let ids = |command: &clap::Command| -> Vec<String> {
                    command.get_arguments().map(|arg| arg.get_id().to_string()).collect()
                };
                assert_eq!(ids(found), ids(inner), "{path:?}");
                compare(inner, &path);
            }
        }
        let all = Cli::command();
        compare(&all, &["casemate".into()]);
        let none = cmd::described_for(&["casemate".into()], Cli::command);
        assert!(none.find_subcommand("ext4").unwrap().get_subcommands().next().is_none());
    }

    /// The beginning of a command's name is no command: what destroys or writes is reached by its whole name alone.
    #[test]
    fn no_command_has_an_abbreviation() {
        fn check(all: &clap::Command, path: &[OsString], count: &mut usize) {
            for inner in all.get_subcommands() {
                let name = inner.get_name();
                let beginnings = (1..name.len()).map(|len| &name[..len]);
                for word in beginnings.filter(|word| all.find_subcommand(word).is_none()) {
                    let line: Vec<OsString> = path.iter().cloned().chain([word.into()]).collect();
                    let described = cmd::described_for(&line, Cli::command);
                    let kind = parse(described, &line).err().map(|error| error.kind());
                    assert_eq!(kind, Some(clap::error::ErrorKind::InvalidSubcommand), "{line:?}");
                    *count += 1;
                }
                let path: Vec<OsString> = path.iter().cloned().chain([name.into()]).collect();
                check(inner, &path, count);
            }
        }
        let mut count = 0;
        check(&Cli::command(), &["casemate".into()], &mut count);
        assert!(count > 300, "{count}");
        for line in
            ["luks er disk.img", "ext4 tr disk.img /etc/passwd 0", "verity rep disk.img", "l erase disk.img"]
        {
            let line: Vec<OsString> =
                ["casemate"].into_iter().chain(line.split(' ')).map(Into::into).collect();
            assert!(parse(Cli::command(), &line).is_err(), "{line:?}");
        }
    }

    #[test]
    fn the_version_is_the_one_of_the_options() {
        assert_eq!(VERSION, Cli::command().render_version());
    }

    /// Texts of one command alone equal those with all others described.
    #[test]
    fn help_and_errors_are_the_same_with_one_command_described() {
        fn compare(all: &clap::Command, command: &clap::Command, path: &[OsString]) {
            for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
                let path = [path, &[inner.get_name().into()]].concat();
                compare(all, inner, &path);
            }
            for words in [&["--help"][..], &["-h"], &["--nonsense"], &[]] {
                let line: Vec<OsString> = path.iter().cloned().chain(words.iter().map(Into::into)).collect();
                let described = cmd::described_for(&line, Cli::command);
                if is_about_one(&described, &line) {
                    let said = help::arranged(described).try_get_matches_from(&line);
                    let full = all.clone().try_get_matches_from(&line);
                    let told =
                        |said: Result<_, clap::Error>| said.err().map(|error| error.render().to_string());
                    assert_eq!(told(said), told(full), "{line:?}");
                }
                assert!(
                    command.has_subcommands()
                        || is_about_one(&cmd::described_for(&line, Cli::command), &line)
                );
            }
        }
        let all = command();
        compare(&all, &all, &["casemate".into()]);
        for line in [
            &["casemate", "ext4", "--help"][..],
            &["casemate", "--json", "ext4", "ls", "-h"],
            &["casemate", "nonsense"],
        ] {
            let line: Vec<OsString> = line.iter().map(OsString::from).collect();
            assert!(!is_about_one(&cmd::described_for(&line, Cli::command), &line), "{line:?}");
        }
    }

    #[test]
    fn help_is_told_from_what_means_something_else() {
        let asks = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            what_h_may_mean(&words)
        };
        for line in
            ["casemate -h", "casemate verity -h", "casemate verity format -h", "casemate help verity format"]
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
        // A fuzz target tries many more.
        for _ in 0..1000 {
            let mut line = vec![OsString::from("casemate")];
            for _ in 0..rng.below(8) {
                line.push(words[rng.below(words.len() as u64) as usize].clone());
            }
            let _ = Cli::try_parse_from(line);
        }
    }
}
