//! Names of commands that people try first, because other tools have them, and what does that here.

const HINTS: &[(&str, &str)] = &[
    ("append", "casemate ext4 put"),
    ("close", "nothing is opened in the kernel: casemate serve ends with its process"),
    ("copy", "casemate ext4 put copies into an image, casemate ext4 extract out of it"),
    ("cp", "casemate ext4 put copies into an image, casemate ext4 extract out of it"),
    ("create", "casemate verity table and casemate crypt table print what dmsetup create takes"),
    ("df", "casemate ext4 df"),
    ("du", "casemate ext4 du"),
    ("dump2fs", "casemate ext4 info"),
    ("dumpe2fs", "casemate ext4 info"),
    ("e2fsck", "casemate ext4 check, and with --repair mends what needs no guesses"),
    ("find", "casemate ext4 find"),
    ("fsck", "casemate ext4 check, and with --repair mends what needs no guesses"),
    ("get", "casemate ext4 extract copies out of an image, casemate ext4 cat prints a file"),
    ("getfattr", "casemate ext4 getfattr"),
    ("lsattr", "casemate ext4 stat shows flags"),
    ("mount", "casemate mount shows an image's files in a folder"),
    (
        "open",
        "casemate verity table and casemate crypt table print what dmsetup create takes; casemate serve needs no kernel",
    ),
    ("probe", "casemate info says what an image holds"),
    ("readlink", "casemate ext4 readlink"),
    ("umount", "casemate umount takes a folder of casemate mount back"),
    ("unlink", "casemate ext4 rm"),
    ("write", "casemate ext4 put"),
];

/// What to say of a command that is not there.
pub fn of(word: &str) -> Option<&'static str> {
    HINTS.iter().find(|(name, _)| *name == word).map(|(_, hint)| *hint)
}

// Some are commands of Linux.
#[cfg(all(test, target_os = "linux"))]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    #[test]
    fn hints_name_commands() {
        for (word, hint) in HINTS {
            for named in hint.split("casemate ").skip(1) {
                let mut command = &Cli::command();
                let mut words = named.split([' ', ';', ':', ',']);
                let first = words.next().unwrap();
                command = command.find_subcommand(first).unwrap_or_else(|| panic!("{word}: {hint}"));
                if command.has_subcommands() {
                    let second = words.next().unwrap();
                    assert!(command.find_subcommand(second).is_some(), "{word}: {hint}");
                }
            }
        }
    }
}
