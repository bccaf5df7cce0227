//! `casemate ext4 extract`.

use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use serde_json::json;

use casemate::blockdev::{Events, u64_of};
use casemate::ext4::{
    ExtractOptions, Failure, FileSystem, FileType, Inode, Pattern, RescueFolder, Selection, Target,
};
use casemate::{Code, Error, Output};

use super::cat::copy_to_output;
use super::image::{ImageArgs, Verity};
use crate::answer::Answer;
use crate::context::{Context, Failures, error_value};

/// Copy a tree out of an image, into a folder or a tar stream, or one file.
///
/// Holes, modes, times, hard links and extended attributes are kept; owners too in a tar stream, and elsewhere if root asks.
/// The command names all that it can't restore. A group whose ACL is left out, or can't be restored, gets what the ACL gave it, not
/// the ACL's mask. A file that can't be read, or does not match its fs-verity tree, is named and left out. The folder must
/// be new or empty, unless --merge or --overwrite is given.
///
/// Patterns are those of .gitignore: * and ? and [a-z] in one name, ** for any directories. A pattern without a slash
/// matches names at any depth; one with a slash matches paths from the top of the copied tree. A slash at its end
/// matches directories only. A matching directory includes its contents.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate ext4 extract root.img copy --fscrypt-key master.key\n\
    \x20 casemate ext4 extract root.img --path=/etc - | tar -tv\n\
    \x20 casemate ext4 extract root.img logs --include=/var/log --include='/etc/*.conf' --exclude='*.gz'\n\
    \x20 casemate ext4 extract --dm-verity root.verity @root.hash.txt root.img etc --path=/etc")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,
    /// The folder to copy into; created if missing. "-" is a tar stream to standard output.
    #[arg(value_name = "DIR", required_unless_present = "tar")]
    folder: Option<PathBuf>,
    /// Write a tar stream to this file instead; "-" is standard output.
    #[arg(long, value_name = "FILE", conflicts_with = "folder")]
    tar: Option<PathBuf>,
    /// Copy the contents of this directory of the image, or this file: to the file DIR, or into DIR if it is a folder.
    #[arg(long, value_name = "PATH", default_value = "/")]
    path: OsString,
    /// Copy only paths that match this pattern, and the directories above them. May be repeated.
    #[arg(long, value_name = "PATTERN", value_parser = pattern)]
    include: Vec<Pattern>,
    /// Leave out paths that match this pattern, also if --include matches them. May be repeated.
    #[arg(long, value_name = "PATTERN", value_parser = pattern)]
    exclude: Vec<Pattern>,
    /// Add to a folder that is not empty. Existing files stay, with a note.
    #[arg(long, conflicts_with = "tar")]
    merge: bool,
    /// Add to a folder that is not empty, and replace existing files. Folders stay.
    #[arg(long)]
    overwrite: bool,
    /// Give files to the user who runs this, not to their owners.
    #[arg(long)]
    no_owners: bool,
    /// Leave extended attributes out.
    #[arg(long)]
    no_xattrs: bool,
    /// Check fs-verity files: require refuses files without it, check verifies files that have it, ignore skips the
    /// check. (--dm-verity verifies the device below.)
    #[arg(long, alias = "verity", value_name = "DEMAND", value_enum, default_value_t)]
    fsverity: Verity,
    /// Copy instead what a copy of the whole image leaves out, as no sound name leads to it: files and trees whose inodes are in
    /// use. Each is called # and its number, as e2fsck calls it in lost+found. Kinds of files are guesses. DIR becomes its
    /// owner's alone: nobody knows who could reach them.
    #[arg(long, conflicts_with_all = ["tar", "path", "include", "exclude", "merge", "overwrite"])]
    unreachable: bool,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        // As in tar: a folder of this name can be written ./-
        let tar = self.tar.as_deref().or(self.folder.as_deref().filter(|folder| *folder == Path::new("-")));
        if tar.is_some() && self.overwrite {
            return Err(Error::argument("--overwrite is for folders"));
        }
        let fs = self.image.open_with(self.fsverity, context)?;
        if let (true, Some(folder)) = (self.unreachable, &self.folder) {
            return self.unreachable(&fs, folder, context);
        }
        let inode = fs.metadata(&self.path)?;
        let selection = Selection { include: self.include.clone(), exclude: self.exclude.clone() };
        if let (false, None, Some(folder)) = (inode.is_dir(), tar, &self.folder) {
            if !selection.is_everything() {
                return Err(Error::argument("--include and --exclude are for directories"));
            }
            return self.one(&fs, &inode, folder, context);
        }
        if let (None, Some(folder), false) = (tar, &self.folder, self.merge || self.overwrite) {
            self.check_empty(&fs, folder)?;
        }
        let progress = context.progress(fs.name(), fs.used_bytes());
        let options = self.options(selection, context);
        let work = context.work(context.providers().clone(), &progress);
        let copy = |target: Target<'_>| fs.extract(&self.path, target, &options, &work);
        let report = match (tar, &self.folder) {
            (Some(file), _) if file == Path::new("-") => {
                let mut out = BufWriter::with_capacity(1 << 20, context.output_of_data()?);
                copy(Target::Tar(&mut out))?
            }
            (Some(file), _) => {
                let output = Output::create(file, &[self.image.file()])?;
                self.image.narrow(&output)?;
                let mut out = BufWriter::with_capacity(1 << 20, output);
                let report = copy(Target::Tar(&mut out))?;
                out.flush().map_err(|error| Error::io(file.display(), error))?;
                let output =
                    out.into_inner().map_err(|error| Error::io(file.display(), error.into_error()))?;
                output.commit()?;
                report
            }
            // OK to unwrap: the folder is required where no tar file is named.
            (None, folder) => copy(Target::Folder(folder.as_deref().unwrap()))?,
        };
        drop(progress);
        let failed = !report.failures.is_empty();
        if !self.include.is_empty() && !failed && report.files + report.others == 0 && report.directories < 2
        {
            return Err(Error::argument("nothing there matches --include"));
        }
        if matches!(self.fsverity, Verity::Require) && !failed && report.files == 0 {
            let text = "--fsverity require: there is no file that it could be demanded of";
            return Err(Error::argument(text).at(fs.name()));
        }
        let taken = |failure: &&Failure| failure.error.code() == Code::Exists;
        let taken = report.failures.iter().filter(taken).count();
        let mut failures = Vec::new();
        for failure in report.failures {
            let path = format!("/{}", String::from_utf8_lossy(&failure.path));
            let error = failure.error.within(&path);
            context.complain(&error);
            failures.push(json!({"path": path, "error": error_value(&error), "partial": failure.partial}));
        }
        if report.failures_left_out > 0 {
            context.complain(&Error::corrupt(format!("{} more failures", report.failures_left_out)));
        }
        if taken > 0 {
            context
                .note(&format!("names that are taken already: {taken}; --overwrite replaces what has them"));
        }
        let not_copied = u64_of(failures.len()) + report.failures_left_out;
        if not_copied > u64_of(taken) {
            let paths = if not_copied == 1 { "path" } else { "paths" };
            let text = format!(
                "not copied, or only in part: {not_copied} {paths}, with all below those that are folders; --unreachable copies files \
                 without a name, --ignore-checksums reads what has a wrong checksum"
            );
            context.note(&text);
        }
        if context.json() && tar != Some(Path::new("-")) {
            context.print_json(&json!({
                "files": report.files,
                "directories": report.directories,
                "others": report.others,
                "bytes": report.bytes,
                "failures": failures,
                "failures_left_out": report.failures_left_out,
            }))?;
        }
        let (files, folder) = (report.files, self.folder.as_deref().or(tar).unwrap_or(Path::new("")));
        context.done(format_args!("{}: {files} files, {} bytes", folder.display(), report.bytes));
        Ok(if failed { Answer::Failed } else { Answer::Yes })
    }

    /// Copies what no name leads to.
    fn unreachable(&self, fs: &FileSystem, folder: &Path, context: &Context) -> Result<Answer, Error> {
        if folder == Path::new("-") {
            return Err(Error::argument("--unreachable is for folders"));
        }
        self.check_empty(fs, folder)?;
        let progress = context.progress(fs.name(), fs.check_size());
        let found = fs.unreachable_inodes(&context.work(context.providers().clone(), &progress))?;
        drop(progress);
        let made = RescueFolder::make(folder)?;
        super::undelete::note_open(&made, context);
        let mut failures = Failures::default();
        super::undelete::tell_unread(found.unread, fs, &mut failures, context);
        let options = self.options(Selection::default(), context);
        let work = context.opening();
        for inode in &found.tops {
            let number = inode.number();
            let (target, path) = (folder.join(format!("#{number}")), format!("<{number}>"));
            let copied = match inode.kind() {
                FileType::Directory => {
                    fs.extract(&path, Target::Folder(&target), &options, &work).map(|report| {
                        for failure in report.failures {
                            let path = format!("{path}/{}", String::from_utf8_lossy(&failure.path));
                            failures.add(context, failure.error.within(&path));
                        }
                        report.bytes
                    })
                }
                FileType::Regular => fs.open_inode(inode).and_then(|file| {
                    let mut output = Output::create(&target, &[self.image.file()])?;
                    copy_to_output(&*file, |error| fs.error(&path, error), &mut output)?;
                    for error in fs.restore(inode, &output, &options) {
                        failures.add(context, error.within(&path));
                    }
                    output.commit()?;
                    Ok(file.size())
                }),
                other => {
                    let text = format!("inode {number}: a {}, which is not copied", other.name());
                    Err(Error::unsupported(text).at(fs.name()))
                }
            };
            let bytes = match copied {
                Ok(bytes) => bytes,
                Err(error) => {
                    failures.add(context, error);
                    continue;
                }
            };
            let guess = fs.guess(inode);
            if context.json() {
                context.print_json(&json!({
                    "inode": number.get(),
                    "type": inode.kind().name(),
                    "size": inode.size(),
                    "bytes": bytes,
                    "guess": guess,
                    "target": target.to_string_lossy(),
                }))?;
            } else {
                let guess = guess.map(|guess| format!(", perhaps {guess}")).unwrap_or_default();
                let kind = inode.kind().name();
                context.print(format!("{}: {kind}, {bytes} bytes{guess}\n", target.display()))?;
            }
        }
        if found.left_out > 0 {
            let text = format!("{} more inodes were left out", found.left_out);
            failures.add(context, Error::unsupported(text).at(fs.name()));
        }
        context.done(format_args!("{}: {} files and trees", folder.display(), found.tops.len()));
        failures.finish()
    }

    /// Refuses a folder that has something in it: it may be named by mistake, as other commands name a path of the image there.
    fn check_empty(&self, fs: &FileSystem, folder: &Path) -> Result<(), Error> {
        let Ok(mut entries) = folder.read_dir() else { return Ok(()) };
        // A file system that was just made has that.
        if entries.all(|entry| entry.is_ok_and(|entry| entry.file_name() == "lost+found")) {
            return Ok(());
        }
        let name = folder.display();
        let mut text = format!("{name}: this folder of the host has something in it; --merge adds to it");
        if folder.is_absolute() && fs.metadata(folder).is_ok() {
            text += &format!("; --path {name} and a folder that is new or empty copy {name} of the image");
        }
        Err(Error::argument(text))
    }

    /// Options of the copy.
    fn options(&self, selection: Selection, context: &Context) -> ExtractOptions {
        let mut options = ExtractOptions::default();
        options.owners = !self.no_owners;
        options.xattrs = !self.no_xattrs;
        options.overwrite = self.overwrite;
        options.kept = context.named().to_vec();
        options.selection = selection;
        options
    }

    /// Copies one file, into a folder that is there or to a file that is called so. It is there whole or not at all.
    fn one(&self, fs: &FileSystem, inode: &Inode, target: &Path, context: &Context) -> Result<Answer, Error> {
        let name = Path::new(&self.path).file_name().unwrap_or_default();
        let target = if target.is_dir() { target.join(name) } else { target.to_owned() };
        let mut output = Output::create(&target, &[self.image.file()])?;
        if !self.overwrite && target.is_file() {
            let text = format!("{}: exists; use --overwrite to replace it", target.display());
            return Err(Error::argument(text));
        }
        copy_to_output(&*fs.open(&self.path)?, |error| fs.error(&self.path, error), &mut output)
            .map_err(|error| error.at(target.display()))?;
        let missing = fs.restore(inode, &output, &self.options(Selection::default(), context));
        output.commit()?;
        let path = self.path.to_string_lossy();
        let mut failures = Vec::new();
        for error in missing {
            let error = error.within(&path);
            context.complain(&error);
            failures.push(json!({"path": path, "error": error_value(&error), "partial": true}));
        }
        let answer = if failures.is_empty() { Answer::Yes } else { Answer::Failed };
        if context.json() {
            context.print_json(&json!({
                "files": 1, "directories": 0, "others": 0, "bytes": inode.size(), "failures": failures,
                "failures_left_out": 0,
            }))?;
        }
        context.done(format_args!("{}: {} bytes", target.display(), inode.size()));
        Ok(answer)
    }
}

/// Reads a pattern of paths.
fn pattern(text: &str) -> Result<Pattern, String> {
    Pattern::new(text.as_bytes()).map_err(|error| error.to_string())
}
