//! Names of commands that people try first, because other tools have them, and what does that here.

const HINTS: &[(&str, &str)] = &[
    ("addkey", "casemate luks add-key"),
    ("append", "casemate ext4 put"),
    (
        "check",
        "casemate ext4 check, casemate luks check, casemate fsverity check, casemate verity verify, casemate integrity verify",
    ),
    ("close", "nothing is opened in the kernel: casemate serve ends with its process"),
    ("copy", "casemate ext4 put copies into an image, casemate ext4 extract out of it"),
    ("cp", "casemate ext4 put copies into an image, casemate ext4 extract out of it"),
    ("create", "casemate verity table and casemate crypt table print what dmsetup create takes"),
    ("debugfs", "casemate ext4 ls, casemate ext4 stat and casemate ext4 extract read an image"),
    ("decrypt", "casemate luks extract, or casemate crypt decrypt without a header"),
    ("df", "casemate ext4 df"),
    ("du", "casemate ext4 du"),
    ("dump", "casemate info, casemate luks dump, casemate verity dump, casemate integrity dump"),
    ("dump2fs", "casemate ext4 info"),
    ("dumpe2fs", "casemate ext4 info"),
    ("e2fsck", "casemate ext4 check, and with --repair mends what needs no guesses"),
    ("encrypt", "casemate luks format --from, or casemate crypt encrypt without a header"),
    ("extract", "casemate ext4 extract for files, casemate luks extract for what a volume holds"),
    ("find", "casemate ext4 find"),
    ("fsck", "casemate ext4 check, and with --repair mends what needs no guesses"),
    ("get", "casemate ext4 extract copies out of an image, casemate ext4 cat prints a file"),
    ("getfattr", "casemate ext4 getfattr"),
    ("ls", "casemate ext4 ls"),
    ("lsattr", "casemate ext4 stat shows flags"),
    ("luksAddKey", "casemate luks add-key"),
    ("luksChangeKey", "casemate luks change-key"),
    ("luksDump", "casemate luks dump"),
    ("luksErase", "casemate luks erase"),
    ("luksFormat", "casemate luks format"),
    ("luksHeaderBackup", "casemate luks header-backup"),
    ("luksHeaderRestore", "casemate luks header-restore"),
    ("luksOpen", "casemate mount --luks and casemate serve --luks read a volume without the kernel"),
    ("mke2fs", "casemate ext4 build"),
    ("mkfs", "casemate ext4 build"),
    ("mount", "casemate mount shows an image's files in a folder"),
    (
        "open",
        "casemate mount --luks and casemate serve --luks read a LUKS volume without the kernel, as they read through \
         --crypt and --dm-verity; casemate verity table and casemate crypt table print what dmsetup create takes",
    ),
    ("probe", "casemate info says what an image holds"),
    ("nbd", "casemate serve"),
    ("readlink", "casemate ext4 readlink"),
    (
        "recover",
        "casemate info says what is there; casemate ext4 check --repair, casemate luks repair, casemate ext4 recover",
    ),
    ("repair", "casemate ext4 check --repair, casemate luks repair, casemate verity repair"),
    ("scan", "casemate info says what an image holds"),
    (
        "undelete",
        "casemate ext4 ls --deleted shows names of files that were deleted; their contents are not brought back",
    ),
    ("umount", "casemate umount takes a folder of casemate mount back"),
    ("unlink", "casemate ext4 rm"),
    (
        "verify",
        "casemate verity verify, casemate integrity verify, casemate fsverity check, casemate ext4 check --verity",
    ),
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
