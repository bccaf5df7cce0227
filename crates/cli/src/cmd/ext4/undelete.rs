//! `casemate ext4 undelete`, and the list of deleted files that `ls --deleted -l` shows.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use casemate::Error;
use casemate::blockdev::os::OsStrExt;
use casemate::ext4::{
    Deleted, DeletedFile, DeletedSource, FileSystem, FileType, Pattern, RescueFolder, Time, Unread,
    place_below,
};

use super::entry::{path_value, short_time, shown};
use super::image::{ImageArgs, Verity};
use crate::answer::Answer;
use crate::context::{Context, Failures};
use crate::streams::visible;

/// Copy deleted files out of an image, as far as they can be recovered.
///
/// Linux clears a file's map when it deletes the file. The journal may still have a copy of the map from before; other tools leave
/// the map in the inode. Names are those that directories, or their copies in the journal, still have. A file without one is called
/// # and its inode's number, and so is one that may have had several names, as other files had its inode's number, too: they are told.
///
/// A file is likely whole if its map is, all its blocks are free, nothing is known to have used them since, and it matches its
/// fs-verity tree if it has one. The journal's copies of maps, of bitmaps and of the blocks themselves show later uses, as do files that
/// were deleted later. Files with blocks that are in use again, or were, or whose bitmap is damaged, are named, and are copied with
/// --doubtful; so are files since whose last copy the journal misses transactions. Symbolic links become text files that hold their
/// targets; directories are made where their names are known. The exit status is 1 if not all files that were asked for were copied,
/// or one of them is doubtful. It is 2 if something could not be read, where there may be more.
///
/// DIR becomes its owner's alone, as nobody knows for sure who could reach the files; folders in it have the permissions of their
/// directories.
///
/// Stop using a file system from which you want to recover files. ext4 ls --deleted -l lists them.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate ext4 ls --deleted -l root.img\n\
    \x20 casemate ext4 undelete root.img found")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,
    /// The folder to copy into: new or empty.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Copy only these: patterns of paths, as ext4 extract has them, or the number of an inode, as <12> [default: all].
    #[arg(value_name = "WHAT")]
    what: Vec<OsString>,
    /// Copy files, too, of which some blocks are in use again, or were another deleted file's.
    #[arg(long)]
    doubtful: bool,
}

/// A choice of deleted files.
enum What {
    Inode(u32),
    Matching(Pattern),
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let what = self.what.iter().map(choice).collect::<Result<Vec<_>, _>>()?;
        let fs = self.image.open_with(Verity::default(), context)?;
        if fs::read_dir(&self.folder).is_ok_and(|mut entries| entries.next().is_some()) {
            let text = format!("{}: this folder has something in it", self.folder.display());
            return Err(Error::argument(text));
        }
        let deleted = search(&fs, context)?;
        let is_meant = |file: &&DeletedFile| {
            let is_dir = file.inode.is_dir();
            what.is_empty()
                || what.iter().any(|what| match what {
                    What::Inode(number) => file.inode.number().get() == *number,
                    What::Matching(pattern) => {
                        let paths = file.paths.iter().chain(&file.possible_paths);
                        paths.into_iter().any(|path| pattern.matches(&path[1..], is_dir))
                    }
                })
        };
        let mut failures = Failures::default();
        tell_unread(deleted.unread, &fs, &mut failures, context);
        let (folders, files): (Vec<_>, Vec<_>) =
            deleted.files.iter().filter(is_meant).partition(|file| file.inode.is_dir());
        if files.is_empty() && folders.is_empty() && !what.is_empty() {
            return Err(Error::argument("no deleted file is called so").at(fs.name()));
        }
        let mut made = RescueFolder::make(&self.folder)?;
        note_open(&made, context);
        let mut taken = HashSet::new();
        let (mut copied, mut is_sure, mut bytes) = (0_u64, true, 0);
        for file in files {
            let judged = Judged::new(file, &fs, context)?;
            let verdict = judged.verdict;
            let is_copied = verdict == Verdict::Likely || self.doubtful && verdict == Verdict::Doubtful;
            is_sure &= verdict == Verdict::Likely;
            let mut target = None;
            if is_copied {
                let (place, way) = place(&self.folder, file, &mut taken);
                match made.make_way(&place, way).and_then(|()| fs.undelete(file, &place)) {
                    Ok(len) => {
                        bytes += len;
                        copied += 1;
                        target = Some(place);
                    }
                    Err(error) => failures.add(context, error),
                }
            }
            tell(&judged, target.as_deref(), context)?;
        }
        // A directory without a name has nothing that a file in it does not tell.
        for folder in folders {
            let named = named(&self.folder, folder).filter(|(place, _)| is_free(place, &taken));
            let Some((place, way)) = named else { continue };
            if let Err(error) = made.make_folder(&place, way, folder.mode_without_acl()) {
                failures.add(context, error);
            }
        }
        if let Err(error) = made.finish() {
            failures.add(context, error);
        }
        note_left_out(deleted.left_out, context);
        let folder = self.folder.display();
        context.done(format_args!("{folder}: {copied} files, {bytes} bytes"));
        match (failures.finish()?, is_sure) {
            (Answer::Yes, false) => Ok(Answer::Incomplete),
            (answer, _) => Ok(answer),
        }
    }
}

fn tell(judged: &Judged<'_>, target: Option<&Path>, context: &Context) -> Result<(), Error> {
    if context.json() {
        let mut value = value(judged);
        value["target"] = target.map(|target| target.to_string_lossy().into_owned()).into();
        return context.print_json(&value);
    }
    let is_link = judged.file.inode.kind() == FileType::Symlink;
    let place = match target {
        Some(target) if is_link => {
            format!("{} (a text, the target of the symbolic link): ", visible(&target.to_string_lossy()))
        }
        Some(target) => format!("{}: ", visible(&target.to_string_lossy())),
        None => "not copied: ".to_owned(),
    };
    context.print([place.as_bytes(), &line(judged), b"\n"].concat())
}

/// Reads what to copy.
fn choice(text: &OsString) -> Result<What, Error> {
    let bytes = text.as_bytes();
    let number = bytes.strip_prefix(b"<").and_then(|rest| rest.strip_suffix(b">"));
    if let Some(number) = number.and_then(|number| str::from_utf8(number).ok()?.parse().ok()) {
        return Ok(What::Inode(number));
    }
    Pattern::new(bytes).map(What::Matching)
}

fn search(fs: &FileSystem, context: &Context) -> Result<Deleted, Error> {
    let progress = context.progress(fs.name(), fs.check_size());
    fs.deleted_files(&context.work(context.providers().clone(), &progress))
}

/// Tells what a search of an image could not read: it did only part of its work.
pub fn tell_unread(unread: Unread, fs: &FileSystem, failures: &mut Failures, context: &Context) {
    for error in unread.errors {
        failures.add(context, error.at(fs.name()));
    }
    if unread.left_out > 0 {
        let text = format!("{} more places that could not be read", unread.left_out);
        failures.add(context, Error::corrupt(text).at(fs.name()));
    }
}

fn note_left_out(left_out: u64, context: &Context) {
    use casemate::blockdev::Events as _;
    if left_out > 0 {
        context.note(&format!("{left_out} more files, or copies of them, were left out"));
    }
}

/// Tells that others can read what is copied into a folder.
pub fn note_open(folder: &RescueFolder, context: &Context) {
    use casemate::blockdev::Events as _;
    if let Some(error) = folder.open_to_others() {
        context.note(&format!("{error}: who can enter this folder can read files that were private"));
    }
}

/// A file's place in the folder, which no other file has, and the permissions of the folders that lead there.
fn place<'a>(folder: &Path, file: &'a DeletedFile, taken: &mut HashSet<PathBuf>) -> (PathBuf, &'a [u16]) {
    let number = file.inode.number();
    let named = named(folder, file);
    let numbered = (0..).map(|again| match again {
        0 => folder.join(format!("#{number}")),
        _ => folder.join(format!("#{number}.{again}")),
    });
    let mut places = named.into_iter().chain(numbered.map(|place| (place, &[][..])));
    // OK to unwrap: there is no end of numbers.
    let (place, way) = places.find(|(place, _)| is_free(place, taken)).unwrap();
    taken.insert(place.clone());
    (place, way)
}

/// The place of the likeliest path that a file of the host can have, and the permissions of the folders that lead there.
fn named<'a>(folder: &Path, file: &'a DeletedFile) -> Option<(PathBuf, &'a [u16])> {
    let mut paths = file.paths.iter().zip(&file.ways);
    paths.find_map(|(path, way)| Some((place_below(folder, path)?, &way[..])))
}

/// Whether a file can lie there. A name that is a folder of another file's path can't be a file's, too.
fn is_free(place: &Path, taken: &HashSet<PathBuf>) -> bool {
    !taken.contains(place) && !place.exists() && place.ancestors().skip(1).all(|above| !above.is_file())
}

/// How sure it is that contents are those of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Likely,
    Doubtful,
    Lost,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Verdict::Likely => "likely whole",
            Verdict::Doubtful => "doubtful",
            Verdict::Lost => "lost",
        }
    }
}

/// A deleted file, and how sure its contents are.
struct Judged<'a> {
    file: &'a DeletedFile,
    verdict: Verdict,
    /// Why they are not sure.
    why: Option<String>,
}

impl<'a> Judged<'a> {
    fn new(file: &'a DeletedFile, fs: &FileSystem, context: &Context) -> Result<Judged<'a>, Error> {
        let blocks = file.blocks;
        let (verdict, why) = match file.inode.kind() {
            FileType::Regular | FileType::Symlink | FileType::Directory => match file.source {
                DeletedSource::MapGone => (Verdict::Lost, "the map of its blocks is gone".to_owned()),
                _ if !blocks.is_map_whole => (Verdict::Lost, "its map is damaged".to_owned()),
                _ if blocks.in_use > 0 => {
                    let text = format!("{} of {} blocks are in use again", blocks.in_use, blocks.all);
                    (Verdict::Doubtful, text)
                }
                _ if blocks.unknown > 0 => {
                    let (unknown, all) = (blocks.unknown, blocks.all);
                    let text = format!(
                        "a damaged block bitmap does not tell whether {unknown} of {all} blocks are free"
                    );
                    (Verdict::Doubtful, text)
                }
                _ if blocks.shared > 0 => {
                    (Verdict::Doubtful, format!("{} of {} blocks were used again", blocks.shared, blocks.all))
                }
                _ if blocks.has_gap && blocks.all > 0 => {
                    let text = "the journal misses transactions since: something may have used its blocks"
                        .to_owned();
                    (Verdict::Doubtful, text)
                }
                _ => match fs.contradiction(file, &context.opening())? {
                    Some(error) => (Verdict::Doubtful, error.to_string()),
                    None => return Ok(Judged { file, verdict: Verdict::Likely, why: None }),
                },
            },
            other => (Verdict::Lost, format!("a {} has no contents", other.name())),
        };
        Ok(Judged { file, verdict, why: Some(why) })
    }
}

/// All deleted files, in a list.
pub fn list(fs: &FileSystem, context: &Context) -> Result<Answer, Error> {
    let deleted = search(fs, context)?;
    for file in &deleted.files {
        let judged = Judged::new(file, fs, context)?;
        match context.json() {
            true => context.print_json(&value(&judged))?,
            false => context.print([&line(&judged)[..], b"\n"].concat())?,
        }
    }
    note_left_out(deleted.left_out, context);
    let mut failures = Failures::default();
    tell_unread(deleted.unread, fs, &mut failures, context);
    failures.finish()
}

/// A deleted file in a line: the inode, when it was deleted, its size, how sure it is, and its name.
fn line(judged: &Judged<'_>) -> Vec<u8> {
    let file = judged.file;
    let inode = &file.inode;
    let time = match file.deleted {
        Some(seconds) => short_time(Time { seconds: seconds.into(), nanoseconds: 0 }),
        None => "unknown time".to_owned(),
    };
    let why = judged.why.as_ref().map(|why| format!(" ({})", visible(why))).unwrap_or_default();
    let source = match file.source {
        DeletedSource::Journal(transaction) => format!("from journal {transaction}, "),
        DeletedSource::Inode => "from inode, ".to_owned(),
        DeletedSource::MapGone => String::new(),
    };
    let size = inode.size();
    let verdict = judged.verdict.name();
    let head = format!(
        "<{}> {time} {} {size} bytes, {source}{verdict}{why} ",
        inode.number(),
        inode.kind().letter()
    );
    let mut line = head.into_bytes();
    let others: Vec<Vec<u8>> = other_paths(file).map(|path| shown(path)).collect();
    match (file.paths.first(), others.is_empty()) {
        (Some(path), true) => line.extend(shown(path)),
        (Some(path), false) => {
            line.extend([&shown(path), &b" (or "[..], &others.join(&b", "[..]), b")"].concat())
        }
        (None, true) => line.extend(b"(no name)"),
        (None, false) => line.extend([b"(no name, perhaps ", &others.join(&b" or "[..])[..], b")"].concat()),
    }
    line
}

/// The paths that a file may have had, too.
fn other_paths(file: &DeletedFile) -> impl Iterator<Item = &Vec<u8>> {
    file.paths.iter().skip(1).chain(&file.possible_paths)
}

fn value(judged: &Judged<'_>) -> Value {
    let file = judged.file;
    let inode = &file.inode;
    let mut value = match file.paths.first() {
        Some(path) => path_value(path),
        None => json!({"path": null}),
    };
    let (source, transaction) = match file.source {
        DeletedSource::Journal(transaction) => (Some("journal"), Some(transaction)),
        DeletedSource::Inode => (Some("inode"), None),
        DeletedSource::MapGone => (None, None),
    };
    let others = other_paths(file).map(|path| String::from_utf8_lossy(path).into_owned());
    value["other_paths"] = others.collect::<Vec<_>>().into();
    value["inode"] = inode.number().get().into();
    value["generation"] = inode.generation().into();
    value["type"] = inode.kind().name().into();
    value["mode"] = format!("{:04o}", inode.mode() & 0o7777).into();
    value["uid"] = inode.uid().into();
    value["gid"] = inode.gid().into();
    value["size"] = inode.size().into();
    value["deleted"] = file.deleted.into();
    value["source"] = source.into();
    value["transaction"] = transaction.into();
    value["blocks"] = file.blocks.all.into();
    value["blocks_in_use"] = file.blocks.in_use.into();
    value["blocks_unknown"] = file.blocks.unknown.into();
    value["blocks_shared"] = file.blocks.shared.into();
    value["verdict"] = judged.verdict.name().into();
    value["why"] = judged.why.clone().into();
    value
}
