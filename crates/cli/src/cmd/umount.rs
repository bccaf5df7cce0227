//! `casemate umount`.

use std::path::PathBuf;

use casemate::Error;
use casemate_fuse::{Unmount, unmount};

use crate::answer::Answer;
use crate::context::Context;

/// Unmount folders of casemate mount.
///
/// Makes all changes permanent first. If that fails, as on a full disk, the folder stays mounted, and the exit status
/// is 2. Waits until the process that served the folder has confirmed that nothing is left to write, and has ended, so
/// that the image is free. Also unmounts a folder whose process was killed.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The folders.
    #[arg(value_name = "FOLDER", required = true)]
    folders: Vec<PathBuf>,
    /// Unmount a folder in use, too: programs keep their open files. Changes that can't be made permanent are lost.
    #[arg(long)]
    lazy: bool,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let when = if self.lazy { Unmount::Lazily } else { Unmount::WhenUnused };
        let mut failures = crate::context::Failures::default();
        for folder in &self.folders {
            match unmount(folder, when, context) {
                Ok(()) => context.done(format_args!("{}: unmounted", folder.display())),
                Err(error) => failures.add(context, error),
            }
        }
        failures.finish()
    }
}
