//! Modes of files as chmod(1) takes them: octal, or changes such as `u+x,go=r`.

use std::str::FromStr;

use crate::Error;

/// Change of permission bits: new ones, or what becomes of the old ones.
///
/// ```
/// use casemate::ext4::ModeChange;
///
/// let change: ModeChange = "u+x,go=r".parse()?;
/// assert_eq!(change.apply(0o600, false), 0o744);
/// assert_eq!("755".parse::<ModeChange>()?.apply(0o600, false), 0o755);
/// # Ok::<(), casemate::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModeChange(Change);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    Octal {
        bits: u16,
        /// Whether five digits or more say what becomes of a directory's set-user-ID and set-group-ID.
        is_whole: bool,
    },
    /// Whose bits, what to do, and which of `rwxXst`.
    Changes(Vec<(u16, char, String)>),
}

impl ModeChange {
    /// The new permission bits of a file, or a directory, that has had these.
    pub fn apply(&self, old: u16, is_dir: bool) -> u16 {
        let changes = match &self.0 {
            // As GNU does: what is not said of a directory stays.
            Change::Octal { bits, is_whole } => {
                return bits | if is_dir && !is_whole { old & 0o6000 } else { 0 };
            }
            Change::Changes(changes) => changes,
        };
        changes.iter().fold(old, |mode, (who, action, letters)| {
            let bits = letters.chars().fold(0, |bits, letter| {
                bits | match letter {
                    'r' => 0o444 & who,
                    'w' => 0o222 & who,
                    'x' => 0o111 & who,
                    'X' if is_dir || mode & 0o111 != 0 => 0o111 & who,
                    's' => (0o4000 * u16::from(who & 0o700 != 0)) | (0o2000 * u16::from(who & 0o070 != 0)),
                    't' => 0o1000,
                    _ => 0,
                }
            });
            match action {
                '+' => mode | bits,
                '-' => mode & !bits,
                _ => mode & !who | bits,
            }
        })
    }
}

impl FromStr for ModeChange {
    type Err = Error;

    /// Reads octal bits, or changes with commas between them.
    fn from_str(text: &str) -> Result<ModeChange, Error> {
        parse(text).map(ModeChange).map_err(Error::argument)
    }
}

fn parse(text: &str) -> Result<Change, String> {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        let is_whole = text.len() > 4;
        let bits = u16::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
        let bits = bits.ok_or_else(|| format!("{text}: not an octal mode"))?;
        return Ok(Change::Octal { bits, is_whole });
    }
    let bad = || format!("{text}: neither an octal mode nor changes such as u+x,go=r");
    let mut changes = Vec::new();
    for clause in text.split(',') {
        let at = clause.find(['+', '-', '=']).ok_or_else(bad)?;
        let mut who = 0;
        for letter in clause[..at].chars() {
            who |= match letter {
                'u' => 0o700,
                'g' => 0o070,
                'o' => 0o007,
                'a' => 0o777,
                _ => return Err(bad()),
            };
        }
        let who = if who == 0 { 0o777 } else { who };
        let mut rest = &clause[at..];
        while let Some(action) = rest.chars().next() {
            let end = rest[1..].find(['+', '-', '=']).map_or(rest.len(), |end| end + 1);
            let letters = &rest[1..end];
            if !letters.chars().all(|letter| "rwxXst".contains(letter)) {
                return Err(bad());
            }
            changes.push((who, action, letters.to_owned()));
            rest = &rest[end..];
        }
    }
    Ok(Change::Changes(changes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes() {
        let cases = [
            ("4755", 0o644, false, 0o4755),
            ("755", 0o6700, false, 0o755),
            ("755", 0o7700, true, 0o6755),
            ("00755", 0o6700, true, 0o755),
            ("u+x", 0o644, false, 0o744),
            ("go-rwx", 0o755, false, 0o700),
            ("a=r,u+w", 0o777, false, 0o644),
            ("u+s,g-s", 0o2755, false, 0o4755),
            ("+X", 0o644, true, 0o755),
            ("+X", 0o644, false, 0o644),
            ("u=rw+x-w", 0, false, 0o500),
            ("+t", 0o777, true, 0o1777),
        ];
        for (text, old, is_dir, new) in cases {
            assert_eq!(text.parse::<ModeChange>().unwrap().apply(old, is_dir), new, "{text}");
        }
        for text in ["", "8", "77777", "u", "u+q", "z+x"] {
            assert!(text.parse::<ModeChange>().is_err(), "{text}");
        }
    }
}
