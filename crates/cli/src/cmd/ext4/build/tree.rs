//! Where the files of a new file system come from, and what becomes of them.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::{ArgMatches, FromArgMatches};

use casemate::Error;
use casemate::blockdev::os::{self, OsStrExt};
use casemate::ext4::{
    Amendments, Description, DescriptionFormat, NewMode, NewXattr, Pattern, Source, TreeOptions,
};

use crate::cmd::ext4::chmod::parse_mode;
use crate::cmd::ext4::chown::parse_both;
use crate::cmd::ext4::setfattr::decode_value;
use crate::context::Context;

/// The files of a new file system.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Sources")]
pub struct TreeArgs {
    #[command(flatten)]
    sources: Sources,
    /// Set this numeric owner and group on everything.
    #[arg(long, value_name = "UID:GID", value_parser = parse_both)]
    owner: Option<(u32, u32)>,
    /// Map user IDs of the source, those in ACLs and capabilities too: the first ID in the image, the first ID of the source, and
    /// their count. Ranges that share IDs are refused. Capabilities without an ID are root's.
    #[arg(long, value_name = "TO:FROM:COUNT", value_parser = range)]
    uid_map: Vec<[u32; 3]>,
    /// Map group IDs of the source, as --uid-map does user IDs.
    #[arg(long, value_name = "TO:FROM:COUNT", value_parser = range)]
    gid_map: Vec<[u32; 3]>,
    /// Do not copy extended attributes. A file's group gets what its ACL gave it, not the ACL's mask.
    #[arg(long)]
    no_xattrs: bool,
    #[command(flatten)]
    descriptions: Descriptions,
    /// Change permission bits of files that match the pattern, as chmod does under a umask of 0, after --xattr. It is an error if
    /// no file matches.
    #[arg(long, value_name = "[PATTERN:]MODE", allow_hyphen_values = true, help_heading = "Descriptions")]
    mode: Vec<OsString>,
    /// Set an extended attribute on files that match the pattern: text, or bytes in hexadecimal behind 0x, or in base64
    /// behind 0s. It is an error if no file matches.
    #[arg(long, value_name = "PATTERN:NAME=VALUE", help_heading = "Descriptions")]
    xattr: Vec<OsString>,
    /// Label everything for SELinux by this file_contexts.
    #[arg(long, value_name = "FILE", help_heading = "Descriptions")]
    file_contexts: Option<PathBuf>,
    /// Where the image will be mounted: paths of --fs-config and --file-contexts begin there.
    #[arg(long, value_name = "PATH", default_value = "/", help_heading = "Descriptions")]
    mount_point: OsString,
}

/// Options that name sources, of each kind.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Sources")]
struct SourceArgs {
    /// Copy the contents of this folder. Sources are taken in the order given, of whatever kind they are: later ones replace files
    /// of earlier ones.
    #[arg(long, value_name = "FILE")]
    from: Vec<PathBuf>,
    /// Copy the contents of this tar stream, plain or compressed with gzip or zstd; "-" is standard input.
    #[arg(long, value_name = "FILE")]
    tar: Vec<PathBuf>,
    /// Apply this layer of an OCI image, a tar stream, over the sources before it: its whiteouts remove their files.
    #[arg(long, value_name = "FILE")]
    layer: Vec<PathBuf>,
    /// Apply all layers of an image in an OCI layout folder, and check their digests: the only image, or the one with
    /// this name, digest or platform, such as linux/arm64.
    #[arg(long, value_name = "FOLDER[:IMAGE]")]
    oci: Vec<OsString>,
}

/// Sources in the order of the command line.
#[derive(Debug)]
struct Sources(Vec<Source>);

/// Options that name descriptions, of each format.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Descriptions")]
struct DescriptionArgs {
    /// Set properties of files from Android's fs_config: owners, modes, capabilities. Descriptions are applied in the order given, of
    /// whatever format they are.
    #[arg(long, value_name = "FILE")]
    fs_config: Vec<PathBuf>,
    /// Set owners and modes from a device table, as of genext2fs and buildroot's makedevs; it can also create devices
    /// and directories.
    #[arg(long, value_name = "FILE")]
    device_table: Vec<PathBuf>,
    /// Set properties of files from an mtree(5) manifest. Digests in it are not compared.
    #[arg(long, value_name = "FILE")]
    mtree: Vec<PathBuf>,
    /// Set properties of files from a composefs-dump(5) manifest; with fs-verity its digests are compared.
    #[arg(long, value_name = "FILE")]
    composefs_dump: Vec<PathBuf>,
}

/// Descriptions in the order of the command line.
#[derive(Debug)]
struct Descriptions(Vec<Description>);

/// A list of several options' values in the order of the command line: the options, what reads them, and how.
macro_rules! in_order {
    ($list:ident, $args:ident, [$($id:ident => $make:expr),*]) => {
        impl clap::Args for $list {
            fn augment_args(command: clap::Command) -> clap::Command {
                $args::augment_args(command)
            }

            fn augment_args_for_update(command: clap::Command) -> clap::Command {
                $args::augment_args_for_update(command)
            }
        }

        impl FromArgMatches for $list {
            fn from_arg_matches(matches: &ArgMatches) -> Result<$list, clap::Error> {
                let args = $args::from_arg_matches(matches)?;
                let mut list = Vec::new();
                $(
                    let indices = matches.indices_of(stringify!($id)).into_iter().flatten();
                    list.extend(indices.zip(args.$id.into_iter().map($make)));
                )*
                list.sort_by_key(|(at, _)| *at);
                Ok($list(list.into_iter().map(|(_, item)| item).collect()))
            }

            fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
                *self = $list::from_arg_matches(matches)?;
                Ok(())
            }
        }
    };
}

in_order!(Sources, SourceArgs, [
    from => Source::Folder,
    tar => Source::Tar,
    layer => Source::Layer,
    oci => |text| oci(&text)
]);

in_order!(Descriptions, DescriptionArgs, [
    fs_config => |path| Description::new(DescriptionFormat::FsConfig, path),
    device_table => |path| Description::new(DescriptionFormat::DeviceTable, path),
    mtree => |path| Description::new(DescriptionFormat::Mtree, path),
    composefs_dump => |path| Description::new(DescriptionFormat::Composefs, path)
]);

impl TreeArgs {
    /// How sources are read.
    pub fn options(&self) -> TreeOptions {
        let mut options = TreeOptions::default();
        options.owners.all = self.owner;
        options.owners.users = self.uid_map.clone();
        options.owners.groups = self.gid_map.clone();
        options.xattrs = !self.no_xattrs;
        options
    }

    /// The sources, the lowest first.
    pub fn sources(&self) -> Vec<Source> {
        self.sources.0.clone()
    }

    /// Refuses folders that are none, and says what takes them.
    pub fn check(&self) -> Result<(), Error> {
        for source in &self.sources.0 {
            let Source::Folder(path) = source else { continue };
            if path.as_os_str() == "-" || path.metadata().is_ok_and(|metadata| !metadata.is_dir()) {
                let text = format!("--from {}: no folder; --tar takes a tar stream", path.display());
                return Err(Error::argument(text));
            }
        }
        Ok(())
    }

    /// Whether a tar stream comes from standard input.
    pub fn reads_standard_input(&self) -> bool {
        self.sources.0.iter().any(Source::is_standard_input)
    }

    /// Changes to the modes, owners, attributes and labels of the files.
    pub fn amendments(&self, context: &Context) -> Result<Amendments, Error> {
        let mut amendments = Amendments::default();
        amendments.descriptions = self.descriptions.0.clone();
        amendments.mount_point = self.mount_point.as_bytes().to_vec();
        amendments.file_contexts = self.file_contexts.clone();
        for text in &self.mode {
            let (pattern, mode) = split_last(text.as_bytes(), b':').unwrap_or((b"*", text.as_bytes()));
            let mode = parse_mode(&String::from_utf8_lossy(mode))
                .map_err(|error| Error::argument(format!("--mode: {error}")))?;
            amendments.modes.push(NewMode::change(Pattern::new(pattern)?, mode));
        }
        for text in &self.xattr {
            let wrong = || Error::argument(format!("--xattr {}: not PATTERN:NAME=VALUE", text.display()));
            let bytes = text.as_bytes();
            let at = bytes.iter().position(|byte| *byte == b'=').ok_or_else(wrong)?;
            let (pattern, name) = split_last(&bytes[..at], b':').ok_or_else(wrong)?;
            let value = decode_value(&bytes[at + 1..], context)?;
            amendments.xattrs.push(NewXattr::new(Pattern::new(pattern)?, name, value));
        }
        Ok(amendments)
    }
}

/// Text before and behind the last `byte`; `None` if it does not occur.
fn split_last(text: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().rposition(|other| *other == byte)?;
    Some((&text[..at], &text[at + 1..]))
}

/// An OCI layout folder, and which of its images: what is behind the first colon that follows a folder's name.
fn oci(text: &OsStr) -> Source {
    let bytes = text.as_bytes();
    let colons = bytes.iter().enumerate().filter(|(_, byte)| **byte == b':');
    let mut parts = colons.map(|(at, _)| (os::path(&bytes[..at]), &bytes[at + 1..]));
    match parts.find(|(folder, _)| !Path::new(text).is_dir() && folder.is_dir()) {
        Some((folder, name)) => Source::Oci(folder.into(), Some(String::from_utf8_lossy(name).into_owned())),
        None => Source::Oci(text.into(), None),
    }
}

/// A range of numbers: the first one in the image, the first one of the source, and how many.
fn range(text: &str) -> Result<[u32; 3], String> {
    let numbers: Option<Vec<u32>> = text.split(':').map(|number| number.parse().ok()).collect();
    numbers.and_then(|numbers| numbers.try_into().ok()).ok_or_else(|| format!("{text}: not TO:FROM:COUNT"))
}
