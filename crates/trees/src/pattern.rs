//! Names and paths chosen by wildcards, as shells have them.

use std::fmt;

use crate::{Error, Result};

/// Wildcards of one name: `*` is any text, `?` any character, `[a-z]` one of these and `[!a-z]` any other one; a backslash
/// takes a wildcard for itself.
#[derive(Clone, Debug)]
pub struct Glob {
    tokens: Vec<Token>,
    ignores_case: bool,
}

#[derive(Clone, Debug)]
enum Token {
    Text,
    One,
    Letter(u32),
    Set { others: bool, ranges: Vec<(u32, u32)> },
}

/// Wildcards of paths, as .gitignore has them. Without a slash in it a pattern is for names, wherever they are; with one,
/// for paths from the top on, in which no wildcard but `**` is for slashes. A slash at its end is for directories alone.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// As it was written.
    text: Vec<u8>,
    parts: Vec<Part>,
    directories: bool,
}

#[derive(Clone, Debug)]
enum Part {
    /// Any number of names.
    Names,
    Name(Glob),
}

/// A choice of a tree's files: all of it, what matches one of the patterns in `include`, and never what matches one
/// in `exclude`. A directory is with all that is in it.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Patterns of the paths that are wanted; everything if there are none.
    pub include: Vec<Pattern>,
    /// Patterns of the paths that are left out.
    pub exclude: Vec<Pattern>,
}

/// The verdict of a [`Selection`] on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// It is wanted, and so is what is in it.
    Wanted,
    /// A directory in which something may be wanted.
    OnTheWay,
    /// Neither it nor what is in it.
    LeftOut,
}

impl Glob {
    /// Reads a pattern.
    ///
    /// # Errors
    /// `Argument` for classes such as `[:alpha:]`, and a backslash before nothing.
    pub fn new(pattern: &[u8]) -> Result<Glob> {
        let letters: Vec<u32> = letters(pattern).collect();
        let refuse = |text: &str| {
            let pattern = String::from_utf8_lossy(pattern);
            Err(Error::argument(format!("the pattern '{pattern}' {text}")))
        };
        let is = |at: usize, byte: u8| letters.get(at) == Some(&u32::from(byte));
        let mut tokens = Vec::new();
        let mut at = 0;
        while let Some(&letter) = letters.get(at) {
            at += 1;
            tokens.push(match u8::try_from(letter).unwrap_or(0) {
                b'*' => Token::Text,
                b'?' => Token::One,
                b'\\' => match letters.get(at) {
                    Some(&letter) => {
                        at += 1;
                        Token::Letter(letter)
                    }
                    None => return refuse("ends in a backslash with nothing behind it"),
                },
                b'[' => {
                    let others = is(at, b'!') || is(at, b'^');
                    let first = at + usize::from(others);
                    // A bracket at once is one of the set.
                    let end = (first + 1..letters.len()).find(|at| is(*at, b']'));
                    match end {
                        None => Token::Letter(letter),
                        Some(end) if (first..end).any(|at| is(at, b'[') && is(at + 1, b':')) => {
                            return refuse("has a class of characters, which is not supported");
                        }
                        Some(end) => {
                            at = end + 1;
                            Token::Set { others, ranges: ranges(&letters[first..end]) }
                        }
                    }
                }
                _ => Token::Letter(letter),
            });
        }
        Ok(Glob { tokens, ignores_case: false })
    }

    /// Makes the pattern ignore case.
    #[must_use]
    pub fn ignoring_case(mut self) -> Glob {
        self.ignores_case = true;
        self
    }

    /// Whether a name is one of these. Takes time in proportion to the product of both lengths at most.
    pub fn matches(&self, name: &[u8]) -> bool {
        let letters: Vec<u32> = letters(name).collect();
        let (mut token, mut letter) = (0, 0);
        // Behind the last text, and where what it has taken ends: those before it need never take more.
        let mut back = None;
        loop {
            match (self.tokens.get(token), letters.get(letter)) {
                (Some(Token::Text), _) => {
                    token += 1;
                    back = Some((token, letter));
                }
                (Some(now), Some(this)) if self.takes(now, *this) => {
                    (token, letter) = (token + 1, letter + 1);
                }
                (None, None) => return true,
                _ => match back {
                    Some((behind, end)) if end < letters.len() => {
                        (token, letter) = (behind, end + 1);
                        back = Some((token, letter));
                    }
                    _ => return false,
                },
            }
        }
    }

    fn takes(&self, token: &Token, letter: u32) -> bool {
        let cases = |letter: u32| match char::from_u32(letter).filter(|_| self.ignores_case) {
            Some(letter) => [lower(letter), upper(letter)],
            None => [letter; 2],
        };
        match token {
            Token::Text | Token::One => true,
            Token::Letter(wanted) => cases(*wanted)[0] == cases(letter)[0],
            Token::Set { others, ranges } => {
                let within =
                    |letter: &u32| ranges.iter().any(|(first, last)| (first..=last).contains(&letter));
                cases(letter).iter().any(within) != *others
            }
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.text))
    }
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// Errors of [`Glob::new`]; `Argument` for a pattern of nothing, or of slashes.
    pub fn new(pattern: &[u8]) -> Result<Pattern> {
        let end = pattern.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
        let (path, directories) = (&pattern[..end], end < pattern.len());
        if path.is_empty() {
            return Err(Error::argument("the pattern holds no name"));
        }
        let mut parts = Vec::new();
        if !path.contains(&b'/') {
            parts.push(Part::Names);
        }
        for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            parts.push(if part == b"**" { Part::Names } else { Part::Name(Glob::new(part)?) });
        }
        // What is in a directory, and not itself.
        if parts.len() > 1 && matches!(parts.last(), Some(Part::Names)) {
            parts.push(Part::Name(Glob { tokens: vec![Token::Text], ignores_case: false }));
        }
        Ok(Pattern { text: pattern.to_vec(), parts, directories })
    }

    /// Whether a path, from the top on, is one of these.
    pub fn matches(&self, path: &[u8], is_dir: bool) -> bool {
        (is_dir || !self.directories) && self.after(path)[self.parts.len()]
    }

    /// Whether the path of something in a directory can be one of these.
    pub fn reaches_below(&self, path: &[u8]) -> bool {
        self.after(path)[..self.parts.len()].contains(&true)
    }

    /// For each number of parts whether the path can be what so many stand for.
    fn after(&self, path: &[u8]) -> Vec<bool> {
        let open = |mut after: Vec<bool>| {
            for (at, part) in self.parts.iter().enumerate() {
                after[at + 1] |= after[at] && matches!(part, Part::Names);
            }
            after
        };
        let mut after = vec![false; self.parts.len() + 1];
        after[0] = true;
        path.split(|byte| *byte == b'/').fold(open(after), |before, name| {
            let mut after = vec![false; before.len()];
            for (at, part) in self.parts.iter().enumerate().filter(|(at, _)| before[*at]) {
                match part {
                    Part::Names => after[at] = true,
                    Part::Name(glob) => after[at + 1] |= glob.matches(name),
                }
            }
            open(after)
        })
    }
}

impl Selection {
    /// Whether everything is wanted.
    pub fn is_everything(&self) -> bool {
        self.include.is_empty() && self.exclude.is_empty()
    }

    /// The verdict on a path, from the top on; `within` says that a directory above it is wanted.
    pub fn choice(&self, path: &[u8], is_dir: bool, within: bool) -> Choice {
        let is_one = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(path, is_dir));
        match () {
            () if is_one(&self.exclude) => Choice::LeftOut,
            () if within || self.include.is_empty() || is_one(&self.include) => Choice::Wanted,
            () if is_dir && self.include.iter().any(|pattern| pattern.reaches_below(path)) => {
                Choice::OnTheWay
            }
            () => Choice::LeftOut,
        }
    }
}

/// The characters of a name, and the bytes that are none, as numbers of their own.
fn letters(name: &[u8]) -> impl Iterator<Item = u32> {
    name.utf8_chunks().flat_map(|chunk| {
        let bytes = chunk.invalid().iter().map(|byte| u32::from(char::MAX) + 1 + u32::from(*byte));
        chunk.valid().chars().map(u32::from).chain(bytes)
    })
}

/// The ranges of a set; a dash at an end stands for itself.
fn ranges(mut set: &[u32]) -> Vec<(u32, u32)> {
    let mut ranges = Vec::new();
    while let Some((&first, rest)) = set.split_first() {
        let (last, rest) = match rest {
            [dash, last, rest @ ..] if *dash == u32::from(b'-') => (*last, rest),
            _ => (first, rest),
        };
        ranges.push((first, last));
        set = rest;
    }
    ranges
}

fn lower(letter: char) -> u32 {
    letter.to_lowercase().next().unwrap_or(letter).into()
}

fn upper(letter: char) -> u32 {
    letter.to_uppercase().next().unwrap_or(letter).into()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use casemate_testkit::{Rng, skip};

    use super::*;

    #[test]
    fn names() {
        let matches = |pattern: &str, name: &[u8]| Glob::new(pattern.as_bytes()).unwrap().matches(name);
        for (pattern, name) in [
            ("*.so*", "libc.so.6"),
            ("a?c", "a\u{e9}c"),
            ("[a-c]x", "bx"),
            ("[!a-c]x", "dx"),
            ("[]a]", "]"),
            ("[a-]", "-"),
            ("[-a]", "-"),
            ("[", "["),
            ("[a]x[:", "ax[:"),
            ("\\*", "*"),
            ("*", ".hidden"),
            ("", ""),
        ] {
            assert!(matches(pattern, name.as_bytes()), "{pattern} {name}");
        }
        for (pattern, name) in
            [("*.so", "libc.so.6"), ("[!a-c]x", "bx"), ("[a-c]", "-"), ("\\*", "x"), ("?", "")]
        {
            assert!(!matches(pattern, name.as_bytes()), "{pattern} {name}");
        }
        assert!(matches("?b*", b"\xffb\xfe") && !matches("??", b"\xc3"));
        let glob = Glob::new("READ*[A-C]".as_bytes()).unwrap().ignoring_case();
        assert!(glob.matches(b"readmeb") && !glob.matches(b"readmed"));
        assert!(Glob::new(b"[[:alpha:]]").is_err() && Glob::new(b"x\\").is_err());
        // In time, whatever the name.
        assert!(!matches(&("*a".repeat(200) + "b"), &[b'a'; 100_000]));
    }

    /// Patterns of every shape choose what bash's `case` chooses.
    #[test]
    fn names_are_chosen_as_a_shell_does() {
        let mut rng = Rng::new(17);
        let mut word = |letters: &[u8], most| -> String {
            (0..rng.below(most))
                .map(|_| char::from(letters[rng.below(letters.len() as u64) as usize]))
                .collect()
        };
        let pairs: Vec<_> = (0..1500).map(|_| (word(b"ab*?[]!-^", 8), word(b"ab[]!-^*", 5))).collect();
        let lines: String = pairs
            .iter()
            .map(|(pattern, name)| {
                format!("n='{name}'; p='{pattern}'; case $n in $p) echo y;; *) echo n;; esac\n")
            })
            .collect();
        let Ok(output) = Command::new("bash").env("LC_ALL", "C").args(["-c", &lines]).output() else {
            return skip("no bash");
        };
        let answers = String::from_utf8(output.stdout).unwrap();
        assert_eq!(answers.lines().count(), pairs.len());
        for ((pattern, name), answer) in pairs.iter().zip(answers.lines()) {
            // A range that runs backwards is nothing here, and an error of some shells.
            let found = Glob::new(pattern.as_bytes()).unwrap().matches(name.as_bytes());
            assert_eq!(found, answer == "y", "{pattern} {name}");
        }
    }

    #[test]
    fn paths() {
        let matches = |pattern: &str, path: &str| {
            Pattern::new(pattern.as_bytes()).unwrap().matches(path.as_bytes(), false)
        };
        for (pattern, path) in [
            ("*.o", "a.o"),
            ("*.o", "src/a.o"),
            ("/a.o", "a.o"),
            ("src/*.o", "src/a.o"),
            ("src/**/a.o", "src/a.o"),
            ("src/**/a.o", "src/x/y/a.o"),
            ("**/y/a.o", "src/x/y/a.o"),
            ("src/**", "src/x/y"),
            ("/**", "x/y"),
            ("**", "x/y"),
        ] {
            assert!(matches(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [
            ("/a.o", "src/a.o"),
            ("src/*.o", "src/x/a.o"),
            ("src/*.o", "x/src/a.o"),
            ("src/**", "src"),
            ("src/", "src"),
            ("x", "src/xy"),
        ] {
            assert!(!matches(pattern, path), "{pattern} {path}");
        }
        assert!(Pattern::new(b"src/").unwrap().matches(b"src", true));
        assert!(Pattern::new(b"/").is_err() && Pattern::new(b"").is_err());
    }

    #[test]
    fn selections() {
        let patterns =
            |list: &[&str]| list.iter().map(|text| Pattern::new(text.as_bytes()).unwrap()).collect();
        let selection =
            Selection { include: patterns(&["etc", "*.conf"]), exclude: patterns(&["*~", "etc/ssl"]) };
        for (path, is_dir, within, choice) in [
            ("etc", true, false, Choice::Wanted),
            ("etc/hosts", false, true, Choice::Wanted),
            ("etc/hosts~", false, true, Choice::LeftOut),
            ("etc/ssl", true, true, Choice::LeftOut),
            ("usr", true, false, Choice::OnTheWay),
            ("usr/a.conf", false, false, Choice::Wanted),
            ("usr/a", false, false, Choice::LeftOut),
        ] {
            assert_eq!(selection.choice(path.as_bytes(), is_dir, within), choice, "{path}");
        }
        assert_eq!(Selection::default().choice(b"x", false, false), Choice::Wanted);
        // Nothing is looked for where no path leads.
        let selection =
            Selection { include: patterns(&["/usr/lib/*.so", "/var/**/log"]), exclude: Vec::new() };
        for (path, choice) in [
            ("usr", Choice::OnTheWay),
            ("usr/lib", Choice::OnTheWay),
            ("usr/lib/x", Choice::LeftOut),
            ("home", Choice::LeftOut),
            ("var/a/b", Choice::OnTheWay),
            ("var/a/log", Choice::Wanted),
        ] {
            assert_eq!(selection.choice(path.as_bytes(), true, false), choice, "{path}");
        }
    }
}
