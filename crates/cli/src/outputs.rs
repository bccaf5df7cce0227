//! The files that commands write, which replace none of those that their options read: keys, policies, certificates,
//! headers, lists and images.
//!
//! Each command checks its output against its own files, too. This looks at the whole command line, so that an option that
//! is new to a command, or that a layer brings, is looked at as well.

use std::path::{Path, PathBuf};

use clap::ArgMatches;

use casemate::image_spec::KeyFile;
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
    "undo",
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

/// Outputs that are made of the sources. Others, such as a list of what was done, lie beside them.
const MADE_OF_SOURCES: &[&str] = &["image", "out", "output", "target"];

/// Arguments of files that are written by some commands, and read by others.
const WRITTEN_AS_FILES: &[&str] = &["fec_device", "hash_device", "luks_header"];

/// Refuses a command line, whose command is called by its words, if it would replace one of the files that it names.
///
/// # Errors
/// `Argument`, with both names, and for the name of a new file that reads as an image specification.
pub fn check(command: &str, matches: &ArgMatches) -> Result<(), Error> {
    let innermost =
        std::iter::successors(Some(matches), |matches| matches.subcommand().map(|(_, inner)| inner));
    let Some(matches) = innermost.last() else { return Ok(()) };
    let paths = |id: &str| paths(matches, id);
    let is_output = |id: &str| is_output(command, id);
    for output in matches.ids().map(clap::Id::as_str).filter(|id| is_output(id)) {
        let is_source = |id: &str| {
            MADE_OF_SOURCES.contains(&output)
                && SOURCES.contains(&id)
                && matches.try_get_many::<ImageSpec>(id).is_err()
        };
        let others = matches.ids().map(clap::Id::as_str).filter(|id| *id != output && !is_source(id));
        let others: Vec<&Path> = others.flat_map(paths).collect();
        for path in written(matches, output) {
            Output::check(path, &others)?;
        }
    }
    let files =
        matches.ids().map(clap::Id::as_str).filter(|id| is_output(id) || WRITTEN_AS_FILES.contains(id));
    let files = files.filter_map(|id| matches.try_get_many::<PathBuf>(id).ok().flatten());
    files.flatten().try_for_each(|path| refuse_specification(path))
}

/// Whether an argument of a command names a file that is written.
fn is_output(command: &str, id: &str) -> bool {
    OUTPUTS.contains(&id) || OUTPUTS_OF.contains(&(command, id))
}

/// Refuses to make a new file of a name that reads as the specification of a part of an image: somebody took the argument for
/// one that takes images, and would find plaintext in a file of that name.
///
/// # Errors
/// `Argument`.
pub fn refuse_specification(path: &Path) -> Result<(), Error> {
    if path.exists() {
        return Ok(());
    }
    match ImageSpec::parse(path) {
        Ok(spec) if spec.file() != path && spec.file().exists() => {
            let (path, file) = (path.display(), spec.file().display());
            let text = format!(
                "{path}: this argument takes the name of a file, not a specification of {file}; choose another name for the new file"
            );
            Err(Error::argument(text))
        }
        _ => Ok(()),
    }
}

/// The files that an output is: its own, of an image whose layers are said beside it.
fn written<'a>(matches: &'a ArgMatches, id: &str) -> Vec<&'a Path> {
    let values = matches.try_get_many::<PathBuf>(id).ok().flatten();
    let specs = matches.try_get_many::<ImageSpec>(id).ok().flatten();
    let paths = values.into_iter().flatten().map(PathBuf::as_path);
    let paths = paths.chain(specs.into_iter().flatten().map(ImageSpec::file));
    paths.filter(|path| *path != Path::new("-")).collect()
}

/// All files that a command line names, and those of its images: a tree that is unpacked replaces none of them.
pub fn named(matches: &ArgMatches) -> Vec<PathBuf> {
    files(matches, &|_| true)
}

/// The files that a command line names to be read, or changed in place: nothing is printed into them.
pub fn read(command: &str, matches: &ArgMatches) -> Vec<PathBuf> {
    files(matches, &|id| !is_output(command, id))
}

/// The files that these arguments of a command line name, and those of their images.
fn files(matches: &ArgMatches, is_wanted: &dyn Fn(&str) -> bool) -> Vec<PathBuf> {
    let levels = std::iter::successors(Some(matches), |matches| matches.subcommand().map(|(_, inner)| inner));
    let of_level = |matches: &ArgMatches| -> Vec<PathBuf> {
        let images = |id: &str| specs(matches, id).map(|spec| spec.file().to_owned()).collect::<Vec<_>>();
        let ids = || matches.ids().map(clap::Id::as_str).filter(|id| is_wanted(id));
        let beside = ids().flat_map(|id| paths(matches, id)).map(Path::to_owned);
        beside.chain(ids().flat_map(images)).collect()
    };
    levels.flat_map(of_level).collect()
}

/// The files that an argument names; of an image whose layers are said beside it, the files beside it.
fn paths<'a>(matches: &'a ArgMatches, id: &str) -> Vec<&'a Path> {
    let values = matches.try_get_many::<PathBuf>(id).ok().flatten();
    let values = values.into_iter().flatten().map(PathBuf::as_path);
    let specs = specs(matches, id).flat_map(ImageSpec::files_beside);
    let keys = matches.try_get_many::<KeyFile>(id).ok().flatten().into_iter().flatten();
    let keys = keys.map(|key| key.path.as_path());
    // The folders of a build that are encrypted, each with its key.
    let encrypted = matches.try_get_many::<(Vec<u8>, PathBuf)>(id).ok().flatten().into_iter().flatten();
    let encrypted = encrypted.map(|(_, path)| path.as_path());
    // A root hash in a file, and the hash device before it.
    let texts = matches.try_get_raw(id).ok().flatten().into_iter().flatten();
    let is_layer = id == "dm_verity";
    let hashes = texts.filter_map(move |text| match text.to_str().and_then(|text| text.strip_prefix('@')) {
        Some(file) => Some(Path::new(file)),
        None => is_layer.then_some(Path::new(text)),
    });
    let all = values.chain(specs).chain(keys).chain(encrypted).chain(hashes);
    all.filter(|path| *path != Path::new("-")).collect()
}

/// The images that an argument names, with a name of an export or without.
fn specs<'a>(matches: &'a ArgMatches, id: &str) -> impl Iterator<Item = &'a ImageSpec> {
    let specs = matches.try_get_many::<ImageSpec>(id).ok().flatten().into_iter().flatten();
    let exports = matches.try_get_many::<(String, ImageSpec)>(id).ok().flatten().into_iter().flatten();
    specs.chain(exports.map(|(_, spec)| spec))
}

#[cfg(test)]
mod tests {
    use clap::builder::ValueParser;
    use clap::{Arg, Command};

    use crate::cmd::layers::spec_parser;

    use super::*;

    /// Calls `visit` with the words of each command that has no commands, and each of its arguments.
    fn each(command: &Command, words: &str, visit: &mut dyn FnMut(&str, &Arg)) {
        for inner in command.get_subcommands() {
            each(inner, format!("{words} {}", inner.get_name()).trim(), visit);
        }
        command.get_arguments().for_each(|arg| visit(words, arg));
    }

    #[test]
    fn every_file_that_is_read_is_looked_at() {
        let mut unknown = Vec::new();
        each(&crate::command(), "", &mut |words, arg| {
            let names = arg.get_value_names().unwrap_or_default();
            let is_file = names.iter().any(|name| name.contains("FILE") && !name.contains("[=FILE]"));
            let is_path = arg.get_value_parser().type_id() == ValueParser::path_buf().type_id();
            // Keys behind the name of what they are for, and root hashes.
            let known = ["encrypt", "files", "protect", "words"];
            if is_file && !is_path && !known.contains(&arg.get_id().as_str()) {
                unknown.push(format!("{words}: {}: {names:?}", arg.get_id()));
            }
        });
        assert!(unknown.is_empty(), "{unknown:#?}");
    }

    #[test]
    fn every_file_that_is_written_is_known_as_an_output() {
        let (mut unknown, mut found) = (Vec::new(), Vec::new());
        each(&crate::command(), "", &mut |words, arg| {
            let (id, help) =
                (arg.get_id().as_str(), arg.get_help().map(ToString::to_string).unwrap_or_default());
            let kinds = [ValueParser::path_buf().type_id(), ValueParser::new(spec_parser()).type_id()];
            if !kinds.contains(&arg.get_value_parser().type_id()) {
                return;
            }
            let is_output = is_output(words, id);
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
