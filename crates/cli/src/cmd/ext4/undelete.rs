//! `casemate ext4 undelete`, and the list of deleted files that `ls --deleted -l` shows.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use casemate::Error;
use casemate::blockdev::os::OsStrExt;
use casemate::ext4::{Deleted, DeletedFile, DeletedSource, FileSystem, FileType, Pattern, Time, place_below};

use super::entry::{path_value, short_time, shown};
use super::image::ImageArgs;
use crate::answer::Answer;
use crate::context::{Context, Failures};
use crate::streams::visible;

/// Copy deleted files out of an image, as far as they can be had back.
///
/// Linux clears a file's map when it deletes the file. The journal may still have a copy of the map from before; other tools leave
/// the map in the inode. Names are those that directories, or their copies in the journal, still have; a file without one is called
/// # and its inode's number.
///
/// A file is likely whole if its map is, and all its blocks are free. Nothing tells whether a free block was used by another file
/// for a while. Files with blocks that are in use again are named, and are copied with --doubtful. The exit status is 1 if not
/// all files that were asked for were copied, or one of them is doubtful.
///
/// Stop using a file system from which files are to be had back. ext4 ls --deleted -l lists them.
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
        let fs = self.image.open(context)?;
        if fs::read_dir(&self.folder).is_ok_and(|mut entries| entries.next().is_some()) {
            let text = format!("{}: this folder has something in it", self.folder.display());
            return Err(Error::argument(text));
        }
        let deleted = search(&fs, context)?;
        fs::create_dir_all(&self.folder).map_err(|error| Error::io(self.folder.display(), error))?;
        let (mut taken, mut failures) = (HashSet::new(), Failures::default());
        let (mut copied, mut is_sure, mut bytes) = (0_u64, true, 0);
        for file in deleted.files.iter().filter(|file| has_contents(file)) {
            let is_meant = |what: &What| match what {
                What::Inode(number) => file.inode.number().get() == *number,
                What::Matching(pattern) => file.paths.iter().any(|path| pattern.matches(&path[1..], false)),
            };
            if !what.is_empty() && !what.iter().any(is_meant) {
                continue;
            }
            let verdict = Verdict::of(file);
            let is_copied = verdict == Verdict::Likely || self.doubtful && verdict == Verdict::Doubtful;
            is_sure &= verdict == Verdict::Likely;
            let mut target = None;
            if is_copied {
                let place = place(&self.folder, file, &mut taken);
                match make_parents(&self.folder, &place).and_then(|()| fs.undelete(file, &place)) {
                    Ok(len) => {
                        bytes += len;
                        copied += 1;
                        target = Some(place);
                    }
                    Err(error) => failures.add(context, error),
                }
            }
            self.tell(file, target.as_deref(), context)?;
        }
        note_left_out(&deleted, context);
        if copied == 0 && !what.is_empty() && is_sure {
            return Err(Error::argument("no deleted file is called so").at(fs.name()));
        }
        let folder = self.folder.display();
        context.done(format_args!("{folder}: {copied} files, {bytes} bytes"));
        match (failures.finish()?, is_sure) {
            (Answer::Yes, false) => Ok(Answer::Incomplete),
            (answer, _) => Ok(answer),
        }
    }

    fn tell(&self, file: &DeletedFile, target: Option<&Path>, context: &Context) -> Result<(), Error> {
        if context.json() {
            let mut value = value(file);
            value["target"] = target.map(|target| target.to_string_lossy().into_owned()).into();
            return context.print_json(&value);
        }
        let place = match target {
            Some(target) => format!("{}: ", visible(&target.to_string_lossy())),
            None => "not copied: ".to_owned(),
        };
        context.print([place.as_bytes(), &line(file), b"\n"].concat())
    }
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

fn has_contents(file: &DeletedFile) -> bool {
    matches!(file.inode.kind(), FileType::Regular | FileType::Symlink)
}

fn note_left_out(deleted: &Deleted, context: &Context) {
    use casemate::blockdev::Events as _;
    if deleted.left_out > 0 {
        context.note(&format!("{} more files, or copies of them, were left out", deleted.left_out));
    }
}

/// A file's place in the folder, which no other file has.
fn place(folder: &Path, file: &DeletedFile, taken: &mut HashSet<PathBuf>) -> PathBuf {
    let number = file.inode.number();
    // A name that is a folder of another file's path can't be a file's, too.
    let is_free = |place: &PathBuf, taken: &HashSet<PathBuf>| {
        !taken.contains(place) && !place.exists() && place.ancestors().skip(1).all(|above| !above.is_file())
    };
    let named = file.paths.iter().find_map(|path| place_below(folder, path));
    let numbered = (0..).map(|again| match again {
        0 => folder.join(format!("#{number}")),
        _ => folder.join(format!("#{number}.{again}")),
    });
    let mut places = named.into_iter().chain(numbered);
    // OK to unwrap: there is no end of numbers.
    let place = places.find(|place| is_free(place, taken)).unwrap();
    taken.insert(place.clone());
    place
}

/// Makes the folders that a place lies in. All of them are ours: the folder was empty.
fn make_parents(folder: &Path, place: &Path) -> Result<(), Error> {
    let parent = place.parent().unwrap_or(folder);
    fs::create_dir_all(parent).map_err(|error| Error::io(parent.display(), error))
}

/// How sure it is that contents are those of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Likely,
    Doubtful,
    Lost,
}

impl Verdict {
    fn of(file: &DeletedFile) -> Verdict {
        match (file.source, file.blocks.is_map_whole) {
            (DeletedSource::MapGone, _) | (_, false) => Verdict::Lost,
            _ if file.is_likely_whole() => Verdict::Likely,
            _ => Verdict::Doubtful,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Verdict::Likely => "likely whole",
            Verdict::Doubtful => "doubtful",
            Verdict::Lost => "lost",
        }
    }
}

/// All deleted files, in a list.
pub fn list(fs: &FileSystem, context: &Context) -> Result<Answer, Error> {
    let deleted = search(fs, context)?;
    for file in &deleted.files {
        match context.json() {
            true => context.print_json(&value(file))?,
            false => context.print([&line(file)[..], b"\n"].concat())?,
        }
    }
    note_left_out(&deleted, context);
    Ok(Answer::Yes)
}

/// A deleted file in a line: the inode, when it was deleted, its size, how sure it is, and its name.
fn line(file: &DeletedFile) -> Vec<u8> {
    let inode = &file.inode;
    let time = match file.deleted {
        Some(seconds) => short_time(Time { seconds: seconds.into(), nanoseconds: 0 }),
        None => "unknown time".to_owned(),
    };
    let blocks = file.blocks;
    let why = match Verdict::of(file) {
        Verdict::Likely => String::new(),
        Verdict::Doubtful if blocks.in_use > 0 => {
            format!(" ({} of {} blocks are in use again)", blocks.in_use, blocks.all)
        }
        Verdict::Doubtful => format!(" ({} of {} blocks were used again)", blocks.shared, blocks.all),
        Verdict::Lost if file.source == DeletedSource::MapGone => " (no map is left)".to_owned(),
        Verdict::Lost => " (its map is damaged)".to_owned(),
    };
    let source = match file.source {
        DeletedSource::Journal(transaction) => format!("journal {transaction}"),
        DeletedSource::Inode => "inode".to_owned(),
        DeletedSource::MapGone => "nothing".to_owned(),
    };
    let size = inode.size();
    let verdict = Verdict::of(file).name();
    let head = format!(
        "<{}> {time} {} {size} bytes, from {source}, {verdict}{why} ",
        inode.number(),
        inode.kind().letter()
    );
    let path = file.paths.first().map_or_else(|| b"(no name)".to_vec(), |path| shown(path));
    [head.as_bytes(), &path].concat()
}

fn value(file: &DeletedFile) -> Value {
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
    let others = file.paths.iter().skip(1).map(|path| String::from_utf8_lossy(path).into_owned());
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
    value["blocks_shared"] = file.blocks.shared.into();
    value["verdict"] = Verdict::of(file).name().into();
    value
}
