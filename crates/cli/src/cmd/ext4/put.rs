//! `casemate ext4 put`.

use std::ffi::OsString;
use std::io::BufReader;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use casemate::Error;
use casemate::ext4::PutOptions;

use super::change::{ChangeArgs, print_report};
use crate::answer::Answer;
use crate::context::Context;

/// What messages call it.
const STANDARD_INPUT: &str = "standard input";

/// Copy files or trees into an image.
///
/// Modes, owners, times of modification, holes, links and extended attributes are kept. What goes into an
/// existing directory keeps its name; SRC/. stands for what is in SRC. An existing file is replaced by a new one, and
/// an existing directory is added to and stays as it is otherwise. The first file that can't be copied ends all.
/// A symbolic link that is named is followed, and what comes out of a pipe becomes a file of root's; links and pipes in
/// a folder are copied as such.
/// A large tree is committed in parts: if it is interrupted, whole files are there.
/// What a tar stream has stays below DST: paths from the root begin there, `..` is refused, links are not followed.
#[derive(clap::Args, Debug)]
#[command(
    allow_missing_positional = true,
    after_help = "Examples:\n  casemate ext4 put root.img motd /etc/motd\n  \
    casemate ext4 put -r root.img rootfs/. /\n  \
    date | casemate ext4 put root.img - /etc/built\n  \
    zstdcat rootfs.tar.zst | casemate ext4 put --tar=- root.img /"
)]
pub struct Args {
    #[command(flatten)]
    change: ChangeArgs,
    /// The file or folder to copy; - is standard input.
    #[arg(value_name = "SRC", required_unless_present = "tar")]
    source: Option<PathBuf>,
    /// Where to in the image.
    #[arg(value_name = "DST")]
    destination: OsString,
    /// Copy what is in this tar stream into the directory DST, which is made if it is not there; "-" is standard
    /// input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["source", "recursive", "no_dereference"])]
    tar: Option<PathBuf>,
    /// Copy folders with all that is in them.
    #[arg(short, long)]
    recursive: bool,
    /// Copy a symbolic link or a pipe that is named as such.
    #[arg(short = 'd', long)]
    no_dereference: bool,
    /// Give everything to this owner and group, by their numbers.
    #[arg(long, value_name = "UID:GID", value_parser = super::chown::parse_both)]
    owner: Option<(u32, u32)>,
    /// Leave extended attributes out.
    #[arg(long)]
    no_xattrs: bool,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let is_tar = self.tar.is_some();
        let source = self.tar.or(self.source).unwrap_or_default();
        let is_input = source.as_os_str() == "-";
        if !is_tar && !is_input {
            let here = |error| Error::io(source.display(), error);
            let link = std::fs::symlink_metadata(&source).map_err(here)?;
            let is_folder = link.is_dir() || (!self.no_dereference && source.is_dir());
            if is_folder && !self.recursive {
                return Err(
                    Error::argument("is a folder; -r copies it with all that is in it").at(source.display())
                );
            }
        }
        let mut change = self.change.open(context)?;
        let writer = &mut change.writer;
        let progress = context.progress(&source.display().to_string(), 0);
        let options = PutOptions {
            recursive: self.recursive,
            no_dereference: self.no_dereference,
            image: self.change.image_file(),
            owner: self.owner,
            xattrs: !self.no_xattrs,
        };
        let work = context.work(context.providers().clone(), &progress);
        let to = self.destination.as_bytes();
        let result = match (is_tar, is_input) {
            (true, true) => writer.put_tar(&mut std::io::stdin().lock(), STANDARD_INPUT, to, &options, &work),
            (true, false) => {
                let file =
                    std::fs::File::open(&source).map_err(|error| Error::io(source.display(), error))?;
                let mut file = BufReader::with_capacity(1 << 16, file);
                writer.put_tar(&mut file, &source.display().to_string(), to, &options, &work)
            }
            (false, true) => writer.put_contents(
                &mut std::io::stdin().lock(),
                Path::new(STANDARD_INPUT),
                to,
                &options,
                &work,
            ),
            (false, false) => writer.put(&source, to, &options, &work),
        };
        drop(progress);
        let report = self.change.place(result)?;
        self.change.place(change.writer.commit())?;
        print_report(context, &report)?;
        self.change.done(context, &format!("{} files, {} bytes put", report.files, report.bytes));
        Ok(Answer::Yes)
    }
}
