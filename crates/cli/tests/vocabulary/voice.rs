//! The rules of CONTRIBUTING.md, "The voice", as far as a program can check them.
//!
//! A rule that is not kept everywhere yet has a number: so many places break it. The number may only shrink. Lower it
//! when you mend some.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Command;

/// Words that no docstring begins with, because they put the reader off to the next sentence or the previous item.
const BANNED_OPENINGS: &[&str] = &[
    "The same",
    "What",
    "Whatever",
    "Who",
    "Whoever",
    "Those",
    "Let",
    "Lets",
    "Says",
    "Whether it",
    "Hears",
];

/// Words that no line of a docstring begins with, where it is the first or another: a sentence that begins so has no actor.
const BANNED_BEGINNINGS_OF_LINES: &[&str] = &["The same", "What", "Whatever", "Who", "Those of", "Lets"];

/// Words that no line of help begins with.
const BANNED_IN_HELP: &[&str] =
    &["The same", "What", "Who", "Whoever", "Those", "Let", "Lets", "Say", "Says", "Only so", "So many"];

/// Phrases that errors and help do not use, and the ones that the field has for them.
const BANNED_PHRASES: &[(&str, &str)] = &[
    (" is no ", "is not a"),
    (" are no ", "are not"),
    ("somebody", "passive, or the actor's name"),
    ("that is whole", "valid"),
    ("that makes sense", "valid"),
    ("is of no use", "is invalid"),
    ("there is such a file", "file exists"),
    ("says that this is meant", "use --OPTION to confirm"),
    ("turned away", "refused"),
    ("an ext2 .. file system", "an ext4 file system"),
    ("holds no key", "is not active"),
    ("stands on it", "in use by"),
    ("none that it can be", "invalid"),
    ("were mended", "were fixed"),
    ("Mend that", "Fix"),
    ("does not make sense", "is invalid"),
    ("nobody", "passive, or the actor's name"),
    ("whoever", "the actor's name"),
];

/// How many places break a rule.
mod most {
    pub const DOCSTRINGS: usize = 0;
    pub const PUBLIC_DOCSTRINGS: usize = 0;
    pub const DOCSTRING_LINES: usize = 0;
    pub const HELP_OPENINGS: usize = 0;
    pub const HELP_SENTENCES: usize = 0;
    pub const PHRASES: usize = 0;
    pub const MANUAL_SENTENCES: usize = 0;
}

/// Words of a sentence of help or of the README.
const LONG_HELP: usize = 32;
const LONG_README: usize = 28;
/// Words of a sentence of the manual.
const LONG_MANUAL: usize = 40;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Fails if a rule is broken more often than its number says, or the number is far too high by now.
fn ratchet(rule: &str, number: &str, most: usize, found: &[String]) {
    let shown = found.iter().take(40).cloned().collect::<Vec<_>>().join("\n");
    assert!(found.len() <= most, "{rule}: {} places, and {most} are allowed:\n{shown}", found.len());
    assert!(found.len() + 40 > most, "{rule}: {} places are left; lower {number}", found.len());
}

/// The files below a folder whose names end with `end`, in order.
fn files(folder: &Path, end: &str, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut entries: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        match path.is_dir() {
            true if !path.ends_with("target") => files(&path, end, found),
            false if path.to_string_lossy().ends_with(end) => found.push(path),
            _ => {}
        }
    }
}

fn sources() -> Vec<(String, String)> {
    let mut paths = Vec::new();
    files(&root().join("crates"), ".rs", &mut paths);
    files(&root().join("xtask"), ".rs", &mut paths);
    let name = |path: &Path| path.strip_prefix(root()).unwrap().display().to_string();
    let read = |path: PathBuf| (name(&path), fs::read_to_string(path).unwrap());
    paths.into_iter().map(read).collect()
}

fn begins_with(text: &str, openings: &[&str]) -> bool {
    let is_word = |rest: &str| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '\'');
    openings.iter().any(|opening| text.strip_prefix(opening).is_some_and(is_word))
}

/// A line of a docstring, without its slashes.
fn doc(line: &str) -> Option<&str> {
    let line = line.trim_start();
    line.strip_prefix("///").or(line.strip_prefix("//!")).map(str::trim_start)
}

#[test]
fn docstrings_begin_with_a_noun_or_a_verb() {
    let (mut all, mut public) = (Vec::new(), Vec::new());
    for (name, text) in sources() {
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let is_first = at == 0 || doc(lines[at - 1]).is_none();
            if !is_first || !doc(line).is_some_and(|text| begins_with(text, BANNED_OPENINGS)) {
                continue;
            }
            let place = format!("{name}:{}: {}", at + 1, line.trim());
            let is_about = |line: &&&str| doc(line).is_none() && !line.trim_start().starts_with("#[");
            if lines[at..].iter().find(is_about).is_some_and(|item| item.trim_start().starts_with("pub ")) {
                public.push(place.clone());
            }
            all.push(place);
        }
    }
    let lines: Vec<String> = sources()
        .iter()
        .flat_map(|(name, text)| text.lines().enumerate().map(move |(at, line)| (name, at, line)))
        .filter(|(_, _, line)| doc(line).is_some_and(|text| begins_with(text, BANNED_BEGINNINGS_OF_LINES)))
        .map(|(name, at, line)| format!("{name}:{}: {}", at + 1, line.trim()))
        .collect();
    ratchet("lines of docstrings", "DOCSTRING_LINES", most::DOCSTRING_LINES, &lines);
    ratchet("openings of public docstrings", "PUBLIC_DOCSTRINGS", most::PUBLIC_DOCSTRINGS, &public);
    ratchet("openings of docstrings", "DOCSTRINGS", most::DOCSTRINGS, &all);
}

#[test]
fn docstrings_of_python_begin_with_a_noun_or_a_verb() {
    let mut paths = Vec::new();
    files(&root().join("crates/python"), ".py", &mut paths);
    let mut found = Vec::new();
    for path in &paths {
        for line in fs::read_to_string(path).unwrap().lines() {
            let line = line.trim_start();
            let text = line.strip_prefix("\"\"\"").or(line.strip_prefix("#: "));
            if text.is_some_and(|text| begins_with(text, BANNED_OPENINGS)) {
                found.push(format!("{}: {line}", path.display()));
            }
        }
    }
    assert!(found.is_empty() && paths.len() > 20, "{}", found.join("\n"));
}

/// All texts of the help, with their places.
fn help_texts(path: &str, command: &Command, found: &mut Vec<(String, String)>) {
    let mut add = |place: &str, text: Option<&clap::builder::StyledStr>| {
        found.extend(text.map(|text| (format!("{path}{place}"), text.to_string())));
    };
    add("", command.get_about());
    add(" (long)", command.get_long_about());
    for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
        let name = arg.get_long().map_or(format!(" {}", arg.get_id()), |long| format!(" --{long}"));
        add(&name, arg.get_help());
        add(&name, arg.get_long_help());
    }
    for inner in command.get_subcommands() {
        help_texts(&format!("{path} {}", inner.get_name()), inner, found);
    }
}

/// The sentences of a text.
fn sentences(text: &str) -> Vec<String> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.replace(". ", ".\n").replace("; ", ";\n").replace("? ", "?\n").lines().map(str::to_owned).collect()
}

fn is_long(sentence: &str, most: usize) -> bool {
    sentence.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count() > most
}

#[test]
fn help_is_short_and_begins_with_a_noun_or_a_verb() {
    let mut texts = Vec::new();
    help_texts("casemate", &casemate_cli::command(), &mut texts);
    texts.dedup_by(|one, other| one.1 == other.1);
    let mut seen = std::collections::BTreeSet::new();
    // Options of layers are those of many commands.
    texts.retain(|(_, text)| seen.insert(text.clone()));
    let openings: Vec<String> = texts
        .iter()
        .filter(|(_, text)| begins_with(text, BANNED_IN_HELP))
        .map(|(place, text)| format!("{place}: {text}"))
        .collect();
    let long: Vec<String> = texts
        .iter()
        .flat_map(|(place, text)| sentences(text).into_iter().map(move |sentence| (place, sentence)))
        .filter(|(_, sentence)| is_long(sentence, LONG_HELP))
        .map(|(place, sentence)| format!("{place}: {sentence}"))
        .collect();
    ratchet("openings of help", "HELP_OPENINGS", most::HELP_OPENINGS, &openings);
    ratchet("long sentences of help", "HELP_SENTENCES", most::HELP_SENTENCES, &long);
}

/// The string literals of a line of code.
fn literals(line: &str) -> impl Iterator<Item = &str> {
    let code = if line.trim_start().starts_with("//") { "" } else { line };
    code.split('"').skip(1).step_by(2)
}

#[test]
fn errors_speak_the_field_s_language() {
    let mut found = Vec::new();
    for (name, text) in sources().iter().filter(|(name, _)| name.contains("/src/")) {
        for (at, line) in text.lines().enumerate() {
            for literal in literals(line) {
                // What is missing is said so.
                let literal = literal.replace("here is no ", "").replace("here are no ", "");
                for (phrase, better) in BANNED_PHRASES.iter().filter(|(phrase, _)| literal.contains(phrase)) {
                    found.push(format!("{name}:{}: \"{phrase}\", better: {better}: {literal}", at + 1));
                }
            }
        }
    }
    ratchet("phrases", "PHRASES", most::PHRASES, &found);
}

/// The paragraphs of a document, without code, tables, headings and drawings.
fn prose(text: &str) -> Vec<String> {
    let (mut paragraphs, mut is_code) = (vec![String::new()], false);
    for line in text.lines() {
        let start = line.trim_start();
        if start.starts_with("```") {
            is_code = !is_code;
        }
        let is_prose = !is_code && !start.is_empty() && !start.starts_with(['|', '#', '`', '<', '+']);
        let is_item = (start.starts_with("- ") || start.starts_with("* "))
            || start.split_once(". ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
        if !is_prose || is_item || line.starts_with("    ") {
            paragraphs.push(String::new());
        }
        if is_prose && !line.starts_with("    ") {
            let last = paragraphs.last_mut().unwrap();
            last.push_str(start);
            last.push(' ');
        }
    }
    paragraphs
}

fn long_sentences(path: &Path, most: usize) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let sentences = prose(&text).into_iter().flat_map(|paragraph| sentences(&paragraph));
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    sentences
        .filter(|sentence| is_long(sentence, most))
        .map(|sentence| format!("{name}: {sentence}"))
        .collect()
}

#[test]
fn sentences_of_documents_are_short() {
    let long = long_sentences(&root().join("README.md"), LONG_README);
    assert!(long.is_empty(), "{}", long.join("\n"));
    let mut pages = vec![root().join("ARCHITECTURE.md"), root().join("CONTRIBUTING.md")];
    files(&root().join("docs"), ".md", &mut pages);
    let long: Vec<String> = pages.iter().flat_map(|page| long_sentences(page, LONG_MANUAL)).collect();
    ratchet("long sentences of the manual", "MANUAL_SENTENCES", most::MANUAL_SENTENCES, &long);
}
