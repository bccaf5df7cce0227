//! Several layers on one command line: which option is of which.

use std::ffi::OsString;

use clap::builder::Resettable;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, Error, FromArgMatches, Id};

/// The options of one layer, of whatever kind it is.
pub trait LayerOptions: clap::Args {
    /// Options that begin a layer, and all options of the same kind of layer, by their ids.
    fn kinds() -> Vec<(&'static [&'static str], Vec<String>)>;
}

/// The ids of the options in `A`.
pub fn ids<A: clap::Args>() -> Vec<String> {
    let command = A::augment_args(Command::new("options"));
    command.get_arguments().map(|arg| arg.get_id().to_string()).collect()
}

/// Layers in the order in which they are given, from the image upwards. An option is of the layer before it that can have
/// it; if there is none, of the first behind it.
#[derive(Debug)]
pub struct Stack<L>(Vec<L>);

impl<L> Stack<L> {
    pub fn layers(&self) -> &[L] {
        &self.0
    }
}

/// A layer on the command line.
struct Given {
    /// Option or options that begin the layer, and their index on the command line.
    head: &'static [&'static str],
    index: usize,
    /// The layer's command line.
    words: Vec<OsString>,
}

impl<L: LayerOptions> clap::Args for Stack<L> {
    fn augment_args(command: Command) -> Command {
        let alone = L::augment_args(Command::new("layer"));
        let heads: Vec<&str> = L::kinds().iter().flat_map(|(heads, _)| heads.iter().copied()).collect();
        let mut command = L::augment_args(command);
        for arg in alone.get_arguments() {
            let is_head = heads.contains(&arg.get_id().as_str());
            command = command.mut_arg(arg.get_id(), |arg| repeated(arg, is_head));
        }
        for group in alone.get_groups() {
            command = command.mut_group(group.get_id(), |group| group.multiple(true));
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        Stack::<L>::augment_args(command)
    }
}

/// An option that each of several layers may have. What can't stand together in one layer is told when that is looked at.
fn repeated(arg: Arg, is_head: bool) -> Arg {
    let arg = arg.conflicts_with(Resettable::<Id>::Reset);
    match arg.get_action() {
        ArgAction::SetTrue if is_head => arg,
        ArgAction::SetTrue => arg.action(ArgAction::Count).value_parser(clap::value_parser!(u8)),
        _ => arg.action(ArgAction::Append),
    }
}

impl<L: LayerOptions> FromArgMatches for Stack<L> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Stack<L>, Error> {
        let alone = L::augment_args(Command::new("layer").no_binary_name(true).disable_help_flag(true));
        let kinds = L::kinds();
        let is_given =
            |arg: &&Arg| matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
        let mut layers: Vec<Given> = Vec::new();
        for arg in alone.get_arguments().filter(is_given) {
            let Some((head, _)) = kinds.iter().find(|(heads, _)| heads.contains(&arg.get_id().as_str()))
            else {
                continue;
            };
            layers.extend(occurrences(arg, matches).into_iter().map(|(index, words)| Given {
                head,
                index,
                words,
            }));
        }
        layers.sort_by_key(|layer| layer.index);
        for arg in alone.get_arguments().filter(is_given) {
            let id = arg.get_id().as_str();
            if kinds.iter().any(|(heads, _)| heads.contains(&id)) {
                continue;
            }
            let has = |layer: &Given| {
                kinds.iter().any(|(head, ids)| *head == layer.head && ids.iter().any(|known| known == id))
            };
            // Those that can have the option, by their numbers.
            let fitting: Vec<usize> = (0..layers.len()).filter(|number| has(&layers[*number])).collect();
            let of = |index| fitting.iter().rposition(|number| layers[*number].index < index).unwrap_or(0);
            let mut found: Vec<(usize, Vec<OsString>)> = Vec::new();
            for (index, words) in occurrences(arg, matches) {
                let Some(last) = fitting.get(of(index)) else {
                    // Without a layer the option does nothing, which is told where it is looked at alone.
                    L::from_arg_matches(&alone.clone().try_get_matches_from(&words).map_err(plain)?)?;
                    continue;
                };
                // Of a flag only its last place is known, and how often it is there.
                match times(arg, matches) {
                    times if times <= 1 => found.push((*last, words)),
                    times if times == of(index) + 1 => {
                        found.extend(fitting[..times].iter().map(|number| (*number, words.clone())));
                    }
                    _ => {
                        let text = format!(
                            "--{} is there several times: give it to one layer, or to the first ones alone\n",
                            arg.get_long().unwrap_or_default()
                        );
                        return Err(Error::raw(ErrorKind::ArgumentConflict, text));
                    }
                }
            }
            found.into_iter().for_each(|(number, words)| layers[number].words.extend(words));
        }
        let parsed = layers.into_iter().map(|layer| {
            let matches = alone.clone().try_get_matches_from(layer.words).map_err(plain)?;
            L::from_arg_matches(&matches)
        });
        parsed.collect::<Result<_, _>>().map(Stack)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Stack::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The places of an option, and the words that it is there.
fn occurrences(arg: &Arg, matches: &ArgMatches) -> Vec<(usize, Vec<OsString>)> {
    let id = arg.get_id().as_str();
    let name = format!("--{}", arg.get_long().unwrap_or_default());
    let mut indices = matches.indices_of(id).into_iter().flatten();
    if !arg.get_action().takes_values() {
        return indices.map(|index| (index, vec![name.clone().into()])).collect();
    }
    let each = matches.get_raw_occurrences(id).into_iter().flatten().map(|values| {
        let values: Vec<OsString> = values.map(OsString::from).collect();
        let index = indices.by_ref().take(values.len()).min().unwrap_or(0);
        let words = match &values[..] {
            // What begins with a hyphen is a value, too.
            [value] => {
                let mut word = OsString::from(format!("{name}="));
                word.push(value);
                vec![word]
            }
            several => [&[name.clone().into()], several].concat(),
        };
        (index, words)
    });
    each.collect()
}

/// How often a flag is there that may be repeated.
fn times(arg: &Arg, matches: &ArgMatches) -> usize {
    match arg.get_action() {
        ArgAction::SetTrue => matches.get_count(arg.get_id().as_str()).into(),
        _ => 1,
    }
}

/// Error about a layer, without the usage text of clap's inner command, which the user can't call.
fn plain(error: Error) -> Error {
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    Error::raw(error.kind(), format!("{}\n", text.split("\n\n").next().unwrap_or_default().trim_end()))
}
