//! `casemate ext4 ls`.

use std::ffi::OsString;
use std::ops::ControlFlow;

use clap::ArgAction;

use casemate::Error;
use casemate::blockdev::os::OsStrExt;
use casemate::ext4::{Ext4, FileSystem, Inode, InodeNo, IntoNames, Name, Names, SeenDirectories};

use super::entry::{self, Widths, join, long_line, shown};
use super::image::ImageArgs;
use super::walk::{Step, walk};
use crate::answer::Answer;
use crate::context::{Context, Failures};

/// List files and directories, as ls does; owners are numbers and times UTC.
///
/// With --json, one object a line.
#[derive(clap::Args, Debug)]
#[command(
    // -h is that of ls.
    disable_help_flag = true,
    after_help = "Examples:\n\
    \x20 casemate ext4 ls root.img\n\
    \x20 casemate ext4 ls -l root.img /etc /usr\n\
    \x20 casemate ext4 ls --json root.img /etc\n\
    \x20 casemate ext4 ls disk.enc,crypt=aes-xts-plain64,key-file=disk.key,key-size=512 /home"
)]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,
    /// Paths to list [default: the root directory].
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
    /// Show mode, links, owner, size and time.
    #[arg(short = 'l', long)]
    long: bool,
    /// With -l, show sizes as 1.5K, 23M, 4G: in powers of 1024, rounded up.
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// Print help.
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
    /// Show names that begin with a dot, too.
    #[arg(short = 'a', long)]
    all: bool,
    /// List directories themselves, not what is in them.
    #[arg(short = 'd', long)]
    directory: bool,
    /// List directories below, too.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Show inode numbers.
    #[arg(short = 'i', long)]
    inode: bool,
    /// List removed names that are still visible in directories, with their inode numbers. Other files may have these
    /// inodes by now. Linux erases names since version 5.13. With -l, list the deleted files of the whole file system
    /// instead: inode, time, size, how sure it is that they can be restored, path.
    #[arg(long, conflicts_with_all = ["human_readable", "directory", "all"])]
    deleted: bool,
}

/// Bytes that are printed at once.
const PIECE: usize = 1 << 16;

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let fs = self.image.open(context)?;
        let mut failures = Failures::default();
        if self.deleted && self.long {
            if !self.paths.is_empty() {
                return Err(Error::argument("--deleted -l lists the whole file system: it takes no paths"));
            }
            return super::undelete::list(&fs, context);
        }
        if self.deleted {
            return self.list_deleted(&fs, context);
        }
        let default = [OsString::from("/")];
        let paths = if self.paths.is_empty() { &default[..] } else { &self.paths[..] };
        let (mut files, mut folders) = (Vec::new(), Vec::new());
        for path in paths {
            // As ls: a link that is named is followed, unless details are asked of it.
            let follow = !self.long && !self.directory;
            match if follow { fs.metadata(path) } else { fs.symlink_metadata(path) } {
                Ok(inode) if inode.is_dir() && !self.directory => {
                    folders.push((path.as_bytes().to_vec(), inode.number()));
                }
                Ok(inode) => {
                    let (inode, kind) = (inode.number(), None);
                    files.push(Name { inode, kind, bytes: path.as_bytes() });
                }
                Err(error) => failures.add(context, error),
            }
        }
        let fs = fs.inodes();
        self.print(context, fs, b"", files.iter().copied(), &mut failures)?;
        let several = paths.len() > 1 || self.recursive;
        let mut gap = if files.is_empty() { "" } else { "\n" };
        let mut seen = SeenDirectories::new();
        // With a stack of its own: an image may nest deeper than ours is. Paths of directories and, of each, what is
        // still to come below.
        let mut levels: Vec<(Vec<u8>, IntoNames)> = Vec::new();
        let mut folders = folders.into_iter();
        loop {
            let below = levels.last_mut().map(|(path, rest)| (path, rest.next()));
            let (path, number) = match below {
                Some((above, Some(entry))) => (join(above, &entry.name), entry.inode),
                Some((_, None)) => {
                    levels.pop();
                    continue;
                }
                None => match folders.next() {
                    Some(folder) => folder,
                    None => break,
                },
            };
            if several && !context.json() {
                context.print([gap.as_bytes(), &shown(&path), b":\n"].concat())?;
                gap = "\n";
            }
            let dir = fs.inode(number).and_then(|dir| {
                if self.recursive {
                    seen.enter(fs, &path, &dir)?;
                }
                Ok(dir)
            });
            let rows = dir.map_err(|error| self.image.error(error));
            let rows = rows.and_then(|dir| self.rows(context, fs, &dir, &mut failures));
            let mut rows = rows.unwrap_or_else(|error| {
                failures.add(context, error);
                Names::default()
            });
            self.print(context, fs, &path, rows.iter(), &mut failures)?;
            if self.recursive {
                // What can't be read was named when it was printed.
                rows.retain(|name| fs.inode(name.inode).is_ok_and(|inode| inode.is_dir()));
                levels.push((path, rows.into_iter()));
            }
        }
        failures.finish()
    }

    fn list_deleted(&self, fs: &FileSystem, context: &Context) -> Result<Answer, Error> {
        let mut failures = Failures::default();
        walk(fs, &self.paths, |step, depth| {
            match step {
                Step::Found(path, inode) if inode.is_dir() => {
                    let shown = fs.inodes().for_each_removed_entry(inode, |entry| {
                        context.print(self.deleted_line(
                            &join(path, &entry.name),
                            entry.inode,
                            context,
                        )?)?;
                        Ok(ControlFlow::Continue(()))
                    });
                    if let Err(error) = shown {
                        failures.add(context, self.image.error(error));
                    }
                }
                Step::Found(path, _) if depth == 0 => {
                    let path = String::from_utf8_lossy(path);
                    failures.add(context, self.image.error(Error::argument(format!("{path}: no directory"))));
                }
                Step::Failed(error) => failures.add(context, error),
                _ => {}
            }
            Ok(self.recursive)
        })?;
        failures.finish()
    }

    fn deleted_line(&self, path: &[u8], inode: InodeNo, context: &Context) -> Result<Vec<u8>, Error> {
        match context.json() {
            true => {
                let mut value = entry::path_value(path);
                value["inode"] = inode.get().into();
                context.json_line(&value)
            }
            false => Ok([format!("{inode} ").as_bytes(), &shown(path), b"\n"].concat()),
        }
    }

    /// The names in a directory, in the order of their bytes.
    fn rows(
        &self,
        context: &Context,
        fs: &Ext4,
        dir: &Inode,
        failures: &mut Failures,
    ) -> Result<Names, Error> {
        let mut rows = fs.names(dir).map_err(|error| self.image.error(error))?;
        if let Err(error) = rows.check_dots(dir) {
            failures.add(context, self.image.error(error));
        }
        rows.retain(|name| !name.bytes.starts_with(b".") || self.all || context.json());
        Ok(rows)
    }

    /// Prints names. Their inodes are read when it is their turn: many names may stand for one large inode.
    fn print<'a>(
        &self,
        context: &Context,
        fs: &Ext4,
        folder: &[u8],
        rows: impl Iterator<Item = Name<'a>> + Clone,
        failures: &mut Failures,
    ) -> Result<(), Error> {
        let measured = rows.clone().filter(|_| self.long).filter_map(|name| fs.inode(name.inode).ok());
        let widths = Widths::of(measured, self.human_readable);
        let number_width = rows.clone().map(|name| name.inode.to_string().len()).max().unwrap_or(0);
        let mut out = Vec::new();
        for Name { inode: number, bytes: name, .. } in rows {
            if out.len() >= PIECE {
                context.print(std::mem::take(&mut out))?;
            }
            let inode = match fs.inode(number) {
                Ok(inode) => inode,
                Err(error) => {
                    failures.add(context, self.image.error(error));
                    // The name is there all the same.
                    if !self.long && !context.json() {
                        out.extend([&shown(name)[..], b"\n"].concat());
                    }
                    continue;
                }
            };
            if context.json() {
                let path = join(folder, name);
                match entry::value(fs, &path, &inode) {
                    Ok(value) => out.extend(context.json_line(&value)?),
                    Err(error) => failures.add(context, self.image.error(error)),
                }
                continue;
            }
            if self.inode {
                out.extend(format!("{number:>number_width$} ").bytes());
            }
            if !self.long {
                out.extend(shown(name));
                out.push(b'\n');
                continue;
            }
            match long_line(fs, name, &inode, &widths) {
                Ok(line) => out.extend(line),
                Err(error) => failures.add(context, error),
            }
        }
        context.print(out)
    }
}
