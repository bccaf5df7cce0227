//! The files that commands write, which replace none of those that their options read: keys, policies, certificates,
//! headers, lists and images.
//!
//! Each command checks its output against its own files, too. This looks at the whole command line, so that an option that
//! is new to a command, or that a layer brings, is looked at as well.

use std::path::{Path, PathBuf};

use clap::ArgMatches;

use casemate::{Error, ImageSpec, Output};

/// Options and arguments that name a file that is written, of all commands that have them.
const OUTPUTS: &[&str] = &[
    "html",
    "journal",
    "log",
    "manifest",
    "map",
    "out",
    "out_descriptor",
    "out_merkle_tree",
    "output",
    "overlay",
    "pid_file",
    "plot",
    "recovery_file",
    "root_hash_signature",
    "target",
];

/// Outputs of one command, where the argument of that name is an input of another.
const OUTPUTS_OF: &[(&str, &str)] = &[
    ("ext4 build", "dm_verity"),
    ("ext4 build", "image"),
    ("ext4 build", "root_hash_file"),
    ("ext4 extract", "folder"),
    ("ext4 extract", "tar"),
    ("fscrypt backup", "tar"),
    ("integrity format", "image"),
    ("luks dump-volume-key", "file"),
    ("luks header-backup", "file"),
    ("luks token export", "file"),
    ("verity format", "root_hash_file"),
    ("verity update", "root_hash_file"),
];

/// Arguments that the command makes its output of: it refuses them as the output itself, and says what to do.
const SOURCES: &[&str] = &["from", "image", "source"];

/// Refuses a command line, whose command is called by its words, if it would replace one of the files that it names.
///
/// # Errors
/// `Argument`, with both names.
pub fn check(command: &str, matches: &ArgMatches) -> Result<(), Error> {
    let innermost =
        std::iter::successors(Some(matches), |matches| matches.subcommand().map(|(_, inner)| inner));
    let Some(matches) = innermost.last() else { return Ok(()) };
    // Arguments that are not paths have another type.
    let paths = |id: &str| -> Vec<&Path> {
        let values = matches.try_get_many::<PathBuf>(id).ok().flatten();
        let values = values.into_iter().flatten().map(PathBuf::as_path);
        // Of an image whose layers are said beside it, the files beside it.
        let specs = matches.try_get_many::<ImageSpec>(id).ok().flatten().into_iter().flatten();
        let specs = specs.flat_map(ImageSpec::files_beside);
        values.chain(specs).filter(|path| *path != Path::new("-")).collect()
    };
    let is_output = |id: &str| OUTPUTS.contains(&id) || OUTPUTS_OF.contains(&(command, id));
    for output in matches.ids().map(clap::Id::as_str).filter(|id| is_output(id)) {
        let is_source = |id: &str| SOURCES.contains(&id) && matches.try_get_many::<ImageSpec>(id).is_err();
        let others = matches.ids().map(clap::Id::as_str).filter(|id| *id != output && !is_source(id));
        let others: Vec<&Path> = others.flat_map(paths).collect();
        for path in paths(output) {
            Output::check(path, &others)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::builder::ValueParser;
    use clap::{Arg, Command};

    use super::*;

    /// Calls `visit` with the words of each command that has no commands, and each of its arguments.
    fn each(command: &Command, words: &str, visit: &mut dyn FnMut(&str, &Arg)) {
        for inner in command.get_subcommands() {
            each(inner, format!("{words} {}", inner.get_name()).trim(), visit);
        }
        command.get_arguments().for_each(|arg| visit(words, arg));
    }

    #[test]
    fn every_file_that_is_written_is_known_as_an_output() {
        let (mut unknown, mut found) = (Vec::new(), Vec::new());
        each(&crate::command(), "", &mut |words, arg| {
            let (id, help) =
                (arg.get_id().as_str(), arg.get_help().map(ToString::to_string).unwrap_or_default());
            if arg.get_value_parser().type_id() != ValueParser::path_buf().type_id() {
                return;
            }
            let is_output = OUTPUTS.contains(&id) || OUTPUTS_OF.contains(&(words, id));
            found.extend(is_output.then(|| (words.to_owned(), id.to_owned())));
            let writes = [
                "Write",
                "Draw",
                "Where the",
                "The file to write",
                "The image to write",
                "The tar file to write",
            ];
            if !is_output && writes.iter().any(|begin| help.starts_with(begin)) {
                unknown.push(format!("{words}: {id}: {help}"));
            }
        });
        assert!(unknown.is_empty(), "{unknown:#?}");
        for id in OUTPUTS {
            assert!(found.iter().any(|(_, name)| name == id), "{id}: no command has it");
        }
        for (words, id) in OUTPUTS_OF {
            assert!(found.contains(&((*words).to_owned(), (*id).to_owned())), "{words}: {id}");
        }
    }
}
