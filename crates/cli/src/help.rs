//! How the commands' help is arranged: a command's own options first, those of the layers under it last, and a page about
//! these for all commands together.

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, Args, Command};

use casemate::image_spec::KINDS;

use crate::cmd::layers::spec_parser;
use crate::context::Common;

/// Options that many commands share, by their long names, under one heading.
struct Group {
    heading: &'static str,
    names: &'static [&'static str],
    /// Whether short help leaves them to the page about layers.
    is_layer: bool,
}

const GROUPS: &[Group] = &[
    Group {
        heading: "Image",
        names: &[
            "offset",
            "partition",
            "ignore-checksums",
            "superblock",
            "no-replay",
            "recovery-file",
            "seed",
            "dry-run",
        ],
        is_layer: false,
    },
    Group {
        heading: "dm-crypt",
        names: &[
            "crypt",
            "crypt-table",
            "key-file",
            "key-fd",
            "keyfile-offset",
            "key-size",
            "passphrase-hash",
            "crypt-offset",
            "skip",
            "sector-size",
            "iv-large-sectors",
            "allow-equal-halves",
            "crypt-provider",
            "allow-discards",
        ],
        is_layer: true,
    },
    Group {
        heading: "LUKS",
        names: &["luks", "luks-", "key-slot", "volume-key-file", "kdf-limit", "mac-key-file"],
        is_layer: true,
    },
    Group {
        heading: "dm-integrity",
        names: &[
            "dm-integrity",
            "integrity-key-file",
            "integrity-data-device",
            "integrity-bitmap-mode",
            "journal-integrity",
            "journal-integrity-key-file",
            "journal-crypt",
            "journal-crypt-key-file",
        ],
        is_layer: true,
    },
    Group { heading: "dm-verity", names: &["dm-verity", "verity-"], is_layer: true },
    Group {
        heading: "Encrypted files",
        names: &[
            "fscrypt-key",
            "fscrypt-passphrase-file",
            "protector",
            "fscrypt-metadata",
            "fscrypt-kdf-limit",
        ],
        is_layer: true,
    },
    Group { heading: "TLS", names: &["tls", "tls-"], is_layer: false },
];

/// A heading, and the options under it.
type Section = (&'static str, &'static [&'static str]);

/// Sections of long help: the command, and its options under each heading, in the order of the command.
const SECTIONS: &[(&str, &[Section])] = &[
    (
        "serve",
        &[
            (
                "Image",
                &[
                    "export",
                    "export-name",
                    "write",
                    "read-only",
                    "size",
                    "recovery-file",
                    "overlay",
                    "trust-image",
                ],
            ),
            (
                "Connections",
                &[
                    "socket",
                    "tcp",
                    "allow-remote",
                    "exit-with-last",
                    "max-clients",
                    "handshake-timeout",
                    "patience",
                ],
            ),
            ("Process", &["exec", "fork", "pid-file", "log"]),
        ],
    ),
    (
        "mount",
        &[
            ("Folder", &["write", "fsverity", "allow-other", "uid", "gid", "control", "options"]),
            ("Process", &["foreground", "log"]),
        ],
    ),
    ("format", &[("Image", IMAGE_OF_LUKS), ("Key", KEY_OF_LUKS), ("Key slot", SLOT_OF_LUKS)]),
    ("reencrypt", &[("Image", IMAGE_OF_LUKS), ("Key", KEY_OF_LUKS), ("Key slot", SLOT_OF_LUKS)]),
    ("add-key", &[("Image", IMAGE_OF_LUKS), ("Key", KEY_OF_LUKS), ("New key slot", SLOT_OF_LUKS)]),
    ("change-key", &[("Image", IMAGE_OF_LUKS), ("Key", KEY_OF_LUKS), ("New key slot", SLOT_OF_LUKS)]),
];

/// Where a LUKS volume is.
const IMAGE_OF_LUKS: &[&str] = &["offset", "partition", "from", "size", "overwrite", "luks-header"];

/// Options of the key that opens a LUKS volume.
const KEY_OF_LUKS: &[&str] = &[
    "key-file",
    "key-fd",
    "keyfile-offset",
    "keyfile-size",
    "key-slot",
    "volume-key-file",
    "kdf-limit",
    "luks-policy",
    "mac-key-file",
];

/// How a key slot is made.
const SLOT_OF_LUKS: &[&str] = &[
    "allow-empty-key",
    "iter-time",
    "keyslot-cipher",
    "keyslot-key-size",
    "new-key-file",
    "new-keyfile-offset",
    "new-keyfile-size",
    "new-key-slot",
    "pbkdf",
    "pbkdf-force-iterations",
    "pbkdf-memory",
    "pbkdf-parallel",
    "unbound",
];

/// A command whose options lie under the headings of its sections; those of LUKS alone where others have the name, too.
fn in_sections(command: Command, parent: &str) -> Command {
    let name = command.get_name().to_owned();
    let is_own = matches!(name.as_str(), "serve" | "mount") || parent == "luks";
    let Some((_, sections)) = SECTIONS.iter().find(|(known, _)| *known == name && is_own) else {
        return command;
    };
    command.mut_args(|arg| {
        let has = |(_, names): &&(&str, &[&str])| arg.get_long().is_some_and(|long| names.contains(&long));
        match sections.iter().find(has) {
            Some((heading, _)) => arg.help_heading(*heading),
            None => arg,
        }
    })
}

/// Beginning of `casemate help layers`.
const LAYERS_FIRST: &str = "\
Layers

Most commands read an image through layers, as the kernel stacks them. An image is
given with its layers in one word, from the file upwards:

  FILE[,LAYER[,OPTION...]...]

An option belongs to the layer before it. A comma of a name is written twice.
";

/// End of `casemate help layers`.
const LAYERS_LAST: &str = "\
Sizes and offsets are in bytes. K, M, G and T are powers of 1024, s is a sector of
512 bytes, B a byte. The word holds no secret. Without a key file casemate
asks for the passphrase, or reads the first line of standard input.

Commands that change an image work through dm-crypt, LUKS and dm-integrity, but
not through dm-verity.

Layers as options
  --partition WHICH, --offset BYTES, --crypt SPEC, --crypt-table FILE, --luks,
  --dm-integrity NAME and --dm-verity HASH ROOT say the same, from the image
  upwards. Their options are those above: --key-file, --key-size, ... of dm-crypt
  and LUKS, --luks-header, --luks-policy, --integrity-key-file, --verity-salt, ...;
  --superblock, --fscrypt-key, ... are those of ext4. The manual pages list them.
  Layers are given in one of the two ways, not in both.

Commands of luks, integrity, verity and crypt take the place of a volume in one
word, too: casemate luks dump disk.img,partition=2. They open the volume itself.

Examples:
  casemate ext4 ls disk.enc,crypt=aes-xts-plain64,key-file=disk.key,key-size=512 /
  casemate ext4 ls disk.luks,luks,key-file=pass.key /
  casemate ext4 ls disk.img,partition=1 /
  casemate ext4 cat root.img,verity,root-hash=@root.hash.txt,hash-device=root.verity \\
      /etc/os-release
  casemate ext4 ls root.img,ext4,fscrypt-key=master.key /home
  casemate ext4 ls --crypt aes-xts-plain64 --key-file disk.key --key-size 512 \\
      --dm-verity root.verity @root.hash.txt disk.enc /
";

/// The text of `casemate help layers`.
pub fn layers() -> String {
    let mut text = LAYERS_FIRST.to_owned();
    for kind in KINDS {
        let named = |name: &str, value: &str| match value.strip_prefix('[') {
            Some(value) => format!("{name}[={value}"),
            None if value.is_empty() => name.to_owned(),
            None => format!("{name}={value}"),
        };
        text += &format!("\n{}\n    {}\n", named(kind.name, kind.value), kind.help);
        for choice in kind.options {
            let name = named(choice.name, choice.value);
            let times = if choice.repeats { "; may be repeated" } else { "" };
            text += &lines(&name, &format!("{}{times}", choice.help));
        }
    }
    text + "\n" + LAYERS_LAST
}

/// Columns of a page that is not wrapped for its terminal.
const COLUMNS: usize = 80;

/// Where what a name stands for begins.
const TEXT: usize = 30;

/// A name, and what it stands for.
fn lines(name: &str, text: &str) -> String {
    let mut page = String::new();
    let mut line = format!("  {name}");
    if line.len() + 2 > TEXT {
        page += &format!("{line}\n");
        line.clear();
    }
    for word in text.split(' ') {
        if line.len() + 1 + word.len() > COLUMNS {
            page += &format!("{line}\n");
            line.clear();
        }
        match line.len() {
            len if len < TEXT => line += &format!("{}{word}", " ".repeat(TEXT - len)),
            _ => line += &format!(" {word}"),
        }
    }
    page + &line + "\n"
}

/// The exit statuses of every command.
pub const EXIT_STATUS: &str = "\
Exit status:
  0    done, or the answer is yes
  1    the answer is no: verify, check, repair or selftest found a fault;
       or with --keep-going, and of rescue: parts could not be read
  2    could not run, or did only part; the message names what is missing
  130  interrupted by SIGINT; 143 by SIGTERM, 129 by SIGHUP
  141  the reader of the output closed the pipe";

/// The jobs that `casemate` alone shows, by groups: a group, the commands, and their purpose.
const JOBS: &[(&str, &[(&str, &str)])] = &[
    (
        "Build",
        &[
            ("ext4 build", "Build an ext4 image of folders, tar streams or OCI layers"),
            ("verity format", "Make a dm-verity hash tree, with error correction"),
            ("luks format", "Make a LUKS volume"),
            ("crypt encrypt", "Encrypt an image as dm-crypt does, without a header"),
            ("integrity format", "Make a dm-integrity volume"),
            ("fsverity digest", "Compute fs-verity digests of files"),
        ],
    ),
    (
        "Read",
        &[
            ("info", "Show what an image holds, and the commands that read it"),
            ("ext4 ls", "List files of an image; also tree, find, stat, du, df"),
            ("ext4 extract", "Copy files out of an image; ext4 cat prints one"),
            ("luks extract", "Decrypt a LUKS volume; luks dump prints its header"),
            ("rescue", "Copy what can be read of a damaged device and its layers"),
            ("mount", "Mount an ext4 image in a folder, through FUSE"),
            ("umount", "Unmount folders that casemate mounted"),
            ("key", "Add, remove and list keys of a mounted folder"),
        ],
    ),
    (
        "Check",
        &[
            ("ext4 check", "Check an ext4 file system, and repair it with --repair"),
            ("ext4 diff", "Tell what differs between two ext4 images, to the last byte"),
            ("verity verify", "Verify an image against a dm-verity root hash"),
            ("fsverity check", "Check files against a list of digests"),
            ("integrity verify", "Verify all tags of a dm-integrity volume"),
            ("luks check", "Check a LUKS header against a policy"),
        ],
    ),
    (
        "Change",
        &[
            ("ext4 put", "Copy files into an image; also mkdir, rm, mv, chmod, chown"),
            ("ext4 resize", "Make a file system larger or smaller; also minimize, label, tune"),
            ("luks add-key", "Add a passphrase; also change-key, remove-key"),
            ("luks reencrypt", "Encrypt, decrypt or reencrypt a volume in place"),
            ("fscrypt", "Make encrypted folders, and back them up without keys"),
            ("overlay", "Apply an overlay of casemate serve to its image"),
        ],
    ),
    ("Serve", &[("serve", "Export an image over NBD, decrypted and verified on the fly")]),
    (
        "More",
        &[
            ("fleet", "Digest files on many machines, with Ray, Dask or Spark"),
            ("providers", "List, test and time the implementations of ciphers and hashes"),
            ("base64", "Encode and decode base64"),
            ("completions", "Print a completion script for a shell"),
            ("man", "Write the manual pages"),
            ("licenses", "Print the licenses of all packages in this command"),
        ],
    ),
];

/// The help of `casemate` alone: the jobs that this system's command has, by groups.
fn front(command: &Command) -> String {
    let mut page = String::from("{about-with-newline}\n{usage-heading} {usage}\n");
    for (group, jobs) in JOBS {
        page += &format!("\n{group}:\n");
        for (job, purpose) in *jobs {
            let name = job.split(' ').next().unwrap_or(job);
            if command.find_subcommand(name).is_some() {
                page += &format!("  {job:<16}  {purpose}\n");
            }
        }
    }
    page + "\ncasemate COMMAND --help describes a command; casemate help layers, how commands read\n\
            through partitions, dm-crypt, LUKS, dm-integrity and dm-verity.\n\nOptions:\n{options}\n\n{after-help}\n"
}

/// The command with its front page.
fn with_front(command: Command) -> Command {
    let page = front(&command);
    command.help_template(page)
}

/// The commands with their options in order.
pub fn arranged(command: Command) -> Command {
    let name = command.get_name().to_owned();
    let command = if name == "casemate" { with_front(command) } else { command };
    let command = command.mut_subcommands(|command| in_sections(under(arranged(command), &name), &name));
    let has = |name: &str| command.get_arguments().any(|arg| arg.get_long() == Some(name));
    let heads = HEADS.iter().filter(|name| is_image(&command) && has(name));
    let heads: Vec<String> = heads.map(|name| format!("--{name}")).collect();
    let (is_image, takes_spec) = (is_image(&command), takes_spec(&command));
    let command = command.mut_args(|arg| place(arg, is_image, takes_spec));
    if heads.is_empty() {
        return command;
    }
    let examples = command.get_after_help().cloned().unwrap_or_default();
    if !takes_spec {
        let line = format!("Layers: {}; see casemate help layers\n\n{examples}", heads.join(", "));
        return command.after_help(line).after_long_help(examples);
    }
    on_one_screen(command.after_help(format!("{ELSEWHERE}\n\n{examples}")).after_long_help(examples))
}

/// The options that a layer begins with.
const HEADS: &[&str] = &["crypt", "luks", "dm-integrity", "dm-verity", "fscrypt-key"];

/// Whether the image of a command can be given with its layers. Data and hash devices of casemate verity can, too, but there the
/// options of layers are shown.
fn takes_spec(command: &Command) -> bool {
    let spec = ValueParser::new(spec_parser()).type_id();
    command.get_arguments().any(|arg| arg.get_id() == "image" && arg.get_value_parser().type_id() == spec)
}

/// Pages for what the help of a command with layers leaves out.
const ELSEWHERE: &str = "Layers: IMAGE,partition=2,luks,key-file=FILE, or options; see casemate help layers\n\
                         Common options: --json, --threads, -v, -q, ...; see casemate --help";

/// A command whose --help is as short as its -h: an option a line, without those of layers. All of what the command is about is
/// there.
fn on_one_screen(command: Command) -> Command {
    let about = command.get_long_about().map(ToString::to_string).unwrap_or_default();
    let more = about.split_once("\n\n").map(|(_, more)| more.to_owned());
    let has_own = command.get_arguments().any(|arg| arg.get_id() == "help");
    let command = match has_own {
        true => command.mut_arg("help", |arg| arg.action(ArgAction::HelpShort)),
        false => {
            let help = Arg::new("help")
                .short('h')
                .long("help")
                .action(ArgAction::HelpShort)
                .help("Print help")
                .help_heading(None);
            command.disable_help_flag(true).arg(help)
        }
    };
    // In place of those that the command would have in common with all others.
    let common = Common::augment_args(Command::new("common"));
    // A command's own option takes the place of a common one.
    let is_own = |arg: &&Arg| command.get_arguments().any(|own| own.get_id() == arg.get_id());
    let common: Vec<Arg> = common
        .get_arguments()
        .filter(|arg| !is_own(arg))
        .map(|arg| arg.clone().hide_short_help(true))
        .collect();
    let command = command.args(common);
    match more {
        // In manual pages it is told with the rest.
        Some(more) => command
            .before_help(more)
            .before_long_help("")
            .help_template("{about}\n\n{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}"),
        None => command,
    }
}

/// A command under one that a heading repeats: the options of casemate luks are about LUKS.
fn under(command: Command, name: &str) -> Command {
    let repeats =
        |arg: &Arg| arg.get_help_heading().is_some_and(|heading| heading.eq_ignore_ascii_case(name));
    command.mut_args(|arg| if repeats(&arg) { arg.help_heading(None) } else { arg })
}

/// Whether a command works on an image through layers. Of what makes or changes a layer its options are the command's own,
/// and --crypt has a short name there.
fn is_image(command: &Command) -> bool {
    let is_layer = |arg: &Arg| arg.get_id() == "crypt" && arg.get_short().is_none();
    command.get_arguments().any(|arg| is_layer(arg) || arg.get_id() == "fscrypt_key")
}

fn group(arg: &Arg) -> Option<&'static Group> {
    let name = arg.get_long()?;
    let is_member = |member: &&str| *member == name || (member.ends_with('-') && name.starts_with(*member));
    GROUPS.iter().find(|group| group.names.iter().any(is_member))
}

/// An option under the heading where it belongs; where a heading of a group leaked to another option, under none.
fn place(arg: Arg, is_image: bool, takes_spec: bool) -> Arg {
    let is_part = takes_spec && matches!(arg.get_long(), Some("offset" | "partition"));
    match group(&arg) {
        Some(group) if is_image => arg.help_heading(group.heading).hide_short_help(group.is_layer || is_part),
        _ => {
            let leaked = GROUPS.iter().any(|group| arg.get_help_heading() == Some(group.heading));
            if leaked && is_image { arg.help_heading(None) } else { arg }
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    #[test]
    fn the_front_page_names_every_command_and_fits_80_columns() {
        let command = Cli::command();
        let mut named = BTreeSet::new();
        for (job, _) in JOBS.iter().flat_map(|(_, jobs)| *jobs) {
            let find = |command: Option<Command>, name: &str| command?.find_subcommand(name).cloned();
            assert!(job.split(' ').fold(Some(command.clone()), find).is_some(), "{job}");
            named.extend(job.split(' ').next());
        }
        let all: BTreeSet<&str> =
            command.get_subcommands().map(Command::get_name).filter(|name| *name != "help").collect();
        assert_eq!(named, all);
        for line in front(&command).lines().chain(layers().lines()).chain(EXIT_STATUS.lines()) {
            assert!(line.len() <= 88, "{line}");
        }
    }
}
