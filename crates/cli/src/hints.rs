//! Names of commands that people try first, because other tools have them, and what does that here.

const HINTS: &[(&str, &str)] = &[
    ("addkey", "casemate luks add-key"),
    ("append", "casemate ext4 put"),
    (
        "check",
        "casemate ext4 check, casemate luks check, casemate fsverity check, casemate verity verify, casemate integrity verify",
    ),
    ("close", "casemate umount, or nothing: no device is open in the kernel"),
    ("copy", "casemate ext4 put to copy into an image, casemate ext4 extract to copy out"),
    ("cp", "casemate ext4 put to copy into an image, casemate ext4 extract to copy out"),
    ("create", "casemate verity table or casemate crypt table, which print the line for dmsetup create"),
    ("debugfs", "casemate ext4 ls, casemate ext4 stat, casemate ext4 extract"),
    ("decrypt", "casemate luks extract, or without a header casemate crypt decrypt"),
    ("df", "casemate ext4 df"),
    ("du", "casemate ext4 du"),
    ("dump", "casemate info, casemate luks dump, casemate verity dump, casemate integrity dump"),
    ("dump2fs", "casemate ext4 info"),
    ("dumpe2fs", "casemate ext4 info"),
    ("e2fsck", "casemate ext4 check, casemate ext4 check --repair"),
    ("encrypt", "casemate luks format --from, or without a header casemate crypt encrypt"),
    ("extract", "casemate ext4 extract for files, casemate luks extract for the data of a volume"),
    ("find", "casemate ext4 find"),
    ("fsck", "casemate ext4 check, casemate ext4 check --repair"),
    ("get", "casemate ext4 extract, or casemate ext4 cat for one file"),
    ("getfattr", "casemate ext4 getfattr"),
    ("ls", "casemate ext4 ls"),
    ("lsattr", "casemate ext4 stat, which shows flags"),
    ("luksAddKey", "casemate luks add-key"),
    ("luksChangeKey", "casemate luks change-key"),
    ("luksDump", "casemate luks dump"),
    ("luksErase", "casemate luks erase"),
    ("luksFormat", "casemate luks format"),
    ("luksHeaderBackup", "casemate luks header-backup"),
    ("luksHeaderRestore", "casemate luks header-restore"),
    ("luksOpen", "casemate mount --luks or casemate serve --luks, which need no kernel driver"),
    ("mke2fs", "casemate ext4 build"),
    ("mkfs", "casemate ext4 build"),
    ("mount", "casemate mount"),
    (
        "open",
        "casemate mount --luks and casemate serve --luks, also with --crypt or --dm-verity; casemate verity table or casemate crypt table \
         for the line of dmsetup create",
    ),
    ("probe", "casemate info"),
    ("nbd", "casemate serve"),
    ("readlink", "casemate ext4 readlink"),
    (
        "recover",
        "casemate info to see the damage, casemate ext4 check --repair, casemate luks repair, casemate ext4 recover",
    ),
    ("repair", "casemate ext4 check --repair, casemate luks repair, casemate verity repair"),
    ("ddrescue", "casemate rescue, which reads and writes maps of ddrescue"),
    ("scan", "casemate info --scan"),
    ("testdisk", "casemate info --scan"),
    ("undelete", "casemate ext4 undelete; casemate ext4 ls --deleted -l lists deleted files"),
    ("umount", "casemate umount"),
    ("unlink", "casemate ext4 rm"),
    (
        "verify",
        "casemate verity verify, casemate integrity verify, casemate fsverity check, casemate ext4 check --verity",
    ),
    ("write", "casemate ext4 put"),
];

/// Hint for a command that does not exist.
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
