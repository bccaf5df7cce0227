//! Where the files of a new file system come from, and what becomes of them.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

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
    /// Copy the contents of this folder; later sources replace files of earlier ones.
    #[arg(long, value_name = "FILE")]
    from: Vec<PathBuf>,
    /// Copy the contents of this tar stream, plain or compressed with gzip or zstd; "-" is standard input.
    #[arg(long, value_name = "FILE")]
    tar: Vec<PathBuf>,
    /// Apply this layer of an OCI image, a tar stream, over earlier ones: its whiteouts remove their files.
    #[arg(long, value_name = "FILE")]
    layer: Vec<PathBuf>,
    /// Apply all layers of an image in an OCI layout folder, and check their digests: the only image, or the one with
    /// this name, digest or platform, such as linux/arm64.
    #[arg(long, value_name = "FOLDER[:IMAGE]")]
    oci: Vec<OsString>,
    /// Set this numeric owner and group on everything.
    #[arg(long, value_name = "UID:GID", value_parser = parse_both)]
    owner: Option<(u32, u32)>,
    /// Map user IDs of the source, those in ACLs and capabilities too: the first ID in the image, the first ID of the source, and
    /// their count.
    #[arg(long, value_name = "TO:FROM:COUNT", value_parser = range)]
    uid_map: Vec<[u32; 3]>,
    /// Map group IDs of the source, as --uid-map does user IDs.
    #[arg(long, value_name = "TO:FROM:COUNT", value_parser = range)]
    gid_map: Vec<[u32; 3]>,
    /// Do not copy extended attributes.
    #[arg(long)]
    no_xattrs: bool,
    /// Set properties of files from Android's fs_config: owners, modes, capabilities.
    #[arg(long, value_name = "FILE", help_heading = "Descriptions")]
    fs_config: Vec<PathBuf>,
    /// Set owners and modes from a device table, as of genext2fs and buildroot's makedevs; it can also create devices
    /// and directories.
    #[arg(long, value_name = "FILE", help_heading = "Descriptions")]
    device_table: Vec<PathBuf>,
    /// Set properties of files from an mtree(5) manifest. Digests in it are not compared.
    #[arg(long, value_name = "FILE", help_heading = "Descriptions")]
    mtree: Vec<PathBuf>,
    /// Set properties of files from a composefs-dump(5) manifest; with fs-verity its digests are compared.
    #[arg(long, value_name = "FILE", help_heading = "Descriptions")]
    composefs_dump: Vec<PathBuf>,
    /// Change permission bits of files that match the pattern, as chmod does. It is an error if no file matches.
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
        let folders = self.from.iter().cloned().map(Source::Folder);
        let tars = self.tar.iter().cloned().map(Source::Tar);
        let layers = self.layer.iter().cloned().map(Source::Layer);
        folders.chain(tars).chain(layers).chain(self.oci.iter().map(|text| oci(text))).collect()
    }

    /// Refuses folders that are none, and says what takes them.
    pub fn check(&self) -> Result<(), Error> {
        for path in &self.from {
            if path.as_os_str() == "-" || path.metadata().is_ok_and(|metadata| !metadata.is_dir()) {
                let text = format!("--from {}: no folder; --tar takes a tar stream", path.display());
                return Err(Error::argument(text));
            }
        }
        Ok(())
    }

    /// Whether a tar stream comes from standard input.
    pub fn reads_standard_input(&self) -> bool {
        self.tar.iter().chain(&self.layer).any(|path| path.as_os_str() == "-")
    }

    /// Changes to the modes, owners, attributes and labels of the files.
    pub fn amendments(&self, context: &Context) -> Result<Amendments, Error> {
        let mut amendments = Amendments::default();
        amendments.descriptions =
            self.descriptions().map(|(format, path)| Description::new(format, path)).collect();
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

    fn descriptions(&self) -> impl Iterator<Item = (DescriptionFormat, &PathBuf)> {
        let all = [
            (DescriptionFormat::FsConfig, &self.fs_config),
            (DescriptionFormat::DeviceTable, &self.device_table),
            (DescriptionFormat::Mtree, &self.mtree),
            (DescriptionFormat::Composefs, &self.composefs_dump),
        ];
        all.into_iter().flat_map(|(format, paths)| paths.iter().map(move |path| (format, path)))
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
