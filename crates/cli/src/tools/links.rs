//! Names of links to the command under which it takes another tool's command line.
//!
//! The one list: packages make these links, the manual page and the hints name them, and tests compare the documents with it. It uses
//! nothing, so that programs beside this crate can include the file.

/// Names of links, and what a tool's command line may ask for. Packages group the alternatives under the first name.
pub const LINKS: [(&str, &str); 15] = [
    ("cryptsetup", "LUKS headers and data; open with --test-passphrase alone"),
    ("veritysetup", "format, verify, dump"),
    ("integritysetup", "format, dump"),
    ("fsverity", "all commands"),
    ("mke2fs", "all options that describe a new file system"),
    ("mkfs.ext2", "as mke2fs"),
    ("mkfs.ext3", "as mke2fs"),
    ("mkfs.ext4", "as mke2fs"),
    ("e2fsck", "-n, -p, -y, -z and more"),
    ("fsck.ext2", "as e2fsck"),
    ("fsck.ext3", "as e2fsck"),
    ("fsck.ext4", "as e2fsck"),
    ("tune2fs", "all but -I, -Q and -z"),
    ("e2label", "all"),
    ("resize2fs", "-M, -P, -p, -f and sizes"),
];

/// Names that mount(8) and umount(8) call helpers by.
pub const HELPERS: [&str; 3] = ["mount.casemate", "umount.casemate", "umount.fuse.casemate"];
