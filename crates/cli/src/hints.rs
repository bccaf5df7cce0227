//! Names of commands that people try first, because other tools have them, and what does that here; and which similar names
//! are proposed for a slip of the finger.

use std::ffi::OsString;
use std::path::Path;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

const HINTS: &[(&str, &str)] = &[
    ("addkey", "casemate luks add-key"),
    ("append", "casemate ext4 put"),
    ("backup", "casemate luks header-backup, casemate fscrypt backup"),
    ("backup-header", "casemate luks header-backup"),
    (
        "check",
        "casemate ext4 check, casemate luks check, casemate fsverity check, casemate verity verify, casemate integrity verify",
    ),
    ("close", "casemate umount, or nothing: no device is open in the kernel"),
    (
        "continue",
        "casemate luks reencrypt --resume-only, casemate crypt encrypt --resume, casemate ext4 recover",
    ),
    ("copy", "casemate ext4 put to copy into an image, casemate ext4 extract to copy out"),
    ("cp", "casemate ext4 put to copy into an image, casemate ext4 extract to copy out"),
    ("create", "casemate verity table or casemate crypt table, which print the line for dmsetup create"),
    ("cryptsetup", "casemate luks --help, casemate crypt --help"),
    ("ddrescue", "casemate rescue, which reads and writes maps of ddrescue"),
    ("debugfs", "casemate ext4 ls, casemate ext4 stat, casemate ext4 extract"),
    ("decrypt", "casemate luks extract, or without a header casemate crypt decrypt"),
    ("delete", "casemate ext4 rm for files, casemate luks remove-key for a passphrase"),
    ("df", "casemate ext4 df"),
    ("diff", "casemate ext4 diff"),
    ("diffoscope", "casemate ext4 diff"),
    ("du", "casemate ext4 du"),
    ("dump", "casemate info, casemate luks dump, casemate verity dump, casemate integrity dump"),
    ("dump2fs", "casemate ext4 info"),
    ("dumpe2fs", "casemate ext4 info"),
    ("e2fsck", "casemate ext4 check, casemate ext4 check --repair"),
    ("e2label", "casemate ext4 label"),
    ("encrypt", "casemate luks format --from, or without a header casemate crypt encrypt"),
    ("extract", "casemate ext4 extract for files, casemate luks extract for the data of a volume"),
    ("find", "casemate ext4 find"),
    ("fsck", "casemate ext4 check, casemate ext4 check --repair"),
    ("fsck.ext2", "casemate ext4 check, casemate ext4 check --repair"),
    ("fsck.ext3", "casemate ext4 check, casemate ext4 check --repair"),
    ("fsck.ext4", "casemate ext4 check, casemate ext4 check --repair"),
    ("get", "casemate ext4 extract, or casemate ext4 cat for one file"),
    ("getfattr", "casemate ext4 getfattr"),
    ("grow", "casemate ext4 resize"),
    ("info", "casemate info"),
    ("integritysetup", "casemate integrity --help"),
    ("isLuks", "casemate luks is-luks"),
    ("label", "casemate ext4 label"),
    ("list", "casemate info for what an image holds, casemate ext4 ls for its files"),
    (
        "list-keys",
        "casemate luks dump for the key slots of a volume, casemate key status for a mounted folder",
    ),
    ("list-slots", "casemate luks dump"),
    ("lock", "casemate umount, or nothing: no device is open in the kernel"),
    ("ls", "casemate ext4 ls"),
    ("lsattr", "casemate ext4 stat, which shows flags"),
    ("luksAddKey", "casemate luks add-key"),
    ("luksChangeKey", "casemate luks change-key"),
    ("luksConvertKey", "casemate luks convert-key"),
    ("luksDump", "casemate luks dump"),
    ("luksErase", "casemate luks erase"),
    ("luksFormat", "casemate luks format"),
    ("luksHeaderBackup", "casemate luks header-backup"),
    ("luksHeaderRestore", "casemate luks header-restore"),
    ("luksKillSlot", "casemate luks kill-slot"),
    ("luksOpen", "casemate mount --luks or casemate serve --luks, which need no kernel driver"),
    ("luksRemoveKey", "casemate luks remove-key"),
    (
        "luksResume",
        "casemate luks reencrypt --resume-only for a reencryption; no device is suspended in the kernel",
    ),
    ("luksSuspend", "casemate umount, or nothing: no device is open in the kernel"),
    ("luksUUID", "casemate luks uuid"),
    (
        "manifest",
        "casemate fsverity digest --recursive for the files of a folder, casemate ext4 build --manifest for an image",
    ),
    ("mke2fs", "casemate ext4 build"),
    ("mkfs", "casemate ext4 build"),
    ("mkfs.ext2", "casemate ext4 build"),
    ("mkfs.ext3", "casemate ext4 build"),
    ("mkfs.ext4", "casemate ext4 build"),
    ("mount", "casemate mount"),
    ("move", "casemate ext4 mv"),
    ("nbd", "casemate serve"),
    (
        "open",
        "casemate mount --luks and casemate serve --luks, also with --crypt or --dm-verity; casemate verity table or casemate crypt table \
         for the line of dmsetup create",
    ),
    ("passwd", "casemate luks change-key"),
    ("probe", "casemate info"),
    ("readlink", "casemate ext4 readlink"),
    (
        "recover",
        "casemate info to see the damage, casemate ext4 check --repair, casemate luks repair, casemate ext4 recover",
    ),
    ("reencrypt", "casemate luks reencrypt"),
    ("remove", "casemate ext4 rm for files, casemate luks remove-key for a passphrase"),
    ("rename", "casemate ext4 mv"),
    ("repair", "casemate ext4 check --repair, casemate luks repair, casemate verity repair"),
    ("resize", "casemate ext4 resize, casemate ext4 minimize"),
    ("resize2fs", "casemate ext4 resize, casemate ext4 minimize"),
    ("restore", "casemate luks header-restore, casemate fscrypt restore"),
    ("restore-header", "casemate luks header-restore"),
    (
        "resume",
        "casemate luks reencrypt --resume-only, casemate crypt encrypt --resume, casemate ext4 recover",
    ),
    ("scan", "casemate info --scan"),
    ("shrink", "casemate ext4 minimize, casemate ext4 resize"),
    ("status", "casemate info, casemate luks dump, casemate verity dump; no device is open in the kernel"),
    ("stop", "casemate umount for a mounted folder; SIGTERM ends casemate serve: kill PID"),
    ("testdisk", "casemate info --scan"),
    ("tune2fs", "casemate ext4 tune"),
    ("umount", "casemate umount"),
    ("undelete", "casemate ext4 undelete; casemate ext4 ls --deleted -l lists deleted files"),
    ("unlink", "casemate ext4 rm"),
    ("unlock", "casemate mount --luks and casemate serve --luks, which need no kernel driver"),
    (
        "verify",
        "casemate verity verify, casemate integrity verify, casemate fsverity check, casemate ext4 check --verity",
    ),
    ("veritysetup", "casemate verity --help"),
    ("write", "casemate ext4 put"),
];

/// Commands that destroy what an image holds, or a way to open it. None is proposed for another word: who means one types
/// its name.
const DESTROYERS: &[&str] = &[
    "convert",
    "erase",
    "format",
    "header-restore",
    "kill-slot",
    "remove-key",
    "repair",
    "restore",
    "rm",
    "truncate",
];

/// Leaves of an error's proposals those that a slip of the finger explains, and no command that destroys something.
pub fn keep_slips(error: &mut clap::Error) {
    for (typed, proposed) in [
        (ContextKind::InvalidSubcommand, ContextKind::SuggestedSubcommand),
        (ContextKind::InvalidArg, ContextKind::SuggestedArg),
        (ContextKind::InvalidValue, ContextKind::SuggestedValue),
    ] {
        let Some(ContextValue::String(typed)) = error.get(typed).cloned() else { continue };
        let is_command = proposed == ContextKind::SuggestedSubcommand;
        let fits = |name: &str| match is_command {
            true => (is_slip(&typed, name) || name.starts_with(&typed)) && !DESTROYERS.contains(&name),
            false => is_slip(&typed, name),
        };
        match error.remove(proposed) {
            Some(ContextValue::String(name)) if fits(&name) => {
                error.insert(proposed, ContextValue::String(name));
            }
            Some(ContextValue::Strings(names)) => {
                let names: Vec<String> = names.into_iter().filter(|name| fits(name)).collect();
                if !names.is_empty() {
                    error.insert(proposed, ContextValue::Strings(names));
                }
            }
            // The usage was made as if the proposal had been given.
            Some(_) => _ = error.remove(ContextKind::Usage),
            None => {}
        }
    }
    // An option that is not known is seldom meant as a value.
    if let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidArg)
        && (typed.starts_with("--") || typed.len() == 2)
        && let Some(ContextValue::StyledStrs(tips)) = error.get(ContextKind::Suggested)
    {
        let tips: Vec<StyledStr> =
            tips.iter().filter(|tip| !tip.to_string().contains("as a value, use")).cloned().collect();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
    // Where nothing is proposed there is no empty line for it.
    if matches!(error.get(ContextKind::Suggested), Some(ContextValue::StyledStrs(tips)) if tips.is_empty()) {
        error.remove(ContextKind::Suggested);
    }
}

/// Commands that people give one word too many, as other tools take it, and the option that takes it here.
const STRAY: &[(&[&str], &str)] = &[
    (&["ext4", "build"], "--from"),
    (&["luks", "add-key"], "--new-key-file"),
    (&["luks", "change-key"], "--new-key-file"),
];

/// Options that people give, as other tools have them or as they would be named, and what does that here.
const OPTIONS: &[(&[&str], &[&str], &str)] = &[
    (&["ext4", "resize"], &["--size"], "the size is an argument: casemate ext4 resize IMAGE SIZE"),
    (
        &["ext4", "truncate"],
        &["-s", "--size"],
        "the size is an argument: casemate ext4 truncate IMAGE PATH SIZE",
    ),
    (
        &["ext4", "check"],
        &["--manifest", "--digests", "--verity-from-manifest"],
        "'casemate ext4 digest --tree IMAGE | diff MANIFEST -' compares the files of an image with a list of fs-verity digests",
    ),
    (&["mount"], &["--read-write", "--rw", "--writable"], "'--write' allows writes"),
    (&["mount"], &["--unmount", "--umount", "-u"], "'casemate umount FOLDER' unmounts a folder"),
    (
        &["serve"],
        &["--stop", "--kill"],
        "SIGTERM ends a server: kill PID, or kill $(cat FILE) of '--pid-file FILE'",
    ),
];

/// Adds to an error about a word too many which option takes such a word, and to one about words that are missing what they may be.
pub fn name_stray(error: &mut clap::Error, args: &[OsString]) {
    let is_called = |words: &[&str]| {
        args.iter().skip(1).zip(words).filter(|(arg, word)| arg == word).count() == words.len()
    };
    if error.kind() == ErrorKind::MissingRequiredArgument && is_called(&["serve"]) {
        let tip = "'--socket PATH' serves on a Unix socket, '--exec COMMAND' while a command runs";
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg).cloned() else { return };
    if error.kind() == ErrorKind::UnknownArgument
        && !word.starts_with('-')
        && let Some((_, option)) = STRAY.iter().find(|(words, _)| is_called(words))
    {
        // mke2fs and tar have it either way round.
        let first = args.iter().skip(3).find(|arg| !arg.as_encoded_bytes().starts_with(b"-"));
        let swapped = first.filter(|first| {
            is_called(&["ext4", "build"]) && Path::new(first).is_dir() && !Path::new(&word).is_dir()
        });
        let tip = StyledStr::from(match swapped {
            Some(folder) => format!("the image comes first: '{word} {option} {}'", folder.display()),
            None => format!("'{option} {word}' takes it"),
        });
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
    if error.kind() == ErrorKind::UnknownArgument
        && let Some((.., tip)) =
            OPTIONS.iter().find(|(words, options, _)| options.contains(&&*word) && is_called(words))
    {
        // Nor is a name proposed that is merely like it.
        error.remove(ContextKind::SuggestedArg);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(*tip)]));
    }
}

/// Whether a word is a name with a few letters changed, or whole words of its beginning.
pub fn is_slip(typed: &str, name: &str) -> bool {
    // An option's value is no part of its name.
    let plain =
        |text: &str| text.split([' ', '=']).next().unwrap_or_default().trim_start_matches('-').to_lowercase();
    let (typed, name) = (plain(typed), plain(name));
    let is_beginning =
        !typed.is_empty() && name.strip_prefix(&typed).is_some_and(|rest| rest.starts_with(['-', '_']));
    is_beginning || distance(&typed, &name) <= typed.chars().count().div_ceil(3).min(2)
}

/// Number of letters that were left out, added, mistaken or swapped with the next one.
fn distance(typed: &str, name: &str) -> usize {
    let (typed, name): (Vec<char>, Vec<char>) = (typed.chars().collect(), name.chars().collect());
    let mut table = vec![vec![0; name.len() + 1]; typed.len() + 1];
    for i in 0..=typed.len() {
        for j in 0..=name.len() {
            table[i][j] = match (i, j) {
                (0, _) => j,
                (_, 0) => i,
                _ => {
                    let mistaken = table[i - 1][j - 1] + usize::from(typed[i - 1] != name[j - 1]);
                    let best = mistaken.min(table[i - 1][j] + 1).min(table[i][j - 1] + 1);
                    let is_swap =
                        i > 1 && j > 1 && typed[i - 1] == name[j - 2] && typed[i - 2] == name[j - 1];
                    if is_swap { best.min(table[i - 2][j - 2] + 1) } else { best }
                }
            };
        }
    }
    table[typed.len()][name.len()]
}

/// Hint for a command that does not exist.
pub fn of(word: &str) -> Option<&'static str> {
    HINTS.iter().find(|(name, _)| *name == word).map(|(_, hint)| *hint)
}

/// Commands of any group that have a name, for one that stands alone or with another group: `casemate ext4 cat, ...`.
pub fn elsewhere(all: &clap::Command, name: &str) -> Option<String> {
    let has = |group: &&clap::Command| group.get_subcommands().any(|inner| inner.get_name() == name);
    let groups = all.get_subcommands().filter(has);
    let found: Vec<String> = groups.map(|group| format!("casemate {} {name}", group.get_name())).collect();
    (!found.is_empty()).then(|| found.join(", "))
}

// Some are commands of Linux.
#[cfg(all(test, target_os = "linux"))]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    #[test]
    fn destroyers_are_commands() {
        let all = Cli::command();
        let names: Vec<&str> = all
            .get_subcommands()
            .flat_map(|group| group.get_subcommands().map(clap::Command::get_name))
            .collect();
        assert!(DESTROYERS.iter().all(|name| names.contains(name)));
    }

    #[test]
    fn slips_are_told_from_other_words() {
        for (typed, name) in [
            ("dmup", "dump"),
            ("--jsn", "--json"),
            ("--key", "--key-file"),
            ("chek", "check"),
            ("extrct", "extract"),
        ] {
            assert!(is_slip(typed, name), "{typed} {name}");
        }
        for (typed, name) in [("resume", "erase"), ("--to", "--sector-size"), ("rn", "truncate"), ("", "a-b")]
        {
            assert!(!is_slip(typed, name), "{typed} {name}");
        }
    }

    /// A tool whose command line a link takes has a hint, or is a command by its name.
    #[test]
    fn links_have_hints() {
        for (name, _) in crate::tools::LINKS {
            assert!(of(name).is_some() || Cli::command().find_subcommand(name).is_some(), "{name}");
        }
    }

    /// Options that are answered with a tip are none of their command's.
    #[test]
    fn options_with_tips_are_not_there() {
        for (words, options, tip) in OPTIONS {
            let all = Cli::command();
            let command = words.iter().fold(&all, |command, word| command.find_subcommand(word).expect(word));
            let has = |name: &str| match name.strip_prefix("--") {
                Some(long) => command.get_arguments().any(|arg| arg.get_long() == Some(long)),
                None => command.get_arguments().any(|arg| arg.get_short() == name.chars().nth(1)),
            };
            assert!(!options.iter().any(|option| has(option)), "{tip}");
        }
    }

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
                    let is_known = second == "--help" || command.find_subcommand(second).is_some();
                    assert!(is_known, "{word}: {hint}");
                }
            }
        }
    }
}
