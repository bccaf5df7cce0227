//! Modes of files as chmod(1) takes them: octal, or changes such as `u+x,go=r`.

use std::str::FromStr;

use crate::Error;

/// Change of permission bits: new ones, or what becomes of the old ones, as GNU's chmod(1) makes it.
///
/// ```
/// use casemate_trees::ModeChange;
///
/// let change: ModeChange = "u+x,go=r".parse()?;
/// assert_eq!(change.apply(0o600, false), 0o744);
/// assert_eq!("755".parse::<ModeChange>()?.apply(0o600, false), 0o755);
/// # Ok::<(), casemate_trees::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModeChange(Vec<Step>);

/// One change of many. Sources: coreutils' documentation, "Changing Special Mode Bits" and "Directory Setuid and Setgid", and
/// chmod(1) itself, for facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    action: Action,
    /// The bits that it is about; if `None`, all that the umask does not take.
    affected: Option<u16>,
    value: Value,
    /// The bits that were said in so many words: a directory keeps its set-user-ID and set-group-ID else.
    said: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Add,
    Take,
    Set,
}

/// Bits of a change, before it is known whose they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Bits(u16),
    /// These, and the execution bits of directories and of files that have one.
    Executable(u16),
    /// Bits that the owner, the group or others have, of which this is the mask.
    Copy(u16),
}

const ALL: u16 = 0o7777;
const SET_IDS: u16 = 0o6000;

impl ModeChange {
    /// The new permission bits of a file, or a directory, that has had these. No umask takes bits from changes that are for
    /// nobody in particular, such as `+w`.
    pub fn apply(&self, old: u16, is_dir: bool) -> u16 {
        self.apply_with_umask(old, is_dir, 0)
    }

    /// The new permission bits, as [`ModeChange::apply`] has them. A change that is for nobody in particular leaves the bits of the
    /// umask alone.
    pub fn apply_with_umask(&self, old: u16, is_dir: bool, umask: u16) -> u16 {
        self.0.iter().fold(old & ALL, |mode, step| step.apply(mode, is_dir, umask))
    }
}

impl Step {
    fn apply(&self, mode: u16, is_dir: bool, umask: u16) -> u16 {
        let kept = if is_dir { SET_IDS & !self.said } else { 0 };
        let bits = match self.value {
            Value::Bits(bits) => bits,
            Value::Executable(bits) if is_dir || mode & 0o111 != 0 => bits | 0o111,
            Value::Executable(bits) => bits,
            Value::Copy(of) => {
                let found = mode & of;
                let each = |bits: u16| if found & bits == 0 { 0 } else { bits };
                each(0o444) | each(0o222) | each(0o111)
            }
        };
        let bits = bits & self.affected.unwrap_or(ALL & !umask) & !kept;
        match self.action {
            Action::Add => mode | bits,
            Action::Take => mode & !bits,
            Action::Set => mode & (self.affected.map_or(0, |affected| !affected) | kept) | bits,
        }
    }
}

impl FromStr for ModeChange {
    type Err = Error;

    /// Reads octal bits, or changes with commas between them.
    fn from_str(text: &str) -> Result<ModeChange, Error> {
        parse(text).map(ModeChange).map_err(Error::argument)
    }
}

fn parse(text: &str) -> Result<Vec<Step>, String> {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        let bits = octal(text).ok_or_else(|| format!("{text}: not an octal mode"))?;
        // Five digits or more say what becomes of a directory's set-user-ID and set-group-ID.
        let said = if text.len() > 4 { ALL } else { bits & SET_IDS | 0o1777 };
        return Ok(vec![Step { action: Action::Set, affected: Some(ALL), value: Value::Bits(bits), said }]);
    }
    let clauses = text.split(',').map(clause).collect::<Option<Vec<_>>>();
    let bad = || format!("{text}: neither an octal mode nor changes such as u+x,go=r");
    Ok(clauses.ok_or_else(bad)?.concat())
}

/// The changes between two commas.
fn clause(text: &str) -> Option<Vec<Step>> {
    const ACTIONS: [char; 3] = ['+', '-', '='];
    let mut affected = 0;
    let (who, mut rest) = text.split_at(text.find(ACTIONS)?);
    for letter in who.chars() {
        affected |= match letter {
            'u' => 0o4700,
            'g' => 0o2070,
            'o' => 0o1007,
            'a' => ALL,
            _ => return None,
        };
    }
    let affected = (affected != 0).then_some(affected);
    let mut steps = Vec::new();
    while let Some(action) = rest.chars().next() {
        let action = match action {
            '+' => Action::Add,
            '-' => Action::Take,
            _ => Action::Set,
        };
        let (value, after) = rest[1..].split_at(rest[1..].find(ACTIONS).unwrap_or(rest.len() - 1));
        rest = after;
        steps.push(match value {
            "u" | "g" | "o" => {
                let of = match value {
                    "u" => 0o700,
                    "g" => 0o070,
                    _ => 0o007,
                };
                Step { action, affected, value: Value::Copy(of), said: affected.unwrap_or(ALL) & of }
            }
            // Octal bits are for everybody, and end the clause.
            _ if value.starts_with(|c: char| c.is_ascii_digit()) => {
                let bits = octal(value).filter(|_| affected.is_none() && rest.is_empty())?;
                Step { action, affected: Some(ALL), value: Value::Bits(bits), said: ALL }
            }
            _ => {
                let (mut bits, mut is_executable) = (0, false);
                for letter in value.chars() {
                    bits |= match letter {
                        'r' => 0o444,
                        'w' => 0o222,
                        'x' => 0o111,
                        's' => SET_IDS,
                        't' => 0o1000,
                        'X' => {
                            is_executable = true;
                            0
                        }
                        _ => return None,
                    };
                }
                let value = if is_executable { Value::Executable(bits) } else { Value::Bits(bits) };
                Step { action, affected, value, said: affected.unwrap_or(ALL) & bits }
            }
        });
    }
    Some(steps)
}

fn octal(text: &str) -> Option<u16> {
    let bits = u32::from_str_radix(text, 8).ok().filter(|bits| *bits <= ALL.into())?;
    text.bytes().all(|digit| digit.is_ascii_digit()).then(|| u16::try_from(bits).ok())?
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
            ("a=rx", 0o7755, false, 0o555),
            ("a=rx", 0o7755, true, 0o6555),
            ("u=,g=", 0o6755, false, 0o005),
            ("=r", 0o7755, false, 0o444),
            ("u+t,o+s", 0o644, false, 0o644),
            ("ug=o", 0o6604, false, 0o444),
            ("=4711", 0o2644, true, 0o4711),
            ("+6000", 0o755, true, 0o6755),
        ];
        for (text, old, is_dir, new) in cases {
            assert_eq!(text.parse::<ModeChange>().unwrap().apply(old, is_dir), new, "{text}");
        }
        for text in ["", "8", "77777", "u", "u+q", "z+x", "u+7", "+7+x", "+78", "u+ux", "u+x,", "+1x", "+ü"]
        {
            assert!(text.parse::<ModeChange>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_umask_is_for_changes_for_nobody_in_particular() {
        let apply = |text: &str| text.parse::<ModeChange>().unwrap().apply_with_umask(0o600, false, 0o022);
        assert_eq!(["+w", "a+w", "=rw", "+222", "g=u"].map(apply), [0o600, 0o622, 0o644, 0o622, 0o660]);
    }

    /// Compares random changes of random modes with what chmod(1) makes of them.
    #[test]
    #[cfg(target_os = "linux")]
    fn changes_are_those_of_chmod() {
        use std::fs::{Permissions, metadata, set_permissions};
        use std::os::unix::fs::PermissionsExt;
        use std::process::Command;

        let version = Command::new("chmod").arg("--version").output();
        if !version.is_ok_and(|out| String::from_utf8_lossy(&out.stdout).contains("coreutils")) {
            return casemate_testkit::skip("this system's chmod is not that of coreutils");
        }
        let folder = tempfile::tempdir().unwrap();
        let (file, dir) = (folder.path().join("file"), folder.path().join("dir"));
        std::fs::write(&file, "").unwrap();
        std::fs::create_dir(&dir).unwrap();
        let mut rng = casemate_testkit::Rng::new(1);
        let mut below = |end: u64| rng.below(end);
        let (mut taken, mut refused) = (0, 0);
        for _ in 0..1500 {
            let (old, umask) =
                (u16::try_from(below(0o10000)).unwrap(), [0, 0o022, 0o077, 0o027][below(4) as usize]);
            let is_dir = below(2) == 1;
            let mut pick = |from: &str| from.chars().nth(below(from.len() as u64) as usize).unwrap();
            let mut text = String::new();
            if pick("01234567") == '0' {
                (0..1 + pick("01234") as usize % 5).for_each(|_| text.push(pick("01234567")));
            } else {
                for clause in 0..1 + pick("012") as usize % 3 {
                    text.push_str(if clause > 0 { "," } else { "" });
                    (0..pick("0112") as usize % 3).for_each(|_| text.push(pick("ugoa")));
                    for _ in 0..1 + pick("01") as usize % 2 {
                        text.push(pick("+-=="));
                        match pick("abcd") {
                            'a' => text.push(pick("ugo")),
                            'b' if pick("ab") == 'a' => {
                                (0..1 + pick("0123") as usize % 4).for_each(|_| text.push(pick("01234567")));
                            }
                            _ => (0..pick("0123") as usize % 4).for_each(|_| text.push(pick("rwxXst"))),
                        }
                    }
                }
            }
            let path = if is_dir { &dir } else { &file };
            set_permissions(path, Permissions::from_mode(old.into())).unwrap();
            let line = format!("umask {umask:o}; exec chmod -- '{text}' \"$0\"");
            let ran = Command::new("sh").args(["-c", &line]).arg(path).output().unwrap();
            let new = metadata(path).unwrap().permissions().mode() & 0o7777;
            let told = String::from_utf8_lossy(&ran.stderr);
            match text.parse::<ModeChange>() {
                Ok(change) => {
                    assert!(!told.contains("invalid mode"), "{text}: taken, and chmod says {told}");
                    let ours = change.apply_with_umask(old, is_dir, umask);
                    assert_eq!(
                        u32::from(ours),
                        new,
                        "{text} of {old:o}, umask {umask:o}, directory: {is_dir}"
                    );
                    taken += 1;
                }
                Err(_) => {
                    assert!(told.contains("invalid mode"), "{text}: refused, and chmod takes it");
                    refused += 1;
                }
            }
        }
        assert!(taken > 500 && refused > 10, "{taken} {refused}");
    }
}
