//! `casemate ext4 digest`.

use std::ffi::OsString;

use serde_json::json;

use casemate::blockdev::os::{self, OsStrExt};
use casemate::ext4::{self, FileSystem, FileType};
use casemate::fsverity::{self, Algorithm, Entry, Parameters, escape_name};
use casemate::{Error, Work, hex};

use super::image::{ImageArgs, Verity};
use super::walk::{Step, walk};
use crate::answer::Answer;
use crate::context::{Context, Failures};

/// List the digests of an image's files: SHA-256 in lines for sha256sum --check.
///
/// Paths have no leading slash, so sha256sum can check a copy of the tree from within it. With --json, one object a
/// line. A file with fs-verity is checked against its tree while it is read.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate ext4 digest --tree root.img /etc/os-release\n\
    \x20 casemate ext4 digest root.img /etc > list\n\
    \x20 casemate ext4 extract root.img etc-only --include=/etc\n\
    \x20 cd etc-only && sha256sum --quiet --check ../list")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,
    /// Files, and directories with their contents [default: the root directory].
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
    /// List fs-verity digests instead, in lines for casemate fsverity check.
    #[arg(long)]
    tree: bool,
    /// Check fs-verity files: require refuses files without it, check verifies files that have it, ignore skips the
    /// check. (--dm-verity verifies the device below.)
    #[arg(long, value_name = "DEMAND", value_enum, default_value_t)]
    fsverity: Verity,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let fs = self.image.open_with(self.fsverity, context)?;
        let mut failures = Failures::default();
        let progress = context.progress(fs.name(), fs.used_bytes());
        let work = context.work(context.providers().clone(), &progress);
        walk(&fs, &self.paths, |step, _| {
            match step {
                Step::Found(path, inode) if inode.kind() == FileType::Regular => {
                    match self.line(&fs, path, &work, context) {
                        Ok(line) => context.print(line)?,
                        Err(error) if error.is_interrupt() => return Err(error),
                        Err(error) => failures.add(context, error),
                    }
                }
                Step::Failed(error) => failures.add(context, error),
                _ => {}
            }
            Ok(true)
        })?;
        failures.finish()
    }

    fn line(
        &self,
        fs: &FileSystem,
        path: &[u8],
        work: &Work<'_>,
        context: &Context,
    ) -> Result<Vec<u8>, Error> {
        let full = os::path(path);
        let file = fs.open(&full)?;
        let at = |error: Error| fs.error(&full, error);
        let path = full.strip_prefix("/").unwrap_or(&full);
        let digest = match self.tree {
            true => {
                let parameters = Parameters::new(Algorithm::Sha256, 4096, &[])?;
                let descriptor = fsverity::describe_device(&*file, &parameters, work).map_err(at)?;
                let digest = descriptor.digest(&work.providers)?;
                if !context.json() {
                    return Ok(Entry { path: path.to_owned(), digest }.to_line());
                }
                digest.to_string()
            }
            false => hex::encode(&ext4::sha256(&*file, work).map_err(at)?),
        };
        if context.json() {
            let path = full.to_string_lossy();
            return context.json_line(&json!({"path": path, "digest": digest, "size": file.size()}));
        }
        // As sha256sum writes names.
        Ok(match escape_name(path) {
            Some(name) => [b"\\", digest.as_bytes(), b"  ", &name, b"\n"].concat(),
            None => [digest.as_bytes(), b"  ", path.as_os_str().as_bytes(), b"\n"].concat(),
        })
    }
}
