//! `casemate ext4 put`.

use std::ffi::OsString;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use casemate::blockdev::Stream;
use casemate::blockdev::os::OsStrExt;
use casemate::ext4::{PutOptions, PutReport, Writer};
use casemate::{Error, Work};

use super::change::{ChangeArgs, node, print_report};
use super::chmod::parse_octal;
use super::mv::into;
use crate::answer::Answer;
use crate::context::Context;

/// Name of standard input in messages.
const STANDARD_INPUT: &str = "standard input";

/// Copy files or trees from this machine into an image.
///
/// Keeps modes, owners, modification times, holes, links and extended attributes. A file that exists is replaced by the new one,
/// its mode, owner and attributes too. A directory that exists gets the new entries and otherwise stays as it is. SRC/. means the
/// contents of SRC. Stops at the first file that cannot be copied. Follows a symbolic link that is named as SRC, and copies links and
/// pipes inside folders as such. Data read from a pipe have no mode or owner: where a file exists they replace its contents, and it
/// keeps mode, owner, ACL and attributes, and loses its capabilities; a new one is root's. Other names of a replaced file keep the old
/// contents. Commits a large tree in parts: after an
/// interruption, complete files are there. Entries of a tar stream stay below DST: absolute paths begin there, ".."
/// is refused, links are not followed.
#[derive(clap::Args, Debug)]
#[command(
    override_usage = "casemate ext4 put [OPTIONS] <IMAGE> <SRC>... <DST>\n       \
    casemate ext4 put [OPTIONS] --tar <FILE> <IMAGE> <DST>",
    after_help = "Examples:\n  casemate ext4 put root.img motd /etc/motd\n  \
    casemate ext4 put -p --mode 600 root.img motd f /srv/private\n  \
    casemate ext4 put -r root.img rootfs/. /\n  \
    date | casemate ext4 put root.img - /etc/built\n  \
    casemate ext4 put --tar rootfs.tar.zst root.img /"
)]
pub struct Args {
    #[command(flatten)]
    change: ChangeArgs,
    /// SRC: the files or folders to copy, "-" for standard input. DST: the target path in the image.
    #[arg(value_name = "PATH", required = true, num_args = 1..)]
    paths: Vec<OsString>,
    /// Copy the entries of this tar stream into the directory DST, which is created if missing. gzip and zstd are
    /// recognised; "-" is standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["recursive", "no_dereference", "mode"])]
    tar: Option<PathBuf>,
    /// Copy folders with their contents.
    #[arg(short, long)]
    recursive: bool,
    /// Copy symbolic links and pipes that are named as SRC as such, not what they lead to.
    #[arg(short = 'd', long)]
    no_dereference: bool,
    /// Set this owner and group on everything (numeric).
    #[arg(long, value_name = "UID:GID", value_parser = super::chown::parse_both)]
    owner: Option<(u32, u32)>,
    /// Create missing parent directories of DST. With several SRC, or a slash at its end, create DST too.
    #[arg(short, long)]
    parents: bool,
    /// Octal permission bits for the named files [default: their own].
    #[arg(short, long, value_name = "MODE", value_parser = parse_octal, conflicts_with = "recursive")]
    mode: Option<u16>,
    /// Do not copy extended attributes. A file's group gets what its ACL gave it, not the ACL's mask.
    #[arg(long)]
    no_xattrs: bool,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        // OK to unwrap: there is one at least.
        let (_, sources) = self.paths.split_last().unwrap();
        let sources: Vec<PathBuf> = match (&self.tar, sources) {
            (Some(tar), []) => vec![tar.clone()],
            (Some(_), _) => return Err(Error::argument("--tar takes one directory of the image: DST")),
            (None, []) => return Err(Error::argument("give what to copy and where to: SRC... DST")),
            (None, sources) => sources.iter().map(PathBuf::from).collect(),
        };
        if self.tar.is_none() {
            sources.iter().try_for_each(|source| self.check(source))?;
        }
        let change = self.change.open(context)?;
        let report = self.change.whole(change, context, |writer| self.put(writer, &sources, context))?;
        print_report(context, &self.change, &report)?;
        self.change.done(context, &format!("{} files, {} bytes put", report.files, report.bytes));
        Ok(Answer::Yes)
    }

    /// Copies all that is named.
    fn put(&self, writer: &mut Writer, sources: &[PathBuf], context: &Context) -> Result<PutReport, Error> {
        // OK to unwrap: there is one at least.
        let to = self.paths.last().unwrap();
        let progress = context.progress(&sources[0].display().to_string(), 0);
        let mut options = PutOptions::default();
        options.recursive = self.recursive;
        options.no_dereference = self.no_dereference;
        options.owner = self.owner;
        options.xattrs = !self.no_xattrs;
        let work = context.work(context.providers().clone(), &progress);
        let to = to.as_bytes();
        let several = sources.len() > 1 || to.ends_with(b"/");
        if self.parents {
            let above = to.iter().rposition(|byte| *byte == b'/').filter(|slash| *slash > 0);
            let folder = if several { to } else { above.map_or(&b"/"[..], |slash| &to[..slash]) };
            self.change.place(writer.make_directory(folder, &node(None, 0o777), true))?;
        }
        let is_folder = writer.fs().resolve(to, true).is_ok_and(|inode| inode.is_dir());
        if sources.len() > 1 && !is_folder {
            let text =
                format!("{}: several files go into a directory; -p makes it", String::from_utf8_lossy(to));
            return Err(Error::argument(text).at(self.change.file().display()));
        }
        let mut report = PutReport::default();
        for source in sources {
            let added = self.change.place(self.copy(writer, source, to, &options, &work))?;
            report.files += added.files;
            report.directories += added.directories;
            report.others += added.others;
            report.bytes += added.bytes;
            if let Some(mode) = self.mode {
                let name = into(writer, source.as_os_str().as_bytes(), to);
                self.change.place(writer.set_mode(&name, mode))?;
            }
        }
        Ok(report)
    }

    /// Checks what is named of this machine, before anything is changed.
    fn check(&self, source: &Path) -> Result<(), Error> {
        if is_input(source) {
            return Ok(());
        }
        let link = std::fs::symlink_metadata(source).map_err(|error| Error::io(source.display(), error))?;
        let is_folder = link.is_dir() || (!self.no_dereference && source.is_dir());
        match is_folder && !self.recursive {
            true => {
                Err(Error::argument("is a folder; -r copies it with all that is in it").at(source.display()))
            }
            false => Ok(()),
        }
    }

    fn copy(
        &self,
        writer: &mut Writer,
        source: &Path,
        to: &[u8],
        options: &PutOptions,
        work: &Work<'_>,
    ) -> Result<PutReport, Error> {
        let name = source.display().to_string();
        match (self.tar.is_some(), is_input(source)) {
            (true, true) => writer.put_tar(&mut input()?, STANDARD_INPUT, to, options, work),
            (true, false) => {
                let file = Stream::open(source).map_err(|error| Error::io(&name, error))?;
                let mut file = BufReader::with_capacity(1 << 16, file);
                writer.put_tar(&mut file, &name, to, options, work)
            }
            (false, true) => writer.put_contents(&mut input()?, Path::new(STANDARD_INPUT), to, options, work),
            (false, false) => writer.put(source, to, options, work),
        }
    }
}

fn input() -> Result<BufReader<Stream>, Error> {
    let input = Stream::input().map_err(|error| Error::io(STANDARD_INPUT, error))?;
    Ok(BufReader::with_capacity(1 << 16, input))
}

fn is_input(source: &Path) -> bool {
    source.as_os_str() == "-"
}
