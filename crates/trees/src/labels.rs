//! SELinux's `file_contexts`: which label a file gets by its path, as libselinux looks it up.
//!
//! Each line has a regular expression for the whole path, a type of file if it is for one only, and a label. Paths without
//! wildcards go before expressions, and of several the last one counts.

use std::collections::HashMap;
use std::sync::OnceLock;

use regex::bytes::{Regex, RegexBuilder};

use crate::{Error, FileType, Result};

/// The attribute that holds a label.
pub const SELINUX: &[u8] = b"security.selinux";

/// The word for files without a label.
const NONE: &[u8] = b"<<none>>";

/// Magic of a compiled file.
const COMPILED: [u8; 4] = 0xf97c_ff8au32.to_le_bytes();

/// Bytes with a meaning of their own in an expression.
const WILDCARDS: &[u8] = b".^$?*+|[({";

/// Labels by paths.
#[derive(Debug)]
pub struct Labels {
    name: String,
    lines: Vec<Line>,
    /// Lines for one path.
    exact: HashMap<Vec<u8>, Vec<usize>>,
    /// Expressions by the first name that their paths have, and those with any: the last ones first.
    below: HashMap<Vec<u8>, Vec<usize>>,
    anywhere: Vec<usize>,
}

#[derive(Debug)]
struct Line {
    number: usize,
    text: String,
    kind: Option<FileType>,
    label: Option<Vec<u8>>,
    /// Common prefix of all paths.
    prefix: Vec<u8>,
    /// Made when it is used first: most are for files that are not there.
    regex: OnceLock<Regex>,
}

impl Labels {
    /// Reads `file_contexts`, which errors call `name`.
    ///
    /// # Errors
    /// `Corrupt`, with the line; `Unsupported` for a compiled file.
    pub fn parse(text: &[u8], name: &str) -> Result<Labels> {
        if text.starts_with(&COMPILED) {
            let text = "the file is compiled; give the text that it was made from";
            return Err(Error::unsupported(text).at(name));
        }
        let mut labels = Labels {
            name: name.to_owned(),
            lines: Vec::new(),
            exact: HashMap::new(),
            below: HashMap::new(),
            anywhere: Vec::new(),
        };
        for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let wrong = |what: &str| Error::corrupt(format!("line {}: {what}", at + 1)).at(name);
            let text = str::from_utf8(line).map_err(|_| wrong("no UTF-8"))?;
            let fields: Vec<&str> = text.split_whitespace().collect();
            let (text, kind, label) = match fields[..] {
                [] => continue,
                [first, ..] if first.starts_with('#') => continue,
                [path, label] => (path, None, label),
                [path, kind, label] => (
                    path,
                    Some(kind_of(kind).ok_or_else(|| wrong("the second field is not a type of file"))?),
                    label,
                ),
                _ => return Err(wrong("not a path, a type of file, and a label")),
            };
            let (prefix, is_exact) = literal(text.as_bytes());
            let label = Some(label.as_bytes()).filter(|label| *label != NONE);
            let label = label.map(|label| [label, b"\0"].concat());
            let number = labels.lines.len();
            if is_exact {
                labels.exact.entry(prefix.clone()).or_default().push(number);
            } else {
                match first_name(&prefix, false) {
                    Some(first) => labels.below.entry(first.to_vec()).or_default().push(number),
                    None => labels.anywhere.push(number),
                }
            }
            let (text, regex) = (text.to_owned(), OnceLock::new());
            labels.lines.push(Line { number: at + 1, text, kind, label, prefix, regex });
        }
        labels.anywhere.reverse();
        labels.below.values_mut().for_each(|lines| lines.reverse());
        Ok(labels)
    }

    /// The label of a file at a path from the root on, with the NUL that ends it; `None` if it gets none.
    ///
    /// # Errors
    /// `Corrupt` for an expression that is none.
    pub fn of(&self, path: &[u8], kind: FileType) -> Result<Option<&[u8]>> {
        let is_for = |line: &Line| line.kind.is_none_or(|only| only == kind);
        let mut exact = self.exact.get(path).into_iter().flatten().rev().map(|number| &self.lines[*number]);
        if let Some(line) = exact.find(|line| is_for(line)) {
            return Ok(line.label.as_deref());
        }
        let mut below = match first_name(path, true) {
            Some(first) => self.below.get(first).map_or(&[][..], Vec::as_slice),
            None => &[],
        };
        let mut anywhere = &self.anywhere[..];
        loop {
            // Both begin with their last lines.
            let number = match (below, anywhere) {
                ([a, rest @ ..], [b, ..]) if a > b => {
                    below = rest;
                    *a
                }
                (_, [b, rest @ ..]) => {
                    anywhere = rest;
                    *b
                }
                ([a, rest @ ..], []) => {
                    below = rest;
                    *a
                }
                ([], []) => return Ok(None),
            };
            let line = &self.lines[number];
            if is_for(line) && path.starts_with(&line.prefix) && self.regex(line)?.is_match(path) {
                return Ok(line.label.as_deref());
            }
        }
    }

    fn regex<'a>(&self, line: &'a Line) -> Result<&'a Regex> {
        if let Some(regex) = line.regex.get() {
            return Ok(regex);
        }
        let mut builder = RegexBuilder::new(&format!("^{}$", line.text));
        let regex = builder
            .unicode(false)
            .dot_matches_new_line(true)
            .build()
            .map_err(|error| Error::corrupt(format!("line {}: {error}", line.number)).at(&self.name))?;
        Ok(line.regex.get_or_init(|| regex))
    }
}

/// The first name of a path, if another one follows; of a whole path any first one.
fn first_name(path: &[u8], is_whole: bool) -> Option<&[u8]> {
    let rest = path.strip_prefix(b"/")?;
    match rest.iter().position(|byte| *byte == b'/') {
        Some(end) => Some(&rest[..end]),
        None => Some(rest).filter(|_| is_whole),
    }
}

/// The literal prefix of an expression, and whether that is all of it.
fn literal(text: &[u8]) -> (Vec<u8>, bool) {
    let mut prefix = Vec::new();
    let mut rest = text;
    while let [first, behind @ ..] = rest {
        rest = behind;
        if WILDCARDS.contains(first) {
            // What may be left out, or is one of several.
            if matches!(first, b'?' | b'*' | b'{') {
                prefix.pop();
            }
            if text.contains(&b'|') {
                prefix.clear();
            }
            return (prefix, false);
        }
        match (first, rest) {
            (b'\\', [escaped, behind @ ..]) if !escaped.is_ascii_alphanumeric() => {
                prefix.push(*escaped);
                rest = behind;
            }
            // A class.
            (b'\\', _) => return (prefix, false),
            _ => prefix.push(*first),
        }
    }
    (prefix, true)
}

fn kind_of(text: &str) -> Option<FileType> {
    Some(match text {
        "--" => FileType::Regular,
        "-d" => FileType::Directory,
        "-l" => FileType::Symlink,
        "-c" => FileType::CharacterDevice,
        "-b" => FileType::BlockDevice,
        "-p" => FileType::Fifo,
        "-s" => FileType::Socket,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Lines in the style of real policies, and some that go wrong easily.
    const CONTEXTS: &str = "# a comment
/.*                         u:r:default:s0
/                           u:r:root:s0
/usr(/.*)?                  u:r:usr:s0
/usr/s?bin(/.*)?            u:r:bin:s0
/usr/bin/[^/]*              -- u:r:exec:s0
/usr/bin/ping               -- u:r:ping:s0
/usr/bin/ping               -l u:r:link:s0
/usr/bin/pi.*               u:r:pi:s0
/etc/a\\.conf               u:r:conf:s0
/etc/a?b                    u:r:maybe:s0
/dev/(tty|pts)[0-9]{1,2}    -c u:r:tty:s0
/(a|b)/x                    u:r:either:s0
/tmp/.*                     <<none>>
/tmp/\\.x(/.*)?             u:r:x:s0
/usr/lib.*/lib[^/]*\\.so(\\.[^/]*)* -- u:r:lib:s0
";

    const PATHS: [(&str, FileType); 22] = [
        ("/", FileType::Directory),
        ("/else", FileType::Regular),
        ("/usr", FileType::Directory),
        ("/usr/x", FileType::Regular),
        ("/usrx", FileType::Regular),
        ("/usr/bin", FileType::Directory),
        ("/usr/sbin/x", FileType::Symlink),
        ("/usr/bin/ls", FileType::Regular),
        ("/usr/bin/ping", FileType::Regular),
        ("/usr/bin/ping", FileType::Symlink),
        ("/usr/bin/ping", FileType::Fifo),
        ("/usr/bin/pix", FileType::Regular),
        ("/etc/a.conf", FileType::Regular),
        ("/etc/axconf", FileType::Regular),
        ("/etc/b", FileType::Regular),
        ("/dev/tty12", FileType::CharacterDevice),
        ("/dev/tty123", FileType::CharacterDevice),
        ("/b/x", FileType::Regular),
        ("/tmp/file", FileType::Regular),
        ("/tmp/.x/y", FileType::Regular),
        ("/usr/lib64/libc.so.6", FileType::Regular),
        ("/a\nb", FileType::Regular),
    ];

    #[test]
    fn labels_are_those_of_libselinux() {
        let labels = Labels::parse(CONTEXTS.as_bytes(), "contexts").unwrap();
        let of = |path: &str, kind| {
            let label = labels.of(path.as_bytes(), kind).unwrap();
            label.map(|label| String::from_utf8_lossy(label).trim_end_matches('\0').to_owned())
        };
        assert_eq!(of("/usr/bin/ping", FileType::Regular).as_deref(), Some("u:r:ping:s0"));
        assert_eq!(of("/usr/bin/ping", FileType::Fifo).as_deref(), Some("u:r:pi:s0"));
        assert_eq!(of("/tmp/file", FileType::Regular), None);
        let Some(lookup) = casemate_testkit::tool("selabel_lookup") else { return };
        let folder = casemate_testkit::tempdir().unwrap();
        let file = folder.path().join("contexts");
        std::fs::write(&file, CONTEXTS).unwrap();
        for (path, kind) in PATHS {
            let mut command = Command::new(&lookup);
            command.args(["-b", "file", "-r", "-f"]).arg(&file).args([
                "-k",
                path,
                "-t",
                &u32::from(kind.mode_bits()).to_string(),
            ]);
            let output = casemate_testkit::run_any(&mut command);
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let found = text.split("context:").nth(1).map(|text| text.trim().to_owned());
            let found = found.filter(|label| label != "<<none>>");
            assert_eq!(of(path, kind), found, "{path} {kind:?} {output:?}");
        }
    }

    #[test]
    fn wrong_lines_are_told() {
        for (text, what) in [("/a", "line 1"), ("\n/a -q u:r:s", "line 2"), ("/a b c d", "line 1")] {
            let error = Labels::parse(text.as_bytes(), "contexts").unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
        let labels = Labels::parse(b"/a([ u:r:s", "contexts").unwrap();
        assert!(labels.of(b"/a", FileType::Regular).unwrap_err().to_string().contains("line 1"));
        assert!(Labels::parse(&COMPILED, "contexts").unwrap_err().to_string().contains("compiled"));
    }
}
