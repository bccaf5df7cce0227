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

/// What `casemate help layers` prints.
pub const LAYERS: &str = "\
Layers

Most commands read an image through layers, as the kernel stacks them. From the image upwards:

  1. a part of it       --partition N, or --offset BYTES
  2. dm-crypt           --crypt SPEC, or --crypt-table FILE with a device-mapper line
     or LUKS            --luks
     dm-integrity       --dm-integrity NAME
     dm-verity          --dm-verity HASH ROOT
                        in the order in which they are given, each as often as there is one; --luks once
  3. the file system    --fscrypt-key FILE, --fscrypt-passphrase-file FILE for its encrypted files
                        --fsverity DEMAND of cat and extract, for files with fs-verity

Commands that change an image work through dm-crypt, LUKS and dm-integrity; what dm-verity protects can't be changed. casemate
mount takes the same layers, and casemate serve with them and --overlay FILE on top, which keeps what clients write.

dm-crypt: the key is in --key-file FILE (- is standard input) or --key-fd NUMBER, from --keyfile-offset BYTES on, and has
--key-size BITS (256 if nothing is said; a key file of 64 bytes for aes-xts has 512). Without a file a passphrase is
asked for, or is the first line of standard input, and --passphrase-hash makes the key. --crypt-offset, --skip,
--sector-size and --iv-large-sectors are cryptsetup's --offset, --skip, --sector-size and --iv-large-sectors.

Where there are several layers of a kind, an option is of the one before it: --crypt A --key-file 1 --crypt B --key-file 2.

LUKS: the header says everything but the passphrase, which is all of --key-file FILE or --key-fd NUMBER, or asked for, or
the first line of standard input. --volume-key-file FILE has the volume key instead. --luks-header FILE is a header that
lies apart, --luks-policy FILE what a header must be (casemate luks check), --key-slot N the only slot to try, and --kdf-limit TIMES lets a header cost more than is granted otherwise.

dm-integrity: NAME is what tags are made with, which the volume does not say; --integrity-key-file FILE has the key of
hmac-sha256 and the like, --integrity-data-device PATH data that lie apart from their tags.

dm-verity: HASH is the file or device with the hash area; if it is the image itself, the area lies behind the data, at
--verity-hash-offset BYTES, or in another partition, which is --verity-hash-partition N. With auto instead of a number it is
the partition whose UUID is the second half of the root hash, as systemd makes them. ROOT is the root hash in hex, or @FILE. --verity-hash, --verity-salt, --verity-format,
--verity-data-blocks, --verity-data-block-size and --verity-hash-block-size must be what the superblock says, or are
needed where --verity-no-superblock says that there is none.

Sizes and offsets are bytes; K, M, G and T stand for powers of 1024, s for sectors of 512 bytes.

Examples:
  casemate ext4 ls --crypt aes-xts-plain64 --key-file disk.key --key-size 512 disk.enc /etc
  casemate ext4 cat --dm-verity root.verity @root.hash.txt root.img /etc/os-release
  casemate ext4 ls --crypt aes-xts-plain64 --key-file disk.key --key-size 512 \\
      --dm-verity root.verity @root.hash.txt disk.enc /
  casemate ext4 ls --luks --key-file pass.key disk.luks /
  casemate ext4 ls --fscrypt-key master.key root.img /home
  casemate ext4 ls --partition 1 disk.img /
";

/// What the exit status of every command says.
pub const EXIT_STATUS: &str = "\
Exit status:
  0    yes; what was asked for is done
  1    no: what verify, check, repair or selftest asked about is wrong
  2    could not, or not all of it: what is missing is named, the rest is done
  130  interrupted
  141  whoever read the output did not take all of it (of what asks, the exit status is the answer)";

/// The commands with their options in order.
pub fn arranged(command: Command) -> Command {
    let name = command.get_name().to_owned();
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
