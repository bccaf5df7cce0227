//! `casemate ext4 cat`.

use std::ffi::OsString;
use std::io::Write;

use casemate::blockdev::{BlockDevice, copy_data, u64_of, usize_of};
use casemate::{Error, Output};

use super::image::{ImageArgs, Verity};
use crate::answer::Answer;
use crate::context::{Context, Failures};

/// Bytes that are read at once.
const CHUNK: u64 = 1 << 20;

/// Write files' contents to standard output.
///
/// A file with fs-verity is checked while it is read: the output matches its tree.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate ext4 cat root.img /etc/os-release\n\
    \x20 casemate ext4 cat --dm-verity root.verity @root.hash.txt root.img /etc/os-release")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,
    /// The files; symbolic links are followed.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// Check fs-verity files: require refuses files without it, check verifies files that have it, ignore skips the
    /// check. (--dm-verity verifies the device below.)
    #[arg(long, alias = "verity", value_name = "DEMAND", value_enum, default_value_t)]
    fsverity: Verity,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let fs = self.image.open_with(self.fsverity, context)?;
        let (mut failures, mut output) = (Failures::default(), context.output_of_copy()?);
        for path in &self.paths {
            let copied = fs.open(path).and_then(|file| {
                copy(&*file, |error| fs.error(path, error), &mut output)
                    .map_err(|error| error.at("standard output"))
            });
            match copied {
                Err(error) if error.is_broken_pipe() => return Err(error),
                Err(error) => failures.add(context, error),
                Ok(()) => {}
            }
        }
        failures.finish()
    }
}

/// Copies a file, of whose errors `name` says which one it is; those of writing have no name.
pub fn copy(file: &dyn BlockDevice, name: impl Fn(Error) -> Error, out: &mut dyn Write) -> Result<(), Error> {
    let mut buffer = vec![0; usize_of(CHUNK.min(file.size()))];
    let mut at = 0;
    while at < file.size() {
        let len = usize_of((file.size() - at).min(CHUNK));
        file.read_at(&mut buffer[..len], at).map_err(&name)?;
        out.write_all(&buffer[..len])?;
        at += u64_of(len);
    }
    Ok(out.flush()?)
}

/// Copies a file as [`copy`] does; holes stay holes where the output is a new file.
pub fn copy_to_output(
    file: &dyn BlockDevice,
    name: impl Fn(Error) -> Error,
    output: &mut Output,
) -> Result<(), Error> {
    let Some(to) = output.new_file() else { return copy(file, name, output) };
    to.set_len(file.size())?;
    let mut buffer = vec![0; usize_of(CHUNK.min(file.size()))];
    copy_data(file, 0..file.size(), &mut buffer, name, |data, at| to.write_at(data, at))?;
    Ok(())
}
