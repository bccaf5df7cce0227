//! Options and steps that all commands share that change an image.

use std::path::{Path, PathBuf};

use clap::ValueHint;
use serde_json::json;
use tempfile::TempDir;

use casemate::ext4::{
    FileSystem, FileType, Inode, IntoNames, NewNode, PutReport, ReadOptions, SeenDirectories, WriteOptions,
    Writer, source_date_epoch,
};
use casemate::image_spec::{ImageSpec, LayerSpec};
use casemate::verity::Seed;
use casemate::{Access, Error, Image, probe};

use super::entry::join;
use super::keys::KeyArgs;
use crate::answer::Answer;
use crate::cmd::explained::explained;
use crate::cmd::layers::{Asking, CryptArgs, DECRYPTION, file_system, spec_parser};
use crate::cmd::place::PartArgs;
use crate::context::Context;

/// Which file system is changed, and how reproducibly.
#[derive(clap::Args, Debug)]
pub struct ChangeArgs {
    /// The image: a file or block device, or with the layers on it, such as disk.img,partition=2,luks,key-file=pw.
    #[arg(value_name = "IMAGE", value_parser = spec_parser(), value_hint = ValueHint::FilePath)]
    image: ImageSpec,
    #[command(flatten)]
    part: PartArgs,
    /// Derive random numbers (inode generations, nonces of encrypted files) from this number or text. With
    /// SOURCE_DATE_EPOCH in the environment the same change then gives the same image. Files with equal key and nonce
    /// reveal where their contents are equal: never reuse a seed for other contents under the same key.
    #[arg(long, value_name = "SEED")]
    seed: Option<String>,
    /// Recovery file that keeps a change of a file system without a journal until it is complete [default:
    /// IMAGE.casemate-redo]. Through dm-crypt such file systems are refused: the file would hold names and structures
    /// in plain text.
    #[arg(long, value_name = "FILE", conflicts_with = DECRYPTION)]
    recovery_file: Option<PathBuf>,
    /// Do everything except writing to the image; the changes go to a temporary file.
    #[arg(short = 'n', long)]
    dry_run: bool,
    #[command(flatten)]
    keys: KeyArgs,
    #[command(flatten)]
    crypt: CryptArgs,
}

/// A file system that is being changed.
pub struct Change {
    pub writer: Writer,
    /// Where a dry run writes to.
    _scratch: Option<TempDir>,
}

/// An image whose file system is about to be changed.
pub struct Prepared {
    pub image: Image,
    pub options: WriteOptions,
    /// Where a dry run writes to.
    pub scratch: Option<TempDir>,
}

impl ChangeArgs {
    /// The image's file.
    pub fn file(&self) -> &Path {
        self.image.file()
    }

    /// Opens the file system for changes; an interrupted change is completed first.
    pub fn open(&self, context: &Context) -> Result<Change, Error> {
        let Prepared { image, options, scratch } = self.prepare(context)?;
        let writer = image.ext4_writer(&options, &context.opening());
        let writer = writer.map_err(|error| explained(error, &image, probe::EXT))?;
        Ok(Change { writer, _scratch: scratch })
    }

    /// Opens the image, and says how its file system is changed.
    pub fn prepare(&self, context: &Context) -> Result<Prepared, Error> {
        let access = if self.dry_run { Access::Read } else { Access::Change };
        let spec = self.part.under(&self.image, self.crypt.specs()?)?;
        let is_part = spec.parts().1.is_empty();
        if self.recovery_file.is_some() && spec.layers().iter().any(LayerSpec::is_decryption) {
            let text = "--recovery-file is not for an image that is decrypted: names and structures would lie there in plain text";
            return Err(Error::argument(text).at(self.file().display()));
        }
        let mut image = spec.open_part(access, false)?;
        let mut options = WriteOptions::default();
        options.recovery_file = self.recovery_file.clone();
        let scratch = self.dry_run.then(TempDir::new).transpose();
        let scratch = scratch.map_err(|error| Error::io("the temporary folder", error))?;
        if let Some(scratch) = &scratch {
            // Below what decrypts, so that nothing lies there in plain text.
            let completed = image.completed(self.recovery_file.as_deref(), context.providers())?;
            image = completed.unwrap_or(image);
            image = image.on_trial()?;
            options.recovery_file = is_part.then(|| scratch.path().join("recovery"));
        }
        image = spec.lay(image, &Asking::of(context))?;
        let file_system = file_system(&self.image, self.keys.spec())?;
        options.keys = file_system.keys()?;
        options.superblock = file_system.superblock;
        options.seed = self.seed.as_deref().map(|text| seed(text, context)).transpose()?;
        options.time = source_date_epoch()?;
        Ok(Prepared { image, options, scratch })
    }

    /// Whether nothing is written.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// Opens the image for reading. Options of changes are refused.
    fn image_to_read(&self, context: &Context) -> Result<(Image, ReadOptions), Error> {
        if self.dry_run || self.seed.is_some() {
            return Err(Error::argument("--dry-run and --seed are for changes, and nothing is changed"));
        }
        let spec = self.part.under(&self.image, self.crypt.specs()?)?;
        let image = spec.lay(spec.open_part(Access::ReadUnlocked, true)?, &Asking::of(context))?;
        let file_system = file_system(&self.image, self.keys.spec())?;
        let mut options = ReadOptions::default();
        options.keys = file_system.keys()?;
        options.superblock = file_system.superblock;
        options.recovery_file = self.recovery_file.clone();
        Ok((image, options))
    }

    /// Opens the file system for reading. Options of changes are refused.
    pub fn open_to_read(&self, context: &Context) -> Result<FileSystem, Error> {
        let (image, options) = self.image_to_read(context)?;
        let fs = image.ext4(&options, &context.opening());
        fs.map_err(|error| explained(error, &image, probe::EXT))
    }

    /// The fewest bytes that the file system may have. Options of changes are refused.
    pub fn least_size(&self, context: &Context) -> Result<u64, Error> {
        let (image, options) = self.image_to_read(context)?;
        let size = image.ext4_least_size(&options, &context.opening());
        size.map_err(|error| explained(error, &image, probe::EXT))
    }

    /// Opens the file system, changes it, and makes that permanent: all at once or not at all, but for what goes in
    /// steps.
    pub fn change(
        &self,
        context: &Context,
        f: impl FnOnce(&mut Writer) -> Result<(), Error>,
    ) -> Result<Answer, Error> {
        self.change_with(context, f)?;
        self.print_change(context)?;
        Ok(Answer::Yes)
    }

    /// Changes the file system as [`ChangeArgs::change`] does, and returns what `f` returned: for commands that print
    /// more.
    pub fn change_with<T>(
        &self,
        context: &Context,
        f: impl FnOnce(&mut Writer) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let done = self.whole(self.open(context)?, context, f)?;
        self.done(context, "changed");
        Ok(done)
    }

    /// Changes an open file system, and makes that permanent. What fails leaves no inode without a name behind, which committed
    /// steps of a large change may have made.
    pub fn whole<T>(
        &self,
        mut change: Change,
        context: &Context,
        f: impl FnOnce(&mut Writer) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let done = f(&mut change.writer).and_then(|done| {
            self.place(change.writer.commit())?;
            change.writer.tell_cut_times(context.opening().events);
            Ok(done)
        });
        if done.is_err() {
            // Where that fails it waits for whoever opens the file system next.
            let _ = change.writer.abandon();
        }
        done
    }

    /// For programs: what was changed, or would be.
    pub fn print_change(&self, context: &Context) -> Result<(), Error> {
        match context.json() {
            true => {
                context.print_json(&json!({"image": self.file().to_string_lossy(), "dry_run": self.dry_run}))
            }
            false => Ok(()),
        }
    }

    /// Reports that the change is made, or would be in a dry run.
    pub fn done(&self, context: &Context, what: &str) {
        context.done_or_tried(self.dry_run, self.file(), what);
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
        result.map_err(|error| error.at(self.file().display()))
    }
}

/// Changes the inode of a path and, with `recursive`, of all paths below it, directories before what is in them. Links
/// are not followed but, where `follow` says so, at the first path's own end.
///
/// # Errors
/// Errors of reading a directory, of `change`, and of directories that lie within themselves.
pub fn each(
    writer: &mut Writer,
    top: &[u8],
    recursive: bool,
    mut follow: bool,
    mut change: impl FnMut(&mut Writer, &[u8], &Inode) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut seen = SeenDirectories::new();
    // With a stack of its own: an image may nest deeper than ours is. Paths of directories and, of each, what is still to
    // come below.
    let mut levels: Vec<(Vec<u8>, IntoNames)> = Vec::new();
    let mut next = Some(top.to_vec());
    while let Some(path) = next.take().or_else(|| next_below(&mut levels)) {
        let inode = writer.fs().resolve(&path, std::mem::take(&mut follow))?;
        change(writer, &path, &inode)?;
        if !recursive || !inode.is_dir() {
            continue;
        }
        seen.enter(writer.fs(), &path, &inode)?;
        let names = writer.fs().names(&inode)?;
        levels.push((path, names.into_iter()));
    }
    Ok(())
}

/// The next path of a walk.
fn next_below(levels: &mut Vec<(Vec<u8>, IntoNames)>) -> Option<Vec<u8>> {
    loop {
        let (folder, rest) = levels.last_mut()?;
        match rest.next() {
            Some(entry) => return Some(join(folder, &entry.name)),
            None => drop(levels.pop()),
        }
    }
}

/// A new file or directory of root's, with these permission bits; with the usual ones if `None`, or those that a
/// default ACL says.
pub fn node(mode: Option<u16>, usual: u16) -> NewNode {
    let (mode, umask) = mode.map_or((usual, 0o022), |mode| (mode, 0));
    let mut node = NewNode::new(mode);
    node.umask = umask;
    node
}

/// Prints what was put into an image, where JSON is wanted.
pub fn print_report(context: &Context, change: &ChangeArgs, report: &PutReport) -> Result<(), Error> {
    if context.json() {
        context.print_json(&json!({
            "image": change.file().to_string_lossy(),
            "dry_run": change.dry_run,
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

/// A seed that is a number, or the beginning of the UUID that a text stands for.
fn seed(text: &str, context: &Context) -> Result<u64, Error> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let digits = Seed::from_text(text).uuid(context.providers())?.to_string().replace('-', "");
    u64::from_str_radix(&digits[..16], 16).map_err(|_| Error::argument("--seed: no number of a UUID"))
}
