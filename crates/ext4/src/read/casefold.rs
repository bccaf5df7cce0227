//! Names without regard to case, as directories with the casefold flag compare them.
//!
//! The kernel compares names after Unicode normalisation (NFD), with ignorable code points left out and full
//! case folding applied (fs/unicode, Unicode 12.1).

use unicode_normalization::UnicodeNormalization;

/// The form that names share which differ in case alone; `None` for names that are no UTF-8, which differ unless
/// they are equal.
pub fn fold(name: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(name).ok()?;
    let mut folded = String::with_capacity(name.len());
    // What Unicode 12.1 does not know stays as it is, and nothing is put in order across it.
    for part in name.split_inclusive(is_newer) {
        let newer = part.chars().next_back().filter(|c| is_newer(*c));
        let known = &part[..part.len() - newer.map_or(0, char::len_utf8)];
        // Each character is folded before accents are put in order: one folds to a letter.
        let decomposed = known.chars().flat_map(|c| std::iter::once(c).nfd());
        let parts: String = decomposed.filter(|c| !is_ignorable(*c)).flat_map(fold_char).collect();
        folded.extend(parts.nfd());
        folded.extend(newer);
    }
    Some(folded)
}

/// Full case folding of one character.
///
/// Rust's mapping to lower case after upper case is that folding for all but a few characters that have more
/// than one lower case form.
fn fold_char(c: char) -> Vec<char> {
    match c {
        // Cherokee folds to upper case (CaseFolding.txt).
        '\u{13a0}'..='\u{13f5}' => vec![c],
        '\u{13f8}'..='\u{13fd}' | '\u{ab70}'..='\u{abbf}' => c.to_uppercase().collect(),
        // The dotless i folds to itself, and the dotted capital I to i with a dot.
        '\u{131}' => vec![c],
        // The sharp s folds to two letters in both sizes.
        '\u{1e9e}' => vec!['s', 's'],
        _ => c.to_uppercase().flat_map(char::to_lowercase).collect(),
    }
}

/// Whether a character came after Unicode 12.1 and folds, decomposes or is put in order since. (The ranges hold
/// nothing that is older. The test below finds what a new version of Unicode adds.)
fn is_newer(c: char) -> bool {
    matches!(
        u32::from(c),
        0x897..=0x89f | 0x8ca..=0x8ce | 0x1ac1..=0x1af0 | 0x1c89 | 0x2c2f | 0xa7c0 | 0xa7c7..=0xa7f5
            | 0x10570..=0x105e4 | 0x10d50..=0x10d6d | 0x10eab..=0x10ef9 | 0x10f82..=0x10f84
            | 0x11383..=0x113c8 | 0x11938 | 0x16121..=0x16128 | 0x16d68..=0x16d6a | 0x16ea0..=0x16eb8
            | 0x1e08f | 0x1e2ae | 0x1e4ec..=0x1e6f5
    )
}

/// Default_Ignorable_Code_Point (DerivedCoreProperties.txt).
fn is_ignorable(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use casemate_testkit::{run, tempdir, tool};

    use super::*;
    use crate::format::dirhash::NameHasher;
    use crate::format::superblock::HashDefaults;

    #[test]
    fn names_that_are_the_same() {
        let same = [
            ("Straße", "STRASSE"),
            ("A\u{301}", "\u{e1}"),
            ("Σίσυφος", "ΣΊΣΥΦΟΣ"),
            ("so\u{ad}ft", "SOFT"),
            ("ﬁle", "FILE"),
        ];
        for (a, b) in same {
            assert_eq!(fold(a.as_bytes()), fold(b.as_bytes()), "{a} {b}");
        }
        assert_ne!(fold("ı".as_bytes()), fold(b"I"));
        assert_eq!(fold(b"\xff"), None);
    }

    /// debugfs prints the hash that the kernel would give a name in a casefolded directory: that of the folded name.
    #[test]
    fn debugfs_folds_every_character_the_same_way() {
        let Some(debugfs) = tool("debugfs") else { return };
        let folder = tempdir().unwrap();
        // Ideographs and private use map to themselves, and there are many.
        let skipped =
            |c: char| matches!(c, '\u{3400}'..='\u{9fff}' | '\u{e000}'..='\u{f8ff}' | '\u{30000}'..);
        let chars =
            (('!'..='~').chain('\u{80}'..=char::MAX)).filter(|c| !skipped(*c) && !matches!(c, '"' | '\\'));
        // Accents are put in order, and letters fold beside them.
        let mut names: Vec<String> = chars.map(|c| format!("A{c}\u{301}\u{323}b")).collect();
        names.extend(["Straße", "STRASSE", "각", "\u{1100}\u{1161}\u{11a8}", "ﬁle"].map(str::to_owned));
        let script: String =
            names.iter().map(|name| format!("dx_hash -h half_md4 -c -e utf8 \"{name}\"\n")).collect();
        std::fs::write(folder.path().join("script"), script).unwrap();
        let printed = run(Command::new(debugfs).arg("-f").arg(folder.path().join("script")));
        let hash = |line: &str| u32::from_str_radix(line.split_once(" is 0x")?.1.split(' ').next()?, 16).ok();
        let expected: Vec<u32> = printed.lines().filter_map(hash).collect();
        assert_eq!(expected.len(), names.len());
        let hasher = NameHasher::new(1, &HashDefaults { version: 1, seed: [0; 4], unsigned: false }).unwrap();
        let wrong: Vec<String> = names
            .iter()
            .zip(expected)
            .filter(|(name, hash)| {
                let folded = fold(name.as_bytes()).unwrap();
                hasher.hash(folded.as_bytes()).major != *hash
            })
            .map(|(name, _)| format!("{:x}", u32::from(name.chars().nth(1).unwrap())))
            .collect();
        assert!(wrong.is_empty(), "{} of {}: {}", wrong.len(), names.len(), wrong.join(" "));
    }
}
