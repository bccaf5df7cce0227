//! What all commands that change an image share.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use serde_json::json;

use casemate::ext4::{FileType, NewNode, PutReport, WriteOptions, Writer, source_date_epoch};
use casemate::{Access, Error, Image};

use super::keys::KeyArgs;
use crate::cmd::layers::{CryptArgs, DECRYPTION};
use crate::context::Context;

/// Which file system is changed, and how reproducibly.
#[derive(clap::Args, Debug)]
pub struct ChangeArgs {
    /// The image file or block device.
    #[arg(value_name = "IMAGE")]
    pub image: PathBuf,
    /// The byte of the image that the file system begins at.
    #[arg(long, value_name = "BYTES", default_value_t = 0, conflicts_with = "partition")]
    offset: u64,
    /// The partition (GPT or MBR) that the file system lies in, counted from 1.
    #[arg(long, value_name = "N")]
    partition: Option<u32>,
    /// Make the numbers that are random otherwise (generations of inodes, nonces of encrypted files) from this one:
    /// with the time in the environment's SOURCE_DATE_EPOCH the same change gives the same image. Files that
    /// share key and nonce show where their contents are equal: never use a seed again for other contents that
    /// are encrypted with the same key.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Where a change of a file system without a journal is kept until it is whole [default: IMAGE.casemate-redo].
    /// Through dm-crypt such file systems are refused: that file would hold names and structures in plain text.
    #[arg(long, value_name = "FILE", conflicts_with = DECRYPTION)]
    recovery_file: Option<PathBuf>,
    #[command(flatten)]
    keys: KeyArgs,
    #[command(flatten)]
    crypt: CryptArgs,
}

impl ChangeArgs {
    /// Opens the file system for changes; an interrupted change is completed first.
    pub fn open(&self, context: &Context) -> Result<Writer, Error> {
        let image = Image::open(&self.image, Access::Change)?;
        let image = match self.partition {
            Some(number) => image.partition(number)?,
            None => image.window(self.offset, None)?,
        };
        let image = self.crypt.over(image, context, false)?;
        let mut options = WriteOptions::default();
        options.keys = self.keys.keys()?;
        options.seed = self.seed;
        options.time = source_date_epoch()?;
        options.recovery_file = self.recovery_file.clone();
        image.ext4_writer(&options, &context.opening())
    }

    /// Opens the file system, changes it, and makes that permanent: all at once or not at all, but for what goes in
    /// steps.
    pub fn change(
        &self,
        context: &Context,
        f: impl FnOnce(&mut Writer) -> Result<(), Error>,
    ) -> Result<crate::answer::Answer, Error> {
        let mut writer = self.open(context)?;
        f(&mut writer)?;
        self.place(writer.commit())?;
        context.done(format_args!("{}: changed", self.image.display()));
        Ok(crate::answer::Answer::Yes)
    }

    /// The device and inode of the image, if it is a file.
    pub fn image_file(&self) -> Option<(u64, u64)> {
        let metadata = std::fs::metadata(&self.image).ok().filter(std::fs::Metadata::is_file)?;
        Some((metadata.dev(), metadata.ino()))
    }

    /// Makes an empty file if a path leads to none: where a link leads that the path ends in.
    pub fn make_missing(&self, writer: &mut Writer, path: &[u8]) -> Result<(), Error> {
        if !is_missing(writer, path) {
            return Ok(());
        }
        let mut path = path.to_vec();
        // No link is followed for ever: of a circle nothing is said to be missing.
        while let Ok(link) = writer.fs().resolve(&path, false)
            && link.kind() == FileType::Symlink
        {
            let target = self.place(writer.fs().symlink_target(&link))?;
            let above = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
            path.truncate(if target.starts_with(b"/") { 0 } else { above });
            path.extend(target);
        }
        self.place(writer.make_file(&path, &node(None, 0o666)))
    }

    /// The result of something that happened in the image.
    pub fn place<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        result.map_err(|error| error.at(self.image.display()))
    }
}

/// A new file or directory of root's, with these permission bits; with the usual ones if `None`, or those that a
/// default ACL says.
pub fn node(mode: Option<u16>, usual: u16) -> NewNode {
    let (mode, umask) = mode.map_or((usual, 0o022), |mode| (mode, 0));
    NewNode { mode, umask, ..NewNode::default() }
}

/// Prints what was put into an image, where JSON is wanted.
pub fn print_report(context: &Context, report: &PutReport) -> Result<(), Error> {
    if context.json() {
        context.print_json(&json!({
            "files": report.files,
            "directories": report.directories,
            "others": report.others,
            "bytes": report.bytes,
        }))?;
    }
    Ok(())
}

/// Whether a path in the image leads nowhere.
pub fn is_missing(writer: &Writer, path: &[u8]) -> bool {
    writer.fs().resolve(path, true).is_err_and(|error| error.is_not_found())
}

/// A number of bytes, with K, M, G or T for powers of 1024.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(['K', 'M', 'G', 'T']);
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        other => return Err(format!("{other}: not a unit of K, M, G, T")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{text}: not a number of bytes"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text}: too large"))
}
