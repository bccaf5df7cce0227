//! `casemate ext4 chmod`.

use std::ffi::OsString;

use casemate::Error;
use casemate::blockdev::os::OsStrExt;
use casemate::ext4::FileType;

use super::change::{ChangeArgs, each};
use crate::answer::Answer;
use crate::context::Context;

/// Change permission bits of files in an image.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  casemate ext4 chmod root.img 4755 /bin/su\n  \
    casemate ext4 chmod root.img u+x,go-w /etc/rc.local")]
pub struct Args {
    #[command(flatten)]
    change: ChangeArgs,
    /// Octal bits, or changes such as u+x,go=r. A directory's set-user-ID and set-group-ID stay if octal bits have fewer
    /// than five digits.
    #[arg(value_name = "MODE", allow_hyphen_values = true, value_parser = parse_mode)]
    mode: Mode,
    /// The files; symbolic links are followed.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// Change directories with their contents; skip links in them.
    #[arg(short = 'R', long)]
    recursive: bool,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        self.change.change(context, |writer| {
            for top in &self.paths {
                let changed = each(writer, top.as_bytes(), self.recursive, true, |writer, path, inode| {
                    // Links below have no permissions, and what they lead to may lie elsewhere.
                    if inode.kind() == FileType::Symlink {
                        return Ok(());
                    }
                    writer.set_mode(path, self.mode.apply(inode.mode() & 0o7777, inode.is_dir()))
                });
                self.change.place(changed)?;
            }
            Ok(())
        })
    }
}

/// New permission bits, or what to do with the old ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    Octal {
        bits: u16,
        /// Whether five digits or more say what becomes of a directory's set-user-ID and set-group-ID.
        is_whole: bool,
    },
    /// Whose bits, what to do, and which of `rwxXst`.
    Changes(Vec<(u16, char, String)>),
}

impl Mode {
    /// The new bits.
    pub fn apply(&self, old: u16, is_dir: bool) -> u16 {
        let changes = match self {
            // As GNU does: what is not said of a directory stays.
            Mode::Octal { bits, is_whole } => {
                return bits | if is_dir && !is_whole { old & 0o6000 } else { 0 };
            }
            Mode::Changes(changes) => changes,
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

/// Octal permission bits.
pub fn parse_octal(text: &str) -> Result<u16, String> {
    let mode = u16::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
    mode.ok_or_else(|| format!("{text}: not an octal mode"))
}

/// Permission bits: octal, or those that changes such as u+s make of none.
pub fn mode_bits(text: &str) -> Result<u16, String> {
    Ok(parse_mode(text)?.apply(0, false))
}

/// Octal permission bits, or changes.
pub fn parse_mode(text: &str) -> Result<Mode, String> {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        let is_whole = text.len() > 4;
        return parse_octal(text).map(|bits| Mode::Octal { bits, is_whole });
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
    Ok(Mode::Changes(changes))
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
            assert_eq!(parse_mode(text).unwrap().apply(old, is_dir), new, "{text}");
        }
        for text in ["", "8", "77777", "u", "u+q", "z+x"] {
            assert!(parse_mode(text).is_err(), "{text}");
        }
    }
}
