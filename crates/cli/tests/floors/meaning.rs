//! Crates below the fronts know no command line, and no code reads a meaning out of words.

use std::path::{Path, PathBuf};

/// Folders of the fronts, and of what is no product.
const FRONTS: [&str; 2] = ["cli", "testkit"];

/// Where code asks for what a text says.
const READINGS: &[&str] =
    &["starts_with(", "ends_with(", "contains(", "find(", "strip_prefix(", "=\"", "!\""];

/// Sources of the product below a folder.
fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => sources(&path, into),
            false if path.extension().is_some_and(|ext| ext == "rs") => into.push(path),
            false => {}
        }
    }
}

/// A file's code without comments, white space, tests and what strings say, and the strings with their lines.
fn parsed(source: &str) -> (String, Vec<(usize, String)>) {
    let end = source.find("\n#[cfg(test)]\nmod tests").unwrap_or(source.len());
    let (mut code, mut strings) = (String::new(), Vec::new());
    let (mut rest, mut line) = (&source[..end], 1);
    while let Some(first) = rest.chars().next() {
        let len = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("r\"") || rest.starts_with("r#") {
            let hashes = rest[1..].len() - rest[1..].trim_start_matches('#').len();
            let close = format!("\"{}", "#".repeat(hashes));
            match rest[1 + hashes..].strip_prefix('"').and_then(|text| text.find(&close)) {
                Some(len) => {
                    strings.push((line, rest[2 + hashes..2 + hashes + len].to_owned()));
                    code.push_str("\"\"");
                    2 + hashes + len + close.len()
                }
                None => 1,
            }
        } else if first == '"' {
            let mut is_escaped = false;
            let text = rest[1..].find(|c| {
                let ends = c == '"' && !is_escaped;
                is_escaped = c == '\\' && !is_escaped;
                ends
            });
            let len = text.expect("a string ends");
            strings.push((line, rest[1..1 + len].to_owned()));
            code.push_str("\"\"");
            len + 2
        } else if rest.starts_with("'\"'") || rest.starts_with("'\\") {
            2 + rest[2..].find('\'').map_or(0, |at| at + 1)
        } else {
            if !first.is_whitespace() {
                code.push(first);
            }
            first.len_utf8()
        };
        line += rest[..len].matches('\n').count();
        rest = &rest[len..];
    }
    (code, strings)
}

/// A source file: the crate's folder, the path, code, and strings with their lines.
type Parsed = (String, String, String, Vec<(usize, String)>);

/// The product's sources.
fn product() -> Vec<Parsed> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut product = Vec::new();
    for entry in std::fs::read_dir(&crates).unwrap() {
        let folder = entry.unwrap().path();
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let mut paths = Vec::new();
        if folder.join("src").is_dir() {
            sources(&folder.join("src"), &mut paths);
        }
        for path in paths.iter().filter(|path| !path.ends_with("tests.rs")) {
            let (code, strings) = parsed(&std::fs::read_to_string(path).unwrap());
            let shown = path.strip_prefix(&crates).unwrap().display().to_string();
            product.push((name.clone(), shown, code, strings));
        }
    }
    assert!(product.len() > 400, "{}", product.len());
    product
}

#[test]
fn what_is_below_the_fronts_names_no_options() {
    let mut faults = Vec::new();
    for (_, path, _, strings) in product().iter().filter(|(name, ..)| !FRONTS.contains(&&**name)) {
        for (line, text) in strings {
            let names_option = text.match_indices("--").any(|(at, _)| {
                let (before, after) = (text[..at].chars().next_back(), text[at + 2..].chars().next());
                after.is_some_and(|c| c.is_ascii_lowercase()) && before.is_none_or(|c| " (;,'".contains(c))
            });
            if names_option {
                faults.push(format!("{path}:{line}: {text}"));
            }
        }
    }
    assert!(
        faults.is_empty(),
        "advice is data (blockdev's Advice), which fronts word:\n{}",
        faults.join("\n")
    );
}

#[test]
fn no_code_reads_a_meaning_out_of_words() {
    let mut faults = Vec::new();
    for (_, path, code, _) in product().iter().filter(|(name, ..)| name != "testkit") {
        for subject in
            [".text()", "error.to_string()", "problem().to_string()", "finding.to_string()", "what"]
        {
            for (at, _) in code.match_indices(subject) {
                let after = &code[at + subject.len()..];
                let after = after.strip_prefix(".into_owned()").unwrap_or(after);
                let after = after.strip_prefix(['.', '=', '!']).unwrap_or_default();
                if READINGS.iter().any(|reading| after.starts_with(reading)) {
                    let from = code[..at].char_indices().rev().nth(30).map_or(0, |(from, _)| from);
                    let shown: String = code[from..].chars().take(90).collect();
                    faults.push(format!("{path}: {shown}"));
                }
            }
        }
    }
    assert!(
        faults.is_empty(),
        "branch on a code, a kind or a constant, not on words:\n{}",
        faults.join("\n")
    );
}

/// Phrases that plain English does not negate by, or that no error needs: "is not a header" says it, or "no header was found".
const PHRASES: &[&str] =
    &[" is no ", " are no ", " is none", " are none", " has not\n", "whoever", "which alone", "hand over"];

/// Literals with such phrases that are left, by a part of their path. The numbers go down, and lines go away.
const STILL_UNPLAIN: &[(&str, usize)] = &[("ext4/src/", 36), ("", 0)];

#[test]
fn errors_are_plain_english() {
    let mut left = vec![Vec::new(); STILL_UNPLAIN.len()];
    for (_, path, _, strings) in product().iter().filter(|(name, ..)| name != "testkit") {
        for (line, text) in strings {
            // Help is longer than an error, and "there is no header" is plain.
            if text.len() > 300 {
                continue;
            }
            let ending = format!(" {}\n", text.to_lowercase());
            let ending = ending.replace("there is no ", "").replace("there are no ", "");
            if PHRASES.iter().any(|phrase| ending.contains(phrase)) {
                let nth = STILL_UNPLAIN.iter().position(|(part, _)| path.contains(part)).unwrap();
                left[nth].push(format!("{path}:{line}: {text}"));
            }
        }
    }
    let most = STILL_UNPLAIN.iter().zip(&left).filter(|((_, most), found)| found.len() > *most);
    let faults: Vec<String> = most
        .map(|((part, most), found)| format!("{part}: {} of {most}:\n{}", found.len(), found.join("\n")))
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
