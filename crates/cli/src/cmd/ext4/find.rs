//! `casemate ext4 find`.

use std::ffi::OsString;
use std::io::{BufWriter, Write};

use casemate::Error;
use casemate::ext4::{Ext4, FileType, Glob, Inode, Time};

use super::chmod::mode_bits;
use super::entry::{self, shown};
use super::image::ImageArgs;
use super::touch::date;
use super::walk::{Step, walk};
use crate::answer::Answer;
use crate::context::{Context, Failures};
use crate::size::bytes;

/// Find files in an image, as find does: print the paths that pass all tests.
///
/// Tests can be written as in find, with one dash: -name '*.conf' -type f. Sizes are in bytes, as everywhere in
/// casemate. With --json, one object a line.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate ext4 find root.img /etc -name '*.conf'\n\
    \x20 casemate ext4 find root.img -type f -size +1M\n\
    \x20 casemate ext4 find root.img /usr /bin -perm /6000 --print0 | xargs -0 -n 1 echo\n\
    \x20 casemate ext4 find root.img -newermt 2020-01-31 --json")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,
    /// Paths to search; links are not followed [default: the root directory].
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
    /// Name matches this pattern: * for any text, ? for any character, [a-z] for one of these.
    #[arg(long, value_name = "PATTERN", value_parser = glob)]
    name: Option<Glob>,
    /// Name matches this pattern, regardless of case.
    #[arg(long, value_name = "PATTERN", value_parser = glob_of_any_case)]
    iname: Option<Glob>,
    /// Type is file (f), directory (d), symbolic link (l), block (b) or character device (c), pipe (p), socket (s), or
    /// one of several, with commas.
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',', value_parser = kind)]
    kinds: Vec<FileType>,
    /// Size is N bytes, more (+N) or less (-N).
    #[arg(long, value_name = "BYTES", value_parser = size, allow_hyphen_values = true)]
    size: Option<Size>,
    /// Owner is this user.
    #[arg(long, value_name = "UID")]
    uid: Option<u32>,
    /// Group is this one.
    #[arg(long, value_name = "GID")]
    gid: Option<u32>,
    /// Permission bits are exactly these, include all of them (-), or any of them (/): octal, or such as u+s.
    #[arg(long, value_name = "PERMISSIONS", value_parser = permissions, allow_hyphen_values = true)]
    perm: Option<Permissions>,
    /// Modified after this time, in the format of touch --date.
    #[arg(long, value_name = "DATE", value_parser = date)]
    newermt: Option<Time>,
    /// Inode number is this one.
    #[arg(long, value_name = "NUMBER")]
    inum: Option<u32>,
    /// Go down at most N levels; 0 is the paths themselves.
    #[arg(long, value_name = "N")]
    maxdepth: Option<usize>,
    /// End paths with a zero byte, for xargs -0.
    #[arg(long)]
    print0: bool,
}

#[derive(Clone, Copy, Debug)]
enum Size {
    Just(u64),
    More(u64),
    Fewer(u64),
}

#[derive(Clone, Copy, Debug)]
enum Permissions {
    Just(u16),
    All(u16),
    Any(u16),
}

/// Options that are written with one dash where they belong to find.
const TESTS: &[&str] = &[
    "-name",
    "-iname",
    "-type",
    "-size",
    "-uid",
    "-gid",
    "-perm",
    "-newermt",
    "-inum",
    "-maxdepth",
    "-print0",
];

/// A command line of this command with two dashes where find has one; any other one as it is.
pub fn with_two_dashes(args: &[OsString]) -> Vec<OsString> {
    let is_find = args.windows(2).any(|words| words[0] == "ext4" && words[1] == "find");
    let spelled = |word: &OsString| match TESTS.iter().any(|test| word == test) {
        true if is_find => OsString::from(format!("-{}", word.to_string_lossy())),
        _ => word.clone(),
    };
    args.iter().map(spelled).collect()
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let fs = self.image.open(context)?;
        let mut failures = Failures::default();
        let mut out = BufWriter::new(context.output());
        walk(&fs, &self.paths, |step, depth| {
            match step {
                Step::Found(path, inode) if self.is_wanted(path, inode) => {
                    match self.line(fs.inodes(), path, inode, context) {
                        Ok(line) => {
                            out.write_all(&line).map_err(|error| Error::io("standard output", error))?
                        }
                        Err(error) => failures.add(context, self.image.error(error)),
                    }
                }
                Step::Failed(error) => failures.add(context, error),
                _ => {}
            }
            Ok(self.maxdepth.is_none_or(|most| depth < most))
        })?;
        out.flush().map_err(|error| Error::io("standard output", error))?;
        failures.finish()
    }

    fn is_wanted(&self, path: &[u8], inode: &Inode) -> bool {
        let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
        let name = match path[..end].rsplit(|byte| *byte == b'/').next().unwrap_or_default() {
            // The root directory's name.
            b"" => &b"/"[..],
            name => name,
        };
        let (size, time, bits) = (inode.size(), inode.modified(), inode.mode() & 0o7777);
        (self.kinds.is_empty() || self.kinds.contains(&inode.kind()))
            && self.uid.is_none_or(|uid| inode.uid() == uid)
            && self.gid.is_none_or(|gid| inode.gid() == gid)
            && self.inum.is_none_or(|number| inode.number().get() == number)
            && self.size.is_none_or(|wanted| match wanted {
                Size::Just(wanted) => size == wanted,
                Size::More(than) => size > than,
                Size::Fewer(than) => size < than,
            })
            && self.perm.is_none_or(|wanted| match wanted {
                Permissions::Just(wanted) => bits == wanted,
                Permissions::All(wanted) => bits & wanted == wanted,
                Permissions::Any(wanted) => wanted == 0 || bits & wanted != 0,
            })
            && self
                .newermt
                .is_none_or(|than| (time.seconds, time.nanoseconds) > (than.seconds, than.nanoseconds))
            && [&self.name, &self.iname].into_iter().flatten().all(|glob| glob.matches(name))
    }

    fn line(&self, fs: &Ext4, path: &[u8], inode: &Inode, context: &Context) -> Result<Vec<u8>, Error> {
        match (context.json(), self.print0) {
            (true, _) => context.json_line(&entry::value(fs, path, inode)?),
            (false, true) => Ok([path, b"\0"].concat()),
            (false, false) => Ok([&shown(path)[..], b"\n"].concat()),
        }
    }
}

fn glob(text: &str) -> Result<Glob, String> {
    Glob::new(text.as_bytes()).map_err(|error| error.to_string())
}

fn glob_of_any_case(text: &str) -> Result<Glob, String> {
    glob(text).map(Glob::ignoring_case)
}

fn kind(text: &str) -> Result<FileType, String> {
    Ok(match text {
        "f" => FileType::Regular,
        "d" => FileType::Directory,
        "l" => FileType::Symlink,
        "b" => FileType::BlockDevice,
        "c" => FileType::CharacterDevice,
        "p" => FileType::Fifo,
        "s" => FileType::Socket,
        _ => return Err(format!("{text}: none of f, d, l, b, c, p, s")),
    })
}

fn size(text: &str) -> Result<Size, String> {
    // find's own letters for bytes and for K.
    let number = |text: &str| match (text.strip_suffix('c'), text.strip_suffix('k')) {
        (Some(number), _) => bytes(number),
        (_, Some(number)) => bytes(&format!("{number}K")),
        _ => bytes(text),
    };
    match (text.strip_prefix('+'), text.strip_prefix('-')) {
        (Some(text), _) => number(text).map(Size::More),
        (_, Some(text)) => number(text).map(Size::Fewer),
        _ => number(text).map(Size::Just),
    }
}

fn permissions(text: &str) -> Result<Permissions, String> {
    match (text.strip_prefix('-'), text.strip_prefix('/')) {
        (Some(text), _) => mode_bits(text).map(Permissions::All),
        (_, Some(text)) => mode_bits(text).map(Permissions::Any),
        _ => mode_bits(text).map(Permissions::Just),
    }
}
