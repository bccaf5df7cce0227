//! `casemate ext4 readlink`.

use std::ffi::OsString;

use serde_json::json;

use casemate::Error;
use casemate::blockdev::os::OsStrExt;

use super::entry::shown;
use super::image::ImageArgs;
use crate::answer::Answer;
use crate::context::{Context, Failures};

/// Print the targets of symbolic links, as readlink does.
///
/// With --json, one object a line.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  casemate ext4 ln -s root.img /etc/motd /motd\n  \
    casemate ext4 readlink root.img /motd")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,
    /// The links.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let fs = self.image.open(context)?;
        let mut failures = Failures::default();
        for path in &self.paths {
            match fs.read_link(path) {
                Ok(target) if context.json() => context.print_json(&json!({
                    "path": path.to_string_lossy(), "target": target.to_string_lossy(),
                }))?,
                Ok(target) => {
                    let target = shown(target.as_os_str().as_bytes());
                    context.print([&target[..], b"\n"].concat())?;
                }
                Err(error) => failures.add(context, error),
            }
        }
        failures.finish()
    }
}
