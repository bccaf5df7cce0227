//! Tables of commands. Of some three thousand options a command line means a few dozen, and describing all of them takes
//! longer than much of the work: only those commands are described whose names are on it.

use std::cell::RefCell;
use std::ffi::OsString;

use clap::{ArgMatches, Command, Error, FromArgMatches};

thread_local! {
    /// The words of the command line; without them all commands are described.
    static WORDS: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Calls `describe`, which then describes only the commands that `args` may mean. The others get their names alone, so
/// that neither help nor errors of theirs can be shown.
pub fn described_for<T>(args: &[OsString], describe: impl FnOnce() -> T) -> T {
    let words = args.iter().skip(1).filter_map(|word| word.to_str());
    let words = words.map(str::to_owned).collect();
    WORDS.set(Some(words));
    let described = describe();
    WORDS.set(None);
    described
}

/// A command's options, described if the command line may mean them.
#[derive(Debug)]
pub struct Named<A>(pub Box<A>);

impl<A> From<A> for Named<A> {
    fn from(args: A) -> Named<A> {
        Named(Box::new(args))
    }
}

impl<A: clap::Args> clap::Args for Named<A> {
    fn augment_args(command: Command) -> Command {
        let is_meant = WORDS.with_borrow(|words| {
            words.as_ref().is_none_or(|words| words.iter().any(|word| word == command.get_name()))
        });
        if is_meant { A::augment_args(command) } else { command }
    }

    fn augment_args_for_update(command: Command) -> Command {
        Named::<A>::augment_args(command)
    }
}

impl<A: FromArgMatches> FromArgMatches for Named<A> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Named<A>, Error> {
        A::from_arg_matches(matches).map(Named::from)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}

/// An enum of commands with the options of each, which has their `run`.
macro_rules! commands {
    ($visibility:vis enum $table:ident { $($(#[$when:meta])* $name:ident($args:ty),)* }) => {
        #[derive(Debug, clap::Subcommand)]
        $visibility enum $table {
            $($(#[$when])* $name($crate::cmd::table::Named<$args>),)*
        }

        impl $table {
            $visibility fn run(self, context: &$crate::context::Context) -> Result<Answer, Error> {
                match self {
                    $($(#[$when])* $table::$name(args) => args.0.run(context),)*
                }
            }
        }
    };
}

pub(crate) use commands;
