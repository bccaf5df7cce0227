//! How the commands' help is arranged: a command's own options first, those of the layers under it last, and a page about
//! these for all commands together.

use clap::{Arg, Command};

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

/// The text of `casemate help layers`.
pub const LAYERS: &str = "\
Layers

Most commands read an image through layers, as the kernel stacks them. Name the
layers from the image upwards:

  1. a part of it       --partition N, or --offset BYTES
  2. dm-crypt           --crypt SPEC, or --crypt-table FILE
     LUKS               --luks, once
     dm-integrity       --dm-integrity NAME
     dm-verity          --dm-verity HASH ROOT
                        in the order of the stack; all but --luks several times
  3. the file system    --fscrypt-key FILE or --fscrypt-passphrase-file FILE
                        opens encrypted files
                        --fsverity DEMAND, of cat and extract, checks files

An option belongs to the layer before it:
--crypt A --key-file 1 --crypt B --key-file 2

Commands that change an image work through dm-crypt, LUKS and dm-integrity, but
not through dm-verity. casemate mount takes the same layers. casemate serve takes
them, and --overlay FILE on top, which keeps the clients' writes.

dm-crypt
  --key-file FILE (- is standard input) or --key-fd NUMBER has the key, from
  --keyfile-offset BYTES on, with --key-size BITS (default 256; aes-xts with a
  key of 64 bytes has 512). Without a key file casemate asks for a passphrase, or
  reads the first line of standard input; --passphrase-hash derives the key.
  --crypt-offset, --skip, --sector-size and --iv-large-sectors are cryptsetup's
  --offset, --skip, --sector-size and --iv-large-sectors.

LUKS
  The passphrase is all of --key-file FILE or --key-fd NUMBER; without them it is
  asked for, or is the first line of standard input. --volume-key-file FILE has
  the volume key instead. --luks-header FILE is a detached header. --luks-policy
  FILE is the policy that the header must meet (casemate luks check). --key-slot N
  is the only slot to try. --kdf-limit N multiplies the allowed KDF costs.

dm-integrity
  NAME is the integrity algorithm, which the superblock does not record.
  --integrity-key-file FILE has the key of hmac-sha256 and the like.
  --integrity-data-device PATH is a separate data device.

dm-verity
  HASH is the file or device with the hash area. If it is the image itself, the
  area begins at --verity-hash-offset BYTES, or is partition
  --verity-hash-partition N. N is auto for the partition whose UUID is the second
  half of the root hash, as systemd makes them. ROOT is the root hash in hex, or
  @FILE. --verity-hash, --verity-salt, --verity-format, --verity-data-blocks,
  --verity-data-block-size and --verity-hash-block-size must match the superblock.
  With --verity-no-superblock they are required.

Sizes and offsets are in bytes. K, M, G and T are powers of 1024, s is a sector of
512 bytes, B is a byte.

Examples:
  casemate ext4 ls --crypt aes-xts-plain64 --key-file disk.key --key-size 512 \\
      disk.enc /etc
  casemate ext4 cat --dm-verity root.verity @root.hash.txt root.img /etc/os-release
  casemate ext4 ls --crypt aes-xts-plain64 --key-file disk.key --key-size 512 \\
      --dm-verity root.verity @root.hash.txt disk.enc /
  casemate ext4 ls --luks --key-file pass.key disk.luks /
  casemate ext4 ls --fscrypt-key master.key root.img /home
  casemate ext4 ls --partition 1 disk.img /
";

/// The exit statuses of every command.
pub const EXIT_STATUS: &str = "\
Exit status:
  0    done, or the answer is yes
  1    the answer is no: verify, check, repair or selftest found a fault;
       or with --keep-going, and of rescue: parts could not be read
  2    could not run, or did only part; the message names what is missing
  130  interrupted
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
    let command = command.mut_subcommands(|command| under(arranged(command), &name));
    let has = |name: &str| command.get_arguments().any(|arg| arg.get_long() == Some(name));
    let layers = HEADS.iter().filter(|name| is_image(&command) && has(name));
    let layers: Vec<String> = layers.map(|name| format!("--{name}")).collect();
    let is_image = is_image(&command);
    let command = command.mut_args(|arg| place(arg, is_image));
    if layers.is_empty() {
        return command;
    }
    let examples = command.get_after_help().cloned().unwrap_or_default();
    let line = format!("Layers: {}; see casemate help layers\n\n{examples}", layers.join(", "));
    command.after_help(line).after_long_help(examples)
}

/// The options that a layer begins with.
const HEADS: &[&str] = &["crypt", "luks", "dm-integrity", "dm-verity", "fscrypt-key"];

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
fn place(arg: Arg, is_image: bool) -> Arg {
    match group(&arg) {
        Some(group) if is_image => arg.help_heading(group.heading).hide_short_help(group.is_layer),
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
        for line in front(&command).lines().chain(LAYERS.lines()).chain(EXIT_STATUS.lines()) {
            assert!(line.len() <= 88, "{line}");
        }
    }
}
