//! Names without regard to case, as directories with the casefold flag compare them.
//!
//! The kernel compares names after Unicode normalisation (NFD), with ignorable code points left out and full
//! case folding applied (fs/unicode, Unicode 12.1).

use unicode_normalization::UnicodeNormalization;

/// What two names must share to be the same name; `None` for names that are no UTF-8, which differ unless
/// they are equal.
pub fn fold(name: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(name).ok()?;
    let kept = |c: &char| !is_ignorable(*c);
    let folded: String = name.nfd().filter(kept).flat_map(fold_char).collect();
    // Folding may give characters that decompose again.
    Some(folded.nfd().filter(kept).collect())
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
    use super::*;

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
}
