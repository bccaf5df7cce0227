//! `casemate ext4 tree`.

use std::ffi::OsString;
use std::io::{BufWriter, Write};

use casemate::Error;
use casemate::blockdev::os::OsStrExt;
use casemate::ext4::{DirEntry, Ext4, FileType, Inode, IntoNames, Name, Names, SeenDirectories};

use super::entry::{self, join, shown};
use super::image::ImageArgs;
use crate::answer::Answer;
use crate::context::{Context, Failures};
use crate::streams::StandardOutput;

/// List everything below a directory, as tree does.
///
/// With --json, one object a line.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  casemate ext4 tree root.img /etc\n  \
    casemate ext4 tree --json root.img | jq -r 'select(.type == \"symlink\").path'")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,
    /// Directory to begin with [default: the root directory].
    #[arg(value_name = "PATH", default_value = "/")]
    path: OsString,
    /// Show names that begin with a dot, too.
    #[arg(short = 'a', long)]
    all: bool,
    /// Show directories only.
    #[arg(short = 'd', long)]
    directories: bool,
    /// Go down at most this many levels.
    #[arg(short = 'L', long, value_name = "N")]
    level: Option<usize>,
}

/// A directory whose names are being printed.
struct Level {
    path: Vec<u8>,
    /// Beginning of the lines below it.
    indent: String,
    /// Names that are still to be printed.
    rest: IntoNames,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let fs = self.image.open(context)?;
        let top = fs.metadata(&self.path)?;
        let mut walk = Walk {
            args: &self,
            context,
            fs: fs.inodes(),
            out: BufWriter::new(context.output()),
            failures: Failures::default(),
            seen: SeenDirectories::new(),
            directories: 0,
            files: 0,
        };
        walk.run(&top)?;
        walk.failures.finish()
    }
}

struct Walk<'a> {
    args: &'a Args,
    context: &'a Context,
    fs: &'a Ext4,
    out: BufWriter<&'a StandardOutput>,
    failures: Failures,
    seen: SeenDirectories,
    directories: u64,
    files: u64,
}

impl Walk<'_> {
    /// Walks with a stack of its own: an image may nest deeper than ours is.
    fn run(&mut self, top: &Inode) -> Result<(), Error> {
        let path = self.args.path.as_bytes().to_vec();
        if !self.context.json() {
            let line = [&shown(&path)[..], b"\n"].concat();
            self.write(&line)?;
        }
        let rest = self.list(&path, top).into_iter();
        let mut levels = vec![Level { path, indent: String::new(), rest }];
        while let Some(level) = levels.last_mut() {
            let Some(DirEntry { name, inode: number, .. }) = level.rest.next() else {
                levels.pop();
                continue;
            };
            let inode = match self.fs.inode(number) {
                Ok(inode) => inode,
                Err(error) => {
                    self.failures.add(self.context, self.args.image.error(error));
                    continue;
                }
            };
            let is_last = level.rest.len() == 0;
            let path = join(&level.path, &name);
            let indent = level.indent.clone();
            if inode.is_dir() {
                self.directories += 1
            } else {
                self.files += 1
            }
            self.line(&path, &name, &inode, &indent, is_last)?;
            let deeper = self.args.level.is_none_or(|most| levels.len() < most);
            if inode.is_dir() && deeper {
                let rest = self.list(&path, &inode).into_iter();
                let more = if is_last { "    " } else { "\u{2502}\u{a0}\u{a0} " };
                levels.push(Level { path, indent: indent + more, rest });
            }
        }
        if !self.context.json() {
            let word = |count: u64, one: &str, many: &str| {
                format!("{count} {}", if count == 1 { one } else { many })
            };
            let mut text = word(self.directories, "directory", "directories");
            if !self.args.directories {
                text = format!("{text}, {}", word(self.files, "file", "files"));
            }
            self.write(format!("\n{text}\n").as_bytes())?;
        }
        self.out.flush().map_err(|error| Error::io("standard output", error))
    }

    fn line(
        &mut self,
        path: &[u8],
        name: &[u8],
        inode: &Inode,
        indent: &str,
        is_last: bool,
    ) -> Result<(), Error> {
        if self.context.json() {
            return match entry::value(self.fs, path, inode) {
                Ok(value) => {
                    let line = self.context.json_line(&value)?;
                    self.write(&line)
                }
                Err(error) => {
                    self.failures.add(self.context, self.args.image.error(error));
                    Ok(())
                }
            };
        }
        let branch = if is_last { "\u{2514}\u{2500}\u{2500} " } else { "\u{251c}\u{2500}\u{2500} " };
        let mut line = [indent.as_bytes(), branch.as_bytes(), &shown(name)].concat();
        if inode.kind() == FileType::Symlink {
            match self.fs.symlink_target(inode) {
                Ok(target) => line.extend([b" -> ", &shown(&target)[..]].concat()),
                Err(error) => self.failures.add(self.context, self.args.image.error(error)),
            }
        }
        line.push(b'\n');
        self.write(&line)
    }

    /// Lists the names to print of a directory. Inodes are read only when they are printed: many names may stand for
    /// one large inode.
    fn list(&mut self, path: &[u8], dir: &Inode) -> Names {
        let names = self.seen.enter(self.fs, path, dir).and_then(|()| self.fs.names(dir));
        let mut names = names.unwrap_or_else(|error| {
            self.failures.add(self.context, self.args.image.error(error));
            Names::default()
        });
        if let Err(error) = names.check_dots(dir) {
            self.failures.add(self.context, self.args.image.error(error));
        }
        names.retain(|name| {
            let hidden = name.bytes.starts_with(b".") && !self.args.all && !self.context.json();
            !hidden && (!self.args.directories || self.is_dir(name))
        });
        names
    }

    fn is_dir(&self, name: Name<'_>) -> bool {
        match name.kind {
            Some(kind) => kind == FileType::Directory,
            // What can't be read is to be named when its turn comes.
            None => self.fs.inode(name.inode).map_or(true, |inode| inode.is_dir()),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.out.write_all(bytes).map_err(|error| Error::io("standard output", error))
    }
}
